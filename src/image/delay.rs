//! Waiting longer each time that something about an image fails again.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_secs(10);
const MAX: Duration = Duration::from_secs(300);

/// The wait after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    delay: Duration,
    failed: Instant,
}

impl Delay {
    /// After a failure at `now`, which is not the first if there is one before it. What is long over
    /// doesn't count.
    pub fn next(before: Option<Delay>, now: Instant) -> Delay {
        let before = before.filter(|b| now.saturating_duration_since(b.failed) <= 2 * MAX);
        Delay { delay: before.map_or(FIRST, |b| (b.delay * 2).min(MAX)), failed: now }
    }

    /// How long still to wait.
    pub fn left(self, now: Instant) -> Option<Duration> {
        let left = (self.failed + self.delay).checked_duration_since(now)?;
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_the_limit_and_is_forgiven() {
        let mut now = Instant::now();
        let mut delays = Vec::new();
        let mut delay = None;
        for _ in 0..7 {
            let next = Delay::next(delay, now);
            delays.push(next.left(now).map_or(0, |left| left.as_secs()));
            assert_eq!(next.left(now + next.delay), None);
            delay = Some(next);
            now += next.delay;
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
        now += Duration::from_secs(301);
        assert_eq!(Delay::next(delay, now).delay, FIRST);
    }
}
