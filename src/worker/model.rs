//! The workers against a small model: pods are wanted, dropped, touched and reported on at random. The
//! rules hold at every step, and when it is quiet exactly what is wanted is being kept running.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;
use crate::pod::{PodName, Source};
use crate::runtime::Halt;
use crate::status::{FailedBy, PodFailure};

const SEEDS: u64 = 2000;
const STEPS: usize = 120;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n as u64).expect("small")
    }
}

/// What the runtime has of a pod, as far as the model goes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Life {
    Runs,
    Stopped,
}

struct World {
    workers: Workers,
    now: Instant,
    out: BTreeMap<String, Job>,
    wanted: BTreeSet<String>,
    life: BTreeMap<String, Life>,
    story: Vec<String>,
}

/// Two UIDs for each of three names.
fn name_of(uid: &str) -> &str {
    &uid[..1]
}

fn pod(uid: &str) -> Arc<Pod> {
    Arc::new(Pod {
        uid: PodUid::new(uid),
        name: PodName::new("default", name_of(uid)),
        source: Source::File,
        origin: "/m/a.yaml".into(),
        status: None,
        meta: Default::default(),
        spec: Default::default(),
    })
}

impl World {
    fn step(&mut self, random: &mut Random) {
        let uid = ["a1", "a2", "b1", "b2", "c1", "c2"][random.below(6)];
        match random.below(10) {
            0 | 1 => {
                // Of one name one pod is wanted at a time.
                let other = self.wanted.iter().find(|w| name_of(w) == name_of(uid) && *w != uid).cloned();
                if let Some(other) = other {
                    self.unwant(&other);
                }
                self.story.push(format!("want {uid}"));
                self.wanted.insert(uid.to_owned());
                self.workers.want(pod(uid), self.now);
            }
            2 => self.unwant(uid),
            3 => self.workers.touch(&PodUid::new(uid), Some(self.now)),
            4 => {
                self.now += Duration::from_millis(500);
                self.workers.tick(self.now);
            }
            5 => self.give(random.below(2) == 0),
            6 => {
                self.story.push(format!("halt {uid}"));
                let failure = PodFailure { reason: "Terminated", message: String::new(), by: FailedBy::Node };
                self.workers.halt(&PodUid::new(uid), Halt { grace: Duration::ZERO, failure });
            }
            7 => self.resume(uid),
            _ => {
                let names: Vec<_> = self.out.keys().cloned().collect();
                if !names.is_empty() {
                    let uid = names[random.below(names.len())].clone();
                    self.finish(&uid, random.below(5) == 0);
                }
            }
        }
    }

    fn resume(&mut self, uid: &str) {
        self.story.push(format!("resume {uid}"));
        self.workers.resume(&PodUid::new(uid));
    }

    fn unwant(&mut self, uid: &str) {
        if self.wanted.remove(uid) {
            self.story.push(format!("unwant {uid}"));
            self.workers.unwant(&PodUid::new(uid));
        }
    }

    fn give(&mut self, endings: bool) {
        let Some(job) = self.workers.next(endings, self.now) else { return };
        let uid = job.uid.to_string();
        self.story.push(format!("job {uid} {:?}", job.kind.is_ending()));
        let told = || self.story.join("\n");
        assert!(!self.out.contains_key(&uid), "two jobs of {uid}\n{}", told());
        if let Kind::Sync { .. } = job.kind {
            let others = self.life.iter().filter(|(other, _)| name_of(other) == name_of(&uid) && **other != uid);
            let running: Vec<_> = others.filter(|(_, life)| **life == Life::Runs).collect();
            assert!(running.is_empty(), "{uid} begins beside {running:?}\n{}", told());
        }
        self.out.insert(uid, job);
    }

    fn finish(&mut self, uid: &str, fails: bool) {
        let job = self.out.remove(uid).expect("is out");
        self.story.push(format!("done {uid}{}", if fails { ", failed" } else { "" }));
        let next = match &job.kind {
            _ if fails => Err(Failed { message: "no".to_owned(), unreachable: false }),
            Kind::Sync { .. } => {
                let before = self.life.insert(uid.to_owned(), Life::Runs);
                Ok(if before == Some(Life::Runs) { Next::Rest } else { Next::Again })
            }
            Kind::Terminate { .. } => {
                if let Some(life) = self.life.get_mut(uid) {
                    *life = Life::Stopped;
                }
                Ok(Next::Terminal)
            }
            Kind::Remove(_) => {
                self.life.remove(uid);
                Ok(Next::Terminal)
            }
        };
        let ending = job.kind.is_ending();
        let report = Report { uid: job.uid, ending, memory: Some(job.memory), next, status: None };
        if let Some(again) = self.workers.report(report, self.now).again {
            self.workers.want(again, self.now);
        }
    }

    /// Everything that can be done is done, over and over.
    fn quiet(&mut self) {
        ["a1", "a2", "b1", "b2", "c1", "c2"].into_iter().for_each(|uid| self.resume(uid));
        for _ in 0..200 {
            self.now += Duration::from_secs(1);
            self.workers.tick(self.now);
            for _ in 0..12 {
                self.give(true);
            }
            for uid in self.out.keys().cloned().collect::<Vec<_>>() {
                self.finish(&uid, false);
            }
        }
        let running: BTreeSet<_> = self.life.keys().cloned().collect();
        assert_eq!(running, self.wanted, "{}", self.story.join("\n"));
        assert!(self.life.values().all(|life| *life == Life::Runs), "{:?}\n{}", self.life, self.story.join("\n"));
        for uid in ["a1", "a2", "b1", "b2", "c1", "c2"] {
            assert_eq!(self.workers.knows(&PodUid::new(uid)), self.wanted.contains(uid), "{uid}");
        }
    }
}

#[test]
fn what_is_wanted_runs_in_the_end_and_nothing_else() {
    for seed in 1..=SEEDS {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut world = World {
            workers: Workers::new(Duration::from_secs(60)),
            now: Instant::now(),
            out: BTreeMap::new(),
            wanted: BTreeSet::new(),
            life: BTreeMap::new(),
            story: vec![format!("seed {seed}")],
        };
        for _ in 0..STEPS {
            world.step(&mut random);
        }
        world.quiet();
    }
}
