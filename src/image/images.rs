//! What pods ask for their images: one that is there is given out, one that an archive holds is
//! imported, another is pulled (pkg/kubelet/images/image_manager.go).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::credentials::NodeCredentials;
use super::keyring::Keyring;
use super::name::{InvalidName, Name};
use super::preload::{Found, Preload};
use super::pull::{self, PullError};
use super::pulls::{Key, PullId, Pulls, Standing, Target, Took};
use super::{PullPolicy, Wake};
use crate::config::duration::GoDuration;
use crate::config::{self, Rate};
use crate::cri::{self, Cri, Image, api};
use crate::lane::Lane;
use crate::local::Secret;
use crate::pod::PodUid;
use crate::rate::Bucket;

/// Pulls at once at one registry, when the configuration sets no limit.
const NO_LIMIT: usize = 16;
/// Registries that may hang before a pull from another has to wait.
const OTHERS: usize = 48;
/// How often to look for an image that can't be pulled: somebody may import it.
const RETRY: Duration = Duration::from_secs(10);
/// A name that is none stays none until the pod is another.
const RETRY_NEVER: Duration = Duration::from_secs(300);

/// What a pod asks.
#[derive(Clone, Copy)]
pub struct Want<'a> {
    pub uid: &'a PodUid,
    /// The container, or the volume, that is to have the image: each has a pull of its own where
    /// the policy is `Always`.
    pub user: &'a str,
    /// As the pod calls it.
    pub image: &'a str,
    pub policy: PullPolicy,
    /// The pod's `imagePullSecrets`, those of them that are there.
    pub secrets: &'a [(&'a str, &'a Secret)],
    pub sandbox: &'a api::PodSandboxConfig,
}

/// How it stands with an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ensure {
    /// It is there. `message` is for the event `Pulled`.
    Ready {
        image: Image,
        message: String,
    },
    /// It is being pulled or imported; the pod is woken. `begun` is for the event `Pulling`.
    Waiting {
        begun: Option<String>,
    },
    Failed(Failure),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kubelet's reason, for the container's waiting state.
    pub reason: &'static str,
    /// Without secrets.
    pub message: String,
    /// The kubelet's reason of the event that tells it.
    pub event: &'static str,
    /// When to ask again, if nothing happens before.
    pub retry_after: Duration,
}

/// The images of all pods. Clones are the same.
#[derive(Clone)]
pub struct Images(Arc<Inner>);

struct Inner {
    cri: Arc<dyn Cri>,
    credentials: NodeCredentials,
    preload: Preload,
    pulls: Mutex<Pulls>,
    rate: Option<Mutex<Bucket>>,
    lane: Lane,
    wake: Wake,
}

impl Images {
    /// `wake` is called from threads of lanes, for a pod that is to ask again.
    pub fn new(
        cri: Arc<dyn Cri>,
        config: &config::Image,
        credentials: NodeCredentials,
        preload: Preload,
        wake: Wake,
    ) -> Images {
        let limit = config.max_parallel_pulls.unwrap_or(NO_LIMIT);
        Images(Arc::new(Inner {
            cri,
            credentials,
            preload,
            pulls: Mutex::new(Pulls::new(limit)),
            rate: config.pull_rate.map(|rate: Rate| Mutex::new(Bucket::new(rate))),
            lane: Lane::new("pull", limit.saturating_add(OTHERS)),
            wake,
        }))
    }

    /// How it stands with an image, which is pulled or imported if need be. Blocks for a short call
    /// to the runtime at most.
    ///
    /// # Errors
    /// When the runtime can't be reached.
    pub fn ensure(&self, want: &Want<'_>, now: Instant) -> cri::Result<Ensure> {
        let name = match Name::parse(want.image) {
            Ok(name) => name,
            Err(e) => return Ok(Ensure::Failed(invalid(want.image, &e))),
        };
        let key = Key { uid: want.uid.clone(), image: want.image.to_owned() };
        let pulled = self.0.pulls.lock().pulled(&key, want.user);
        if want.policy == PullPolicy::Always && pulled.is_none() {
            return Ok(self.pull(want, &name, &key, None, now));
        }
        match self.0.cri.image_status(&name.with_tag(want.image)) {
            Ok(Some(image)) => {
                self.0.pulls.lock().served(&key, want.user);
                let message = ready(want.image, &image, pulled);
                return Ok(Ensure::Ready { image, message });
            }
            Ok(None) => {}
            Err(e) if e.is_unreachable() => return Err(e),
            Err(e) => {
                let message = format!("Failed to inspect image {:?}: {}", want.image, e.message);
                let (reason, event) = ("ImageInspectError", "InspectFailed");
                return Ok(Ensure::Failed(Failure { reason, message, event, retry_after: RETRY }));
            }
        }
        let note = match self.0.preload.find(&name, want.uid, now) {
            Found::Coming => return Ok(Ensure::Waiting { begun: None }),
            Found::Failed(note) => Some(note),
            Found::Nowhere => None,
        };
        if want.policy == PullPolicy::Never {
            let message = format!("Container image {:?} is not present with pull policy of Never", want.image);
            let (reason, message) = ("ErrImageNeverPull", with_note(message, note));
            return Ok(Ensure::Failed(Failure { reason, message, event: reason, retry_after: RETRY }));
        }
        Ok(self.pull(want, &name, &key, note, now))
    }

    /// After a sandbox could not be made: is what it is made of missing, or may it be, and will an
    /// archive bring it? Then the pod is woken. Blocks for short calls to the runtime at most.
    ///
    /// # Errors
    /// When the runtime can't be asked.
    pub fn restore_sandbox_image(&self, uid: &PodUid, now: Instant) -> cri::Result<bool> {
        let image = self.0.cri.settings()?.sandbox_image;
        let name = image.as_deref().and_then(|image| Some((image, Name::parse(image).ok()?)));
        if let Some((image, name)) = name {
            let missing = self.0.cri.image_status(&name.with_tag(image))?.is_none();
            return Ok(missing && self.0.preload.find(&name, uid, now) == Found::Coming);
        }
        // The runtime doesn't tell what it is: any archive may hold it.
        Ok(self.0.preload.is_busy(uid, now))
    }

    /// Drops what is known of a pod that is gone.
    pub fn forget(&self, uid: &PodUid) {
        self.0.pulls.lock().forget(uid);
        self.0.preload.forget(uid);
    }

    fn pull(&self, want: &Want<'_>, name: &Name, key: &Key, note: Option<String>, now: Instant) -> Ensure {
        let mut pulls = self.0.pulls.lock();
        let mut standing = pulls.standing(key, want.user, now);
        if standing == Standing::MayBegin {
            match Keyring::of_secrets(want.secrets.iter().copied()) {
                Ok(keyring) => {
                    let repository = name.repository();
                    let target = Target {
                        image: name.with_tag(want.image),
                        registry: name.registry().to_owned(),
                        auths: keyring.lookup(&repository),
                        repository,
                    };
                    let start = pulls.begin(key, want.user, target, want.sandbox, now);
                    drop(pulls);
                    if let Some(id) = start {
                        self.start(id);
                    }
                    return Ensure::Waiting { begun: Some(format!("Pulling image {:?}", want.image)) };
                }
                Err(e) => {
                    pulls.failed(key, PullError { reason: "ErrImagePull", message: e.to_string() }, now);
                    standing = pulls.standing(key, want.user, now);
                }
            }
        }
        match standing {
            Standing::MayBegin | Standing::Pulling => Ensure::Waiting { begun: None },
            Standing::Failed(PullError { reason, message }, retry_after) => {
                Ensure::Failed(Failure { reason, message: with_note(message, note), event: "Failed", retry_after })
            }
            Standing::BackOff(error, retry_after) => {
                let message = format!("Back-off pulling image {:?}: {}: {}", want.image, error.reason, error.message);
                let (reason, message) = ("ImagePullBackOff", with_note(message, note));
                Ensure::Failed(Failure { reason, message, event: "BackOff", retry_after })
            }
        }
    }

    fn start(&self, id: PullId) {
        let images = self.clone();
        self.0.lane.submit(move || images.run(id));
    }

    /// One pull, on the lane.
    fn run(&self, id: PullId) {
        let mut ended = PullEnded { images: self, id, started: Instant::now(), result: None };
        let Some((target, sandbox)) = self.0.pulls.lock().what(id) else { return };
        let mut auths = target.auths.clone();
        for auth in self.0.credentials.lookup(&target.repository) {
            if !auths.contains(&auth) {
                auths.push(auth);
            }
        }
        ended.started = Instant::now();
        ended.result = Some(pull::pull(&*self.0.cri, &target.image, &auths, &sandbox, || self.wait_for_rate()));
    }

    fn wait_for_rate(&self) {
        if let Some(rate) = &self.0.rate {
            let wait = rate.lock().take(Instant::now());
            std::thread::sleep(wait);
        }
    }
}

/// The end of a pull, whatever way it comes.
struct PullEnded<'i> {
    images: &'i Images,
    id: PullId,
    started: Instant,
    result: Option<Result<(), PullError>>,
}

impl Drop for PullEnded<'_> {
    fn drop(&mut self) {
        let bug = || PullError { reason: "ErrImagePull", message: "the agent failed in it; this is a bug".to_owned() };
        let result = self.result.take().unwrap_or_else(|| Err(bug()));
        let now = Instant::now();
        let took = now.saturating_duration_since(self.started);
        let ended = self.images.0.pulls.lock().ended(self.id, took, result, now);
        if let Some(next) = ended.begin {
            self.images.start(next);
        }
        ended.wake.iter().for_each(|uid| (self.images.0.wake)(uid));
    }
}

fn invalid(image: &str, e: &InvalidName) -> Failure {
    Failure {
        reason: "InvalidImageName",
        message: format!("Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: {e}"),
        event: "InspectFailed",
        retry_after: RETRY_NEVER,
    }
}

fn ready(name: &str, image: &Image, pulled: Option<Took>) -> String {
    let millis = |d: Duration| GoDuration::from_millis(i64::try_from(d.as_millis()).unwrap_or(i64::MAX));
    match pulled {
        None => format!("Container image {name:?} already present on machine"),
        Some(took) => format!(
            "Successfully pulled image {name:?} in {} ({} including waiting). Image size: {} bytes.",
            millis(took.pull),
            millis(took.waiting),
            image.size
        ),
    }
}

fn with_note(message: String, note: Option<String>) -> String {
    match note {
        Some(note) => format!("{message}; {note}"),
        None => message,
    }
}
