//! Tolerations, affinity, spreading, gates and claims.

use super::{expect, specs};

#[test]
fn tolerations() {
    let toleration = |fields: &str| format!("tolerations: [{{{fields}}}]");
    specs(&[
        (&toleration("operator: Exists"), &[]),
        (&toleration("key: a.b/c, operator: Equal, value: d, effect: NoExecute, tolerationSeconds: 0"), &[]),
        (&toleration("key: a"), &[]),
        (&toleration(""), &["tolerations[0].operator: Invalid value: \"\": must be Exists when `key` is empty"]),
        (&toleration("key: a b, operator: Exists"), &["tolerations[0].key: Invalid value: \"a b\""]),
        (&toleration("key: a, operator: Is"), &["tolerations[0].operator: Unsupported value: \"Is\""]),
        (&toleration("key: a, operator: Gt, value: '5'"), &["tolerations[0].operator: Unsupported value: \"Gt\""]),
        (&toleration("key: a, value: b c"), &["tolerations[0].operator: Invalid value: \"b c\""]),
        (&toleration("key: a, operator: Exists, value: b"), &["tolerations[0].operator: Invalid value: \"b\""]),
        (&toleration("operator: Exists, effect: Never"), &["tolerations[0].effect: Unsupported value: \"Never\""]),
        (
            &toleration("operator: Exists, effect: NoSchedule, tolerationSeconds: 5"),
            &["tolerations[0].effect: Invalid value: \"NoSchedule\": must be NoExecute"],
        ),
    ]);
}

#[test]
fn gates_and_names() {
    specs(&[
        ("nodeSelector: {kubernetes.io/os: linux}", &[]),
        ("nodeSelector: {a: b c}", &["nodeSelector: Invalid value: \"b c\""]),
        ("readinessGates: [{conditionType: a.b/C}]", &[]),
        ("readinessGates: [{conditionType: a b}]", &["readinessGates[0].conditionType: Invalid value: \"a b\""]),
        ("schedulingGates: [{name: a.b/c}]", &[]),
        (
            "schedulingGates: [{name: ''}, {name: a}, {name: a}]",
            &["schedulingGates[0]: Invalid value: \"\"", "schedulingGates[2]: Duplicate value: \"a\""],
        ),
        ("schedulingGates: [{name: a}], nodeName: node", &["nodeName: Forbidden"]),
        ("preemptionPolicy: Never", &[]),
        ("preemptionPolicy: Sometimes", &["preemptionPolicy: Unsupported value: \"Sometimes\""]),
        ("schedulingGroup: {podGroupName: g}", &[]),
        ("schedulingGroup: {}", &["schedulingGroup.podGroupName: Required value"]),
    ]);
}

#[test]
fn resource_claims() {
    let claim = |fields: &str| format!("resourceClaims: [{{{fields}}}]");
    specs(&[
        (&claim("name: a, resourceClaimName: b.c"), &[]),
        (&claim("name: a, resourceClaimTemplateName: b"), &[]),
        (&claim("resourceClaimName: b"), &["resourceClaims[0].name: Required value"]),
        (&claim("name: A, resourceClaimName: b"), &["resourceClaims[0].name: Invalid value: \"A\""]),
        (&claim("name: a"), &["resourceClaims[0]: Invalid value: \"a\": must have"]),
        (
            &claim("name: a, resourceClaimName: b, resourceClaimTemplateName: c"),
            &["resourceClaims[0]: Invalid value: \"a\": may not have both"],
        ),
        (&claim("name: a, resourceClaimName: B"), &["resourceClaims[0].resourceClaimName: Invalid value: \"B\""]),
        (
            "resourceClaims: [{name: a, resourceClaimName: b}, {name: a, resourceClaimName: c}]",
            &["resourceClaims[1].name: Duplicate value: \"a\""],
        ),
    ]);
}

#[test]
fn affinity_to_nodes() {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let at = format!("affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms");
    let required = |term: &str| format!("affinity: {{nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [{term}]}}}}}}");
    let expression = |fields: &str| required(&format!("{{matchExpressions: [{{{fields}}}]}}"));
    let field = |fields: &str| required(&format!("{{matchFields: [{{{fields}}}]}}"));
    let first = format!("{at}[0].matchExpressions[0]");
    let first_field = format!("{at}[0].matchFields[0]");
    specs(&[
        (&required("{}"), &[]),
        (&required(""), &[&format!("{at}: Required value")]),
        (&expression("key: a, operator: In, values: [b]"), &[]),
        (&expression("key: a, operator: Exists"), &[]),
        (&expression("key: a, operator: Gt, values: ['5']"), &[]),
        (&expression("key: a, operator: In"), &[&format!("{first}.values: Required value")]),
        (&expression("key: a, operator: DoesNotExist, values: [b]"), &[&format!("{first}.values: Forbidden")]),
        (&expression("key: a, operator: Lt, values: ['1', '2']"), &[&format!("{first}.values: Required value")]),
        (&expression("key: a, operator: Is"), &[&format!("{first}.operator: Unsupported value: \"Is\"")]),
        (&expression("key: a b, operator: Exists"), &[&format!("{first}.key: Invalid value: \"a b\"")]),
        (
            &expression("key: a, operator: In, values: [b, c d]"),
            &[&format!("{first}.values[1]: Invalid value: \"c d\"")],
        ),
        (&field("key: metadata.name, operator: In, values: [node]"), &[]),
        (
            &field("key: metadata.name, operator: In, values: [Node]"),
            &[&format!("{first_field}.values[0]: Invalid value")],
        ),
        (
            &field("key: metadata.name, operator: In, values: [node, m]"),
            &[&format!("{first_field}.values: Required value")],
        ),
        (&field("key: metadata.name, operator: Exists"), &[&format!("{first_field}.operator: Unsupported value")]),
        (&field("key: a, operator: In, values: [node]"), &[&format!("{first_field}.key: Unsupported value: \"a\"")]),
    ]);
    let preferred = |weight: i32, value: &str| {
        format!(
            "affinity: {{nodeAffinity: {{{PREFERRED}: [{{weight: {weight}, preference: \
             {{matchExpressions: [{{key: a, operator: In, values: [{value}]}}]}}}}]}}}}"
        )
    };
    let weight = format!("affinity.nodeAffinity.{PREFERRED}[0].weight: Invalid value");
    specs(&[
        (&preferred(1, "b"), &[]),
        (&preferred(100, "a value that no label has"), &[]),
        (&preferred(0, "b"), &[&weight]),
        (&preferred(101, "b"), &[&weight]),
    ]);
}

#[test]
fn affinity_to_pods() {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    for kind in ["podAffinity", "podAntiAffinity"] {
        let term = |fields: &str| format!("affinity: {{{kind}: {{{REQUIRED}: [{{topologyKey: a, {fields}}}]}}}}");
        let at = format!("affinity.{kind}.{REQUIRED}[0]");
        let selector = "labelSelector: {matchLabels: {app: web}}";
        specs(&[
            (&term(selector), &[]),
            (&term("topologyKey: ''"), &[&format!("{at}.topologyKey: Required value")]),
            (&term("topologyKey: a b"), &[&format!("{at}.topologyKey: Invalid value")]),
            (&term("namespaces: [a, B]"), &[&format!("{at}.namespaces[1]: Invalid value: \"B\"")]),
            (
                &term("labelSelector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}"),
                &[&format!("{at}.labelSelector.matchExpressions[0].operator: Unsupported value: \"Gt\"")],
            ),
            (
                &term("labelSelector: {matchExpressions: [{key: a b, operator: NotIn, values: [c, d e]}]}"),
                &[
                    &format!("{at}.labelSelector.matchExpressions[0].key: Invalid value: \"a b\""),
                    &format!("{at}.labelSelector.matchExpressions[0].values[1]: Invalid value: \"d e\""),
                ],
            ),
            (
                &term("namespaceSelector: {matchLabels: {a: b c}}"),
                &[&format!("{at}.namespaceSelector.matchLabels: Invalid value: \"b c\"")],
            ),
            (&term("matchLabelKeys: [a]"), &[&format!("{at}.matchLabelKeys: Forbidden")]),
            (
                &term(&format!("{selector}, matchLabelKeys: [app, a b]")),
                &[&format!("{at}.matchLabelKeys[1]: Invalid value")],
            ),
            (
                &term(&format!("{selector}, matchLabelKeys: [x], mismatchLabelKeys: [x]")),
                &[&format!("{at}.matchLabelKeys[0]: Invalid value: \"x\": must not stand in mismatchLabelKeys too")],
            ),
        ]);
        let preferred = |weight: i32| {
            format!(
                "affinity: {{{kind}: {{{PREFERRED}: [{{weight: {weight}, podAffinityTerm: {{topologyKey: a}}}}]}}}}"
            )
        };
        let weight = format!("affinity.{kind}.{PREFERRED}[0].weight: Invalid value: 0");
        specs(&[(&preferred(50), &[]), (&preferred(0), &[&weight])]);
    }
}

#[test]
fn spreading() {
    let constraint = |fields: &str| {
        format!(
            "topologySpreadConstraints: [{{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, {fields}}}]"
        )
    };
    let at = |rest: &str| format!("topologySpreadConstraints[0]{rest}");
    specs(&[
        (&constraint("minDomains: 1, nodeAffinityPolicy: Honor, nodeTaintsPolicy: Ignore, labelSelector: {}"), &[]),
        (&constraint("maxSkew: 0"), &[&at(".maxSkew: Invalid value: 0")]),
        (&constraint("topologyKey: ''"), &[&at(".topologyKey: Required value")]),
        (&constraint("whenUnsatisfiable: Retry"), &[&at(".whenUnsatisfiable: Unsupported value: \"Retry\"")]),
        (&constraint("minDomains: 0"), &[&at(".minDomains: Invalid value: 0")]),
        (&constraint("whenUnsatisfiable: ScheduleAnyway, minDomains: 1"), &[&at(".minDomains: Invalid value: 1")]),
        (&constraint("nodeAffinityPolicy: Use"), &[&at(".nodeAffinityPolicy: Unsupported value")]),
        (&constraint("nodeTaintsPolicy: Use"), &[&at(".nodeTaintsPolicy: Unsupported value")]),
        (&constraint("labelSelector: {matchLabels: {a b: c}}"), &[&at(".labelSelector.matchLabels: Invalid value")]),
        (&constraint("matchLabelKeys: [a]"), &[&at(".matchLabelKeys: Forbidden")]),
        (
            "topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}, \
             {maxSkew: 2, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]",
            &["topologySpreadConstraints[1]: Duplicate value"],
        ),
    ]);
    // A key that the pod has a label for becomes part of the selector, and may not be there yet.
    let pod = |labels: &str, want: &[&str]| {
        let spec = constraint("matchLabelKeys: [app], labelSelector: {matchLabels: {app: web}}");
        expect(
            &format!(
                "metadata: {{name: web, labels: {{{labels}}}}}\nspec: {{containers: [{{name: a, image: i}}], {spec}}}"
            ),
            want,
        );
    };
    pod("", &[]);
    pod("app: web", &["spec.topologySpreadConstraints[0].matchLabelKeys[0]: Invalid value: \"app\""]);
}
