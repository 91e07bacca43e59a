//! The state of the fake runtime, and what a test may ask of it. Pure but for time stamps and log
//! files.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cleat::cri::proto::runtime::{
    ContainerConfig, ContainerEventResponse, ContainerEventType, Image, PodSandboxConfig, PodSandboxStatus,
    RuntimeFeatures, RuntimeHandlerFeatures,
};
use grpcio::RpcStatusCode;

/// What a call is about. A field that doesn't apply is empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Subject {
    /// Of the container, or else of the sandbox.
    pub id: String,
    pub pod: String,
    pub container: String,
    pub image: String,
}

impl Subject {
    /// Whether `who` names it. `who` is everywhere one of: the name of a pod, `POD/CONTAINER`, an image,
    /// or an id.
    pub fn is(&self, who: &str) -> bool {
        who == self.pod
            || who == self.id
            || who == self.image
            || who.split_once('/').is_some_and(|(pod, container)| pod == self.pod && container == self.container)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Subject { id, pod, container, image } = self;
        let id = id.get(..8).unwrap_or(id);
        let parts = [pod, container, image, id];
        f.write_str(&parts.into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" "))
    }
}

/// One call that arrived.
#[derive(Debug, Clone)]
pub struct Call {
    pub(super) number: u64,
    pub at: Instant,
    pub method: &'static str,
    pub subject: Subject,
    /// When and how it was answered; `None` while it is under way.
    pub answer: Option<(Instant, RpcStatusCode)>,
}

#[derive(Debug, Clone)]
pub struct Sandbox {
    pub id: String,
    pub config: PodSandboxConfig,
    pub handler: String,
    pub ready: bool,
    /// Empty with the node's network, and after the sandbox was stopped.
    pub ip: String,
    /// Nanoseconds since 1970.
    pub created_at: i64,
}

#[derive(Debug, Clone)]
pub struct Container {
    pub id: String,
    pub sandbox_id: String,
    /// The pod's name.
    pub pod: String,
    pub config: ContainerConfig,
    pub image_id: String,
    pub log_path: Option<PathBuf>,
    pub created_at: i64,
    pub state: State,
    /// When it was first asked to stop.
    pub(super) term_at: Option<Instant>,
}

/// Times are nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    Created,
    Running { started_at: i64 },
    Exited { started_at: i64, finished_at: i64, exit_code: i32, reason: String },
}

impl Container {
    pub fn name(&self) -> &str {
        &self.config.metadata.name
    }

    pub fn attempt(&self) -> u32 {
        self.config.metadata.attempt
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Its exit code, once it has ended.
    pub fn exit_code(&self) -> Option<i32> {
        match self.state {
            State::Exited { exit_code, .. } => Some(exit_code),
            _ => None,
        }
    }

    pub fn subject(&self) -> Subject {
        let (pod, container) = (self.pod.clone(), self.name().to_owned());
        Subject { id: self.id.clone(), pod, container, image: String::new() }
    }
}

impl Sandbox {
    pub fn pod(&self) -> &str {
        &self.config.metadata.name
    }

    pub fn subject(&self) -> Subject {
        Subject { id: self.id.clone(), pod: self.pod().to_owned(), ..Subject::default() }
    }

    pub fn uses_node_network(&self) -> bool {
        let options = self.config.linux.security_context.namespace_options.get_or_default();
        options.network == cleat::cri::proto::runtime::NamespaceMode::NODE.into()
    }
}

/// How containers behave when they are told to stop: end with `code` after `takes`.
#[derive(Debug, Clone)]
pub(super) struct OnTerm {
    pub who: String,
    pub takes: Duration,
    pub code: i32,
}

/// What commands in containers come to: `code` after `takes`, having said `output`.
#[derive(Debug, Clone)]
pub(super) struct OnExec {
    pub who: String,
    pub takes: Duration,
    pub code: i32,
    pub output: String,
}

/// All that the fake runtime has, by id, and all calls that it got. `who` as in [`Subject::is`].
#[derive(Debug, Default)]
pub struct Model {
    pub sandboxes: BTreeMap<String, Sandbox>,
    pub containers: BTreeMap<String, Container>,
    /// By name.
    pub images: BTreeMap<String, Image>,
    pub calls: Vec<Call>,
    pub runtime_not_ready: Option<String>,
    pub network_not_ready: Option<String>,
    /// Handlers by name, the default one's is empty, and what else it says that it can do.
    pub handlers: BTreeMap<String, RuntimeHandlerFeatures>,
    pub features: RuntimeFeatures,
    pub(super) on_term: Vec<OnTerm>,
    pub(super) on_exec: Vec<OnExec>,
    pub(super) events: Vec<ContainerEventResponse>,
    /// Names of sandboxes and containers that are taken, with the id that has them.
    pub(super) names: BTreeMap<String, String>,
    last_call: u64,
    last_number: u32,
    last_time: i64,
}

impl Model {
    /// How many containers run.
    pub fn running(&self, who: &str) -> usize {
        self.containers_of(who).filter(|c| c.is_running()).count()
    }

    /// Containers, in the order in which they were made.
    pub fn containers_of(&self, who: &str) -> impl Iterator<Item = &Container> {
        self.containers.values().filter(move |c| c.subject().is(who))
    }

    /// The newest container.
    pub fn container(&self, who: &str) -> Option<&Container> {
        self.containers_of(who).last()
    }

    /// Sandboxes, in the order in which they were made.
    pub fn sandboxes_of(&self, who: &str) -> impl Iterator<Item = &Sandbox> {
        self.sandboxes.values().filter(move |s| s.subject().is(who))
    }

    /// The newest sandbox.
    pub fn sandbox(&self, who: &str) -> Option<&Sandbox> {
        self.sandboxes_of(who).last()
    }

    /// The calls of a method that have arrived, in order.
    pub fn calls_of(&self, method: &str) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(move |c| c.method == method)
    }

    /// How many calls of a method have arrived.
    pub fn count(&self, method: &str) -> usize {
        self.calls_of(method).count()
    }

    /// How many calls of a method about `who` have arrived.
    pub fn count_of(&self, method: &str, who: &str) -> usize {
        self.calls_of(method).filter(|c| c.subject.is(who)).count()
    }

    /// How many calls of a method are under way.
    pub fn in_flight(&self, method: &str) -> usize {
        self.calls_of(method).filter(|c| c.answer.is_none()).count()
    }

    /// Ends a running container by itself; nothing happens to others. `reason` is `Completed`, `Error`
    /// or `OOMKilled`.
    pub fn exit(&mut self, id: &str, code: i32, reason: &str) {
        let finished_at = self.now();
        let Some(container) = self.containers.get_mut(id) else { return };
        if let State::Running { started_at } = container.state {
            container.state = State::Exited { started_at, finished_at, exit_code: code, reason: reason.to_owned() };
            let sandbox = container.sandbox_id.clone();
            self.tell(id, &sandbox, ContainerEventType::CONTAINER_STOPPED_EVENT);
        }
    }

    /// Ends the process of a sandbox by itself; its containers run on.
    pub fn kill_sandbox(&mut self, id: &str) {
        let ready = self.sandboxes.get_mut(id).map(|s| &mut s.ready);
        if ready.is_some_and(|ready| std::mem::replace(ready, false)) {
            self.tell(id, id, ContainerEventType::CONTAINER_STOPPED_EVENT);
        }
    }

    /// Forgets all sandboxes and containers, as a machine that boots.
    pub fn forget_pods(&mut self) {
        self.sandboxes.clear();
        self.containers.clear();
        self.names.clear();
    }

    pub fn add_image(&mut self, name: &str) {
        let number = self.next_number();
        let mut image = Image::new();
        image.id = format!("sha256:{number:064x}");
        image.repo_tags = vec![name.to_owned()];
        image.size = 1 << 20;
        self.images.insert(name.to_owned(), image);
    }

    /// An image by name or id.
    pub fn image(&self, name: &str) -> Option<&Image> {
        self.images.get(name).or_else(|| self.images.values().find(|i| i.id == name))
    }

    /// An id of containerd's form. Ids sort in the order in which they were made.
    pub(super) fn new_id(&mut self) -> String {
        format!("{:08x}{:056x}", self.next_number(), 0)
    }

    /// An address that no other sandbox has had.
    pub(super) fn new_ip(&mut self) -> String {
        let n = self.next_number();
        format!("10.88.{}.{}", n >> 8 & 255, n & 255)
    }

    fn next_number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    /// The time, in nanoseconds since 1970; no two answers are the same.
    pub(super) fn now(&mut self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        self.last_time = i64::try_from(now).unwrap_or(i64::MAX).max(self.last_time + 1);
        self.last_time
    }

    /// Records an event for those who listen.
    pub(super) fn tell(&mut self, id: &str, sandbox: &str, kind: ContainerEventType) {
        let mut event = ContainerEventResponse::new();
        event.container_id = id.to_owned();
        event.container_event_type = kind.into();
        event.created_at = self.now();
        event.pod_sandbox_status = self.sandbox_status(sandbox).into();
        self.events.push(event);
    }

    /// Writes a call down and returns its number.
    pub(super) fn call(&mut self, method: &'static str, subject: Subject) -> u64 {
        self.last_call += 1;
        self.calls.push(Call { number: self.last_call, at: Instant::now(), method, subject, answer: None });
        self.last_call
    }

    /// Writes the answer of a call down, unless the test has dropped the call from the list.
    pub(super) fn answered(&mut self, number: u64, code: RpcStatusCode) {
        if let Some(call) = self.calls.iter_mut().rfind(|c| c.number == number) {
            call.answer = Some((Instant::now(), code));
        }
    }

    pub(super) fn sandbox_status(&self, id: &str) -> Option<PodSandboxStatus> {
        self.sandboxes.get(id).map(super::sandboxes::sandbox_status)
    }

    /// How the container takes it to be told to stop. Unless told otherwise it ends at once, with 0.
    pub(super) fn on_term(&self, container: &Container) -> (Duration, i32) {
        let subject = container.subject();
        let rule = self.on_term.iter().rfind(|rule| subject.is(&rule.who));
        rule.map_or((Duration::ZERO, 0), |rule| (rule.takes, rule.code))
    }

    /// What a command in the container comes to. Unless told otherwise it ends at once, with 0.
    pub(super) fn on_exec(&self, container: &Container) -> Option<&OnExec> {
        let subject = container.subject();
        self.on_exec.iter().rfind(|rule| subject.is(&rule.who))
    }
}

/// For a failed test: what there is, and the last calls.
impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for s in self.sandboxes.values() {
            writeln!(f, "sandbox {}: ready {}", s.subject(), s.ready)?;
        }
        for c in self.containers.values() {
            writeln!(f, "container {} #{}: {:?}", c.subject(), c.attempt(), c.state)?;
        }
        writeln!(f, "images {:?}", self.images.keys())?;
        let (first, skipped) = (self.calls.first().map(|c| c.at), self.calls.len().saturating_sub(40));
        for call in self.calls.iter().skip(skipped) {
            let at = first.map_or(Duration::ZERO, |first| call.at - first);
            let answer = call.answer.map(|(when, code)| format!("{code:?} after {:?}", when - call.at));
            writeln!(f, "{at:>10.3?} {} {}: {}", call.method, call.subject, answer.as_deref().unwrap_or("no answer"))?;
        }
        Ok(())
    }
}
