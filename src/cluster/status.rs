//! The status manager: a thread that keeps the API server told of this node's pods. It works from what
//! is so now, so that of many changes of one pod only the newest is told.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use serde_json::Value;

use super::events::{Tell, Told as ToldEvents};
use super::{diff, mirror};
use crate::config::Rate;
use crate::kube::retry::{Retry, chance};
use crate::kube::{self, Client, DeleteOptions, Patch, in_namespace, named};
use crate::pod::{Pod, PodName, PodUid, Source, core};
use crate::rate::Bucket;
use crate::source::apiserver::{Seen, Told};
use crate::status::{Store, StoredPod, events};

/// How often everything is looked at though nothing was heard.
const RESYNC: Duration = Duration::from_secs(60);
/// How long news that nobody waits for may wait for more: a pod that starts has some each moment.
const CALM: Duration = Duration::from_secs(1);
/// How long events wait for pods at most.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Settings {
    pub node_name: String,
    pub client: Arc<Client>,
    /// How the pods are.
    pub store: Arc<Store>,
    /// What the server has.
    pub seen: Arc<Seen>,
    /// What happened to them.
    pub events: Arc<events::Log>,
    /// How many of that the server is told; `None`: all.
    pub event_rate: Option<Rate>,
    /// All sources have been heard: what isn't there isn't wanted.
    pub all_heard: Arc<AtomicBool>,
}

/// What is remembered of an object of the server.
#[derive(Default)]
struct Entry {
    /// What it was told last, of which version of it. Until it is heard as another one, this counts.
    told: Option<(Arc<Pod>, Value)>,
    /// With this nothing is to be done.
    done: Option<(Arc<Pod>, Arc<core::PodStatus>, bool)>,
    /// Since when there is something to tell that isn't urgent.
    calm: Option<Instant>,
    /// It was removed, and is heard of until its end has come here.
    removed: Option<Instant>,
    trouble: Trouble,
}

/// After a failure: when to try again.
#[derive(Default)]
struct Trouble {
    retry: Retry,
    until: Option<Instant>,
    /// The failure, told once.
    text: Option<String>,
}

impl Trouble {
    fn waits(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn fails(&mut self, error: &kube::Error, what: &str, now: Instant) {
        self.until = Some(now + self.retry.fails(error.retry_after(), chance()));
        let text = error.to_string();
        match self.text.as_ref() == Some(&text) {
            true => log::debug!("{what}: {text}"),
            false => log::warn!("{what}: {text}"),
        }
        self.text = Some(text);
    }
}

/// How far the manager is with telling, for those who wait for it.
#[derive(Clone)]
pub struct Rounds {
    begun: Arc<AtomicU64>,
    /// The last one in which the server was told of all.
    done: Arc<AtomicU64>,
    wake: Sender<()>,
}

impl Rounds {
    /// Something is other than it was. Never waits.
    pub fn wake(&self) {
        // A full channel means that it has been told already.
        let _ = self.wake.try_send(());
    }

    /// Asks for another round. Once [`Rounds::done`] is more than what this returns, the server has
    /// been told of what is so now, but for small news, and for what it refuses.
    pub fn ask(&self) -> u64 {
        let begun = self.begun.load(Ordering::SeqCst);
        self.wake();
        begun
    }

    pub fn done(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }
}

pub struct StatusManager {
    settings: Settings,
    /// By the objects' UIDs.
    entries: HashMap<PodUid, Entry>,
    /// Mirrors that can't be made, by the pods' names.
    mirrors: HashMap<PodName, Trouble>,
    events: Events,
    /// The node's UID, once it is known.
    node_uid: Option<String>,
    /// The server can't be reached.
    unreachable: Trouble,
    wake: Receiver<()>,
    begun: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
}

/// The telling of events (eventRecordQPS, eventBurst).
struct Events {
    told: ToldEvents,
    /// Requests of events don't count as others do, as with the kubelet.
    client: Client,
    limit: Option<Bucket>,
    /// When the next one may be told.
    until: Option<Instant>,
    /// Since when there is some to tell.
    since: Option<Instant>,
    /// When a pod's status was told last.
    pods_told: Option<Instant>,
}

impl Events {
    fn new(settings: &Settings) -> Events {
        Events {
            told: ToldEvents::new(&settings.events.events(), &settings.node_name),
            client: settings.client.without_limit(),
            limit: settings.event_rate.map(Bucket::new),
            until: None,
            since: None,
            pods_told: None,
        }
    }

    /// Whether one more may be told now, of so many; else it has to wait. While there is news of pods
    /// they go first: many that start at once need what the server can do.
    fn may(&mut self, left: usize, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let quiet = self.pods_told.map(|at| (at + CALM).min(since + PATIENCE));
        if let Some(quiet) = quiet.filter(|quiet| now < *quiet && left < events::MAX_EVENTS / 2) {
            self.until = Some(quiet);
            return false;
        }
        let wait = self.limit.as_mut().and_then(|limit| limit.try_take(now).err());
        self.until = wait.map(|wait| now + wait);
        wait.is_none()
    }

    fn send(&self, event: &events::Event) -> Result<Value, kube::Error> {
        let namespace = &event.involved.namespace;
        match self.told.tell(event) {
            Tell::Create(object) => self.client.create(&in_namespace(namespace, "events"), &object),
            Tell::Patch(patch) => self.client.patch(&named(namespace, "events", &event.name), Patch::Merge, &patch),
        }
    }
}

/// What ends a round early: nobody can be told anything.
struct Unreachable;

impl StatusManager {
    /// And what wakes it.
    pub fn new(settings: Settings) -> (StatusManager, Rounds) {
        let (tell, wake) = bounded(1);
        let rounds = Rounds { begun: Arc::default(), done: Arc::default(), wake: tell };
        let events = Events::new(&settings);
        let manager = StatusManager {
            settings,
            events,
            entries: HashMap::new(),
            mirrors: HashMap::new(),
            node_uid: None,
            unreachable: Trouble::default(),
            wake,
            begun: rounds.begun.clone(),
            done: rounds.done.clone(),
        };
        (manager, rounds)
    }

    /// Runs until nobody can wake it any more.
    pub fn run(mut self) {
        loop {
            let now = Instant::now();
            if !self.unreachable.waits(now) {
                if let Ok(()) = self.round(now) {
                    self.unreachable = Trouble::default();
                }
            }
            match self.wake.recv_timeout(self.pause(Instant::now())) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Words that come while the server can't be reached are not more urgent for that.
            if let Some(left) = self.unreachable.until.and_then(|until| until.checked_duration_since(Instant::now())) {
                std::thread::sleep(left);
            }
        }
    }

    /// How long until something is due.
    fn pause(&self, now: Instant) -> Duration {
        let troubles = self.entries.values().map(|entry| &entry.trouble).chain(self.mirrors.values());
        let due = troubles.chain([&self.unreachable]).filter_map(|trouble| trouble.until).chain(self.events.until);
        // What was due long ago is of a pod that isn't here any more.
        let calm = self.entries.values().filter_map(|entry| Some(entry.calm? + CALM));
        let due = due.chain(calm.filter(|due| now < *due + CALM));
        let due = due.map(|until| until.saturating_duration_since(now)).min();
        due.unwrap_or(RESYNC).clamp(Duration::from_millis(10), RESYNC)
    }

    fn round(&mut self, now: Instant) -> Result<(), Unreachable> {
        self.events.until = None;
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let told = self.settings.seen.get();
        // What was kept on disk says nothing of what the server has.
        if !told.live {
            return Ok(());
        }
        let stored = self.settings.store.list();
        let ending: HashSet<_> = stored.iter().filter(|s| s.ending).map(|s| s.pod.name.clone()).collect();
        for stored in &stored {
            match stored.pod.source {
                Source::Api => self.pod(&told, stored, now)?,
                // Until the one of before has ended, its mirror stays.
                _ if !stored.ending && ending.contains(&stored.pod.name) => {}
                Source::File | Source::Http => self.static_pod(&told, stored, now)?,
            }
        }
        if self.settings.all_heard.load(Ordering::Relaxed) {
            self.orphans(&told, &stored, now)?;
        }
        self.forget(&told, &stored);
        self.done.store(number, Ordering::SeqCst);
        self.tell_events(now)
    }

    /// What happened to pods; the server may refuse it, and then it is known here only.
    fn tell_events(&mut self, now: Instant) -> Result<(), Unreachable> {
        let all = self.settings.events.events();
        let news = self.events.told.news(&all);
        let count = news.len();
        for (i, event) in news.into_iter().enumerate() {
            if !self.events.may(count - i, now) {
                return Ok(());
            }
            if let Err(e) = self.events.send(event) {
                self.reachable(&e, now)?;
                log::debug!("telling of an event: {e}");
            }
            self.events.told.done(event);
        }
        self.events.since = None;
        Ok(())
    }

    /// A pod of the server.
    fn pod(&mut self, told: &Told, stored: &StoredPod, now: Instant) -> Result<(), Unreachable> {
        let (Some(object), Some(status)) = (told.pods.get(&stored.pod.uid), &stored.status) else { return Ok(()) };
        if !self.tell(object, status, stored.stopped, now)? || !stored.stopped || !object.is_deleted() {
            return Ok(());
        }
        self.delete(object, now)
    }

    /// Tells the server the status of a pod, if it is other than what it has. Returns whether it has
    /// it now, and there may be more to do.
    fn tell(
        &mut self,
        object: &Arc<Pod>,
        status: &Arc<core::PodStatus>,
        ended: bool,
        now: Instant,
    ) -> Result<bool, Unreachable> {
        let entry = self.entries.entry(object.uid.clone()).or_default();
        let is_done = |(o, s, e): &(Arc<Pod>, Arc<core::PodStatus>, bool)| {
            Arc::ptr_eq(o, object) && Arc::ptr_eq(s, status) && *e == ended
        };
        if entry.done.as_ref().is_some_and(is_done) || entry.trouble.waits(now) {
            return Ok(false);
        }
        let there = match &entry.told {
            Some((version, there)) if Arc::ptr_eq(version, object) => there.clone(),
            _ => object.status.as_deref().map(diff::json_of).unwrap_or_default(),
        };
        let done = (object.clone(), status.clone(), ended);
        let end = if mirror::is_one(object) { diff::End::Passing } else { diff::End::Final };
        let Some(patch) = diff::patch(object.uid.as_str(), &there, status, end) else {
            entry.told = Some((object.clone(), there));
            entry.trouble = Trouble::default();
            entry.calm = None;
            entry.done = Some(done);
            return Ok(true);
        };
        if !ended && !diff::is_urgent(&there, &patch) {
            let since = *entry.calm.get_or_insert(now);
            if now.saturating_duration_since(since) < CALM {
                return Ok(false);
            }
        }
        entry.calm = None;
        let path = named(&object.name.namespace, "pods", &object.name.name) + "/status";
        match self.settings.client.patch(&path, Patch::Strategic, &patch) {
            Ok(mut answer) => {
                self.events.pods_told = Some(now);
                entry.told = Some((object.clone(), answer["status"].take()));
                entry.trouble = Trouble::default();
                entry.done = Some(done);
                Ok(true)
            }
            Err(e) => self
                .failed(&object.uid.clone(), &e, &format!("telling the status of pod {}", object.name), now)
                .map(|()| {
                    // It is gone, or another has its name: what is heard of it next says so.
                    if let Some(entry) =
                        self.entries.get_mut(&object.uid).filter(|_| e.is_not_found() || e.is_conflict())
                    {
                        entry.trouble = Trouble::default();
                        entry.done = Some(done);
                    }
                    false
                }),
        }
    }

    /// Removes a pod from the server for good.
    fn delete(&mut self, object: &Arc<Pod>, now: Instant) -> Result<(), Unreachable> {
        let entry = self.entries.entry(object.uid.clone()).or_default();
        if entry.removed.is_some_and(|at| now.saturating_duration_since(at) < RESYNC) {
            return Ok(());
        }
        entry.removed = Some(now);
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            uid: Some(object.uid.to_string()),
            ..DeleteOptions::default()
        };
        let path = named(&object.name.namespace, "pods", &object.name.name);
        match self.settings.client.delete(&path, &options) {
            Ok(()) => log::info!("pod {}: it has ended and is removed from the API server", object.name),
            Err(e) if e.is_not_found() || e.is_conflict() => {}
            Err(e) => {
                if let Some(entry) = self.entries.get_mut(&object.uid) {
                    entry.done = None;
                    entry.removed = None;
                }
                return self.failed(&object.uid.clone(), &e, &format!("removing pod {}", object.name), now);
            }
        }
        Ok(())
    }

    fn static_pod(&mut self, told: &Told, stored: &StoredPod, now: Instant) -> Result<(), Unreachable> {
        let pod = &stored.pod;
        let mirror = told.mirrors.get(&pod.name);
        match (mirror::act(Some(pod), mirror.map(|mirror| &**mirror)), mirror) {
            (Some(mirror::Act::Tell), Some(mirror)) => match &stored.status {
                Some(status) => self.tell(mirror, status, false, now).map(drop),
                None => Ok(()),
            },
            // What ends gets no other mirror.
            _ if stored.ending => Ok(()),
            (Some(mirror::Act::Create), _) => self.create_mirror(pod, now),
            (Some(mirror::Act::Delete), Some(mirror)) => self.delete_mirror(mirror, now),
            _ => Ok(()),
        }
    }

    /// Mirrors of what isn't there any more.
    fn orphans(&mut self, told: &Told, stored: &[StoredPod], now: Instant) -> Result<(), Unreachable> {
        let own: HashSet<_> = stored.iter().filter(|s| s.pod.source != Source::Api).map(|s| &s.pod.name).collect();
        for (_, mirror) in told.mirrors.iter().filter(|(name, _)| !own.contains(name)) {
            self.delete_mirror(mirror, now)?;
        }
        Ok(())
    }

    fn create_mirror(&mut self, pod: &Arc<Pod>, now: Instant) -> Result<(), Unreachable> {
        if self.mirrors.get(&pod.name).is_some_and(|trouble| trouble.waits(now)) {
            return Ok(());
        }
        let result = self.node_uid().and_then(|uid| {
            let object = mirror::object(pod, (&self.settings.node_name, &uid));
            self.settings.client.create(&kube::in_namespace(&pod.name.namespace, "pods"), &object)
        });
        match result {
            Ok(_) => {
                log::info!("pod {}: the API server has a mirror of it", pod.name);
                // Until it is heard of, it needs no other one.
                let trouble = self.mirrors.entry(pod.name.clone()).or_default();
                *trouble = Trouble { until: Some(now + RESYNC), ..Trouble::default() };
                Ok(())
            }
            Err(e) if e.is_already_exists() => {
                let trouble = self.mirrors.entry(pod.name.clone()).or_default();
                trouble.until = Some(now + trouble.retry.fails(None, chance()));
                Ok(())
            }
            Err(e) => {
                if e.is_forbidden() {
                    // The node may be another than it was.
                    self.node_uid = None;
                }
                self.reachable(&e, now)?;
                let trouble = self.mirrors.entry(pod.name.clone()).or_default();
                trouble.fails(&e, &format!("mirroring pod {}", pod.name), now);
                Ok(())
            }
        }
    }

    fn delete_mirror(&mut self, mirror: &Arc<Pod>, now: Instant) -> Result<(), Unreachable> {
        let entry = self.entries.entry(mirror.uid.clone()).or_default();
        if entry.trouble.waits(now) {
            return Ok(());
        }
        // Once it is gone, another may be made at once.
        self.mirrors.remove(&mirror.name);
        self.delete(mirror, now)
    }

    fn node_uid(&mut self) -> Result<String, kube::Error> {
        if let Some(uid) = &self.node_uid {
            return Ok(uid.clone());
        }
        let node = self.settings.client.get(&kube::path(&["api", "v1", "nodes", &self.settings.node_name]))?;
        let uid = node["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        self.node_uid = Some(uid.clone());
        Ok(uid)
    }

    fn failed(&mut self, uid: &PodUid, error: &kube::Error, what: &str, now: Instant) -> Result<(), Unreachable> {
        self.reachable(error, now)?;
        self.entries.entry(uid.clone()).or_default().trouble.fails(error, what, now);
        Ok(())
    }

    fn reachable(&mut self, error: &kube::Error, now: Instant) -> Result<(), Unreachable> {
        match error {
            kube::Error::Unreachable { .. } | kube::Error::Config(_) => {
                self.unreachable.fails(error, "telling the API server of pods", now);
                Err(Unreachable)
            }
            _ => Ok(()),
        }
    }

    fn forget(&mut self, told: &Told, stored: &[StoredPod]) {
        let mirrors: HashSet<_> = told.mirrors.values().map(|mirror| &mirror.uid).collect();
        self.entries.retain(|uid, _| told.pods.contains_key(uid) || mirrors.contains(uid));
        self.mirrors.retain(|name, _| stored.iter().any(|s| s.pod.name == *name) && !told.mirrors.contains_key(name));
    }
}

/// Starts the manager on a thread of its own.
pub fn spawn(manager: StatusManager) -> io::Result<()> {
    std::thread::Builder::new().name("status-api".to_owned()).spawn(move || manager.run()).map(drop)
}
