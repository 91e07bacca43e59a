//! The threads that answer: a bounded lane for each class of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::request::Class;
use crate::lane::Lane;

/// Threads, and requests that may wait for one of them besides.
const QUICK: (usize, usize) = (2, 128);
const READ: (usize, usize) = (2, 128);
const SLOW: (usize, usize) = (4, 32);
/// A stream that waits for others to end would wait for ever.
const STREAM: (usize, usize) = (64, 0);

pub struct Classes {
    quick: Bounded,
    read: Bounded,
    slow: Bounded,
    stream: Bounded,
}

impl Default for Classes {
    fn default() -> Classes {
        Classes {
            quick: Bounded::new("http-quick", QUICK),
            read: Bounded::new("http-read", READ),
            slow: Bounded::new("http-slow", SLOW),
            stream: Bounded::new("http-stream", STREAM),
        }
    }
}

impl Classes {
    /// A place for a request of this class, if there is one.
    pub fn enter(&self, class: Class) -> Option<Place> {
        match class {
            Class::Quick => self.quick.enter(),
            Class::Read => self.read.enter(),
            Class::Slow => self.slow.enter(),
            Class::Stream => self.stream.enter(),
        }
    }
}

struct Bounded {
    lane: Lane,
    open: Arc<AtomicUsize>,
    most: usize,
}

impl Bounded {
    fn new(name: &'static str, (threads, waiting): (usize, usize)) -> Bounded {
        Bounded { lane: Lane::new(name, threads), open: Arc::default(), most: threads + waiting }
    }

    fn enter(&self) -> Option<Place> {
        let place = Place { lane: self.lane.clone(), open: self.open.clone() };
        // Dropping a place that there isn't takes the count back.
        (self.open.fetch_add(1, Ordering::Relaxed) < self.most).then_some(place)
    }
}

/// Taken until it is dropped, or the work that was given to it is done.
pub struct Place {
    lane: Lane,
    open: Arc<AtomicUsize>,
}

impl Place {
    pub fn work(self, work: impl FnOnce() + Send + 'static) {
        let lane = self.lane.clone();
        lane.submit(move || {
            let _place = self;
            work();
        });
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let classes = Classes::default();
        let places: Vec<_> = (0..SLOW.0 + SLOW.1).map(|_| classes.enter(Class::Slow).expect("there is room")).collect();
        assert!(classes.enter(Class::Slow).is_none() && classes.enter(Class::Quick).is_some());
        drop(places);
        assert!(classes.enter(Class::Slow).is_some());
    }
}
