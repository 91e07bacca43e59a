//! Which events are told of, and how often, as Kubernetes' recorder decides it
//! (client-go/tools/record/events_cache.go): what happens again is counted, what is similar is
//! combined, and what one pod floods the node with is dropped. Pure.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Kind;
use crate::pod::{PodName, PodUid};

/// Events that are kept.
pub const MAX_EVENTS: usize = 1000;
/// Pods whose rate is known, and groups of similar events.
const MAX_KNOWN: usize = 512;
/// Events of one pod at once, and seconds until there may be one more.
const BURST: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;
/// Of so many different messages with one reason the last ones are combined, unless nothing came
/// for so many seconds.
const MAX_SIMILAR: usize = 10;
const SIMILAR_SECONDS: i64 = 600;
const COMBINED: &str = "(combined from similar events): ";
/// What the API lets a message have, in bytes.
const MAX_MESSAGE: usize = 1024;

/// Something that has happened to a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Occurrence {
    pub kind: Kind,
    pub pod: PodName,
    /// The path of the field of the pod that it is about; empty when it is about all of it.
    pub field: Box<str>,
    pub reason: String,
    pub message: String,
    pub at: Timestamp,
}

/// The pod that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Involved {
    pub namespace: String,
    pub name: String,
    /// Empty when the pod is not known.
    pub uid: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The pod's name and when it was first told of: no two events have one name.
    pub name: String,
    pub involved: Involved,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub field: Box<str>,
    pub kind: Kind,
    pub reason: String,
    pub message: String,
    pub first: Timestamp,
    pub last: Timestamp,
    pub count: u32,
    /// How often it happened since it was last told of.
    #[serde(default, skip_serializing_if = "is_zero")]
    untold: u32,
}

// The signature is serde's.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// How many more events a pod may have at once.
struct Tokens {
    left: f64,
    at: Timestamp,
}

/// Messages with one reason of one pod.
struct Similar {
    messages: VecDeque<u64>,
    at: Timestamp,
}

#[derive(Default)]
pub struct Recorder {
    /// Those that were told of last stand last.
    events: VecDeque<Arc<Event>>,
    tokens: HashMap<Involved, Tokens>,
    similar: HashMap<(Involved, Kind, String), Similar>,
    serial: u64,
}

impl Recorder {
    /// With what was there before, the oldest first.
    pub fn new(before: Vec<Event>) -> Recorder {
        let skip = before.len().saturating_sub(MAX_EVENTS);
        Recorder { events: before.into_iter().skip(skip).map(Arc::new).collect(), ..Recorder::default() }
    }

    /// All that are kept; those that were told of last stand last.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &Arc<Event>> {
        self.events.iter()
    }

    /// Takes what happened to the pod with this UID; whether [`Recorder::events`] has changed.
    pub fn observe(&mut self, occurrence: Occurrence, uid: Option<&PodUid>) -> bool {
        let Occurrence { kind, pod, field, reason, mut message, at } = occurrence;
        let involved = Involved {
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            uid: uid.map(ToString::to_string).unwrap_or_default(),
        };
        let combined = self.is_one_of_many(&involved, kind, &reason, &message, at);
        if combined {
            message.insert_str(0, COMBINED);
        }
        shorten(&mut message);
        let may = self.may(&involved, at);
        let known = self.events.iter().rposition(|e| {
            let alike = e.kind == kind && e.involved == involved && e.reason == reason;
            // All that are combined are one event, which tells of the newest.
            let same = e.message == message && e.field == field;
            alike && if combined { e.message.starts_with(COMBINED) } else { same }
        });
        let event = match known.and_then(|i| if may { self.events.remove(i) } else { None }) {
            Some(known) => {
                let mut event = Arc::unwrap_or_clone(known);
                event.count = event.count.saturating_add(1 + std::mem::take(&mut event.untold));
                (event.message, event.field, event.last) = (message, field, at);
                event
            }
            None if may => {
                let name = self.name(&involved, at);
                Event { name, involved, field, kind, reason, message, first: at, last: at, count: 1, untold: 0 }
            }
            None => {
                if let Some(known) = known.and_then(|i| self.events.get_mut(i)) {
                    let event = Arc::make_mut(known);
                    event.untold = event.untold.saturating_add(1);
                }
                return false;
            }
        };
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(Arc::new(event));
        true
    }

    fn name(&mut self, involved: &Involved, at: Timestamp) -> String {
        self.serial = self.serial.wrapping_add(1);
        // The serial is for clocks that stand still.
        format!("{}.{:x}{:04x}", involved.name, at.as_nanosecond(), self.serial & 0xffff)
    }

    /// Whether there have been so many messages with this reason that they are combined.
    fn is_one_of_many(&mut self, involved: &Involved, kind: Kind, reason: &str, message: &str, at: Timestamp) -> bool {
        make_room(&mut self.similar, |similar| similar.at);
        let key = (involved.clone(), kind, reason.to_owned());
        let similar = self.similar.entry(key).or_insert_with(|| Similar { messages: VecDeque::new(), at });
        if at.duration_since(similar.at).as_secs() > SIMILAR_SECONDS {
            similar.messages.clear();
        }
        similar.at = at;
        let mut hasher = DefaultHasher::new();
        message.hash(&mut hasher);
        let message = hasher.finish();
        if !similar.messages.contains(&message) {
            similar.messages.push_back(message);
        }
        if similar.messages.len() < MAX_SIMILAR {
            return false;
        }
        similar.messages.pop_front();
        true
    }

    /// Whether the pod may have one more event; it is counted.
    fn may(&mut self, involved: &Involved, at: Timestamp) -> bool {
        make_room(&mut self.tokens, |tokens| tokens.at);
        let tokens = self.tokens.entry(involved.clone()).or_insert(Tokens { left: BURST, at });
        // A clock that was set back gives nothing, and takes nothing.
        let passed = at.duration_since(tokens.at).as_secs_f64().max(0.0);
        tokens.left = (tokens.left + passed / REFILL_SECONDS).min(BURST);
        tokens.at = at;
        let may = tokens.left >= 1.0;
        if may {
            tokens.left -= 1.0;
        }
        may
    }
}

/// Removes the oldest when there are too many.
fn make_room<K: Clone + Eq + Hash, V>(map: &mut HashMap<K, V>, at: impl Fn(&V) -> Timestamp) {
    if map.len() < MAX_KNOWN {
        return;
    }
    let oldest = map.iter().min_by_key(|(_, value)| at(value)).map(|(key, _)| key.clone());
    if let Some(key) = oldest {
        map.remove(&key);
    }
}

fn shorten(message: &mut String) {
    if message.len() > MAX_MESSAGE {
        let cut = (0..=MAX_MESSAGE).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
        message.truncate(cut);
    }
}
