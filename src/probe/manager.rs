//! The scheduler's thread, and what the other rooms ask of probes. One lock over the table, held for
//! no call that can block; no method of the manager waits for anything else.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;

use super::handler::Means;
use super::table::{Attempt, Ended, Table};
use super::worker::Outcome;
use super::{ProbeResult, Running, Snapshot, Verdicts};
use crate::cri::Cri;
use crate::lane::Lane;
use crate::pod::{Pod, PodUid, core};

/// Attempts at the same time, each on a thread.
pub const LANE: usize = 256;
/// Attempts at the same time of probes whose last attempt ran into its timeout.
pub const SLOW_LANE: usize = 64;

/// All probes of the node. Clones are the same manager; it ends with the last one.
#[derive(Clone)]
pub struct Manager(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    means: Means,
    lane: Lane,
    slow: Lane,
    results: Sender<ProbeResult>,
    /// Wakes the scheduler. One token is enough.
    wake: Sender<()>,
}

struct State {
    table: Table,
    /// When the scheduler looks again by itself, if at all.
    looks_at: Option<Instant>,
}

impl Manager {
    /// Starts the scheduler. `results` hears what changes; while it is full, attempts wait.
    ///
    /// # Errors
    /// When the thread can't be started.
    pub fn start(cri: Arc<dyn Cri>, results: Sender<ProbeResult>) -> io::Result<Manager> {
        let (wake, woken) = bounded(1);
        let inner = Arc::new(Inner {
            state: Mutex::new(State { table: Table::new(Instant::now()), looks_at: None }),
            means: Means::new(cri),
            lane: Lane::new("probe", LANE),
            slow: Lane::new("probe-slow", SLOW_LANE),
            results,
            wake,
        });
        let weak = Arc::downgrade(&inner);
        std::thread::Builder::new().name("probes".to_owned()).spawn(move || schedule(&weak, &woken))?;
        Ok(Manager(inner))
    }

    /// Tells the pod as it is wanted, and its containers that run: at most one of each name. To be
    /// told at each sync, before the verdicts are asked for; cheap when nothing has changed.
    ///
    /// `before` is the pod's status as it was, which after a start of the agent comes from its last
    /// run: a container that was ready, or had started up, and still runs, goes on as such until its
    /// probes say otherwise.
    pub fn update(&self, pod: &Arc<Pod>, running: &[Running], before: Option<&core::PodStatus>) {
        self.change(|table, now| table.update(pod, running, before, now));
    }

    /// Tells that the pod is being stopped: its startup and liveness probes end, and its readiness
    /// goes on being probed.
    pub fn stop_liveness_and_startup(&self, uid: &PodUid) {
        self.change(|table, now| table.stop_liveness_and_startup(uid, now));
    }

    /// Tells that nothing of the pod runs any more.
    pub fn remove(&self, uid: &PodUid) {
        self.change(|table, _| table.remove(uid));
    }

    /// What the pod's probes say.
    pub fn verdicts(&self, uid: &PodUid) -> Verdicts {
        self.0.state.lock().table.verdicts(uid)
    }

    pub fn snapshot(&self) -> Snapshot {
        self.0.state.lock().table.snapshot()
    }

    fn change<T>(&self, f: impl FnOnce(&mut Table, Instant) -> T) -> T {
        self.0.change(|table| f(table, Instant::now()))
    }
}

impl Inner {
    /// Changes the table, and wakes the scheduler if something is due before it would look.
    fn change<T>(&self, f: impl FnOnce(&mut Table) -> T) -> T {
        let mut state = self.state.lock();
        let result = f(&mut state.table);
        let next = state.table.next();
        let sooner = next.is_some_and(|next| state.looks_at.is_none_or(|at| next < at));
        if sooner {
            state.looks_at = next;
        }
        drop(state);
        if sooner {
            // With a token already there it wakes all the same.
            let _ = self.wake.try_send(());
        }
        result
    }

    fn submit(self: Arc<Self>, attempt: Attempt) {
        let lane = if attempt.hung { self.slow.clone() } else { self.lane.clone() };
        lane.submit(move || {
            let began = Instant::now();
            let pending = Pending { inner: self, attempt: Some(attempt), began };
            pending.make();
        });
    }
}

/// An attempt under way. Its end is told whatever becomes of it.
struct Pending {
    inner: Arc<Inner>,
    attempt: Option<Attempt>,
    began: Instant,
}

impl Pending {
    fn make(mut self) {
        let Some(Attempt { handler, id, ip, timeout, .. }) = &self.attempt else { return };
        let outcome = self.inner.means.probe(handler, id, *ip, *timeout);
        self.end(outcome);
    }

    fn end(&mut self, outcome: Outcome) {
        let Some(attempt) = self.attempt.take() else { return };
        let end = Ended { outcome, began: self.began, ended: Instant::now() };
        if let Some(result) = self.inner.change(|table| table.ended(&attempt, end)) {
            // The loop is gone when the agent ends; then nobody waits for this.
            let _ = self.inner.results.send(result);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.end(Outcome::Error("the agent failed in it; this is a bug".to_owned()));
    }
}

/// Gives attempts to the lanes when they are due, for as long as there is a manager.
fn schedule(inner: &Weak<Inner>, woken: &Receiver<()>) {
    loop {
        let Some(inner) = inner.upgrade() else { return };
        let mut state = inner.state.lock();
        let attempts = state.table.take_due(Instant::now());
        let next = state.table.next();
        state.looks_at = next;
        drop(state);
        for attempt in attempts {
            inner.clone().submit(attempt);
        }
        drop(inner);
        let heard = match next {
            Some(next) => woken.recv_deadline(next),
            None => woken.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        if heard == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
