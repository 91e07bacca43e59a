//! A lane: a bounded set of threads for work that can take long. Threads are started when there is
//! work for them and end when there has been none for a while; the last to become idle is the first
//! to be used again, so that no more stay than are needed. What finds all of them busy waits its
//! turn. The work itself says when it is done, over a channel of its own.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How long a thread without work stays.
const IDLE: Duration = Duration::from_secs(5);
/// Enough for a call to the runtime; most of it is never touched.
const STACK: usize = 256 << 10;

type Work = Box<dyn FnOnce() + Send>;

#[derive(Clone)]
pub struct Lane(Arc<Inner>);

struct Inner {
    name: &'static str,
    max: usize,
    stay: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Work>,
    threads: usize,
    /// What wakes each thread that waits for work.
    idle: Vec<Arc<Condvar>>,
}

impl Lane {
    /// At most `max` pieces of work at once.
    pub fn new(name: &'static str, max: usize) -> Lane {
        Lane::staying(name, max, IDLE)
    }

    fn staying(name: &'static str, max: usize, stay: Duration) -> Lane {
        Lane(Arc::new(Inner { name, max: max.max(1), stay, state: Mutex::default() }))
    }

    /// Queues `work`. The caller keeps the number of its outstanding pieces bounded. A piece that
    /// panics ends alone; it must have told its end by then, in a destructor if need be.
    pub fn submit(&self, work: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        state.queue.push_back(Box::new(work));
        if let Some(last) = state.idle.pop() {
            drop(state);
            last.notify_one();
        } else if state.threads < self.0.max {
            state.threads += 1;
            drop(state);
            self.start();
        }
    }

    fn start(&self) {
        let inner = self.0.clone();
        let builder = std::thread::Builder::new().name(format!("lane-{}", inner.name)).stack_size(STACK);
        if let Err(e) = builder.spawn(move || inner.work()) {
            // The queue stays; the next thread that comes takes it.
            log::error!("cannot start a thread for {}: {e}", self.0.name);
            self.0.state.lock().threads -= 1;
        }
    }
}

impl Inner {
    fn work(&self) {
        let wake = Arc::new(Condvar::new());
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.queue.pop_front() {
                drop(state);
                if catch_unwind(AssertUnwindSafe(work)).is_err() {
                    log::error!("work on the lane {:?} panicked; this is a bug", self.name);
                }
                state = self.state.lock();
                continue;
            }
            state.idle.push(wake.clone());
            let timed_out = wake.wait_for(&mut state, self.stay).timed_out();
            // Not there any more: there is work for it, or was.
            let unused = state.idle.iter().position(|w| Arc::ptr_eq(w, &wake));
            if let Some(i) = unused {
                state.idle.remove(i);
            }
            if timed_out && unused.is_some() && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam::channel::{bounded, unbounded};

    #[test]
    fn no_more_than_the_bound_at_once_and_nothing_lost() {
        let lane = Lane::new("test", 3);
        let (started, starts) = unbounded();
        let (release, gate) = bounded::<()>(0);
        for i in 0..10 {
            let (started, gate) = (started.clone(), gate.clone());
            lane.submit(move || {
                started.send(i).expect("the test listens");
                gate.recv().expect("the test releases");
            });
        }
        let mut seen: Vec<i32> = (0..3).map(|_| starts.recv().expect("started")).collect();
        assert!(starts.recv_timeout(Duration::from_millis(50)).is_err(), "a fourth one started");
        for i in 0..10 {
            release.send(()).expect("one waits");
            if i < 7 {
                seen.push(starts.recv().expect("the next one starts"));
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        assert!(lane.0.state.lock().threads <= 3);
    }

    #[test]
    fn a_panic_costs_no_thread() {
        let lane = Lane::new("test", 1);
        let (tx, rx) = bounded(1);
        lane.submit(|| panic!("expected"));
        lane.submit(move || tx.send(()).expect("the test listens"));
        rx.recv_timeout(Duration::from_secs(5)).expect("the lane goes on");
    }

    #[test]
    fn a_trickle_keeps_no_crowd() {
        let lane = Lane::staying("test", 20, Duration::from_millis(500));
        let (release, gate) = bounded::<()>(0);
        for _ in 0..20 {
            let gate = gate.clone();
            lane.submit(move || gate.recv().expect("the test releases"));
        }
        for _ in 0..20 {
            release.send(()).expect("one waits");
        }
        assert_eq!(lane.0.state.lock().threads, 20);
        // Each of the 20 would get some of this within its time, if they took turns.
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while lane.0.state.lock().threads > 2 {
            assert!(std::time::Instant::now() < until, "they all stay");
            let (tx, rx) = bounded(1);
            lane.submit(move || tx.send(()).expect("the test listens"));
            rx.recv().expect("it is done");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
