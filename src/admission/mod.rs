//! Whether a pod may run on this node: it must be for such a node, and the node must hold it beside
//! the pods that it has (pkg/kubelet/lifecycle/predicate.go, pkg/kubelet/preemption).
//!
//! Pure: given the same pod and the same node it says the same. A refused pod is tried again by
//! asking again.

mod affinity;
mod ports;
mod preempt;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use ports::HostPort;

use crate::pod::qos::is_critical;
use crate::pod::resources::{Amounts, huge_page_size, requests};
use crate::pod::sysctl::{self, Allowlist};
use crate::pod::{Pod, PodUid, Source, core};

/// The node as far as it decides which pods may run on it.
pub struct Node {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<core::Taint>,
    /// With `pods`, how many there may be.
    pub allocatable: Amounts,
    /// Which sysctls pods may set.
    pub sysctls: Allowlist,
    /// Whether the runtime can give a process just the groups that the pod names.
    pub strict_supplemental_groups: bool,
}

/// Why a pod can't run here; `reason` and `message` are for its status, whose phase is Failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    pub message: String,
    pub wants: Wants,
}

/// What would have to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wants {
    /// Other pods must end, or ask for less.
    Resources(Vec<Shortage>),
    /// The pods that have these must end.
    HostPorts(Vec<HostPort>),
    /// The node: its name, its labels, its taints.
    Node,
    /// The pod, or the agent's configuration.
    Pod,
}

/// CPU in thousandths, all else in units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    pub resource: String,
    pub requested: i64,
    pub used: i64,
    pub capacity: i64,
}

impl Shortage {
    fn missing(&self) -> i64 {
        self.requested.saturating_sub(self.capacity.saturating_sub(self.used))
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { resource, requested, used, capacity } = self;
        write!(f, "Node has not enough {resource}, requested: {requested}, used: {used}, capacity: {capacity}")
    }
}

impl Refusal {
    /// Of a pod that must change, or that the configuration forbids.
    pub fn of_pod(reason: &str, message: impl Into<String>) -> Refusal {
        Refusal { reason: reason.to_owned(), message: message.into(), wants: Wants::Pod }
    }

    fn predicate(name: &str, why: &str, wants: Wants) -> Refusal {
        Refusal { reason: name.to_owned(), message: format!("Predicate {name} failed: {why}"), wants }
    }

    /// Whether it is worth asking again when a pod has ended: not when the node could not even hold
    /// this one alone.
    pub fn may_pass_when_a_pod_ends(&self) -> bool {
        match &self.wants {
            Wants::Resources(shortages) => shortages.iter().all(|s| s.requested <= s.capacity),
            Wants::HostPorts(_) => true,
            Wants::Node | Wants::Pod => false,
        }
    }
}

/// Whether the pod may run: then the pods that must be ended before it is started, to make room for
/// it; mostly none. Only a critical pod has others preempted. `pods` are those that were admitted and
/// have not ended; the pod itself may be among them.
///
/// # Errors
/// The first reason against it.
pub fn admit(pod: &Pod, node: &Node, pods: &[Arc<Pod>]) -> Result<Vec<PodUid>, Refusal> {
    for_this_system(pod, node)?;
    node.sysctls.check(pod).map_err(|e| Refusal::of_pod(sysctl::FORBIDDEN, e.to_string()))?;
    let others: Vec<&Pod> = pods.iter().map(|p| &**p).filter(|p| p.uid != pod.uid).collect();
    let shortages = shortages(pod, node, &others);
    let unfit = unfit(pod, node, &others);
    match (shortages.first(), unfit) {
        (None, None) => Ok(Vec::new()),
        // No room is made for a pod that can't run all the same.
        (Some(_), Some(unfit)) if is_critical(pod) => Err(unfit),
        (Some(_), None) if is_critical(pod) => preempt_for(pod, &others, shortages),
        (Some(first), _) => {
            let (reason, message) = (format!("OutOf{}", first.resource), first.to_string());
            Err(Refusal { reason, message, wants: Wants::Resources(shortages) })
        }
        (None, Some(unfit)) => Err(unfit),
    }
}

const OS: &str = "kubernetes.io/os";
const ARCH: &str = "kubernetes.io/arch";
const HOSTNAME: &str = "kubernetes.io/hostname";
const LINUX: &str = "linux";

/// What a node's labels are before anybody changes them: what it is, and what the configuration adds.
pub fn node_labels(name: &str, configured: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = [(OS, LINUX), (ARCH, architecture(std::env::consts::ARCH)), (HOSTNAME, name)];
    let mut all: BTreeMap<_, _> = own.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    all.extend(configured.clone());
    all
}

/// As images and labels have it.
pub fn architecture(machine: &'static str) -> &'static str {
    match machine {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

/// What no preemption can help with.
fn for_this_system(pod: &Pod, node: &Node) -> Result<(), Refusal> {
    let label = pod.meta.labels.as_ref().and_then(|labels| labels.get(OS));
    if let Some(os) = label.filter(|os| *os != LINUX) {
        let message = format!("the pod's label {OS} is {os}, and the node's is {LINUX}");
        return Err(Refusal::of_pod("PodOSSelectorNodeLabelDoesNotMatch", message));
    }
    if let Some(os) = pod.spec.os.as_ref().filter(|os| os.name != LINUX) {
        let message = format!("the pod is for {}, and the node runs {LINUX}", os.name);
        return Err(Refusal::of_pod("PodOSNotSupported", message));
    }
    if let Some(at) = windows_options(&pod.spec) {
        let message = format!("{at} is set, and the node runs {LINUX}");
        return Err(Refusal::of_pod("PodOSNotSupported", message));
    }
    let policy = pod.spec.security_context.as_ref().and_then(|c| c.supplemental_groups_policy.as_deref());
    if policy == Some("Strict") && !node.strict_supplemental_groups {
        let message = "supplementalGroupsPolicy Strict is more than this node's runtime can do";
        return Err(Refusal::of_pod("SupplementalGroupsPolicyNotSupported", message));
    }
    Ok(())
}

/// The first field with options for Windows.
fn windows_options(spec: &core::PodSpec) -> Option<String> {
    if spec.security_context.as_ref().is_some_and(|c| c.windows_options.is_some()) {
        return Some("spec.securityContext.windowsOptions".to_owned());
    }
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let with = containers.find(|c| c.security_context.as_ref().is_some_and(|c| c.windows_options.is_some()))?;
    Some(format!("securityContext.windowsOptions of container {}", with.name))
}

fn shortages(pod: &Pod, node: &Node, others: &[&Pod]) -> Vec<Shortage> {
    let mut used = Amounts::default();
    for other in others {
        used.add(&requests(&other.spec).into());
    }
    used.set("pods", i64::try_from(others.len()).unwrap_or(i64::MAX));
    let mut asked = Amounts::from(requests(&pod.spec));
    asked.set("pods", 1);
    let kinds = ["pods", "cpu", "memory", "ephemeral-storage"];
    let rest = asked.iter().map(|(name, _)| name).filter(|name| !kinds.contains(name) && is_counted(name, node));
    let all = kinds.into_iter().chain(rest).map(|resource| Shortage {
        resource: resource.to_owned(),
        requested: asked.get(resource),
        used: used.get(resource),
        capacity: node.allocatable.get(resource),
    });
    all.filter(|s| s.requested > 0 && s.missing() > 0).collect()
}

/// An extended resource that the node doesn't have is none of the node's: somebody else sees to it.
fn is_counted(resource: &str, node: &Node) -> bool {
    let native = !resource.contains('/') || resource.contains("kubernetes.io/");
    native || huge_page_size(resource).is_some() || node.allocatable.contains(resource)
}

/// What is not a matter of how much there is.
fn unfit(pod: &Pod, node: &Node, others: &[&Pod]) -> Option<Refusal> {
    if !affinity::matches(&pod.spec, node) {
        let why = "the node's labels don't match the pod's node selector or affinity";
        return Some(Refusal::predicate("NodeAffinity", why, Wants::Node));
    }
    if pod.spec.node_name.as_deref().is_some_and(|name| !name.is_empty() && name != node.name) {
        let why = format!("the pod is for a node of another name than {}", node.name);
        return Some(Refusal::predicate("NodeName", &why, Wants::Node));
    }
    let taken = ports::taken(pod, others);
    if !taken.is_empty() {
        let list: Vec<_> = taken.iter().map(ToString::to_string).collect();
        let why = format!("host ports that the pod asks for are taken: {}", list.join(", "));
        return Some(Refusal::predicate("NodePorts", &why, Wants::HostPorts(taken)));
    }
    let untolerated = node.taints.iter().filter(|t| t.effect == "NoExecute").any(|t| !affinity::tolerates(pod, t));
    if pod.source == Source::Api && untolerated {
        let why = "the node has a taint that the pod doesn't tolerate";
        return Some(Refusal::predicate("TaintToleration", why, Wants::Node));
    }
    None
}

fn preempt_for(pod: &Pod, others: &[&Pod], shortages: Vec<Shortage>) -> Result<Vec<PodUid>, Refusal> {
    let needs = shortages.iter().map(|s| preempt::Need { resource: s.resource.clone(), quantity: s.missing() });
    preempt::victims(pod, others, needs.collect()).map_err(|unmet| {
        let list: Vec<_> = unmet.iter().map(ToString::to_string).collect();
        let message = format!(
            "The pod is critical, but there are no pods to preempt that would give it what it lacks: [{}]",
            list.join(", ")
        );
        Refusal { reason: "UnexpectedAdmissionError".to_owned(), message, wants: Wants::Resources(shortages) }
    })
}
