//! `$(VAR)` references and the fields of a pod that can be referred to.

use std::borrow::Cow;

use super::Pod;

/// Replaces `$(VAR)` by what `lookup` knows; `$$` is a dollar sign that refers to nothing, and what
/// isn't known stays as it is (third_party/forked/golang/expansion).
pub fn expand(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            let value = lookup(name).map_or_else(|| Cow::Owned(format!("$({name})")), Cow::Owned);
            out.push_str(&value);
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// `metadata.name`, `metadata.labels['key']` and their like; `None` for a path that is no field of
/// the metadata.
pub fn metadata_field(pod: &Pod, path: &str) -> Option<String> {
    let map = |map: &Option<std::collections::BTreeMap<String, String>>| {
        let lines: Vec<_> = map.iter().flatten().map(|(k, v)| format!("{k}={}", quote(v))).collect();
        lines.join("\n")
    };
    if let Some((field, key)) = subscript(path) {
        let map = match field {
            "metadata.labels" => &pod.meta.labels,
            "metadata.annotations" => &pod.meta.annotations,
            _ => return None,
        };
        return Some(map.as_ref().and_then(|m| m.get(key)).cloned().unwrap_or_default());
    }
    Some(match path {
        "metadata.name" => pod.name.name.to_string(),
        "metadata.namespace" => pod.name.namespace.to_string(),
        "metadata.uid" => pod.uid.to_string(),
        "metadata.labels" => map(&pod.meta.labels),
        "metadata.annotations" => map(&pod.meta.annotations),
        _ => return None,
    })
}

/// `a.b['key']` → (`a.b`, `key`).
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (field, rest) = path.split_once("['")?;
    Some((field, rest.strip_suffix("']")?))
}

/// In double quotes, as Go's `%q` writes it.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references() {
        let table = [
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(B)", "x1y2"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(NONE)", "$(NONE)"),
            ("$(A", "$(A"),
            ("$A $", "$A $"),
            ("$()", "$()"),
            ("$(A)$", "1$"),
            ("", ""),
        ];
        let lookup = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "B" => Some("2".to_owned()),
            _ => None,
        };
        for (text, want) in table {
            assert_eq!(expand(text, lookup), want, "{text}");
        }
    }
}
