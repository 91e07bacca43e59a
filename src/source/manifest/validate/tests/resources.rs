//! Requests, limits, overhead, and resources of the pod as a whole.

use super::{containers, specs};

fn of(requests: &str, limits: &str) -> String {
    format!("resources: {{requests: {{{requests}}}, limits: {{{limits}}}}}")
}

#[test]
fn quantities_and_names() {
    containers(&[
        (&of("cpu: 0.5, memory: 64Mi, ephemeral-storage: 1e9", "cpu: 1, memory: 64Mi"), &[]),
        (&of("", "a.b/c: 2"), &[]),
        (&of("kubernetes.io/c: 0.5", ""), &[]),
        (&of("cpu: 1 core", ""), &["resources.requests[cpu]: Invalid value: \"1 core\": must be a quantity"]),
        (&of("cpu: -1", ""), &["resources.requests[cpu]: Invalid value: \"-1\": must not be negative"]),
        (&of("gpu: 1", ""), &["resources.requests[gpu]: Invalid value: \"gpu\": must be cpu, memory"]),
        (&of("pods: 1", ""), &["resources.requests[pods]: Invalid value: \"pods\""]),
        (&of("storage: 1", ""), &["resources.requests[storage]: Invalid value: \"storage\""]),
        (
            "resources: {limits: {a b: 1}}",
            &["resources.limits[a b]: Invalid value: \"a b\"", "resources.requests[a b]: Invalid value: \"a b\""],
        ),
        (
            "resources: {limits: {requests.a.b/c: 1}}",
            &[
                "resources.limits[requests.a.b/c]: Invalid value: \"requests.a.b/c\": must be the name of an extended",
                "resources.requests[requests.a.b/c]: Invalid value",
            ],
        ),
        (
            "resources: {limits: {a.b/c: 0.5}}",
            &[
                "resources.limits[a.b/c]: Invalid value: \"0.5\": must be a whole number",
                "resources.requests[a.b/c]: Invalid value",
            ],
        ),
    ]);
}

#[test]
fn requests_against_limits() {
    containers(&[
        (&of("cpu: 1000m", "cpu: 1"), &[]),
        (
            &of("cpu: 1001m", "cpu: 1"),
            &["resources.requests: Invalid value: \"1001m\": must not be more than the cpu limit, which is 1"],
        ),
        (&of("memory: 1Gi", "memory: 1G"), &["resources.requests: Invalid value: \"1Gi\""]),
        (&of("a.b/c: 1", "a.b/c: 1"), &[]),
        (
            &of("a.b/c: 1", "a.b/c: 2"),
            &["resources.requests: Invalid value: \"1\": must be equal to the a.b/c limit, which is 2"],
        ),
        (&of("a.b/c: 1", ""), &["resources.limits: Required value: must have a.b/c"]),
    ]);
}

#[test]
fn huge_pages() {
    containers(&[
        (&of("", "hugepages-2Mi: 4Mi, memory: 64Mi"), &[]),
        (&of("cpu: 1", "hugepages-2Mi: 4Mi, hugepages-1Gi: 2Gi"), &[]),
        (&of("", "hugepages-2Mi: 4Mi"), &["resources: Forbidden: huge pages may not be used without cpu or memory"]),
        (&of("cpu: 1, hugepages-2Mi: 2Mi", ""), &["resources.limits: Required value: must have hugepages-2Mi"]),
        (
            &of("hugepages-2Mi: 2Mi", "cpu: 1, hugepages-2Mi: 4Mi"),
            &["resources.requests: Invalid value: \"2Mi\": must be equal to"],
        ),
        (
            &of("", "cpu: 1, hugepages-2Mi: 3Mi"),
            &[
                "resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": must be a multiple",
                "resources.requests[hugepages-2Mi]: Invalid value",
            ],
        ),
        (
            &of("", "cpu: 1, hugepages-: 2Mi"),
            &[
                "resources.limits[hugepages-]: Invalid value: \"hugepages-\"",
                "resources.limits[hugepages-]: Invalid value: \"2Mi\"",
                "resources.requests[hugepages-]: Invalid value",
                "resources.requests[hugepages-]: Invalid value",
            ],
        ),
    ]);
}

#[test]
fn claims() {
    let of = |claims: &str| {
        format!(
            "resourceClaims: [{{name: c, resourceClaimName: d}}], \
             containers: [{{name: a, image: i, resources: {{claims: [{claims}]}}}}]"
        )
    };
    let at = "containers[0].resources.claims";
    specs(&[
        (&of("{name: c}"), &[]),
        (&of("{name: c, request: r}, {name: c, request: s}"), &[]),
        (&of("{}"), &[&format!("{at}[0]: Required value")]),
        (&of("{name: d}"), &[&format!("{at}[0]: Not found: \"d\"")]),
        (&of("{name: c}, {name: c}"), &[&format!("{at}[1]: Duplicate value: \"c\"")]),
        (&of("{name: c, request: r}, {name: c, request: r}"), &[&format!("{at}[1]: Duplicate value: \"c\"")]),
        (&of("{name: c, request: r}, {name: c}"), &[&format!("{at}[1]: Duplicate value: \"c\"")]),
        (&of("{name: c}, {name: c, request: r}"), &[&format!("{at}[1]: Duplicate value: \"c\"")]),
        (&of("{name: c, request: R}"), &[&format!("{at}[0].request: Invalid value: \"R\"")]),
    ]);
}

#[test]
fn overhead() {
    specs(&[
        ("overhead: {cpu: 100m, memory: 64Mi}", &[]),
        ("overhead: {cpu: -1}", &["overhead[cpu]: Invalid value: \"-1\""]),
        ("overhead: {gpu: 1}", &["overhead[gpu]: Invalid value: \"gpu\""]),
        ("overhead: {cpu: x}", &["overhead[cpu]: Invalid value: \"x\": must be a quantity"]),
    ]);
}

#[test]
fn of_the_pod_as_a_whole() {
    let container = "containers: [{name: a, image: i, resources: {requests: {cpu: 1}, limits: {cpu: 2}}}]";
    let with = |pod: &str| format!("{container}, resources: {{{pod}}}");
    specs(&[
        (&with("requests: {cpu: 1}, limits: {cpu: 2, memory: 1Gi}"), &[]),
        (
            &with("requests: {cpu: 999m}"),
            &["resources.requests[cpu]: Invalid value: \"999m\": must not be less than the requests of the containers"],
        ),
        (
            &with("limits: {cpu: 1500m}"),
            &[
                "containers[0].resources.limits[cpu]: Invalid value: \"2\": must not be more than the limit of the pod, which is 1500m",
            ],
        ),
        (&with("requests: {cpu: 3}, limits: {cpu: 2}"), &["resources.requests: Invalid value: \"3\""]),
        (&with("requests: {ephemeral-storage: 1Gi}"), &["resources.requests[ephemeral-storage]: Invalid value"]),
        (&with("claims: []"), &["resources.claims: Forbidden"]),
        (&format!("os: {{name: windows}}, {}", with("limits: {cpu: 2}")), &["resources: Forbidden"]),
        (
            "containers: [{name: a, image: i, resources: {limits: {cpu: 1, hugepages-2Mi: 4Mi}}}], \
             resources: {limits: {cpu: 1, hugepages-2Mi: 2Mi}, requests: {cpu: 1, hugepages-2Mi: 2Mi}}",
            &[
                "resources.requests[hugepages-2Mi]: Invalid value: \"2Mi\"",
                "resources.limits[hugepages-2Mi]: Invalid value: \"2Mi\"",
                "containers[0].resources.limits[hugepages-2Mi]: Invalid value: \"4Mi\"",
            ],
        ),
    ]);
}
