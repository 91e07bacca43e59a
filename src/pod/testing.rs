//! Pods for tests, in short form.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Pod, PodName, PodUid, Source, core};

/// `cpu=1 memory=1Gi`; words without `=` are passed over.
pub fn list(text: &str) -> BTreeMap<String, QuantityText> {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, q)| (name.to_owned(), QuantityText(q.to_owned()))).collect()
}

/// `REQUESTS / LIMITS`.
pub fn resources(text: &str) -> core::ResourceRequirements {
    let (requests, limits) = text.split_once(" / ").or(text.split_once("/ ")).unwrap_or((text, ""));
    let some = |text| Some(list(text)).filter(|l| !l.is_empty());
    core::ResourceRequirements { requests: some(requests), limits: some(limits), ..Default::default() }
}

pub fn container(name: &str, text: &str) -> core::Container {
    core::Container { name: name.to_owned(), resources: Some(resources(text)), ..Default::default() }
}

pub fn sidecar(container: &mut core::Container, is: bool) {
    container.restart_policy = is.then(|| "Always".to_owned());
}

/// Init containers `i0`… and containers `c0`… with these resources.
pub fn spec(init: &[&str], containers: &[&str]) -> core::PodSpec {
    let all = |prefix: &str, texts: &[&str]| -> Vec<_> {
        texts.iter().enumerate().map(|(i, text)| container(&format!("{prefix}{i}"), text)).collect()
    };
    core::PodSpec {
        init_containers: Some(all("i", init)).filter(|l| !l.is_empty()),
        containers: all("c", containers),
        ..Default::default()
    }
}

/// A static pod; its name is its UID.
pub fn pod(name: &str, spec: core::PodSpec) -> Pod {
    Pod {
        uid: PodUid::new(name),
        name: PodName::new("default", name),
        source: Source::File,
        origin: "/m/p.yaml".into(),
        status: None,
        meta: ObjectMeta { name: Some(name.to_owned()), ..Default::default() },
        spec,
    }
}
