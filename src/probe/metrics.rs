//! Counts of probes, under the kubelet's names: `prober_probe_total` and
//! `prober_probe_duration_seconds` (pkg/kubelet/prober/prober_manager.go).

use std::sync::Arc;
use std::time::Duration;

use super::Kind;
use super::worker::Outcome;
use crate::pod::{PodName, PodUid};

/// Upper bounds in milliseconds of the buckets of `prober_probe_duration_seconds`.
pub const DURATION_BUCKETS: [u64; 11] = [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000];
/// Upper bounds in milliseconds of the buckets of [`Snapshot::lateness`].
pub const LATENESS_BUCKETS: [u64; 11] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000];

/// A histogram with 11 buckets and one for what exceeds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    bounds: &'static [u64; 11],
    /// How many fell into each bucket alone; the last one has no bound.
    counts: [u64; 12],
    sum: Duration,
}

impl Histogram {
    pub fn new(bounds: &'static [u64; 11]) -> Histogram {
        Histogram { bounds, counts: [0; 12], sum: Duration::ZERO }
    }

    pub fn observe(&mut self, value: Duration) {
        let bucket = self.bounds.iter().position(|bound| value <= Duration::from_millis(*bound));
        if let Some(count) = self.counts.get_mut(bucket.unwrap_or(self.bounds.len())) {
            *count += 1;
        }
        self.sum += value;
    }

    /// Each upper bound in milliseconds with the number of values up to it.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut total = 0;
        self.bounds.iter().zip(self.counts).map(move |(bound, count)| {
            total += count;
            (*bound, total)
        })
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn sum(&self) -> Duration {
        self.sum
    }
}

/// The counts of one probe. They outlast a restart of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counts {
    pub successful: u64,
    pub failed: u64,
    pub unknown: u64,
    pub durations: Histogram,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { successful: 0, failed: 0, unknown: 0, durations: Histogram::new(&DURATION_BUCKETS) }
    }
}

impl Counts {
    pub fn count(&mut self, outcome: &Outcome, duration: Duration) {
        match outcome {
            Outcome::Success | Outcome::Warning(_) => {
                self.successful += 1;
                self.durations.observe(duration);
            }
            Outcome::Failure(_) => self.failed += 1,
            Outcome::Error(_) => self.unknown += 1,
        }
    }
}

/// The counts of one probe with its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeMetrics {
    /// `probe_type`
    pub kind: Kind,
    pub container: Arc<str>,
    /// `namespace` and `pod`
    pub pod: PodName,
    /// `pod_uid`, which the durations don't have.
    pub uid: PodUid,
    /// The three values of `result`. Probes that could not be made are unknown; the kubelet doesn't
    /// count those at all.
    pub successful: u64,
    pub failed: u64,
    pub unknown: u64,
    /// Of successful probes, with all their tries.
    pub durations: Histogram,
}

/// All counts at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub probes: Vec<ProbeMetrics>,
    /// How much later than they were due attempts were begun. The kubelet has no such metric.
    pub lateness: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_their_buckets() {
        let mut h = Histogram::new(&DURATION_BUCKETS);
        for ms in [0, 5, 6, 10_000, 10_001, 60_000] {
            h.observe(Duration::from_millis(ms));
        }
        let cumulative: Vec<_> = h.cumulative().collect();
        assert_eq!(cumulative.first(), Some(&(5, 2)));
        assert_eq!(cumulative.get(1), Some(&(10, 3)));
        assert_eq!(cumulative.last(), Some(&(10_000, 4)));
        assert_eq!(h.count(), 6);
        assert_eq!(h.sum(), Duration::from_millis(80_012));
    }

    #[test]
    fn only_successes_have_a_duration() {
        let mut counts = Counts::default();
        let second = Duration::from_secs(1);
        counts.count(&Outcome::Success, second);
        counts.count(&Outcome::Warning(String::new()), second);
        counts.count(&Outcome::Failure(String::new()), second);
        counts.count(&Outcome::Error(String::new()), second);
        assert_eq!((counts.successful, counts.failed, counts.unknown), (2, 1, 1));
        assert_eq!(counts.durations.count(), 2);
    }
}
