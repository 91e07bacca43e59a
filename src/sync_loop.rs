//! The main loop: one `select!` over everything that can happen, handed to a `SyncHandler`. It never
//! blocks: what takes time is given to workers and lanes, which report back here.

mod shown;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, select, tick};

use crate::cgroup;
use crate::cgroup::values::Totals;
use crate::lane::Lane;
use crate::local::{self, Key};
use crate::pleg::{self, Cache};
use crate::pod::{Pod, PodName, PodUid, Source};
use crate::probe::ProbeResult;
use crate::runtime::{self, Done, Known, Left, Paths, Target};
use crate::source::mux::{Op, PodUpdate};
use crate::status::events;
use crate::worker::{Failed, Pool, Report, Workers};

pub use shown::Shown;

/// How often pods are looked for whose time has come.
const SYNC_TICK: Duration = Duration::from_secs(1);
/// How often it is looked for pods that nobody wants.
const HOUSEKEEPING: Duration = Duration::from_secs(2);
/// How often the disk is looked at for what pods have left behind.
const SURVEY: Duration = Duration::from_secs(60);
/// A failure that goes on as it is, is told again after so long.
const TELL_AGAIN: Duration = Duration::from_secs(300);
/// How long jobs may take to come back when the agent ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// What the loop hears.
pub struct Inputs {
    pub updates: Receiver<PodUpdate>,
    /// Objects that pods refer to have changed.
    pub objects: Receiver<BTreeSet<Key>>,
    pub pleg: Receiver<pleg::Event>,
    pub probes: Receiver<ProbeResult>,
    /// Lanes that are done.
    pub lanes: Receiver<Done>,
    /// Workers that are done.
    pub reports: Receiver<Report>,
    /// What was found on disk.
    pub surveys: Receiver<Vec<Left>>,
    /// The agent is to end.
    pub stop: Receiver<()>,
}

/// What the loop does with it.
pub trait SyncHandler {
    /// Pods of a source that are new, in the order of their creation.
    fn additions(&mut self, pods: Vec<Arc<Pod>>, now: Instant);
    fn updates(&mut self, pods: Vec<Arc<Pod>>, now: Instant);
    fn removes(&mut self, pods: Vec<Arc<Pod>>, now: Instant);
    fn reconcile(&mut self, pods: Vec<Arc<Pod>>, now: Instant);
    /// The source has been heard.
    fn source_heard(&mut self, source: Source, now: Instant);
    /// Objects that pods refer to have come, changed or gone.
    fn objects(&mut self, changed: BTreeSet<Key>);
    fn pleg(&mut self, event: pleg::Event, now: Instant);
    fn probe(&mut self, result: ProbeResult);
    fn lane_done(&mut self, done: Done);
    fn report(&mut self, report: Report, now: Instant);
    fn survey(&mut self, left: Vec<Left>, now: Instant);
    /// Pods whose time has come.
    fn syncs(&mut self, now: Instant);
    /// Pods that nobody wants, and what they left behind.
    fn cleanups(&mut self, now: Instant);
    /// Gives out the jobs for which there is room.
    fn dispatch(&mut self, now: Instant);
    /// No job is out.
    fn is_idle(&self) -> bool;
}

/// When the loop last turned, for health checks: it does so at least each second.
pub struct Heartbeat {
    start: Instant,
    last: AtomicU64,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Heartbeat { start: Instant::now(), last: AtomicU64::new(0) }
    }
}

impl Heartbeat {
    fn beat(&self, now: Instant) {
        let millis = u64::try_from(now.duration_since(self.start).as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }

    /// How long ago the loop turned.
    pub fn age(&self, now: Instant) -> Duration {
        let last = self.start + Duration::from_millis(self.last.load(Ordering::Relaxed));
        now.saturating_duration_since(last)
    }
}

/// Runs until `stop` hears something.
pub fn run(handler: &mut dyn SyncHandler, inputs: &Inputs, heartbeat: &Heartbeat) {
    let sync = tick(SYNC_TICK);
    let housekeeping = tick(HOUSEKEEPING);
    loop {
        select! {
            recv(inputs.updates) -> update => if let Ok(update) = update {
                let now = Instant::now();
                configure(handler, update, now);
            },
            recv(inputs.objects) -> changed => if let Ok(changed) = changed {
                handler.objects(changed);
            },
            recv(inputs.pleg) -> event => if let Ok(event) = event {
                handler.pleg(event, Instant::now());
            },
            recv(inputs.probes) -> result => if let Ok(result) = result {
                handler.probe(result);
            },
            recv(inputs.lanes) -> done => if let Ok(done) = done {
                handler.lane_done(done);
            },
            recv(inputs.reports) -> report => if let Ok(report) = report {
                handler.report(report, Instant::now());
            },
            recv(inputs.surveys) -> left => if let Ok(left) = left {
                handler.survey(left, Instant::now());
            },
            recv(sync) -> _ => handler.syncs(Instant::now()),
            recv(housekeeping) -> _ => handler.cleanups(Instant::now()),
            recv(inputs.stop) -> _ => break,
        }
        let now = Instant::now();
        heartbeat.beat(now);
        handler.dispatch(now);
    }
    // Calls that are under way come to their end, so that nothing half made is left.
    let until = Instant::now() + FAREWELL;
    while !handler.is_idle() {
        match inputs.reports.recv_deadline(until) {
            Ok(report) => handler.report(report, Instant::now()),
            Err(_) => break,
        }
    }
}

fn configure(handler: &mut dyn SyncHandler, update: PodUpdate, now: Instant) {
    let PodUpdate { source, op, mut pods } = update;
    log::debug!("{source}: {op:?} {}", pods.iter().map(|p| p.name.to_string()).collect::<Vec<_>>().join(" "));
    match op {
        Op::Add => {
            pods.sort_by(|a, b| a.meta.creation_timestamp.cmp(&b.meta.creation_timestamp));
            handler.additions(pods, now);
        }
        // A graceful deletion is an update: the pod's worker sees it.
        Op::Update | Op::Delete => handler.updates(pods, now),
        Op::Remove => handler.removes(pods, now),
        Op::Reconcile => handler.reconcile(pods, now),
    }
    handler.source_heard(source, now);
}

/// The handler of the agent.
pub struct Handler {
    workers: Workers,
    pool: Pool,
    cache: Arc<Cache>,
    shown: Shown,
    /// Pods that the agent kept before it was started, for what nobody wants any more.
    records: HashMap<PodUid, Known>,
    /// Sources that have not been heard yet.
    unheard: HashSet<Source>,
    /// The runtime has been seen.
    reached: bool,
    /// The last failure of each pod that fails, and when it was told.
    told: HashMap<PodUid, (String, Instant)>,
    surveys: SurveyWork,
}

/// The cgroups that pods' are made in, and what they are held to.
pub struct Tiers {
    pub cgroups: Arc<cgroup::Manager>,
    pub all_pods: cgroup::Values,
    pub policy: cgroup::Policy,
}

impl Tiers {
    /// Makes them, and holds them to their values, as far as can be done now.
    pub fn ensure(&self, totals: &Totals) {
        if let Err(e) = self.cgroups.ensure_qos(&self.all_pods, totals, &self.policy) {
            log::warn!("the cgroups above those of pods: {e}");
        }
    }
}

/// Looks at the disk, and at what the pods are in, on a lane.
struct SurveyWork {
    lane: Lane,
    paths: Paths,
    tiers: Arc<Tiers>,
    found: Sender<Vec<Left>>,
    next: Option<Instant>,
}

impl Handler {
    /// `sources`: those that have to be heard before anything is removed.
    pub fn new(
        workers: Workers,
        pool: Pool,
        cache: Arc<Cache>,
        shown: Shown,
        records: Vec<Known>,
        sources: HashSet<Source>,
        (paths, tiers, found): (Paths, Tiers, Sender<Vec<Left>>),
    ) -> Handler {
        Handler {
            workers,
            pool,
            cache,
            shown,
            records: records.into_iter().map(|known| (known.pod.uid.clone(), known)).collect(),
            unheard: sources,
            reached: false,
            told: HashMap::new(),
            surveys: SurveyWork { lane: Lane::new("survey", 1), paths, tiers: Arc::new(tiers), found, next: None },
        }
    }

    /// A pod with the name of one that is wanted, but another UID, has to end before that begins:
    /// it is what ran before the agent was started, or before the manifest was changed.
    fn orphans_of(&mut self, name: &PodName, wanted: &PodUid, now: Instant) {
        for uid in self.cache.uids() {
            if uid == *wanted || self.workers.knows(&uid) {
                continue;
            }
            if let Some(target) = self.target(&uid).filter(|target| target.name() == name) {
                self.workers.orphan(target, now);
            }
        }
    }

    /// A pod of the runtime that nobody wants.
    fn target(&self, uid: &PodUid) -> Option<Target> {
        if let Some(known) = self.records.get(uid) {
            return Some(Target::Known(known.pod.clone()));
        }
        let (observed, _) = self.cache.get(uid)?;
        let of_sandbox = observed.sandboxes.first().map(|s| &s.sandbox.pod);
        let pod = of_sandbox.or_else(|| observed.containers.first().map(|c| &c.status.container.pod))?;
        Some(Target::Orphan { uid: uid.clone(), name: pod.name.clone() })
    }

    fn tell(&mut self, uid: &PodUid, Failed { message, unreachable }: Failed, now: Instant) {
        let name = self.workers.name(uid).map(ToString::to_string).unwrap_or_default();
        let news = |(last, at): &(String, Instant)| *last != message || now.duration_since(*at) >= TELL_AGAIN;
        // Of an unreachable runtime, the PLEG tells once for all pods.
        if unreachable || !self.told.get(uid).is_none_or(news) {
            return log::debug!("{name}: {message}");
        }
        log::warn!("{name}: {message}");
        self.told.insert(uid.clone(), (message, now));
    }

    fn may_remove(&self) -> bool {
        self.reached && self.unheard.is_empty()
    }
}

impl SyncHandler for Handler {
    fn additions(&mut self, pods: Vec<Arc<Pod>>, now: Instant) {
        for pod in pods {
            let known = self.records.remove(&pod.uid);
            self.shown.store.put(pod.clone());
            if let Some(status) = known.as_ref().and_then(|known| known.status.clone()) {
                self.shown.store.set_status(&pod, status);
            }
            if self.reached {
                self.orphans_of(&pod.name, &pod.uid, now);
            }
            match known {
                Some(known) => self.workers.want_again(pod, known, now),
                None => self.workers.want(pod, now),
            }
        }
    }

    fn updates(&mut self, pods: Vec<Arc<Pod>>, now: Instant) {
        for pod in pods {
            self.shown.store.put(pod.clone());
            self.workers.want(pod, now);
        }
    }

    fn removes(&mut self, pods: Vec<Arc<Pod>>, _: Instant) {
        for pod in pods {
            self.shown.store.remove(&pod);
            self.workers.unwant(&pod.uid);
        }
    }

    fn reconcile(&mut self, pods: Vec<Arc<Pod>>, _: Instant) {
        for pod in pods {
            self.shown.store.put(pod);
        }
    }

    fn source_heard(&mut self, source: Source, now: Instant) {
        if self.unheard.remove(&source) {
            self.cleanups(now);
        }
    }

    fn objects(&mut self, changed: BTreeSet<Key>) {
        for stored in self.shown.store.list() {
            if !local::references(&stored.pod).is_disjoint(&changed) {
                self.workers.touch(&stored.pod.uid, None);
            }
        }
    }

    fn pleg(&mut self, event: pleg::Event, now: Instant) {
        match event {
            pleg::Event::Pod { uid, at } => self.workers.touch(&uid, Some(at)),
            pleg::Event::Reachable if self.reached => self.workers.retry_failed(),
            pleg::Event::Reachable => {
                self.reached = true;
                let pods: Vec<_> = self.shown.store.list().into_iter().map(|stored| stored.pod.clone()).collect();
                for pod in pods {
                    self.orphans_of(&pod.name, &pod.uid, now);
                }
                self.cleanups(now);
            }
        }
    }

    fn probe(&mut self, result: ProbeResult) {
        if let Some(tell) = result.tell {
            let message = format!("{}: {}", result.container, tell.message);
            events::record(events::Kind::Warning, &result.pod, tell.reason, &message);
        }
        if result.change.is_some() {
            if let Some(pod) = self.workers.pod(&result.uid) {
                self.shown.probe(pod);
            }
            self.workers.touch(&result.uid, None);
        }
    }

    fn lane_done(&mut self, done: Done) {
        self.workers.lane_done(done);
    }

    fn report(&mut self, mut report: Report, now: Instant) {
        self.pool.take_back(&report);
        let uid = report.uid.clone();
        if let (Some(status), Some(pod)) = (report.status.take(), self.workers.pod(&uid)) {
            report.status = Some(self.shown.report(pod, status));
        }
        let finished = self.workers.report(report, now);
        match finished.failed {
            Some(failed) => self.tell(&uid, failed, now),
            None => _ = self.told.remove(&uid),
        }
        if finished.gone {
            self.records.remove(&uid);
        }
        if let Some(pod) = finished.again {
            self.workers.want(pod, now);
        }
    }

    fn survey(&mut self, left: Vec<Left>, now: Instant) {
        if !self.may_remove() {
            return;
        }
        for Left { uid, name } in left {
            if self.workers.knows(&uid) {
                continue;
            }
            let named = name.map(|name| Target::Orphan { uid: uid.clone(), name });
            let target = self.target(&uid).or(named);
            // A directory that says nothing of its pod: the UID stands for the name.
            let target = target.unwrap_or_else(|| Target::Orphan { name: PodName::new("", uid.as_str()), uid });
            self.workers.orphan(target, now);
        }
    }

    fn syncs(&mut self, now: Instant) {
        self.workers.tick(now);
    }

    fn cleanups(&mut self, now: Instant) {
        if !self.may_remove() {
            return;
        }
        for uid in self.cache.uids() {
            if self.workers.knows(&uid) {
                continue;
            }
            if let Some(target) = self.target(&uid) {
                log::info!("{}: nobody wants it, stopping it", target.name());
                self.workers.orphan(target, now);
            }
        }
        if self.surveys.next.is_none_or(|next| next <= now) {
            self.surveys.next = Some(now + SURVEY);
            let SurveyWork { paths, tiers, found, .. } = &self.surveys;
            let (paths, tiers, found) = (paths.clone(), tiers.clone(), found.clone());
            let totals = Totals::of(self.shown.store.list().iter().map(|stored| &stored.pod.spec));
            self.surveys.lane.submit(move || {
                tiers.ensure(&totals);
                // With the loop gone nobody waits for it.
                let _ = found.send(runtime::survey(&paths, &tiers.cgroups));
            });
        }
    }

    fn dispatch(&mut self, now: Instant) {
        while self.reached && self.pool.has_room() {
            let Some(job) = self.workers.next(self.pool.has_room_for_endings(), now) else { return };
            self.pool.give(job);
        }
    }

    fn is_idle(&self) -> bool {
        self.pool.is_idle()
    }
}
