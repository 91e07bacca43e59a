//! What people order of single pods by the API, beyond what their sources say of them: ephemeral
//! containers, and how a pod is to end. It stays with the pod for as long as that is there, whatever
//! its source says meanwhile.

use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::pod::{Pod, PodUid, Source, core};

/// How long the loop may take to hear of one; it turns each second at the latest.
const HEARD: Duration = Duration::from_secs(10);

pub struct Order {
    pub uid: PodUid,
    pub what: What,
    answer: Sender<Result<(), Refused>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// The ephemeral containers that it is to have: those that it has, and new ones. They have been
    /// checked.
    Ephemeral(Vec<core::EphemeralContainer>),
    /// Its source gives it no more, or will not in a moment: it has so many seconds to end.
    End { grace: i64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the pod is there no more, or is ending")]
    Gone,
    #[error("others have been added meanwhile")]
    Stale,
    #[error("the agent is too busy")]
    Busy,
}

/// Where orders are given.
#[derive(Clone)]
pub struct Orders(Sender<Order>);

impl Orders {
    /// And where the loop hears of them.
    pub fn new() -> (Orders, Receiver<Order>) {
        let (give, given) = bounded(1);
        (Orders(give), given)
    }

    /// Waits until it has been taken.
    ///
    /// # Errors
    /// When it can't be.
    pub fn give(&self, uid: PodUid, what: What) -> Result<(), Refused> {
        let (answer, answered) = bounded(1);
        self.0.send_timeout(Order { uid, what, answer }, HEARD).map_err(|_| Refused::Busy)?;
        answered.recv_timeout(HEARD).unwrap_or(Err(Refused::Busy))
    }
}

impl Order {
    /// `pod` as it is ordered to be.
    ///
    /// # Errors
    /// When it has changed too much for it.
    pub fn apply(&self, pod: &Pod, now: Timestamp) -> Result<Arc<Pod>, Refused> {
        match &self.what {
            What::Ephemeral(_) if pod.meta.deletion_timestamp.is_some() => Err(Refused::Gone),
            What::Ephemeral(list) => {
                match list.starts_with(pod.spec.ephemeral_containers.as_deref().unwrap_or_default()) {
                    true => Ok(with(pod, list.clone())),
                    false => Err(Refused::Stale),
                }
            }
            What::End { grace } => Ok(ending(pod, *grace, now)),
        }
    }

    pub fn answer(self, answer: Result<(), Refused>) {
        // Whoever asked may have gone.
        let _ = self.answer.try_send(answer);
    }
}

/// A pod as its source gives it, with the ephemeral containers that it had before.
pub fn keep(before: Option<&Pod>, pod: Arc<Pod>) -> Arc<Pod> {
    match before.and_then(|before| before.spec.ephemeral_containers.as_ref()) {
        Some(list) if pod.source != Source::Api && pod.spec.ephemeral_containers.as_ref() != Some(list) => {
            with(&pod, list.clone())
        }
        _ => pod,
    }
}

/// A pod that is to end in so many seconds, or sooner if that was so before.
pub fn ending(pod: &Pod, grace: i64, now: Timestamp) -> Arc<Pod> {
    let mut pod = pod.clone();
    let before = pod.meta.deletion_grace_period_seconds;
    if before.is_none_or(|before| grace < before) {
        let until = now.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(now);
        pod.meta.deletion_timestamp = Some(Time(until));
        pod.meta.deletion_grace_period_seconds = Some(grace);
    }
    Arc::new(pod)
}

fn with(pod: &Pod, list: Vec<core::EphemeralContainer>) -> Arc<Pod> {
    let mut pod = pod.clone();
    pod.spec.ephemeral_containers = (!list.is_empty()).then_some(list);
    Arc::new(pod)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing;

    fn pod(names: &[&str]) -> Arc<Pod> {
        with(&testing::pod("p", testing::spec(&[], &[""])), list(names))
    }

    fn list(names: &[&str]) -> Vec<core::EphemeralContainer> {
        names.iter().map(|name| core::EphemeralContainer { name: (*name).to_owned(), ..Default::default() }).collect()
    }

    #[test]
    fn what_is_added_stays() {
        for (before, now, want) in [
            (Some(&["a", "b"][..]), &[][..], &["a", "b"][..]),
            (Some(&["a", "b"]), &["a"], &["a", "b"]),
            (Some(&[]), &["a"], &["a"]),
            (None, &[], &[]),
        ] {
            let kept = keep(before.map(pod).as_deref(), pod(now));
            assert_eq!(kept, pod(want), "{before:?} {now:?}");
        }
        let mut of_cluster = Pod::clone(&pod(&[]));
        of_cluster.source = Source::Api;
        let of_cluster = Arc::new(of_cluster);
        assert_eq!(keep(Some(&pod(&["a"])), of_cluster.clone()), of_cluster);
    }

    #[test]
    fn nothing_is_lost_when_two_add() {
        let (orders, given) = Orders::new();
        let asked = std::thread::spawn(move || {
            let add = |name| orders.give(PodUid::new("u"), What::Ephemeral(list(&[name])));
            let results = [add("a"), add("b")];
            (results, orders.give(PodUid::new("u"), What::End { grace: 5 }), add("a"))
        });
        let mut now = pod(&[]);
        for _ in 0..4 {
            let order = given.recv().expect("is given");
            match order.apply(&now, Timestamp::UNIX_EPOCH) {
                Ok(pod) => {
                    now = pod;
                    order.answer(Ok(()));
                }
                Err(refused) => order.answer(Err(refused)),
            }
        }
        assert_eq!(asked.join().expect("ends"), ([Ok(()), Err(Refused::Stale)], Ok(()), Err(Refused::Gone)));
        assert_eq!(now.spec, pod(&["a"]).spec);
    }

    #[test]
    fn an_end_only_comes_nearer() {
        let mut ends = pod(&[]);
        for (second, grace, want) in
            [(100, 30, (130, 30)), (110, 40, (130, 30)), (120, 1, (121, 1)), (121, 1, (121, 1))]
        {
            ends = ending(&ends, grace, Timestamp::from_second(second).expect("in range"));
            let at = ends.meta.deletion_timestamp.as_ref().map(|t| t.0.as_second());
            assert_eq!((at, ends.meta.deletion_grace_period_seconds), (Some(want.0), Some(want.1)));
        }
        assert!(ending(&pod(&[]), i64::MAX, Timestamp::MAX).meta.deletion_timestamp.is_some());
    }
}
