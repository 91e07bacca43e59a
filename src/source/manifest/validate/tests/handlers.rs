//! Probes and lifecycle hooks.

use super::{containers, specs};

#[test]
fn probes_have_one_handler() {
    let probe = |fields: &str| format!("livenessProbe: {{{fields}}}");
    containers(&[
        (&probe("exec: {command: [a]}"), &[]),
        (&probe("httpGet: {port: 80}"), &[]),
        (&probe("httpGet: {port: http, scheme: HTTPS, path: '/a?b', httpHeaders: [{name: X-A, value: b}]}"), &[]),
        (&probe("tcpSocket: {port: 65535}"), &[]),
        (&probe("grpc: {port: 1}"), &[]),
        (&probe(""), &["livenessProbe: Required value: must specify a handler"]),
        (
            &probe("exec: {command: [a]}, tcpSocket: {port: 1}, grpc: {port: 1}"),
            &[
                "livenessProbe.tcpSocket: Forbidden: may not specify more than one handler",
                "livenessProbe.grpc: Forbidden",
            ],
        ),
        (&probe("exec: {}"), &["livenessProbe.exec.command: Required value"]),
        (&probe("httpGet: {port: 0}"), &["livenessProbe.httpGet.port: Invalid value: 0: must be from 1 to 65535"]),
        (&probe("httpGet: {port: ''}"), &["livenessProbe.httpGet.port: Invalid value: \"\""]),
        (&probe("httpGet: {port: '80'}"), &["livenessProbe.httpGet.port: Invalid value: \"80\""]),
        (&probe("httpGet: {port: 80, scheme: http}"), &["livenessProbe.httpGet.scheme: Unsupported value: \"http\""]),
        (
            &probe("httpGet: {port: 80, httpHeaders: [{name: A, value: ''}, {name: 'X A', value: b}]}"),
            &["livenessProbe.httpGet.httpHeaders[1].name: Invalid value: \"X A\""],
        ),
        (&probe("tcpSocket: {port: 65536}"), &["livenessProbe.tcpSocket.port: Invalid value: 65536"]),
        (&probe("tcpSocket: {port: A}"), &["livenessProbe.tcpSocket.port: Invalid value: \"A\""]),
        (&probe("grpc: {port: 0}"), &["livenessProbe.grpc.port: Invalid value: 0"]),
    ]);
}

#[test]
fn numbers_of_probes() {
    let probe = |kind: &str, fields: &str| format!("{kind}: {{tcpSocket: {{port: 1}}, {fields}}}");
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold"] {
            let negative = format!("{kind}.{field}: Invalid value: -1: must not be negative");
            containers(&[
                (&probe(kind, &format!("{field}: 0")), &[]),
                (&probe(kind, &format!("{field}: 7")), &[]),
                (&probe(kind, &format!("{field}: -1")), &[&negative]),
            ]);
        }
    }
    containers(&[
        (&probe("readinessProbe", "successThreshold: 2"), &[]),
        (&probe("readinessProbe", "successThreshold: -2"), &["readinessProbe.successThreshold: Invalid value: -2"]),
        (
            &probe("livenessProbe", "successThreshold: 2"),
            &["livenessProbe.successThreshold: Invalid value: 2: must be 1"],
        ),
        (
            &probe("startupProbe", "successThreshold: 2"),
            &["startupProbe.successThreshold: Invalid value: 2: must be 1"],
        ),
        (&probe("livenessProbe", "terminationGracePeriodSeconds: 1"), &[]),
        (&probe("startupProbe", "terminationGracePeriodSeconds: 1"), &[]),
        (
            &probe("livenessProbe", "terminationGracePeriodSeconds: 0"),
            &["livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0"],
        ),
        (
            &probe("readinessProbe", "terminationGracePeriodSeconds: 1"),
            &["readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: must not be set"],
        ),
    ]);
}

#[test]
fn only_sidecars_among_init_containers_have_probes_and_hooks() {
    let all = "lifecycle: {}, livenessProbe: {grpc: {port: 1}}, readinessProbe: {grpc: {port: 1}}, \
               startupProbe: {grpc: {port: 1}}";
    let refused = [
        "lifecycle: Forbidden: may not be set for an init container without restartPolicy Always",
        "livenessProbe: Forbidden",
        "readinessProbe: Forbidden",
        "startupProbe: Forbidden",
    ];
    containers(&[
        (&format!("INIT {all}"), &refused),
        (&format!("INIT restartPolicy: OnFailure, {all}"), &refused),
        (&format!("INIT restartPolicy: Always, {all}"), &[]),
        (
            "INIT restartPolicy: Always, livenessProbe: {}, lifecycle: {preStop: {}}",
            &["lifecycle.preStop: Required value", "livenessProbe: Required value"],
        ),
    ]);
}

#[test]
fn hooks() {
    let stop = |fields: &str| format!("lifecycle: {{preStop: {{{fields}}}}}");
    containers(&[
        ("lifecycle: {postStart: {exec: {command: [a]}}, preStop: {httpGet: {port: 80}}}", &[]),
        (&stop("tcpSocket: {port: a}"), &[]),
        (&stop(""), &["lifecycle.preStop: Required value: must specify a handler"]),
        ("lifecycle: {postStart: {exec: {command: []}}}", &["lifecycle.postStart.exec.command: Required value"]),
        (&stop("httpGet: {port: 0}"), &["lifecycle.preStop.httpGet.port: Invalid value"]),
        (&stop("sleep: {seconds: 0}"), &[]),
        (&stop("sleep: {seconds: 30}"), &[]),
        (&stop("sleep: {seconds: 31}"), &["lifecycle.preStop.sleep: Invalid value: 31: must be from 0 to"]),
        (&stop("sleep: {seconds: -1}"), &["lifecycle.preStop.sleep: Invalid value: -1"]),
        (&stop("sleep: {seconds: 1}, exec: {command: [a]}"), &["lifecycle.preStop.sleep: Forbidden"]),
        ("lifecycle: {stopSignal: SIGUSR1}", &["lifecycle.stopSignal: Forbidden: may not be set without spec.os.name"]),
    ]);
    let signal = |os: &str, signal: &str| {
        format!("os: {{name: {os}}}, containers: [{{name: a, image: i, lifecycle: {{stopSignal: {signal}}}}}]")
    };
    for good in ["SIGTERM", "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+15", "SIGRTMAX-14", "SIGRTMAX"] {
        specs(&[(&signal("linux", good), &[])]);
    }
    for bad in ["TERM", "SIGFOO", "SIGRTMIN+0", "SIGRTMIN+16", "SIGRTMIN+01", "SIGRTMAX-15", "SIGRTMAX-"] {
        specs(&[(&signal("linux", bad), &["containers[0].lifecycle.stopSignal: Invalid value"])]);
    }
    specs(&[
        (&signal("windows", "SIGKILL"), &[]),
        (&signal("windows", "SIGUSR1"), &["containers[0].lifecycle.stopSignal: Unsupported value: \"SIGUSR1\""]),
    ]);
}
