//! `resourceFieldRef`: a container's requests and limits as numbers (pkg/api/v1/resource). Pure.

use std::collections::BTreeMap;

use crate::pod::quantity::Quantity;
use crate::pod::{Pod, core};

/// Resources whose limit is, where there is none, that of the pod or of the node. Huge pages are
/// none: who doesn't ask for them has none.
const DEFAULTED: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// The value that `field` has in `container`: in units of its divisor, rounded up.
///
/// # Errors
/// When it is no resource that can be had.
pub fn value(
    pod: &Pod,
    container: &core::Container,
    field: &core::ResourceFieldSelector,
    allocatable: &BTreeMap<String, Quantity>,
) -> Result<String, String> {
    let unsupported = || format!("unsupported container resource: {}", field.resource);
    let (list, name) = field.resource.split_once('.').ok_or_else(unsupported)?;
    if !DEFAULTED.contains(&name) && !name.starts_with("hugepages-") {
        return Err(unsupported());
    }
    let resources = container.resources.as_ref();
    let own = match list {
        "limits" => resources.and_then(|r| quantity(r.limits.as_ref(), name)),
        "requests" => resources.and_then(|r| quantity(r.requests.as_ref(), name)),
        _ => return Err(unsupported()),
    };
    let own = own.filter(|q| list != "limits" || !q.is_zero() || !DEFAULTED.contains(&name));
    let of_pod = || quantity(pod.spec.resources.as_ref()?.limits.as_ref(), name).filter(|q| !q.is_zero());
    let value = match (own, list) {
        (Some(own), _) => own,
        (None, "limits") if DEFAULTED.contains(&name) => {
            of_pod().or_else(|| allocatable.get(name).copied()).unwrap_or_default()
        }
        (None, _) => Quantity::default(),
    };
    let divisor = field.divisor.as_ref().and_then(|d| Quantity::parse(&d.0)).filter(|d| !d.is_zero());
    let (value, divisor) = match name {
        "cpu" => (value.milli_value(), divisor.map_or(1000, Quantity::milli_value)),
        _ => (value.value(), divisor.map_or(1, Quantity::value)),
    };
    let (value, divisor) = (i128::from(value), i128::from(divisor.max(1)));
    Ok((value.div_euclid(divisor) + i128::from(value.rem_euclid(divisor) != 0)).to_string())
}

type Resources = BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

fn quantity(list: Option<&Resources>, name: &str) -> Option<Quantity> {
    Quantity::parse(&list?.get(name)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{PodName, PodUid, Source};
    use serde_json::json;

    #[test]
    fn values() {
        let spec = |pod: serde_json::Value| {
            json!({"resources": pod, "containers": [{"name": "c", "resources": {
                "limits": {"cpu": "1500m", "memory": "64Mi", "hugepages-2Mi": "4Mi"},
                "requests": {"cpu": "250m", "memory": "1000"}}}, {"name": "bare"}]})
        };
        let (plain, pod_level) = (spec(json!(null)), spec(json!({"limits": {"memory": "128Mi"}})));
        type Case<'a> = (&'a serde_json::Value, usize, &'a str, &'a str, Result<&'a str, ()>);
        let table: &[Case<'_>] = &[
            (&plain, 0, "limits.cpu", "0", Ok("2")),
            (&plain, 0, "limits.cpu", "1", Ok("2")),
            (&plain, 0, "limits.cpu", "1m", Ok("1500")),
            (&plain, 0, "requests.cpu", "", Ok("1")),
            (&plain, 0, "requests.cpu", "100m", Ok("3")),
            (&plain, 0, "limits.memory", "1", Ok("67108864")),
            (&plain, 0, "limits.memory", "1Mi", Ok("64")),
            (&plain, 0, "limits.memory", "1Gi", Ok("1")),
            (&plain, 0, "requests.memory", "1Ki", Ok("1")),
            (&plain, 0, "limits.hugepages-2Mi", "1Mi", Ok("4")),
            (&plain, 0, "requests.ephemeral-storage", "1", Ok("0")),
            // Without a limit: the node's, or the pod's.
            (&plain, 0, "limits.ephemeral-storage", "1", Ok("0")),
            (&plain, 1, "limits.cpu", "1", Ok("4")),
            (&plain, 1, "limits.memory", "1Mi", Ok("8192")),
            (&pod_level, 1, "limits.memory", "1Mi", Ok("128")),
            (&pod_level, 0, "limits.memory", "1Mi", Ok("64")),
            (&plain, 1, "requests.memory", "1Mi", Ok("0")),
            (&plain, 1, "limits.hugepages-2Mi", "1", Ok("0")),
            (&plain, 0, "limits.gpu", "1", Err(())),
            (&plain, 0, "cpu", "1", Err(())),
            (&plain, 0, "usage.cpu", "1", Err(())),
        ];
        let quantity = |text| Quantity::parse(text).expect("a quantity");
        let allocatable = BTreeMap::from([("cpu".into(), quantity("3900m")), ("memory".into(), quantity("8Gi"))]);
        for (spec, container, resource, divisor, want) in table {
            let pod = Pod {
                uid: PodUid::new("u"),
                name: PodName::new("ns", "web"),
                source: Source::File,
                origin: "".into(),
                meta: Default::default(),
                spec: serde_json::from_value((*spec).clone()).expect("a spec"),
            };
            let field =
                json!({"resource": resource, "divisor": if divisor.is_empty() { json!(null) } else { json!(divisor) }});
            let field = serde_json::from_value(field).expect("a field");
            let value = value(&pod, &pod.containers()[*container], &field, &allocatable);
            assert_eq!(value.as_deref().map_err(drop), *want, "{resource} / {divisor:?} of {container}");
        }
    }
}
