//! Ephemeral containers, which no source gives: they are added to a pod that is there, stay with it as
//! long as it is, whatever its source says of it meanwhile, and are kept in its record.

use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded};

use crate::pod::{Pod, PodUid, Source, core};

/// How long the loop may take to hear of one; it turns each second at the latest.
const HEARD: Duration = Duration::from_secs(10);

/// The ephemeral containers that a pod is to have: those that it has, and new ones.
pub struct Addition {
    pub uid: PodUid,
    pub containers: Vec<core::EphemeralContainer>,
    answer: Sender<Result<(), Refused>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the pod is there no more")]
    Gone,
    #[error("others have been added meanwhile")]
    Stale,
    #[error("the agent is too busy")]
    Busy,
}

/// Where additions are made. They have been checked by then.
#[derive(Clone)]
pub struct Additions(Sender<Addition>);

impl Additions {
    /// And where the loop hears of them.
    pub fn new() -> (Additions, Receiver<Addition>) {
        let (add, added) = bounded(1);
        (Additions(add), added)
    }

    /// Waits until the pod has them.
    ///
    /// # Errors
    /// When it can't.
    pub fn add(&self, uid: PodUid, containers: Vec<core::EphemeralContainer>) -> Result<(), Refused> {
        let (answer, answered) = bounded(1);
        self.0.send_timeout(Addition { uid, containers, answer }, HEARD).map_err(|_| Refused::Busy)?;
        answered.recv_timeout(HEARD).unwrap_or(Err(Refused::Busy))
    }
}

impl Addition {
    /// `pod` with them.
    ///
    /// # Errors
    /// When it has others by now.
    pub fn to(&self, pod: &Pod) -> Result<Arc<Pod>, Refused> {
        let has = pod.spec.ephemeral_containers.as_deref().unwrap_or_default();
        match self.containers.starts_with(has) {
            true => Ok(with(pod, self.containers.clone())),
            false => Err(Refused::Stale),
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
        let (additions, added) = Additions::new();
        let asked = std::thread::spawn(move || ["a", "b"].map(|name| additions.add(PodUid::new("u"), list(&[name]))));
        let mut now = pod(&[]);
        for _ in 0..2 {
            let addition = added.recv().expect("is asked for");
            match addition.to(&now) {
                Ok(pod) => {
                    now = pod;
                    addition.answer(Ok(()));
                }
                Err(refused) => addition.answer(Err(refused)),
            }
        }
        assert_eq!(asked.join().expect("ends"), [Ok(()), Err(Refused::Stale)]);
        assert_eq!(now, pod(&["a"]));
    }
}
