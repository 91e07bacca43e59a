//! The state of each pod's worker (pkg/kubelet/pod_workers.go). Driven by the sync loop, which owns
//! it; decides, and does nothing itself.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Failed, Job, Kind, Report};
use crate::pod::{Pod, PodName, PodUid, core, identity};
use crate::runtime::{Done, Halt, Kept, Known, Memory, Next, Target};
use crate::status;

/// The wait after a job that failed: doubled each time, up to the kubelet's.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is wanted, and kept as it should be.
    Syncing,
    /// It is being stopped: it isn't wanted any more, or has come to its end.
    Terminating,
    /// It is stopped, isn't wanted, and what is left of it is being removed.
    Removing,
    /// It has come to its end, and is still wanted: nothing is to be done.
    Ended,
}

#[derive(Debug)]
struct Worker {
    target: Target,
    /// It is in a source's set.
    wanted: bool,
    state: State,
    /// It was wanted again, with the same UID, while it was ending: it starts anew afterwards.
    again: Option<Arc<Pod>>,
    /// It is ended though it is wanted.
    halt: Option<Halt>,
    /// Once that is done, it is to go on from there.
    resumes: bool,
    status: Option<Arc<core::PodStatus>>,
    /// `None` while a job is out.
    memory: Option<Box<Memory>>,
    /// It is in the queue.
    queued: bool,
    /// Something happened since the last job was given out.
    dirty: bool,
    /// And it can't wait until a failure has been waited out.
    urgent: bool,
    fresh: Option<Instant>,
    done: Vec<Done>,
    /// When it is to be looked at though nothing happened.
    due: Option<Instant>,
    failures: u32,
    failed_at: Instant,
    /// When it last was looked after beyond what changes ask for.
    looked_after: Instant,
}

/// What the loop is to do after a report.
#[derive(Debug, Default, PartialEq)]
pub struct Finished {
    /// Tell the failure.
    pub failed: Option<Failed>,
    /// Nothing of the pod is left; it is known no more.
    pub gone: bool,
    /// It was wanted again meanwhile.
    pub again: Option<Arc<Pod>>,
}

pub struct Workers {
    pods: HashMap<PodUid, Worker>,
    /// Pods of one name, in the order in which they came: the first may run.
    names: HashMap<PodName, VecDeque<PodUid>>,
    queue: VecDeque<PodUid>,
    /// Behind them: pods that end. What is to run goes first.
    endings: VecDeque<PodUid>,
    /// Between two lookings-after of a pod.
    sync_frequency: Duration,
}

impl Workers {
    pub fn new(sync_frequency: Duration) -> Workers {
        Workers {
            pods: HashMap::new(),
            names: HashMap::new(),
            queue: VecDeque::new(),
            endings: VecDeque::new(),
            sync_frequency,
        }
    }

    pub fn knows(&self, uid: &PodUid) -> bool {
        self.pods.contains_key(uid)
    }

    /// The pods that are wanted and have not ended: what they ask for is theirs.
    pub fn running(&self) -> Vec<Arc<Pod>> {
        let counts = |w: &&Worker| w.wanted && w.state != State::Ended;
        let pods = self.pods.values().filter(counts).filter_map(|w| match (&w.again, &w.target) {
            (Some(pod), _) | (None, Target::Known(pod)) => Some(pod.clone()),
            (None, Target::Orphan { .. }) => None,
        });
        pods.collect()
    }

    /// The pod, if more than its name is known.
    pub fn pod(&self, uid: &PodUid) -> Option<&Arc<Pod>> {
        match &self.pods.get(uid)?.target {
            Target::Known(pod) => Some(pod),
            Target::Orphan { .. } => None,
        }
    }

    pub fn name(&self, uid: &PodUid) -> Option<&PodName> {
        self.pods.get(uid).map(|w| w.target.name())
    }

    /// A pod is wanted that was there before the agent was started.
    pub fn want_again(&mut self, pod: Arc<Pod>, known: Known, now: Instant) {
        let uid = pod.uid.clone();
        self.want(pod.clone(), now);
        let Some(worker) = self.pods.get_mut(&uid) else { return };
        if let Some(memory) = worker.memory.as_mut() {
            memory.kept = known.status.as_ref().map(|status| Kept::before(status, now));
            memory.recorded = Some(if identity::changed(&known.pod, &pod) { known.pod } else { pod });
        }
        // What the API server was told last may be older, but for what others have set.
        let told = worker.status.take();
        let merged = known.status.as_deref().zip(told.as_deref());
        let merged = merged.and_then(|(ours, theirs)| status::with_conditions_of_others(ours, theirs)).map(Arc::new);
        // But that a pod has ended is final, also when it was not kept here.
        let ended = told.clone().filter(|told| status::is_terminal(told));
        worker.status = match merged.or(known.status) {
            Some(ours) if ended.is_none() || status::is_terminal(&ours) => Some(ours),
            _ => ended.or(told),
        };
    }

    /// A pod is wanted, newly or in another version.
    pub fn want(&mut self, pod: Arc<Pod>, now: Instant) {
        let Some(worker) = self.pods.get_mut(&pod.uid) else {
            let state = if pod.is_deleted() { State::Terminating } else { State::Syncing };
            self.insert(Target::Known(pod), true, state, now);
            return;
        };
        let was_wanted = std::mem::replace(&mut worker.wanted, true);
        match worker.state {
            State::Syncing => {
                worker.target = Target::Known(pod.clone());
                if pod.is_deleted() {
                    worker.state = State::Terminating;
                    worker.failures = 0;
                }
                self.urge(&pod.uid);
            }
            // It may have less time now.
            State::Terminating if was_wanted && pod.is_deleted() => {
                worker.target = Target::Known(pod.clone());
                self.urge(&pod.uid);
            }
            State::Terminating | State::Removing if !was_wanted => worker.again = Some(pod),
            // Its containers have ended, and that is final, as the kubelet has it.
            State::Terminating | State::Removing | State::Ended => worker.target = Target::Known(pod),
        }
    }

    /// All of the pod has been stopped, and it is wanted still: it waits for somebody to remove it.
    pub fn is_ended(&self, uid: &PodUid) -> bool {
        self.pods.get(uid).is_some_and(|worker| worker.state == State::Ended)
    }

    /// Others have set conditions of the pod: they count from now on.
    pub fn take_conditions(&mut self, pod: &Pod) {
        let Some(worker) = self.pods.get_mut(&pod.uid) else { return };
        let (Some(theirs), Some(ours)) = (&pod.status, &worker.status) else { return };
        if let Some(status) = status::with_conditions_of_others(ours, theirs) {
            worker.status = Some(Arc::new(status));
            self.touch(&pod.uid, None);
        }
    }

    /// A pod isn't wanted any more.
    pub fn unwant(&mut self, uid: &PodUid) {
        let Some(worker) = self.pods.get_mut(uid) else { return };
        worker.wanted = false;
        worker.again = None;
        worker.state = match worker.state {
            State::Syncing | State::Terminating => State::Terminating,
            State::Ended | State::Removing => State::Removing,
        };
        worker.failures = 0;
        self.urge(uid);
    }

    /// A pod isn't wanted any more, and says how it is to end.
    pub fn end(&mut self, pod: &Arc<Pod>) {
        if let Some(worker) = self.pods.get_mut(&pod.uid) {
            worker.target = Target::Known(pod.clone());
        }
        self.unwant(&pod.uid);
    }

    /// The pods of which something may run.
    pub fn alive(&self) -> Vec<Arc<Pod>> {
        let alive = self.pods.values().filter(|w| matches!(w.state, State::Syncing | State::Terminating));
        let pods = alive.filter_map(|w| w.target.pod());
        pods.cloned().collect()
    }

    /// A pod is to end though it is wanted, or, if it ends already, sooner.
    pub fn halt(&mut self, uid: &PodUid, halt: Halt) {
        let Some(worker) = self.pods.get_mut(uid) else { return };
        match worker.state {
            State::Syncing | State::Terminating => {
                worker.state = State::Terminating;
                worker.halt = Some(halt);
                worker.resumes = false;
                worker.failures = 0;
                self.urge(uid);
            }
            State::Removing | State::Ended => {}
        }
    }

    /// A pod that was halted is to go on. Returns the pod when it does so now; one that has not been
    /// stopped yet goes on afterwards.
    pub fn resume(&mut self, uid: &PodUid) -> Option<Arc<Pod>> {
        let worker = self.pods.get_mut(uid).filter(|worker| worker.wanted && worker.halt.is_some())?;
        match worker.state {
            State::Terminating => {
                worker.resumes = true;
                None
            }
            State::Ended => {
                worker.go_on();
                let (name, pod) = (worker.target.name().clone(), worker.target.pod().cloned());
                self.names.entry(name).or_default().push_back(uid.clone());
                self.urge(uid);
                pod
            }
            State::Syncing | State::Removing => None,
        }
    }

    /// The runtime has a pod that nobody wants.
    pub fn orphan(&mut self, target: Target, now: Instant) {
        if !self.knows(target.uid()) {
            self.insert(target, false, State::Terminating, now);
        }
    }

    fn insert(&mut self, target: Target, wanted: bool, state: State, now: Instant) {
        let uid = target.uid().clone();
        let same_name = self.names.entry(target.name().clone()).or_default();
        // What has to end doesn't wait for what wants to begin.
        match state {
            State::Syncing => same_name.push_back(uid.clone()),
            _ => same_name.push_front(uid.clone()),
        }
        let status = target.pod().and_then(|pod| pod.status.clone());
        let worker = Worker {
            target,
            wanted,
            state,
            again: None,
            halt: None,
            resumes: false,
            status,
            memory: Some(Box::default()),
            queued: false,
            dirty: false,
            urgent: false,
            fresh: None,
            done: Vec::new(),
            due: None,
            failures: 0,
            failed_at: now,
            looked_after: now,
        };
        self.pods.insert(uid.clone(), worker);
        self.urge(&uid);
    }

    /// Something happened to a pod, of which what was observed before `fresh` tells nothing. A pod
    /// that just failed is not tried more often for it than each [`RETRY`].
    pub fn touch(&mut self, uid: &PodUid, fresh: Option<Instant>) {
        let Some(worker) = self.pods.get_mut(uid) else { return };
        worker.fresh = worker.fresh.max(fresh);
        worker.dirty = true;
        match worker.failures > 0 && !worker.urgent {
            true => worker.due = worker.due.min(Some(worker.failed_at + RETRY)),
            false => self.queue(uid),
        }
    }

    /// Something happened that is to be acted on at once.
    fn urge(&mut self, uid: &PodUid) {
        let Some(worker) = self.pods.get_mut(uid) else { return };
        worker.dirty = true;
        worker.urgent = true;
        self.queue(uid);
    }

    fn queue(&mut self, uid: &PodUid) {
        let Some(worker) = self.pods.get_mut(uid) else { return };
        if worker.memory.is_some() && !worker.queued {
            worker.queued = true;
            match worker.state {
                State::Syncing => self.queue.push_back(uid.clone()),
                _ => self.endings.push_back(uid.clone()),
            }
        }
    }

    /// Work on a lane has come to its end.
    pub fn lane_done(&mut self, done: Done) {
        let uid = done.uid.clone();
        if let Some(worker) = self.pods.get_mut(&uid) {
            worker.done.push(done);
            self.urge(&uid);
        }
    }

    /// The runtime is reachable again: what failed is tried now.
    pub fn retry_failed(&mut self) {
        let failed: Vec<_> = self.pods.iter().filter(|(_, w)| w.failures > 0).map(|(uid, _)| uid.clone()).collect();
        for uid in failed {
            self.urge(&uid);
        }
    }

    /// Queues the pods whose time has come.
    pub fn tick(&mut self, now: Instant) {
        let due: Vec<_> =
            self.pods.iter().filter(|(_, w)| w.due.is_some_and(|due| due <= now)).map(|(uid, _)| uid.clone()).collect();
        for uid in due {
            self.urge(&uid);
        }
    }

    /// The next job, if there is one. `endings`: whether it may be one of a pod that ends.
    pub fn next(&mut self, endings: bool, now: Instant) -> Option<Job> {
        loop {
            let uid = match self.queue.pop_front() {
                Some(uid) => uid,
                None if endings => self.endings.pop_front()?,
                None => return None,
            };
            if let Some(job) = self.job(&uid, now) {
                return Some(job);
            }
        }
    }

    fn job(&mut self, uid: &PodUid, now: Instant) -> Option<Job> {
        let worker = self.pods.get_mut(uid)?;
        worker.queued = false;
        let first = self.names.get(worker.target.name()).and_then(VecDeque::front);
        if worker.state == State::Syncing && first != Some(uid) {
            // It is queued again when the one before it has ended.
            return None;
        }
        let kind = match (worker.state, worker.target.clone()) {
            (State::Ended, _) => return None,
            (State::Removing, target) => Kind::Remove(target),
            (State::Syncing, Target::Known(pod)) => {
                let look_after = now.duration_since(worker.looked_after) >= self.sync_frequency;
                if look_after {
                    worker.looked_after = now;
                }
                Kind::Sync { pod, before: worker.status.clone(), look_after }
            }
            (State::Syncing | State::Terminating, target) => {
                Kind::Terminate { target, before: worker.status.clone(), halt: worker.halt.clone() }
            }
        };
        let memory = worker.memory.take()?;
        worker.dirty = false;
        worker.urgent = false;
        worker.due = None;
        let done = std::mem::take(&mut worker.done);
        Some(Job { uid: uid.clone(), kind, memory, done, fresh: worker.fresh.take() })
    }

    /// A job has come back.
    pub fn report(&mut self, report: Report, now: Instant) -> Finished {
        let Report { uid, ending, memory, next, status } = report;
        let Some(worker) = self.pods.get_mut(&uid) else { return Finished::default() };
        let lost = memory.is_none();
        worker.memory = Some(memory.unwrap_or_default());
        if lost {
            // Whatever was done, it has to be seen.
            worker.fresh = Some(now);
        }
        if status.is_some() {
            worker.status = status;
        }
        let mut finished = Finished::default();
        match next {
            Err(failed) => {
                let delay = RETRY.saturating_mul(1 << worker.failures.min(8)).min(RETRY_MAX);
                worker.failures = worker.failures.saturating_add(1);
                worker.failed_at = now;
                worker.due = Some(now + delay);
                finished.failed = Some(failed);
            }
            Ok(next) => {
                worker.failures = 0;
                match next {
                    Next::Again => worker.dirty = true,
                    Next::After(time) => worker.due = Some(now + time),
                    Next::Rest => {}
                    // It was found to have ended while it was told to end: it has not been stopped yet.
                    Next::Terminal if !ending && worker.state != State::Syncing => worker.urgent = true,
                    Next::Terminal => finished.gone = worker.advance(),
                }
            }
        }
        self.settle(&uid, now, finished)
    }

    /// After a report: queues the pod again, forgets it, or lets the next of its name begin.
    fn settle(&mut self, uid: &PodUid, now: Instant, mut finished: Finished) -> Finished {
        let Some(worker) = self.pods.get_mut(uid) else { return finished };
        if finished.gone {
            finished.again = worker.again.take();
            let name = worker.target.name().clone();
            self.pods.remove(uid);
            self.release(&name, uid);
            return finished;
        }
        match worker.state {
            State::Ended => {
                let name = worker.target.name().clone();
                self.release(&name, uid);
            }
            _ if worker.urgent => self.urge(uid),
            _ if worker.dirty => self.touch(uid, None),
            State::Syncing => {
                let look_after = worker.looked_after + self.sync_frequency;
                worker.due = Some(worker.due.map_or(look_after, |due| due.min(look_after)).max(now));
            }
            State::Terminating | State::Removing => {}
        }
        finished
    }

    fn release(&mut self, name: &PodName, uid: &PodUid) {
        let Some(same_name) = self.names.get_mut(name) else { return };
        same_name.retain(|other| other != uid);
        match same_name.front().cloned() {
            Some(next) => self.urge(&next),
            None => _ = self.names.remove(name),
        }
    }
}

impl Worker {
    /// From where it was halted.
    fn go_on(&mut self) {
        (self.state, self.resumes) = (State::Syncing, false);
        let Some(Halt { failure, .. }) = self.halt.take() else { return };
        // What it came to by itself stays.
        self.status = self.status.take().filter(|status| status.reason.as_deref() != Some(failure.reason));
        if let Some(memory) = &mut self.memory {
            memory.failed.take_if(|failed| *failed == failure);
        }
    }

    /// The job of this state is done with. Returns whether that was the last one.
    fn advance(&mut self) -> bool {
        self.state = match (self.state, self.wanted && self.again.is_none()) {
            (State::Removing, _) => return true,
            (State::Syncing, _) => State::Terminating,
            (State::Terminating, true) if self.resumes => {
                self.go_on();
                State::Syncing
            }
            (State::Terminating, true) | (State::Ended, _) => State::Ended,
            (State::Terminating, false) => State::Removing,
        };
        self.urgent = true;
        false
    }
}
