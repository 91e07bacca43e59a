//! Resources of containers and of the pod as a whole: names, quantities, requests against limits.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;

use super::format::{DNS_LABEL, QUALIFIED_NAME, is_qualified_name};
use super::report::{Path, Report, each, text};
use crate::pod::core;
use crate::pod::quantity::Quantity;
use crate::pod::resources::aggregate;

type Resources = BTreeMap<String, QuantityText>;

/// Reads a quantity; `None` when it is none, which is told then.
pub fn quantity(report: &mut Report, at: &Path<'_>, text: &QuantityText) -> Option<Quantity> {
    let quantity = Quantity::parse(&text.0);
    if quantity.is_none() {
        report.invalid(at, &text.0, "must be a quantity, such as 500m, 2, 1.5Gi or 1e3");
    }
    quantity
}

pub fn of_container(
    report: &mut Report,
    at: &Path<'_>,
    resources: &core::ResourceRequirements,
    claims: &BTreeSet<&str>,
) {
    requirements(report, at, resources, container_resource);
    resource_claims(report, &at.field("claims"), &resources.claims, claims);
}

/// Checks what the runtime class adds to the pod.
pub fn overhead(report: &mut Report, at: &Path<'_>, overhead: &Resources) {
    let mut any = Kinds::default();
    for (name, text) in overhead {
        one(report, &at.key(name), name, text, container_resource);
        any.add(name);
    }
    any.check(report, at);
}

/// Checks the resources of the pod as a whole (KEP-2837).
pub fn of_pod(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec) {
    let Some(resources) = &spec.resources else { return };
    let pod = at.field("resources");
    if spec.os.as_ref().is_some_and(|os| os.name == "windows") {
        return report.forbidden(&pod, "may not be set for a Windows pod");
    }
    if resources.claims.is_some() {
        report.forbidden(&pod.field("claims"), "may not be set for the pod as a whole");
    }
    requirements(report, &pod, resources, pod_resource);
    let asked = |list: &Option<Resources>, name: &str| {
        list.as_ref().and_then(|l| l.get(name)).and_then(|q| Some((q.0.clone(), Quantity::parse(&q.0)?)))
    };
    for (name, sum) in aggregate(spec, |r| r.requests.as_ref()) {
        if let Some((text, _)) = asked(&resources.requests, &name).filter(|(_, q)| *q < sum) {
            let at = pod.field("requests");
            report.invalid(&at.key(&name), text, "must not be less than the requests of the containers together");
        }
    }
    for (name, sum) in aggregate(spec, |r| r.limits.as_ref()).into_iter().filter(|(name, _)| is_huge_pages(name)) {
        if let Some((text, _)) = asked(&resources.limits, &name).filter(|(_, q)| *q < sum) {
            let at = pod.field("limits");
            report.invalid(&at.key(&name), text, "must not be less than the limits of the containers together");
        }
    }
    let list = at.field("containers");
    for (i, container) in spec.containers.iter().enumerate() {
        let limits = container.resources.as_ref().and_then(|r| r.limits.as_ref());
        for (name, limit) in limits.into_iter().flatten() {
            let (Some(own), Some((text, whole))) = (Quantity::parse(&limit.0), asked(&resources.limits, name)) else {
                continue;
            };
            if own > whole {
                let (at, why) = (list.index(i), "must not be more than the limit of the pod, which is");
                let at = at.field("resources");
                report.invalid(&at.field("limits").key(name), &limit.0, format_args!("{why} {text}"));
            }
        }
    }
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Names without a prefix, and those of Kubernetes.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// More of it may be promised than there is.
fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

fn container_resource(name: &str) -> Result<(), &'static str> {
    let known = matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge_pages(name);
    match name.split_once('/') {
        _ if !is_qualified_name(name) => Err(QUALIFIED_NAME.says),
        None if !known => {
            Err("must be cpu, memory, ephemeral-storage, hugepages-SIZE, or a name with a domain before it")
        }
        Some((domain, _)) if !is_native(name) => {
            let quota = format!("requests.{domain}/a");
            match !name.starts_with("requests.") && is_qualified_name(&quota) {
                true => Ok(()),
                false => Err("must be the name of an extended resource: a domain not beginning with 'requests.'"),
            }
        }
        _ => Ok(()),
    }
}

fn pod_resource(name: &str) -> Result<(), &'static str> {
    match matches!(name, "cpu" | "memory") || (is_huge_pages(name) && is_qualified_name(name)) {
        true => Ok(()),
        false => Err("must be cpu, memory or hugepages-SIZE"),
    }
}

type NameRule = fn(&str) -> Result<(), &'static str>;

fn requirements(report: &mut Report, at: &Path<'_>, resources: &core::ResourceRequirements, rule: NameRule) {
    let (limits_at, requests_at) = (at.field("limits"), at.field("requests"));
    let mut any = Kinds::default();
    let mut limits = BTreeMap::new();
    for (name, text) in resources.limits.iter().flatten() {
        let quantity = one(report, &limits_at.key(name), name, text, rule);
        limits.insert(name.as_str(), (quantity, &text.0));
        any.add(name);
    }
    for (name, text) in resources.requests.iter().flatten() {
        let request = one(report, &requests_at.key(name), name, text, rule);
        any.add(name);
        match (request, limits.get(name.as_str())) {
            (_, None) if !may_overcommit(name) => {
                report.required_because(&limits_at, format_args!("must have {name}, which can't be overcommitted"));
            }
            (Some(request), Some((Some(limit), written))) => {
                if request != *limit && !may_overcommit(name) {
                    let why = format!("must be equal to the {name} limit, which is {written}");
                    report.invalid(&requests_at, &text.0, why);
                } else if request > *limit {
                    let why = format!("must not be more than the {name} limit, which is {written}");
                    report.invalid(&requests_at, &text.0, why);
                }
            }
            _ => {}
        }
    }
    any.check(report, at);
}

/// Checks one entry of a list of resources.
fn one(report: &mut Report, at: &Path<'_>, name: &str, text: &QuantityText, rule: NameRule) -> Option<Quantity> {
    if let Err(why) = rule(name) {
        report.invalid(at, name, why);
    }
    let quantity = quantity(report, at, text)?;
    if quantity.is_negative() {
        report.invalid(at, &text.0, "must not be negative");
    }
    if !is_native(name) && !quantity.is_whole() {
        report.invalid(at, &text.0, "must be a whole number");
    }
    if let Some(size) = name.strip_prefix("hugepages-") {
        let page = Quantity::parse(size).filter(|p| p.is_whole() && p.value() > 0);
        if page.is_none_or(|page| quantity.value() % page.value() != 0) {
            report.invalid(at, &text.0, format_args!("must be a multiple of a page size, which {size} must be"));
        }
    }
    Some(quantity)
}

/// Which kinds of resources a list has.
#[derive(Default)]
struct Kinds {
    compute: bool,
    huge_pages: bool,
}

impl Kinds {
    fn add(&mut self, name: &str) {
        self.compute |= matches!(name, "cpu" | "memory");
        self.huge_pages |= is_huge_pages(name);
    }

    fn check(&self, report: &mut Report, at: &Path<'_>) {
        if self.huge_pages && !self.compute {
            report.forbidden(at, "huge pages may not be used without cpu or memory");
        }
    }
}

fn resource_claims(
    report: &mut Report,
    at: &Path<'_>,
    used: &Option<Vec<core::ResourceClaim>>,
    claims: &BTreeSet<&str>,
) {
    // The whole claim, and a request of it, are in each other's way.
    let (mut seen, mut whole, mut any) = (HashSet::new(), HashSet::new(), HashSet::new());
    for (at, claim) in each(at, used) {
        let (name, request) = (claim.name.as_str(), text(&claim.request));
        if name.is_empty() {
            report.required(&at);
            continue;
        }
        if !request.is_empty() {
            report.format(&at.field("request"), request, DNS_LABEL);
        }
        let first = seen.insert((name, request));
        if !first || whole.contains(name) || (request.is_empty() && any.contains(name)) {
            report.duplicate(&at, name);
        }
        any.insert(name);
        if request.is_empty() {
            whole.insert(name);
        }
        if !claims.contains(name) {
            report.not_found(&at, name);
        }
    }
}
