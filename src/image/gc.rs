//! Which images are removed: those that nobody has used for longest, when the disk is fuller than
//! it may be, and those that nobody has used for a long time (pkg/kubelet/images/image_gc_manager.go).
//! Pure.
//!
//! When an image was last used is known from what was seen since the agent was started; one that
//! has not been seen in use counts from when it was first seen. Nothing of it is kept on disk: that
//! would cost writes all the time, for an order among images that nobody uses.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::config;
use crate::cri::Image;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Percent of disk use from which images are removed; 100 means never.
    pub high: u8,
    /// Percent of disk use down to which they are.
    pub low: u8,
    /// A younger one is not removed.
    pub min_age: Duration,
    /// One that has not been used for longer is removed, whatever the disk.
    pub max_age: Option<Duration>,
}

impl From<&config::Image> for Policy {
    fn from(c: &config::Image) -> Policy {
        Policy {
            high: c.gc_high_threshold,
            low: c.gc_low_threshold,
            min_age: c.minimum_gc_age,
            max_age: c.maximum_gc_age,
        }
    }
}

/// The disk that holds the images, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    pub capacity: u64,
    pub available: u64,
}

impl Disk {
    /// How much to free so that the disk is down to the low threshold; 0 while it is not up to the
    /// high one.
    pub fn to_free(self, policy: &Policy) -> u64 {
        let (capacity, available) = (u128::from(self.capacity), u128::from(self.available.min(self.capacity)));
        if policy.high >= 100 || capacity == 0 {
            return 0;
        }
        let used_percent = 100 - available * 100 / capacity;
        if used_percent < u128::from(policy.high) {
            return 0;
        }
        let wanted = capacity * (100 - u128::from(policy.low.min(100))) / 100;
        u64::try_from(wanted.saturating_sub(available)).unwrap_or(u64::MAX)
    }
}

/// What has been seen of images, by id.
#[derive(Debug, Default)]
pub struct Ledger(HashMap<String, Seen>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    first: Instant,
    used: Option<Instant>,
}

/// An image that may be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub id: String,
    pub size: u64,
    /// Unused for longer than the policy has it.
    pub old: bool,
}

impl Ledger {
    /// Takes in the images that there are, and which of them are in use.
    pub fn see(&mut self, images: &[Image], in_use: impl Fn(&Image) -> bool, now: Instant) {
        let mut before = std::mem::take(&mut self.0);
        for image in images {
            let mut seen = before.remove(&image.id).unwrap_or(Seen { first: now, used: None });
            if in_use(image) {
                seen.used = Some(now);
            }
            self.0.insert(image.id.clone(), seen);
        }
    }

    /// The images that may be removed, in the order in which they are: the longest unused first, and
    /// of those that are alike the largest. Call it after [`see`](Ledger::see), at the same time.
    pub fn candidates(&self, images: &[Image], policy: &Policy, now: Instant) -> Vec<Candidate> {
        let free = images.iter().filter(|image| !image.pinned).filter_map(|image| {
            let seen = self.0.get(&image.id)?;
            let age = now.saturating_duration_since(seen.first);
            (seen.used != Some(now) && age >= policy.min_age).then_some((image, seen))
        });
        let mut free: Vec<_> = free.collect();
        free.sort_by(|(a, seen_a), (b, seen_b)| {
            let by_use = (seen_a.used, seen_a.first).cmp(&(seen_b.used, seen_b.first));
            by_use.then(b.size.cmp(&a.size)).then_with(|| a.id.cmp(&b.id))
        });
        let candidate = |(image, seen): (&Image, &Seen)| Candidate {
            id: image.id.clone(),
            size: image.size,
            old: policy.max_age.is_some_and(|max| now.saturating_duration_since(seen.used.unwrap_or(seen.first)) > max),
        };
        free.into_iter().map(candidate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::image;
    use super::*;

    const DAY: u64 = 24 * 3600;

    fn policy(max_age: Option<u64>) -> Policy {
        Policy { high: 85, low: 80, min_age: Duration::from_secs(120), max_age: max_age.map(Duration::from_secs) }
    }

    #[test]
    fn how_much_to_free() {
        let table = [
            (1000, 500, 85, 80, 0),
            (1000, 151, 85, 80, 49),
            (1000, 160, 85, 80, 0),
            (1000, 150, 85, 80, 50),
            (1000, 0, 85, 80, 200),
            (1000, 0, 100, 99, 0),
            (1000, 2000, 85, 80, 0),
            (0, 0, 85, 80, 0),
            (u64::MAX, 0, 85, 0, u64::MAX),
            (1000, 1000, 0, 0, 0),
        ];
        for (capacity, available, high, low, want) in table {
            let policy = Policy { high, low, ..policy(None) };
            assert_eq!(Disk { capacity, available }.to_free(&policy), want, "{capacity} {available} {high} {low}");
        }
    }

    #[test]
    fn the_longest_unused_go_first() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut ledger = Ledger::default();
        let mut images =
            vec![image("never", &[], 1), image("big", &[], 9), image("long-ago", &[], 1), image("now", &[], 1)];
        ledger.see(&images, |i| i.id == "long-ago" || i.id == "recent", at(0));
        images.push(image("recent", &[], 1));
        images.push(Image { pinned: true, ..image("pinned", &[], 1) });
        ledger.see(&images, |i| i.id == "recent" || i.id == "now", at(500));
        images.push(image("young", &[], 1));
        ledger.see(&images, |i| i.id == "now", at(600));
        let ids =
            |now| -> Vec<_> { ledger.candidates(&images, &policy(None), now).into_iter().map(|c| c.id).collect() };
        assert_eq!(ids(at(600)), ["big", "never", "long-ago"]);
        ledger.see(&images, |i| i.id == "now", at(721));
        let ids: Vec<_> = ledger.candidates(&images, &policy(None), at(721)).into_iter().map(|c| c.id).collect();
        assert_eq!(ids, ["big", "never", "young", "long-ago", "recent"]);
        ledger.see(&[], |_| true, at(800));
        assert!(ledger.0.is_empty(), "what is gone is forgotten");
    }

    #[test]
    fn old_ones() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let images = [image("never", &[], 1), image("used", &[], 1)];
        let mut ledger = Ledger::default();
        ledger.see(&images, |i| i.id == "used", at(0));
        ledger.see(&images, |i| i.id == "used", at(DAY));
        let old = |ledger: &Ledger, max_age, now| -> Vec<_> {
            ledger.candidates(&images, &policy(max_age), now).into_iter().filter(|c| c.old).map(|c| c.id).collect()
        };
        assert!(old(&ledger, Some(DAY), at(DAY)).is_empty(), "counts from when it was first seen");
        assert_eq!(old(&ledger, Some(DAY), at(DAY + 1)), ["never"]);
        assert_eq!(old(&ledger, Some(DAY), at(2 * DAY + 1)), ["never", "used"]);
        assert!(old(&ledger, None, at(100 * DAY)).is_empty());
    }
}
