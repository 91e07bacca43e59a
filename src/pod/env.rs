//! `$(VAR)` references, and the fields and resources of a pod that can be referred to.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;

use super::quantity::Quantity;
use super::{Pod, core};

/// What the kernel takes as one argument or variable, in bytes (execve(2), MAX_ARG_STRLEN). Also
/// what keeps variables that refer to each other from growing without end.
pub const MAX_STRING: usize = 128 * 1024;

/// An expanded text would have more than [`MAX_STRING`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it has more than {MAX_STRING} bytes, which is the most that the kernel takes")]
pub struct TooLong;

/// Replaces `$(VAR)` by what `lookup` knows; `$$` is a dollar sign that refers to nothing, and what
/// isn't known stays as it is (third_party/forked/golang/expansion).
pub fn expand<V: AsRef<str>>(text: &str, mut lookup: impl FnMut(&str) -> Option<V>) -> Result<String, TooLong> {
    let mut out = String::with_capacity(text.len().min(MAX_STRING));
    let mut rest = text;
    // Once there is none ahead, it isn't looked for again at each `$(`.
    let mut closed = true;
    while let Some((before, after)) = rest.split_once('$') {
        push(&mut out, before)?;
        let inner = after.strip_prefix('(').filter(|_| closed);
        let reference = inner.and_then(|inner| inner.split_once(')'));
        closed = closed && (inner.is_none() || reference.is_some());
        if let Some(tail) = after.strip_prefix('$') {
            push(&mut out, "$")?;
            rest = tail;
        } else if let Some((name, tail)) = reference {
            match lookup(name) {
                Some(value) => push(&mut out, value.as_ref())?,
                None => ["$(", name, ")"].into_iter().try_for_each(|part| push(&mut out, part))?,
            }
            rest = tail;
        } else {
            push(&mut out, "$")?;
            rest = after;
        }
    }
    push(&mut out, rest)?;
    Ok(out)
}

fn push(out: &mut String, part: &str) -> Result<(), TooLong> {
    if out.len() + part.len() >= MAX_STRING {
        return Err(TooLong);
    }
    out.push_str(part);
    Ok(())
}

/// `metadata.name`, `metadata.labels['key']` and their like; `None` for a path that is no field of
/// the metadata (pkg/fieldpath).
pub fn metadata_field(pod: &Pod, path: &str) -> Option<String> {
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
        "metadata.labels" => lines(&pod.meta.labels),
        "metadata.annotations" => lines(&pod.meta.annotations),
        _ => return None,
    })
}

/// `a.b['key']` → (`a.b`, `key`).
fn subscript(path: &str) -> Option<(&str, &str)> {
    path.strip_suffix("']")?.split_once("['")
}

fn lines(map: &Option<BTreeMap<String, String>>) -> String {
    let lines: Vec<_> = map.iter().flatten().map(|(k, v)| format!("{k}={}", quote(v))).collect();
    lines.join("\n")
}

/// In double quotes, as Go's `%q` writes it.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        let code = u32::from(c);
        let written = match c {
            '"' => out.write_str("\\\""),
            '\\' => out.write_str("\\\\"),
            '\u{7}' => out.write_str("\\a"),
            '\u{8}' => out.write_str("\\b"),
            '\u{c}' => out.write_str("\\f"),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            '\u{b}' => out.write_str("\\v"),
            _ if code < 0x20 || code == 0x7f => write!(out, "\\x{code:02x}"),
            c if is_printable(c) => out.write_char(c),
            _ if code < 0x1_0000 => write!(out, "\\u{code:04x}"),
            _ => write!(out, "\\U{code:08x}"),
        };
        debug_assert!(written.is_ok(), "a String takes all text");
    }
    out.push('"');
    out
}

/// Whether Go prints the character as it is: neither control nor format characters, nor any space
/// but the plain one. Code points that no Unicode version has given a meaning are taken for printable.
fn is_printable(c: char) -> bool {
    let format = matches!(u32::from(c),
        0xad | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e
        | 0x2060..=0x206f | 0xfeff | 0xfff9..=0xfffb | 0xe000..=0xf8ff | 0xe_0000..=0x10_ffff);
    c == ' ' || !(c.is_control() || c.is_whitespace() || format)
}

/// Amounts of resources by the resource's name.
pub type Resources = BTreeMap<String, Quantity>;

/// Why a resource can't be referred to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    #[error("container {0:?} is not there")]
    NoContainer(String),
    #[error("resource {0:?} can't be referred to")]
    Unknown(String),
    #[error("{0:?} is no divisor")]
    Divisor(String),
}

/// The value of a `resourceFieldRef` of `own`, or of the container that it names, rounded up to
/// whole divisors. A limit that isn't set is that of the pod, else what the node can give, which is
/// `allocatable` (pkg/api/v1/resource, pkg/kubelet/kubelet_resources.go).
pub fn resource_field(
    pod: &Pod,
    own: Option<&core::Container>,
    field: &core::ResourceFieldSelector,
    allocatable: &Resources,
) -> Result<String, ResourceError> {
    let name = field.container_name.as_deref().filter(|name| !name.is_empty());
    let container = match name {
        Some(name) => pod.all_containers().find(|c| c.name == name),
        None => own,
    };
    let container = container.ok_or_else(|| ResourceError::NoContainer(name.unwrap_or_default().to_owned()))?;
    let unknown = || ResourceError::Unknown(field.resource.clone());
    let (list, resource) = field.resource.split_once('.').ok_or_else(unknown)?;
    if !matches!(resource, "cpu" | "memory" | "ephemeral-storage") && !resource.starts_with("hugepages-") {
        return Err(unknown());
    }
    let amount = match list {
        "limits" => limit(pod, container, resource, allocatable),
        "requests" => container.resources.as_ref().and_then(|r| get(&r.requests, resource)),
        _ => return Err(unknown()),
    };
    let divisor = match &field.divisor {
        Some(text) => Quantity::parse(&text.0).ok_or_else(|| ResourceError::Divisor(text.0.clone()))?,
        None => Quantity::default(),
    };
    let amount = amount.unwrap_or_default();
    let (amount, divisor) = match resource {
        "cpu" => (amount.milli_value(), if divisor.is_zero() { 1000 } else { divisor.milli_value() }),
        _ => (amount.value(), if divisor.is_zero() { 1 } else { divisor.value() }),
    };
    let (amount, divisor) = (i128::from(amount), i128::from(divisor.max(1)));
    Ok((amount.div_euclid(divisor) + i128::from(amount.rem_euclid(divisor) != 0)).to_string())
}

fn limit(pod: &Pod, container: &core::Container, resource: &str, allocatable: &Resources) -> Option<Quantity> {
    let set = |quantity: &Quantity| !quantity.is_zero();
    let own = container.resources.as_ref().and_then(|r| get(&r.limits, resource)).filter(set);
    let of_pod = || pod.spec.resources.as_ref().and_then(|r| get(&r.limits, resource)).filter(set);
    match resource {
        "cpu" | "memory" => own.or_else(of_pod).or_else(|| allocatable.get(resource).copied()),
        "ephemeral-storage" => own.or_else(|| allocatable.get(resource).copied()),
        _ => own,
    }
}

fn get(list: &Option<BTreeMap<String, QuantityText>>, resource: &str) -> Option<Quantity> {
    Quantity::parse(&list.as_ref()?.get(resource)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::identity::Origin;
    use crate::pod::{PodName, PodUid, Source};
    use crate::source::manifest;

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
            ("$($(A)", "$($(A)"),
            ("$(A)$(B", "1$(B"),
            ("$(B$$", "$(B$"),
            ("$A $", "$A $"),
            ("$()", "$()"),
            ("$(A)$", "1$"),
            ("$ä(A)", "$ä(A)"),
            ("", ""),
        ];
        let lookup = |name: &str| match name {
            "A" => Some("1"),
            "B" => Some("2"),
            _ => None,
        };
        for (text, want) in table {
            assert_eq!(expand(text, lookup).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_grows_too_long_is_refused() {
        let big = "x".repeat(1000);
        let times = |n: usize| expand(&"$(A)".repeat(n), |_| Some(&big));
        assert_eq!(times(131).map(|s| s.len()), Ok(131_000));
        assert_eq!(times(132), Err(TooLong));
        assert_eq!(expand(&"x".repeat(MAX_STRING - 1), |_| None::<&str>).map(|s| s.len()), Ok(MAX_STRING - 1));
        assert_eq!(expand(&"x".repeat(MAX_STRING), |_| None::<&str>), Err(TooLong));
        // Takes hours if each opening looks for its end.
        assert_eq!(expand(&"$(".repeat(500_000), |_| None::<&str>), Err(TooLong));
    }

    fn pod(spec: &str) -> Pod {
        let text = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec: {spec}\n");
        let origin =
            Origin { source: Source::File, node_name: "n", place: "/m/web.yaml", seen: jiff::Timestamp::UNIX_EPOCH };
        let manifest = manifest::read(&text, origin);
        assert_eq!(manifest.problems, []);
        manifest.pods.into_iter().next().expect("a pod")
    }

    #[test]
    fn fields_of_the_metadata() {
        let mut pod = pod("{containers: [{name: c, image: i}]}");
        (pod.uid, pod.name) = (PodUid::new("u1"), PodName::new("ns", "web-n"));
        pod.meta.labels = Some([("b", "x\ty"), ("a", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        pod.meta.annotations =
            Some(BTreeMap::from([("note/['x']".to_owned(), "q\"\\\u{1}\u{7f}é\u{a0}\u{200b}\u{1f600}".to_owned())]));
        let table = [
            ("metadata.name", Some("web-n")),
            ("metadata.namespace", Some("ns")),
            ("metadata.uid", Some("u1")),
            ("metadata.labels", Some("a=\"1\"\nb=\"x\\ty\"")),
            ("metadata.labels['a']", Some("1")),
            ("metadata.labels['none']", Some("")),
            ("metadata.annotations", Some("note/['x']=\"q\\\"\\\\\\x01\\x7fé\\u00a0\\u200b\u{1f600}\"")),
            ("metadata.annotations['note/['x']']", Some("q\"\\\u{1}\u{7f}é\u{a0}\u{200b}\u{1f600}")),
            ("spec.nodeName", None),
            ("metadata.name['x']", None),
            ("metadata.labels['a'", None),
            ("", None),
        ];
        for (path, want) in table {
            assert_eq!(metadata_field(&pod, path).as_deref(), want, "{path}");
        }
    }

    #[test]
    fn resources() {
        let pod = pod("{containers: [{name: c, image: i, resources: {requests: {cpu: 250m, memory: 33Mi}, \
             limits: {cpu: 1250m, memory: 64Mi, hugepages-2Mi: 4Mi}}}, {name: bare, image: i}], \
             initContainers: [{name: first, image: i, resources: {limits: {cpu: 10m}}}]}");
        let own = &pod.spec.containers[0];
        let allocatable = |text: &str| Quantity::parse(text).expect("a quantity");
        let node: Resources =
            [("cpu", "3900m"), ("memory", "1000000000"), ("ephemeral-storage", "10G"), ("hugepages-2Mi", "1Gi")]
                .map(|(k, v)| (k.to_owned(), allocatable(v)))
                .into();
        let table = [
            ("", "limits.cpu", "", "2"),
            ("", "limits.cpu", "1m", "1250"),
            ("", "limits.cpu", "0", "2"),
            ("", "requests.cpu", "", "1"),
            ("", "limits.memory", "", "67108864"),
            ("", "requests.memory", "1Gi", "1"),
            ("", "requests.memory", "1M", "35"),
            ("", "limits.hugepages-2Mi", "1Mi", "4"),
            ("", "requests.hugepages-2Mi", "", "4194304"),
            ("", "requests.hugepages-1Gi", "", "0"),
            ("", "limits.ephemeral-storage", "1G", "10"),
            ("", "requests.ephemeral-storage", "", "0"),
            ("bare", "limits.cpu", "", "4"),
            ("bare", "limits.cpu", "1m", "3900"),
            ("bare", "limits.memory", "", "1000000000"),
            ("bare", "requests.cpu", "", "0"),
            ("bare", "limits.hugepages-2Mi", "", "0"),
            ("first", "limits.cpu", "1m", "10"),
            ("first", "limits.memory", "1k", "1000000"),
        ];
        let select = |name: &str, resource: &str, divisor: &str| core::ResourceFieldSelector {
            container_name: Some(name.to_owned()),
            resource: resource.to_owned(),
            divisor: Some(QuantityText(divisor.to_owned())).filter(|d| !d.0.is_empty()),
        };
        for (name, resource, divisor, want) in table {
            let got = resource_field(&pod, Some(own), &select(name, resource, divisor), &node);
            assert_eq!(got.as_deref(), Ok(want), "{name} {resource} {divisor}");
        }
        let refused = |name, resource, divisor| resource_field(&pod, None, &select(name, resource, divisor), &node);
        assert_eq!(refused("", "limits.cpu", ""), Err(ResourceError::NoContainer(String::new())));
        assert_eq!(refused("none", "limits.cpu", ""), Err(ResourceError::NoContainer("none".to_owned())));
        for bad in ["limits.gpu", "cpu", "sums.cpu", ""] {
            assert_eq!(refused("bare", bad, ""), Err(ResourceError::Unknown(bad.to_owned())));
        }
        assert_eq!(refused("bare", "limits.cpu", "x"), Err(ResourceError::Divisor("x".to_owned())));
    }

    #[test]
    fn the_limits_of_the_pod_come_before_the_nodes() {
        let pod = pod("{resources: {limits: {cpu: 2, memory: 1Gi}}, containers: [{name: c, image: i, \
             resources: {limits: {memory: 100Mi}}}]}");
        let node: Resources = BTreeMap::from([("cpu".to_owned(), Quantity::parse("8").unwrap_or_default())]);
        let get = |resource: &str| {
            let field = core::ResourceFieldSelector { resource: resource.to_owned(), ..Default::default() };
            resource_field(&pod, pod.spec.containers.first(), &field, &node)
        };
        assert_eq!(get("limits.cpu").as_deref(), Ok("2"));
        assert_eq!(get("limits.memory").as_deref(), Ok("104857600"));
    }
}
