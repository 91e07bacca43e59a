//! The main loop: one `select!` over everything that can happen, handed to a `SyncHandler`. It never
//! blocks: what takes time is given to workers and lanes, which report back here.

mod admission;
mod handler;
pub mod orders;
mod shown;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, select, tick};

pub use admission::Admission;
pub use handler::{Closing, Handler, ImageCare, SurveyWork, Tiers};
pub use shown::Shown;

use crate::local::Key;
use crate::pleg;
use crate::pod::{Pod, Source};
use crate::probe::ProbeResult;
use crate::runtime::{Done, Left};
use crate::shutdown;
use crate::source::mux::{Op, PodUpdate};
use crate::worker::Report;

/// How often pods are looked for whose time has come.
const SYNC_TICK: Duration = Duration::from_secs(1);
/// How often it is looked for pods that nobody wants.
const HOUSEKEEPING: Duration = Duration::from_secs(2);
/// After so long with nothing done, the memory that only work needs is given back.
const REST: Duration = Duration::from_secs(10);
/// And so again while nothing is done: clients ask, what comes once in a while comes.
const REST_AGAIN: Duration = Duration::from_secs(60);
/// How long jobs may take to come back when the agent ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// What the loop hears.
pub struct Inputs {
    pub updates: Receiver<PodUpdate>,
    /// Objects that pods refer to have changed.
    pub objects: Receiver<BTreeSet<Key>>,
    /// What people order of pods.
    pub orders: Receiver<orders::Order>,
    pub pleg: Receiver<pleg::Event>,
    pub probes: Receiver<ProbeResult>,
    /// Lanes that are done.
    pub lanes: Receiver<Done>,
    /// Workers that are done.
    pub reports: Receiver<Report>,
    /// What was found on disk.
    pub surveys: Receiver<Vec<Left>>,
    /// The machine is to shut down, or not any more.
    pub shutdowns: Receiver<shutdown::Event>,
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
    /// Somebody orders something of a pod.
    fn order(&mut self, order: orders::Order, now: Instant);
    /// Objects that pods refer to have come, changed or gone.
    fn objects(&mut self, changed: BTreeSet<Key>);
    fn pleg(&mut self, event: pleg::Event, now: Instant);
    fn probe(&mut self, result: ProbeResult);
    fn lane_done(&mut self, done: Done);
    fn report(&mut self, report: Report, now: Instant);
    fn survey(&mut self, left: Vec<Left>, now: Instant);
    fn shutdown(&mut self, event: shutdown::Event, now: Instant);
    /// Pods whose time has come.
    fn syncs(&mut self, now: Instant);
    /// Pods that nobody wants, and what they left behind.
    fn cleanups(&mut self, now: Instant);
    /// Gives out the jobs for which there is room.
    fn dispatch(&mut self, now: Instant);
    /// Nothing has been done for a while.
    fn rest(&mut self);
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
    let mut rest = Instant::now() + REST;
    loop {
        select! {
            recv(inputs.updates) -> update => if let Ok(update) = update {
                let now = Instant::now();
                configure(handler, update, now);
            },
            recv(inputs.objects) -> changed => if let Ok(changed) = changed {
                handler.objects(changed);
            },
            recv(inputs.orders) -> order => if let Ok(order) = order {
                handler.order(order, Instant::now());
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
                let now = Instant::now();
                rest = now + REST;
                handler.report(report, now);
            },
            recv(inputs.surveys) -> left => if let Ok(left) = left {
                handler.survey(left, Instant::now());
            },
            recv(inputs.shutdowns) -> event => if let Ok(event) = event {
                handler.shutdown(event, Instant::now());
            },
            recv(sync) -> _ => handler.syncs(Instant::now()),
            recv(housekeeping) -> _ => {
                let now = Instant::now();
                handler.cleanups(now);
                if now >= rest {
                    rest = now + REST_AGAIN;
                    handler.rest();
                }
            },
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
