//! What is known of one object that pods refer to, and when it is asked for again. Pure, but for chance
//! and the log.

use std::time::{Duration, Instant};

use super::records::Answer;
use super::watches::End;
use crate::kube;
use crate::kube::retry::{Retry, chance};
use crate::local::{Body, Key, Object};

/// A watch that ends sooner than this says that something is wrong.
const LASTS: Duration = Duration::from_secs(10);

/// Known by its key elsewhere.
pub struct Item {
    /// When it was wanted first.
    pub since: Instant,
    /// `None`: not known yet.
    pub answer: Option<Answer>,
    /// Of the answer, where a watch can go on from it; empty: from whatever the server has.
    pub version: Option<String>,
    /// When to ask; `None`: never again, or not before its watch has ended.
    pub due: Option<Instant>,
    pub retry: Retry,
    pub failed: Option<String>,
    /// Of its watches, and why the last one failed.
    watch: (Retry, Option<String>),
}

impl Item {
    /// One that is to be asked for now.
    pub fn new(now: Instant) -> Item {
        Item {
            since: now,
            answer: None,
            version: None,
            due: Some(now),
            retry: Retry::default(),
            failed: None,
            watch: Default::default(),
        }
    }

    /// One that was known before the agent was started.
    pub fn of_before(answer: Answer, now: Instant) -> Item {
        Item { answer: Some(answer), ..Item::new(now) }
    }

    pub fn is_immutable(&self) -> bool {
        self.answer.as_ref().and_then(Option::as_ref).is_some_and(|object| is_immutable(object))
    }

    /// A word of a watch may be older than what was got since it began. Versions of one server only ever
    /// rise (kubernetes.io/docs/reference/using-api/api-concepts).
    pub fn is_newer_than(&self, version: &str) -> bool {
        let number = |text: &str| text.parse::<u64>().ok();
        let both = self.version.as_deref().and_then(number).zip(number(version));
        both.is_some_and(|(known, told)| told < known)
    }

    /// Has it asked for again, and then watched: at once, unless its watches end too soon.
    pub fn watch_ended(&mut self, key: &Key, end: &End, now: Instant) {
        let (retry, failed) = &mut self.watch;
        if end.lasted >= LASTS {
            retry.succeeds();
        }
        let well = end.error.as_ref().is_none_or(kube::Error::is_gone);
        let wait = match well && end.lasted >= LASTS {
            true => Duration::ZERO,
            false => retry.fails(end.error.as_ref().and_then(kube::Error::retry_after), chance()),
        };
        let text = end.error.as_ref().filter(|e| !e.is_gone()).map(ToString::to_string);
        if let Some(text) = &text {
            // That the server can't be reached, others tell.
            match failed.as_ref() == Some(text) || end.error.as_ref().is_some_and(|e| e.status().is_none()) {
                true => log::debug!("watching {key}: {text}"),
                false => log::info!("watching {key}: {text}; it is asked for instead"),
            }
        }
        *failed = text;
        self.version = None;
        if !self.is_immutable() {
            self.due = Some(now + wait);
        }
    }

    pub fn fails(&mut self, text: &str, asked: Option<Duration>, now: Instant) -> bool {
        self.due = Some(now + self.retry.fails(asked, chance()));
        let news = self.failed.as_deref() != Some(text);
        match news {
            true => log::warn!("what pods refer to: {text}"),
            false => log::debug!("what pods refer to: {text}"),
        }
        self.failed = Some(text.to_owned());
        news && self.answer.is_none()
    }
}

/// Whether it stays as it is as long as it is there.
pub fn is_immutable(object: &Object) -> bool {
    match &object.body {
        Body::ConfigMap(map) => map.immutable,
        Body::Secret(secret) => secret.immutable,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::Kind;

    #[test]
    fn what_follows_on_a_watch() {
        let key = Key::new(Kind::ConfigMap, "ns", "m");
        let refused = |code, reason: &str| {
            let status = kube::Status { code, reason: reason.to_owned(), ..Default::default() };
            kube::Error::Refused { request: "GET /".to_owned(), status }
        };
        let broke = || kube::Error::Unreachable { server: "k".to_owned(), why: "reset".to_owned() };
        // What has been watched for long is asked for at once, and what is not, later and later.
        let table = [
            (60, None, 0..=0),
            (60, Some(refused(410, "Expired")), 0..=0),
            (60, Some(broke()), 800..=1600),
            (0, Some(broke()), 1600..=3200),
            (0, Some(refused(403, "Forbidden")), 3200..=6400),
            (1, None, 6400..=12_800),
            (1, Some(refused(410, "Expired")), 12_800..=25_600),
            (60, Some(broke()), 800..=1600),
        ];
        let now = Instant::now();
        let mut item = Item::new(now);
        for (lasted, error, wait) in table {
            let shown = format!("{lasted} {error:?}");
            item.version = Some("7".to_owned());
            item.watch_ended(&key, &End { lasted: Duration::from_secs(lasted), error }, now);
            let due = item.due.expect("it is asked for").duration_since(now).as_millis();
            assert!(wait.contains(&due), "{shown}: {due}");
            assert_eq!(item.version, None, "{shown}: it is asked for before it is watched again");
        }
    }

    #[test]
    fn what_is_old_is_known_by_its_version() {
        let mut item = Item::new(Instant::now());
        for (known, told, newer) in [
            (None, "5", false),
            (Some(""), "5", false),
            (Some("5"), "5", false),
            (Some("5"), "6", false),
            (Some("10"), "9", true),
            (Some("x"), "9", false),
        ] {
            item.version = known.map(str::to_owned);
            assert_eq!(item.is_newer_than(told), newer, "{known:?} {told}");
        }
    }
}
