//! Probes, lifecycle hooks, and the handlers that they share.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::format::{HEADER_NAME, PORT_NAME};
use super::report::{OneOf, Path, Report, each, text};
use crate::pod::core;

/// What a handler's check must know of the pod.
#[derive(Clone, Copy)]
pub struct Termination<'p> {
    pub grace_period: Option<i64>,
    pub os: Option<&'p str>,
}

/// Checks the three probes of the container at `at`.
pub fn probes(report: &mut Report, at: &Path<'_>, c: &core::Container) {
    for (name, p) in [("livenessProbe", &c.liveness_probe), ("startupProbe", &c.startup_probe)] {
        let (at, Some(p)) = (at.field(name), p) else { continue };
        probe(report, &at, p);
        if p.success_threshold != Some(1) {
            report.invalid(&at.field("successThreshold"), p.success_threshold.unwrap_or_default(), "must be 1");
        }
    }
    if let Some(p) = &c.readiness_probe {
        let at = at.field("readinessProbe");
        probe(report, &at, p);
        if let Some(seconds) = p.termination_grace_period_seconds {
            report.invalid(
                &at.field("terminationGracePeriodSeconds"),
                seconds,
                "must not be set for a readiness probe",
            );
        }
    }
}

fn probe(report: &mut Report, at: &Path<'_>, p: &core::Probe) {
    OneOf::new(report, at, "handler")
        .field("exec", p.exec.as_ref(), exec)
        .field("httpGet", p.http_get.as_ref(), http_get)
        .field("tcpSocket", p.tcp_socket.as_ref(), |r, at, tcp| port(r, &at.field("port"), &tcp.port))
        .field("grpc", p.grpc.as_ref(), |r, at, grpc| r.range(&at.field("port"), grpc.port.into(), 1, 65535))
        .end();
    let numbers = [
        ("initialDelaySeconds", p.initial_delay_seconds),
        ("timeoutSeconds", p.timeout_seconds),
        ("periodSeconds", p.period_seconds),
        ("successThreshold", p.success_threshold),
        ("failureThreshold", p.failure_threshold),
    ];
    for (name, number) in numbers {
        report.not_negative(&at.field(name), number.unwrap_or_default().into());
    }
    if let Some(seconds) = p.termination_grace_period_seconds.filter(|s| *s <= 0) {
        report.invalid(&at.field("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
    }
}

pub fn lifecycle(report: &mut Report, at: &Path<'_>, lifecycle: &core::Lifecycle, end: Termination<'_>) {
    for (name, hook) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
        let (at, Some(hook)) = (at.field(name), hook) else { continue };
        OneOf::new(report, &at, "handler")
            .field("exec", hook.exec.as_ref(), exec)
            .field("httpGet", hook.http_get.as_ref(), http_get)
            .field("tcpSocket", hook.tcp_socket.as_ref(), |r, at, tcp| port(r, &at.field("port"), &tcp.port))
            .field("sleep", hook.sleep.as_ref(), |r, at, sleep| {
                if let Some(grace) = end.grace_period.filter(|grace| !(0..=*grace).contains(&sleep.seconds)) {
                    let why = "must be from 0 to terminationGracePeriodSeconds, which is";
                    r.invalid(at, sleep.seconds, format_args!("{why} {grace}"));
                }
            })
            .end();
    }
    if let Some(signal) = &lifecycle.stop_signal {
        stop_signal(report, &at.field("stopSignal"), signal, end.os);
    }
}

fn exec(report: &mut Report, at: &Path<'_>, action: &core::ExecAction) {
    if action.command.as_ref().is_none_or(Vec::is_empty) {
        report.required(&at.field("command"));
    }
}

fn http_get(report: &mut Report, at: &Path<'_>, action: &core::HTTPGetAction) {
    port(report, &at.field("port"), &action.port);
    report.choice(&at.field("scheme"), text(&action.scheme), &["HTTP", "HTTPS"]);
    for (at, header) in each(&at.field("httpHeaders"), &action.http_headers) {
        report.format(&at.field("name"), &header.name, HEADER_NAME);
    }
}

fn port(report: &mut Report, at: &Path<'_>, port: &IntOrString) {
    match port {
        IntOrString::Int(number) => report.range(at, (*number).into(), 1, 65535),
        IntOrString::String(name) => report.format(at, name, PORT_NAME),
    }
}

fn stop_signal(report: &mut Report, at: &Path<'_>, signal: &str, os: Option<&str>) {
    match os {
        None => report.forbidden(at, "may not be set without spec.os.name"),
        Some("windows") => report.choice(at, signal, &["SIGKILL", "SIGTERM"]),
        Some(_) if !is_signal(signal) => {
            report.invalid(at, signal, "must be a signal of Linux, such as SIGTERM or SIGRTMIN+3");
        }
        Some(_) => {}
    }
}

fn is_signal(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT", "KILL", "PIPE", "POLL",
        "PROF", "PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG", "USR1",
        "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ", "RTMIN", "RTMAX",
    ];
    let Some(name) = name.strip_prefix("SIG") else { return false };
    let offset = |digits: &str, max: u32| {
        let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
        plain && digits.parse().is_ok_and(|n: u32| n <= max)
    };
    match (name.strip_prefix("RTMIN+"), name.strip_prefix("RTMAX-")) {
        (Some(n), _) => offset(n, 15),
        (_, Some(n)) => offset(n, 14),
        _ => NAMES.contains(&name),
    }
}
