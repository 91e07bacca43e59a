//! Which events the API server is still to be told of. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::event_json;
use crate::status::events::Event;

/// How the server is told of an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Tell {
    /// It is new there.
    Create(Value),
    /// It has happened again.
    Patch(Value),
}

/// What the server was told of: how often each event had happened then, by its name.
pub struct Told {
    counts: HashMap<String, u32>,
    node_name: String,
}

impl Told {
    /// What happened before the agent was started, an agent before it has told.
    pub fn new(before: &[Arc<Event>], node_name: &str) -> Told {
        let counts = before.iter().map(|event| (event.name.clone(), event.count)).collect();
        Told { counts, node_name: node_name.to_owned() }
    }

    /// Those of these events, which are all that are kept, that are to be told of.
    pub fn news<'e>(&mut self, events: &'e [Arc<Event>]) -> Vec<&'e Event> {
        let kept: std::collections::HashSet<_> = events.iter().map(|event| event.name.as_str()).collect();
        self.counts.retain(|name, _| kept.contains(name.as_str()));
        events.iter().map(|event| &**event).filter(|event| self.counts.get(&event.name) != Some(&event.count)).collect()
    }

    /// How the server is told of it.
    pub fn tell(&self, event: &Event) -> Tell {
        match self.counts.contains_key(&event.name) {
            true => Tell::Patch(again(event)),
            false => Tell::Create(self.object(event)),
        }
    }

    /// The server was told, or will never take it.
    pub fn done(&mut self, event: &Event) {
        self.counts.insert(event.name.clone(), event.count);
    }

    fn object(&self, event: &Event) -> Value {
        let mut object = event_json(event);
        // The server gives it the rest itself.
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.retain(|name, _| matches!(name.as_str(), "name" | "namespace"));
        }
        object["source"]["host"] = self.node_name.as_str().into();
        object["reportingInstance"] = self.node_name.as_str().into();
        object
    }
}

fn again(event: &Event) -> Value {
    let all = event_json(event);
    json!({"count": event.count, "message": event.message, "lastTimestamp": all["lastTimestamp"]})
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::pod::{PodName, PodUid};
    use crate::status::events::{Kind, Occurrence, Recorder};

    #[test]
    fn each_is_told_of_once_and_again_when_it_happens_again() {
        let mut recorder = Recorder::new(Vec::new());
        let happens = |recorder: &mut Recorder, reason: &str, second: i64| {
            let occurrence = Occurrence {
                kind: Kind::Normal,
                pod: PodName::new("ns", "web"),
                field: String::new().into(),
                reason: reason.to_owned(),
                message: "m".to_owned(),
                at: Timestamp::from_second(second).expect("in range"),
            };
            recorder.observe(occurrence, Some(&PodUid::new("u")));
            recorder.events().cloned().collect::<Vec<_>>()
        };
        let before = happens(&mut recorder, "Old", 1);
        let mut told = Told::new(&before, "edge-1");
        assert!(told.news(&before).is_empty());
        let events = happens(&mut recorder, "Started", 2);
        let news = told.news(&events);
        let [event] = news.as_slice() else { panic!("one is new: {news:?}") };
        let Tell::Create(object) = told.tell(event) else { panic!("{event:?} is new") };
        assert_eq!((&object["involvedObject"]["uid"], &object["source"]["host"]), (&json!("u"), &json!("edge-1")));
        assert!(object["metadata"].get("uid").is_none(), "{object}");
        told.done(event);
        assert!(told.news(&events).is_empty());
        let events = happens(&mut recorder, "Started", 3);
        let news = told.news(&events);
        let [event] = news.as_slice() else { panic!("one happened again: {news:?}") };
        let Tell::Patch(patch) = told.tell(event) else { panic!("{event:?} happened again") };
        assert_eq!((&patch["count"], &patch["lastTimestamp"]), (&json!(2), &json!("1970-01-01T00:00:03Z")));
    }
}
