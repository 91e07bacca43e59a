//! Waiting longer each time that something fails again (client-go/util/flowcontrol/backoff.go).

use std::time::{Duration, Instant};

/// The first wait.
pub const INITIAL: Duration = Duration::from_secs(10);
/// The longest wait.
pub const MAX: Duration = Duration::from_secs(300);

/// The wait after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub delay: Duration,
    /// When the attempt was made.
    attempted: Instant,
}

impl Backoff {
    /// How long still to wait at `now`, when the last attempt came to its end at `failed`.
    pub fn left(self, failed: Instant, now: Instant) -> Option<Duration> {
        if self.is_over(failed) {
            return None;
        }
        let until = failed + self.delay;
        (now < until).then(|| until - now)
    }

    /// The wait after an attempt at `now`, that follows one which came to its end at `failed`.
    pub fn next(before: Option<Backoff>, failed: Instant, now: Instant, max: Duration) -> Backoff {
        let delay = match before {
            Some(b) if !b.is_over(failed) => (b.delay * 2).min(max),
            _ => INITIAL.min(max),
        };
        Backoff { delay, attempted: now }
    }

    /// As [`Backoff::next`], for what fails at once.
    pub fn again(before: Option<Backoff>, now: Instant) -> Backoff {
        Backoff::next(before, now, now, MAX)
    }

    /// As [`Backoff::left`], for what fails at once.
    pub fn left_at(self, now: Instant) -> Option<Duration> {
        self.left(self.attempted, now)
    }

    /// What held for twice the longest wait is forgiven.
    fn is_over(self, failed: Instant) -> bool {
        failed.saturating_duration_since(self.attempted) > 2 * MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_the_limit_and_is_forgiven() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut backoff = None;
        let mut now = 0;
        let mut delays = Vec::new();
        for _ in 0..7 {
            // It runs for one second each time.
            let failed = at(now + 1);
            let next = Backoff::next(backoff, failed, failed, MAX);
            delays.push(next.delay.as_secs());
            assert_eq!(next.left(failed, failed), Some(next.delay));
            assert_eq!(next.left(failed, failed + next.delay), None);
            now += 1 + next.delay.as_secs();
            backoff = Some(next);
        }
        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300]);
        let last = backoff.expect("set");
        let good_run = last.attempted + 2 * MAX;
        assert!(last.left(good_run, good_run).is_some(), "ten minutes are not more than ten minutes");
        let long_run = good_run + Duration::from_secs(1);
        assert_eq!(last.left(long_run, long_run), None);
        assert_eq!(Backoff::next(backoff, long_run, long_run, MAX).delay, INITIAL);
        assert_eq!(Backoff::again(backoff, long_run).delay, INITIAL);
        assert_eq!(Backoff::again(backoff, good_run).left_at(good_run), Some(MAX));
        assert_eq!(Backoff::next(backoff, at(now), at(now), Duration::from_secs(60)).delay.as_secs(), 60);
    }
}
