//! Keeps the node known to the API server: registers it, reports its status, renews its lease
//! (pkg/kubelet/kubelet_node_status.go). One thread does it all; without a server nothing of it runs.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::Receiver;
use jiff::Timestamp;
use serde_json::Value;

use super::conditions::{Pressure, conditions, hindrances};
use super::lease::{self, Terms};
use super::look::Eye;
use super::object::{Object, status_patch};
use super::pressure::{Pressures, levels};
use super::report::Reported;
use super::seen::Seen;
use crate::config::Config;
use crate::cri::Cri;
use crate::kube::retry::{Retry, chance};
use crate::kube::{self, Client, Patch, path};
use crate::pleg::Health;
use crate::shutdown::{self, Flag};

/// While the node isn't ready it is looked so often whether it has become so.
const NOT_READY: Duration = Duration::from_secs(1);
/// After a failure the server is asked again within this time.
const LONGEST_RETRY: Duration = Duration::from_secs(7);
/// How often a renewal of the lease is tried anew at once, when somebody else changed it.
const CONFLICTS: usize = 5;

/// What the keeper is made from.
pub struct Parts {
    /// Its own: others' requests must not stand in its way. Gives up early enough for the lease.
    pub client: Client,
    pub object: Object,
    pub cri: Arc<dyn Cri>,
    pub health: Arc<Health>,
    pub seen: Arc<Seen>,
    /// The node is shutting down; and word of it.
    pub shutdown: Arc<Flag>,
    pub wake: Receiver<()>,
}

struct Settings {
    register: bool,
    root_dir: PathBuf,
    ips: Vec<IpAddr>,
    update_every: Duration,
    report_every: Duration,
}

pub struct Keeper {
    client: Client,
    object: Object,
    health: Arc<Health>,
    seen: Arc<Seen>,
    shutdown: Arc<Flag>,
    wake: Receiver<()>,
    eye: Eye,
    settings: Settings,
    terms: Terms,
    pressures: Pressures,
    reported: Reported,
    /// Whether it was ready when that was reported last.
    ready: Option<bool>,
    lease: Option<Value>,
    /// The UID of the node whose labels have been put right.
    put_right: String,
    status_task: Task,
    lease_task: Task,
}

/// Something that is done again and again.
struct Task {
    what: &'static str,
    due: Instant,
    retry: Retry,
    /// Why it failed the last time.
    failure: Option<String>,
}

impl Task {
    fn new(what: &'static str) -> Task {
        Task { what, due: Instant::now(), retry: Retry::default(), failure: None }
    }

    /// It was done; it is due again after `period`, or sooner when it failed. Says so when that is news.
    fn done(&mut self, result: &Result<(), kube::Error>, period: Duration, now: Instant) {
        let wait = match result {
            Ok(()) => {
                if self.failure.take().is_some() {
                    log::info!("{}: it succeeds again", self.what);
                }
                self.retry.succeeds();
                // The nodes of a cluster are not to come all at the same time.
                period.mul_f64(1.0 - 0.04 * chance())
            }
            Err(e) => {
                let why = e.to_string();
                if self.failure.as_ref() != Some(&why) {
                    log::warn!("{}: {why}", self.what);
                }
                self.failure = Some(why);
                self.retry.fails(e.retry_after(), chance()).min(LONGEST_RETRY.min(period))
            }
        };
        self.due = now + wait;
    }
}

impl Keeper {
    pub fn new(config: &Config, parts: Parts) -> Keeper {
        let Parts { client, object, cri, health, seen, shutdown, wake } = parts;
        let node = &config.node;
        Keeper {
            client,
            health,
            seen,
            shutdown,
            wake,
            eye: Eye::new(cri, node.status_max_images),
            settings: Settings {
                register: node.register,
                root_dir: config.root_dir.clone(),
                ips: config.node_ips.clone(),
                update_every: node.status_update_frequency,
                report_every: node.status_report_frequency,
            },
            terms: Terms { node: object.name.clone(), duration: node.lease_duration },
            object,
            pressures: Pressures::new(&config.eviction),
            reported: Reported::default(),
            ready: None,
            lease: None,
            put_right: String::new(),
            status_task: Task::new("reporting the node's status"),
            lease_task: Task::new("renewing the node's lease"),
        }
    }

    /// For how long a request may take, so that one that hangs costs the node no renewal too many.
    pub fn request_timeout(config: &Config) -> Duration {
        (config.node.lease_duration / 4).min(config.node.status_update_frequency).max(Duration::from_secs(1))
    }

    /// Runs as long as the agent does.
    pub fn run(mut self) {
        loop {
            self.status(Instant::now());
            let now = Instant::now();
            if self.lease_task.due <= now {
                let result = self.renew();
                let period = self.terms.period();
                self.lease_task.done(&result, period, Instant::now());
            }
            let mut next = self.status_task.due.min(self.lease_task.due);
            if self.ready != Some(true) {
                next = next.min(now + NOT_READY);
            }
            // What is shared with the loop holds the sender.
            if self.wake.recv_timeout(next.saturating_duration_since(Instant::now())).is_ok() {
                self.status_task.due = Instant::now();
            }
        }
    }

    /// Looks how the node is, and tells the server when that is due.
    fn status(&mut self, now: Instant) {
        let due = self.status_task.due <= now;
        // Between two reports only that it has become ready is worth one.
        if !due && self.ready == Some(true) {
            return;
        }
        let cidr = self.seen.known().map(|known| known.pod_cidrs.join(",")).unwrap_or_default();
        self.eye.look(&cidr, now);
        let told = self.eye.at.map(|at| (at, self.eye.software.status.conditions.as_slice()));
        let now = Instant::now();
        let mut hindrances = hindrances(self.health.check(now), told, now);
        hindrances.extend(self.shutdown.is_set().then(|| shutdown::NODE_MESSAGE.to_owned()));
        let has_become_ready = hindrances.is_empty() && self.ready == Some(false);
        if due || has_become_ready && self.status_task.failure.is_none() {
            let pressure = self.pressures.observe(&levels(&self.settings.root_dir, &self.eye.image_dirs), now);
            let result = self.report(&hindrances, pressure, now);
            self.status_task.done(&result, self.settings.update_every, Instant::now());
        }
    }

    fn report(&mut self, hindrances: &[String], pressure: Pressure, now: Instant) -> Result<(), kube::Error> {
        let there = match self.client.get(&self.path(&[])) {
            Err(e) if e.is_not_found() && self.settings.register => self.register(hindrances, pressure)?,
            there => there?,
        };
        let there = self.put_right(there)?;
        let wanted = self.wanted(hindrances, pressure, &there);
        if self.reported.is_due(&wanted, &there, self.settings.report_every, now) {
            let patch = status_patch(&wanted, &there);
            let answered: Value = self.client.patch(&self.path(&["status"]), Patch::Strategic, &patch)?;
            self.reported.sent(&wanted, &answered, now);
        }
        let ready = hindrances.is_empty();
        if self.ready.replace(ready) != Some(ready) {
            match ready {
                true => log::info!("the node is ready"),
                false => log::warn!("the node is not ready: {}", hindrances.join(", ")),
            }
        }
        Ok(())
    }

    fn wanted(&self, hindrances: &[String], pressure: Pressure, there: &Value) -> Value {
        let before = there["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let conditions = conditions(hindrances, pressure, before, Timestamp::now());
        self.object.status(&super::addresses(&self.settings.ips), &self.eye.software, &conditions)
    }

    /// Makes the node's object, or puts right the one that has been made meanwhile.
    fn register(&mut self, hindrances: &[String], pressure: Pressure) -> Result<Value, kube::Error> {
        let node = self.object.shown(self.wanted(hindrances, pressure, &Value::Null));
        match self.client.create(&path(&["api", "v1", "nodes"]), &node) {
            Err(e) if e.is_already_exists() => self.client.get(&self.path(&[])),
            made => {
                let made = made?;
                log::info!("node {} is registered", self.object.name);
                Ok(made)
            }
        }
    }

    /// Has the labels of the node say what it is, once for each node that there is by this name.
    fn put_right(&mut self, there: Value) -> Result<Value, kube::Error> {
        let known = self.seen.note(&there);
        if !self.settings.register || self.put_right == known.uid {
            return Ok(there);
        }
        let there = match self.object.reconcile(&there) {
            // By the subresource, as the kubelet does it: that is what a node may change.
            Some(patch) => self.client.patch(&self.path(&["status"]), Patch::Strategic, &patch)?,
            None => there,
        };
        self.put_right = known.uid.clone();
        self.seen.note(&there);
        Ok(there)
    }

    fn renew(&mut self) -> Result<(), kube::Error> {
        // The lease is the node's, and goes with it: without one there is no lease.
        let Some(node) = self.seen.known() else { return Ok(()) };
        let all = ["apis", "coordination.k8s.io", "v1", "namespaces", lease::NAMESPACE, "leases"];
        let one = path(&[&all[..], &[self.object.name.as_str()]].concat());
        let mut conflicts = 0;
        loop {
            let seen = match self.lease.take() {
                Some(lease) => Some(lease),
                None => match self.client.get(&one) {
                    Err(e) if e.is_not_found() => None,
                    there => Some(there?),
                },
            };
            let now = Timestamp::now();
            let result: Result<Value, _> = match seen {
                Some(lease) => self.client.update(&one, &self.terms.renewed(lease, &node.uid, now)),
                None => self.client.create(&path(&all), &self.terms.fresh(&node.uid, now)),
            };
            match result {
                Ok(lease) => {
                    self.lease = Some(lease);
                    return Ok(());
                }
                // Somebody was faster, or took it away: with what there is now it may succeed.
                Err(e) if conflicts < CONFLICTS && (e.is_conflict() || e.is_not_found() || e.is_already_exists()) => {
                    conflicts += 1;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Of the node, or a subresource of it.
    fn path(&self, more: &[&str]) -> String {
        path(&[&["api", "v1", "nodes", self.object.name.as_str()], more].concat())
    }
}
