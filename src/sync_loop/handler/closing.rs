//! What the loop does while the machine shuts down: it lets no pods in, ends those that run, group by
//! group, and lets the machine go on (pkg/kubelet/nodeshutdown). And how it all goes on when the shutdown
//! is called off.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use super::Handler;
use crate::admission::{Refusal, Wants};
use crate::cluster::Rounds;
use crate::lane::Lane;
use crate::pod::{PodUid, Source};
use crate::runtime::{self, Halt};
use crate::shutdown::{self, Alive, Course, Flag, Lock, Plan, Record};
use crate::status::{self, FailedBy, PodFailure, StoredPod};

/// The shutdown, as far as the loop has to do with it.
pub struct Closing {
    /// `None` when pods end as they come.
    pub plan: Option<Plan>,
    pub flag: Arc<Flag>,
    pub record: Record,
    /// How far the API server has been told of pods, where there is one.
    pub told: Option<Rounds>,
    /// Writes to disk.
    lane: Lane,
    now: Option<Now>,
}

struct Now {
    course: Course,
    lock: Option<Lock>,
    /// The round of telling that was asked for when all pods had ended.
    asked: Option<u64>,
}

impl Closing {
    pub fn new(plan: Option<Plan>, flag: Arc<Flag>, record: Record, told: Option<Rounds>) -> Closing {
        Closing { plan, flag, record, told, lane: Lane::new("shutdown", 1), now: None }
    }

    pub(super) fn is_on(&self) -> bool {
        self.now.is_some()
    }

    /// Why a pod can't come now; one that runs already can, to be ended with the others.
    pub(super) fn refuses(&self, runs: impl FnOnce() -> bool) -> Option<Refusal> {
        (self.is_on() && !runs()).then(|| Refusal {
            reason: shutdown::REFUSED.to_owned(),
            message: shutdown::REFUSED_MESSAGE.to_owned(),
            wants: Wants::Node,
        })
    }
}

impl Handler {
    /// The runtime has something of the pod that may run.
    pub(super) fn has_alive(&self, uid: &PodUid) -> bool {
        let observed = self.cache.get(uid).map(|(observed, _)| observed);
        observed.is_some_and(|observed| observed.containers.iter().any(|c| c.is_alive()))
    }

    pub(super) fn close(&mut self, lock: Option<Lock>, now: Instant) {
        let Some(plan) = self.closing.plan.clone() else { return };
        log::warn!("the machine shuts down: pods have {} s to end", plan.total().as_secs());
        self.closing.flag.set(true);
        self.closing.record.begin(Timestamp::now());
        let record = self.closing.record.clone();
        self.closing.lane.submit(move || record.write());
        self.closing.now = Some(Now { course: Course::new(plan, now), lock, asked: None });
    }

    /// Goes on with it as far as can be now.
    pub(super) fn close_further(&mut self, now: Instant) {
        let all = self.may_remove();
        let Some(closing) = &mut self.closing.now else { return };
        let alive = self.workers.alive();
        let alive: Vec<_> =
            alive.iter().map(|pod| Alive { uid: pod.uid.clone(), priority: pod.spec.priority }).collect();
        for (uid, grace) in closing.course.advance(&alive, all, now) {
            if let Some(name) = self.workers.name(&uid) {
                log::info!("{name}: it ends with the node, in {} s at most", grace.as_secs());
            }
            let message = shutdown::TERMINATED_MESSAGE.to_owned();
            let failure = PodFailure { reason: shutdown::TERMINATED, message, by: FailedBy::Node };
            self.workers.halt(&uid, Halt { grace, failure });
        }
        if !closing.course.is_telling() {
            return;
        }
        let told = self.closing.told.as_ref().is_none_or(|rounds| {
            let asked = *closing.asked.get_or_insert_with(|| rounds.ask());
            rounds.done() > asked
        });
        if !closing.course.end(told, now) {
            return;
        }
        let lock = closing.lock.take();
        // Where the API server doesn't know of their end, nobody puts others in their place: they run again.
        let is_final = |stored: &StoredPod| told && stored.pod.source == Source::Api && stored.stopped;
        let ended = self.shown.store.list().into_iter().filter(is_final);
        let ended = ended.filter_map(|stored| Some((stored.pod.uid.clone(), stored.status?)));
        let ended: Vec<_> = ended.filter(|(_, status)| status::is_ended_by_node(status)).collect();
        let paths = self.surveys.paths.clone();
        self.closing.record.end(Timestamp::now());
        let record = self.closing.record.clone();
        self.closing.lane.submit(move || {
            ended.iter().for_each(|(uid, status)| runtime::keep_end(&paths, uid, status));
            record.write();
            log::warn!("pods have ended, or had their time: the machine may shut down");
            drop(lock);
        });
    }

    /// The machine isn't shutting down any more. Pods of the API server that have ended stay so, and
    /// others take their place; static pods have nobody else, and run again.
    pub(super) fn reopen(&mut self) {
        if self.closing.now.take().is_none() {
            return;
        }
        log::warn!("the shutdown was called off");
        self.closing.flag.set(false);
        for stored in self.shown.store.list() {
            if stored.pod.source == Source::Api {
                continue;
            }
            if let Some(pod) = self.workers.resume(&stored.pod.uid) {
                self.shown.store.clear_status(&pod);
            }
        }
        // Those that were refused are asked again.
        self.admission.freed();
    }
}
