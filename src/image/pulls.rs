//! Who waits for which pull, and what came of it. Pure: time comes in, and what is to begin goes
//! out.
//!
//! An image that several want at the same time with the same credentials is pulled once. How many
//! pulls run at once is counted for each registry by itself, also where `serializeImagePulls` asks
//! for one at a time: the kubelet counts over all registries, and one that hangs then keeps every
//! pod of the node from its image.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::pull::PullError;
use super::queue::Lines;
use crate::backoff::Backoff;
use crate::cri::{Auth, api};
use crate::pod::PodUid;

/// How long a failed pull is shown as such before it is shown as waiting for the next.
const SHOW_ERROR: Duration = Duration::from_secs(2);

/// An image of a pod, as the pod calls it: what a back-off is kept for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub uid: PodUid,
    pub image: String,
}

/// What is pulled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// As the runtime is asked for it.
    pub image: String,
    pub registry: String,
    /// What credentials are for.
    pub repository: String,
    /// The pod's own.
    pub auths: Vec<Auth>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PullId(u64);

#[derive(Debug)]
struct Pull {
    target: Arc<Target>,
    sandbox: Arc<api::PodSandboxConfig>,
    running: bool,
    waiters: Vec<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    key: Key,
    /// The container, or whatever of the pod wants the image.
    user: String,
    since: Instant,
}

/// How long a pull took, and how long its waiter waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Took {
    pub pull: Duration,
    pub waiting: Duration,
}

#[derive(Debug)]
enum State {
    Nothing,
    Pulling { id: PullId, before: Option<Backoff> },
    Failed { error: PullError, delay: Backoff, shown: Option<Instant> },
}

#[derive(Debug)]
struct Entry {
    state: State,
    /// Users whose pull has succeeded and who have not been told.
    pulled: HashMap<String, Took>,
}

/// How it stands with a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    MayBegin,
    Pulling,
    /// It failed, which has not been shown for long.
    Failed(PullError, Duration),
    /// It failed, and is tried again after this time.
    BackOff(PullError, Duration),
}

/// What the end of a pull leads to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ended {
    pub wake: Vec<PodUid>,
    pub begin: Option<PullId>,
}

#[derive(Debug)]
pub struct Pulls {
    entries: HashMap<Key, Entry>,
    pulls: HashMap<PullId, Pull>,
    lines: Lines<PullId>,
    next: u64,
}

impl Pulls {
    /// At most `limit` at once at each registry.
    pub fn new(limit: usize) -> Pulls {
        Pulls { entries: HashMap::new(), pulls: HashMap::new(), lines: Lines::new(limit), next: 0 }
    }

    /// A pull for this user that has succeeded.
    pub fn pulled(&self, key: &Key, user: &str) -> Option<Took> {
        self.entries.get(key)?.pulled.get(user).copied()
    }

    /// The user has its image, by that pull or otherwise.
    pub fn served(&mut self, key: &Key, user: &str) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.pulled.remove(user);
        if let State::Failed { .. } = entry.state {
            entry.state = State::Nothing;
        }
        if matches!(entry.state, State::Nothing) && entry.pulled.is_empty() {
            self.entries.remove(key);
        }
    }

    /// How it stands at `now`. One who asks while a pull runs waits for it too.
    pub fn standing(&mut self, key: &Key, user: &str, now: Instant) -> Standing {
        let Some(entry) = self.entries.get_mut(key) else { return Standing::MayBegin };
        match &mut entry.state {
            State::Nothing => Standing::MayBegin,
            State::Pulling { id, .. } => {
                if let Some(pull) = self.pulls.get_mut(id) {
                    pull.join(key, user, now);
                }
                Standing::Pulling
            }
            State::Failed { error, delay, shown } => {
                let Some(left) = delay.left_at(now) else { return Standing::MayBegin };
                let shown = *shown.get_or_insert(now);
                match (shown + SHOW_ERROR).checked_duration_since(now).filter(|left| !left.is_zero()) {
                    Some(show) => Standing::Failed(error.clone(), show.min(left)),
                    None => Standing::BackOff(error.clone(), left),
                }
            }
        }
    }

    /// Begins a pull, or joins one that is the same. Returns the one that is to be started now.
    pub fn begin(
        &mut self,
        key: &Key,
        user: &str,
        target: Target,
        sandbox: &api::PodSandboxConfig,
        now: Instant,
    ) -> Option<PullId> {
        let same = self.pulls.iter().find(|(_, pull)| *pull.target == target).map(|(id, _)| *id);
        let (id, start) = match same {
            Some(id) => (id, None),
            None => self.add(target, sandbox),
        };
        if let Some(pull) = self.pulls.get_mut(&id) {
            pull.join(key, user, now);
        }
        let entry =
            self.entries.entry(key.clone()).or_insert_with(|| Entry { state: State::Nothing, pulled: HashMap::new() });
        entry.pulled.remove(user);
        let before = match entry.state {
            State::Failed { delay, .. } => Some(delay),
            State::Pulling { before, .. } => before,
            State::Nothing => None,
        };
        entry.state = State::Pulling { id, before };
        start
    }

    fn add(&mut self, target: Target, sandbox: &api::PodSandboxConfig) -> (PullId, Option<PullId>) {
        let id = PullId(self.next);
        self.next += 1;
        let start = self.lines.enter(&target.registry, id);
        let (target, sandbox) = (Arc::new(target), Arc::new(sandbox.clone()));
        self.pulls.insert(id, Pull { target, sandbox, running: start.is_some(), waiters: Vec::new() });
        (id, start)
    }

    /// Something kept a pull from beginning.
    pub fn failed(&mut self, key: &Key, error: PullError, now: Instant) {
        let before = match self.entries.get(key).map(|entry| &entry.state) {
            Some(State::Failed { delay, .. }) => Some(*delay),
            _ => None,
        };
        let state = State::Failed { error, delay: Backoff::again(before, now), shown: None };
        self.entries
            .entry(key.clone())
            .or_insert_with(|| Entry { state: State::Nothing, pulled: HashMap::new() })
            .state = state;
    }

    /// What a pull that is started pulls.
    pub fn what(&self, id: PullId) -> Option<(Arc<Target>, Arc<api::PodSandboxConfig>)> {
        self.pulls.get(&id).map(|pull| (pull.target.clone(), pull.sandbox.clone()))
    }

    /// A pull has come to its end after `took`.
    pub fn ended(&mut self, id: PullId, took: Duration, result: Result<(), PullError>, now: Instant) -> Ended {
        let Some(pull) = self.pulls.remove(&id) else { return Ended::default() };
        let begin = self.lines.done(&pull.target.registry);
        if let Some(next) = begin.and_then(|next| self.pulls.get_mut(&next)) {
            next.running = true;
        }
        let mut wake = Vec::new();
        for waiter in pull.waiters {
            let Some(entry) = self.entries.get_mut(&waiter.key) else { continue };
            match (&result, &entry.state) {
                (Ok(()), _) => {
                    let waiting = now.saturating_duration_since(waiter.since);
                    entry.pulled.insert(waiter.user, Took { pull: took, waiting });
                    entry.state = State::Nothing;
                }
                (Err(error), State::Pulling { before, .. }) => {
                    let delay = Backoff::again(*before, now);
                    entry.state = State::Failed { error: error.clone(), delay, shown: None };
                }
                // Another user of the same pod, for whom it is noted already.
                (Err(_), _) => {}
            }
            if !wake.contains(&waiter.key.uid) {
                wake.push(waiter.key.uid.clone());
            }
            if result.is_ok() {
                // Those who failed at it need wait no more.
                let others = self.entries.iter().filter(|(key, entry)| {
                    key.image == waiter.key.image && matches!(entry.state, State::Failed { .. })
                });
                wake.extend(
                    others.map(|(key, _)| key.uid.clone()).filter(|uid| !wake.contains(uid)).collect::<Vec<_>>(),
                );
            }
        }
        Ended { wake, begin }
    }

    /// The pod is gone. What only it waited for is not pulled, unless that has begun.
    pub fn forget(&mut self, uid: &PodUid) {
        self.entries.retain(|key, _| key.uid != *uid);
        for (id, pull) in &mut self.pulls {
            pull.waiters.retain(|waiter| waiter.key.uid != *uid);
            if pull.waiters.is_empty() && !pull.running {
                self.lines.cancel(&pull.target.registry, id);
            }
        }
        self.pulls.retain(|_, pull| pull.running || !pull.waiters.is_empty());
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.pulls.is_empty()
    }
}

impl Pull {
    fn join(&mut self, key: &Key, user: &str, now: Instant) {
        if !self.waiters.iter().any(|waiter| waiter.key == *key && waiter.user == user) {
            self.waiters.push(Waiter { key: key.clone(), user: user.to_owned(), since: now });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(uid: &str, image: &str) -> Key {
        Key { uid: PodUid::new(uid), image: image.to_owned() }
    }

    fn target(image: &str) -> Target {
        let registry = image.split('/').next().unwrap_or_default().to_owned();
        Target { image: image.to_owned(), registry, repository: image.to_owned(), auths: Vec::new() }
    }

    fn begin(pulls: &mut Pulls, uid: &str, image: &str, now: Instant) -> Option<PullId> {
        pulls.begin(&key(uid, image), "main", target(image), &api::PodSandboxConfig::new(), now)
    }

    fn error() -> PullError {
        PullError { reason: "ErrImagePull", message: "no".to_owned() }
    }

    const S: Duration = Duration::from_secs(1);

    fn uids(ended: &Ended) -> Vec<&str> {
        let mut uids: Vec<_> = ended.wake.iter().map(PodUid::as_str).collect();
        uids.sort_unstable();
        uids
    }

    #[test]
    fn one_pull_for_all_who_want_the_same() {
        let now = Instant::now();
        let mut pulls = Pulls::new(1);
        let id = begin(&mut pulls, "a", "r/x", now).expect("begins");
        assert_eq!(begin(&mut pulls, "b", "r/x", now + S), None);
        assert_eq!(pulls.standing(&key("a", "r/x"), "main", now), Standing::Pulling);
        // A second container of the pod.
        assert_eq!(pulls.standing(&key("a", "r/x"), "side", now + 2 * S), Standing::Pulling);
        // With other credentials it is another pull, which waits in line.
        let with_auth = Target { auths: vec![Auth::default()], ..target("r/x") };
        assert_eq!(pulls.begin(&key("c", "r/x"), "main", with_auth, &api::PodSandboxConfig::new(), now), None);

        let ended = pulls.ended(id, 3 * S, Ok(()), now + 4 * S);
        assert_eq!(uids(&ended), ["a", "b"]);
        let second = ended.begin.expect("the next begins");
        assert_eq!(pulls.what(second).expect("is there").0.auths.len(), 1);
        for (uid, user, waiting) in [("a", "main", 4), ("b", "main", 3), ("a", "side", 2)] {
            let took = pulls.pulled(&key(uid, "r/x"), user).expect("was pulled");
            assert_eq!(took, Took { pull: 3 * S, waiting: waiting * S }, "{uid} {user}");
            pulls.served(&key(uid, "r/x"), user);
            assert_eq!(pulls.pulled(&key(uid, "r/x"), user), None, "it counts once");
        }
        assert_eq!(pulls.ended(second, S, Err(error()), now + 5 * S).begin, None);
        pulls.forget(&PodUid::new("c"));
        assert!(pulls.is_empty());
    }

    #[test]
    fn a_hung_registry_holds_up_nobody_else() {
        let now = Instant::now();
        let mut pulls = Pulls::new(1);
        let hung = begin(&mut pulls, "a", "hung/x", now).expect("begins");
        assert_eq!(begin(&mut pulls, "b", "hung/y", now), None);
        let other = begin(&mut pulls, "c", "fine/z", now).expect("begins at once");
        assert_eq!(uids(&pulls.ended(other, S, Ok(()), now)), ["c"]);
        let ended = pulls.ended(hung, S, Err(error()), now);
        assert!(ended.begin.is_some(), "the next at the same registry");
    }

    #[test]
    fn failures_are_shown_and_then_waited_out() {
        let start = Instant::now();
        let mut pulls = Pulls::new(1);
        let key = key("a", "r/x");
        let mut now = start;
        let mut waits = Vec::new();
        for _ in 0..7 {
            let id = begin(&mut pulls, "a", "r/x", now).expect("begins");
            now += S;
            assert_eq!(uids(&pulls.ended(id, S, Err(error()), now)), ["a"]);
            assert_eq!(pulls.standing(&key, "main", now), Standing::Failed(error(), 2 * S));
            assert_eq!(pulls.standing(&key, "main", now + S), Standing::Failed(error(), S));
            let Standing::BackOff(_, left) = pulls.standing(&key, "main", now + 2 * S) else { panic!("waits") };
            waits.push(left.as_secs() + 2);
            now += 2 * S + left;
            assert_eq!(pulls.standing(&key, "main", now), Standing::MayBegin);
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
        // The image came by another way.
        pulls.served(&key, "main");
        assert!(pulls.is_empty());
    }

    #[test]
    fn a_success_wakes_those_who_failed_before() {
        let now = Instant::now();
        let mut pulls = Pulls::new(1);
        let id = begin(&mut pulls, "a", "r/x", now).expect("begins");
        pulls.ended(id, S, Err(error()), now);
        // The other one is not held up by the first one's back-off.
        assert_eq!(pulls.standing(&key("b", "r/x"), "main", now), Standing::MayBegin);
        let id = begin(&mut pulls, "b", "r/x", now).expect("begins");
        assert_eq!(uids(&pulls.ended(id, S, Ok(()), now)), ["a", "b"]);
    }

    #[test]
    fn a_pod_that_goes_leaves_nothing() {
        let now = Instant::now();
        let mut pulls = Pulls::new(1);
        let id = begin(&mut pulls, "a", "r/x", now).expect("begins");
        begin(&mut pulls, "b", "r/y", now);
        begin(&mut pulls, "c", "r/z", now);
        pulls.forget(&PodUid::new("b"));
        pulls.forget(&PodUid::new("a"));
        assert!(pulls.what(id).is_some(), "what has begun goes on");
        let ended = pulls.ended(id, S, Ok(()), now);
        assert_eq!(ended.wake, []);
        let next = ended.begin.expect("the line goes on");
        assert_eq!(pulls.what(next).expect("is there").0.image, "r/z", "what nobody wants is not pulled");
        pulls.forget(&PodUid::new("c"));
        pulls.ended(next, S, Err(error()), now);
        assert!(pulls.is_empty());
    }

    #[test]
    fn the_line_goes_on_past_pods_that_went() {
        let now = Instant::now();
        let mut pulls = Pulls::new(1);
        let id = begin(&mut pulls, "a", "r/x", now).expect("begins");
        begin(&mut pulls, "b", "r/y", now);
        pulls.forget(&PodUid::new("b"));
        assert_eq!(pulls.ended(id, S, Ok(()), now).begin, None);
        assert!(begin(&mut pulls, "d", "r/w", now).is_some(), "the registry is free");
    }

    #[test]
    fn what_kept_a_pull_from_beginning_backs_off_too() {
        let now = Instant::now();
        let mut pulls = Pulls::new(1);
        let key = key("a", "r/x");
        pulls.failed(&key, error(), now);
        assert_eq!(pulls.standing(&key, "main", now), Standing::Failed(error(), 2 * S));
        pulls.failed(&key, error(), now + 10 * S);
        assert_eq!(pulls.standing(&key, "main", now + 29 * S), Standing::Failed(error(), S));
    }
}
