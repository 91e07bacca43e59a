//! All objects at one version, and the changes that led there, as far back as they are kept; nothing
//! while nobody asks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::feed::Feed;
use super::object::{Key, Object};
use super::resource::Resource;

/// Changes that are kept: who is further behind has to list anew.
const HISTORY: usize = 512;
/// How long all is kept for somebody who may ask again.
const KEPT: Duration = Duration::from_secs(15 * 60);

#[derive(Debug, Clone)]
pub struct Entry {
    pub object: Object,
    /// Of its last change.
    pub version: u64,
}

/// An object that came (`before` is `None`), changed or went (`after` is `None`).
#[derive(Debug, Clone)]
pub struct Change {
    pub key: Key,
    pub before: Option<Object>,
    pub after: Option<Object>,
    pub version: u64,
}

/// The changes since a version are not known, or there never was such a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

pub struct Store {
    state: Mutex<State>,
    changed: Condvar,
    /// Told when somebody asks and nothing is known.
    feed: Feed,
}

struct State {
    /// When somebody asked last.
    asked: Option<Instant>,
    /// Whether the objects are known.
    filled: bool,
    version: u64,
    objects: BTreeMap<Key, Entry>,
    history: VecDeque<Arc<Change>>,
    /// The version before the oldest change of `history`.
    oldest: u64,
}

impl Store {
    /// `version`: one that no agent on this node has had before, so that nobody takes the versions of
    /// another one's life for those of this.
    pub fn new(version: u64, feed: Feed) -> Store {
        let (objects, history) = (BTreeMap::new(), VecDeque::new());
        let state = State { asked: None, filled: false, version, objects, history, oldest: version };
        Store { state: Mutex::new(state), changed: Condvar::new(), feed }
    }

    /// Whether somebody asked not long ago. If not, all is forgotten until somebody does; whoever knew a
    /// version has to list anew then.
    pub fn is_wanted(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let wanted = state.asked.is_some_and(|asked| now.saturating_duration_since(asked) < KEPT);
        if !wanted && state.filled {
            state.filled = false;
            (state.objects, state.history) = Default::default();
        }
        wanted
    }

    /// Takes all objects as they are now.
    pub fn replace(&self, objects: impl IntoIterator<Item = Object>) {
        let now: BTreeMap<Key, Object> = objects.into_iter().filter_map(|o| Some((o.key()?, o))).collect();
        let mut state = self.state.lock();
        if !state.filled {
            state.fill(now);
            self.changed.notify_all();
            return;
        }
        let before = state.version;
        let gone: Vec<Key> = state.objects.keys().filter(|key| !now.contains_key(*key)).cloned().collect();
        for key in gone {
            let before = state.objects.remove(&key).map(|entry| entry.object);
            state.add(key, before, None);
        }
        for (key, object) in now {
            let before = match state.objects.get(&key) {
                Some(entry) if entry.object.is(&object) => continue,
                Some(entry) => Some(entry.object.clone()),
                None => None,
            };
            let version = state.add(key.clone(), before, Some(object.clone()));
            state.objects.insert(key, Entry { object, version });
        }
        if state.version != before {
            self.changed.notify_all();
        }
    }

    pub fn version(&self) -> u64 {
        self.asked().version
    }

    /// The state, once all is known: at once, unless the feed just asks the runtime for something.
    fn asked(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.asked = Some(Instant::now());
        while !state.filled {
            self.feed.tell();
            self.changed.wait(&mut state);
        }
        state
    }

    /// All objects of a resource, by name, and the version of that.
    pub fn list(&self, resource: Resource) -> (u64, Vec<(Key, Entry)>) {
        let state = self.asked();
        let none = || Arc::<str>::from("");
        let from = Key { resource, namespace: none(), name: none(), uid: none() };
        let all = state.objects.range(from..).take_while(|(key, _)| key.resource == resource);
        (state.version, all.map(|(key, entry)| (key.clone(), entry.clone())).collect())
    }

    /// The changes after a version, and the version that they lead to. Waits for one, but no longer
    /// than `time`.
    ///
    /// # Errors
    /// When they are not known.
    pub fn since(&self, version: u64, time: Duration) -> Result<(u64, Vec<Arc<Change>>), Gone> {
        let until = Instant::now() + time;
        let mut state = self.asked();
        loop {
            if version < state.oldest || version > state.version {
                return Err(Gone);
            }
            if state.version > version || self.changed.wait_until(&mut state, until).timed_out() {
                let changes = state.history.iter().filter(|change| change.version > version);
                return Ok((state.version, changes.cloned().collect()));
            }
        }
    }
}

impl State {
    /// What came before is not known, so that nobody can go on from there.
    fn fill(&mut self, objects: BTreeMap<Key, Object>) {
        self.version += 1;
        self.oldest = self.version;
        self.filled = true;
        let version = self.version;
        self.objects = objects.into_iter().map(|(key, object)| (key, Entry { object, version })).collect();
    }

    fn add(&mut self, key: Key, before: Option<Object>, after: Option<Object>) -> u64 {
        self.version += 1;
        if self.history.len() >= HISTORY {
            self.oldest = self.history.pop_front().map_or(self.oldest, |change| change.version);
        }
        self.history.push_back(Arc::new(Change { key, before, after, version: self.version }));
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(version: u64) -> Store {
        let store = Store::new(version, Feed::default());
        store.replace([]);
        store
    }

    fn names(names: &[&str]) -> Vec<Object> {
        names.iter().map(|name| Object::Namespace((*name).into())).collect()
    }

    fn shown(changes: &[Arc<Change>]) -> Vec<String> {
        let sign = |c: &Change| match (&c.before, &c.after) {
            (None, Some(_)) => '+',
            (Some(_), None) => '-',
            _ => '~',
        };
        changes.iter().map(|c| format!("{}{} {}", sign(c), c.key.name, c.version)).collect()
    }

    fn now(store: &Store, version: u64) -> Result<Vec<String>, Gone> {
        store.since(version, Duration::ZERO).map(|(_, changes)| shown(&changes))
    }

    #[test]
    fn changes_and_versions() {
        let store = store(99);
        store.replace(names(&["a", "b"]));
        store.replace(names(&["a", "b"]));
        store.replace(names(&["b", "c"]));
        let node = |ready: bool| Object::Node(Arc::new(serde_json::json!({"metadata": {"name": "n"}, "r": ready})));
        store.replace(names(&["b", "c"]).into_iter().chain([node(true)]));
        store.replace(names(&["b", "c"]).into_iter().chain([node(false)]));
        let all = ["+a 101", "+b 102", "-a 103", "+c 104", "+n 105", "~n 106"].map(str::to_owned);
        for (version, want) in
            [(100, Ok(&all[..])), (103, Ok(&all[3..])), (106, Ok(&[][..])), (99, Err(Gone)), (107, Err(Gone))]
        {
            assert_eq!(now(&store, version), want.map(<[String]>::to_vec), "{version}");
        }
        let (version, list) = store.list(Resource::Namespaces);
        let list: Vec<_> = list.iter().map(|(key, entry)| (&*key.name, entry.version)).collect();
        assert_eq!((version, list), (106, vec![("b", 102), ("c", 104)]));
        assert_eq!(store.list(Resource::Nodes).1.len(), 1);
        assert!(store.list(Resource::Pods).1.is_empty());
    }

    #[test]
    fn history_is_bounded() {
        let store = store(0);
        for i in 0..HISTORY + 10 {
            store.replace(names(&[&format!("n{i}")]));
        }
        let last = store.version();
        assert_eq!(now(&store, 0), Err(Gone));
        assert_eq!(now(&store, last - HISTORY as u64).map(|c| c.len()), Ok(HISTORY));
        assert_eq!(now(&store, last - HISTORY as u64 - 1), Err(Gone));
    }

    #[test]
    fn nothing_is_kept_for_nobody() {
        let store = store(0);
        let start = Instant::now();
        assert!(!store.is_wanted(start), "nobody asked");
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| store.list(Resource::Namespaces));
            while !store.is_wanted(Instant::now()) {
                std::thread::yield_now();
            }
            store.replace(names(&["a"]));
            let (version, list) = asking.join().expect("ends");
            assert_eq!((version, list.len()), (2, 1));
        });
        assert!(store.is_wanted(Instant::now() + KEPT / 2));
        assert!(store.state.lock().filled);
        assert!(!store.is_wanted(Instant::now() + KEPT));
        assert!(store.state.lock().objects.is_empty());
        store.replace(names(&["a"]));
        assert_eq!(now(&store, 2), Err(Gone), "what happened meanwhile is not known");
        assert_eq!(now(&store, 3), Ok(vec![]));
    }

    #[test]
    fn waiting_for_a_change() {
        let store = Arc::new(store(0));
        let other = store.clone();
        let waiting = std::thread::spawn(move || other.since(1, Duration::from_secs(30)).map(|(_, c)| shown(&c)));
        store.replace(names(&["a"]));
        assert_eq!(waiting.join().expect("ends"), Ok(vec!["+a 2".to_owned()]));
    }
}
