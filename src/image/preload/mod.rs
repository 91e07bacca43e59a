//! Images for nodes without a registry: archives in a directory are imported into containerd, each
//! content once, and again when an image of it is wanted and gone. What waits for an image that an
//! archive holds, waits for the import and pulls nothing.
//!
//! The directory is looked at when the agent starts, from time to time, and when an image is
//! missing while the directory has changed.

mod import;
mod record;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use parking_lot::{Mutex, MutexGuard};

use super::Wake;
use super::archive::{self, Held};
use super::name::Name;
use crate::backoff::Backoff;
use crate::cri::Cri;
use crate::lane::Lane;
use crate::pod::PodUid;
use import::Importer;
use record::{Imported, Record, Stamp};

/// How often the directory is looked at.
const LOOK: Duration = Duration::from_secs(20);
/// How the names of archives end; the last ones are known so that they can be told not to work.
const ENDINGS: [&str; 10] =
    [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.zstd", ".tzst", ".tar.xz", ".txz", ".tar.bz2", ".tbz2"];
/// How long a file must not have been written to: one that is still being copied is left alone.
const SETTLED: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub struct Settings {
    /// Of archives.
    pub directory: PathBuf,
    /// The file that keeps what has been imported.
    pub record: PathBuf,
    /// containerd's.
    pub socket: PathBuf,
}

/// How it stands with an image that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No archive holds it.
    Nowhere,
    /// It is being seen to; the pod is woken.
    Coming,
    /// An archive holds it and can't be imported now.
    Failed(String),
}

#[derive(Clone)]
pub struct Preload(Arc<Inner>);

struct Inner {
    settings: Settings,
    importer: Importer,
    cri: Arc<dyn Cri>,
    wake: Wake,
    state: Mutex<State>,
    /// One look at a time, and one import.
    looks: Lane,
    imports: Lane,
}

#[derive(Default)]
struct State {
    archives: BTreeMap<String, Archive>,
    /// The directory as of the last look that has come to its end.
    directory: Option<Directory>,
    looked: bool,
    /// When the last look was asked for.
    last_look: Option<Instant>,
    look_queued: bool,
    /// Files are being written.
    unsettled: bool,
    /// Pods that wait for a look.
    for_look: HashSet<PodUid>,
    /// Pods that miss an image: an import may bring it.
    for_import: HashSet<PodUid>,
    /// Faults of files and of the directory, each to be told once.
    told: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq)]
struct Archive {
    stamp: Stamp,
    images: Vec<Held>,
    status: Status,
}

#[derive(Debug, Clone, PartialEq)]
enum Status {
    /// The runtime was not there; it is tried again at each look.
    Pending,
    Importing,
    Imported,
    Failed {
        message: String,
        delay: Backoff,
    },
    /// There is nothing to be had from it, until it is another file.
    Unusable,
}

/// What changes when a file is added to the directory, removed, or renamed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Directory {
    Missing,
    There(Stamp),
}

impl Archive {
    fn holds(&self, name: &str) -> bool {
        self.images.iter().any(|image| image.names.iter().any(|n| n == name))
    }
}

impl Preload {
    /// Reads what was kept. The first look is taken at the first [`tick`](Preload::tick).
    pub fn new(settings: Settings, cri: Arc<dyn Cri>, wake: Wake) -> Preload {
        let importer = Importer::new(&settings.socket);
        Preload::with(settings, importer, cri, wake)
    }

    fn with(settings: Settings, importer: Importer, cri: Arc<dyn Cri>, wake: Wake) -> Preload {
        let kept = record::read(&settings.record).into_iter();
        let archives =
            kept.map(|(file, Imported { stamp, images })| (file, Archive { stamp, images, status: Status::Imported }));
        let state = Mutex::new(State { archives: archives.collect(), ..State::default() });
        let (looks, imports) = (Lane::new("look", 1), Lane::new("import", 1));
        Preload(Arc::new(Inner { settings, importer, cri, wake, state, looks, imports }))
    }

    /// Looks at the directory when it is time. Does not block.
    pub fn tick(&self, now: Instant) {
        let mut state = self.0.state.lock();
        let period = if state.unsettled { SETTLED } else { LOOK };
        if state.last_look.is_none_or(|last| now.saturating_duration_since(last) >= period) {
            self.look_on_lane(&mut state, now);
        }
    }

    /// Finds an image that is not there, and has it imported if an archive holds it.
    pub fn find(&self, name: &Name, uid: &PodUid, now: Instant) -> Found {
        let name = name.canonical();
        let Some(mut state) = self.looked(uid, now) else { return Found::Coming };
        state.for_import.insert(uid.clone());
        let mut failed = None;
        let mut again = None;
        for (file, archive) in state.archives.iter().filter(|(_, archive)| archive.holds(&name)) {
            match &archive.status {
                Status::Importing => return Found::Coming,
                Status::Failed { message, delay } if delay.left_at(now).is_some() => failed = Some(message.clone()),
                // It was there, and is gone.
                Status::Imported | Status::Failed { .. } | Status::Pending => again = Some(file.clone()),
                Status::Unusable => {}
            }
        }
        match (again, failed) {
            (Some(file), _) => {
                self.import_on_lane(&mut state, &file);
                Found::Coming
            }
            (None, Some(message)) => Found::Failed(message),
            (None, None) => Found::Nowhere,
        }
    }

    /// Whether archives are being looked for or imported; then the pod is woken.
    pub fn is_busy(&self, uid: &PodUid, now: Instant) -> bool {
        let Some(mut state) = self.looked(uid, now) else { return true };
        let importing = state.archives.values().any(|archive| archive.status == Status::Importing);
        if importing {
            state.for_import.insert(uid.clone());
        }
        importing
    }

    /// The names of all images in archives; `None` while the directory has not been looked at.
    pub fn names(&self) -> Option<BTreeSet<String>> {
        let state = self.0.state.lock();
        state.looked.then_some(())?;
        let images = state.archives.values().flat_map(|archive| &archive.images);
        Some(images.flat_map(|image| image.names.iter().cloned()).collect())
    }

    pub fn forget(&self, uid: &PodUid) {
        let mut state = self.0.state.lock();
        state.for_look.remove(uid);
        state.for_import.remove(uid);
    }

    /// What is known of the directory as it is now; `None` when it has to be looked at first, for
    /// which the pod then waits.
    fn looked(&self, uid: &PodUid, now: Instant) -> Option<MutexGuard<'_, State>> {
        let directory = directory(&self.0.settings.directory);
        let mut state = self.0.state.lock();
        // One that can't be looked at holds nothing more than what is known.
        if directory.is_ok_and(|directory| state.directory != Some(directory)) {
            self.look_on_lane(&mut state, now);
            state.for_look.insert(uid.clone());
            return None;
        }
        Some(state)
    }

    fn look_on_lane(&self, state: &mut State, now: Instant) {
        if !std::mem::replace(&mut state.look_queued, true) {
            state.last_look = Some(now);
            let preload = self.clone();
            self.0.looks.submit(move || preload.look());
        }
    }

    fn import_on_lane(&self, state: &mut State, file: &str) {
        let Some(archive) = state.archives.get_mut(file) else { return };
        let before = match std::mem::replace(&mut archive.status, Status::Importing) {
            Status::Failed { delay, .. } => Some(delay),
            _ => None,
        };
        let (preload, file, archive) = (self.clone(), file.to_owned(), archive.clone());
        self.0.imports.submit(move || preload.import(&file, &archive, before));
    }

    /// Looks at the directory, reads the archives that are new, and has them imported.
    fn look(&self) {
        // Declared first, so that it is dropped last.
        let _ended = Looked(self);
        let path = &self.0.settings.directory;
        // Before its files: what comes meanwhile is seen the next time.
        let directory = directory(path);
        let files = directory.as_ref().map_err(|e| io::Error::from(e.kind())).and_then(|d| files(path, *d));
        let fault = files.as_ref().err().map(|e| format!("image archives can't be looked at: {e}"));
        let known = {
            let mut state = self.0.state.lock();
            tell(&mut state.told, &path.display().to_string(), fault);
            if files.is_err() {
                state.directory = directory.as_ref().ok().copied();
            }
            state.archives.iter().map(|(file, a)| (file.clone(), a.stamp)).collect()
        };
        let Ok(files) = files else { return };
        let news = compare(&known, &files, SystemTime::now());
        let read = news.fresh.into_iter().map(|(file, stamp)| {
            let images = archive::images(&path.join(&file));
            (file, stamp, images)
        });
        let read: Vec<_> = read.collect();
        let mut state = self.0.state.lock();
        state.directory = directory.ok();
        // With the whole directory gone, the archives may come back with it.
        if state.directory != Some(Directory::Missing) {
            state.archives.retain(|file, _| files.contains_key(file));
        }
        state.told.retain(|place, _| {
            *place == path.display().to_string() || {
                Path::new(place).file_name().and_then(|file| file.to_str()).is_some_and(|file| files.contains_key(file))
            }
        });
        state.unsettled = news.unsettled;
        let is_pending =
            |(file, archive): (&String, &Archive)| (archive.status == Status::Pending).then(|| file.clone());
        for file in state.archives.iter().filter_map(is_pending).collect::<Vec<_>>() {
            self.import_on_lane(&mut state, &file);
        }
        for (file, stamp, images) in read {
            let place = path.join(&file).display().to_string();
            let fault = images.as_ref().err().map(|e| format!("this image archive is not used: {e}"));
            tell(&mut state.told, &place, fault);
            let usable = images.is_ok();
            let archive = Archive { stamp, images: images.unwrap_or_default(), status: Status::Unusable };
            state.archives.insert(file.clone(), archive);
            if usable {
                self.import_on_lane(&mut state, &file);
            }
        }
    }

    fn import(&self, file: &str, archive: &Archive, before: Option<Backoff>) {
        let mut ended = ImportEnded { preload: self, file, stamp: archive.stamp, before, result: None };
        let path = self.0.settings.directory.join(file);
        let started = Instant::now();
        log::info!("{}: importing", path.display());
        let result = self.0.importer.import(&*self.0.cri, &path, &archive.images);
        if result.is_ok() {
            let names = archive.images.iter().flat_map(|image| image.names.iter().map(String::as_str));
            let (names, took) = (names.collect::<Vec<_>>().join(", "), started.elapsed());
            log::info!("{}: imported in {:.1} s: {names}", path.display(), took.as_secs_f32());
        }
        ended.result = Some(result);
    }

    /// Writes down what has been imported, with this file.
    fn keep(&self, file: &str, stamp: Stamp) {
        let imported = |name: &str, archive: &Archive| {
            archive.status == Status::Imported || name == file && archive.stamp == stamp
        };
        let record: Record = {
            let state = self.0.state.lock();
            let all = state.archives.iter().filter(|(name, archive)| imported(name, archive));
            all.map(|(name, a)| (name.clone(), Imported { stamp: a.stamp, images: a.images.clone() })).collect()
        };
        let path = &self.0.settings.record;
        if let Err(e) = record::write(path, &record) {
            log::warn!("{}: {e}; the image archives will be imported once more", path.display());
        }
    }
}

/// Tells a fault of `place`, unless it has been told.
fn tell(told: &mut BTreeMap<String, String>, place: &str, fault: Option<String>) {
    match fault {
        Some(fault) if told.get(place) != Some(&fault) => {
            log::warn!("{place}: {fault}");
            told.insert(place.to_owned(), fault);
        }
        Some(_) => {}
        None => _ = told.remove(place),
    }
}

/// The end of a look, whatever way it comes.
struct Looked<'p>(&'p Preload);

impl Drop for Looked<'_> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.0.0.state.lock();
            state.look_queued = false;
            state.looked = true;
            std::mem::take(&mut state.for_look)
        };
        let wake = &self.0.0.wake;
        waiting.iter().for_each(|uid| wake(uid));
    }
}

/// The end of an import, whatever way it comes.
struct ImportEnded<'p> {
    preload: &'p Preload,
    file: &'p str,
    stamp: Stamp,
    before: Option<Backoff>,
    /// `None` when there was a panic.
    result: Option<Result<(), import::Error>>,
}

impl Drop for ImportEnded<'_> {
    fn drop(&mut self) {
        let result = self.result.take();
        let unreachable = matches!(&result, Some(Err(import::Error::Cri(e))) if e.is_unreachable());
        let bug = || Err("the agent failed in it; this is a bug".to_owned());
        let result = result.map_or_else(bug, |result| result.map_err(|e| e.to_string()));
        let path = self.preload.0.settings.directory.join(self.file).display().to_string();
        let status = match &result {
            Ok(()) => {
                self.preload.keep(self.file, self.stamp);
                Status::Imported
            }
            Err(_) if unreachable => Status::Pending,
            Err(e) => Status::Failed {
                message: format!("{path}, which holds it, can't be imported: {e}"),
                delay: Backoff::again(self.before, Instant::now()),
            },
        };
        let waiting = {
            let mut state = self.preload.0.state.lock();
            // Another file may have its name by now.
            if let Some(archive) = state.archives.get_mut(self.file).filter(|archive| archive.stamp == self.stamp) {
                archive.status = status;
            }
            let fault = result.err().map(|e| format!("this image archive can't be imported: {e}"));
            tell(&mut state.told, &path, fault);
            std::mem::take(&mut state.for_import)
        };
        waiting.iter().for_each(|uid| (self.preload.0.wake)(uid));
    }
}

fn directory(path: &Path) -> io::Result<Directory> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Directory::There(Stamp::of(&metadata))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Directory::Missing),
        Err(e) => Err(e),
    }
}

/// The files that are archives by their names.
fn files(path: &Path, directory: Directory) -> io::Result<BTreeMap<String, Stamp>> {
    let mut files = BTreeMap::new();
    if directory == Directory::Missing {
        return Ok(files);
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with('.') || !ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            continue;
        }
        // Through links; one that leads nowhere is no file.
        match fs::metadata(entry.path()) {
            Ok(metadata) if metadata.is_file() => _ = files.insert(name, Stamp::of(&metadata)),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(files)
}

#[derive(Debug, PartialEq)]
struct News {
    /// Files that are new or others, and have been left alone for a while.
    fresh: Vec<(String, Stamp)>,
    /// Some have not been.
    unsettled: bool,
}

fn compare(known: &BTreeMap<String, Stamp>, files: &BTreeMap<String, Stamp>, now: SystemTime) -> News {
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |d| i128::try_from(d.as_nanos()).unwrap_or(i128::MAX));
    let settled = i128::try_from(SETTLED.as_nanos()).unwrap_or_default();
    let others = files.iter().filter(|(file, stamp)| known.get(*file) != Some(stamp));
    // A file of the future was written before the clock was set: that tells nothing.
    let (fresh, young): (Vec<_>, Vec<_>) = others.partition(|(_, stamp)| !(0..settled).contains(&(now - stamp.mtime)));
    let fresh = fresh.into_iter().map(|(file, stamp)| (file.clone(), *stamp)).collect();
    News { fresh, unsettled: !young.is_empty() }
}
