//! Paths of the API, each part encoded: a name out of a pod's spec must not lead elsewhere.

/// `/a/b/c` of its parts.
pub fn path(parts: &[&str]) -> String {
    let mut path = String::new();
    for part in parts {
        path.push('/');
        encode(part, &mut path);
    }
    path
}

/// Objects of a core resource in a namespace: `/api/v1/namespaces/NAMESPACE/RESOURCE`.
pub fn in_namespace(namespace: &str, resource: &str) -> String {
    path(&["api", "v1", "namespaces", namespace, resource])
}

/// One of them.
pub fn named(namespace: &str, resource: &str, name: &str) -> String {
    path(&["api", "v1", "namespaces", namespace, resource, name])
}

/// Appends what of `text` may stand in a part of a path or in a query as it is, and the rest encoded.
pub fn encode(text: &str, into: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => into.push(char::from(byte)),
            // Not where the whole part is dots, which means another directory.
            b'.' if text.bytes().any(|b| b != b'.') => into.push('.'),
            _ => into.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// `PATH?a=b&c=d`, without the `?` when there is nothing to ask for.
pub fn with_query(path: &str, query: &[(&str, &str)]) -> String {
    let mut out = path.to_owned();
    for (i, (name, value)) in query.iter().enumerate() {
        out.push(if i == 0 { '?' } else { '&' });
        encode(name, &mut out);
        out.push('=');
        encode(value, &mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_encoded() {
        assert_eq!(named("default", "pods", "web-0.a"), "/api/v1/namespaces/default/pods/web-0.a");
        assert_eq!(named("a/../b", "secrets", ".."), "/api/v1/namespaces/a%2F..%2Fb/secrets/%2E%2E");
        assert_eq!(in_namespace("kube system", "pods"), "/api/v1/namespaces/kube%20system/pods");
        let query = [("fieldSelector", "spec.nodeName=n1"), ("limit", "5")];
        assert_eq!(with_query("/api/v1/pods", &query), "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=5");
        assert_eq!(with_query("/livez", &[]), "/livez");
    }
}
