//! Which pods end together, and how long they get. Pure.

use std::time::Duration;

use crate::config;

/// The priorities of pods that say nothing, and from which on they are critical.
const ORDINARY: i32 = 0;
const CRITICAL: i32 = 2_000_000_000;
/// Nobody waits for longer.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Groups of pods, from the least priority up; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    first: Group,
    others: Vec<Group>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    /// From this on a pod is in it.
    priority: i32,
    period: Duration,
}

impl Plan {
    /// `None` when pods end as they come.
    pub fn new(config: &config::Shutdown) -> Option<Plan> {
        let groups = match config {
            config::Shutdown::Off => return None,
            config::Shutdown::Graceful { total, critical } => {
                vec![(ORDINARY, total.saturating_sub(*critical)), (CRITICAL, *critical)]
            }
            config::Shutdown::ByPriority(groups) => groups.clone(),
        };
        // Whole seconds, as grace periods are.
        let seconds = |period: Duration| Duration::from_secs(period.min(LONGEST).as_secs());
        let group = |(priority, period)| Group { priority, period: seconds(period) };
        let mut groups: Vec<_> = groups.into_iter().map(group).collect();
        groups.sort_by_key(|group| group.priority);
        let mut groups = groups.into_iter();
        Some(Plan { first: groups.next()?, others: groups.collect() })
    }

    /// The time for all of them.
    pub fn total(&self) -> Duration {
        self.others.iter().fold(self.first.period, |sum, group| sum.saturating_add(group.period))
    }

    /// The group of a pod: the last one that its priority reaches, else the first.
    pub fn group(&self, priority: Option<i32>) -> usize {
        let priority = priority.unwrap_or(ORDINARY);
        self.others.iter().take_while(|group| group.priority <= priority).count()
    }

    /// How long the pods of a group get; `None` when there is no such group.
    pub fn period(&self, group: usize) -> Option<Duration> {
        match group.checked_sub(1) {
            None => Some(self.first.period),
            Some(index) => self.others.get(index).map(|group| group.period),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn groups_by_priority() {
        let by_priority = config::Shutdown::ByPriority(vec![(1000, secs(5)), (10, secs(3)), (100, secs(0))]);
        let plan = Plan::new(&by_priority).expect("has groups");
        assert_eq!(plan.total(), secs(8));
        let table = [
            (None, 0),
            (Some(i32::MIN), 0),
            (Some(0), 0),
            (Some(10), 0),
            (Some(99), 0),
            (Some(100), 1),
            (Some(999), 1),
            (Some(1000), 2),
            (Some(i32::MAX), 2),
        ];
        for (priority, group) in table {
            assert_eq!(plan.group(priority), group, "{priority:?}");
        }
        let periods: Vec<_> = (0..4).map(|group| plan.period(group)).collect();
        assert_eq!(periods, [Some(secs(3)), Some(secs(0)), Some(secs(5)), None]);
    }

    #[test]
    fn ordinary_and_critical() {
        let graceful = |total, critical| config::Shutdown::Graceful { total, critical };
        let plan = Plan::new(&graceful(secs(30), secs(10))).expect("has groups");
        assert_eq!((plan.period(0), plan.period(1), plan.period(2)), (Some(secs(20)), Some(secs(10)), None));
        let groups = [Some(1_999_999_999), Some(2_000_000_000), Some(2_000_001_000), Some(-1)];
        assert_eq!(groups.map(|priority| plan.group(priority)), [0, 1, 1, 0]);
        let plan = Plan::new(&graceful(secs(30), secs(0))).expect("has groups");
        assert_eq!((plan.period(0), plan.period(1), plan.total()), (Some(secs(30)), Some(secs(0)), secs(30)));
        let plan = Plan::new(&graceful(Duration::from_millis(3500), secs(1))).expect("has groups");
        assert_eq!((plan.period(0), plan.period(1)), (Some(secs(2)), Some(secs(1))));
        let endless = config::Shutdown::ByPriority(vec![(0, Duration::MAX), (1, secs(u64::MAX))]);
        assert_eq!(Plan::new(&endless).map(|plan| plan.total()), Some(2 * LONGEST));
        assert_eq!(Plan::new(&config::Shutdown::Off), None);
        assert_eq!(Plan::new(&config::Shutdown::ByPriority(vec![])), None);
    }
}
