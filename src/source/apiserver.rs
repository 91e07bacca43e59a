//! The API server as a source: a thread that lists the pods of this node and then watches them
//! (client-go/tools/cache/reflector.go, pkg/kubelet/config/apiserver.go). What the answers mean is
//! decided in `api_pods`.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::RwLock;

use super::api_pods::{ApiPods, Trouble};
use super::api_records::Records;
use super::mux::Channel;
use super::wake;
use crate::kube::retry::{Retry, chance};
use crate::kube::{self, Client};
use crate::pod::{Pod, PodName, PodUid};

const PATH: &str = "/api/v1/pods";
/// While the pods of before wait: how long the first answer may take.
const FIRST: Duration = Duration::from_secs(3);
/// Without a bookmark for so long, a watch is dead: the server sends one each minute or a little later.
const SILENCE: Duration = Duration::from_secs(95);
/// A watch that ends sooner than this says that something is wrong.
const SHORT: Duration = Duration::from_secs(1);

/// What the server has for this node, for those who answer it.
#[derive(Default)]
pub struct Seen {
    state: RwLock<Told>,
    changed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Debug, Clone, Default)]
pub struct Told {
    /// Pods that run here, by UID.
    pub pods: BTreeMap<PodUid, Arc<Pod>>,
    /// Mirrors of static pods.
    pub mirrors: BTreeMap<PodName, Arc<Pod>>,
    /// Something has been told: what isn't there isn't wanted.
    pub given: bool,
    /// The server itself has told it, since the agent was started.
    pub live: bool,
}

impl Seen {
    /// Has `changed` called now and from now on; it must not wait. There can be one only.
    pub fn on_change(&self, changed: Box<dyn Fn() + Send + Sync>) {
        if self.changed.set(changed).is_err() {
            return log::error!("somebody hears of what the API server has already");
        }
        self.tell();
    }

    fn tell(&self) {
        if let Some(changed) = self.changed.get() {
            changed();
        }
    }

    pub fn get(&self) -> Told {
        self.state.read().clone()
    }

    fn set(&self, told: Told) {
        *self.state.write() = told;
        self.tell();
    }
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub node_name: String,
    /// Where the pods are kept.
    pub directory: PathBuf,
    /// The server as it is told of.
    pub origin: String,
}

pub struct ApiSource {
    client: Arc<Client>,
    selector: String,
    pods: ApiPods,
    records: Records,
    seen: Arc<Seen>,
    channel: Channel,
    retry: Retry,
    /// The server has been heard.
    live: bool,
    /// The pods of before have been given out, or there are none.
    given: bool,
    /// The last failure, told once.
    failed: Option<String>,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// List, with a version that is at least so new: what is at hand, what was seen last, the newest.
    List(AtLeast),
    Watch,
}

/// Why a step came to its end early.
#[derive(Debug)]
enum Cause {
    Failed(kube::Error),
    /// The watch was under way; and whether it brought something lately.
    Broke(kube::Error, bool),
    /// There is another server than before.
    Replaced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtLeast {
    Any,
    Seen,
    Newest,
}

/// The sync loop is gone.
struct Over;

impl ApiSource {
    /// `ran_before`: the pods of an API server that the agent kept before it was started again.
    pub fn new(
        settings: Settings,
        client: Arc<Client>,
        ran_before: &[Arc<Pod>],
        seen: Arc<Seen>,
        channel: Channel,
    ) -> ApiSource {
        let records = Records::open(settings.directory, &settings.origin, ran_before);
        let before = records.pods();
        ApiSource {
            client,
            selector: format!("spec.nodeName={}", settings.node_name),
            given: before.is_none(),
            pods: ApiPods::new(&settings.origin, before.unwrap_or_default()),
            records,
            seen,
            channel,
            retry: Retry::default(),
            live: false,
            failed: None,
        }
    }

    /// Runs until the waker is dropped or the sync loop is gone.
    pub fn run(mut self, wake: &UnixStream) {
        let mut step = Step::List(AtLeast::Any);
        loop {
            let began = Instant::now();
            let result = match step {
                Step::List(at_least) => self.list(at_least),
                Step::Watch => self.watch(),
            };
            let Ok(result) = result else { return };
            let lasted = began.elapsed();
            let well = match (&result, step) {
                (Ok(()) | Err(Cause::Replaced), _) => step != Step::Watch || lasted >= SHORT,
                (Err(Cause::Broke(_, news)), _) => *news || lasted >= SHORT,
                (Err(Cause::Failed(_)), _) => false,
            };
            // That a list can be had says nothing of watches.
            if well && step == Step::Watch {
                self.retry.succeeds();
            }
            // One that broke off may have been a server's that is going down.
            let at_once = well && !matches!(result, Err(Cause::Broke(..)));
            let asked = result.as_ref().err().and_then(Cause::error).and_then(kube::Error::retry_after);
            step = next(step, &result);
            if let Err(cause) = result {
                self.tell(&cause);
                if self.give_kept().is_err() {
                    return;
                }
            }
            if !at_once && !wake::wait(wake, self.retry.fails(asked, chance())) {
                return;
            }
        }
    }

    fn query(&self, at_least: AtLeast) -> Vec<(&str, &str)> {
        let mut query = vec![("fieldSelector", self.selector.as_str())];
        match at_least {
            AtLeast::Any => query.push(("resourceVersion", "0")),
            AtLeast::Seen if !self.pods.version().is_empty() => query.push(("resourceVersion", self.pods.version())),
            AtLeast::Seen | AtLeast::Newest => {}
        }
        query
    }

    fn list(&mut self, at_least: AtLeast) -> Result<Result<(), Cause>, Over> {
        let query = self.query(at_least);
        let list = match self.given {
            true => self.client.list(PATH, &query),
            false => self.client.list_within(PATH, &query, FIRST),
        };
        match list {
            Ok(list) => {
                for why in self.pods.replace(list, Timestamp::now()) {
                    log::error!("{why}; it stays as it was");
                }
                self.live = true;
                self.works();
                self.publish().map(Ok)
            }
            Err(e) => Ok(Err(Cause::Failed(e))),
        }
    }

    fn watch(&mut self) -> Result<Result<(), Cause>, Over> {
        let query = [("fieldSelector", self.selector.as_str())];
        let events = match self.client.watch(PATH, &query, self.pods.version(), SILENCE) {
            Ok(events) => events,
            Err(e) => return Ok(Err(Cause::Failed(e))),
        };
        let mut news: Option<Instant> = None;
        for event in events {
            let event = match event {
                Ok(event) => event,
                Err(e) => return Ok(Err(Cause::Broke(e, news.is_some_and(|at| at.elapsed() < SILENCE)))),
            };
            news = Some(Instant::now());
            self.works();
            match self.pods.take(event, Timestamp::now()) {
                Ok(true) => self.publish()?,
                Ok(false) => {}
                Err(Trouble::Unusable(why)) => log::error!("{why}; it stays as it was"),
                Err(Trouble::Backwards) => return Ok(Err(Cause::Replaced)),
            }
        }
        Ok(Ok(()))
    }

    fn publish(&mut self) -> Result<(), Over> {
        let pods = self.pods.to_run();
        if self.live {
            // First on disk: what is started must be known after a power cut.
            self.records.keep(&pods);
        }
        self.given = true;
        let by_uid = pods.iter().map(|pod| (pod.uid.clone(), pod.clone())).collect();
        self.seen.set(Told { pods: by_uid, mirrors: self.pods.mirrors(), given: true, live: self.live });
        self.channel.set(pods).map_err(|_| Over)
    }

    /// The server can't be asked: the pods of before are those that are wanted.
    fn give_kept(&mut self) -> Result<(), Over> {
        if self.given {
            return Ok(());
        }
        log::info!("the pods that the API server gave before are kept, {} of them", self.pods.to_run().len());
        self.publish()
    }

    fn tell(&mut self, cause: &Cause) {
        let Some(error) = cause.error() else {
            return log::warn!("the API server is another than before; it is asked for all pods");
        };
        let text = error.to_string();
        // Each watch ends some day, and its version gets old.
        if error.is_gone() || self.failed.as_ref() == Some(&text) {
            return log::debug!("{text}");
        }
        log::warn!("pods of the API server: {text}; those that are known are kept");
        self.failed = Some(text);
    }

    fn works(&mut self) {
        if self.failed.take().is_some() {
            log::info!("the API server answers again");
        }
    }
}

impl Cause {
    fn error(&self) -> Option<&kube::Error> {
        match self {
            Cause::Failed(e) | Cause::Broke(e, _) => Some(e),
            Cause::Replaced => None,
        }
    }
}

/// What follows on a step with this result.
fn next(step: Step, result: &Result<(), Cause>) -> Step {
    use kube::Error::{Answer, Unreachable};
    match (step, result) {
        (_, Ok(())) => Step::Watch,
        (_, Err(Cause::Replaced)) => Step::List(AtLeast::Newest),
        // What came can't be trusted to go on from.
        (Step::Watch, Err(Cause::Broke(Answer { .. }, _))) => Step::List(AtLeast::Seen),
        (Step::Watch, Err(Cause::Broke(Unreachable { .. }, true))) => Step::Watch,
        // What is between here and there may let no event through.
        (Step::Watch, Err(Cause::Broke(Unreachable { .. }, false))) => Step::List(AtLeast::Seen),
        // It was gone, and may come back as another.
        (Step::Watch, Err(Cause::Failed(Unreachable { .. }))) => Step::List(AtLeast::Seen),
        (Step::Watch, Err(Cause::Failed(e) | Cause::Broke(e, _))) => match e.status().map(|status| status.code) {
            // Such versions are not there, or there are none.
            Some(400 | 404 | 410 | 422 | 504) => Step::List(AtLeast::Newest),
            _ => Step::Watch,
        },
        (Step::List(_), Err(Cause::Failed(e) | Cause::Broke(e, _))) if e.status().is_some() => {
            Step::List(AtLeast::Newest)
        }
        (Step::List(at_least), Err(_)) => Step::List(at_least),
    }
}

/// Starts the source on a thread of its own, which `wake` wakes and ends.
pub fn spawn(source: ApiSource, wake: UnixStream) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("source-api".to_owned());
    thread.spawn(move || source.run(&wake)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::Status;

    #[test]
    fn what_follows() {
        let refused = |code, reason: &str| {
            let status = Status { code, reason: reason.to_owned(), ..Status::default() };
            kube::Error::Refused { request: "GET /".to_owned(), status }
        };
        let unreachable = || kube::Error::Unreachable { server: "k".to_owned(), why: "refused".to_owned() };
        let answer = || kube::Error::Answer { request: "GET /".to_owned(), why: "no JSON".to_owned() };
        let (any, seen, newest) = (Step::List(AtLeast::Any), Step::List(AtLeast::Seen), Step::List(AtLeast::Newest));
        let (failed, broke) = (|e| Err(Cause::Failed(e)), |e| Err(Cause::Broke(e, true)));
        let table = [
            (any, Ok(()), Step::Watch),
            (Step::Watch, Ok(()), Step::Watch),
            (Step::Watch, broke(unreachable()), Step::Watch),
            (Step::Watch, failed(unreachable()), seen),
            (Step::Watch, Err(Cause::Broke(unreachable(), false)), seen),
            (Step::Watch, broke(refused(410, "Expired")), newest),
            (Step::Watch, failed(refused(410, "Gone")), newest),
            (Step::Watch, failed(refused(429, "TooManyRequests")), Step::Watch),
            (Step::Watch, failed(refused(401, "Unauthorized")), Step::Watch),
            (Step::Watch, broke(answer()), seen),
            (Step::Watch, Err(Cause::Replaced), newest),
            (any, failed(unreachable()), any),
            (seen, failed(unreachable()), seen),
            // "Too large resource version": the server was replaced.
            (seen, failed(refused(504, "Timeout")), newest),
            (seen, failed(refused(410, "Expired")), newest),
        ];
        for (step, result, want) in table {
            assert_eq!(next(step, &result), want, "{step:?} {result:?}");
        }
    }
}
