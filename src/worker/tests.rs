use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::cri::ContainerId;
use crate::pod::{PodName, Source};
use crate::runtime::{Halt, Op};
use crate::status::{FailedBy, PodFailure};

struct Bench {
    workers: Workers,
    now: Instant,
    out: BTreeMap<String, Job>,
}

fn pod(uid: &str, name: &str) -> Arc<Pod> {
    Arc::new(Pod {
        uid: PodUid::new(uid),
        name: PodName::new("default", name),
        source: Source::File,
        origin: "/m/a.yaml".into(),
        status: None,
        meta: Default::default(),
        spec: Default::default(),
    })
}

fn failure(reason: &'static str) -> PodFailure {
    PodFailure { reason, message: "m".to_owned(), by: FailedBy::Node }
}

impl Bench {
    fn new() -> Bench {
        Bench { workers: Workers::new(Duration::from_secs(60)), now: Instant::now(), out: BTreeMap::new() }
    }

    fn want(&mut self, uid: &str, name: &str) {
        self.workers.want(pod(uid, name), self.now);
    }

    fn unwant(&mut self, uid: &str) {
        self.workers.unwant(&PodUid::new(uid));
    }

    fn halt(&mut self, uid: &str, secs: u64) {
        self.workers.halt(&PodUid::new(uid), Halt { grace: Duration::from_secs(secs), failure: failure("Terminated") });
    }

    /// A job that tells this reason in the pod's status.
    fn done_for(&mut self, uid: &str, reason: &str, next: Next) {
        let job = self.out.remove(uid).expect("a job is out");
        let ending = job.kind.is_ending();
        let status = core::PodStatus {
            phase: Some("Failed".to_owned()),
            reason: Some(reason.to_owned()),
            ..core::PodStatus::default()
        };
        let report =
            Report { uid: job.uid, ending, memory: Some(job.memory), next: Ok(next), status: Some(Arc::new(status)) };
        self.workers.report(report, self.now);
    }

    fn resume(&mut self, uid: &str) -> bool {
        self.workers.resume(&PodUid::new(uid)).is_some()
    }

    /// The limit of the grace period in the job that is out.
    fn limit(&self, uid: &str) -> Option<u64> {
        match &self.out[uid].kind {
            Kind::Terminate { halt, .. } => halt.as_ref().map(|halt| halt.grace.as_secs()),
            _ => None,
        }
    }

    fn alive(&self) -> usize {
        self.workers.alive().len()
    }

    fn touch(&mut self, uid: &str) {
        self.workers.touch(&PodUid::new(uid), Some(self.now));
    }

    /// All jobs that are given out now, as `sync UID`, `terminate UID`, `remove UID`.
    fn jobs(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(job) = self.workers.next(true, self.now) {
            let kind = match job.kind {
                Kind::Sync { .. } => "sync",
                Kind::Terminate { .. } => "terminate",
                Kind::Remove(_) => "remove",
            };
            all.push(format!("{kind} {}", job.uid));
            assert!(self.out.insert(job.uid.to_string(), job).is_none(), "two jobs of one pod at once");
        }
        all
    }

    fn report(&mut self, uid: &str, next: Result<Next, Failed>) -> Finished {
        let job = self.out.remove(uid).expect("a job is out");
        let ending = job.kind.is_ending();
        let report = Report { uid: job.uid, ending, memory: Some(job.memory), next, status: None };
        self.workers.report(report, self.now)
    }

    fn done(&mut self, uid: &str, next: Next) -> Finished {
        self.report(uid, Ok(next))
    }

    fn fails(&mut self, uid: &str) {
        let failed = Failed { message: "no".to_owned(), unreachable: false };
        assert_eq!(self.report(uid, Err(failed.clone())).failed, Some(failed));
    }

    fn later(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.workers.tick(self.now);
    }
}

const NONE: [&str; 0] = [];

#[test]
fn a_pods_whole_way() {
    let mut b = Bench::new();
    b.want("a", "web");
    assert_eq!(b.jobs(), ["sync a"]);
    assert_eq!(b.jobs(), NONE, "one job at a time");
    b.done("a", Next::Again);
    assert_eq!(b.jobs(), ["sync a"]);
    b.done("a", Next::Rest);
    assert_eq!(b.jobs(), NONE);
    b.touch("a");
    b.touch("a");
    assert_eq!(b.jobs(), ["sync a"]);
    b.touch("a");
    b.done("a", Next::Rest);
    assert_eq!(b.jobs(), ["sync a"], "what happened meanwhile is not lost");
    b.done("a", Next::Rest);
    b.unwant("a");
    assert_eq!(b.jobs(), ["terminate a"]);
    b.done("a", Next::After(Duration::from_secs(60)));
    assert_eq!(b.jobs(), NONE, "the lane stops it");
    let op = Op::StopContainer(ContainerId::new("c"));
    b.workers.lane_done(Done { uid: PodUid::new("a"), op, at: b.now, result: Ok(()) });
    assert_eq!(b.jobs(), ["terminate a"]);
    assert_eq!(b.out["a"].done.len(), 1);
    b.done("a", Next::Terminal);
    assert_eq!(b.jobs(), ["remove a"]);
    assert_eq!(b.done("a", Next::Terminal), Finished { gone: true, ..Finished::default() });
    assert!(!b.workers.knows(&PodUid::new("a")));
}

#[test]
fn a_pod_is_looked_at_when_its_time_has_come() {
    let mut b = Bench::new();
    b.want("a", "web");
    b.jobs();
    b.done("a", Next::After(Duration::from_secs(10)));
    b.later(9_999);
    assert_eq!(b.jobs(), NONE);
    b.later(1);
    assert_eq!(b.jobs(), ["sync a"]);
    b.done("a", Next::Rest);
    b.later(49_000);
    assert_eq!(b.jobs(), NONE);
    b.later(1_000);
    assert_eq!(b.jobs(), ["sync a"], "each minute at least");
    assert!(matches!(b.out["a"].kind, Kind::Sync { look_after: true, .. }));
}

#[test]
fn a_pod_that_ended_by_itself_stays_as_it_is() {
    let mut b = Bench::new();
    b.want("a", "once");
    b.jobs();
    b.done("a", Next::Terminal);
    assert_eq!(b.jobs(), ["terminate a"]);
    b.done("a", Next::Terminal);
    b.touch("a");
    b.later(600_000);
    assert_eq!(b.jobs(), NONE);
    b.want("a", "once");
    assert_eq!(b.jobs(), NONE, "its end is final");
    b.unwant("a");
    assert_eq!(b.jobs(), ["remove a"]);
    assert!(b.done("a", Next::Terminal).gone);
}

/// kubernetes#104648, #107733, #107483: removed and wanted again in haste, a hundred times.
#[test]
fn kubernetes_104648_remove_and_re_add_ends_with_the_pod_running() {
    let mut b = Bench::new();
    b.want("a", "web");
    let mut running = false;
    // Gives out a job and carries it out; false when there is none.
    let mut step = |b: &mut Bench| {
        b.jobs();
        let job = b.out.get("a")?;
        running = matches!(job.kind, Kind::Sync { .. });
        if let Some(again) = b.done("a", if running { Next::Rest } else { Next::Terminal }).again {
            b.workers.want(again, b.now);
        }
        Some(running)
    };
    for round in 0..100 {
        if round % 3 == 0 {
            b.jobs();
        }
        b.unwant("a");
        if round % 7 == 0 {
            b.jobs();
        }
        b.want("a", "web");
        for _ in 0..round % 4 {
            step(&mut b);
        }
    }
    let last = std::iter::from_fn(|| step(&mut b)).take(10).last();
    assert_ne!(last, Some(false), "the last word was that it is wanted");
    b.touch("a");
    assert_eq!(b.jobs(), ["sync a"]);
}

#[test]
fn of_one_name_the_next_begins_when_the_last_has_gone() {
    let mut b = Bench::new();
    b.want("a", "web");
    b.jobs();
    b.want("b", "web");
    b.want("c", "other");
    assert_eq!(b.jobs(), ["sync c"], "b waits for a, c does not");
    b.unwant("a");
    b.done("a", Next::Rest);
    assert_eq!(b.jobs(), ["terminate a"]);
    b.touch("b");
    assert_eq!(b.jobs(), NONE);
    b.done("a", Next::Terminal);
    assert_eq!(b.jobs(), ["remove a"]);
    b.done("a", Next::Terminal);
    assert_eq!(b.jobs(), ["sync b"]);
}

/// kubernetes#97722: a changed static pod waits for the old one's whole end.
#[test]
fn kubernetes_97722_a_waiting_pod_that_goes_again_harms_nobody() {
    let mut b = Bench::new();
    b.want("a", "web");
    b.jobs();
    b.want("b", "web");
    b.unwant("b");
    b.want("c", "web");
    b.unwant("a");
    b.done("a", Next::Rest);
    for uid in ["a", "b"] {
        while let Some(job) = b.workers.next(true, b.now) {
            b.out.insert(job.uid.to_string(), job);
        }
        b.done(uid, Next::Terminal);
        while let Some(job) = b.workers.next(true, b.now) {
            b.out.insert(job.uid.to_string(), job);
        }
        assert!(b.done(uid, Next::Terminal).gone, "{uid}");
    }
    assert_eq!(b.jobs(), ["sync c"]);
}

/// kubernetes#109596, #116880: what ran before the agent was started ends before the new one runs.
#[test]
fn kubernetes_109596_an_orphan_goes_before_its_successor() {
    let mut b = Bench::new();
    b.want("new", "web");
    let orphan = Target::Orphan { uid: PodUid::new("old"), name: PodName::new("default", "web") };
    b.workers.orphan(orphan.clone(), b.now);
    b.workers.orphan(orphan, b.now);
    assert_eq!(b.jobs(), ["terminate old"]);
    b.done("old", Next::Terminal);
    b.jobs();
    b.done("old", Next::Terminal);
    assert_eq!(b.jobs(), ["sync new"]);
}

#[test]
fn what_failed_is_tried_again_later_each_time() {
    let mut b = Bench::new();
    b.want("a", "web");
    assert_eq!(b.jobs(), ["sync a"]);
    for (wait, next) in [(999, 1), (1_999, 1), (3_999, 1), (7_999, 1), (9_999, 1), (9_999, 1)] {
        b.fails("a");
        b.later(wait);
        assert_eq!(b.jobs(), NONE, "before {wait} ms");
        b.later(next);
        assert_eq!(b.jobs(), ["sync a"]);
    }
    b.fails("a");
    b.touch("a");
    assert_eq!(b.jobs(), NONE, "an event of its own failure is no reason for haste");
    b.later(1_000);
    assert_eq!(b.jobs(), ["sync a"], "but one for not waiting longer");
    b.fails("a");
    b.workers.retry_failed();
    assert_eq!(b.jobs(), ["sync a"], "the runtime is back");
    b.fails("a");
    b.unwant("a");
    assert_eq!(b.jobs(), ["terminate a"]);
    b.done("a", Next::After(Duration::from_secs(60)));
}

#[test]
fn a_job_that_was_lost_makes_its_pod_be_looked_at_anew() {
    let mut b = Bench::new();
    b.want("a", "web");
    b.jobs();
    b.out.clear();
    let failed = Failed { message: "panic".to_owned(), unreachable: false };
    let report = Report { uid: PodUid::new("a"), ending: false, memory: None, next: Err(failed), status: None };
    b.workers.report(report, b.now);
    b.later(1_000);
    assert_eq!(b.jobs(), ["sync a"]);
    assert!(b.out["a"].fresh.is_some());
}

#[test]
fn what_is_to_run_goes_before_what_ends() {
    let mut b = Bench::new();
    b.want("a", "a");
    b.want("b", "b");
    b.jobs();
    for uid in ["a", "b"] {
        b.done(uid, Next::Rest);
        b.unwant(uid);
    }
    b.want("c", "c");
    assert_eq!(b.workers.next(false, b.now).map(|j| j.uid), Some(PodUid::new("c")));
    assert!(b.workers.next(false, b.now).is_none());
    assert_eq!(b.jobs(), ["terminate a", "terminate b"]);
}

#[test]
fn a_pod_that_is_halted_stays_and_goes_on() {
    let mut b = Bench::new();
    b.want("a", "web");
    b.jobs();
    b.done("a", Next::Rest);
    assert!(!b.resume("a"), "it runs");
    b.halt("a", 5);
    assert_eq!((b.jobs(), b.limit("a"), b.alive()), (vec!["terminate a".to_owned()], Some(5), 1));
    b.out.get_mut("a").expect("is out").memory.failed = Some(failure("Terminated"));
    b.done_for("a", "Terminated", Next::Terminal);
    assert_eq!((b.jobs(), b.alive()), (vec![], 0));
    assert!(b.workers.is_ended(&PodUid::new("a")));
    b.touch("a");
    b.halt("a", 1);
    b.want("a", "web");
    assert_eq!(b.jobs(), NONE, "it has ended");
    assert!(b.resume("a") && !b.resume("a"));
    assert_eq!(b.jobs(), ["sync a"]);
    assert_eq!(b.out["a"].memory.failed, None);
    assert!(matches!(b.out["a"].kind, Kind::Sync { before: None, .. }));
    b.done("a", Next::Rest);
    // And again, with second thoughts before it has ended.
    b.halt("a", 5);
    b.jobs();
    assert!(!b.resume("a"), "it is still ending");
    b.done("a", Next::After(Duration::from_secs(60)));
    assert_eq!(b.jobs(), NONE);
    b.touch("a");
    assert_eq!(b.jobs(), ["terminate a"]);
    b.done("a", Next::Terminal);
    assert_eq!(b.jobs(), ["sync a"]);
}

#[test]
fn what_is_halted_may_be_unwanted_and_the_other_way_round() {
    let mut b = Bench::new();
    b.want("a", "web");
    b.jobs();
    b.done("a", Next::Rest);
    b.unwant("a");
    b.halt("a", 3);
    assert_eq!((b.jobs(), b.limit("a")), (vec!["terminate a".to_owned()], Some(3)));
    assert!(!b.resume("a"), "nobody wants it");
    b.done("a", Next::Terminal);
    assert_eq!(b.jobs(), ["remove a"]);
    assert!(b.done("a", Next::Terminal).gone);
    b.want("b", "web");
    b.jobs();
    b.halt("b", 3);
    // It came to its end by itself meanwhile: what is left of it is stopped all the same.
    b.done("b", Next::Terminal);
    assert_eq!(b.jobs(), ["terminate b"]);
    b.unwant("b");
    b.done("b", Next::Terminal);
    assert_eq!(b.jobs(), ["remove b"]);
}

#[test]
fn what_had_failed_before_it_was_halted_has_failed_still() {
    let mut b = Bench::new();
    b.want("a", "web");
    b.jobs();
    b.out.get_mut("a").expect("is out").memory.failed = Some(failure("DeadlineExceeded"));
    b.done_for("a", "DeadlineExceeded", Next::Terminal);
    assert_eq!(b.jobs(), ["terminate a"]);
    b.halt("a", 5);
    b.done_for("a", "DeadlineExceeded", Next::After(Duration::from_secs(60)));
    assert!(!b.resume("a"));
    assert_eq!((b.jobs(), b.limit("a")), (vec!["terminate a".to_owned()], Some(5)));
    b.done_for("a", "DeadlineExceeded", Next::Terminal);
    assert_eq!(b.jobs(), ["sync a"]);
    assert_eq!(b.out["a"].memory.failed, Some(failure("DeadlineExceeded")));
    assert!(
        matches!(&b.out["a"].kind, Kind::Sync { before: Some(status), .. } if status.phase.as_deref() == Some("Failed"))
    );
}
