//! The way of objects from a source to those that use them: a snapshot that anybody may have, and
//! word of what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crossbeam::channel::{SendError, Sender};
use parking_lot::Mutex;

use super::record::{ByPlace, Records};
use super::{Key, Node, Object, Objects};
use crate::pod::{Pod, Source};

/// The objects as they are now. The lock is held for the exchange of a pointer only.
#[derive(Default)]
pub struct Store {
    objects: Mutex<Arc<Objects>>,
    changed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Store {
    /// What is there now; it stays as it is for the one who has it.
    pub fn get(&self) -> Arc<Objects> {
        self.objects.lock().clone()
    }

    /// Has `changed` called from now on when there are others; it must not wait. There can be one only.
    pub fn on_change(&self, changed: Box<dyn Fn() + Send + Sync>) {
        if self.changed.set(changed).is_err() {
            log::error!("somebody hears of changes of objects already");
        }
    }

    /// Exchanges all of them.
    pub fn set(&self, objects: Arc<Objects>) {
        *self.objects.lock() = objects;
        if let Some(changed) = self.changed.get() {
            changed();
        }
    }
}

/// The objects that pods refer to, by where the pods are from: what stands in manifests is for static
/// pods only, and what the API server has for its own.
#[derive(Default)]
pub struct Stores {
    pub local: Arc<Store>,
    pub server: Arc<Store>,
}

impl Stores {
    /// Those that the pod may refer to, as they are now.
    pub fn of(&self, pod: &Pod) -> Arc<Objects> {
        match pod.source {
            Source::Api => self.server.get(),
            Source::File | Source::Http => self.local.get(),
        }
    }
}

/// What manifests gave before the agent was started, by their paths.
pub type Recorded = ByPlace;

/// A source's end of the way: it records what the source has, binds claims, exchanges the snapshot
/// and tells what changed.
pub struct Publisher {
    store: Arc<Store>,
    records: Records,
    node: Node,
    changed: Sender<BTreeSet<Key>>,
    /// The last failure to write a record, told once.
    failed: Option<String>,
}

impl Publisher {
    /// `directory`: where the records are. `changed` hears what is other than before, after the
    /// snapshot was exchanged.
    pub fn open(directory: PathBuf, node: Node, store: Arc<Store>, changed: Sender<BTreeSet<Key>>) -> Publisher {
        Publisher { store, records: Records::open(directory), node, changed, failed: None }
    }

    /// What it published last.
    pub fn objects(&self) -> Arc<Objects> {
        self.store.get()
    }

    pub fn recorded(&self) -> Recorded {
        self.records.objects()
    }

    /// Takes all objects: those of each manifest, for the records, and of them those that count,
    /// no two with one key. Blocks while the loop is behind; an error means that the loop is gone.
    pub fn publish(&mut self, by_place: &ByPlace, all: Vec<Arc<Object>>) -> Result<(), SendError<BTreeSet<Key>>> {
        let before = self.store.get();
        let had: BTreeMap<_, _> = self.records.bound().clone();
        let objects = Objects::new(all, &had, &self.node);
        // First on disk: a claim must find the same volume after a power cut.
        let kept = self.records.keep_bound(objects.bound());
        let kept = self.records.keep(by_place).and(kept);
        self.tell(kept.err().map(|(path, e)| failure(&path, &e)));
        let changed = objects.changed_since(&before);
        if changed.is_empty() {
            return Ok(());
        }
        self.store.set(Arc::new(objects));
        self.changed.send(changed)
    }

    fn tell(&mut self, failed: Option<String>) {
        if let Some(text) = failed.as_ref().filter(|text| self.failed.as_ref() != Some(text)) {
            log::error!("{text}");
        }
        self.failed = failed;
    }
}

fn failure(path: &Path, e: &std::io::Error) -> String {
    format!("{}: {e}; after a restart, a manifest that is broken by then gives none of its objects", path.display())
}

#[cfg(test)]
mod tests {
    use super::super::tests::object;
    use super::super::{Body, ConfigMap, Kind};
    use super::*;
    use crossbeam::channel::{Receiver, unbounded};

    fn map(name: &str, value: &str) -> Arc<Object> {
        let data = BTreeMap::from([("key".to_owned(), value.to_owned())]);
        object(Key::new(Kind::ConfigMap, "default", name), Body::ConfigMap(ConfigMap { data, ..Default::default() }))
    }

    fn json(kind: Kind, namespace: &str, name: &str, spec: serde_json::Value) -> Arc<Object> {
        let body = match kind {
            Kind::PersistentVolume => Body::PersistentVolume(serde_json::from_value(spec).expect("a spec")),
            _ => Body::PersistentVolumeClaim(serde_json::from_value(spec).expect("a spec")),
        };
        object(Key::new(kind, namespace, name), body)
    }

    struct Given {
        publisher: Publisher,
        store: Arc<Store>,
        changes: Receiver<BTreeSet<Key>>,
    }

    impl Given {
        fn new(directory: &Path) -> Given {
            let (store, (changed, changes)) = (Arc::<Store>::default(), unbounded());
            let publisher = Publisher::open(directory.to_owned(), Node::default(), store.clone(), changed);
            Given { publisher, store, changes }
        }

        /// What is told of after these objects were published.
        fn publish(&mut self, objects: &[Arc<Object>]) -> Vec<String> {
            let by_place = ByPlace::from([("/m/a.yaml".to_owned(), objects.to_vec())]);
            self.publisher.publish(&by_place, objects.to_vec()).expect("somebody listens");
            self.changes.try_iter().flatten().map(|key| key.to_string()).collect()
        }
    }

    #[test]
    fn changes_are_told_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut given = Given::new(dir.path());
        let none: [&str; 0] = [];
        assert_eq!(given.publish(&[]), none);
        assert_eq!(given.publish(&[map("a", "1"), map("b", "1")]), ["ConfigMap default/a", "ConfigMap default/b"]);
        let before = given.store.get();
        assert_eq!(given.publish(&[map("a", "1"), map("b", "1")]), none);
        assert!(Arc::ptr_eq(&before, &given.store.get()));
        assert_eq!(given.publish(&[map("a", "2"), map("b", "1")]), ["ConfigMap default/a"]);
        assert_eq!(given.publish(&[map("a", "2")]), ["ConfigMap default/b"]);
        let value = |objects: &Objects| objects.config_map("default", "a").map(|m| m.data["key"].clone());
        assert_eq!((value(&before), value(&given.store.get())), (Some("1".into()), Some("2".into())));
        assert_eq!(given.store.get().config_map("other", "a"), None);
    }

    #[test]
    fn a_claim_hears_of_its_volume_and_keeps_it_over_a_restart() {
        use serde_json::json as j;
        let dir = tempfile::tempdir().expect("a directory");
        let pv = |name: &str, path: &str| {
            let spec =
                j!({"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": path}});
            json(Kind::PersistentVolume, "", name, spec)
        };
        let claim = j!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let claim = json(Kind::PersistentVolumeClaim, "default", "db", claim);
        let mut given = Given::new(dir.path());
        let told = given.publish(std::slice::from_ref(&claim));
        assert_eq!(told, ["PersistentVolumeClaim default/db"]);
        let why = given.store.get().volume_of("default", "db").map(|(name, _)| name.to_owned());
        let unbound =
            "persistentvolumeclaim \"db\" is not bound: no persistent volume with storage class \"\" is free and fits";
        assert_eq!(why, Err(unbound.to_owned()));
        let both = ["PersistentVolumeClaim default/db", "PersistentVolume y"];
        assert_eq!(given.publish(&[claim.clone(), pv("y", "/a")]), both);
        assert_eq!(given.publish(&[claim.clone(), pv("y", "/b")]), both);

        let mut given = Given::new(dir.path());
        given.publish(&[claim.clone(), pv("x", "/x"), pv("y", "/b")]);
        assert_eq!(given.store.get().volume_of("default", "db").map(|(name, _)| name.to_owned()), Ok("y".to_owned()));
        let missing = given.store.get().volume_of("default", "none").map(drop);
        assert_eq!(missing, Err("persistentvolumeclaim \"none\" not found".to_owned()));
    }
}
