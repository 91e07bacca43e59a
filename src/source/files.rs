//! What the files of a manifest directory say, as a pure value: which are to be read, which pods
//! and objects they give, which are kept although their file can't be read just now, who of two
//! files holds a pod's or an object's name, and what is to be told, once per change.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::report::Report;
use super::{kept, manifest};
use crate::disk;
use crate::local::{Key, Object, Recorded};
use crate::pod::identity::Origin;
use crate::pod::{Pod, PodName, PodUid, Source};
use crate::yaml::Problem;

/// A broken file is told of when it has stayed as it is for so long: it may be half written.
pub const SETTLE: Duration = Duration::from_secs(1);
/// A file is gone when it is still missing after so long: editors save by renaming the old file
/// away and making a new one.
pub const GONE: Duration = Duration::from_millis(20);

/// What tells two states of a file apart without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub inode: u64,
    pub size: u64,
    /// Nanoseconds since 1970.
    pub mtime: i128,
    pub ctime: i128,
}

/// What stands in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// `None`: neither a file nor a link to one.
    pub stamp: Option<Stamp>,
}

/// A directory, by device and inode: another one in its place is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryId(pub u64, pub u64);

#[derive(Debug)]
struct File {
    stamp: Option<Stamp>,
    digest: Option<u64>,
    /// What it gives: of a file with problems also what it gave before.
    pods: Vec<Arc<Pod>>,
    objects: Vec<Arc<Object>>,
    problems: Vec<String>,
    warnings: Vec<String>,
    /// Names of pods and objects that other files hold, with those files.
    conflicts: Vec<String>,
    /// When its content was last seen to change.
    changed: Instant,
    missing_since: Option<Instant>,
    told: Vec<Report>,
}

pub struct FileSet {
    directory: String,
    /// The one file that counts, when the source is a file and not a directory.
    only: Option<String>,
    node_name: String,
    files: BTreeMap<String, File>,
    id: Option<DirectoryId>,
    /// Files that are open for writing, and when they were last written to.
    writing: HashMap<String, Instant>,
    /// Which file holds a pod's name.
    holders: HashMap<PodName, String>,
    /// Pods that ran before the agent was started, until their files have been read.
    ran_before: Vec<Arc<Pod>>,
    /// Their UIDs: of two files for one pod, theirs holds it.
    ran_uids: HashSet<PodUid>,
    /// Which file holds an object's name.
    object_holders: HashMap<Key, String>,
    /// Objects that were there before the agent was started, until their files have been read.
    recorded: Recorded,
    skipped: HashSet<String>,
    /// Why the directory can't be read, while that is so.
    unreadable: Option<String>,
    heard: bool,
}

impl FileSet {
    /// `only`: the one file that counts, whatever its name. `ran_before`: the pods that the agent
    /// kept before it was started again. `recorded`: the objects that its files gave then.
    pub fn new(
        directory: &str,
        only: Option<&str>,
        node_name: &str,
        ran_before: Vec<Arc<Pod>>,
        recorded: Recorded,
    ) -> FileSet {
        FileSet {
            directory: directory.to_owned(),
            only: only.map(str::to_owned),
            node_name: node_name.to_owned(),
            files: BTreeMap::new(),
            id: None,
            writing: HashMap::new(),
            holders: HashMap::new(),
            ran_uids: ran_before.iter().map(|p| p.uid.clone()).collect(),
            ran_before,
            object_holders: HashMap::new(),
            recorded,
            skipped: HashSet::new(),
            unreadable: None,
            heard: false,
        }
    }

    fn place(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// Notes that `name` is being written to and not closed yet.
    pub fn is_written(&mut self, name: &str, now: Instant) {
        self.writing.insert(name.to_owned(), now);
    }

    /// Notes that the writer of `name` has closed it.
    pub fn is_closed(&mut self, name: &str) {
        self.writing.remove(name);
    }

    /// Notes that the directory can't be read: everything stays as it is.
    pub fn cannot_read(&mut self, why: &str) -> Option<Report> {
        let news = self.unreadable.as_deref() != Some(why);
        self.unreadable = Some(why.to_owned());
        let text = format!("{}: {why}; the pods that it gave are kept", self.directory);
        news.then_some(Report::Problem(text))
    }

    /// Takes a listing of the directory, and returns the files to be read: those that are new or
    /// look changed, and those that are `touched`. `all` asks for every file.
    pub fn list(
        &mut self,
        id: DirectoryId,
        entries: &[Entry],
        touched: &HashSet<String>,
        all: bool,
        now: Instant,
    ) -> (Vec<String>, Vec<Report>) {
        let mut reports = Vec::new();
        let only = self.only.clone();
        let is_manifest = |e: &&Entry| e.stamp.is_some() && counts(only.as_deref(), &e.name);
        let swapped = self.id.is_some_and(|old| old != id);
        if swapped && !self.files.is_empty() && !entries.iter().any(|e| is_manifest(&e)) {
            // An unmounted file system leaves an empty directory behind.
            let why = "another directory, an empty one, is in its place";
            return (Vec::new(), self.cannot_read(why).into_iter().collect());
        }
        self.id = Some(id);
        self.heard = true;
        if self.unreadable.take().is_some() {
            reports.push(Report::Info(format!("{}: can be read again", self.directory)));
        }
        reports.extend(self.skip(entries));
        self.writing.retain(|_, last| now.duration_since(*last) < SETTLE);
        let present: HashMap<&str, Stamp> =
            entries.iter().filter(is_manifest).filter_map(|e| Some((e.name.as_str(), e.stamp?))).collect();
        for (name, file) in &mut self.files {
            match present.contains_key(name.as_str()) {
                true => file.missing_since = None,
                false => _ = file.missing_since.get_or_insert(now),
            }
        }
        let mut names: Vec<_> = present
            .iter()
            .filter(|(name, stamp)| {
                let known = self.files.get(**name).and_then(|f| f.stamp);
                !self.writing.contains_key(**name) && (all || known != Some(**stamp) || touched.contains(**name))
            })
            .map(|(name, _)| (*name).to_owned())
            .collect();
        names.sort();
        (names, reports)
    }

    /// What in the directory is no manifest is told once, and again when it had been gone.
    fn skip(&mut self, entries: &[Entry]) -> Vec<Report> {
        if self.only.is_some() {
            return Vec::new();
        }
        let skipped: HashSet<String> = entries
            .iter()
            .filter(|e| e.stamp.is_none() || !is_manifest_name(&e.name) && !disk::is_temporary(&e.name))
            .map(|e| e.name.clone())
            .collect();
        let mut news: Vec<_> = skipped.difference(&self.skipped).map(|name| self.place(name)).collect();
        news.sort();
        self.skipped = skipped;
        news.into_iter().map(|place| Report::Info(format!("{place}: not a manifest, skipped"))).collect()
    }

    /// Takes the content of a file, or why it could not be read.
    pub fn load(
        &mut self,
        name: &str,
        stamp: Option<Stamp>,
        content: Result<String, String>,
        now: Instant,
        seen: Timestamp,
    ) {
        let place = self.place(name);
        let digest = content.as_ref().ok().map(|text| {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            hasher.finish()
        });
        if let Some(file) = self.files.get_mut(name).filter(|f| digest.is_some() && f.digest == digest) {
            file.stamp = stamp;
            return;
        }
        let mut manifest = match content {
            Ok(text) => {
                let origin = Origin { source: Source::File, node_name: &self.node_name, place: &place, seen };
                manifest::read(&text, origin)
            }
            Err(why) => manifest::Manifest { problems: vec![Problem::new(0, "", why)], ..Default::default() },
        };
        let before = self.files.remove(name);
        let old_objects = match &before {
            Some(f) => f.objects.clone(),
            None => self.recorded.remove(&place).unwrap_or_default(),
        };
        let written = stamp.and_then(|stamp| Timestamp::from_nanosecond(stamp.mtime).ok());
        let objects = take_objects(&mut manifest, &old_objects, written);
        let show = |problems: &[Problem]| problems.iter().map(|p| p.at(&place)).collect::<Vec<_>>();
        let (problems, warnings) = (show(&manifest.problems), show(&manifest.warnings));
        let (old_pods, changed, told) = match before {
            Some(f) if f.problems == problems && f.digest == digest => (f.pods, f.changed, f.told),
            Some(f) => (f.pods, now, f.told),
            None => {
                let (here, elsewhere) =
                    std::mem::take(&mut self.ran_before).into_iter().partition(|p| *p.origin == *place);
                self.ran_before = elsewhere;
                (here, now, Vec::new())
            }
        };
        let pods = kept::take(manifest.pods, old_pods, !problems.is_empty());
        let file = File {
            stamp,
            digest,
            pods,
            objects,
            problems,
            warnings,
            conflicts: Vec::new(),
            changed,
            missing_since: None,
            told,
        };
        self.files.insert(name.to_owned(), file);
    }

    /// Forgets the files that are gone by now, settles who holds what, and returns what is to be
    /// told and when to look again.
    pub fn settle(&mut self, now: Instant) -> (Vec<Report>, Option<Instant>) {
        let gone = |f: &File| f.missing_since.is_some_and(|since| now.duration_since(since) >= GONE);
        self.files.retain(|_, f| !gone(f));
        self.claim();
        self.claim_objects();
        let mut reports = Vec::new();
        let mut next: Option<Instant> = None;
        let mut wake = |at: Instant| next = Some(next.map_or(at, |n| n.min(at)));
        for (name, file) in &mut self.files {
            if let Some(since) = file.missing_since {
                wake(since + GONE);
            }
            let settled = file.changed + SETTLE;
            if !file.problems.is_empty() && now < settled {
                wake(settled);
                continue;
            }
            let problems = file.problems.iter().chain(&file.conflicts).cloned().map(Report::Problem);
            let warnings = file.warnings.iter().cloned().map(Report::Warning);
            let tell: Vec<_> = problems.chain(warnings).collect();
            reports.extend(tell.iter().filter(|r| !file.told.contains(r)).cloned());
            if tell.is_empty() && file.told.iter().any(|r| matches!(r, Report::Problem(_))) {
                reports.push(Report::Info(format!("{}/{name}: has no problem any more", self.directory)));
            }
            file.told = tell;
        }
        for last in self.writing.values() {
            wake(*last + SETTLE);
        }
        (reports, next)
    }

    /// Of several files that give one pod, the first keeps it for as long as it gives it.
    fn claim(&mut self) {
        let files = &self.files;
        self.holders.retain(|name, file| files.get(file).is_some_and(|f| f.pods.iter().any(|p| p.name == *name)));
        let ran = &self.ran_uids;
        let given = || files.iter().flat_map(|(file, f)| f.pods.iter().map(move |pod| (file, pod)));
        for (file, pod) in given().filter(|(_, p)| ran.contains(&p.uid)).chain(given()) {
            self.holders.entry(pod.name.clone()).or_insert_with(|| file.clone());
        }
        let directory = &self.directory;
        for (file, f) in &mut self.files {
            let mut own = HashSet::new();
            f.conflicts.clear();
            for pod in &f.pods {
                let holder = self.holders.get(&pod.name).filter(|holder| *holder != file);
                let text = match holder {
                    Some(h) => format!("pod {} is that of {directory}/{h} already; this one is ignored", pod.name),
                    None if !own.insert(&pod.name) => format!("pod {} stands in it twice; the first counts", pod.name),
                    None => continue,
                };
                f.conflicts.push(format!("{directory}/{file}: {text}"));
            }
        }
    }

    /// The same for objects.
    fn claim_objects(&mut self) {
        let files = &self.files;
        self.object_holders
            .retain(|key, file| files.get(file).is_some_and(|f| f.objects.iter().any(|o| o.key == *key)));
        for (file, object) in files.iter().flat_map(|(file, f)| f.objects.iter().map(move |o| (file, o))) {
            self.object_holders.entry(object.key.clone()).or_insert_with(|| file.clone());
        }
        let directory = &self.directory;
        for (file, f) in &mut self.files {
            let mut own = HashSet::new();
            for Object { key, .. } in f.objects.iter().map(|o| &**o) {
                let holder = self.object_holders.get(key).filter(|holder| *holder != file);
                let text = match holder {
                    Some(h) => format!("{key} is that of {directory}/{h} already; this one is ignored"),
                    None if !own.insert(key) => format!("{key} stands in it twice; the first counts"),
                    None => continue,
                };
                f.conflicts.push(format!("{directory}/{file}: {text}"));
            }
        }
    }

    /// The objects of each file by its path, and of all of them those that count; `None` while the
    /// directory has never been read.
    pub fn objects(&self) -> Option<(Recorded, Vec<Arc<Object>>)> {
        let by_place = self.files.iter().map(|(file, f)| (self.place(file), f.objects.clone())).collect();
        let mut taken = HashSet::new();
        let all = self.files.iter().flat_map(|(file, f)| f.objects.iter().map(move |object| (file, object)));
        let held = all.filter(|(file, o)| self.object_holders.get(&o.key) == Some(file) && taken.insert(&o.key));
        let objects = held.map(|(_, object)| object.clone()).collect();
        self.heard.then_some((by_place, objects))
    }

    /// All pods, in the order of their files; `None` while the directory has never been read.
    pub fn pods(&self) -> Option<Vec<Arc<Pod>>> {
        let mut taken = HashSet::new();
        let all = self.files.iter().flat_map(|(file, f)| f.pods.iter().map(move |pod| (file, pod)));
        let held = all.filter(|(file, pod)| self.holders.get(&pod.name) == Some(file) && taken.insert(&pod.name));
        let pods: Vec<_> = held.map(|(_, pod)| pod.clone()).collect();
        self.heard.then_some(pods)
    }
}

/// The objects of a manifest, with those of before that it keeps: equal ones as the same values, and
/// of a manifest with problems also what it doesn't give just now. Changing one that says it never
/// changes is such a problem. `written`: when the manifest was.
fn take_objects(
    manifest: &mut manifest::Manifest,
    old: &[Arc<Object>],
    written: Option<Timestamp>,
) -> Vec<Arc<Object>> {
    let mut objects: Vec<Arc<Object>> = Vec::new();
    for mut object in std::mem::take(&mut manifest.objects) {
        object.created = old.iter().find(|old| old.key == object.key).and_then(|old| old.created).or(written);
        match old.iter().find(|old| old.key == object.key) {
            Some(old) if **old == object => objects.push(old.clone()),
            Some(old) if !old.may_become(&object) => {
                let why = format!("{} is immutable; remove it first, or give the new one another name", object.key);
                manifest.problems.push(Problem::new(0, "", why));
            }
            _ => objects.push(Arc::new(object)),
        }
    }
    if !manifest.problems.is_empty() {
        let kept: Vec<_> = old.iter().filter(|old| objects.iter().all(|o| o.key != old.key)).cloned().collect();
        objects.extend(kept);
    }
    objects
}

fn counts(only: Option<&str>, name: &str) -> bool {
    only.map_or_else(|| is_manifest_name(name), |only| only == name)
}

/// `.yaml`, `.yml`, `.json`, `.manifest`, and names without a dot; not what editors and package
/// managers leave beside a file (`x.yaml.bak`, `x~`, `#x#`, `.x.swp`).
pub fn is_manifest_name(name: &str) -> bool {
    if name.is_empty() || name.starts_with(['.', '#']) || name.ends_with('~') {
        return false;
    }
    match name.rsplit_once('.') {
        None => true,
        Some((_, extension)) => ["yaml", "yml", "json", "manifest"].contains(&extension),
    }
}

#[cfg(test)]
mod tests;
