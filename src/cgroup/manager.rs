//! The cgroups of this node's pods (pkg/kubelet/cm/pod_container_manager_linux.go,
//! qos_container_manager_linux.go).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::hierarchy::{Hierarchy, Version};
use super::name::{Name, pod_of};
use super::stats::{self, Stats};
use super::systemd::Systemd;
use super::tree::Tree;
use super::values::{Totals, Values};
use super::{Error, Policy, Result};
use crate::config::{Cgroup, CgroupDriver};
use crate::pod::qos::QosClass;
use crate::pod::{Pod, PodUid};

/// How long systemd gets to make the cgroup of a slice.
const SYSTEMD: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);

/// Every call may be made from any thread, for different pods at the same time.
#[derive(Debug)]
pub struct Manager(Option<Inner>);

/// There is none without cgroups for QoS classes: then containers are in whatever cgroup the runtime
/// has for them.
#[derive(Debug)]
struct Inner {
    tree: Tree,
    /// The cgroup above all pods.
    top: Name,
    driver: CgroupDriver,
    systemd: Systemd,
}

impl Manager {
    /// Makes nothing yet.
    ///
    /// # Errors
    /// When the machine's cgroups can't do what the configuration asks for.
    pub fn new(config: &Cgroup, hierarchy: Hierarchy) -> Result<Manager> {
        if config.fail_v1 && hierarchy.version() == Version::V1 {
            return Err(Error::VersionOne);
        }
        if !config.per_qos {
            return Ok(Manager(None));
        }
        let missing = hierarchy.missing();
        if !missing.is_empty() {
            return Err(Error::NoControllers(missing));
        }
        if hierarchy.directory("pids", "/").is_none() {
            log::warn!("this machine has no cgroup controller pids: podPidsLimit is not enforced");
        }
        let systemd = Systemd::new(hierarchy.version());
        Ok(Manager(Some(Inner::new(config, hierarchy, systemd))))
    }

    #[cfg(test)]
    pub(super) fn unchecked(config: &Cgroup, hierarchy: Hierarchy, busctl: &str) -> Manager {
        let systemd = Systemd { busctl: busctl.into(), version: hierarchy.version() };
        Manager(Some(Inner::new(config, hierarchy, systemd)))
    }

    /// Makes the cgroup above all pods and those of the QoS classes, and writes what they are held
    /// to: at the start, and every now and then, should somebody have changed them.
    ///
    /// # Errors
    /// When one can't be made; or when all are there, but one could not be held to its values, as
    /// when pods use more memory than they are to have together. To be tried again.
    pub fn ensure_qos(&self, all_pods: &Values, totals: &Totals, policy: &Policy) -> Result<()> {
        let Some(inner) = &self.0 else { return Ok(()) };
        inner.ensure(&inner.top, all_pods)?;
        for class in [QosClass::Burstable, QosClass::BestEffort] {
            inner.ensure(&inner.class(class), &Values::of_class(class, totals, policy))?;
        }
        self.update_qos(totals, policy)?;
        inner.write(&inner.top, all_pods)
    }

    /// Writes what depends on the pods that there are: when pods have come or gone.
    ///
    /// # Errors
    /// When it can't be written; to be tried again.
    pub fn update_qos(&self, totals: &Totals, policy: &Policy) -> Result<()> {
        let Some(inner) = &self.0 else { return Ok(()) };
        for class in [QosClass::Burstable, QosClass::BestEffort] {
            inner.write(&inner.class(class), &Values::of_class(class, totals, policy))?;
        }
        inner.write(&inner.top, &Values::protected(totals, policy))
    }

    /// Makes the pod's cgroup with its values, before its sandbox is. One that is there is left as it
    /// is. Returns the `cgroup_parent` that the runtime is to be told.
    ///
    /// # Errors
    /// When it can't be made, or doesn't take its values; then it isn't there.
    pub fn ensure_pod(&self, pod: &Pod, values: &Values) -> Result<String> {
        let Some(inner) = &self.0 else { return Ok(String::new()) };
        let name = inner.pod(pod);
        if !inner.exists(&name) {
            let made = inner.ensure(&name, values).and_then(|()| inner.write(&name, values));
            if let Err(e) = made {
                // Else it would count as there the next time, unlimited.
                if let Err(e) = inner.remove(&name) {
                    log::warn!("{}: {e}", pod.name);
                }
                return Err(e);
            }
        }
        Ok(name.cgroup_parent(inner.driver))
    }

    /// What [`Manager::ensure_pod`] returns, for a pod whose cgroup was made before.
    pub fn cgroup_parent(&self, pod: &Pod) -> String {
        self.0.as_ref().map_or(String::new(), |inner| inner.pod(pod).cgroup_parent(inner.driver))
    }

    /// Whether the pod's cgroup is there. Without cgroups for QoS classes none is missed.
    pub fn exists(&self, uid: &PodUid) -> bool {
        self.0.as_ref().is_none_or(|inner| inner.places(uid).any(|name| inner.exists(&name)))
    }

    /// Writes the pod's values: when its resources have changed in place.
    ///
    /// # Errors
    /// When it doesn't take them; memory can't be limited to less than is used of it.
    pub fn update_pod(&self, pod: &Pod, values: &Values) -> Result<()> {
        let Some(inner) = &self.0 else { return Ok(()) };
        let name = inner.pod(pod);
        if inner.driver == CgroupDriver::Systemd {
            inner.systemd.set(&name.slice(), values)?;
        }
        inner.write(&name, values)
    }

    /// Kills what is left in the pod's cgroup and removes it, when its containers and sandboxes have
    /// ended. Takes up to some seconds when processes don't end. That it isn't there is no error.
    ///
    /// # Errors
    /// When it is still there; to be tried again.
    pub fn remove_pod(&self, uid: &PodUid) -> Result<()> {
        let Some(inner) = &self.0 else { return Ok(()) };
        inner.places(uid).try_for_each(|name| inner.remove(&name))
    }

    /// The pods that have a cgroup, known or not.
    ///
    /// # Errors
    /// When the cgroups can't be read.
    pub fn pods(&self) -> Result<BTreeSet<PodUid>> {
        let Some(inner) = &self.0 else { return Ok(BTreeSet::new()) };
        let mut all = BTreeSet::new();
        for parent in inner.parents() {
            let names = inner.tree.children(&parent.path(inner.driver))?;
            all.extend(names.iter().filter_map(|name| pod_of(name, inner.driver)));
        }
        Ok(all)
    }

    /// Holds a cgroup that others than pods are in to its values (`kubeReservedCgroup`,
    /// `systemReservedCgroup`).
    ///
    /// # Errors
    /// When it isn't there or doesn't take them.
    pub fn enforce(&self, cgroup: &str, values: &Values) -> Result<()> {
        let Some(inner) = &self.0 else { return Ok(()) };
        // As it stands there; or a slice by its name alone.
        let candidates = [cgroup.to_owned(), Name::parse(cgroup, inner.driver).path(inner.driver)];
        match candidates.iter().find(|path| inner.tree.exists(path)) {
            Some(path) => inner.tree.write(path, values),
            None => Err(Error::NotThere(cgroup.to_owned())),
        }
    }

    /// What all pods use together; `None` when there is no such cgroup.
    pub fn all_pods_stats(&self) -> Option<Stats> {
        let inner = self.0.as_ref()?;
        stats::read(&inner.tree.hierarchy, &inner.top.path(inner.driver))
    }

    /// The path of the pod's cgroup, from the root of all; `None` where pods have none.
    pub fn pod_cgroup(&self, pod: &Pod) -> Option<String> {
        let inner = self.0.as_ref()?;
        Some(inner.pod(pod).path(inner.driver))
    }

    /// A process of the pod's sandbox, by the runtime's id of that: for what all of the pod have in
    /// common, like the network.
    pub fn sandbox_process(&self, pod: &Pod, id: &str) -> Option<u32> {
        let inner = self.0.as_ref()?;
        let parent = inner.pod(pod).path(inner.driver);
        let names = inner.tree.children(&parent).ok()?;
        let name = names.iter().find(|name| name.contains(id))?;
        inner.tree.process(&format!("{parent}/{name}"))
    }

    pub fn pod_stats(&self, pod: &Pod) -> Option<Stats> {
        let inner = self.0.as_ref()?;
        stats::read(&inner.tree.hierarchy, &inner.pod(pod).path(inner.driver))
    }

    /// What one container uses; `id` is the runtime's.
    pub fn container_stats(&self, pod: &Pod, id: &str) -> Option<Stats> {
        let inner = self.0.as_ref()?;
        let parent = inner.pod(pod).path(inner.driver);
        // With systemd there is something of the runtime's own around the id.
        let name = match inner.driver {
            CgroupDriver::Cgroupfs => id.to_owned(),
            CgroupDriver::Systemd => inner.tree.children(&parent).ok()?.into_iter().find(|name| name.contains(id))?,
        };
        stats::read(&inner.tree.hierarchy, &format!("{parent}/{name}"))
    }
}

impl Inner {
    fn new(config: &Cgroup, hierarchy: Hierarchy, systemd: Systemd) -> Inner {
        let top = Name::parse(&config.root, config.driver).child("kubepods");
        Inner { tree: Tree { hierarchy }, top, driver: config.driver, systemd }
    }

    /// What the pods of a class are in.
    fn class(&self, class: QosClass) -> Name {
        match class {
            QosClass::Guaranteed => self.top.clone(),
            QosClass::Burstable | QosClass::BestEffort => self.top.child(&class.as_str().to_lowercase()),
        }
    }

    fn pod(&self, pod: &Pod) -> Name {
        self.class(QosClass::of(&pod.spec)).pod(&pod.uid)
    }

    fn parents(&self) -> [Name; 3] {
        [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort].map(|class| self.class(class))
    }

    /// Where the cgroup of a pod may be whose class isn't known.
    fn places(&self, uid: &PodUid) -> impl Iterator<Item = Name> {
        self.parents().map(|parent| parent.pod(uid)).into_iter()
    }

    fn exists(&self, name: &Name) -> bool {
        self.tree.exists(&name.path(self.driver))
    }

    fn write(&self, name: &Name, values: &Values) -> Result<()> {
        self.tree.write(&name.path(self.driver), values)
    }

    /// Has it made where it isn't there; `values` are for systemd to know.
    fn ensure(&self, name: &Name, values: &Values) -> Result<()> {
        if self.driver == CgroupDriver::Systemd {
            for above in name.lineage().filter(|above| !self.is_anywhere(above)) {
                let own = if above == *name { values } else { &Values::default() };
                self.systemd.start(&above.slice(), own)?;
                self.wait_for(&above);
            }
        }
        self.tree.create(&name.path(self.driver))
    }

    fn remove(&self, name: &Name) -> Result<()> {
        if self.driver == CgroupDriver::Systemd && self.is_anywhere(name) {
            // Nothing is waited for: what of it systemd hasn't removed yet is removed here.
            if let Err(e) = self.systemd.stop(&name.slice()) {
                log::warn!("{e}; removing its cgroups all the same");
            }
        }
        self.tree.remove(&name.path(self.driver))
    }

    /// Systemd says that it will, and does so a little later.
    fn wait_for(&self, name: &Name) {
        let deadline = Instant::now() + SYSTEMD;
        while !self.is_anywhere(name) && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
        }
    }

    /// Systemd makes a slice's cgroup in the trees that it manages, not in all that count.
    fn is_anywhere(&self, name: &Name) -> bool {
        let path = name.path(self.driver);
        self.tree.hierarchy.mounts().iter().any(|mount| super::hierarchy::join(&mount.point, &path).is_dir())
    }
}
