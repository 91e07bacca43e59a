//! Looks at the runtime for the node's status, on a lane: a runtime that hangs must not keep the node
//! from saying that it lives.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};

use super::images::images;
use super::object::Software;
use crate::cri::{self, Cri};
use crate::lane::Lane;

/// How long a look is waited for; what it finds later is taken the next time.
const WAIT: Duration = Duration::from_secs(5);
/// The list of images is asked for no more often.
const IMAGES_EVERY: Duration = Duration::from_secs(60);

pub struct Eye {
    cri: Arc<dyn Cri>,
    lane: Lane,
    /// Of one look at a time.
    tell: Sender<Found>,
    told: Receiver<Found>,
    looking: bool,
    max_images: Option<u32>,
    images_asked: Option<Instant>,
    /// What the runtime was told of the addresses of pods.
    cidr: String,
    pub software: Software,
    /// Where it has its images.
    pub image_dirs: Vec<PathBuf>,
    /// When the runtime last said how it is.
    pub at: Option<Instant>,
}

struct Found {
    at: Instant,
    status: cri::Result<cri::Status>,
    version: Option<cri::Version>,
    images: Option<Vec<cri::Image>>,
    image_dirs: Option<Vec<PathBuf>>,
    /// The addresses that it was told of.
    cidr: Option<String>,
}

impl Eye {
    pub fn new(cri: Arc<dyn Cri>, max_images: Option<u32>) -> Eye {
        let (tell, told) = bounded(1);
        let (lane, software) = (Lane::new("node", 1), Software::default());
        Eye {
            cri,
            lane,
            tell,
            told,
            looking: false,
            max_images,
            images_asked: None,
            cidr: String::new(),
            software,
            image_dirs: Vec::new(),
            at: None,
        }
    }

    /// Looks, and waits some seconds for what is found. `cidr`: the networks of pods' addresses.
    pub fn look(&mut self, cidr: &str, now: Instant) {
        if !self.looking {
            self.looking = true;
            let with_images = self.images_asked.is_none_or(|at| now - at >= IMAGES_EVERY);
            let cidr = (!cidr.is_empty() && cidr != self.cidr).then(|| cidr.to_owned());
            let (cri, tell) = (self.cri.clone(), self.tell.clone());
            self.lane.submit(move || {
                // With its thread gone nobody waits for it.
                let _ = tell.send(find(&*cri, now, with_images, cidr));
            });
        }
        if let Ok(found) = self.told.recv_timeout(WAIT) {
            self.looking = false;
            self.take(found);
        }
    }

    fn take(&mut self, found: Found) {
        if let Ok(status) = found.status {
            self.at = Some(found.at);
            self.software.status = status;
        }
        if let Some(version) = found.version {
            self.software.version = format!("{}://{}", version.name, version.version);
        }
        if let Some(all) = found.images {
            self.images_asked = Some(found.at);
            self.software.images = images(all, self.max_images);
        }
        if let Some(dirs) = found.image_dirs {
            self.image_dirs = dirs;
        }
        if let Some(cidr) = found.cidr {
            log::info!("the addresses of pods are of {cidr}");
            self.cidr = cidr;
        }
    }
}

fn find(cri: &dyn Cri, at: Instant, with_images: bool, cidr: Option<String>) -> Found {
    let status = cri.status();
    // One that doesn't answer isn't asked for more.
    let up = status.is_ok();
    let told = |cidr: &String| match cri.set_pod_cidr(cidr) {
        Ok(()) => true,
        Err(e) => {
            log::warn!("telling the runtime that the addresses of pods are of {cidr}: {e}");
            false
        }
    };
    Found {
        at,
        version: up.then(|| cri.version().ok()).flatten(),
        images: (up && with_images).then(|| cri.list_images().ok()).flatten(),
        image_dirs: (up && with_images).then(|| cri.image_fs_info().ok()).flatten(),
        cidr: cidr.filter(|cidr| up && told(cidr)),
        status,
    }
}
