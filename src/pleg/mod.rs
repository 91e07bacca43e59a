//! The pod lifecycle event generator: looks at the runtime and tells the sync loop which pods
//! changed. A full listing each second; where the runtime reports its events, those, and a full
//! listing now and then.
//!
//! Knows nothing of what pods should be.

mod cache;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded, never, select, tick};
use parking_lot::Mutex;

pub use cache::{Cache, Dead, Observed, ObservedContainer};

use crate::cri::{self, Code, Container, Cri, Sandbox, Version};
use crate::metrics::METRICS;
use crate::pod::PodUid;

/// Between listings while the runtime reports no events.
pub const RELIST_PERIOD: Duration = Duration::from_secs(1);
/// Between listings while it does.
const RELIST_PERIOD_WITH_EVENTS: Duration = Duration::from_secs(60);
/// Without a listing for so long the runtime counts as unhealthy, as with the kubelet.
pub const RELIST_THRESHOLD: Duration = Duration::from_secs(180);
/// A listing that takes longer than this hangs.
const RELIST_HANGS: Duration = Duration::from_secs(30);
/// How often to ask again for events after their stream has ended.
const EVENTS_RETRY: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Something of this pod is other than it was; what was observed before `at` is old.
    Pod { uid: PodUid, at: Instant },
    /// The runtime can be seen: for the first time, or again. `strict_groups`: whether it can give a
    /// process just the groups that the pod names.
    Reachable { strict_groups: bool },
}

/// Whether the runtime answers, for health checks.
#[derive(Default)]
pub struct Health(Mutex<HealthState>);

#[derive(Default)]
struct HealthState {
    /// The runtime, once it has been asked.
    runtime: Option<Version>,
    strict_groups: bool,
    last_listed: Option<Instant>,
    listing_since: Option<Instant>,
    error: Option<String>,
}

impl Health {
    /// Why the runtime is not healthy at `now`, if it isn't.
    pub fn check(&self, now: Instant) -> Result<(), String> {
        let state = self.0.lock();
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        if let Some(since) = state.listing_since.filter(|since| now.duration_since(*since) > RELIST_HANGS) {
            let seconds = now.duration_since(since).as_secs();
            return Err(format!("the container runtime has not answered for {seconds} s"));
        }
        match state.last_listed {
            None => Err("the container runtime has not been seen yet".to_owned()),
            Some(at) if now.duration_since(at) > RELIST_THRESHOLD => {
                Err(format!("pleg was last seen active {} s ago", now.duration_since(at).as_secs()))
            }
            Some(_) => Ok(()),
        }
    }

    /// What the runtime says it is; `None` before it has been reached.
    pub fn runtime(&self) -> Option<Version> {
        self.0.lock().runtime.clone()
    }

    fn is_up(&self) -> bool {
        let state = self.0.lock();
        state.error.is_none() && state.last_listed.is_some()
    }

    /// Returns when the last listing began that succeeded.
    fn begin(&self, now: Instant) -> Option<Instant> {
        let mut state = self.0.lock();
        state.listing_since = Some(now);
        state.last_listed
    }

    /// Returns whether this is news.
    fn end(&self, now: Instant, result: Result<(), String>) -> bool {
        let mut state = self.0.lock();
        state.listing_since = None;
        let before = state.error.take();
        match result {
            Ok(()) => before.is_some() | state.last_listed.replace(now).is_none(),
            Err(error) => {
                let news = before.as_ref() != Some(&error);
                state.error = Some(error);
                news
            }
        }
    }
}

pub struct Pleg {
    cri: Arc<dyn Cri>,
    cache: Arc<Cache>,
    health: Arc<Health>,
    events: Sender<Event>,
}

impl Pleg {
    pub fn new(cri: Arc<dyn Cri>, cache: Arc<Cache>, health: Arc<Health>, events: Sender<Event>) -> Pleg {
        Pleg { cri, cache, health, events }
    }

    /// Runs until the sync loop or the sender of `stop` is gone.
    pub fn run(self, stop: Receiver<()>) {
        let (reports, reported) = bounded(256);
        let (reconnected, reconnects) = bounded(1);
        let cri = self.cri.clone();
        let watcher = std::thread::Builder::new().name("cri-events".to_owned());
        let watching = watcher.spawn(move || watch_events(&*cri, &reports, &reconnects));
        let reported = match watching {
            Ok(_) => reported,
            Err(e) => {
                log::warn!("cannot start a thread for the runtime's events, listing alone: {e}");
                never()
            }
        };
        let mut period = RELIST_PERIOD;
        let mut ticks = tick(period);
        loop {
            if self.relist() {
                // Nobody listens while the watcher waits for something else.
                let _ = reconnected.try_send(());
                let strict_groups = self.health.0.lock().strict_groups;
                if self.events.send(Event::Reachable { strict_groups }).is_err() {
                    return;
                }
            }
            loop {
                let next = select! {
                    recv(stop) -> _ => return,
                    recv(ticks) -> _ => break,
                    recv(reported) -> report => report.unwrap_or(Report::Ended),
                };
                let wanted = match next {
                    Report::Pod(uid) => {
                        let event = Event::Pod { uid, at: Instant::now() };
                        if self.events.send(event).is_err() {
                            return;
                        }
                        RELIST_PERIOD_WITH_EVENTS
                    }
                    Report::Something => break,
                    Report::Ended => RELIST_PERIOD,
                };
                if wanted != period {
                    period = wanted;
                    ticks = tick(period);
                    log::debug!("the runtime is listed each {} s", period.as_secs());
                }
            }
        }
    }

    /// Lists everything, and tells which pods changed. Returns whether the runtime is reachable now
    /// and was not before.
    fn relist(&self) -> bool {
        let at = Instant::now();
        if let Some(before) = self.health.begin(at) {
            METRICS.pleg_relist_interval.observe(at.saturating_duration_since(before).as_secs_f64());
        }
        let result = self.greet().and_then(|()| relist(&*self.cri, &self.cache, at).map_err(|e| e.to_string()));
        METRICS.pleg_relist_duration.observe(at.elapsed().as_secs_f64());
        let news = self.health.end(at, result.as_ref().map(drop).map_err(Clone::clone));
        match result {
            Ok(changed) => {
                for uid in changed {
                    if self.events.send(Event::Pod { uid, at }).is_err() {
                        break;
                    }
                }
                news
            }
            Err(e) => {
                if news {
                    log::error!("looking at the container runtime: {e}");
                }
                false
            }
        }
    }
}

impl Pleg {
    /// Asks the runtime what it is, when it comes or comes back.
    fn greet(&self) -> Result<(), String> {
        if self.health.is_up() {
            return Ok(());
        }
        let version = self.cri.version().map_err(|e| match e.code {
            Code::Unimplemented => {
                "the container runtime does not speak CRI v1; containerd 1.6 or CRI-O 1.24 and later do".to_owned()
            }
            _ => e.to_string(),
        })?;
        log::info!("the container runtime is {} {}", version.name, version.version);
        let status = self.cri.status().map_err(|e| e.to_string())?;
        let mut health = self.health.0.lock();
        health.runtime = Some(version);
        health.strict_groups = status.supplemental_groups_policy;
        Ok(())
    }
}

enum Report {
    Pod(PodUid),
    /// An event that names no pod.
    Something,
    Ended,
}

/// Reads the runtime's events for as long as it has any to give.
fn watch_events(cri: &dyn Cri, reports: &Sender<Report>, reconnects: &Receiver<()>) {
    // The runtime is there, or there again.
    while reconnects.recv().is_ok() {
        loop {
            let ended = follow(cri, reports);
            if reports.send(Report::Ended).is_err() {
                return;
            }
            match ended.map(|e| e.code) {
                // Only another version of the runtime will have them.
                Some(Code::Unimplemented) => break,
                Some(Code::Unavailable) => break,
                _ => std::thread::sleep(EVENTS_RETRY),
            }
        }
    }
}

fn follow(cri: &dyn Cri, reports: &Sender<Report>) -> Option<cri::Error> {
    let events = match cri.container_events() {
        Ok(events) => events,
        Err(e) => return Some(e),
    };
    for event in events {
        let report = match event {
            Ok(event) => event.pod.map_or(Report::Something, Report::Pod),
            Err(e) => {
                log::debug!("the runtime's events: {e}");
                return Some(e);
            }
        };
        if reports.send(report).is_err() {
            return None;
        }
    }
    None
}

/// Lists all sandboxes and containers into the cache and returns the pods that changed.
///
/// What can't be looked at closely is left as it was: one pod's trouble is no other's.
///
/// # Errors
/// When the runtime can't be listed.
pub fn relist(cri: &dyn Cri, cache: &Cache, at: Instant) -> cri::Result<Vec<PodUid>> {
    let mut pods: HashMap<PodUid, (Vec<Sandbox>, Vec<Container>)> = HashMap::new();
    for sandbox in cri.list_pod_sandboxes(None)? {
        pods.entry(sandbox.pod.uid.clone()).or_default().0.push(sandbox);
    }
    for container in cri.list_containers(None)? {
        pods.entry(container.pod.uid.clone()).or_default().1.push(container);
    }
    let mut changed = Vec::new();
    let mut unsure = HashSet::new();
    for uid in cache.uids() {
        pods.entry(uid).or_default();
    }
    for (uid, (sandboxes, containers)) in pods {
        let before = cache.known(&uid);
        if before.as_ref().is_some_and(|b| b.at >= at || b.shows(&sandboxes, &containers)) {
            continue;
        }
        match complete(cri, before.as_deref(), sandboxes, containers, at) {
            Ok(observed) => {
                cache.put(uid.clone(), observed);
                changed.push(uid);
            }
            Err(e) if e.is_unreachable() => return Err(e),
            Err(e) => {
                log::warn!("pod {uid}: looking at it: {e}");
                unsure.insert(uid);
            }
        }
    }
    cache.listed(at, unsure);
    Ok(changed)
}

/// Looks at one pod alone, and puts what it sees into the cache.
///
/// # Errors
/// When the runtime can't be asked.
pub fn inspect(cri: &dyn Cri, cache: &Cache, uid: &PodUid, at: Instant) -> cri::Result<Arc<Observed>> {
    let before = cache.known(uid);
    let sandboxes = cri.list_pod_sandboxes(Some(uid))?;
    let containers = cri.list_containers(Some(uid))?;
    let observed = complete(cri, before.as_deref(), sandboxes, containers, at)?;
    Ok(cache.put(uid.clone(), observed))
}

/// Asks for the status of what is other than `before`.
fn complete(
    cri: &dyn Cri,
    before: Option<&Observed>,
    sandboxes: Vec<Sandbox>,
    containers: Vec<Container>,
    at: Instant,
) -> cri::Result<Observed> {
    let mut observed = Observed::empty(at);
    for sandbox in sandboxes {
        let known = before.and_then(|b| b.sandboxes.iter().find(|s| s.sandbox == sandbox));
        let status = match known.filter(|s| !s.sandbox.ready || s.host_network || !s.ips.is_empty()) {
            Some(known) => Some(known.clone()),
            None => cri.pod_sandbox_status(&sandbox)?,
        };
        observed.sandboxes.extend(status);
    }
    for container in containers {
        let known = before.and_then(|b| b.containers.iter().find(|c| c.status.container == container));
        let status = match known {
            Some(known) => Some(known.status.clone()),
            None => cri.container_status(&container)?,
        };
        observed.containers.extend(status.map(|status| ObservedContainer::new(status, before, at)));
    }
    // A listing that leaves out what was alive a moment ago is not believed without asking: to make
    // a second one of a container that runs is worse than a call more.
    for known in before.map(|b| b.sandboxes.as_slice()).unwrap_or_default().iter().filter(|s| s.sandbox.ready) {
        if !observed.sandboxes.iter().any(|s| s.sandbox.id == known.sandbox.id) {
            observed.sandboxes.extend(cri.pod_sandbox_status(&known.sandbox)?);
        }
    }
    for known in before.map(|b| b.containers.as_slice()).unwrap_or_default().iter().filter(|c| c.is_alive()) {
        let container = &known.status.container;
        if !observed.containers.iter().any(|c| c.status.container.id == container.id) {
            let status = cri.container_status(container)?;
            observed.containers.extend(status.map(|status| ObservedContainer::new(status, before, at)));
        }
    }
    observed.sandboxes.sort_by_key(|s| std::cmp::Reverse((s.sandbox.created_at, s.sandbox.attempt)));
    observed.containers.sort_by_key(|c| {
        let c = &c.status.container;
        std::cmp::Reverse((c.created_at, c.attempt))
    });
    Ok(observed)
}
