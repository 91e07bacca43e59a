//! One sync of a pod that is wanted: look, tell its status, plan, act.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::kill::Victim;
use super::memory::Memory;
use super::plan::{self, Kill, Plan, Why};
use super::start::{Ground, restarts_at_once};
use super::terminate::{Stopped, Target};
use super::{Error, Runtime, order, paths, record};
use crate::cgroup::Values;
use crate::cri::{PodRef, Sandbox, SandboxId, SandboxStatus, UnixNanos};
use crate::disk;
use crate::local;
use crate::metrics::METRICS;
use crate::pleg::{self, Observed};
use crate::pod::{Pod, PodUid, core};
use crate::probe::Running;
use crate::status::{self, FailedBy, PodFailure, events};
use crate::volume::{self, Place};

/// How often a sync looks again at what it did itself, before other pods have their turn.
const PASSES: usize = 3;
/// How long to wait after a status could not be kept on disk.
const KEEP_RETRY: Duration = Duration::from_secs(60);
/// How often it is looked, though nobody said so, whether it is known by now what a pod refers to.
const UNKNOWN_RETRY: Duration = Duration::from_secs(10);

/// When the pod is to be synced again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At once: something was done, and its effect is to be seen.
    Again,
    /// After so long, if nothing happens before.
    After(Duration),
    /// When something happens.
    Rest,
    /// Never: all its containers have ended for good.
    Terminal,
}

impl Next {
    /// This, or after `time` if that is sooner.
    pub(super) fn or_after(self, time: Duration) -> Next {
        match self {
            Next::Rest => Next::After(time),
            Next::After(other) => Next::After(other.min(time)),
            Next::Again | Next::Terminal => self,
        }
    }

    /// The sooner of the two.
    pub(super) fn and(self, other: Next) -> Next {
        match other {
            Next::After(time) => self.or_after(time),
            Next::Rest => self,
            Next::Again | Next::Terminal => other,
        }
    }
}

#[derive(Debug)]
pub struct Synced {
    pub next: Next,
    pub status: core::PodStatus,
    /// What went wrong, while the rest was done.
    pub error: Option<Error>,
}

impl Runtime {
    /// One sync. `fresh` is when something was last heard of the pod: what was observed before is
    /// too old. `before` is its status as it was; without one the pod is only looked at.
    ///
    /// # Errors
    /// When the pod could not be looked at.
    pub fn sync(
        &self,
        pod: &Arc<Pod>,
        memory: &mut Memory,
        fresh: Option<Instant>,
        before: Option<&core::PodStatus>,
    ) -> Result<Synced, Error> {
        let mut synced = self.pass(pod, memory, fresh, before)?;
        for _ in 1..PASSES {
            if before.is_none() || synced.next != Next::Again || synced.error.is_some() {
                break;
            }
            synced = self.pass(pod, memory, None, Some(&synced.status))?;
        }
        Ok(synced)
    }

    fn pass(
        &self,
        pod: &Arc<Pod>,
        memory: &mut Memory,
        fresh: Option<Instant>,
        before: Option<&core::PodStatus>,
    ) -> Result<Synced, Error> {
        if let Some(ended) = before.filter(|status| status::is_terminal(status)) {
            // Its end is final, also when the runtime knows nothing of it any more.
            return Ok(Synced { next: Next::Terminal, status: ended.clone(), error: None });
        }
        let observed = self.observe(&pod.uid, memory, fresh)?;
        forget(memory, &observed);
        order::take(pod, memory, &observed);
        self.read_messages(&pod.uid, memory, &observed);
        self.probes.update(pod, &self.running(pod, memory, &observed), before);
        let deadline = self.deadline(pod, memory, before);
        let status = self.status(pod, memory, &observed, before);
        if status::is_terminal(&status) {
            // Before anybody is told: it must not run again after a power cut.
            self.keep_status(pod, memory, &status);
            return Ok(Synced { next: Next::Terminal, status, error: None });
        }
        if before.is_none() {
            // It is shown before anything is begun, which can take long.
            return Ok(Synced { next: Next::Again, status, error: None });
        }
        let (next, error) = match self.act(pod, memory, &observed) {
            Ok((next, error)) => (next.and(deadline), error),
            Err(e) => (Next::Rest, Some(e)),
        };
        match &error {
            Some(Error::Volume { .. }) => self.tell(pod, memory, "FailedMount", error.as_ref()),
            Some(Error::Config(_)) => self.tell(pod, memory, "FailedCreatePodSandBox", error.as_ref()),
            _ => {}
        }
        self.clean(pod, memory, &observed);
        let status = self.status(pod, memory, &observed, Some(&status));
        let next = match next {
            // It is looked at again at once, and may well be another by then.
            Next::Again => next,
            _ => next.and(self.keep_status(pod, memory, &status)),
        };
        Ok(Synced { next, status, error })
    }

    /// Fails the pod when it has been active for longer than it may be. Returns when to look again.
    fn deadline(&self, pod: &Pod, memory: &mut Memory, before: Option<&core::PodStatus>) -> Next {
        let Some(limit) = pod.spec.active_deadline_seconds else { return Next::Rest };
        let limit = Duration::from_secs(u64::try_from(limit).unwrap_or(0));
        let now = Instant::now();
        let since = *memory.active_since.get_or_insert_with(|| {
            let started = before.and_then(|s| s.start_time.as_ref()).map(|start| start.0);
            let active = started.and_then(|start| Duration::try_from(Timestamp::now() - start).ok());
            now.checked_sub(active.unwrap_or_default()).unwrap_or(now)
        });
        let active = now.saturating_duration_since(since);
        if active < limit {
            return Next::After(limit - active);
        }
        if memory.failed.is_none() {
            let message = "Pod was active on the node longer than the specified deadline".to_owned();
            events::record(events::Kind::Normal, &pod.name, "DeadlineExceeded", &message);
            memory.failed = Some(PodFailure { reason: "DeadlineExceeded", message, by: FailedBy::Pod });
        }
        Next::Rest
    }

    /// Keeps the status on disk; a disk that is full costs the pod nothing but that.
    pub(super) fn keep_status(&self, pod: &Pod, memory: &mut Memory, status: &core::PodStatus) -> Next {
        match record::keep_status(&self.node.paths, &pod.uid, &mut memory.kept, status, Instant::now()) {
            Ok(again) => again.map_or(Next::Rest, Next::After),
            // One that has not begun has no place for it, and needs none.
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Next::Rest,
            Err(e) => {
                self.tell(pod, memory, "FailedToKeepStatus", Some(&e));
                Next::After(KEEP_RETRY)
            }
        }
    }

    fn act(&self, pod: &Arc<Pod>, memory: &mut Memory, observed: &Observed) -> Result<(Next, Option<Error>), Error> {
        let verdicts = self.probes.verdicts(&pod.uid).verdicts;
        let facts = plan::Facts {
            pod,
            observed,
            verdicts: &verdicts,
            killed_to_restart: &memory.killed_to_restart,
            ordered: &memory.ordered,
        };
        let plan = plan::plan(&facts);
        let unknown = self.objects.of(pod).known_for(pod).err();
        match plan {
            Plan::Recreate { .. } if unknown.is_some() => waits(unknown),
            Plan::Stop => {
                self.stop(&Target::Known(pod.clone()), memory, observed, None).map(|stopped| (stopped.wait(), None))
            }
            Plan::Recreate { attempt, start } => {
                match self.stop(&Target::Known(pod.clone()), memory, observed, None)? {
                    Stopped::All => {}
                    waits => return Ok((waits.wait(), None)),
                }
                // What the pod's class adds to it must be known before anything is made for it.
                let handler = self.handler(pod)?;
                self.forget_resize(pod, memory)?;
                let volumes = self.prepare(pod, memory)?;
                let sandbox = &self.create_sandbox(pod, memory, attempt, &handler)?;
                Ok(self.start_all(&Ground::new(pod, observed, sandbox, &volumes), memory, &start))
            }
            Plan::Keep { sandbox, mut kill, start } => {
                if let Some(message) = memory.stop_failed.take() {
                    return Err(Error::Start(message));
                }
                let resize = self.resize(pod, memory, observed)?;
                kill.extend(resize.kill);
                let killing = self.kill_some(pod, memory, observed, &kill);
                let killing = resize.again.map_or(killing, |time| killing.or_after(time));
                if unknown.is_some() {
                    // What it has is not made anew from what isn't known.
                    let (next, error) = if start.is_empty() { (Next::Rest, None) } else { waits(unknown)? };
                    return Ok((next.and(killing), error));
                }
                let volumes = self.prepare(pod, memory)?;
                let sandbox = observed.sandboxes.iter().find(|s| s.sandbox.id == sandbox);
                match sandbox {
                    Some(sandbox) if !start.is_empty() => {
                        // What nobody but its record tells of must not run without it.
                        if start.iter().any(|start| matches!(start.which, plan::Which::Ephemeral(_))) {
                            self.keep_record(pod, memory)?;
                        }
                        let ground = Ground::new(pod, observed, sandbox, &volumes);
                        let (next, error) = self.start_all(&ground, memory, &start);
                        Ok((next.and(killing), error))
                    }
                    // Nothing waits for it now.
                    _ => self.keep_record(pod, memory).map(|()| (killing, None)),
                }
            }
        }
    }

    pub(super) fn tell(&self, pod: &Pod, memory: &mut Memory, reason: &str, error: Option<&Error>) {
        let message = error.map(ToString::to_string);
        if let Some(message) = message.as_ref().filter(|_| memory.told != message) {
            events::record(events::Kind::Warning, &pod.name, reason, message);
        }
        memory.told = message;
    }

    pub(super) fn keep_record(&self, pod: &Arc<Pod>, memory: &mut Memory) -> Result<(), Error> {
        // While it is being resized, it is what it was.
        if memory.resizing.is_some() {
            return Ok(());
        }
        if memory.recorded.as_ref().is_none_or(|recorded| !Arc::ptr_eq(recorded, pod)) {
            record::write(&self.node.paths, pod)?;
            memory.recorded = Some(pod.clone());
        }
        Ok(())
    }

    /// The pod as it is now: what is known if it is new enough, else looked at.
    pub(super) fn observe(
        &self,
        uid: &PodUid,
        memory: &Memory,
        fresh: Option<Instant>,
    ) -> Result<Arc<Observed>, Error> {
        if let Some((observed, at)) = self.cache.get(uid) {
            if memory.acted.is_none_or(|acted| acted < at) && fresh.is_none_or(|fresh| fresh <= at) {
                return Ok(observed);
            }
        }
        Ok(pleg::inspect(&*self.cri, &self.cache, uid, Instant::now())?)
    }

    pub(super) fn status(
        &self,
        pod: &Pod,
        memory: &Memory,
        observed: &Observed,
        before: Option<&core::PodStatus>,
    ) -> core::PodStatus {
        let verdicts = self.probes.verdicts(&pod.uid);
        status::generate(&status::Facts {
            pod,
            observed,
            runtime: &self.health.runtime().map_or_else(|| "containerd".to_owned(), |v| v.name),
            waiting: &memory.waiting,
            messages: &memory.messages,
            to_restart: &memory.killed_to_restart,
            failed: memory.failed.as_ref(),
            resources: memory.recorded.as_deref().unwrap_or(pod),
            resize_waits: memory.resizing.as_ref().map(|resizing| resizing.waits.as_deref()),
            not_ready: &verdicts.not_ready,
            not_started: &verdicts.not_started,
            host_ips: &self.node.ips,
            before,
            now: Timestamp::now(),
        })
    }

    /// The containers that run and are to be probed.
    fn running(&self, pod: &Pod, memory: &Memory, observed: &Observed) -> Vec<Running> {
        let sandbox = observed.sandboxes.first().filter(|s| s.sandbox.ready);
        let ips = if pod.host_network() { Some(&self.node.ips) } else { sandbox.map(|s| &s.ips) };
        let pod_ip = ips.and_then(|ips| ips.first()).and_then(|ip| ip.parse().ok());
        let probed = |c: &&core::Container| {
            c.startup_probe.is_some() || c.readiness_probe.is_some() || c.liveness_probe.is_some()
        };
        let newest = pod.all_containers().filter(probed).filter_map(|c| observed.newest(&c.name));
        let now = Instant::now();
        let running = newest.filter(|c| c.is_running()).map(|c| {
            let container = &c.status.container;
            // What ran before the agent has no time but that of the wall clock.
            let before = || {
                let started = Timestamp::from_nanosecond(c.status.started_at.0.into()).unwrap_or_default();
                let age = Duration::try_from(Timestamp::now() - started).unwrap_or_default();
                now.checked_sub(age).unwrap_or(now)
            };
            Running {
                name: container.name.clone(),
                id: container.id.clone(),
                started_seen: memory.started.get(&container.id).copied().unwrap_or_else(before),
                pod_ip,
            }
        });
        running.collect()
    }

    fn create_sandbox(
        &self,
        pod: &Pod,
        memory: &mut Memory,
        attempt: u32,
        handler: &str,
    ) -> Result<SandboxStatus, Error> {
        let attempt = attempt + memory.reserved.get("").copied().unwrap_or(0);
        let (config, told) = self.sandbox_config(pod, attempt)?;
        told.iter().for_each(|event| event.record(pod));
        memory.acted = Some(Instant::now());
        METRICS.started_pods.inc();
        let result = self.cri.run_pod_sandbox(&config, handler);
        memory.acted = Some(Instant::now());
        let id: SandboxId = match result {
            Ok(id) => id,
            Err(e) => {
                METRICS.started_pods_errors.inc();
                if e.message.contains("is reserved for") {
                    *memory.reserved.entry(String::new()).or_default() += 1;
                }
                if !e.is_unreachable() {
                    // With the image of sandboxes missing, an archive may bring it; the pod is woken then.
                    if self.images.restore_sandbox_image(&pod.uid, Instant::now())? {
                        return Err(Error::Start(format!("waiting for image archives: {e}")));
                    }
                    let message = format!("Failed to create pod sandbox: {e}");
                    events::record(events::Kind::Warning, &pod.name, "FailedCreatePodSandBox", &message);
                }
                return Err(e.into());
            }
        };
        let made = Sandbox {
            id: id.clone(),
            pod: PodRef { uid: pod.uid.clone(), name: pod.name.clone() },
            attempt,
            ready: true,
            created_at: UnixNanos::default(),
        };
        self.cache.expect_sandbox(made.clone());
        let status = self.cri.pod_sandbox_status(&made)?;
        status.ok_or_else(|| Error::Start(format!("sandbox {id} is gone right after it was made")))
    }

    /// Takes the kills of single containers a step further: those that the plan asks for, those whose
    /// postStart hook failed, and those that were begun before. Returns after how long to look again.
    fn kill_some(&self, pod: &Arc<Pod>, memory: &mut Memory, observed: &Observed, kills: &[Kill]) -> Next {
        let target = Target::Known(pod.clone());
        let ips = observed.sandboxes.first().map(|s| s.ips.as_slice()).unwrap_or_default();
        let now = Instant::now();
        let mut next = Next::Rest;
        for c in observed.containers.iter().filter(|c| c.is_alive()) {
            let container = &c.status.container;
            let Some(spec) = pod.container(&container.name) else { continue };
            let spec = &*spec;
            let killing = |message: &str| {
                let place = pod.field_path(&container.name);
                events::record_of(events::Kind::Normal, &pod.name, place, "Killing", message);
            };
            let planned = kills.iter().find(|kill| kill.id == container.id);
            let hook_failed = memory.post_start_failed.contains_key(&container.id);
            let begun = memory.kills.contains_key(&container.id);
            if planned.is_none() && !hook_failed && !begun {
                continue;
            }
            if let Some(kill) = planned.filter(|_| !begun) {
                let message = kill_message(kill, &container.name);
                killing(&message);
                if kill.restart {
                    memory.killed_to_restart.insert(kill.id.clone());
                    if restarts_at_once(observed, memory, spec, now) {
                        memory.restarted_at_once.insert(kill.id.clone());
                    }
                }
            } else if hook_failed && !begun {
                let message = format!("Container {}: FailedPostStartHook", container.name);
                killing(&message);
            }
            let victim = Victim {
                target: &target,
                container,
                spec: Some(spec),
                ips,
                grace: grace(pod, spec, planned.map(|kill| kill.why)),
                turn: true,
            };
            if let Some(time) = self.kill_step(&victim, memory, now) {
                next = next.or_after(time);
            }
        }
        next
    }

    /// Makes what the pod needs on disk before anything of it runs, and again if it was lost.
    /// Returns where its volumes lie.
    fn prepare(&self, pod: &Pod, memory: &mut Memory) -> Result<BTreeMap<String, Place>, Error> {
        self.cgroups.ensure_pod(pod, &Values::of_pod(&pod.spec, &self.policy))?;
        let paths = &self.node.paths;
        let directory = paths.pod(&pod.uid);
        let logs = paths.pod_logs(&pod.uid, &pod.name);
        for (path, mode) in [(&directory, 0o750), (&logs, 0o755)] {
            if !path.is_dir() {
                disk::make_dir(path, mode).map_err(|e| Error::io("making", path, e))?;
            }
        }
        let objects = self.objects.of(pod);
        let context =
            volume::Context { pod, directory: &directory, objects: &objects, allocatable: &self.node.allocatable };
        let ready = volume::setup(&context).map_err(|(name, source)| Error::Volume { name, source })?;
        if let Some((name, source)) = ready.stale.into_iter().next() {
            self.tell(pod, memory, "FailedMount", Some(&Error::Volume { name, source }));
        }
        Ok(ready.places)
    }

    /// Gives running containers their log files back, should those be gone.
    pub fn repair_logs(&self, pod: &Pod, memory: &mut Memory) {
        let Some((observed, _)) = self.cache.get(&pod.uid) else { return };
        let logs = self.node.paths.pod_logs(&pod.uid, &pod.name);
        for c in observed.containers.iter().filter(|c| c.is_running()) {
            let container = &c.status.container;
            let path = logs.join(paths::log_file(&container.name, container.notes.restart_count));
            if path.exists() {
                continue;
            }
            log::warn!("{}: the log of {} is gone, having it made again", pod.name, container.name);
            let made = path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(|e| e.to_string());
            let result = made.and_then(|()| self.cri.reopen_container_log(&container.id).map_err(|e| e.to_string()));
            if let Err(e) = result {
                log::warn!("{}: {}: {e}", pod.name, path.display());
            }
            memory.acted.get_or_insert_with(Instant::now);
        }
    }
}

/// Until it is known what the pod refers to. The agent is told of it; so this is only to look again.
fn waits(unknown: Option<local::Unknown>) -> Result<(Next, Option<Error>), Error> {
    match unknown {
        Some(local::Unknown { key, why: Some(why) }) => Err(Error::Start(format!("waiting for {key}: {why}"))),
        _ => Ok((Next::After(UNKNOWN_RETRY), None)),
    }
}

fn kill_message(kill: &Kill, container: &str) -> String {
    let what = match kill.why {
        Why::DefinitionChanged => "definition changed",
        Why::LivenessFailed => "failed liveness probe",
        Why::StartupFailed => "failed startup probe",
        Why::Resized => "is to have other resources",
        Why::Ordered => "is stopped on request",
        Why::Unknown => "is in an unknown state",
    };
    let then = if kill.restart { ", will be restarted" } else { "" };
    format!("Container {container} {what}{then}")
}

/// How long a single container gets to end: a probe that failed may say it, else the pod does.
fn grace(pod: &Pod, spec: &core::Container, why: Option<Why>) -> Duration {
    let probe = match why {
        Some(Why::LivenessFailed) => spec.liveness_probe.as_ref(),
        Some(Why::StartupFailed) => spec.startup_probe.as_ref(),
        _ => None,
    };
    let seconds = probe.and_then(|p| p.termination_grace_period_seconds).unwrap_or_else(|| pod.grace_period());
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// Forgets what waits no more, and what is no longer there to be remembered.
fn forget(memory: &mut Memory, observed: &Observed) {
    for c in observed.containers.iter().filter(|c| c.is_running()) {
        memory.waiting.remove(&*c.status.container.name);
    }
    let containers: HashSet<_> = observed.containers.iter().map(|c| &c.status.container.id).collect();
    memory.killed_to_restart.retain(|id| containers.contains(id));
    memory.restarted_at_once.retain(|id| containers.contains(id));
    memory.started.retain(|id, _| containers.contains(id));
    let alive: HashSet<_> =
        observed.containers.iter().filter(|c| c.is_alive()).map(|c| &c.status.container.id).collect();
    memory.kills.retain(|id, _| alive.contains(id));
    memory.ordered.retain(|id| alive.contains(id));
    memory.post_start_failed.retain(|id, _| alive.contains(id));
    let sandboxes: HashSet<_> = observed.sandboxes.iter().map(|s| &s.sandbox.id).collect();
    memory.stopped.retain(|id| sandboxes.contains(id));
}
