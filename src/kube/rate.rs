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
        Bucket { tokens: f64::from(rate.burst), rate, at: None }
    }

    /// Takes a token, and returns how long to wait before the request is sent.
    pub fn take(&mut self, now: Instant) -> Duration {
        let per_second = f64::from(self.rate.qps).max(0.001);
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.at = Some(now);
        self.tokens = (self.tokens + passed.as_secs_f64() * per_second).min(f64::from(self.rate.burst).max(1.0)) - 1.0;
        Duration::from_secs_f64((-self.tokens / per_second).clamp(0.0, 3600.0))
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
}
