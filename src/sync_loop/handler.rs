//! What the agent does with what the loop hears.

mod closing;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::Sender;
use jiff::Timestamp;

pub use closing::Closing;

use super::SyncHandler;
use super::admission::{Admission, Aside};
use super::orders::{self, Order, Refused, What};
use super::shown::Shown;
use crate::admission::Refusal;
use crate::cgroup;
use crate::cgroup::values::Totals;
use crate::image::{Collector, Images, Preload};
use crate::lane::Lane;
use crate::local::{self, Key};
use crate::pleg::{self, Cache};
use crate::pod::{Pod, PodName, PodUid, Source};
use crate::probe::ProbeResult;
use crate::runtime::{self, Done, Known, Left, Paths, Target};
use crate::shutdown::Event;
use crate::status::{self, events};
use crate::sys;
use crate::worker::{Failed, Pool, Report, Workers};

/// How often the disk is looked at for what pods have left behind.
const SURVEY: Duration = Duration::from_secs(60);
/// A failure that goes on as it is, is told again after so long.
const TELL_AGAIN: Duration = Duration::from_secs(300);

/// Reason and message of a pod that was ended for a more important one (pkg/kubelet/preemption).
const PREEMPTING: &str = "Preempting";
const PREEMPTED: &str = "Preempted in order to admit critical pod";

/// The handler of the agent.
pub struct Handler {
    workers: Workers,
    pool: Pool,
    admission: Admission,
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
    images: ImageCare,
    closing: Closing,
}

/// What is done for images from time to time.
pub struct ImageCare {
    pub images: Images,
    pub preload: Preload,
    pub collector: Collector,
    /// All sources have been heard: an image that no pod wants is one that nobody wants.
    pub all_heard: Arc<AtomicBool>,
}

impl ImageCare {
    fn tick(&self, all_heard: bool, now: Instant) {
        self.preload.tick(now);
        self.all_heard.store(all_heard, Ordering::Relaxed);
        self.collector.tick(now);
    }
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
pub struct SurveyWork {
    lane: Lane,
    paths: Paths,
    tiers: Arc<Tiers>,
    found: Sender<Vec<Left>>,
    next: Option<Instant>,
    /// Pods have come, changed or gone since the tiers were last held to their values.
    totals_changed: bool,
}

impl SurveyWork {
    pub fn new(paths: Paths, tiers: Tiers, found: Sender<Vec<Left>>) -> SurveyWork {
        let lane = Lane::new("survey", 1);
        SurveyWork { lane, paths, tiers: Arc::new(tiers), found, next: None, totals_changed: false }
    }

    fn look(&mut self, pods: &[Arc<Pod>], now: Instant) {
        let due = self.next.is_none_or(|next| next <= now);
        if !due && !self.totals_changed {
            return;
        }
        self.totals_changed = false;
        let totals = Totals::of(pods.iter().map(|pod| &pod.spec));
        let (paths, tiers, found) = (self.paths.clone(), self.tiers.clone(), self.found.clone());
        if due {
            self.next = Some(now + SURVEY);
        }
        self.lane.submit(move || {
            tiers.ensure(&totals);
            if due {
                // With the loop gone nobody waits for it.
                let _ = found.send(runtime::survey(&paths, &tiers.cgroups));
            }
        });
    }
}

impl Handler {
    /// `records`: the pods of before; `sources`: those that have to be heard before anything is
    /// removed.
    pub fn new(
        (workers, pool): (Workers, Pool),
        admission: Admission,
        cache: Arc<Cache>,
        shown: Shown,
        records: Vec<Known>,
        sources: HashSet<Source>,
        (surveys, images, closing): (SurveyWork, ImageCare, Closing),
    ) -> Handler {
        Handler {
            workers,
            pool,
            admission,
            cache,
            shown,
            records: records.into_iter().map(|known| (known.pod.uid.clone(), known)).collect(),
            unheard: sources,
            reached: false,
            told: HashMap::new(),
            surveys,
            images,
            closing,
        }
    }

    /// Once it is known what runs, pods are let in.
    fn admit_early(&mut self, now: Instant) {
        if self.reached {
            let (records, cache) = (&self.records, &self.cache);
            let has_something = |uid: &PodUid| cache.get(uid).is_some_and(|(observed, _)| !observed.is_empty());
            let pods = self.admission.take_early(|uid| records.contains_key(uid) || has_something(uid));
            pods.into_iter().for_each(|pod| self.admit(pod, now));
        }
    }

    /// The pod is to run if the node can hold it.
    fn admit(&mut self, pod: Arc<Pod>, now: Instant) {
        // As we know it, or as the API server does.
        let known = self.records.get(&pod.uid).and_then(|known| known.status.as_ref());
        let has_ended = known.into_iter().chain(&pod.status).any(|status| status::is_terminal(status));
        if pod.is_deleted() || has_ended {
            // It needs nothing any more.
            return self.begin(pod, now);
        }
        if let Some(refusal) = self.closing.refuses(|| self.has_alive(&pod.uid)) {
            return self.refuse(pod, refusal);
        }
        match self.admission.ask(&pod, &self.workers.running()) {
            Ok(victims) if victims.is_empty() => self.begin(pod, now),
            Ok(victims) => {
                victims.iter().for_each(|uid| self.preempt(uid));
                self.admission.put_aside(pod, Aside::Waits(victims));
            }
            Err(refusal) => self.refuse(pod, refusal),
        }
    }

    fn begin(&mut self, pod: Arc<Pod>, now: Instant) {
        if let Some(Aside::Refused(_) | Aside::Preempted) = self.admission.aside(&pod.uid) {
            if !pod.is_deleted() {
                log::info!("{}: there is room for it now", pod.name);
                self.shown.store.clear_status(&pod);
            }
        }
        self.admission.forget(&pod.uid);
        self.orphans_of(&pod.name, &pod.uid, now);
        self.surveys.totals_changed = true;
        match self.records.remove(&pod.uid) {
            Some(known) => self.workers.want_again(pod, known, now),
            None => self.workers.want(pod, now),
        }
    }

    fn refuse(&mut self, pod: Arc<Pod>, refusal: Refusal) {
        if let Some(Aside::Preempted) = self.admission.aside(&pod.uid) {
            return;
        }
        let Refusal { reason, message, .. } = &refusal;
        let status = status::refused(&pod, reason, &format!("Pod was rejected: {message}"));
        let (name, reason, message) = (pod.name.clone(), reason.clone(), message.clone());
        self.shown.store.set_status(&pod, Arc::new(status));
        if self.admission.put_aside(pod, Aside::Refused(refusal)) {
            events::record(events::Kind::Warning, &name, &reason, &message);
        }
    }

    /// Ends a pod, so that a more important one may run.
    fn preempt(&mut self, uid: &PodUid) {
        let Some(pod) = self.workers.pod(uid).cloned() else { return };
        events::record(events::Kind::Warning, &pod.name, PREEMPTING, PREEMPTED);
        self.workers.unwant(uid);
        self.admission.put_aside(pod, Aside::Preempted);
    }

    /// Asks again for what was refused, if there may be more room now.
    fn ask_again(&mut self, now: Instant) {
        if self.admission.look_at_node() {
            self.admit_early(now);
        }
        // While the node shuts down there is room for nobody.
        if self.closing.is_on() || !self.admission.take_freed() {
            return;
        }
        self.admission.resizes().into_iter().for_each(|pod| self.resize(pod, now));
        let workers = &self.workers;
        let pods = self.admission.to_ask_again(|uid| workers.knows(uid));
        pods.into_iter().for_each(|pod| self.admit(pod, now));
    }

    fn update(&mut self, pod: Arc<Pod>, now: Instant) {
        self.shown.store.put(pod.clone());
        match self.admission.aside(&pod.uid) {
            _ if pod.is_deleted() => self.begin(pod, now),
            Some(Aside::TooEarly) => _ = self.admission.put_aside(pod, Aside::TooEarly),
            Some(_) => self.admit(pod, now),
            None => self.resize(pod, now),
        }
    }

    /// A pod that runs has changed; if it asks for more, it has to be there.
    fn resize(&mut self, pod: Arc<Pod>, now: Instant) {
        let old = self.workers.pod(&pod.uid).cloned();
        let running = self.workers.running();
        match old.as_ref().map_or(Ok(()), |old| self.admission.resize(old, &pod, &running)) {
            Ok(()) => {
                self.surveys.totals_changed = true;
                self.workers.want(pod, now);
            }
            Err(news) => {
                if let Some(refusal) = news {
                    let reason = if refusal.may_pass_when_a_pod_ends() { "ResizeDeferred" } else { "ResizeInfeasible" };
                    events::record(events::Kind::Warning, &pod.name, reason, &refusal.message);
                }
                // It goes on as it is, but for what has nothing to do with resources.
                match old.map(|old| (orders::keep(Some(&pod), old.clone()), old)) {
                    Some((with, old)) if !Arc::ptr_eq(&with, &old) => self.workers.want(with, now),
                    _ => self.workers.touch(&pod.uid, None),
                }
            }
        }
    }

    /// Ends a pod that its source gives no more.
    fn end(&mut self, pod: Arc<Pod>) {
        self.workers.end(&pod);
        self.shown.store.end(pod);
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

    /// Nobody wants what no source has, once all have been heard.
    fn may_remove(&self) -> bool {
        self.reached && self.unheard.is_empty()
    }

    /// What came from a source that has been heard needs not wait for the others.
    fn may_end(&self, target: &Target) -> bool {
        self.may_remove() || self.reached && target.pod().is_some_and(|pod| !self.unheard.contains(&pod.source))
    }
}

impl SyncHandler for Handler {
    fn additions(&mut self, pods: Vec<Arc<Pod>>, now: Instant) {
        for pod in pods {
            let pod = orders::keep(self.records.get(&pod.uid).map(|known| &*known.pod), pod);
            self.shown.store.put(pod.clone());
            if let Some(status) = self.records.get(&pod.uid).and_then(|known| known.status.clone()) {
                self.shown.store.set_status(&pod, status);
            }
            self.admission.put_aside(pod, Aside::TooEarly);
        }
        self.admission.look_at_node();
        self.admit_early(now);
    }

    fn updates(&mut self, pods: Vec<Arc<Pod>>, now: Instant) {
        for pod in pods {
            let before = self.shown.store.pod(&pod.name, &pod.uid);
            self.update(orders::keep(before.as_deref(), pod), now);
        }
    }

    fn removes(&mut self, pods: Vec<Arc<Pod>>, _: Instant) {
        for pod in pods {
            self.admission.forget(&pod.uid);
            self.admission.freed();
            self.surveys.totals_changed = true;
            match self.shown.store.pod(&pod.name, &pod.uid).filter(|pod| self.workers.knows(&pod.uid)) {
                Some(pod) => self.end(orders::ending(&pod, pod.grace_period(), Timestamp::now())),
                None => {
                    self.shown.store.remove(&pod);
                    self.workers.unwant(&pod.uid);
                }
            }
        }
    }

    fn reconcile(&mut self, pods: Vec<Arc<Pod>>, _: Instant) {
        for pod in pods {
            self.workers.take_conditions(&pod);
            let before = self.shown.store.pod(&pod.name, &pod.uid);
            self.shown.store.put(orders::keep(before.as_deref(), pod));
        }
    }

    fn order(&mut self, order: Order, now: Instant) {
        let found = self.shown.store.list().into_iter().find(|stored| stored.pod.uid == order.uid);
        let result = found.ok_or(Refused::Gone).and_then(|stored| {
            let pod = order.apply(&stored.pod, Timestamp::now())?;
            match (&order.what, stored.ending) {
                (What::Ephemeral(_), _) => self.update(pod, now),
                // It is its source that says when it is to end.
                (What::End { .. }, false) => self.shown.store.put(pod),
                (What::End { .. }, true) => self.end(pod),
            }
            Ok(())
        });
        order.answer(result);
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
            pleg::Event::Reachable { strict_groups } => {
                self.admission.set_strict_groups(strict_groups);
                if self.reached {
                    return self.workers.retry_failed();
                }
                self.reached = true;
                self.admit_early(now);
                self.cleanups(now);
            }
        }
    }

    fn probe(&mut self, result: ProbeResult) {
        if let Some(tell) = result.tell {
            let message = format!("{}: {}", result.container, tell.message);
            let field = self.workers.pod(&result.uid).and_then(|pod| pod.field_path(&result.container));
            events::record_of(events::Kind::Warning, &result.pod, field, tell.reason, &message);
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
        let known = self.workers.pod(&uid).cloned();
        if let Some((pod, mut status)) = known.as_ref().and_then(|pod| Some((pod, report.status.take()?))) {
            self.admission.note(&uid, Arc::make_mut(&mut status));
            if status::is_terminal(&status) {
                self.admission.freed();
            }
            report.status = Some(self.shown.report(pod, status));
        }
        let finished = self.workers.report(report, now);
        if let Some(pod) = known.as_ref().filter(|_| self.workers.is_ended(&uid)) {
            self.shown.store.set_stopped(pod);
        }
        match finished.failed {
            Some(failed) => self.tell(&uid, failed, now),
            None => _ = self.told.remove(&uid),
        }
        if finished.gone {
            self.records.remove(&uid);
            if let Some(pod) = &known {
                self.shown.store.ended(pod);
            }
            self.images.images.forget(&uid);
            self.admission.freed();
            if let (Some(pod), Some(Aside::Preempted)) = (known, self.admission.aside(&uid)) {
                self.shown.store.set_status(&pod, Arc::new(status::refused(&pod, PREEMPTING, PREEMPTED)));
            }
        }
        match finished.again.map(|pod| (self.closing.refuses(|| false), pod)) {
            Some((Some(refusal), pod)) => self.refuse(pod, refusal),
            Some((None, pod)) => self.workers.want(pod, now),
            None => {}
        }
    }

    fn survey(&mut self, left: Vec<Left>, now: Instant) {
        for Left { uid, name } in left {
            if self.workers.knows(&uid) {
                continue;
            }
            let named = name.map(|name| Target::Orphan { uid: uid.clone(), name });
            let target = self.target(&uid).or(named);
            // A directory that says nothing of its pod: the UID stands for the name.
            let target = target.unwrap_or_else(|| Target::Orphan { name: PodName::new("", uid.as_str()), uid });
            if self.may_end(&target) {
                self.workers.orphan(target, now);
            }
        }
    }

    fn shutdown(&mut self, event: Event, now: Instant) {
        match event {
            Event::Begins(lock) => self.close(lock, now),
            Event::Cancelled => self.reopen(),
        }
    }

    fn syncs(&mut self, now: Instant) {
        self.workers.tick(now);
        self.images.tick(self.may_remove(), now);
    }

    fn cleanups(&mut self, now: Instant) {
        if !self.reached {
            return;
        }
        for uid in self.cache.uids() {
            if self.workers.knows(&uid) {
                continue;
            }
            if let Some(target) = self.target(&uid).filter(|target| self.may_end(target)) {
                log::info!("{}: nobody wants it, stopping it", target.name());
                self.workers.orphan(target, now);
            }
        }
        self.surveys.look(&self.workers.running(), now);
    }

    fn dispatch(&mut self, now: Instant) {
        self.ask_again(now);
        self.close_further(now);
        while self.reached && self.pool.has_room() {
            let Some(job) = self.workers.next(self.pool.has_room_for_endings(), now) else { return };
            self.pool.give(job);
        }
    }

    fn rest(&mut self) {
        self.surveys.lane.submit(sys::give_back);
    }

    fn is_idle(&self) -> bool {
        self.pool.is_idle()
    }
}
