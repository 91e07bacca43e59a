//! A thread that gets what the API server's pods of this node refer to, and nothing else: at once for a
//! new pod, and again from time to time. Of a few ConfigMaps and Secrets it hears each change, by
//! `watches`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};
use crossbeam::select;

use super::fetch::{self, Found};
use super::item::{self, Item};
use super::records::Records;
use super::refresh;
use super::watches::{self, Candidate, Heard, Watches, What};
use crate::config::ObjectChanges;
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
    /// How it is found out that a ConfigMap or a Secret is another.
    pub changes: ObjectChanges,
}

pub struct ObjectGetter {
    settings: Settings,
    records: Records,
    items: BTreeMap<Key, Item>,
    wanted: Wanted,
    /// The pods, and for each what is still to be asked for again, since it may be older than the pod.
    pods: BTreeMap<PodUid, BTreeSet<Key>>,
    /// They have been looked at. Until then those of before go on with what there is.
    knows_pods: bool,
    /// The pods that have been told to begin.
    begun: BTreeSet<PodUid>,
    /// The server can't be reached until then.
    unreachable: (Retry, Option<Instant>),
    wake: Receiver<()>,
    watches: Watches,
    heard: Receiver<Heard>,
}

/// What pods want.
#[derive(Default)]
struct Wanted {
    /// And how many of them.
    keys: BTreeMap<Key, usize>,
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
        let items = records.answers().into_iter().map(|(key, answer)| (key, Item::of_before(answer, now)));
        let items = items.collect();
        let (watches, heard) = Watches::new(settings.client.clone());
        let getter = ObjectGetter {
            settings,
            records,
            items,
            wanted: Wanted::default(),
            pods: BTreeMap::new(),
            knows_pods: false,
            begun: BTreeSet::new(),
            unreachable: Default::default(),
            wake,
            watches,
            heard,
        };
        getter.settings.store.set(Arc::new(getter.snapshot()));
        (getter, tell)
    }

    /// Runs until nobody can wake it any more.
    pub fn run(mut self) {
        loop {
            let mut dirty = false;
            while let Ok(heard) = self.heard.try_recv() {
                dirty |= self.hear(heard, Instant::now());
            }
            let told = self.settings.seen.get();
            if told.given {
                match self.round(&told, dirty) {
                    Ok(false) => {}
                    // There is more to do.
                    Ok(true) => continue,
                    Err(Over) => return,
                }
            }
            let pause = self.pause(Instant::now());
            let word = select! {
                recv(self.wake) -> word => if word.is_err() { return } else { None },
                recv(self.heard) -> heard => heard.ok(),
                default(pause) => None,
            };
            if word.is_some_and(|heard| self.hear(heard, Instant::now())) && self.publish().is_err() {
                return;
            }
        }
    }

    /// Takes a word of a watch. Returns whether somebody has to hear of it.
    fn hear(&mut self, Heard { key, what }: Heard, now: Instant) -> bool {
        let known = self.items.get_mut(&key);
        match (what, known) {
            (What::Over(end), known) => {
                self.watches.ended(&key);
                if let Some(item) = known {
                    item.watch_ended(&key, &end, now);
                }
                false
            }
            // Nobody wants it any more.
            (What::Is(_), None) => false,
            (What::Is(Ok(Found::Object(_, ref version) | Found::Missing(ref version))), Some(item))
                if item.is_newer_than(version) =>
            {
                false
            }
            (What::Is(found), Some(_)) => self.take(&key, Ok(found), now),
        }
    }

    fn pause(&self, now: Instant) -> Duration {
        let due = self.items.values().filter_map(|item| item.due).min();
        let due = due.map_or(LONGEST, |due| due.saturating_duration_since(now));
        let barred = self.unreachable.1.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        due.max(barred).clamp(Duration::from_millis(10), LONGEST)
    }

    /// Gets some of what is due. Returns whether there is more. `dirty`: there is something to tell
    /// anyway.
    fn round(&mut self, told: &Told, dirty: bool) -> Result<bool, Over> {
        let now = Instant::now();
        self.want(told, now);
        let mut dirty = self.drop_unwanted() || dirty;
        if !std::mem::replace(&mut self.knows_pods, true) && told.live {
            self.publish()?;
        }
        let due: Vec<_> = match self.is_barred(now) {
            true => Vec::new(),
            false => self.due(now),
        };
        if due.is_empty() {
            // The server can't be asked.
            self.pods.values_mut().for_each(BTreeSet::clear);
        }
        let more = due.len() > BATCH;
        for key in due.into_iter().take(BATCH) {
            let result = match self.wanted.tokens.get(&key) {
                Some(token) => fetch::token(&self.settings.client, token),
                // Of a pod that ends: what it has will do.
                None if key.kind == Kind::ServiceAccountToken => {
                    if let Some(item) = self.items.get_mut(&key) {
                        item.due = None;
                    }
                    continue;
                }
                None => fetch::object(&self.settings.client, &key),
            };
            let unreachable = matches!(result, Err(kube::Error::Unreachable { .. } | kube::Error::Config(_)));
            dirty |= self.take(&key, result, Instant::now());
            // Whatever came of it: what is not known better will do.
            self.pods.values_mut().for_each(|renew| _ = renew.remove(&key));
            if unreachable {
                self.pods.values_mut().for_each(BTreeSet::clear);
                break;
            }
        }
        if dirty || self.pods.iter().any(|(uid, renew)| renew.is_empty() && !self.begun.contains(uid)) {
            self.publish()?;
        }
        let more = self.watch(Instant::now()) || more;
        Ok(more && self.unreachable.1.is_none())
    }

    /// Has one more object watched of those that are to be, if it is known how it is now. Returns
    /// whether there may be another one.
    fn watch(&mut self, now: Instant) -> bool {
        if self.settings.changes != ObjectChanges::Watch || self.is_barred(now) {
            return false;
        }
        let candidates = self.wanted.keys.iter().filter_map(|(key, pods)| {
            let item = self.items.get(key).filter(|item| watches::can_watch(key) && !item.is_immutable())?;
            Some(Candidate::new(key, *pods, item.since))
        });
        let chosen = self.watches.choose(candidates.collect());
        // One whose watch has ended is asked for first.
        let next = chosen.into_iter().find_map(|key| Some((self.items.get_mut(&key)?.version.take()?, key)));
        let Some((version, key)) = next else { return false };
        match self.watches.begin(&key, &version) {
            // What changes is heard.
            Ok(()) => _ = self.items.entry(key).and_modify(|item| item.due = None),
            Err(end) => {
                self.items.entry(key.clone()).and_modify(|item| item.watch_ended(&key, &end, now));
                if let Some(e @ kube::Error::Unreachable { .. }) = end.error {
                    self.take(&key, Err(e), now);
                }
            }
        }
        true
    }

    /// The server can't be reached, and isn't asked yet.
    fn is_barred(&self, now: Instant) -> bool {
        self.unreachable.1.is_some_and(|until| now < until)
    }

    /// Everything that pods refer to, and what that refers to.
    fn want(&mut self, told: &Told, now: Instant) {
        let mut wanted = Wanted::default();
        self.pods.retain(|uid, _| told.pods.contains_key(uid));
        for pod in told.pods.values() {
            let keys = local::references(pod);
            if !self.pods.contains_key(&pod.uid) {
                let renew = self.renew(&keys, now);
                // Those of before begin with what there is, while the server can't be asked.
                self.pods.insert(pod.uid.clone(), if told.live { renew } else { BTreeSet::new() });
            }
            for key in keys {
                *wanted.keys.entry(key).or_default() += 1;
            }
            let over = pod.is_deleted() || pod.status.as_deref().is_some_and(status::is_terminal);
            if !over {
                wanted.tokens.extend(local::tokens(pod).into_iter().map(|token| (token.key(), token)));
            }
        }
        let claims = wanted.keys.keys().filter_map(|key| match &self.items.get(key)?.answer.as_ref()?.as_ref()?.body {
            Body::PersistentVolumeClaim(claim) => claim.volume_name.clone().filter(|name| !name.is_empty()),
            _ => None,
        });
        let volumes: Vec<_> = claims.map(|name| Key::new(Kind::PersistentVolume, "", &name)).collect();
        wanted.keys.extend(volumes.into_iter().map(|key| (key, 1)));
        for key in wanted.keys.keys() {
            if !self.items.contains_key(key) {
                self.items.insert(key.clone(), Item::new(now));
            }
        }
        self.wanted = wanted;
    }

    /// Has asked for again what somebody may have changed before a new pod was made: it is to begin with
    /// that (pkg/kubelet/util/manager/cache_based_manager.go). What is watched, is known in time.
    fn renew(&mut self, keys: &BTreeSet<Key>, now: Instant) -> BTreeSet<Key> {
        let mut renewed = BTreeSet::new();
        for key in keys {
            // For services it doesn't wait.
            if !(key.gets_old() || key.kind == Kind::Services) || self.watches.has(key) {
                continue;
            }
            let Some(item) = self.items.get_mut(key).filter(|item| !item.is_immutable()) else { continue };
            item.due = Some(item.due.map_or(now, |due| due.min(now)));
            if key.gets_old() {
                renewed.insert(key.clone());
            }
        }
        renewed
    }

    fn drop_unwanted(&mut self) -> bool {
        let before = self.items.len();
        self.items.retain(|key, _| self.wanted.keys.contains_key(key));
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
        let watched = self.watches.has(key);
        let item = self.items.entry(key.clone()).or_insert_with(|| Item::new(now));
        let again = || (!watched).then(|| refresh::of_object(ttl, chance()));
        let (answer, version, after) = match result {
            Ok(Ok(Found::Token(object, lifetime))) => {
                (Some(Arc::new(*object)), None, Some(refresh::of_token(lifetime, chance())))
            }
            Ok(Ok(Found::Object(object, version))) => {
                let after = if item::is_immutable(&object) { None } else { again() };
                (Some(Arc::new(*object)), Some(version), after)
            }
            Ok(Ok(Found::Missing(version))) => (None, Some(version), again()),
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
        item.version = version;
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
        let ready = self.pods.iter().filter(|(_, renew)| renew.is_empty()).map(|(uid, _)| uid.clone());
        let pods = self.knows_pods.then(|| ready.collect());
        let known = Known { missing: missing.collect(), failed: failed.collect(), pods };
        let had = self.settings.store.get().bound();
        Objects::new(all, &had, &self.settings.node).of_server(known)
    }

    /// Notes which pods may begin from now on. Returns what wakes those that may have been looked at
    /// before: of all that they refer to, what fewest others do, too.
    fn begin(&mut self) -> BTreeSet<Key> {
        let before = std::mem::take(&mut self.begun);
        self.begun = self.pods.iter().filter(|(_, renew)| renew.is_empty()).map(|(uid, _)| uid.clone()).collect();
        let told = self.settings.seen.get();
        let fresh = self.begun.difference(&before).filter_map(|uid| told.pods.get(uid));
        let uses = |key: &Key| self.wanted.keys.get(key).copied().unwrap_or_default();
        let waiting = fresh.map(|pod| local::references(pod)).filter(|keys| keys.iter().any(Key::gets_old));
        waiting.filter_map(|keys| keys.into_iter().min_by_key(uses)).collect()
    }

    fn publish(&mut self) -> Result<(), Over> {
        let before = self.settings.store.get();
        let objects = self.snapshot();
        let mut changed = objects.changed_since(&before);
        changed.extend(self.begin());
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

/// Starts it on a thread of its own.
pub fn spawn(getter: ObjectGetter) -> io::Result<()> {
    std::thread::Builder::new().name("objects-api".to_owned()).spawn(move || getter.run()).map(drop)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use serde_json::json;

    use super::*;

    #[test]
    fn an_hour_without_the_server() {
        let dir = tempfile::tempdir().expect("a directory");
        let (changed, _heard) = bounded(256);
        let (mut getter, _wake) = ObjectGetter::new(Settings {
            client: Arc::new(Client::of_file(Path::new("/nowhere"), None)),
            seen: Arc::default(),
            store: Arc::default(),
            changed,
            directory: dir.path().to_owned(),
            node: Node::new("n", &BTreeMap::new()),
            ttl: Duration::from_secs(60),
            changes: ObjectChanges::Watch,
        });
        let (key, later) = (Key::new(Kind::ConfigMap, "ns", "known"), Key::new(Kind::ConfigMap, "ns", "later"));
        let object = |key: &Key, value: &str| {
            let meta = json!({"name": key.name, "namespace": "ns", "uid": "u", "resourceVersion": "7"});
            let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": {"k": value}});
            Ok(fetch::decode(key, map))
        };
        let start = Instant::now();
        assert!(getter.take(&key, object(&key, "one"), start));
        getter.items.insert(later.clone(), Item::new(start));
        let away = || Err(kube::Error::Unreachable { server: "s".to_owned(), why: "no way".to_owned() });
        let (mut now, mut tries, mut told) = (start, 0, 0);
        while now < start + Duration::from_secs(3600) {
            if !getter.is_barred(now) && !getter.due(now).is_empty() {
                tries += 1;
                told += u32::from(getter.take(&later, away(), now));
            }
            now += getter.pause(now);
        }
        // Each 30 to 60 s, once it has been away for a while; and it is told of once.
        assert!((60..=130).contains(&tries), "{tries}");
        assert_eq!(told, 1);
        let objects = getter.snapshot();
        let data = |objects: &Objects| objects.config_map("ns", "known").map(|map| map.data.clone());
        assert_eq!(data(&objects).expect("is there").get("k").map(String::as_str), Some("one"));
        // Back again, nothing has to wait any more.
        assert!(getter.take(&key, object(&key, "two"), now));
        assert!(!getter.is_barred(now) && getter.due(now) == [later]);
        assert_eq!(data(&getter.snapshot()).expect("is there").get("k").map(String::as_str), Some("two"));
    }
}
