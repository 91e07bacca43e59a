//! Watches of single objects that pods refer to, as the node authorizer allows them: one object each,
//! which blocks a thread and holds a connection. So there are few of them, and which objects they are
//! of is decided here ([`Watches::choose`]); the others are asked for from time to time.
//!
//! A watch begins where an answer left off, and lasts until anything ends it: the server, the
//! connection, a silence. Whoever hears of its end asks for the object again, and begins another. So
//! nothing that can happen to a watch loses more than time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};

use super::fetch::{self, Found};
use crate::kube::{self, Client, Event, Watch};
use crate::local::Key;

/// Objects that are watched at the same time.
pub const MOST: usize = 16;
/// Without a bookmark for so long, a watch is dead: the server sends one each minute or a little later.
const SILENCE: Duration = Duration::from_secs(95);
/// Most of it is never touched.
const STACK: usize = 256 << 10;
/// Words of watches that wait to be heard, before their threads have to.
const WORDS: usize = 8;

/// A word of a watch.
pub struct Heard {
    pub key: Key,
    pub what: What,
}

pub enum What {
    /// The object is so now.
    Is(Result<Found, String>),
    Over(End),
}

/// How a watch ended.
pub struct End {
    pub lasted: Duration,
    /// `None`: the server had watched for as long as it does, or nobody wanted it any more.
    pub error: Option<kube::Error>,
}

impl End {
    fn of(began: Instant, error: Option<kube::Error>) -> End {
        End { lasted: began.elapsed(), error }
    }
}

/// What decides whether an object is watched.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    pub key: &'a Key,
    /// Pods that refer to it.
    pods: usize,
    /// When it was wanted first.
    since: Instant,
}

impl<'a> Candidate<'a> {
    pub fn new(key: &'a Key, pods: usize, since: Instant) -> Candidate<'a> {
        Candidate { key, pods, since }
    }
}

pub struct Watches {
    client: Arc<Client>,
    /// Cleared for those that are to end with their next word.
    running: BTreeMap<Key, Arc<AtomicBool>>,
    tell: Sender<Heard>,
}

impl Watches {
    /// And where they are heard.
    pub fn new(client: Arc<Client>) -> (Watches, Receiver<Heard>) {
        let (tell, heard) = bounded(WORDS);
        (Watches { client, running: BTreeMap::new(), tell }, heard)
    }

    /// Whether changes of the object are heard.
    pub fn has(&self, key: &Key) -> bool {
        self.running.get(key).is_some_and(|wanted| wanted.load(Ordering::Relaxed))
    }

    /// Decides which objects are watched, and returns those for which one can begin now. First come
    /// those that most pods refer to, since there one watch keeps most pods up to date; then those that
    /// are watched already, for a change costs a handshake and gains nothing; then the newest, whose
    /// pods somebody is most likely at work on.
    pub fn choose(&self, mut all: Vec<Candidate<'_>>) -> BTreeSet<Key> {
        let rank = |c: &Candidate<'_>| (usize::MAX - c.pods, !self.has(c.key));
        all.sort_by(|a, b| rank(a).cmp(&rank(b)).then(b.since.cmp(&a.since)).then(a.key.cmp(b.key)));
        let chosen: BTreeSet<_> = all.iter().take(MOST).map(|c| c.key.clone()).collect();
        for (key, wanted) in &self.running {
            wanted.store(chosen.contains(key), Ordering::Relaxed);
        }
        // Those that are to end hold their places until they have.
        let free = MOST.saturating_sub(self.running.len());
        let ranked = all.iter().take(MOST).filter(|c| !self.running.contains_key(c.key));
        ranked.take(free).map(|c| c.key.clone()).collect()
    }

    /// Begins a watch of the object, from this version on; of one that isn't there, from whatever comes.
    /// The connection is made on this thread: a handshake takes more stack than a watch is to keep.
    ///
    /// # Errors
    /// When there can be none, it has ended so.
    pub fn begin(&mut self, key: &Key, version: &str) -> Result<(), End> {
        let began = Instant::now();
        let selector = format!("metadata.name={}", key.name);
        let (path, query) = (fetch::collection_of(key), [("fieldSelector", selector.as_str())]);
        let watch = self.client.watch(&path, &query, version, SILENCE).map_err(|e| End::of(began, Some(e)))?;
        let wanted = Arc::new(AtomicBool::new(true));
        let watching = Watching { key: key.clone(), watch, wanted: wanted.clone(), began };
        let tell = self.tell.clone();
        let thread = std::thread::Builder::new().name("watch-api".to_owned()).stack_size(STACK);
        if let Err(e) = thread.spawn(move || watching.run(&tell)) {
            log::warn!("watching {key}: starting a thread: {e}");
            return Err(End::of(began, None));
        }
        self.running.insert(key.clone(), wanted);
        Ok(())
    }

    /// One of them has ended.
    pub fn ended(&mut self, key: &Key) {
        self.running.remove(key);
    }
}

/// Whether a watch of it may be asked for: what stands in a field selector is not looked up by its name
/// alone.
pub fn can_watch(key: &Key) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
    key.gets_old() && !key.name.is_empty() && key.name.bytes().all(plain)
}

struct Watching {
    key: Key,
    watch: Watch,
    wanted: Arc<AtomicBool>,
    began: Instant,
}

impl Watching {
    /// Ends within [`SILENCE`] of not being wanted any more.
    fn run(mut self, tell: &Sender<Heard>) {
        let error = self.listen(tell).err();
        let end = End::of(self.began, error);
        // With the listener gone nobody waits for it.
        let _ = tell.send(Heard { key: self.key, what: What::Over(end) });
    }

    fn listen(&mut self, tell: &Sender<Heard>) -> Result<(), kube::Error> {
        for event in &mut self.watch {
            let what = match event? {
                Event::Added(object) | Event::Modified(object) => Some(fetch::decode(&self.key, object)),
                Event::Deleted(object) => Some(Ok(Found::Missing(kube::version(&object).to_owned()))),
                Event::Bookmark(_) => None,
            };
            let word = what.map(|what| Heard { key: self.key.clone(), what: What::Is(what) });
            let unheard = word.is_some_and(|word| tell.send(word).is_err());
            if unheard || !self.wanted.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::Kind;

    fn key(name: &str) -> Key {
        Key::new(Kind::ConfigMap, "ns", name)
    }

    #[test]
    fn which_are_watched() {
        let client = Client::of_file(std::path::Path::new("/nowhere"), None);
        let (mut watches, _heard) = Watches::new(Arc::new(client));
        let start = Instant::now();
        let at = |second: usize| start + Duration::from_secs(second as u64);
        let keys: Vec<_> = (0..20).map(|i| key(&format!("{i:02}"))).collect();
        let all = |pods: &dyn Fn(usize) -> usize| -> Vec<_> {
            keys.iter().enumerate().map(|(i, key)| Candidate::new(key, pods(i), at(i))).collect()
        };
        let names = |keys: BTreeSet<Key>| keys.into_iter().map(|key| key.name).collect::<Vec<_>>();
        let numbers = |numbers: &[usize]| numbers.iter().map(|i| format!("{i:02}")).collect::<Vec<_>>();
        let newest: Vec<_> = (4..20).collect();
        assert_eq!(names(watches.choose(all(&|_| 1))), numbers(&newest));
        // Whatever most pods have goes before.
        let widely: Vec<_> = [0, 1].into_iter().chain(6..20).collect();
        assert_eq!(names(watches.choose(all(&|i| if i < 2 { 2 } else { 1 }))), numbers(&widely));
        // What is watched stays, until another has more pods; one that is to end holds its place.
        for key in &keys[..16] {
            watches.running.insert(key.clone(), Arc::new(AtomicBool::new(true)));
        }
        assert_eq!(names(watches.choose(all(&|_| 1))), numbers(&[]));
        assert!(watches.has(&keys[0]) && !watches.has(&keys[19]));
        assert_eq!(names(watches.choose(all(&|i| if i == 19 { 2 } else { 1 }))), numbers(&[]));
        let ends: Vec<_> = keys[..16].iter().filter(|key| !watches.has(key)).cloned().collect();
        assert_eq!(ends, [key("00")]);
        watches.ended(&ends[0]);
        assert_eq!(names(watches.choose(all(&|i| if i == 19 { 2 } else { 1 }))), numbers(&[19]));
        // Wanted again before it has ended, it goes on.
        watches.choose(Vec::new());
        assert!(!watches.has(&keys[1]));
        watches.choose(all(&|i| if i == 1 { 2 } else { 1 }));
        assert!(watches.has(&keys[1]));
    }

    #[test]
    fn what_can_be_watched() {
        for (key, can) in [
            (key("a-b.c0"), true),
            (key("a,metadata.namespace=kube-system"), false),
            (key(""), false),
            (Key::new(Kind::Secret, "ns", "s"), true),
            (Key::new(Kind::Services, "ns", "s"), false),
        ] {
            assert_eq!(can_watch(&key), can, "{key}");
        }
    }
}
