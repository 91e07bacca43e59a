//! Keeps the store as the agent is, while somebody asks: a thread that looks when it is told that
//! something is other.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::object::Object;
use super::store::Store;
use crate::cri::Cri;
use crate::local;
use crate::node;
use crate::pleg::Health;
use crate::pod::PodName;
use crate::shutdown::{self, Flag};
use crate::status::{self, events};

/// Changes that come close together are taken together.
const GATHER: Duration = Duration::from_millis(50);
/// How often it is looked whether the runtime answers, which nobody tells of.
const LOOK: Duration = Duration::from_secs(10);

/// Where objects come from.
pub struct Sources {
    pub pods: Arc<status::Store>,
    pub events: Arc<events::Log>,
    pub objects: Arc<local::Store>,
    pub health: Arc<Health>,
    pub cri: Arc<dyn Cri>,
    pub shutdown: Arc<Flag>,
    /// The node, without its conditions and the version of the runtime.
    pub node: Value,
}

/// Word that something has changed. Telling never waits.
#[derive(Clone)]
pub struct Feed(Sender<()>, Receiver<()>);

impl Default for Feed {
    fn default() -> Feed {
        let (tell, told) = bounded(1);
        Feed(tell, told)
    }
}

impl Feed {
    pub fn tell(&self) {
        // One that waits to be heard stands for all.
        let _ = self.0.try_send(());
    }

    /// Follows the sources from now on.
    ///
    /// # Errors
    /// When there can be no thread for it.
    pub fn start(&self, sources: Sources, store: Arc<Store>) -> io::Result<()> {
        let told = self.1.clone();
        std::thread::Builder::new().name("api".to_owned()).spawn(move || follow(&told, &sources, &store)).map(drop)
    }
}

fn follow(told: &Receiver<()>, sources: &Sources, store: &Store) {
    let mut node = Condition::default();
    loop {
        let shown = node.look(sources, Instant::now(), Timestamp::now());
        if store.is_wanted(Instant::now()) {
            store.replace(objects(sources, &shown));
        }
        // Its own sender keeps the channel open.
        if told.recv_timeout(LOOK).is_ok() {
            std::thread::sleep(GATHER);
        }
    }
}

fn objects(sources: &Sources, node: &Arc<Value>) -> Vec<Object> {
    let pods = sources.pods.list();
    let wanted: HashSet<&PodName> =
        pods.iter().filter(|stored| !stored.ending).map(|stored| &stored.pod.name).collect();
    // To others there can be but one of a name: one that ends is gone when another one has come.
    let shown = pods.iter().filter(|stored| !stored.ending || !wanted.contains(&stored.pod.name));
    let pods = shown.map(|stored| Object::Pod { pod: stored.pod.clone(), status: stored.status.clone() });
    let events = sources.events.events().into_iter().map(Object::Event);
    let local = sources.objects.get();
    let mut all: Vec<Object> = pods.chain(events).chain(local.all().cloned().map(Object::Local)).collect();
    let namespaces: BTreeSet<Arc<str>> = all
        .iter()
        .filter_map(Object::key)
        .map(|key| key.namespace)
        .filter(|namespace| !namespace.is_empty())
        .chain(["default".into(), "kube-system".into()])
        .collect();
    all.extend(namespaces.into_iter().map(Object::Namespace));
    all.push(Object::Node(node.clone()));
    all
}

/// Whether the node is ready, and since when.
#[derive(Default)]
struct Condition {
    ready: Option<([bool; 2], Arc<Value>)>,
}

impl Condition {
    fn look(&mut self, sources: &Sources, now: Instant, at: Timestamp) -> Arc<Value> {
        let (health, ends) = (sources.health.check(now), sources.shutdown.is_set());
        let is = [health.is_ok(), ends];
        if let Some((_, node)) = self.ready.as_ref().filter(|(before, _)| *before == is) {
            return node.clone();
        }
        let mut node = sources.node.clone();
        // Asked only of one that answers.
        if let Some(version) = health.is_ok().then(|| sources.cri.version().ok()).flatten() {
            let text = format!("{}://{}", version.name, version.version);
            node["status"]["nodeInfo"]["containerRuntimeVersion"] = text.into();
        }
        let ends = ends.then(|| shutdown::NODE_MESSAGE.to_owned());
        let hindrances: Vec<_> = health.err().into_iter().chain(ends).collect();
        node["status"]["conditions"] = json!([node::conditions::ready(&hindrances, &[], at)]);
        let node = Arc::new(node);
        self.ready = Some((is, node.clone()));
        node
    }
}
