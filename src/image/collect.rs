//! Removing images that nobody needs, from time to time. What can't be pulled again is never
//! removed: what a wanted pod names, what an archive of the node holds, what sandboxes are made of,
//! and what the runtime has pinned.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::gc::{Candidate, Disk, Ledger, Policy};
use super::name::Name;
use super::preload::Preload;
use crate::config;
use crate::cri::{self, Cri, Image};
use crate::lane::Lane;

/// How often (pkg/kubelet/kubelet.go, `ImageGCPeriod`).
const PERIOD: Duration = Duration::from_secs(300);

/// The images that wanted pods name; `None` while it is not known what is wanted.
pub type Wanted = Arc<dyn Fn() -> Option<BTreeSet<String>> + Send + Sync>;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Cri(#[from] cri::Error),
    #[error("measuring the disk at {path}: {source}")]
    Measure { path: String, source: io::Error },
    #[error("wanted to free {wanted} bytes, and found {found} in images that nobody needs{}", failures(.failed))]
    NotEnough { wanted: u64, found: u64, failed: Vec<String> },
    #[error("images that have not been used for long stay{}", failures(.0))]
    Old(Vec<String>),
}

fn failures(all: &[String]) -> String {
    match all {
        [] => String::new(),
        [first, rest @ ..] => format!("; {} could not be removed: {first}", rest.len() + 1),
    }
}

/// Clones are the same.
#[derive(Clone)]
pub struct Collector(Arc<Inner>);

struct Inner {
    cri: Arc<dyn Cri>,
    policy: Policy,
    preload: Preload,
    wanted: Wanted,
    measure: fn(&Path) -> io::Result<Disk>,
    state: Mutex<State>,
    lane: Lane,
}

#[derive(Default)]
struct State {
    ledger: Ledger,
    last: Option<Instant>,
    running: bool,
    /// What went wrong the last time.
    told: Option<String>,
}

impl Collector {
    pub fn new(cri: Arc<dyn Cri>, config: &config::Image, preload: Preload, wanted: Wanted) -> Collector {
        Collector::with(cri, config.into(), preload, wanted, measure)
    }

    pub(super) fn with(
        cri: Arc<dyn Cri>,
        policy: Policy,
        preload: Preload,
        wanted: Wanted,
        measure: fn(&Path) -> io::Result<Disk>,
    ) -> Collector {
        let (state, lane) = (Mutex::default(), Lane::new("image-gc", 1));
        Collector(Arc::new(Inner { cri, policy, preload, wanted, measure, state, lane }))
    }

    /// Looks and removes when it is time. Does not block.
    pub fn tick(&self, now: Instant) {
        let mut state = self.0.state.lock();
        let is_time = state.last.is_none_or(|last| now.saturating_duration_since(last) >= PERIOD);
        if is_time && !std::mem::replace(&mut state.running, true) {
            let collector = self.clone();
            self.0.lane.submit(move || collector.run(now));
        }
    }

    /// Looks once, and removes what is to go. Makes calls to the runtime, which may take long.
    pub(super) fn run(&self, now: Instant) {
        let _ended = RunEnded(self);
        // Before both are known, an image that is needed may seem not to be.
        let (Some(wanted), Some(archived)) = ((self.0.wanted)(), self.0.preload.names()) else { return };
        let result = self.collect(&wanted, &archived, now).map_err(|e| e.to_string()).err();
        let mut state = self.0.state.lock();
        state.last = Some(now);
        if let Some(message) = result.as_ref().filter(|message| state.told.as_ref() != Some(message)) {
            log::warn!("image garbage collection: {message}");
        }
        state.told = result;
    }

    fn collect(&self, wanted: &BTreeSet<String>, archived: &BTreeSet<String>, now: Instant) -> Result<(), Error> {
        let images = self.0.cri.list_images()?;
        let in_use = canonical(self.0.cri.images_in_use()?);
        let candidates = {
            let mut state = self.0.state.lock();
            state.ledger.see(&images, |image| names(image).any(|name| in_use.contains(name)), now);
            state.ledger.candidates(&images, &self.0.policy, now)
        };
        let to_free = self.disk()?.to_free(&self.0.policy);
        if candidates.is_empty() || to_free == 0 && !candidates.iter().any(|candidate| candidate.old) {
            return if to_free == 0 {
                Ok(())
            } else {
                Err(Error::NotEnough { wanted: to_free, found: 0, failed: vec![] })
            };
        }
        let sandbox = self.0.cri.settings()?.sandbox_image;
        let needed = self.needed(wanted.iter().chain(archived).chain(&sandbox))?;
        let candidates: Vec<_> = candidates.into_iter().filter(|candidate| !needed.contains(&candidate.id)).collect();
        self.remove_old(&candidates)?;
        self.free(candidates.iter().filter(|candidate| !candidate.old), self.disk()?.to_free(&self.0.policy))
    }

    /// The ids of the images with these names: the runtime knows best what it makes of a name.
    fn needed<'n>(&self, wanted: impl Iterator<Item = &'n String>) -> Result<HashSet<String>, Error> {
        let mut ids = HashSet::new();
        for text in wanted {
            let Ok(name) = Name::parse(text) else { continue };
            ids.extend(self.0.cri.image_status(&name.with_tag(text))?.map(|image| image.id));
        }
        Ok(ids)
    }

    fn remove_old(&self, candidates: &[Candidate]) -> Result<(), Error> {
        let mut failed = Vec::new();
        for image in candidates.iter().filter(|candidate| candidate.old) {
            if let Err(e) = self.remove(image, "it has not been used for long") {
                failed.push(format!("{}: {e}", image.id));
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(Error::Old(failed)) }
    }

    /// Removes until so much is freed, by what the runtime says of sizes or by what the disk has:
    /// images share layers, so that the two differ.
    fn free<'c>(&self, candidates: impl Iterator<Item = &'c Candidate>, wanted: u64) -> Result<(), Error> {
        let (mut found, mut failed) = (0_u64, Vec::new());
        if wanted == 0 {
            return Ok(());
        }
        let available = self.disk()?.available;
        for image in candidates {
            match self.remove(image, "the disk is full") {
                Ok(()) => found = found.saturating_add(image.size),
                Err(e) => failed.push(format!("{}: {e}", image.id)),
            }
            if found >= wanted || self.disk()?.available.saturating_sub(available) >= wanted {
                return Ok(());
            }
        }
        Err(Error::NotEnough { wanted, found, failed })
    }

    fn remove(&self, image: &Candidate, why: &str) -> cri::Result<()> {
        log::info!("removing image {} of {} bytes: {why}", image.id, image.size);
        self.0.cri.remove_image(&image.id)
    }

    fn disk(&self) -> Result<Disk, Error> {
        let paths = self.0.cri.image_fs_info()?;
        let path = paths.first().map_or(Path::new("/"), |path| path.as_path());
        (self.0.measure)(path).map_err(|source| Error::Measure { path: path.display().to_string(), source })
    }
}

struct RunEnded<'c>(&'c Collector);

impl Drop for RunEnded<'_> {
    fn drop(&mut self) {
        self.0.0.state.lock().running = false;
    }
}

fn names(image: &Image) -> impl Iterator<Item = &String> {
    [&image.id].into_iter().chain(&image.repo_tags).chain(&image.repo_digests)
}

/// These names, and what they are when nothing is left out.
fn canonical(names: BTreeSet<String>) -> BTreeSet<String> {
    let whole: Vec<_> = names.iter().filter_map(|name| Some(Name::parse(name).ok()?.canonical())).collect();
    names.into_iter().chain(whole).collect()
}

fn measure(path: &Path) -> io::Result<Disk> {
    let stat = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(Disk { capacity: bytes(stat.f_blocks), available: bytes(stat.f_bavail) })
}
