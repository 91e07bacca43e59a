//! What is shown of pods: what their jobs report, always with what their probes say now.

use std::sync::Arc;

use jiff::Timestamp;

use crate::pod::{Pod, core};
use crate::probe;
use crate::status::{self, Store};

pub struct Shown {
    pub store: Arc<Store>,
    pub probes: probe::Manager,
}

impl Shown {
    /// A job has told a pod's status, which may be older than what the probes say. Returns what is
    /// shown.
    pub fn report(&self, pod: &Pod, status: Arc<core::PodStatus>) -> Arc<core::PodStatus> {
        let verdicts = self.probes.verdicts(&pod.uid);
        let status = match verdicts.verdicts.is_empty() {
            true => status,
            false => {
                let shown = self.store.status(pod);
                let shown = shown.as_ref().unwrap_or(&status);
                Arc::new(status::probed(pod, &status, shown, &verdicts, Timestamp::now()))
            }
        };
        self.store.set_status(pod, status.clone());
        status
    }

    /// A probe of the pod has another result.
    pub fn probe(&self, pod: &Pod) {
        if let Some(status) = self.store.status(pod) {
            self.report(pod, status);
        }
    }
}
