//! From full sets of pods to changes: what is new, changed, gone (pkg/kubelet/config/config.go).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crossbeam::channel::{SendError, Sender};

use super::answers::shown;
use super::names::{Names, Refused};
use crate::pod::{Pod, PodName, PodUid, Source, identity, labels};

/// What happened to pods of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// They are new.
    Add,
    /// Their spec, labels or annotations are other than before.
    Update,
    /// The source doesn't have them any more.
    Remove,
    /// They are to end gracefully, and are still there until they have.
    Delete,
    /// Only something that the node doesn't act on is other than before.
    Reconcile,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PodUpdate {
    pub source: Source,
    pub op: Op,
    /// Of a removal: as they were last.
    pub pods: Vec<Arc<Pod>>,
}

/// The way of one source's pods to the sync loop.
pub struct Channel {
    source: Source,
    known: HashMap<PodUid, Arc<Pod>>,
    seen_once: bool,
    updates: Sender<PodUpdate>,
    names: Option<Arc<Names>>,
    /// Pods that another source holds, as far as that was told.
    refused: HashSet<PodName>,
}

impl Channel {
    pub fn new(source: Source, updates: Sender<PodUpdate>) -> Channel {
        Channel { source, known: HashMap::new(), seen_once: false, updates, names: None, refused: HashSet::new() }
    }

    /// With names that it shares with other sources. A cluster's pods don't: their names are those
    /// of static pods where they mirror them.
    pub fn sharing(self, names: Arc<Names>) -> Channel {
        Channel { names: Some(names), ..self }
    }

    /// Takes the source's full set and sends what changed. The first set is sent even when it is
    /// empty: by it the sync loop knows that the source has been heard. Blocks while the loop is
    /// behind; an error means that the loop is gone.
    pub fn set(&mut self, pods: Vec<Arc<Pod>>) -> Result<(), SendError<PodUpdate>> {
        let Some(names) = self.names.clone() else { return self.send(pods) };
        let (pods, refused) = names.claim(self.source, pods);
        self.tell(&refused);
        self.send(pods.clone())?;
        names.release(self.source, &pods);
        Ok(())
    }

    /// Each refusal once, and again when it had not been so meanwhile.
    fn tell(&mut self, refused: &[Refused]) {
        for Refused { pod, holder, place } in refused.iter().filter(|r| !self.refused.contains(&r.pod.name)) {
            let (here, place) = (shown(&pod.origin), shown(place));
            log::error!("{here}: pod {} is that of source {holder} ({place}) already; this one is ignored", pod.name);
        }
        self.refused = refused.iter().map(|r| r.pod.name.clone()).collect();
    }

    fn send(&mut self, pods: Vec<Arc<Pod>>) -> Result<(), SendError<PodUpdate>> {
        let changes = merge(&mut self.known, pods);
        let mut sent = false;
        for (op, pods) in changes.into_iter().filter(|(_, pods)| !pods.is_empty()) {
            self.updates.send(PodUpdate { source: self.source, op, pods })?;
            sent = true;
        }
        if !sent && !self.seen_once {
            self.updates.send(PodUpdate { source: self.source, op: Op::Add, pods: Vec::new() })?;
        }
        self.seen_once = true;
        Ok(())
    }
}

/// Makes `known` the new set and returns the changes in the order in which they are to be acted
/// on: removals first, since a new pod may want what an old one holds. A pod keeps the time at
/// which it was first seen.
pub fn merge(known: &mut HashMap<PodUid, Arc<Pod>>, pods: Vec<Arc<Pod>>) -> [(Op, Vec<Arc<Pod>>); 5] {
    let (mut adds, mut updates, mut deletes, mut reconciles) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut old = std::mem::take(known);
    for mut pod in pods {
        if known.contains_key(&pod.uid) {
            log::warn!("{}: a second pod with UID {} is ignored", pod.name, pod.uid);
            continue;
        }
        let pod = match old.remove(&pod.uid) {
            None => {
                adds.push(pod.clone());
                pod
            }
            Some(before) if Arc::ptr_eq(&before, &pod) => before,
            Some(before) => {
                keep_seen(&before, &mut pod);
                match identity::changed(&before, &pod) {
                    true if pod.meta.deletion_timestamp.is_some() => deletes.push(pod.clone()),
                    true => updates.push(pod.clone()),
                    false if before.meta != pod.meta || before.status != pod.status => reconciles.push(pod.clone()),
                    false => pod = before,
                }
                pod
            }
        };
        known.insert(pod.uid.clone(), pod);
    }
    let mut removes: Vec<_> = old.into_values().collect();
    removes.sort_by(|a, b| a.name.cmp(&b.name));
    [(Op::Remove, removes), (Op::Delete, deletes), (Op::Add, adds), (Op::Update, updates), (Op::Reconcile, reconciles)]
}

fn keep_seen(before: &Pod, pod: &mut Arc<Pod>) {
    let seen = |p: &Pod| p.meta.annotations.as_ref()?.get(labels::CONFIG_SEEN).cloned();
    if let Some(first) = seen(before).filter(|first| seen(pod).as_ref() != Some(first)) {
        let annotations = Arc::make_mut(pod).meta.annotations.get_or_insert_default();
        annotations.insert(labels::CONFIG_SEEN.to_owned(), first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::PodName;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn pod(uid: &str, edit: impl FnOnce(&mut Pod)) -> Arc<Pod> {
        let mut p = Pod {
            uid: PodUid::new(uid),
            name: PodName::new("default", format!("{uid}-n")),
            source: Source::File,
            origin: "/m/a.yaml".into(),
            status: None,
            meta: Default::default(),
            spec: Default::default(),
        };
        edit(&mut p);
        Arc::new(p)
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    /// The changes that `set` makes, as `OP uid,uid`.
    fn changes(known: &mut HashMap<PodUid, Arc<Pod>>, set: Vec<Arc<Pod>>) -> Vec<String> {
        let changed = merge(known, set);
        let shown = changed.iter().filter(|(_, p)| !p.is_empty()).map(|(op, pods)| {
            let mut uids: Vec<_> = pods.iter().map(|p| p.uid.as_str()).collect();
            uids.sort_unstable();
            format!("{op:?} {}", uids.join(","))
        });
        shown.collect()
    }

    #[test]
    fn a_set_becomes_changes() {
        let mut known = HashMap::new();
        assert_eq!(changes(&mut known, vec![pod("a", |_| {}), pod("b", |_| {})]), ["Add a,b"]);
        assert_eq!(changes(&mut known, vec![pod("a", |_| {}), pod("b", |_| {})]), [""; 0]);
        let label = |p: &mut Pod| p.meta.labels = Some([("k".to_owned(), "v".to_owned())].into());
        assert_eq!(changes(&mut known, vec![pod("a", label), pod("c", |_| {})]), ["Remove b", "Add c", "Update a"]);
        let managed = |p: &mut Pod| {
            label(p);
            p.meta.resource_version = Some("2".to_owned());
        };
        assert_eq!(changes(&mut known, vec![pod("a", managed), pod("c", |_| {})]), ["Reconcile a"]);
        let deleted = |p: &mut Pod| p.meta.deletion_timestamp = Some(Time(at(1)));
        assert_eq!(changes(&mut known, vec![pod("a", managed), pod("c", deleted)]), ["Delete c"]);
        assert_eq!(changes(&mut known, vec![pod("d", |_| {}), pod("d", |_| {})]), ["Remove a,c", "Add d"]);
        assert_eq!(changes(&mut known, vec![]), ["Remove d"]);
    }

    #[test]
    fn the_time_of_first_sight_stays() {
        let mut known = HashMap::new();
        let seen = |p: &mut Pod, second| {
            p.meta.annotations.get_or_insert_default().insert(labels::CONFIG_SEEN.to_owned(), at(second).to_string());
        };
        merge(&mut known, vec![pod("a", |p| seen(p, 10))]);
        assert_eq!(changes(&mut known, vec![pod("a", |p| seen(p, 15))]), [""; 0]);
        let edited = |p: &mut Pod| {
            seen(p, 20);
            p.spec.hostname = Some("h".into());
        };
        assert_eq!(changes(&mut known, vec![pod("a", edited)]), ["Update a"]);
        let annotations = known.values().next().and_then(|p| p.meta.annotations.clone()).unwrap_or_default();
        assert_eq!(annotations.get(labels::CONFIG_SEEN).map(String::as_str), Some("1970-01-01T00:00:10Z"));
    }

    #[test]
    fn the_first_set_is_sent_even_when_empty() {
        let (tx, rx) = crossbeam::channel::bounded(8);
        let mut channel = Channel::new(Source::File, tx);
        channel.set(vec![]).expect("the receiver is there");
        channel.set(vec![]).expect("the receiver is there");
        let sent: Vec<_> = rx.try_iter().collect();
        assert_eq!(sent, [PodUpdate { source: Source::File, op: Op::Add, pods: vec![] }]);
    }
}
