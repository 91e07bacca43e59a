//! What the fake runtime does wrong, and when.

use std::time::Duration;

use grpcio::{RpcStatus, RpcStatusCode};

use super::model::Subject;

#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// Answer later.
    Delay(Duration),
    /// Answer when the fault is removed.
    Hang,
    /// Do nothing and answer with an error.
    Fail(RpcStatus),
    /// Do what was asked and answer with an error.
    FailAfter(RpcStatus),
    /// Do nothing and answer what isn't a message.
    Garbage,
    /// Do nothing and answer with no field set.
    Empty,
}

/// What to do with one call, once its delays and hangs are over.
#[derive(Debug, Clone)]
pub(super) enum Verdict {
    Obey,
    Fail(RpcStatus),
    FailAfter(RpcStatus),
    Garbage,
    Empty,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    method: &'static str,
    of: Option<String>,
    kind: Kind,
    /// How many more calls it is for; `None`: all.
    left: Option<u32>,
    hits: u32,
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    entries: Vec<Entry>,
    last_id: u64,
}

/// The faults that a call meets.
pub(super) struct Chosen {
    /// Id of each, and how long it lasts; `None`: until it is removed.
    pub waits: Vec<(u64, Option<Duration>)>,
    pub verdict: Verdict,
}

impl Faults {
    pub fn add(&mut self, method: &'static str, of: Option<String>, kind: Kind, left: Option<u32>) -> u64 {
        self.last_id += 1;
        self.entries.push(Entry { id: self.last_id, method, of, kind, left, hits: 0 });
        self.last_id
    }

    pub fn remove(&mut self, id: u64) {
        self.entries.retain(|e| e.id != id);
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// How many calls it has met.
    pub fn hits(&self, id: u64) -> u32 {
        self.find(id).map_or(0, |e| e.hits)
    }

    pub fn lasts(&self, id: u64) -> bool {
        self.find(id).is_some()
    }

    fn find(&self, id: u64) -> Option<&Entry> {
        self.entries.iter().find(|e| e.id == id)
    }

    /// All delays and hangs for the call, and the first of the others.
    pub fn choose(&mut self, method: &str, subject: &Subject) -> Chosen {
        let mut chosen = Chosen { waits: Vec::new(), verdict: Verdict::Obey };
        for entry in &mut self.entries {
            let of = entry.of.as_deref();
            if entry.method != method || entry.left == Some(0) || of.is_some_and(|of| !subject.is(of)) {
                continue;
            }
            let verdict = match &entry.kind {
                Kind::Delay(time) => {
                    chosen.waits.push((entry.id, Some(*time)));
                    None
                }
                Kind::Hang => {
                    chosen.waits.push((entry.id, None));
                    None
                }
                _ if !matches!(chosen.verdict, Verdict::Obey) => continue,
                Kind::Fail(status) => Some(Verdict::Fail(status.clone())),
                Kind::FailAfter(status) => Some(Verdict::FailAfter(status.clone())),
                Kind::Garbage => Some(Verdict::Garbage),
                Kind::Empty => Some(Verdict::Empty),
            };
            if let Some(verdict) = verdict {
                chosen.verdict = verdict;
            }
            entry.left = entry.left.map(|n| n - 1);
            entry.hits += 1;
        }
        chosen
    }
}

pub(super) fn status(code: RpcStatusCode, message: impl Into<String>) -> RpcStatus {
    RpcStatus::with_message(code, message.into())
}
