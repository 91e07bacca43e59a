//! Starting containers: waiting out a crash loop, having the image, creating, starting
//! (pkg/kubelet/kuberuntime/kuberuntime_manager.go `SyncPod`, kuberuntime_container.go
//! `startContainer`).

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use protobuf::MessageField;

use super::host::Referred;
use super::memory::{Failure, Memory, Op};
use super::plan::Start;
use super::request::{self, ConfigError, EnvInput, Input, Source};
use super::sync::Next;
use super::terminate::Ending;
use super::{Error, Runtime, hook, paths};
use crate::backoff::Backoff;
use crate::cgroup;
use crate::cri::{Code, Container, ContainerId, ContainerState, Image, SandboxStatus, UnixNanos, api};
use crate::disk;
use crate::image::{Ensure, PullPolicy, Want};
use crate::metrics;
use crate::pleg::{Observed, ObservedContainer};
use crate::pod::{Pod, core, identity};
use crate::status::{Waiting, events};
use crate::volume::{Place, subpath};

/// What a pod's containers are started with.
pub(super) struct Ground<'a> {
    pub pod: &'a Pod,
    pub observed: &'a Observed,
    pub sandbox: &'a SandboxStatus,
    pub volumes: &'a BTreeMap<String, Place>,
    /// Made when a container first asks for it.
    sandbox_config: OnceCell<api::PodSandboxConfig>,
}

impl<'a> Ground<'a> {
    pub fn new(
        pod: &'a Pod,
        observed: &'a Observed,
        sandbox: &'a SandboxStatus,
        volumes: &'a BTreeMap<String, Place>,
    ) -> Ground<'a> {
        Ground { pod, observed, sandbox, volumes, sandbox_config: OnceCell::new() }
    }

    fn sandbox_config(&self, runtime: &Runtime) -> Result<&api::PodSandboxConfig, Error> {
        if let Some(config) = self.sandbox_config.get() {
            return Ok(config);
        }
        let (config, _) = runtime.sandbox_config(self.pod, self.sandbox.sandbox.attempt)?;
        Ok(self.sandbox_config.get_or_init(|| config))
    }
}

/// What metrics call it.
fn container_type(pod: &Pod, name: &str) -> &'static str {
    let is = |containers: &[core::Container]| containers.iter().any(|c| c.name == name);
    match (is(pod.containers()), is(pod.init_containers())) {
        (true, _) => "container",
        (false, true) => "init_container",
        (false, false) => "ephemeral_container",
    }
}

/// An image that a container asks for: its own, or a volume's.
struct Wanted<'a> {
    /// The name of the container or of the volume.
    user: &'a str,
    image: &'a str,
    policy: Option<&'a str>,
}

/// The images that a container is made from.
struct Images<'a> {
    own: &'a Image,
    /// By the names of the volumes.
    of_volumes: &'a BTreeMap<String, Image>,
}

/// How the start of one container went.
enum Outcome {
    Started,
    /// It is not time yet.
    Wait(Duration),
    /// A lane works for it.
    Pending,
}

impl Runtime {
    /// Starts what is to be started. One container's failure keeps no other from starting.
    pub(super) fn start_all(
        &self,
        ground: &Ground<'_>,
        memory: &mut Memory,
        starts: &[Start],
    ) -> (Next, Option<Error>) {
        let mut next = Next::Rest;
        let mut error = None;
        for start in starts {
            // A container's postStart hook comes before whatever is started after it.
            if memory.pending.iter().any(|op| matches!(op, Op::PostStart(_))) {
                break;
            }
            let Some(spec) = start.which.of(ground.pod) else { continue };
            let spec = &*spec;
            match self.start(ground, memory, spec, start.restart_count) {
                Ok(Outcome::Started) => {
                    memory.waiting.remove(&spec.name);
                    next = Next::Again;
                }
                Ok(Outcome::Wait(time)) => next = next.or_after(time),
                Ok(Outcome::Pending) => {}
                Err(e) => error = error.or(Some(e)),
            }
        }
        (next, error)
    }

    fn start(
        &self,
        ground: &Ground<'_>,
        memory: &mut Memory,
        spec: &core::Container,
        restart_count: i32,
    ) -> Result<Outcome, Error> {
        let now = Instant::now();
        let key = restarts_key(spec);
        let failed = last_failure(ground.observed, memory, &spec.name);
        let backoff = memory.restarts.get(&key).copied();
        if let (Some(backoff), Some(failed)) = (backoff, failed) {
            if let Some(left) = backoff.left(failed, now) {
                let message = format!(
                    "back-off {} restarting failed container={} pod={}_{}({})",
                    seconds(backoff.delay),
                    spec.name,
                    ground.pod.name.name,
                    ground.pod.name.namespace,
                    ground.pod.uid
                );
                self.waits(ground.pod, memory, spec, "CrashLoopBackOff", message, "BackOff");
                return Ok(Outcome::Wait(left));
            }
        }
        let (image, policy) = (spec.image.as_deref().unwrap_or_default(), spec.image_pull_policy.as_deref());
        let image = match self.image(ground, memory, spec, &Wanted { user: &spec.name, image, policy }, now)? {
            Ok(image) => image,
            Err(outcome) => return Ok(outcome),
        };
        let volume_images = match self.volume_images(ground, memory, spec, now)? {
            Ok(images) => images,
            Err(outcome) => return Ok(outcome),
        };
        let restart_count = match ground.observed.newest(&spec.name) {
            Some(_) => restart_count,
            None => restart_count.max(self.count_by_logs(ground.pod, &spec.name)),
        };
        let images = Images { own: &image, of_volumes: &volume_images };
        let id = self.create(ground, memory, spec, &images, restart_count)?;
        if let Some(failed) = failed {
            memory.restarts.insert(key, Backoff::next(backoff, failed, now, self.crash_loop_max));
        }
        self.run(ground, memory, spec, &id, restart_count)?;
        Ok(Outcome::Started)
    }

    /// The images of the volumes that the container mounts, by the volumes' names, or what is waited for
    /// (pkg/kubelet/kuberuntime/kuberuntime_manager.go `getImageVolumes`).
    fn volume_images(
        &self,
        ground: &Ground<'_>,
        memory: &mut Memory,
        spec: &core::Container,
        now: Instant,
    ) -> Result<Result<BTreeMap<String, Image>, Outcome>, Error> {
        let mut images = BTreeMap::new();
        for mount in spec.volume_mounts.iter().flatten() {
            let Some(Place::Image { reference, pull_policy }) = ground.volumes.get(&mount.name) else { continue };
            let wanted = Wanted { user: &mount.name, image: reference, policy: pull_policy.as_deref() };
            match self.image(ground, memory, spec, &wanted, now)? {
                Ok(image) => images.insert(mount.name.clone(), image),
                Err(outcome) => return Ok(Err(outcome)),
            };
        }
        Ok(Ok(images))
    }

    /// The image, or what the container waits for.
    fn image(
        &self,
        ground: &Ground<'_>,
        memory: &mut Memory,
        spec: &core::Container,
        wanted: &Wanted<'_>,
        now: Instant,
    ) -> Result<Result<Image, Outcome>, Error> {
        let pod = ground.pod;
        let objects = self.objects.of(pod);
        let named = pod.spec.image_pull_secrets.iter().flatten().map(|secret| secret.name.as_str());
        let secrets: Vec<_> =
            named.filter_map(|name| Some((name, objects.secret(&pod.name.namespace, name)?))).collect();
        let want = Want {
            uid: &pod.uid,
            user: wanted.user,
            image: wanted.image,
            policy: PullPolicy::of(wanted.policy),
            secrets: &secrets,
            sandbox: ground.sandbox_config(self)?,
        };
        let field = || pod.field_path(&spec.name);
        match self.images.ensure(&want, now)? {
            Ensure::Ready { image, message } => {
                events::record_of(events::Kind::Normal, &pod.name, field(), "Pulled", &message);
                Ok(Ok(image))
            }
            Ensure::Waiting { begun } => {
                if let Some(message) = begun {
                    events::record_of(events::Kind::Normal, &pod.name, field(), "Pulling", &message);
                }
                Ok(Err(Outcome::Pending))
            }
            Ensure::Failed(failure) => {
                self.waits(pod, memory, spec, failure.reason, failure.message, failure.event);
                Ok(Err(Outcome::Wait(failure.retry_after)))
            }
        }
    }

    fn create(
        &self,
        ground: &Ground<'_>,
        memory: &mut Memory,
        spec: &core::Container,
        images: &Images<'_>,
        restart_count: i32,
    ) -> Result<ContainerId, Error> {
        let pod = ground.pod;
        let attempt = u32::try_from(restart_count).unwrap_or(0) + memory.reserved.get(&spec.name).copied().unwrap_or(0);
        let config = match self.container_config(ground, spec, images, (restart_count, attempt)) {
            Ok(config) => config,
            Err(Error::Config(e)) => {
                return Err(self.failed(pod, memory, spec, "CreateContainerConfigError", e.to_string()));
            }
            Err(e) => return Err(e),
        };
        let logs = self.node.paths.pod_logs(&pod.uid, &pod.name).join(&spec.name);
        if !logs.is_dir() {
            disk::make_dir(&logs, 0o755).map_err(|e| Error::io("making", &logs, e))?;
        }
        let sandbox_config = ground.sandbox_config(self)?;
        memory.acted = Some(Instant::now());
        let result = self.cri.create_container(&ground.sandbox.sandbox.id, &config, sandbox_config);
        memory.acted = Some(Instant::now());
        result.map_err(|e| {
            if e.is_unreachable() {
                return e.into();
            }
            if e.message.contains("is reserved for") || e.code == Code::AlreadyExists {
                *memory.reserved.entry(spec.name.clone()).or_default() += 1;
            }
            self.failed(pod, memory, spec, "CreateContainerError", e.message)
        })
    }

    fn container_config(
        &self,
        ground: &Ground<'_>,
        container: &core::Container,
        images: &Images<'_>,
        (restart_count, attempt): (i32, u32),
    ) -> Result<api::ContainerConfig, Error> {
        let resolv_conf = self.host.resolv_conf()?;
        let context = &self.context(ground.pod, resolv_conf.as_deref())?;
        let pod_ips = &ground.sandbox.ips;
        let objects = self.objects.of(ground.pod);
        let lookup = &Referred { objects: &objects, pod: ground.pod, volumes: ground.volumes };
        let services = objects.services(&ground.pod.name.namespace);
        let env = EnvInput { context, container, pod_ips, services, lookup };
        let (environment, told) = request::environment(&env)?;
        let parts = self.parts(ground, container, &environment)?;
        let volumes = ground
            .volumes
            .iter()
            .map(|(name, place)| (name.as_str(), source(place, images.of_volumes.get(name))))
            .collect();
        let mut config = request::container(&Input {
            context,
            container,
            restart_count,
            attempt,
            image: images.own,
            environment: &environment,
            volumes: &volumes,
            sub_paths: &parts,
            hosts: self.hosts_file(context, pod_ips)?.as_deref(),
            termination_log: self.termination_log(ground.pod, container, restart_count)?.as_deref(),
            target: target(ground, &container.name)?,
        })?;
        told.iter().for_each(|event| event.record(ground.pod));
        let resources = cgroup::container::resources(ground.pod, container, &self.policy);
        config.linux.mut_or_insert_default().resources = MessageField::some(resources);
        Ok(config)
    }

    /// The parts of volumes that the container mounts, by the index of the mount.
    fn parts(
        &self,
        ground: &Ground<'_>,
        container: &core::Container,
        environment: &request::Environment,
    ) -> Result<BTreeMap<usize, PathBuf>, Error> {
        let mut parts = BTreeMap::new();
        for part in request::sub_paths(container, environment)? {
            let Some(Place::Path { path: root, .. }) = ground.volumes.get(part.volume) else { continue };
            let wanted = subpath::SubPath {
                volume: part.volume,
                container: &container.name,
                index: part.index,
                path: &part.path,
            };
            let bound = subpath::bind(&self.node.paths.pod(&ground.pod.uid), root, &wanted);
            let place = bound.map_err(|e| ConfigError::SubPathFailed {
                volume: part.volume.to_owned(),
                container: container.name.clone(),
                why: e.to_string(),
            })?;
            parts.insert(part.index, place);
        }
        Ok(parts)
    }

    fn run(
        &self,
        ground: &Ground<'_>,
        memory: &mut Memory,
        spec: &core::Container,
        id: &ContainerId,
        restart_count: i32,
    ) -> Result<(), Error> {
        let pod = ground.pod;
        let result = self.cri.start_container(id);
        let now = Instant::now();
        memory.acted = Some(now);
        memory.started.insert(id.clone(), now);
        if let Err(e) = result {
            if e.is_unreachable() {
                return Err(e.into());
            }
            return Err(self.failed(pod, memory, spec, "RunContainerError", e.message));
        }
        metrics::container_start(container_type(pod, &spec.name), None);
        self.cache.expect_container(Container {
            id: id.clone(),
            sandbox: ground.sandbox.sandbox.id.clone(),
            pod: ground.sandbox.sandbox.pod.clone(),
            name: spec.name.as_str().into(),
            attempt: u32::try_from(restart_count).unwrap_or(0),
            state: ContainerState::Running,
            created_at: UnixNanos::default(),
            notes: Arc::default(),
        });
        let log = self.node.paths.pod_logs(&pod.uid, &pod.name).join(paths::log_file(&spec.name, restart_count));
        if let Err(e) = link_log(&log, &paths::Paths::log_link(&pod.name, &spec.name, id.as_str())) {
            log::warn!("{}: linking the log of {}: {e}", pod.name, spec.name);
        }
        let message = format!("Container {} started", spec.name);
        events::record_of(events::Kind::Normal, &pod.name, pod.field_path(&spec.name), "Started", &message);
        let hook = spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.clone());
        if let Some(hook) = hook {
            self.post_start_on_lane(ground, memory, spec, id, hook);
        }
        Ok(())
    }

    fn post_start_on_lane(
        &self,
        ground: &Ground<'_>,
        memory: &mut Memory,
        spec: &core::Container,
        id: &ContainerId,
        hook: core::LifecycleHandler,
    ) {
        let op = Op::PostStart(id.clone());
        memory.pending.insert(op.clone());
        let place = hook::Place::new(id.clone(), Some(spec), &ground.sandbox.ips);
        let (cri, resolver, done) = (self.cri.clone(), self.resolver.clone(), self.done.clone());
        let (uid, pod, name) = (ground.pod.uid.clone(), ground.pod.name.clone(), spec.name.clone());
        let field = ground.pod.field_path(&name);
        self.hooks.submit(move || {
            let end = Ending::new(done, uid, op);
            let result = hook::run((&*cri, &resolver), &hook, &place, None);
            hook::tell(&result, (&pod, field), &name, "PostStart");
            let failure = |e: hook::Error| Failure { reason: "PostStartHookError", message: e.to_string() };
            end.tell(result.map(drop).map_err(failure));
        });
    }

    /// Notes why a container waits, and tells it if it is news.
    fn waits(
        &self,
        pod: &Pod,
        memory: &mut Memory,
        spec: &core::Container,
        reason: &'static str,
        message: String,
        event: &str,
    ) {
        let waiting = Waiting { reason, message };
        if memory.waiting.get(&spec.name) != Some(&waiting) {
            let message = format!("{}: {}", spec.name, waiting.message);
            events::record_of(events::Kind::Warning, &pod.name, pod.field_path(&spec.name), event, &message);
            memory.waiting.insert(spec.name.clone(), waiting);
        }
    }

    fn failed(
        &self,
        pod: &Pod,
        memory: &mut Memory,
        spec: &core::Container,
        reason: &'static str,
        message: String,
    ) -> Error {
        metrics::container_start(container_type(pod, &spec.name), Some(reason));
        self.waits(pod, memory, spec, reason, message.clone(), "Failed");
        Error::Start(format!("container {}: {reason}: {message}", spec.name))
    }

    /// The file on the node that becomes the container's termination message: a new one for each
    /// start, which the container may write as whatever user.
    fn termination_log(&self, pod: &Pod, spec: &core::Container, restart_count: i32) -> Result<Option<PathBuf>, Error> {
        if spec.termination_message_path.as_deref().is_none_or(str::is_empty) {
            return Ok(None);
        }
        let path = self.node.paths.termination_log(&pod.uid, &spec.name, restart_count);
        let made = || {
            path.parent().map_or(Ok(()), |directory| disk::make_dir(directory, 0o750))?;
            fs::write(&path, "")?;
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666))
        };
        made().map_err(|e| Error::io("making", &path, e))?;
        Ok(Some(path))
    }

    fn count_by_logs(&self, pod: &Pod, container: &str) -> i32 {
        let directory = self.node.paths.pod_logs(&pod.uid, &pod.name).join(container);
        let Ok(entries) = fs::read_dir(directory) else { return 0 };
        paths::restart_count_from_logs(entries.flatten().filter_map(|e| e.file_name().into_string().ok()))
    }
}

/// The container whose processes an ephemeral container is to see.
fn target<'a>(ground: &'a Ground<'_>, container: &str) -> Result<Option<&'a ContainerId>, ConfigError> {
    let mut all = ground.pod.spec.ephemeral_containers.iter().flatten();
    let target = all.find(|c| c.name == container).and_then(|c| c.target_container_name.as_deref());
    let Some(target) = target.filter(|name| !name.is_empty()) else { return Ok(None) };
    let found = ground.observed.newest(target).map(|c| &c.status.container.id);
    found.map(Some).ok_or_else(|| ConfigError::NoTarget(target.to_owned()))
}

/// What [`Memory::restarts`] has a container under.
pub(super) fn restarts_key(spec: &core::Container) -> String {
    format!("{}/{}", spec.name, identity::container_hash(spec))
}

/// When the container last failed, as far as a crash loop is concerned.
fn last_failure(observed: &Observed, memory: &Memory, name: &str) -> Option<Instant> {
    let all: Vec<_> = observed.containers.iter().filter(|c| *c.status.container.name == *name).collect();
    let at_once = |c: &&&ObservedContainer| memory.restarted_at_once.contains(&c.status.container.id);
    let skipped = usize::from(all.first().filter(at_once).is_some());
    all.iter().skip(skipped).find_map(|c| c.exited_seen)
}

/// Whether a container that is killed now is started again at once: as with the kubelet, when it is
/// not so soon after the end of the one before it that it is in a crash loop.
pub(super) fn restarts_at_once(observed: &Observed, memory: &Memory, spec: &core::Container, now: Instant) -> bool {
    let waits = |failed| memory.restarts.get(&restarts_key(spec)).and_then(|backoff| backoff.left(failed, now));
    last_failure(observed, memory, &spec.name).and_then(waits).is_none()
}

/// `10s`, `2m40s`, `5m0s`: as Go writes durations.
fn seconds(d: Duration) -> String {
    match d.as_secs() {
        s if s < 60 => format!("{s}s"),
        s => format!("{}m{}s", s / 60, s % 60),
    }
}

/// A volume's place as requests have it.
/// `image`: that of a volume that is one, as the runtime knows it.
fn source<'a>(place: &'a Place, image: Option<&'a Image>) -> Source<'a> {
    match place {
        Place::Path { path, read_only, relabel } => Source::Path { path, read_only: *read_only, relabel: *relabel },
        Place::Device { path, read_only } => Source::Device { path, read_only: *read_only },
        Place::Image { reference, .. } => Source::Image(image.map_or(reference, |image| &image.id)),
    }
}

fn link_log(log: &Path, link: &Path) -> std::io::Result<()> {
    if let Some(parent) = link.parent() {
        fs::create_dir_all(parent)?;
    }
    match std::os::unix::fs::symlink(log, link) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}
