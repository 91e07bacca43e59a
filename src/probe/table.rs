//! All probes of all pods: which there are, which container each is bound to, and which is due
//! when. Pure: time is passed in, and attempts are made by others.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handler::Handler;
use super::metrics::{Counts, Histogram, LATENESS_BUCKETS, ProbeMetrics, Snapshot};
use super::worker::{Beginning, Event, Outcome, Timing, Worker};
use super::{Kind, ProbeResult, Running, Verdicts};
use crate::cri::ContainerId;
use crate::pod::{Pod, PodUid, core, is_sidecar};

type ProbeId = u64;

pub struct Table {
    /// When the agent was started.
    start: Instant,
    pods: HashMap<PodUid, Entry>,
    probes: HashMap<ProbeId, Probe>,
    next_id: ProbeId,
    /// The bound probes that wait for their time.
    queue: BTreeSet<(Instant, ProbeId)>,
    lateness: Histogram,
}

struct Entry {
    pod: Arc<Pod>,
    running: Vec<Running>,
    /// By container, and then in the order of `Kind`.
    probes: Vec<ProbeId>,
    /// The pod ends: only its readiness is of interest.
    ending: bool,
}

struct Probe {
    pod: Arc<Pod>,
    container: Arc<str>,
    kind: Kind,
    timing: Timing,
    handler: Arc<Handler>,
    counts: Counts,
    bound: Option<Bound>,
}

/// A container that is being probed.
struct Bound {
    id: ContainerId,
    ip: Option<IpAddr>,
    worker: Worker,
    /// Its place in the queue.
    queued: Option<Instant>,
    /// The last attempt took all the time that it had.
    hung: bool,
}

/// An attempt that is to be made now.
#[derive(Debug)]
pub struct Attempt {
    probe: ProbeId,
    pub id: ContainerId,
    pub handler: Arc<Handler>,
    pub ip: Option<IpAddr>,
    pub timeout: Duration,
    pub due: Instant,
    /// The one before took all its time.
    pub hung: bool,
}

/// How an attempt went.
#[derive(Debug)]
pub struct Ended {
    pub outcome: Outcome,
    pub began: Instant,
    pub ended: Instant,
}

impl Table {
    pub fn new(start: Instant) -> Table {
        Table {
            start,
            pods: HashMap::new(),
            probes: HashMap::new(),
            next_id: 0,
            queue: BTreeSet::new(),
            lateness: Histogram::new(&LATENESS_BUCKETS),
        }
    }

    /// Brings the pod's probes to its spec, and binds them to the containers that run. `before` is the
    /// pod's status as it was.
    pub fn update(&mut self, pod: &Arc<Pod>, running: &[Running], before: Option<&core::PodStatus>, now: Instant) {
        if self.pods.get(&pod.uid).is_some_and(|e| Arc::ptr_eq(&e.pod, pod) && same(&e.running, running)) {
            return;
        }
        let mut entry = self.pods.remove(&pod.uid).unwrap_or_else(|| Entry {
            pod: pod.clone(),
            running: Vec::new(),
            probes: Vec::new(),
            ending: false,
        });
        if entry.probes.is_empty() || !Arc::ptr_eq(&entry.pod, pod) {
            entry.probes = self.respec(&entry.probes, pod);
            entry.pod = pod.clone();
        }
        entry.ending |= pod.meta.deletion_timestamp.is_some();
        entry.running = running.to_vec();
        self.bind(&entry, before, now);
        if entry.ending {
            self.quiet(&entry, now);
        }
        self.pods.insert(pod.uid.clone(), entry);
    }

    /// The probes that the spec has: those of `old` that it still has, and new ones.
    fn respec(&mut self, old: &[ProbeId], pod: &Arc<Pod>) -> Vec<ProbeId> {
        let mut old = old.to_vec();
        let sidecars = pod.init_containers().iter().filter(|c| is_sidecar(c));
        let mut ids = Vec::new();
        for container in sidecars.chain(pod.containers()) {
            for kind in Kind::ALL {
                let Some(spec) = spec(container, kind) else { continue };
                let (timing, handler) = (Timing::of(spec), Handler::of(spec, container));
                let is_that = |p: &Probe| {
                    *p.container == *container.name && p.kind == kind && p.timing == timing && *p.handler == handler
                };
                let kept = old.iter().position(|id| self.probes.get(id).is_some_and(is_that));
                if let Some(id) = kept.map(|i| old.swap_remove(i)) {
                    self.probes.entry(id).and_modify(|probe| probe.pod = pod.clone());
                    ids.push(id);
                    continue;
                }
                let (handler, counts) = (Arc::new(handler), Counts::default());
                let container = container.name.as_str().into();
                let probe = Probe { pod: pod.clone(), container, kind, timing, handler, counts, bound: None };
                self.next_id += 1;
                self.probes.insert(self.next_id, probe);
                ids.push(self.next_id);
            }
        }
        old.into_iter().for_each(|id| self.forget(id));
        ids
    }

    fn bind(&mut self, entry: &Entry, before: Option<&core::PodStatus>, now: Instant) {
        let local = entry.pod.host_network().then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        // The startup probe before, if it has not passed: those of one container follow each other.
        let mut gate: Option<Arc<str>> = None;
        for id in &entry.probes {
            let Some(probe) = self.probes.get(id) else { continue };
            let running = entry.running.iter().find(|r| r.name == probe.container);
            let stays = probe.bound.as_ref().zip(running).is_some_and(|(bound, running)| bound.id == running.id);
            let gated = gate.as_ref() == Some(&probe.container);
            let bound = running.filter(|_| !stays).map(|running| self.bound(*id, probe, running, (gated, before), now));
            if !stays {
                self.unbind(*id);
            }
            let Some(probe) = self.probes.get_mut(id) else { continue };
            if let (Some(bound), _) | (None, Some(bound)) = (bound, probe.bound.take()) {
                let passed = bound.worker.result() == Some(true);
                if probe.kind == Kind::Startup && !passed {
                    gate = Some(probe.container.clone());
                }
                probe.bound = Some(Bound { ip: running.and_then(|r| r.pod_ip).or(local), ..bound });
            }
            self.requeue(*id);
        }
    }

    fn bound(
        &self,
        id: ProbeId,
        probe: &Probe,
        running: &Running,
        (gated, before): (bool, Option<&core::PodStatus>),
        now: Instant,
    ) -> Bound {
        let before = before.and_then(|status| status_of(status, &running.id));
        let ran_before = running.started_seen < self.start;
        let beginning = Beginning {
            since: running.started_seen,
            gated,
            known: match probe.kind {
                Kind::Readiness => before.filter(|c| c.ready).map(|_| true),
                Kind::Startup => before.filter(|c| c.started == Some(true)).map(|_| true),
                Kind::Liveness => None,
            },
            jitter: if ran_before { jitter(id, probe) } else { Duration::ZERO },
        };
        Bound {
            id: running.id.clone(),
            ip: None,
            worker: Worker::new(probe.kind, probe.timing, beginning, now),
            queued: None,
            hung: false,
        }
    }

    /// The pod ends: its startup and liveness probes stop, its readiness goes on being told.
    pub fn stop_liveness_and_startup(&mut self, uid: &PodUid, now: Instant) {
        if let Some(mut entry) = self.pods.remove(uid) {
            entry.ending = true;
            self.quiet(&entry, now);
            self.pods.insert(uid.clone(), entry);
        }
    }

    fn quiet(&mut self, entry: &Entry, now: Instant) {
        for id in &entry.probes {
            self.tell(*id, Event::Stop, now);
        }
    }

    /// The pod is gone.
    pub fn remove(&mut self, uid: &PodUid) {
        for id in self.pods.remove(uid).map(|e| e.probes).unwrap_or_default() {
            self.forget(id);
        }
    }

    pub fn verdicts(&self, uid: &PodUid) -> Verdicts {
        let mut verdicts = Verdicts::default();
        let probes = self.pods.get(uid).into_iter().flat_map(|e| &e.probes).filter_map(|id| self.probes.get(id));
        for (probe, bound) in probes.filter_map(|p| Some((p, p.bound.as_ref()?))) {
            let verdict = verdicts.verdicts.entry(bound.id.clone()).or_default();
            let result = bound.worker.result();
            let good = result == Some(true);
            match probe.kind {
                Kind::Startup => verdict.startup = result,
                Kind::Liveness => verdict.liveness = result,
                Kind::Readiness => {}
            }
            match probe.kind {
                Kind::Startup if !good => _ = verdicts.not_started.insert(bound.id.clone()),
                Kind::Readiness if !good => _ = verdicts.not_ready.insert(bound.id.clone()),
                _ => {}
            }
        }
        verdicts
    }

    /// When the next probe is due.
    pub fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(due, _)| *due)
    }

    /// The attempts that are due. Each is to be reported by [`Table::ended`].
    pub fn take_due(&mut self, now: Instant) -> Vec<Attempt> {
        let mut attempts = Vec::new();
        while let Some((due, id)) = self.queue.first().copied().filter(|(due, _)| *due <= now) {
            self.queue.pop_first();
            let Some(probe) = self.probes.get_mut(&id) else { continue };
            let Some(bound) = &mut probe.bound else { continue };
            bound.queued = None;
            if bound.worker.handle(Event::Due, now).attempt {
                attempts.push(Attempt {
                    probe: id,
                    id: bound.id.clone(),
                    handler: probe.handler.clone(),
                    ip: bound.ip,
                    timeout: probe.timing.timeout,
                    due,
                    hung: bound.hung,
                });
            }
        }
        attempts
    }

    /// An attempt has ended. Returns what is to be told of it.
    pub fn ended(&mut self, attempt: &Attempt, end: Ended) -> Option<ProbeResult> {
        self.lateness.observe(end.began.saturating_duration_since(attempt.due));
        let probe = self.probes.get_mut(&attempt.probe)?;
        // It may have been of the container before.
        let bound = probe.bound.as_mut().filter(|b| b.id == attempt.id)?;
        let took = end.ended.saturating_duration_since(end.began);
        probe.counts.count(&end.outcome, took);
        bound.hung = took >= probe.timing.timeout;
        let actions = bound.worker.handle(Event::Ended(end.outcome), end.ended);
        let result = ProbeResult {
            uid: probe.pod.uid.clone(),
            pod: probe.pod.name.clone(),
            container: probe.container.clone(),
            id: attempt.id.clone(),
            kind: probe.kind,
            change: actions.change,
            tell: actions.tell,
        };
        self.requeue(attempt.probe);
        if result.kind == Kind::Startup && result.change == Some(true) {
            for id in self.pods.get(&result.uid).map(|e| e.probes.clone()).unwrap_or_default() {
                if self.probes.get(&id).is_some_and(|p| p.container == result.container) {
                    self.tell(id, Event::Started, end.ended);
                }
            }
        }
        (result.change.is_some() || result.tell.is_some()).then_some(result)
    }

    pub fn snapshot(&self) -> Snapshot {
        let probes = self.probes.values().map(|p| ProbeMetrics {
            kind: p.kind,
            container: p.container.clone(),
            pod: p.pod.name.clone(),
            uid: p.pod.uid.clone(),
            successful: p.counts.successful,
            failed: p.counts.failed,
            unknown: p.counts.unknown,
            durations: p.counts.durations.clone(),
        });
        Snapshot { probes: probes.collect(), lateness: self.lateness.clone() }
    }

    fn tell(&mut self, id: ProbeId, event: Event, now: Instant) {
        if let Some(bound) = self.probes.get_mut(&id).and_then(|p| p.bound.as_mut()) {
            bound.worker.handle(event, now);
            self.requeue(id);
        }
    }

    /// Puts a probe to its place in the queue.
    fn requeue(&mut self, id: ProbeId) {
        let Some(bound) = self.probes.get_mut(&id).and_then(|p| p.bound.as_mut()) else { return };
        let due = bound.worker.due();
        if due == bound.queued {
            return;
        }
        if let Some(old) = std::mem::replace(&mut bound.queued, due) {
            self.queue.remove(&(old, id));
        }
        if let Some(due) = due {
            self.queue.insert((due, id));
        }
    }

    fn unbind(&mut self, id: ProbeId) {
        let bound = self.probes.get_mut(&id).and_then(|p| p.bound.take());
        if let Some(due) = bound.and_then(|b| b.queued) {
            self.queue.remove(&(due, id));
        }
    }

    fn forget(&mut self, id: ProbeId) {
        self.unbind(id);
        self.probes.remove(&id);
    }
}

fn spec(container: &core::Container, kind: Kind) -> Option<&core::Probe> {
    match kind {
        Kind::Startup => container.startup_probe.as_ref(),
        Kind::Readiness => container.readiness_probe.as_ref(),
        Kind::Liveness => container.liveness_probe.as_ref(),
    }
}

/// What a status says of the container with this id.
fn status_of<'s>(status: &'s core::PodStatus, id: &ContainerId) -> Option<&'s core::ContainerStatus> {
    let mut all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    all.find(|c| c.container_id.as_deref().and_then(|id| id.split_once("://")).is_some_and(|(_, c)| c == id.as_str()))
}

/// Nothing is to be bound anew.
fn same(old: &[Running], new: &[Running]) -> bool {
    let same = |(a, b): (&Running, &Running)| a.name == b.name && a.id == b.id && a.pod_ip == b.pod_ip;
    old.len() == new.len() && old.iter().zip(new).all(same)
}

/// Less than the period, and another one for each probe, so that after the start of the agent they
/// don't all begin at once.
fn jitter(id: ProbeId, probe: &Probe) -> Duration {
    let mut hasher = DefaultHasher::new();
    (id, &probe.container, probe.kind, &probe.pod.uid).hash(&mut hasher);
    let permille = u32::try_from(hasher.finish() % 1000).unwrap_or_default();
    probe.timing.period * permille / 1000
}

#[cfg(test)]
mod tests;
