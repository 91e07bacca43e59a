//! How long to wait before the server is asked again after a failure. Pure; chance is passed in.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// The first wait, and the longest one (client-go's reflector has 0.8 s and 30 s).
const FIRST: Duration = Duration::from_millis(800);
const LONGEST: Duration = Duration::from_secs(30);

/// Counts failures in a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retry {
    failures: u32,
}

impl Retry {
    /// After one more failure: how long to wait. `asked`: what the server asked for, which counts when
    /// it is more. `chance`: 0.0 to 1.0; by it the nodes of a cluster don't come back all at once.
    pub fn fails(&mut self, asked: Option<Duration>, chance: f64) -> Duration {
        let base = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        // Up to twice as long.
        let wait = base.mul_f64(1.0 + chance.clamp(0.0, 1.0));
        asked.map_or(wait, |asked| asked.max(wait))
    }

    pub fn succeeds(&mut self) {
        self.failures = 0;
    }

    pub fn failures(self) -> u32 {
        self.failures
    }
}

/// A number from 0.0 to 1.0, another one each time.
pub fn chance() -> f64 {
    // Each state has keys of its own, which are random.
    let bits = RandomState::new().hash_one(0);
    f64::from(u32::try_from(bits >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_with_chance_up_to_a_limit() {
        let mut retry = Retry::default();
        let waits: Vec<_> = (0..8).map(|_| retry.fails(None, 0.0).as_millis()).collect();
        assert_eq!(waits, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(retry.fails(None, 1.0), 2 * LONGEST);
        assert_eq!(retry.fails(Some(Duration::from_secs(90)), 1.0), Duration::from_secs(90));
        retry.succeeds();
        assert_eq!(retry.fails(None, 0.5), Duration::from_millis(1200));
        assert_eq!(retry.fails(Some(Duration::from_secs(1)), 0.0), Duration::from_millis(1600));
    }

    #[test]
    fn chances_differ() {
        let all: Vec<_> = (0..100).map(|_| chance()).collect();
        assert!(all.iter().all(|c| (0.0..=1.0).contains(c)), "{all:?}");
        assert!(all.iter().any(|c| *c < 0.5) && all.iter().any(|c| *c > 0.5), "{all:?}");
    }
}
