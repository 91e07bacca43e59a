//! Which of the wanted pods may run, and those that stand aside: because the node can't hold them
//! now, because room is being made for them, or because they were ended for more important ones.
//! Pure; the handler does what follows from it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::admission::{self, Node, Refusal, Wants};
use crate::node::{Known, Seen};
use crate::pod::resources::requests;
use crate::pod::{Pod, PodUid, Source, core};
use crate::status;

/// Why a wanted pod doesn't run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aside {
    /// What runs already is not known yet.
    TooEarly,
    Refused(Refusal),
    /// These pods are being ended to make room for it.
    Waits(Vec<PodUid>),
    /// It was ended to make room for another.
    Preempted,
}

/// The pods that stand aside, in the order in which they came.
pub struct Admission {
    node: Node,
    /// The node as the API server has it, where there is one.
    seen: Arc<Seen>,
    known: Option<Arc<Known>>,
    aside: Vec<(Arc<Pod>, Aside)>,
    /// Pods that run as they were before, since the node can't hold what they ask for now.
    resizes: HashMap<PodUid, (Arc<Pod>, Refusal)>,
    /// There may be more room than before.
    freed: bool,
}

impl Admission {
    pub fn new(node: Node, seen: Arc<Seen>) -> Admission {
        Admission { node, seen, known: None, aside: Vec::new(), resizes: HashMap::new(), freed: false }
    }

    /// Goes by the labels that the API server has of the node now; its administrator may change them.
    /// Returns whether they are known for the first time, for which its pods wait.
    pub fn look_at_node(&mut self) -> bool {
        let Some(known) = self.seen.known() else { return false };
        if self.known.as_ref().is_some_and(|before| Arc::ptr_eq(before, &known)) {
            return false;
        }
        if self.node.labels != known.labels {
            self.node.labels = known.labels.clone();
            // They may be what a pod lacked.
            self.freed = true;
        }
        self.known.replace(known).is_none()
    }

    /// The runtime was seen, and this is what it can do now.
    pub fn set_strict_groups(&mut self, can: bool) {
        self.node.strict_supplemental_groups = can;
    }

    /// Whether the pod may run beside `running`; then which of them are to be ended first.
    ///
    /// # Errors
    /// Why not.
    pub fn ask(&self, pod: &Pod, running: &[Arc<Pod>]) -> Result<Vec<PodUid>, Refusal> {
        admission::admit(pod, &self.node, running)
    }

    pub fn aside(&self, uid: &PodUid) -> Option<&Aside> {
        self.aside.iter().find(|(pod, _)| pod.uid == *uid).map(|(_, why)| why)
    }

    /// The pod stands aside. Returns whether that is news.
    pub fn put_aside(&mut self, pod: Arc<Pod>, why: Aside) -> bool {
        match self.aside.iter_mut().find(|(other, _)| other.uid == pod.uid) {
            Some(place) => {
                let news = place.1 != why;
                *place = (pod, why);
                news
            }
            None => {
                self.aside.push((pod, why));
                true
            }
        }
    }

    /// The pod is wanted no more, or runs.
    pub fn forget(&mut self, uid: &PodUid) {
        self.aside.retain(|(pod, _)| pod.uid != *uid);
        self.resizes.remove(uid);
    }

    /// A pod has ended, or asks for less.
    pub fn freed(&mut self) {
        self.freed = true;
    }

    /// Whether there may be more room than when this was last called.
    pub fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// The pods that it is worth asking for again, the most important ones first. `is_there`: whether
    /// something of a pod is left.
    pub fn to_ask_again(&self, is_there: impl Fn(&PodUid) -> bool) -> Vec<Arc<Pod>> {
        let worth = |(pod, why): &&(Arc<Pod>, Aside)| match why {
            Aside::TooEarly => false,
            Aside::Waits(victims) => !victims.iter().any(&is_there),
            // To the API a pod that has failed has failed for good.
            Aside::Refused(_) | Aside::Preempted if pod.source == Source::Api => false,
            Aside::Refused(refusal) => refusal.may_pass_when_a_pod_ends() || refusal.wants == Wants::Node,
            Aside::Preempted => !is_there(&pod.uid),
        };
        let mut pods: Vec<_> = self.aside.iter().filter(worth).map(|(pod, _)| pod.clone()).collect();
        pods.sort_by_key(|pod| std::cmp::Reverse(pod.spec.priority.unwrap_or(0)));
        pods
    }

    /// The pods that came before it was known what runs, those of them first that ran before. Pods of an
    /// API server wait until it is known what that has of the node: they may be for its labels.
    pub fn take_early(&mut self, ran: impl Fn(&PodUid) -> bool) -> Vec<Arc<Pod>> {
        let known = self.known.is_some();
        let is_early = |(pod, why): &(Arc<Pod>, Aside)| *why == Aside::TooEarly && (known || pod.source != Source::Api);
        let (early, others) = std::mem::take(&mut self.aside).into_iter().partition(is_early);
        self.aside = others;
        let (old, new): (Vec<_>, Vec<_>) = early.into_iter().map(|(pod, _)| pod).partition(|pod| ran(&pod.uid));
        old.into_iter().chain(new).collect()
    }

    /// Whether a pod that runs as `old` may become `new`: another amount of resources must be there.
    /// If not, it goes on as it is, and [`Admission::note`] says so. Returns that, if it is news.
    pub fn resize(&mut self, old: &Pod, new: &Arc<Pod>, running: &[Arc<Pod>]) -> Result<(), Option<Refusal>> {
        let refusal = match requests(&old.spec) == requests(&new.spec) {
            true => None,
            // Nobody is ended so that another may grow.
            false => match self.ask(new, running) {
                Err(refusal) if matches!(refusal.wants, Wants::Resources(_)) => Some(refusal),
                _ => None,
            },
        };
        match refusal {
            None => {
                self.freed |= self.resizes.remove(&new.uid).is_some() || requests(&old.spec) != requests(&new.spec);
                Ok(())
            }
            Some(refusal) => {
                let before = self.resizes.insert(new.uid.clone(), (new.clone(), refusal.clone()));
                Err(before.is_none_or(|(_, before)| before != refusal).then_some(refusal))
            }
        }
    }

    /// The pods whose resizing waits for room, as they are to be.
    pub fn resizes(&self) -> Vec<Arc<Pod>> {
        self.resizes.values().map(|(pod, _)| pod.clone()).collect()
    }

    /// Adds to the status of a pod that its resizing waits, if it does.
    pub fn note(&self, uid: &PodUid, status: &mut core::PodStatus) {
        if let Some((_, refusal)) = self.resizes.get(uid) {
            let reason = if refusal.may_pass_when_a_pod_ends() { "Deferred" } else { "Infeasible" };
            status::set_condition(status, "PodResizePending", reason, &refusal.message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::sysctl::Allowlist;
    use crate::pod::testing::{pod, spec};

    fn admission() -> Admission {
        let has = [("cpu", 1000), ("memory", 1 << 30), ("pods", 2)];
        let node = Node {
            name: "edge-1".to_owned(),
            labels: Default::default(),
            taints: Vec::new(),
            allocatable: has.map(|(name, n)| (name.to_owned(), n)).into_iter().collect(),
            sysctls: Allowlist::new(None, &[]).expect("a list"),
            strict_supplemental_groups: false,
        };
        Admission::new(node, Arc::new(Seen::open("/nonexistent/node.json".into())))
    }

    fn of(name: &str, resources: &str, priority: i32) -> Arc<Pod> {
        let mut pod = pod(name, spec(&[], &[resources]));
        pod.spec.priority = Some(priority);
        Arc::new(pod)
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
        pods.iter().map(|p| p.uid.as_str()).collect()
    }

    #[test]
    fn who_is_asked_again() {
        let mut a = admission();
        let running = [of("r", "cpu=800m", 10)];
        for (name, resources, priority) in [("low", "cpu=500m", 1), ("high", "cpu=500m", 2), ("never", "cpu=2", 9)] {
            let pod = of(name, resources, priority);
            let refusal = a.ask(&pod, &running).expect_err("is too much");
            assert!(a.put_aside(pod.clone(), Aside::Refused(refusal.clone())));
            assert!(!a.put_aside(pod, Aside::Refused(refusal)), "no news");
        }
        assert!(a.put_aside(of("waits", "", 3), Aside::Waits(vec![PodUid::new("victim")])));
        assert!(a.put_aside(of("victim", "", 0), Aside::Preempted));
        assert!(a.put_aside(of("early", "", 4), Aside::TooEarly));
        assert!(!a.take_freed());
        a.freed();
        assert!(a.take_freed() && !a.take_freed());
        assert_eq!(names(&a.to_ask_again(|uid| uid.as_str() == "victim")), ["high", "low"]);
        assert_eq!(names(&a.to_ask_again(|_| false)), ["waits", "high", "low", "victim"]);
        a.forget(&PodUid::new("high"));
        assert_eq!(names(&a.to_ask_again(|_| false)), ["waits", "low", "victim"]);
    }

    #[test]
    fn labels_of_the_api_server_count() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut a = admission();
        a.seen = Arc::new(Seen::open(dir.path().join("node.json")));
        let mut pod = pod("p", spec(&[], &[""]));
        pod.spec.node_selector = Some([("room".to_owned(), "7".to_owned())].into());
        let pod = Arc::new(pod);
        a.look_at_node();
        let refusal = a.ask(&pod, &[]).expect_err("is for other nodes");
        a.put_aside(pod.clone(), Aside::Refused(refusal));
        assert!(!a.take_freed());
        a.seen.note(&serde_json::json!({"metadata": {"labels": {"room": "7"}}}));
        a.look_at_node();
        assert!(a.take_freed());
        assert_eq!(names(&a.to_ask_again(|_| false)), ["p"]);
        assert_eq!(a.ask(&pod, &[]), Ok(vec![]));
        a.seen.note(&serde_json::json!({"metadata": {"labels": {"room": "7"}}}));
        a.look_at_node();
        assert!(!a.take_freed(), "they are the same");
    }

    #[test]
    fn what_ran_before_comes_first() {
        let mut a = admission();
        for name in ["a", "b", "c"] {
            a.put_aside(of(name, "", 0), Aside::TooEarly);
        }
        let mut of_server = Pod::clone(&of("d", "", 0));
        of_server.source = Source::Api;
        a.put_aside(Arc::new(of_server), Aside::TooEarly);
        let pods = a.take_early(|uid| uid.as_str() == "c");
        assert_eq!(names(&pods), ["c", "a", "b"]);
        assert!(a.aside(&PodUid::new("a")).is_none());
        // The server has not said yet what it has of the node.
        let dir = tempfile::tempdir().expect("a directory");
        a.seen = Arc::new(Seen::open(dir.path().join("node.json")));
        assert!(!a.look_at_node());
        a.seen.note(&serde_json::json!({"metadata": {"uid": "u"}}));
        assert!(a.look_at_node() && !a.look_at_node());
        assert_eq!(names(&a.take_early(|_| false)), ["d"]);
    }

    #[test]
    fn a_pod_that_asks_for_more_than_there_is_stays_as_it_is() {
        let mut a = admission();
        let (old, other) = (of("p", "cpu=200m", 0), of("other", "cpu=700m", 0));
        let running = [old.clone(), other];
        let status = |a: &Admission| {
            let mut status = core::PodStatus::default();
            a.note(&old.uid, &mut status);
            status.conditions.unwrap_or_default().pop().and_then(|c| c.reason)
        };
        let table = [
            ("cpu=300m", true, None),
            ("cpu=400m", false, Some("Deferred")),
            ("cpu=2", false, Some("Infeasible")),
            ("cpu=100m", true, None),
        ];
        for (text, want, reason) in table {
            let result = a.resize(&old, &of("p", text, 0), &running);
            assert_eq!((result.is_ok(), status(&a).as_deref()), (want, reason), "{text}");
        }
        assert!(a.resize(&old, &of("p", "cpu=2", 0), &running).is_err_and(|news| news.is_some()));
        assert!(a.resize(&old, &of("p", "cpu=2", 0), &running).is_err_and(|news| news.is_none()));
    }
}
