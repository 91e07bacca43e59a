//! A thread that gets what the API server's pods of this node refer to, and nothing else: at once for a
//! new pod, and again from time to time. One connection serves for all of them: a watch for each object
//! would take one each, which with TLS is more memory than a small node has for all of the agent.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};

use super::fetch::{self, Found};
use super::records::{Answer, Records};
use super::refresh;
use crate::kube::retry::{Retry, chance};
use crate::kube::{self, Client};
use crate::local::{self, Body, Key, Kind, Known, Node, Objects, Store, WantedToken};
use crate::pod::PodUid;
use crate::source::apiserver::{Seen, Told};
use crate::status;

/// Objects that are got before what is known so far is told.
const BATCH: usize = 32;
/// How often it is looked for what is due though nothing was heard.
const LONGEST: Duration = Duration::from_secs(60);

pub struct Settings {
    pub client: Arc<Client>,
    /// What the server has for this node.
    pub seen: Arc<Seen>,
    /// Where the objects go.
    pub store: Arc<Store>,
    /// Hears which are others than before.
    pub changed: Sender<BTreeSet<Key>>,
    /// Where they are kept.
    pub directory: PathBuf,
    pub node: Node,
    /// How old an object may get.
    pub ttl: Duration,
}

#[derive(Default)]
struct Item {
    /// `None`: not known yet.
    answer: Option<Answer>,
    /// When to ask; `None`: never again.
    due: Option<Instant>,
    retry: Retry,
    failed: Option<String>,
}

pub struct ObjectGetter {
    settings: Settings,
    records: Records,
    items: BTreeMap<Key, Item>,
    /// Pods whose services have been asked for.
    served: HashSet<PodUid>,
    /// The server can't be reached until then.
    unreachable: (Retry, Option<Instant>),
    wake: Receiver<()>,
}

/// What pods want.
struct Wanted {
    keys: BTreeSet<Key>,
    tokens: BTreeMap<Key, WantedToken>,
}

/// The sync loop is gone.
struct Over;

impl ObjectGetter {
    /// With what was kept before, which is told of at once. And what wakes it, which never waits.
    pub fn new(settings: Settings) -> (ObjectGetter, Sender<()>) {
        let (tell, wake) = bounded(1);
        let records = Records::open(settings.directory.clone());
        let now = Instant::now();
        let items = records
            .answers()
            .into_iter()
            .map(|(key, answer)| (key, Item { answer: Some(answer), due: Some(now), ..Item::default() }));
        let items = items.collect();
        let getter =
            ObjectGetter { settings, records, items, served: HashSet::new(), unreachable: Default::default(), wake };
        getter.settings.store.set(Arc::new(getter.snapshot()));
        (getter, tell)
    }

    /// Runs until nobody can wake it any more.
    pub fn run(mut self) {
        loop {
            let told = self.settings.seen.get();
            if told.given {
                match self.round(&told) {
                    Ok(false) => {}
                    // There is more to do.
                    Ok(true) => continue,
                    Err(Over) => return,
                }
            }
            match self.wake.recv_timeout(self.pause(Instant::now())) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn pause(&self, now: Instant) -> Duration {
        let due = self.items.values().filter_map(|item| item.due).min();
        let due = due.map_or(LONGEST, |due| due.saturating_duration_since(now));
        let barred = self.unreachable.1.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        due.max(barred).clamp(Duration::from_millis(10), LONGEST)
    }

    /// Gets some of what is due. Returns whether there is more.
    fn round(&mut self, told: &Told) -> Result<bool, Over> {
        let now = Instant::now();
        let wanted = self.want(told, now);
        let mut dirty = self.drop_unwanted(&wanted);
        let due: Vec<_> = match self.unreachable.1.is_some_and(|until| now < until) {
            true => Vec::new(),
            false => self.due(now),
        };
        let more = due.len() > BATCH;
        for key in due.into_iter().take(BATCH) {
            let result = match wanted.tokens.get(&key) {
                Some(token) => fetch::token(&self.settings.client, token),
                // Of a pod that ends: what it has will do.
                None if key.kind == Kind::ServiceAccountToken => {
                    self.items.entry(key).or_default().due = None;
                    continue;
                }
                None => fetch::object(&self.settings.client, &key),
            };
            let unreachable = matches!(result, Err(kube::Error::Unreachable { .. } | kube::Error::Config(_)));
            dirty |= self.take(&key, result, Instant::now());
            if unreachable {
                break;
            }
        }
        if dirty {
            self.publish()?;
        }
        Ok(more && self.unreachable.1.is_none())
    }

    /// Everything that pods refer to, and what that refers to.
    fn want(&mut self, told: &Told, now: Instant) -> Wanted {
        let mut wanted = Wanted { keys: BTreeSet::new(), tokens: BTreeMap::new() };
        self.served.retain(|uid| told.pods.contains_key(uid));
        for pod in told.pods.values() {
            let keys = local::references(pod);
            if self.served.insert(pod.uid.clone()) {
                // Services that came with the pod, it is to be told of.
                for key in keys.iter().filter(|key| key.kind == Kind::Services) {
                    self.items.entry(key.clone()).or_default().due = Some(now);
                }
            }
            wanted.keys.extend(keys);
            let over = pod.is_deleted() || pod.status.as_deref().is_some_and(status::is_terminal);
            if !over {
                wanted.tokens.extend(local::tokens(pod).into_iter().map(|token| (token.key(), token)));
            }
        }
        let claims = wanted.keys.iter().filter_map(|key| match &self.items.get(key)?.answer.as_ref()?.as_ref()?.body {
            Body::PersistentVolumeClaim(claim) => claim.volume_name.clone().filter(|name| !name.is_empty()),
            _ => None,
        });
        let volumes: Vec<_> = claims.map(|name| Key::new(Kind::PersistentVolume, "", &name)).collect();
        wanted.keys.extend(volumes);
        for key in &wanted.keys {
            if !self.items.contains_key(key) {
                self.items.insert(key.clone(), Item { due: Some(now), ..Item::default() });
            }
        }
        wanted
    }

    fn drop_unwanted(&mut self, wanted: &Wanted) -> bool {
        let before = self.items.len();
        self.items.retain(|key, _| wanted.keys.contains(key));
        self.items.len() != before
    }

    /// What is to be asked for now; first what nothing is known of.
    fn due(&self, now: Instant) -> Vec<Key> {
        let mut due: Vec<_> = self.items.iter().filter(|(_, item)| item.due.is_some_and(|due| due <= now)).collect();
        due.sort_by_key(|(_, item)| (item.answer.is_some(), item.due));
        due.into_iter().map(|(key, _)| key.clone()).collect()
    }

    /// Takes what came of asking. Returns whether somebody has to hear of it.
    fn take(&mut self, key: &Key, result: Result<Result<Found, String>, kube::Error>, now: Instant) -> bool {
        let ttl = self.settings.ttl;
        let item = self.items.entry(key.clone()).or_default();
        let (answer, after) = match result {
            Ok(Ok(Found::Token(object, lifetime))) => {
                (Some(Arc::new(*object)), Some(refresh::of_token(lifetime, chance())))
            }
            Ok(Ok(Found::Object(object))) => {
                let after = (!is_immutable(&object.body)).then(|| refresh::of_object(ttl, chance()));
                (Some(Arc::new(*object)), after)
            }
            Ok(Ok(Found::Missing)) => (None, Some(refresh::of_object(ttl, chance()))),
            Ok(Err(why)) => return item.fails(&format!("{key}: {why}"), None, now),
            Err(e @ (kube::Error::Unreachable { .. } | kube::Error::Config(_))) => {
                let (retry, until) = &mut self.unreachable;
                *until = Some(now + retry.fails(None, chance()));
                let text = e.to_string();
                // All of them wait for the same.
                let mut news = false;
                for item in self.items.values_mut().filter(|item| item.answer.is_none()) {
                    news |= item.failed.as_ref() != Some(&text);
                    item.failed = Some(text.clone());
                }
                return news;
            }
            Err(e) => return item.fails(&e.to_string(), e.retry_after(), now),
        };
        self.unreachable = Default::default();
        item.failed = None;
        item.retry.succeeds();
        item.due = after.map(|after| now + after);
        let news = item.answer.as_ref() != Some(&answer);
        if news {
            item.answer = Some(answer);
        }
        news
    }

    fn snapshot(&self) -> Objects {
        let all = self.items.values().filter_map(|item| item.answer.clone().flatten());
        let missing = self.items.iter().filter(|(_, item)| item.answer == Some(None)).map(|(key, _)| key.clone());
        let failed = self.items.iter().filter(|(_, item)| item.answer.is_none());
        let failed = failed.filter_map(|(key, item)| Some((key.clone(), item.failed.clone()?)));
        let known = Known { missing: missing.collect(), failed: failed.collect() };
        let had = self.settings.store.get().bound();
        Objects::new(all, &had, &self.settings.node).of_server(known)
    }

    fn publish(&mut self) -> Result<(), Over> {
        let before = self.settings.store.get();
        let objects = self.snapshot();
        let changed = objects.changed_since(&before);
        self.settings.store.set(Arc::new(objects));
        if !changed.is_empty() {
            self.settings.changed.send(changed).map_err(|_| Over)?;
        }
        // Meanwhile pods begin: the disk may be slow.
        let answers = self.items.iter().filter_map(|(key, item)| Some((key, item.answer.as_ref()?)));
        self.records.keep(&answers.collect());
        Ok(())
    }
}

impl Item {
    fn fails(&mut self, text: &str, asked: Option<Duration>, now: Instant) -> bool {
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

fn is_immutable(body: &Body) -> bool {
    match body {
        Body::ConfigMap(map) => map.immutable,
        Body::Secret(secret) => secret.immutable,
        _ => false,
    }
}

/// Starts it on a thread of its own.
pub fn spawn(getter: ObjectGetter) -> io::Result<()> {
    std::thread::Builder::new().name("objects-api".to_owned()).spawn(move || getter.run()).map(drop)
}
