//! How far a shutdown is. Pure: it is told what there is, and says what to do.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::plan::Plan;
use crate::pod::PodUid;

/// How long the API server may take to hear of the last pods, before the machine goes on all the same.
const TELLING: Duration = Duration::from_secs(5);

/// A pod that has not been stopped yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alive {
    pub uid: PodUid,
    pub priority: Option<i32>,
}

#[derive(Debug)]
pub struct Course {
    plan: Plan,
    at: At,
    /// Those that have been told to end.
    ending: HashSet<PodUid>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// This group ends, and has time until then.
    Group {
        index: usize,
        until: Instant,
    },
    /// All groups are through; the API server is told.
    Telling {
        until: Instant,
    },
    Through,
}

impl Course {
    pub fn new(plan: Plan, now: Instant) -> Course {
        let until = now + plan.period(0).unwrap_or_default();
        Course { plan, at: At::Group { index: 0, until }, ending: HashSet::new() }
    }

    /// Goes on as far as can be. `alive`: the pods; `all`: whether there can be no others. Returns those
    /// that are to end now, and the time that they have for it.
    pub fn advance(&mut self, alive: &[Alive], all: bool, now: Instant) -> Vec<(PodUid, Duration)> {
        let mut end = Vec::new();
        while let At::Group { index, until } = self.at {
            for pod in alive {
                let group = self.plan.group(pod.priority);
                // One that came late is of a group that was before.
                if group <= index && self.ending.insert(pod.uid.clone()) {
                    end.push((pod.uid.clone(), self.plan.period(group).unwrap_or_default()));
                }
            }
            let of_group = alive.iter().any(|pod| self.plan.group(pod.priority) == index);
            if (of_group || !all) && now < until {
                break;
            }
            self.at = match self.plan.period(index + 1) {
                Some(period) => At::Group { index: index + 1, until: now + period },
                None => At::Telling { until: now + TELLING },
            };
        }
        end
    }

    /// Whether all groups have had their time, so that it is the API server that is waited for.
    pub fn is_telling(&self) -> bool {
        matches!(self.at, At::Telling { .. })
    }

    /// Ends the waiting for the API server, when it has been told of all or takes too long. Returns
    /// whether that was just now.
    pub fn end(&mut self, told: bool, now: Instant) -> bool {
        match self.at {
            At::Telling { until } if told || now >= until => {
                self.at = At::Through;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn pods(names: &[(&str, i32)]) -> Vec<Alive> {
        names.iter().map(|(uid, p)| Alive { uid: PodUid::new(*uid), priority: Some(*p) }).collect()
    }

    /// Groups of 0 on for 10 s, 100 on for 0 s, 200 on for 20 s.
    fn course(now: Instant) -> Course {
        let groups = [(0, 10), (100, 0), (200, 20)].map(|(p, s)| (p, Duration::from_secs(s)));
        Course::new(Plan::new(&config::Shutdown::ByPriority(groups.to_vec())).expect("has groups"), now)
    }

    fn told(end: &[(PodUid, Duration)]) -> Vec<(&str, u64)> {
        end.iter().map(|(uid, time)| (uid.as_str(), time.as_secs())).collect()
    }

    #[test]
    fn one_group_after_the_other() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        type Row<'a> = (u64, &'a [(&'a str, i32)], &'a [(&'a str, u64)]);
        // Second; who is alive; who is told to end.
        let in_time: &[Row] = &[
            (0, &[("low", 0), ("low2", 5), ("high", 300)], &[("low", 10), ("low2", 10)]),
            (3, &[("low2", 5), ("high", 300)], &[]),
            (4, &[("high", 300)], &[("high", 20)]),
            (5, &[("high", 300)], &[]),
        ];
        let too_late: &[Row] = &[
            (0, &[("low", 0), ("mid", 100), ("high", 300)], &[("low", 10)]),
            (9, &[("low", 0), ("mid", 100), ("high", 300)], &[]),
            // The one between has no time, and the next begins with it.
            (10, &[("low", 0), ("mid", 100), ("high", 300)], &[("mid", 0), ("high", 20)]),
            (29, &[("low", 0), ("high", 300), ("new", 1)], &[("new", 10)]),
        ];
        let empty: &[Row] = &[(0, &[("high", 300)], &[("high", 20)]), (19, &[("high", 300)], &[])];
        for rows in [in_time, too_late, empty] {
            let mut course = course(start);
            for (second, alive, want) in rows {
                let end = course.advance(&pods(alive), true, at(*second));
                assert_eq!(told(&end), *want, "at {second} s of {rows:?}");
                assert!(!course.is_telling() && !course.end(true, at(*second)), "at {second} s of {rows:?}");
            }
            // The last one's time is over, or it has ended.
            assert!(course.advance(&pods(&[("high", 300)]), true, at(30)).is_empty());
            assert!(course.is_telling());
        }
    }

    #[test]
    fn it_waits_for_the_server_but_not_for_ever() {
        let start = Instant::now();
        for (told, second, want) in [(false, 0, false), (true, 0, true), (false, 4, false), (false, 5, true)] {
            let mut course = course(start);
            assert!(course.advance(&[], true, start).is_empty() && course.is_telling());
            let now = start + Duration::from_secs(second);
            assert_eq!(course.end(told, now), want, "{told} {second}");
            assert!(!course.end(told, now) || !want, "once");
            assert_eq!(course.is_telling(), !want);
        }
    }

    #[test]
    fn pods_may_not_be_known_yet() {
        let start = Instant::now();
        let mut course = course(start);
        assert!(course.advance(&[], false, start).is_empty() && !course.is_telling());
        let late = course.advance(&pods(&[("late", 7)]), true, start + Duration::from_secs(2));
        assert_eq!(told(&late), [("late", 10)]);
        // Nor ever: each group has its time.
        let mut course = super::tests::course(start);
        for (second, telling) in [(9, false), (10, false), (29, false), (30, true)] {
            assert!(course.advance(&[], false, start + Duration::from_secs(second)).is_empty());
            assert_eq!(course.is_telling(), telling, "{second}");
        }
    }
}
