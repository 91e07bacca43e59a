//! The pods that are wanted and their status, for whoever wants to show them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::RwLock;

use crate::metrics::METRICS;
use crate::pod::{Pod, PodName, PodUid, core};

#[derive(Debug, Clone)]
pub struct StoredPod {
    pub pod: Arc<Pod>,
    /// `None` while nothing is known of it.
    pub status: Option<Arc<core::PodStatus>>,
    /// Nothing of it runs any more, and what it held is free.
    pub stopped: bool,
    /// When it came.
    seen: Instant,
    /// It isn't wanted any more, but something of it is still there.
    pub ending: bool,
}

/// Written by the sync loop alone. One that ends may have the name of one that comes.
#[derive(Default)]
pub struct Store {
    pods: RwLock<BTreeMap<(PodName, PodUid), StoredPod>>,
    changed: OnceLock<Changed>,
}

/// Called when something has changed; must not wait.
pub type Changed = Box<dyn Fn() + Send + Sync>;

impl Store {
    /// Has `changed` called from now on. There can be one only.
    pub fn on_change(&self, changed: Changed) {
        if self.changed.set(changed).is_err() {
            log::error!("somebody hears of changes of pods already");
        }
    }

    fn tell(&self) {
        if let Some(changed) = self.changed.get() {
            changed();
        }
    }

    /// Adds a pod or replaces it by its new version; its status stays.
    pub fn put(&self, pod: Arc<Pod>) {
        let mut pods = self.pods.write();
        let key = (pod.name.clone(), pod.uid.clone());
        match pods.get_mut(&key) {
            Some(stored) => (stored.pod, stored.ending) = (pod, false),
            None => {
                _ = pods
                    .insert(key, StoredPod { pod, status: None, stopped: false, seen: Instant::now(), ending: false })
            }
        }
        drop(pods);
        self.tell();
    }

    pub fn set_status(&self, pod: &Pod, status: Arc<core::PodStatus>) {
        if let Some(stored) = self.pods.write().get_mut(&(pod.name.clone(), pod.uid.clone())) {
            let phase = |status: &core::PodStatus| status.phase.clone();
            let before = stored.status.as_deref().and_then(phase);
            if before.is_none_or(|phase| phase == "Pending") && phase(&status).as_deref() == Some("Running") {
                METRICS.pod_start_duration.observe(stored.seen.elapsed().as_secs_f64());
            }
            stored.status = Some(status);
        }
        self.tell();
    }

    /// The pod as it is now.
    pub fn pod(&self, name: &PodName, uid: &PodUid) -> Option<Arc<Pod>> {
        self.pods.read().get(&(name.clone(), uid.clone())).map(|stored| stored.pod.clone())
    }

    /// The pod's status, as far as it is known.
    pub fn status(&self, pod: &Pod) -> Option<Arc<core::PodStatus>> {
        self.pods.read().get(&(pod.name.clone(), pod.uid.clone()))?.status.clone()
    }

    /// Nothing of the pod runs any more.
    pub fn set_stopped(&self, pod: &Pod) {
        if let Some(stored) = self.pods.write().get_mut(&(pod.name.clone(), pod.uid.clone())) {
            stored.stopped = true;
        }
        self.tell();
    }

    /// What was said of it before counts no more: it is to run.
    pub fn clear_status(&self, pod: &Pod) {
        if let Some(stored) = self.pods.write().get_mut(&(pod.name.clone(), pod.uid.clone())) {
            (stored.status, stored.stopped) = (None, false);
        }
        self.tell();
    }

    /// The pod isn't wanted any more.
    pub fn end(&self, pod: Arc<Pod>) {
        if let Some(stored) = self.pods.write().get_mut(&(pod.name.clone(), pod.uid.clone())) {
            (stored.pod, stored.ending) = (pod, true);
        }
        self.tell();
    }

    /// Nothing of the pod is left; it is removed unless it is wanted again.
    pub fn ended(&self, pod: &Pod) {
        let mut pods = self.pods.write();
        let key = (pod.name.clone(), pod.uid.clone());
        if pods.get(&key).is_some_and(|stored| stored.ending) {
            pods.remove(&key);
        }
        drop(pods);
        self.tell();
    }

    pub fn remove(&self, pod: &Pod) {
        self.pods.write().remove(&(pod.name.clone(), pod.uid.clone()));
        self.tell();
    }

    /// The UID of the pod of this name; of the newest one, if there are several.
    pub fn uid(&self, name: &PodName) -> Option<PodUid> {
        let pods = self.pods.read();
        let named = pods.range((name.clone(), PodUid::new(""))..).take_while(|((other, _), _)| other == name);
        named.max_by_key(|(_, stored)| stored.seen).map(|((_, uid), _)| uid.clone())
    }

    /// All pods, by name.
    pub fn list(&self) -> Vec<StoredPod> {
        self.pods.read().values().cloned().collect()
    }
}
