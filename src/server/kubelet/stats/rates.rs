//! How fast counts grow, for those who ask for a rate: between their last two readings.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Readings closer together than this say too little.
pub const CLOSE: Duration = Duration::from_secs(1);
/// A reading that is older tells nothing of now.
const OLD: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub struct Rates(Mutex<HashMap<String, Reading>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub per_second: u64,
    /// The time between the two readings.
    pub over: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Instant,
    count: u64,
    rate: Option<Rate>,
}

impl Rates {
    /// By how much the count of `id` grows in a second; `None` when it was not read before.
    pub fn observe(&self, id: &str, count: u64, now: Instant) -> Option<Rate> {
        let mut all = self.0.lock();
        let Some(last) = all.get_mut(id) else {
            // Here is where what has gone is forgotten: new ones come as often as old ones go.
            all.retain(|_, reading| now.saturating_duration_since(reading.at) < OLD);
            all.insert(id.to_owned(), Reading { at: now, count, rate: None });
            return None;
        };
        let time = now.saturating_duration_since(last.at);
        if time < CLOSE {
            return last.rate;
        }
        // What shrank was started anew.
        let grown = count.checked_sub(last.count).filter(|_| time < OLD);
        let per_second =
            grown.and_then(|grown| u64::try_from(u128::from(grown) * 1_000_000_000 / time.as_nanos()).ok());
        let rate = per_second.map(|per_second| Rate { per_second, over: time });
        *last = Reading { at: now, count, rate };
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_readings() {
        let (rates, start) = (Rates::default(), Instant::now());
        // (milliseconds, count, rate)
        let table = [
            (0, 1000, None),
            (500, 1500, None),
            (2000, 3000, Some(1000)),
            (2500, 9000, Some(1000)),
            (4000, 3000, Some(0)),
            (5000, 10, None),
            (7000, 30, Some(10)),
            (700_000, 40, None),
            (701_000, 41, Some(1)),
        ];
        for (ms, count, want) in table {
            let rate = rates.observe("a", count, start + Duration::from_millis(ms));
            assert_eq!(rate.map(|rate| rate.per_second), want, "at {ms}");
        }
        rates.observe("b", 1, start + Duration::from_secs(2000));
        assert_eq!(rates.0.lock().keys().collect::<Vec<_>>(), ["b"]);
    }
}
