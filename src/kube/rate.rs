//! How often requests may be sent (kubeAPIQPS, kubeAPIBurst; client-go/util/flowcontrol). Pure.

use std::time::{Duration, Instant};

use crate::config::Rate;

/// Tokens that come back with time; a request takes one, in advance if need be.
#[derive(Debug)]
pub struct Bucket {
    rate: Rate,
    tokens: f64,
    at: Option<Instant>,
}

impl Bucket {
    pub fn new(rate: Rate) -> Bucket {
        Bucket { tokens: f64::from(rate.burst).max(1.0), rate, at: None }
    }

    /// Takes a token, and returns how long to wait before the request is sent.
    pub fn take(&mut self, now: Instant) -> Duration {
        self.refill(now);
        self.tokens -= 1.0;
        self.time_for(-self.tokens)
    }

    /// Takes a token if there is one.
    ///
    /// # Errors
    /// How long it takes until there is.
    pub fn try_take(&mut self, now: Instant) -> Result<(), Duration> {
        self.refill(now);
        // Many parts of one may be a bit less than one.
        if self.tokens < 1.0 - 1e-6 {
            return Err(self.time_for(1.0 - self.tokens));
        }
        self.tokens -= 1.0;
        Ok(())
    }

    fn refill(&mut self, now: Instant) {
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.at = Some(now);
        let most = f64::from(self.rate.burst).max(1.0);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.per_second()).min(most);
    }

    fn per_second(&self) -> f64 {
        f64::from(self.rate.qps).max(0.001)
    }

    fn time_for(&self, tokens: f64) -> Duration {
        Duration::from_secs_f64((tokens / self.per_second()).clamp(0.0, 3600.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
