//! The HTTP source: a thread that asks a URL for manifests now and then (pkg/kubelet/config/http.go).
//! What the answers mean is decided in `answers`.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ureq::Agent;
use ureq::http::header;

use super::answers::{Answer, UrlSet, Validators};
use super::mux::Channel;
use super::report::tell;
use super::wake;
use crate::kube;
use crate::local::{Store, with_classes};
use crate::pod::Pod;

/// A longer answer is no manifest.
const MAX_BODY: u64 = 10 << 20;
/// An answer that isn't whole by then is none.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The same while the pods of before the agent's start wait for it.
const FIRST_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
pub struct Settings {
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// Whose certificates the server may have; `None` means those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// Between two questions.
    pub frequency: Duration,
}

pub struct HttpSource {
    settings: Settings,
    set: UrlSet,
    objects: Arc<Store>,
    channel: Channel,
    /// Made anew after a failure, with the certificates as they are then.
    agent: Option<Agent>,
}

impl HttpSource {
    /// `ran_before`: the pods of a URL that the agent kept before it was started again. `objects`:
    /// where the classes of pods are.
    pub fn new(
        settings: Settings,
        node_name: &str,
        ran_before: Vec<Arc<Pod>>,
        objects: Arc<Store>,
        channel: Channel,
    ) -> HttpSource {
        let set = UrlSet::new(&settings.url, node_name, ran_before);
        HttpSource { settings, set, objects, channel, agent: None }
    }

    /// Runs until the waker is dropped or the sync loop is gone.
    pub fn run(mut self, wake: &UnixStream) {
        loop {
            let answer = self.ask();
            self.set.take(answer, Timestamp::now()).into_iter().for_each(tell);
            if let Some(pods) = self.set.pods() {
                let objects = self.objects.get();
                let pods = pods.iter().map(|pod| with_classes(pod.clone(), &objects)).collect();
                if self.channel.set(pods).is_err() {
                    return;
                }
            }
            if !wake::wait(wake, self.set.wait(self.settings.frequency)) {
                return;
            }
        }
    }

    fn ask(&mut self) -> Result<Answer, String> {
        let agent = match self.agent.take() {
            Some(agent) => agent,
            None => agent(&self.settings)?,
        };
        let timeout = if self.set.keeps_waiting() { FIRST_TIMEOUT } else { TIMEOUT };
        let answer = get(&agent, &self.settings, self.set.validators(), timeout).map_err(|e| describe(&e))?;
        self.agent = Some(agent);
        Ok(answer)
    }
}

fn get(agent: &Agent, settings: &Settings, known: &Validators, timeout: Duration) -> Result<Answer, ureq::Error> {
    let mut request = agent.get(&settings.url);
    for (name, value) in &settings.headers {
        request = request.header(name, value);
    }
    let asks = [(header::IF_NONE_MATCH, &known.etag), (header::IF_MODIFIED_SINCE, &known.last_modified)];
    for (name, value) in asks {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    let mut response = request.config().timeout_global(Some(timeout)).build().call()?;
    let text = |name| response.headers().get(name)?.to_str().ok().map(str::to_owned);
    let validators = Validators { etag: text(header::ETAG), last_modified: text(header::LAST_MODIFIED) };
    let (status, date) = (response.status().as_u16(), text(header::DATE));
    // What else comes with an error is not for us.
    let body = match status {
        200 => response.body_mut().with_config().limit(MAX_BODY).read_to_vec()?,
        _ => Vec::new(),
    };
    Ok(Answer { status, validators, date, body })
}

fn agent(settings: &Settings) -> Result<Agent, String> {
    let secure = settings.url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
    let config = Agent::config_builder()
        .user_agent(concat!("cleat/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        // Nor may it lead to where anybody can answer.
        .https_only(secure)
        .max_idle_connections(1);
    let config = match secure {
        true => tls::with_trust(config, settings.ca_file.as_deref())?,
        false => config,
    };
    Ok(config.build().into())
}

/// The error in few words, the same ones each time.
fn describe(error: &ureq::Error) -> String {
    match error {
        ureq::Error::BodyExceedsLimit(_) => format!("the answer is longer than {} MiB, no manifest", MAX_BODY >> 20),
        other => kube::describe(other),
    }
}

/// Both versions have the same shape, so that the rest needs not know whether the build has TLS.
#[cfg(not(feature = "tls"))]
mod tls {
    use std::path::Path;

    use ureq::config::ConfigBuilder;
    use ureq::typestate::AgentScope;

    pub fn with_trust(_: ConfigBuilder<AgentScope>, _: Option<&Path>) -> Result<ConfigBuilder<AgentScope>, String> {
        Err("https is not served by this build: it lacks the feature tls".to_owned())
    }
}

#[cfg(feature = "tls")]
mod tls {
    use std::path::Path;

    use ureq::config::ConfigBuilder;
    use ureq::typestate::AgentScope;

    use crate::trust;

    pub fn with_trust(
        config: ConfigBuilder<AgentScope>,
        ca_file: Option<&Path>,
    ) -> Result<ConfigBuilder<AgentScope>, String> {
        let path = match ca_file {
            Some(path) => path.to_owned(),
            None => trust::system().ok_or(
                "there are no certificates of authorities on this system; \
                 install ca-certificates or set --manifest-url-ca-file",
            )?,
        };
        Ok(config.tls_config(trust::tls(&trust::in_file(&path)?).build()))
    }
}

/// Starts the source on a thread of its own, which `wake` wakes and ends.
pub fn spawn(source: HttpSource, wake: UnixStream) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("source-http".to_owned());
    thread.spawn(move || source.run(&wake)).map(drop)
}

#[cfg(test)]
mod tests;
