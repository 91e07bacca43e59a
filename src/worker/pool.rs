//! The pool's threads. Each takes a job, carries it out by blocking calls, and reports to the sync
//! loop. A panic in a job costs that job alone.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use crossbeam::channel::{Receiver, Sender, bounded};

use super::{Failed, Job, Kind, Report};
use crate::metrics;
use crate::pod::core;
use crate::runtime::{Error, Memory, Next, Runtime};

pub struct Pool {
    jobs: Sender<Job>,
    size: usize,
    busy: usize,
    /// Of the busy ones, those with a pod that ends.
    endings: usize,
}

impl Pool {
    /// Starts `size` threads, which report to `reports`; that must hold as many.
    pub fn start(size: usize, runtime: &Arc<Runtime>, reports: &Sender<Report>) -> io::Result<Pool> {
        let (jobs, taken) = bounded(size);
        for i in 0..size {
            let (runtime, taken, reports) = (runtime.clone(), taken.clone(), reports.clone());
            let builder = std::thread::Builder::new().name(format!("worker-{i}"));
            builder.spawn(move || work(&runtime, &taken, &reports))?;
        }
        Ok(Pool { jobs, size, busy: 0, endings: 0 })
    }

    /// Whether a job given now is begun at once.
    pub fn has_room(&self) -> bool {
        self.busy < self.size
    }

    pub fn is_idle(&self) -> bool {
        self.busy == 0
    }

    /// Whether that may be a job for a pod that ends: one thread is kept for pods that are to run,
    /// if there is more than one.
    pub fn has_room_for_endings(&self) -> bool {
        self.endings + 1 < self.size.max(2)
    }

    /// Gives a job out. There must be room.
    pub fn give(&mut self, job: Job) {
        self.busy += 1;
        self.endings += usize::from(job.kind.is_ending());
        if self.jobs.send(job).is_err() {
            log::error!("the workers are gone; this is a bug");
        }
    }

    /// A report has come.
    pub fn take_back(&mut self, report: &Report) {
        self.busy = self.busy.saturating_sub(1);
        self.endings = self.endings.saturating_sub(usize::from(report.ending));
    }
}

fn work(runtime: &Runtime, jobs: &Receiver<Job>, reports: &Sender<Report>) {
    for job in jobs {
        let (uid, ending) = (job.uid.clone(), job.kind.is_ending());
        let report = catch_unwind(AssertUnwindSafe(|| carry_out(runtime, job))).unwrap_or_else(|_| Report {
            uid,
            ending,
            memory: None,
            next: Err(Failed { message: "the agent failed in it; this is a bug".to_owned(), unreachable: false }),
            status: None,
        });
        if reports.send(report).is_err() {
            return;
        }
    }
}

fn carry_out(runtime: &Runtime, job: Job) -> Report {
    let Job { uid, kind, mut memory, done, fresh } = job;
    let ending = kind.is_ending();
    let start = Instant::now();
    memory.learn(done);
    let (next, status) = match kind {
        Kind::Sync { pod, before, look_after } => {
            if look_after {
                runtime.repair_logs(&pod, &mut memory);
            }
            sync(runtime, &pod, &mut memory, fresh, before.as_deref())
        }
        Kind::Terminate { target, before, halt } => {
            match runtime.terminate(&target, &mut memory, fresh, before.as_deref(), halt.as_ref()) {
                Ok((next, status)) => (Ok(next), status),
                Err(e) => (Err(e), None),
            }
        }
        Kind::Remove(target) => (runtime.remove(&target, &mut memory).map(|()| Next::Terminal), None),
    };
    metrics::pod_worker(if ending { "kill" } else { "sync" }, start.elapsed());
    let next = next.map_err(|e| Failed { unreachable: e.is_unreachable(), message: e.to_string() });
    Report { uid, ending, memory: Some(memory), next, status: status.map(Arc::new) }
}

fn sync(
    runtime: &Runtime,
    pod: &Arc<crate::pod::Pod>,
    memory: &mut Memory,
    fresh: Option<Instant>,
    before: Option<&core::PodStatus>,
) -> (Result<Next, Error>, Option<core::PodStatus>) {
    match runtime.sync(pod, memory, fresh, before) {
        Ok(synced) => (synced.error.map_or(Ok(synced.next), Err), Some(synced.status)),
        Err(e) => (Err(e), None),
    }
}
