//! The agent: its parts, made and wired in order, and their end.

use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crossbeam::channel::{Receiver, Sender, bounded};
use jiff::Timestamp;
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::Signals;

use crate::admission;
use crate::api;
#[cfg(feature = "tls")]
use crate::certificates;
use crate::cgroup::values::Totals;
use crate::cgroup::{self, Hierarchy, Values};
use crate::cluster;
use crate::config::{Config, Rate, StaticPodUrl};
use crate::cri::{Client, Cri};
use crate::disk;
use crate::image::provider::{self, Providers};
use crate::image::{self, Collector, Images, NodeCredentials, Preload, Wake, Wanted, preload};
use crate::kube;
use crate::lane::Lane;
use crate::local::{self, Publisher};
use crate::node;
use crate::node::capacity::{self, Capacity, Reserves};
use crate::pleg::{Cache, Health, Pleg};
use crate::pod::sysctl::{Allowlist, NotNamespaced};
use crate::pod::{Pod, Source};
use crate::probe;
use crate::runtime::logs::Rotation;
use crate::runtime::request::{ClusterDns, IdsError};
use crate::runtime::{self, Done, HostFiles, Node, Op, Paths, Runtime, UserNamespaces};
use crate::server;
use crate::shutdown;
use crate::source::apiserver::{self, ApiSource, Seen};
use crate::source::file::{self, FileSource};
use crate::source::http::{self, HttpSource};
use crate::source::mux::{Channel, PodUpdate};
use crate::source::names::Names;
use crate::source::wake::{self, Waker};
use crate::status::{Store, events};
use crate::sync_loop::orders::Orders;
use crate::sync_loop::{self, Admission, Closing, Handler, Heartbeat, ImageCare, Inputs, Shown, SurveyWork, Tiers};
use crate::worker::{Pool, Workers};

/// Stops at the same time; each waits for a container's end, which is cheap.
const STOPS: usize = 128;
/// Hooks that run at the same time.
const HOOKS: usize = 64;
/// What waits in a channel before its sender has to.
const CHANNEL: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what} {path}: {source}")]
    Io { what: &'static str, path: String, source: std::io::Error },
    #[error("another agent uses {0}; there can be one for each root directory")]
    Busy(String),
    #[error(transparent)]
    Server(#[from] server::Error),
    #[error(transparent)]
    Cgroup(#[from] cgroup::Error),
    #[error("userNamespaces.idsPerPod: {0}")]
    UserNamespaces(#[from] IdsError),
    #[error(transparent)]
    Sysctls(#[from] NotNamespaced),
    #[error("more is reserved than there is of {0}, which leaves pods nothing; see kubeReserved and systemReserved")]
    Overdrawn(String),
    #[error("starting {what}: {source}")]
    Start { what: &'static str, source: std::io::Error },
    #[error("image credential providers: {0}")]
    CredentialProviders(#[from] provider::Error),
    #[error("handling signals: {0}")]
    Signals(#[from] ctrlc::Error),
}

impl Error {
    fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.display().to_string();
        move |source| Error::Io { what, path, source }
    }

    fn start(what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Start { what, source }
    }
}

/// Runs until TERM or INT. Pods go on when it ends.
pub fn run(config: &Config) -> Result<(), Error> {
    let paths = Paths::new(&config.root_dir, &config.pod_logs_dir);
    let _lock = own(&config.root_dir, &paths)?;

    let (stop, stopped) = bounded(1);
    let stop = move || {
        log::info!("stopping; pods go on");
        // A second signal finds the first one still there.
        let _ = stop.try_send(());
    };
    ctrlc::set_handler(stop.clone())?;
    let signals = Signals::new([SIGHUP, SIGTERM]).map_err(Error::start("the handling of signals"))?;

    let client =
        Arc::new(Client::new(&config.runtime_endpoint, &config.image_endpoint, config.runtime_request_timeout));
    let cri: Arc<dyn Cri> = client.clone();
    let (cache, health) = (Arc::<Cache>::default(), Arc::<Health>::default());
    let (store, heartbeat) = (Arc::<Store>::default(), Arc::<Heartbeat>::default());
    let own_node = Arc::new(node::Seen::open(config.root_dir.join("node.json")));
    let objects = Arc::<local::Store>::default();
    let object_store = objects.clone();
    let server_objects = Arc::<local::Store>::default();
    let (lane_done, lanes) = bounded(CHANNEL);
    let hierarchy = Hierarchy::read()?;
    let machine = capacity::read(&config.root_dir).map_err(|source| Error::Start { what: "the node", source })?;
    let overdrawn = machine.overdrawn(config);
    if !overdrawn.is_empty() {
        return Err(Error::Overdrawn(overdrawn.join(", ")));
    }
    let policy = cgroup::Policy::new(config, &machine, &hierarchy);
    let cgroups = Arc::new(cgroup::Manager::new(&config.cgroup, hierarchy)?);
    let for_pods = config.enforce_node_allocatable.iter().any(|item| item == "pods");
    let held = machine.enforced(for_pods.then(|| Reserves::of(config)).as_ref());
    let tiers =
        Tiers { cgroups: cgroups.clone(), all_pods: Values::of_all_pods(&held, &policy), policy: policy.clone() };
    tiers.ensure(&Totals::default());
    enforce_reserves(config, &cgroups)?;
    let images = ImageRoom::open(config, &cri, &store, &lane_done)?;
    let (probe_result, probes) = bounded(CHANNEL);
    let runtime = Arc::new(Runtime {
        cgroups: cgroups.clone(),
        policy,
        cri: cri.clone(),
        cache: cache.clone(),
        health: health.clone(),
        node: node(config, &paths, &machine),
        host: HostFiles::new(config.dns.resolv_conf.clone()),
        users: UserNamespaces::open(&paths, config.user_namespace_ids_per_pod)?,
        objects: local::Stores { local: objects.clone(), server: server_objects.clone() },
        probes: probe::Manager::start(cri.clone(), probe_result).map_err(Error::start("the probes"))?,
        stops: Lane::new("stop", STOPS),
        hooks: Lane::new("hook", HOOKS),
        resolver: Arc::default(),
        images: images.images,
        crash_loop_max: config.crash_loop_max_backoff,
        dead_containers: config.dead_containers,
        done: lane_done,
    });

    let (report, reports) = bounded(config.workers);
    let pool = Pool::start(config.workers, &runtime, &report).map_err(Error::start("the workers"))?;
    let (event, events) = bounded(CHANNEL);
    let pleg = Pleg::new(cri, cache.clone(), health.clone(), event);
    let (_pleg_stop, pleg_stopped) = bounded(0);
    spawn("pleg", move || pleg.run(pleg_stopped))?;

    let rotation = Rotation {
        cri: runtime.cri.clone(),
        cache: cache.clone(),
        max_size: config.container_log.max_size,
        max_files: usize::try_from(config.container_log.max_files).unwrap_or(usize::MAX),
        max_total: config.container_log.max_total_size,
        directory: config.pod_logs_dir.clone(),
    };
    let (_rotation_stop, rotation_stopped) = bounded(0);
    let interval = config.container_log.monitor_interval;
    spawn("logs", move || rotation.run(interval, &rotation_stopped))?;

    let records = runtime::read_records(&paths);
    let (update, updates) = bounded(CHANNEL);
    let (object, changed_objects) = bounded(CHANNEL);
    // The senders live as long as the loop, which may have no source.
    let server = config.node.kubeconfig.as_deref().map(|kubeconfig| ApiServer::new(config, kubeconfig));
    let sources =
        Sources { config, records: &records, objects, server: server.as_ref(), update: &update, object: &object };
    let (sources, wakers) = sources.start()?;
    spawn("signals", move || heed(signals, &wakers, stop))?;

    let (shutting_down, shutdown_word) = shutdown::Flag::new();
    let shutting_down = Arc::new(shutting_down);
    // Versions go on rising over restarts, as far as the clock does.
    let event_log = Arc::new(events::Log::open(config.root_dir.join("events.json")));
    let (pods, feed) = (store.clone(), api::Feed::default());
    let version = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(1);
    let shown_objects = Arc::new(api::Store::new(version, feed.clone()));
    let (mut tellers, mut of_events) = (Vec::new(), vec![teller(&feed)]);
    let mut told = None;
    if let Some(server) = &server {
        let rounds = server.tell_pods(config, &store, &event_log, &images.care.all_heard)?;
        told = Some(rounds.clone());
        let tell = move || rounds.wake();
        let get = server.get_objects(config, &server_objects, &object)?;
        tellers.push(Box::new(tell.clone()) as Box<dyn Fn() + Send + Sync>);
        of_events.push(Box::new(tell.clone()));
        server.seen.on_change(Box::new(move || {
            get();
            tell();
        }));
    }
    let changed = move || of_events.iter().for_each(|tell| tell());
    event_log.start(Box::new(move |name| pods.uid(name)), Box::new(changed)).map_err(Error::start("the events"))?;
    if config.api.socket.is_some() || config.api.port.is_some() {
        tellers.push(teller(&feed));
        object_store.on_change(teller(&feed));
        let sources = api::Sources {
            pods: store.clone(),
            events: event_log.clone(),
            objects: object_store,
            health: health.clone(),
            cri: runtime.cri.clone(),
            shutdown: shutting_down.clone(),
            node: api::node(config, &machine, Timestamp::now()),
        };
        feed.start(sources, shown_objects.clone()).map_err(Error::start("the API"))?;
    }
    if !tellers.is_empty() {
        store.on_change(Box::new(move || tellers.iter().for_each(|tell| tell())));
    }
    if let Some(server) = &server {
        server.join(config, &machine, &runtime, &own_node, (shutting_down.clone(), shutdown_word))?;
    }
    let (orders, given) = Orders::new();
    let more = |parts: &_| api::endpoints(config, parts, &shown_objects, &orders);
    server::start(config, server.as_ref().map(|server| &server.client), &runtime, client, &store, &heartbeat, more)?;

    let (survey, surveys) = bounded(1);
    let workers = Workers::new(config.sync_frequency);
    let admission = Admission::new(for_admission(config, &machine)?, own_node);
    let surveying = SurveyWork::new(paths, tiers, survey);
    let shown = Shown { store, probes: runtime.probes.clone() };
    let (shutdown_event, shutdowns) = bounded(1);
    let closing = closing(config, shutting_down, told, &shutdown_event)?;
    let cares = (surveying, images.care, closing);
    let mut handler = Handler::new((workers, pool), admission, cache, shown, records, sources, cares);
    let inputs = Inputs {
        updates,
        objects: changed_objects,
        orders: given,
        pleg: events,
        probes,
        lanes,
        reports,
        surveys,
        shutdowns,
        stop: stopped,
    };
    log::info!("cleat {} runs as node {}", env!("CARGO_PKG_VERSION"), config.node_name);
    sync_loop::run(&mut handler, &inputs, &heartbeat);
    event_log.write();
    Ok(())
}

/// Has the machine wait when it shuts down, if that is configured.
fn closing(
    config: &Config,
    flag: Arc<shutdown::Flag>,
    told: Option<cluster::Rounds>,
    event: &Sender<shutdown::Event>,
) -> Result<Closing, Error> {
    let plan = shutdown::Plan::new(&config.shutdown);
    if let Some(plan) = &plan {
        let watch = shutdown::Watch::new(shutdown::Settings { time: plan.total(), tell: event.clone() });
        spawn("shutdown", move || watch.run())?;
    }
    Ok(Closing::new(plan, flag, shutdown::Record::open(&config.root_dir), told))
}

/// HUP has the sources read everything, TERM stops.
fn heed(mut signals: Signals, wakers: &[Waker], stop: impl Fn()) {
    for signal in signals.forever() {
        match signal {
            SIGHUP => wakers.iter().for_each(Waker::read_now),
            _ => stop(),
        }
    }
}

/// The API server of the cluster that this node is of, and what it has for it.
struct ApiServer {
    client: Arc<kube::Client>,
    seen: Arc<Seen>,
    /// Where it is, and who we are to it.
    kubeconfig: PathBuf,
}

impl ApiServer {
    fn new(config: &Config, kubeconfig: &Path) -> ApiServer {
        let client = Arc::new(ApiServer::client(config, kubeconfig, config.node.api_rate));
        ApiServer { client, seen: Arc::default(), kubeconfig: kubeconfig.to_owned() }
    }

    fn client(config: &Config, kubeconfig: &Path, rate: Option<Rate>) -> kube::Client {
        let client = kube::Client::of_file(kubeconfig, rate);
        #[cfg(feature = "tls")]
        if config.server.tls.rotate_client {
            return client.with_renewed(&certificates::client_file(&config.server.tls.cert_dir));
        }
        let _ = config;
        client
    }

    /// Starts what makes this machine a node of the cluster. Nothing of it waits for the server.
    fn join(
        &self,
        config: &Config,
        machine: &Capacity,
        runtime: &Runtime,
        own_node: &Arc<node::Seen>,
        (shutdown, wake): (Arc<shutdown::Flag>, Receiver<()>),
    ) -> Result<(), Error> {
        #[cfg(feature = "tls")]
        if let Some(certificates) = certificates::Certificates::new(config, self.client.clone()) {
            spawn("certificates", move || certificates.run())?;
        }
        let client = ApiServer::client(config, &self.kubeconfig, None);
        let parts = node::Parts {
            client: client.within(node::Keeper::request_timeout(config)),
            object: node::Object::new(config, machine),
            cri: runtime.cri.clone(),
            health: runtime.health.clone(),
            seen: own_node.clone(),
            shutdown,
            wake,
        };
        let keeper = node::Keeper::new(config, parts);
        spawn("node", move || keeper.run())
    }

    /// Starts what tells the server of pods, and returns what has it look, and how far it is.
    fn tell_pods(
        &self,
        config: &Config,
        store: &Arc<Store>,
        events: &Arc<events::Log>,
        all_heard: &Arc<AtomicBool>,
    ) -> Result<cluster::Rounds, Error> {
        let (manager, rounds) = cluster::StatusManager::new(cluster::StatusSettings {
            node_name: config.node_name.clone(),
            client: self.client.clone(),
            store: store.clone(),
            seen: self.seen.clone(),
            events: events.clone(),
            event_rate: config.event_rate,
            all_heard: all_heard.clone(),
        });
        cluster::spawn_status(manager).map_err(Error::start("the status manager"))?;
        Ok(rounds)
    }

    /// Starts what gets the objects that pods refer to, and returns what has it look.
    fn get_objects(
        &self,
        config: &Config,
        store: &Arc<local::Store>,
        changed: &Sender<BTreeSet<local::Key>>,
    ) -> Result<impl Fn() + Clone + Send + Sync + 'static, Error> {
        let (getter, wake) = cluster::ObjectGetter::new(cluster::ObjectSettings {
            client: self.client.clone(),
            seen: self.seen.clone(),
            store: store.clone(),
            changed: changed.clone(),
            directory: config.root_dir.join("api/objects"),
            node: local::Node::new(&config.node_name, &config.node.labels),
            ttl: config.sync_frequency,
            changes: config.object_changes,
        });
        cluster::spawn_objects(getter).map_err(Error::start("the getting of objects"))?;
        Ok(move || _ = wake.try_send(()))
    }
}

/// What the sources of pods are made from.
struct Sources<'a> {
    config: &'a Config,
    /// The pods of before.
    records: &'a [runtime::Known],
    objects: Arc<local::Store>,
    server: Option<&'a ApiServer>,
    update: &'a Sender<PodUpdate>,
    object: &'a Sender<BTreeSet<local::Key>>,
}

impl Sources<'_> {
    /// Starts those that are configured, and returns which they are, and what wakes them.
    fn start(&self) -> Result<(HashSet<Source>, Arc<[Waker]>), Error> {
        let Config { static_pod_path: path, static_pod_url: url, .. } = self.config;
        let pair = || wake::pair().map_err(Error::start("the sources of pods"));
        let ((file_waker, file_wake), (url_waker, url_wake)) = (pair()?, pair()?);
        let (api_waker, api_wake) = pair()?;
        let wakers: Arc<[Waker]> = [file_waker, url_waker, api_waker].into();
        let configured = [path.as_ref().map(|_| Source::File), url.as_ref().map(|_| Source::Http)];
        let mut configured: HashSet<_> = configured.into_iter().flatten().collect();
        let ran = self.records.iter().map(|known| &known.pod).filter(|pod| configured.contains(&pod.source));
        let names = Arc::new(Names::new(ran, wakers.clone()));
        if let Some(path) = path {
            self.files(path, &names, file_wake).map_err(Error::start("the file source"))?;
        }
        if let Some(url) = url {
            self.url(url, &names, url_wake).map_err(Error::start("the HTTP source"))?;
        }
        if let Some(server) = self.server {
            self.api(server, api_wake).map_err(Error::start("the source of the API server"))?;
            configured.insert(Source::Api);
        }
        Ok((configured, wakers))
    }

    fn files(&self, path: &Path, names: &Arc<Names>, wake: UnixStream) -> std::io::Result<()> {
        let config = self.config;
        let node = local::Node::new(&config.node_name, &config.node.labels);
        let publisher =
            Publisher::open(config.root_dir.join("objects"), node, self.objects.clone(), self.object.clone());
        let channel = Channel::new(Source::File, self.update.clone()).sharing(names.clone());
        let frequency = config.file_check_frequency;
        let ran_before = self.ran_before(Source::File);
        file::spawn(FileSource::new(path, &config.node_name, frequency, ran_before, publisher, channel), wake)
    }

    fn url(&self, url: &StaticPodUrl, names: &Arc<Names>, wake: UnixStream) -> std::io::Result<()> {
        let StaticPodUrl { url, headers, ca_file } = url.clone();
        let settings = http::Settings { url, headers, ca_file, frequency: self.config.http_check_frequency };
        let channel = Channel::new(Source::Http, self.update.clone()).sharing(names.clone());
        let ran_before = self.ran_before(Source::Http);
        let source = HttpSource::new(settings, &self.config.node_name, ran_before, self.objects.clone(), channel);
        http::spawn(source, wake)
    }

    fn api(&self, server: &ApiServer, wake: UnixStream) -> std::io::Result<()> {
        let settings = apiserver::Settings {
            node_name: self.config.node_name.clone(),
            directory: self.config.root_dir.join("api/pods"),
            origin: server.kubeconfig.display().to_string(),
        };
        // Its pods' names are those of static pods where they mirror them.
        let channel = Channel::new(Source::Api, self.update.clone());
        let ran_before = self.ran_before(Source::Api);
        apiserver::spawn(
            ApiSource::new(settings, server.client.clone(), &ran_before, server.seen.clone(), channel),
            wake,
        )
    }

    fn ran_before(&self, source: Source) -> Vec<Arc<Pod>> {
        let pods = self.records.iter().map(|known| &known.pod);
        pods.filter(|pod| pod.source == source).cloned().collect()
    }
}

/// Holds the cgroups of what isn't a pod to what is reserved for it, where that is asked for
/// (pkg/kubelet/cm/node_container_manager_linux.go).
fn enforce_reserves(config: &Config, cgroups: &cgroup::Manager) -> Result<(), cgroup::Error> {
    for item in &config.enforce_node_allocatable {
        let (of, compressible) = match item.strip_suffix("-compressible") {
            Some(of) => (of, true),
            None => (item.as_str(), false),
        };
        let (cgroup, reserved) = match of {
            "kube-reserved" => (&config.cgroup.kube_reserved, &config.kube_reserved),
            "system-reserved" => (&config.cgroup.system_reserved, &config.system_reserved),
            _ => continue,
        };
        cgroups.enforce(cgroup, &Values::of_reserve(reserved, compressible))?;
        log::info!("cgroup {cgroup} is held to what is reserved for it ({item})");
    }
    Ok(())
}

/// The parts of the image room.
struct ImageRoom {
    images: Images,
    care: ImageCare,
}

impl ImageRoom {
    fn open(config: &Config, cri: &Arc<dyn Cri>, store: &Arc<Store>, done: &Sender<Done>) -> Result<ImageRoom, Error> {
        let done = done.clone();
        let wake: Wake = Arc::new(move |uid| {
            // With the loop gone nobody waits for it.
            let _ = done.send(Done { uid: uid.clone(), op: Op::Image, at: Instant::now(), result: Ok(()) });
        });
        let settings = preload::Settings {
            directory: config.image.archive_dir.clone(),
            record: config.root_dir.join("image-archives.json"),
            socket: config.image_endpoint.clone(),
        };
        let preload = Preload::new(settings, cri.clone(), wake.clone());
        let plugins = match &config.image.credential_provider {
            Some(plugins) => provider::load(&plugins.config, &plugins.bin_dir)?,
            None => Vec::new(),
        };
        let credentials = NodeCredentials::new(&config.root_dir, Providers::new(plugins));
        let images = Images::new(cri.clone(), &config.image, credentials, preload.clone(), wake);
        let all_heard = Arc::new(AtomicBool::new(false));
        let (store, heard) = (store.clone(), all_heard.clone());
        let wanted: Wanted = Arc::new(move || {
            let pods = heard.load(Ordering::Relaxed).then(|| store.list())?;
            Some(pods.iter().flat_map(|stored| image::of_pod(&stored.pod).map(str::to_owned)).collect())
        });
        let collector = Collector::new(cri.clone(), &config.image, preload.clone(), wanted);
        let care = ImageCare { images: images.clone(), preload, collector, all_heard };
        Ok(ImageRoom { images, care })
    }
}

/// What of this node shows in its pods.
fn node(config: &Config, paths: &Paths, machine: &Capacity) -> Node {
    Node {
        paths: paths.clone(),
        ips: node::addresses(&config.node_ips),
        cluster_dns: ClusterDns {
            servers: config.dns.cluster_servers.clone(),
            domain: config.dns.cluster_domain.clone(),
        },
        seccomp_default: config.seccomp_default,
        selinux: node::has_selinux(),
        masked_paths: node::throttle_directories(),
        allocatable: machine.allocatable(config).quantities(),
    }
}

/// What decides which pods this node runs.
fn for_admission(config: &Config, machine: &Capacity) -> Result<admission::Node, Error> {
    Ok(admission::Node {
        name: config.node_name.clone(),
        labels: admission::node_labels(&config.node_name, &config.node.labels),
        taints: config.node.taints.clone(),
        allocatable: machine.allocatable(config),
        sysctls: Allowlist::new(node::kernel(), &config.allowed_unsafe_sysctls)?,
        // Until the runtime has told.
        strict_supplemental_groups: false,
    })
}

/// Makes the agent's directories, and makes sure that no other agent uses them.
fn own(root: &Path, paths: &Paths) -> Result<File, Error> {
    for (path, mode) in [(root, 0o750), (&paths.pods(), 0o750), (paths.logs(), 0o755)] {
        if !path.is_dir() {
            disk::make_dir(path, mode).map_err(Error::io("making", path))?;
        }
    }
    let path = root.join("lock");
    let lock = File::create(&path).map_err(Error::io("making", &path))?;
    match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Busy(root.display().to_string())),
        Err(e) => Err(Error::io("locking", &path)(e.into())),
    }
}

/// Tells the API that something is other; any number of them may.
fn teller(feed: &api::Feed) -> Box<dyn Fn() + Send + Sync> {
    let feed = feed.clone();
    Box::new(move || feed.tell())
}

fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map(drop).map_err(Error::start(name))
}
