//! How often something may be done, where it may be done so many times a second
//! (client-go/util/flowcontrol). Pure: time comes in.

use std::time::{Duration, Instant};

use crate::config::Rate;

/// Nobody is told to wait for longer.
const LONGEST: Duration = Duration::from_secs(3600);

/// A limit on how often something begins: `qps` times a second, after `burst` times at once.
#[derive(Debug)]
pub struct Bucket {
    interval: Duration,
    /// How far what has been given out may be ahead of its time.
    ahead: Duration,
    /// When all that has been given out would have been used up at the plain rate.
    used_up: Option<Instant>,
}

impl Bucket {
    pub fn new(rate: Rate) -> Bucket {
        let interval = Duration::from_secs(1) / rate.qps.max(1);
        Bucket { interval, ahead: interval * rate.burst.max(1).saturating_sub(1), used_up: None }
    }

    /// Takes one, and returns how long to wait before it may be used.
    pub fn take(&mut self, now: Instant) -> Duration {
        let (used_up, wait) = self.look(now);
        self.used_up = Some(used_up + self.interval);
        wait
    }

    /// Takes one if it may be used now.
    ///
    /// # Errors
    /// How long it takes until there is one.
    pub fn try_take(&mut self, now: Instant) -> Result<(), Duration> {
        let (used_up, wait) = self.look(now);
        if !wait.is_zero() {
            return Err(wait);
        }
        self.used_up = Some(used_up + self.interval);
        Ok(())
    }

    /// From when on the next one counts, and how long it has to wait.
    fn look(&self, now: Instant) -> (Instant, Duration) {
        let used_up = self.used_up.map_or(now, |at| at.max(now));
        (used_up, used_up.duration_since(now).saturating_sub(self.ahead).min(LONGEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_gives_a_burst_and_then_the_rate() {
        let start = Instant::now();
        let millis = |ms| start + Duration::from_millis(ms);
        let mut bucket = Bucket::new(Rate { qps: 5, burst: 3 });
        let waits: Vec<_> = (0..5).map(|_| bucket.take(start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 200, 400]);
        // 600 ms later one of the three is there again.
        assert_eq!(bucket.take(millis(600)).as_millis(), 0);
        assert_eq!(bucket.take(millis(600)).as_millis(), 200);
        // After a long time it is full, and no fuller.
        let waits: Vec<_> = (0..4).map(|_| bucket.take(millis(3_600_000)).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 200]);
    }

    #[test]
    fn a_burst_and_then_one_at_a_time() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Rate { qps: 2, burst: 3 });
        let waits: Vec<_> = (0..5).map(|_| bucket.take(start).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 500, 1000]);
        assert_eq!(bucket.take(start + Duration::from_secs(60)), Duration::ZERO);
    }

    #[test]
    fn who_can_wait_is_told_how_long() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut bucket = Bucket::new(Rate { qps: 2, burst: 2 });
        for (at, want) in [
            (0, Ok(())),
            (0, Ok(())),
            (0, Err(ms(500))),
            (250, Err(ms(250))),
            (500, Ok(())),
            (500, Err(ms(500))),
            (60_000, Ok(())),
            (60_000, Ok(())),
            (60_000, Err(ms(500))),
        ] {
            assert_eq!(bucket.try_take(start + ms(at)), want, "{at}");
        }
    }
}
