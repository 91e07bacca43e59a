//! The forms of names in Kubernetes (apimachinery/pkg/util/validation), as far as a configuration
//! has them. Each function says what is wrong, or nothing.

/// A DNS subdomain (RFC 1123): labels of lower case letters, digits and `-`, with dots between.
pub fn dns_subdomain(name: &str) -> Result<(), &'static str> {
    let label = |label: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        !label.is_empty()
            && label.bytes().all(|b| inner(b) || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    match name {
        "" => Err("must not be empty"),
        name if name.len() > 253 => Err("must be no longer than 253 characters"),
        name if !name.split('.').all(label) => {
            Err("must consist of lower case letters, digits, '-' and '.', and begin and end with a letter or digit")
        }
        _ => Ok(()),
    }
}

/// The key of a label or taint: `name` or `prefix/name`.
pub fn qualified_name(key: &str) -> Result<(), &'static str> {
    let name = match key.split_once('/') {
        Some((prefix, name)) => {
            dns_subdomain(prefix).map_err(|_| "must have a DNS name before its '/'")?;
            name
        }
        None => key,
    };
    match name {
        "" => Err("must not be empty"),
        name => label_value(name),
    }
}

/// The value of a label or taint; it may be empty.
pub fn label_value(value: &str) -> Result<(), &'static str> {
    let edge = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| edge(c) || matches!(c, '-' | '_' | '.');
    let ends = value.is_empty() || value.starts_with(edge) && value.ends_with(edge);
    match value {
        value if value.len() > 63 => Err("must be no longer than 63 characters"),
        value if !ends || !value.chars().all(inner) => {
            Err("must consist of letters, digits, '-', '_' and '.', and begin and end with a letter or digit")
        }
        _ => Ok(()),
    }
}

const NODE_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Whether a node may give itself the label: of those under `kubernetes.io` and `k8s.io` only some
/// (kubelet/pkg/apis).
pub fn node_may_set(label: &str) -> bool {
    let Some((prefix, _)) = label.split_once('/') else { return true };
    let under = |domain: &str| prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    !(under("kubernetes.io") || under("k8s.io"))
        || NODE_LABELS.contains(&label)
        || under("kubelet.kubernetes.io")
        || under("node.kubernetes.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_subdomains() {
        for good in ["a", "edge-1", "edge-1.site.example", "0", &"a".repeat(253)] {
            assert_eq!(dns_subdomain(good), Ok(()), "{good}");
        }
        for bad in ["", "Edge", "my_board", "-a", "a-", "a..b", ".a", "a.", "ä", &"a".repeat(254)] {
            assert!(dns_subdomain(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn labels() {
        for good in ["a", "A.b_c-d", "example.com/A", &"a".repeat(63)] {
            assert_eq!(qualified_name(good), Ok(()), "{good}");
        }
        for bad in ["", "a b", "-a", "/a", "example.com/", "Example.com/a", "a/b/c", &"a".repeat(64)] {
            assert!(qualified_name(bad).is_err(), "{bad}");
        }
        for (value, fits) in [("", true), ("a", true), ("a.b_c-D", true), ("_a", false), ("a=", false)] {
            assert_eq!(label_value(value).is_ok(), fits, "{value}");
        }
    }

    #[test]
    fn labels_that_a_node_may_set() {
        let table = [
            ("site", true),
            ("example.com/site", true),
            ("mykubernetes.io/x", true),
            ("kubernetes.io/arch", true),
            ("node.kubernetes.io/anything", true),
            ("x.node.kubernetes.io/y", true),
            ("kubernetes.io/role", false),
            ("node-role.kubernetes.io/worker", false),
            ("k8s.io/x", false),
        ];
        for (label, may) in table {
            assert_eq!(node_may_set(label), may, "{label}");
        }
    }
}
