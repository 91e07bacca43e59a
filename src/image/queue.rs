//! In what order images are pulled. Pure.

use std::collections::{HashMap, VecDeque};

/// Work that waits in line at its host, so many at once: a host that hangs holds up nobody but
/// those who want something of it.
#[derive(Debug)]
pub struct Lines<T> {
    /// At one host.
    limit: usize,
    hosts: HashMap<String, Line<T>>,
}

#[derive(Debug)]
struct Line<T> {
    running: usize,
    waiting: VecDeque<T>,
}

impl<T: PartialEq> Lines<T> {
    pub fn new(limit: usize) -> Lines<T> {
        Lines { limit: limit.max(1), hosts: HashMap::new() }
    }

    /// Puts `work` at the end of the line. Returns it when it may begin at once.
    pub fn enter(&mut self, host: &str, work: T) -> Option<T> {
        let line = self.hosts.entry(host.to_owned()).or_insert_with(|| Line { running: 0, waiting: VecDeque::new() });
        if line.running < self.limit {
            line.running += 1;
            return Some(work);
        }
        line.waiting.push_back(work);
        None
    }

    /// Work at `host` has come to its end. Returns what begins in its place.
    pub fn done(&mut self, host: &str) -> Option<T> {
        let line = self.hosts.get_mut(host)?;
        let next = line.waiting.pop_front();
        if next.is_none() {
            line.running = line.running.saturating_sub(1);
            if line.running == 0 {
                self.hosts.remove(host);
            }
        }
        next
    }

    /// Takes out what still waits.
    pub fn cancel(&mut self, host: &str, work: &T) {
        if let Some(line) = self.hosts.get_mut(host) {
            line.waiting.retain(|w| w != work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_each_host() {
        let mut lines = Lines::new(1);
        assert_eq!(lines.enter("a.io", 1), Some(1));
        assert_eq!(lines.enter("a.io", 2), None);
        assert_eq!(lines.enter("a.io", 3), None);
        assert_eq!(lines.enter("b.io", 4), Some(4), "another host is not held up");
        assert_eq!(lines.done("b.io"), None);
        lines.cancel("a.io", &2);
        assert_eq!(lines.done("a.io"), Some(3));
        assert_eq!(lines.done("a.io"), None);
        assert!(lines.hosts.is_empty(), "nothing is remembered");
        assert_eq!(lines.enter("a.io", 5), Some(5));
    }

    #[test]
    fn several_at_one_host() {
        let mut lines = Lines::new(2);
        let begun: Vec<_> = (0..4).filter_map(|n| lines.enter("a.io", n)).collect();
        assert_eq!(begun, [0, 1]);
        assert_eq!(lines.done("a.io"), Some(2));
        assert_eq!(lines.done("a.io"), Some(3));
        assert_eq!(lines.done("a.io"), None);
        assert_eq!(lines.enter("a.io", 9), Some(9), "one place is free");
        assert_eq!(lines.enter("a.io", 8), None);
    }
}
