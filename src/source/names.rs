//! Whose a pod is when two sources give one of the same name, or with the same UID: the first keeps
//! it for as long as it gives it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;

use super::wake::Waker;
use crate::pod::{Pod, PodName, PodUid, Source};

/// Which source has which pods. The lock is held for look-ups only.
pub struct Names {
    held: Mutex<HashMap<Source, Held>>,
    /// The sources' own: one that was refused a pod looks again when that is free.
    wakers: Arc<[Waker]>,
}

#[derive(Default)]
struct Held {
    /// With the place that gives it.
    names: HashMap<PodName, Arc<str>>,
    uids: HashSet<PodUid>,
    /// What others hold that this one gives too.
    refused: HashSet<PodName>,
}

/// A pod that another source holds.
#[derive(Debug)]
pub struct Refused {
    pub pod: Arc<Pod>,
    pub holder: Source,
    /// The holder's file or URL.
    pub place: Arc<str>,
}

impl Names {
    /// `ran_before`: the pods of the sources that there are now, as the agent kept them before it was
    /// started again.
    pub fn new<'a>(ran_before: impl Iterator<Item = &'a Arc<Pod>>, wakers: Arc<[Waker]>) -> Names {
        let mut held: HashMap<Source, Held> = HashMap::new();
        for pod in ran_before {
            held.entry(pod.source).or_default().add(pod);
        }
        Names { held: Mutex::new(held), wakers }
    }

    /// Takes the source's full set and returns what of it is the source's, and what is not. What it
    /// had and doesn't give any more stays its own until [`Names::release`].
    pub fn claim(&self, source: Source, pods: Vec<Arc<Pod>>) -> (Vec<Arc<Pod>>, Vec<Refused>) {
        let mut held = self.held.lock();
        let mut own = held.remove(&source).unwrap_or_default();
        own.refused.clear();
        let (mut ours, mut refused) = (Vec::with_capacity(pods.len()), Vec::new());
        for pod in pods {
            let other = held.iter().find_map(|(source, other)| Some((*source, other.place_of(&pod)?)));
            match other {
                None => {
                    own.add(&pod);
                    ours.push(pod);
                }
                Some((holder, place)) => {
                    own.refused.insert(pod.name.clone());
                    refused.push(Refused { pod, holder, place });
                }
            }
        }
        held.insert(source, own);
        (ours, refused)
    }

    /// Leaves the source with these pods. To be called when the end of the others is on its way, so
    /// that nobody hears of another's pod before.
    pub fn release(&self, source: Source, pods: &[Arc<Pod>]) {
        let mut held = self.held.lock();
        let own = held.entry(source).or_default();
        let refused = std::mem::take(&mut own.refused);
        let before = std::mem::replace(own, Held { refused, ..Held::default() });
        pods.iter().for_each(|pod| own.add(pod));
        let less = before.names.len() > own.names.len() || before.uids.iter().any(|uid| !own.uids.contains(uid));
        let wanted = held.iter().any(|(other, held)| *other != source && !held.refused.is_empty());
        drop(held);
        if less && wanted {
            self.wakers.iter().for_each(Waker::read_now);
        }
    }
}

impl Held {
    fn add(&mut self, pod: &Arc<Pod>) {
        self.names.insert(pod.name.clone(), pod.origin.clone());
        self.uids.insert(pod.uid.clone());
    }

    /// Where the pod, or one that can't be beside it, is from.
    fn place_of(&self, pod: &Pod) -> Option<Arc<str>> {
        match self.names.get(&pod.name) {
            Some(place) => Some(place.clone()),
            None => self.uids.contains(&pod.uid).then(|| "its UID is the same".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wake;
    use super::*;
    use std::time::Duration;

    fn pod(source: Source, uid: &str, name: &str) -> Arc<Pod> {
        Arc::new(Pod {
            uid: PodUid::new(uid),
            name: PodName::new("default", name),
            source,
            origin: format!("{source}-place").into(),
            status: None,
            meta: Default::default(),
            spec: Default::default(),
        })
    }

    /// Names of those that are the source's, and `name holder place` of the others.
    fn claim(names: &Names, source: Source, pods: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let pods = pods.iter().map(|(uid, name)| pod(source, uid, name)).collect();
        let (ours, refused) = names.claim(source, pods);
        names.release(source, &ours);
        let shown = |r: &Refused| format!("{} {} {}", r.pod.name.name, r.holder, r.place);
        (ours.iter().map(|p| p.name.name.to_string()).collect(), refused.iter().map(shown).collect())
    }

    #[test]
    fn the_first_keeps_a_pod_and_the_other_is_woken_when_it_is_free() {
        let (waker, woken) = wake::pair().expect("a pair");
        let names = Names::new([].into_iter(), [waker].into());
        let none: Vec<String> = Vec::new();
        let all = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        woken.set_nonblocking(true).expect("a socket");
        let was_woken = || wake::asked(&woken);
        assert_eq!(claim(&names, Source::File, &[("1", "a"), ("2", "b")]), (all(&["a", "b"]), none.clone()));
        let both = claim(&names, Source::Http, &[("3", "b"), ("1", "c"), ("4", "d")]);
        assert_eq!(both, (all(&["d"]), all(&["b file file-place", "c file its UID is the same"])));
        // Changed, and still there: nobody is woken.
        assert_eq!(claim(&names, Source::File, &[("1", "a"), ("2", "b")]), (all(&["a", "b"]), none.clone()));
        assert!(!was_woken());
        assert_eq!(claim(&names, Source::File, &[("1", "a")]), (all(&["a"]), none.clone()));
        assert!(was_woken());
        assert_eq!(claim(&names, Source::Http, &[("3", "b")]), (all(&["b"]), none.clone()));
        assert_eq!(claim(&names, Source::File, &[("1", "a"), ("2", "b")]), (all(&["a"]), all(&["b http http-place"])));
        // Given up by who was refused it: nothing to be woken for.
        assert_eq!(claim(&names, Source::File, &[("1", "a")]), (all(&["a"]), none.clone()));
        assert!(!was_woken());
        assert_eq!(claim(&names, Source::Http, &[]), (none.clone(), none));
        assert!(!was_woken());
        assert!(wake::wait(&woken, Duration::ZERO), "the waker is there");
    }

    #[test]
    fn who_had_a_pod_before_the_restart_has_it_until_it_was_heard() {
        let before = [pod(Source::Http, "1", "a")];
        let names = Names::new(before.iter(), [].into());
        assert_eq!(claim(&names, Source::File, &[("2", "a")]).0, Vec::<String>::new());
        assert_eq!(claim(&names, Source::Http, &[]).0, Vec::<String>::new());
        assert_eq!(claim(&names, Source::File, &[("2", "a")]).0, ["a"]);
    }
}
