//! All objects at one version, and the changes that led there, as far back as they are kept.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::object::{Key, Object};
use super::resource::Resource;

/// Changes that are kept: who is further behind has to list anew.
const HISTORY: usize = 512;

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
}

struct State {
    version: u64,
    objects: BTreeMap<Key, Entry>,
    history: VecDeque<Arc<Change>>,
    /// The version before the oldest change of `history`.
    oldest: u64,
}

impl Store {
    /// `version`: one that no agent on this node has had before, so that nobody takes the versions of
    /// another one's life for those of this.
    pub fn new(version: u64) -> Store {
        let state = State { version, objects: BTreeMap::new(), history: VecDeque::new(), oldest: version };
        Store { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Takes all objects as they are now.
    pub fn replace(&self, objects: impl IntoIterator<Item = Object>) {
        let now: BTreeMap<Key, Object> = objects.into_iter().filter_map(|o| Some((o.key()?, o))).collect();
        let mut state = self.state.lock();
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
        self.state.lock().version
    }

    /// All objects of a resource, by name, and the version of that.
    pub fn list(&self, resource: Resource) -> (u64, Vec<(Key, Entry)>) {
        let state = self.state.lock();
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
        let mut state = self.state.lock();
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
        let store = Store::new(100);
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
        let store = Store::new(0);
        for i in 0..HISTORY + 10 {
            store.replace(names(&[&format!("n{i}")]));
        }
        let last = store.version();
        assert_eq!(now(&store, 0), Err(Gone));
        assert_eq!(now(&store, last - HISTORY as u64).map(|c| c.len()), Ok(HISTORY));
        assert_eq!(now(&store, last - HISTORY as u64 - 1), Err(Gone));
    }

    #[test]
    fn waiting_for_a_change() {
        let store = Arc::new(Store::new(0));
        let other = store.clone();
        let waiting = std::thread::spawn(move || other.since(0, Duration::from_secs(30)).map(|(_, c)| shown(&c)));
        store.replace(names(&["a"]));
        assert_eq!(waiting.join().expect("ends"), Ok(vec!["+a 1".to_owned()]));
    }
}
