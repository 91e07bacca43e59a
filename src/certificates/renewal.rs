//! Has the certificates signed: the first one, and each next one before the last one ends. One thread
//! does it all, and doesn't wait for anybody's approval with the other request undone.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::bootstrap;
use super::request::{CLIENT, Outcome, SERVING, Wish, pair};
use super::store::{Held, Store};
use super::x509::Validity;
use crate::config::Config;
use crate::disk;
use crate::kube::retry::{Retry, chance};
use crate::kube::{self, Client, kubeconfig, path};

/// How often it is looked whether a request has been signed; somebody may have to approve it by hand.
const PENDING: Duration = Duration::from_secs(3);
const PENDING_LONG: Duration = Duration::from_secs(30);
/// From then on it is looked seldom.
const LONG: SignedDuration = SignedDuration::from_secs(60);
/// A request that was not signed by then is made anew: the server may have forgotten it.
const LOST: SignedDuration = SignedDuration::from_mins(15);
/// How often it is looked whether a certificate is due, since clocks jump and addresses change.
const LOOK: Duration = Duration::from_secs(60);

const CLIENT_NAME: &str = "kubelet-client";
const SERVING_NAME: &str = "kubelet-server";
/// The key of a first request, so that an agent that is started again asks for the same.
const FIRST_KEY: &str = "kubelet-client.key.tmp";

/// The file with the newest serving certificate that the cluster signed, and its key.
pub fn serving_file(cert_dir: &Path) -> PathBuf {
    Store::new(cert_dir, SERVING_NAME).current()
}

/// The file with the newest client certificate that the cluster signed, and its key.
pub fn client_file(cert_dir: &Path) -> PathBuf {
    Store::new(cert_dir, CLIENT_NAME).current()
}

/// When the next certificate is asked for: when 70 to 90 percent of the time of this one has passed, so
/// that the nodes of a cluster don't ask all at once. `chance`: 0.0 to 1.0.
fn renewal(validity: Validity, chance: f64) -> Timestamp {
    let whole = validity.until.duration_since(validity.from);
    let part = whole.mul_f64(0.7 + 0.2 * chance.clamp(0.0, 1.0));
    validity.from.checked_add(part).unwrap_or(validity.from)
}

/// How long until it is time to ask for one that follows `held`; `None`: it is.
fn until_due(held: Option<&Held>, names: &[String], chance: f64, now: Timestamp) -> Option<Duration> {
    let held = held.filter(|held| held.is_for(names))?;
    Duration::try_from(renewal(held.validity, chance).duration_since(now)).ok().filter(|left| !left.is_zero())
}

/// A request that is out.
struct Pending {
    name: String,
    /// PEM.
    key: String,
    since: Timestamp,
}

/// One certificate of the node and its successors.
struct Renewal {
    what: &'static str,
    store: Store,
    signer: &'static str,
    node: String,
    /// By it each has a time of its own.
    chance: f64,
    pending: Option<Pending>,
    retry: Retry,
    failure: Option<String>,
}

impl Renewal {
    fn new(what: &'static str, store: Store, signer: &'static str, node: &str) -> Renewal {
        Renewal {
            what,
            store,
            signer,
            node: node.to_owned(),
            chance: chance(),
            pending: None,
            retry: Retry::default(),
            failure: None,
        }
    }

    /// Goes one step on, if there is one, and says when to come again. `held`: what there is now.
    fn step(&mut self, client: &Client, held: Option<&Held>, names: Vec<String>, now: Timestamp) -> Duration {
        if let (None, Some(left)) = (&self.pending, until_due(held, &names, self.chance, now)) {
            return left.min(LOOK);
        }
        let result = match self.pending.take() {
            Some(pending) => self.look(client, pending, now),
            None => self.ask(client, names, None, now),
        };
        self.wait(result, now)
    }

    /// When to come again, after a step that went so.
    fn wait(&mut self, result: Result<(), Failure>, now: Timestamp) -> Duration {
        match result {
            Ok(()) => {
                self.retry.succeeds();
                self.failure = None;
                match &self.pending {
                    Some(pending) if now.duration_since(pending.since) < LONG => PENDING,
                    Some(_) => PENDING_LONG,
                    None => LOOK,
                }
            }
            Err(failure) => {
                let why = failure.to_string();
                if self.failure.as_ref() != Some(&why) {
                    log::warn!("{}: {why}", self.what);
                }
                self.failure = Some(why);
                let wait = self.retry.fails(failure.retry_after(), chance());
                // Somebody said no, and is not to be asked all the time.
                if matches!(failure, Failure::Refused(_)) { wait.max(LOOK) } else { wait }
            }
        }
    }

    /// Sends a request: with this key, under a name of its own, or with a fresh one.
    fn ask(
        &mut self,
        client: &Client,
        names: Vec<String>,
        first: Option<rcgen::KeyPair>,
        now: Timestamp,
    ) -> Result<(), Failure> {
        let wish = Wish { signer: self.signer, node: self.node.clone(), names };
        let name = first.as_ref().map(first_name);
        let key = first.map_or_else(rcgen::KeyPair::generate, Ok)?;
        let object = wish.object(&wish.sign(&key)?, name.as_deref());
        let made: Result<Value, _> = client.create(&path(&COLLECTION), &object);
        let name = match (made, name) {
            (Err(e), Some(name)) if e.is_already_exists() => name,
            (made, _) => made?["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        };
        log::info!("{}: asked for it with the certificate signing request {name}, which has to be approved", self.what);
        self.pending = Some(Pending { name, key: key.serialize_pem(), since: now });
        Ok(())
    }

    /// Looks what has become of a request.
    fn look(&mut self, client: &Client, pending: Pending, now: Timestamp) -> Result<(), Failure> {
        let object = client.get(&path(&[&COLLECTION[..], &[pending.name.as_str()]].concat()));
        let object: Value = match object {
            // Requests are forgotten after a while.
            Err(e) if e.is_not_found() => return Err(e.into()),
            // Whether it was signed isn't known yet.
            Err(e) => {
                self.pending = Some(pending);
                return Err(e.into());
            }
            Ok(object) => object,
        };
        match Outcome::of(&object) {
            Outcome::Signed(chain) => {
                let pem = pair(&chain, &pending.key).map_err(Failure::Refused)?;
                self.store.write(&pem, now)?;
                log::info!("{}: it was signed, {}", self.what, self.store.current().display());
                Ok(())
            }
            Outcome::Refused(why) => Err(Failure::Refused(format!("the request {} was refused: {why}", pending.name))),
            Outcome::Pending => {
                // A clock that was set back doesn't make it younger.
                let age = now.duration_since(pending.since);
                self.pending = (age < LOST && age >= SignedDuration::ZERO).then_some(pending);
                Ok(())
            }
        }
    }
}

/// The name of the first request: the same for the same key.
fn first_name(key: &rcgen::KeyPair) -> String {
    let point = rcgen::PublicKeyData::der_bytes(key);
    let digits = point.iter().skip(1).take(32).map(|byte| format!("{byte:02x}"));
    format!("node-csr-{}", digits.collect::<String>())
}

const COLLECTION: [&str; 4] = ["apis", "certificates.k8s.io", "v1", "certificatesigningrequests"];

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Server(#[from] kube::Error),
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error("{0}")]
    Refused(String),
    #[error("making the request: {0}")]
    Make(#[from] rcgen::Error),
    #[error("writing it: {0}")]
    Write(#[from] io::Error),
}

impl Failure {
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Failure::Server(e) => e.retry_after(),
            _ => None,
        }
    }
}

/// The first certificate, with what the bootstrap kubeconfig allows.
struct Bootstrap {
    from: PathBuf,
    client: Client,
    kubeconfig: PathBuf,
    first_key: PathBuf,
}

impl Bootstrap {
    fn step(&self, renewal: &mut Renewal, now: Timestamp) -> Duration {
        let result = match renewal.pending.take() {
            Some(pending) => renewal.look(&self.client, pending, now),
            None => self.key().and_then(|key| renewal.ask(&self.client, Vec::new(), Some(key), now)),
        };
        let result = result.and_then(|()| self.finish(renewal, now));
        if let Err(Failure::Refused(_)) = &result {
            // With the same key it would be the same request.
            self.forget_key();
        }
        renewal.wait(result, now)
    }

    /// The key of the first request: that of before the agent was started, if it was out then.
    fn key(&self) -> Result<rcgen::KeyPair, Failure> {
        if let Ok(key) = disk::read_text(&self.first_key, 1 << 16) {
            match rcgen::KeyPair::from_pem(&key) {
                Ok(key) => return Ok(key),
                Err(e) => log::warn!("{}: {e}; making another one", self.first_key.display()),
            }
        }
        let key = rcgen::KeyPair::generate()?;
        if let Some(dir) = self.first_key.parent().filter(|dir| !dir.is_dir()) {
            disk::make_dir(dir, 0o700)?;
        }
        disk::write_atomic(&self.first_key, key.serialize_pem().as_bytes(), 0o600)?;
        Ok(key)
    }

    /// Writes the node's own kubeconfig, once there is a certificate for it.
    fn finish(&self, renewal: &Renewal, now: Timestamp) -> Result<(), Failure> {
        let good = renewal.store.read().is_some_and(|held| held.validity.until > now);
        if renewal.pending.is_some() || !good {
            return Ok(());
        }
        let text = bootstrap::kubeconfig(&kubeconfig::load(&self.from)?, &renewal.store.current());
        if let Some(dir) = self.kubeconfig.parent().filter(|dir| !dir.is_dir()) {
            disk::make_dir(dir, 0o755)?;
        }
        disk::write_atomic(&self.kubeconfig, text.as_bytes(), 0o600)?;
        log::info!("{} is written: the node has joined its cluster", self.kubeconfig.display());
        self.forget_key();
        Ok(())
    }

    fn forget_key(&self) {
        match std::fs::remove_file(&self.first_key) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => log::warn!("{}: {e}", self.first_key.display()),
            _ => {}
        }
    }
}

/// All certificates of the node that the cluster signs.
pub struct Certificates {
    /// With the node's own kubeconfig.
    client: Arc<Client>,
    kubeconfig: PathBuf,
    bootstrap: Option<Bootstrap>,
    own: Renewal,
    rotate: bool,
    serving: Option<Renewal>,
    names: Box<dyn Fn() -> Vec<String> + Send>,
}

impl Certificates {
    /// `None` when nothing is to be signed. `client`: with the node's own kubeconfig, which may have to be
    /// made first.
    pub fn new(config: &Config, client: Arc<Client>) -> Option<Certificates> {
        let (node, tls) = (&config.node, &config.server.tls);
        let kubeconfig = node.kubeconfig.clone()?;
        let bootstrap = node.bootstrap_kubeconfig.as_ref().map(|from| Bootstrap {
            client: Client::of_file(from, node.api_rate),
            from: from.clone(),
            kubeconfig: kubeconfig.clone(),
            first_key: tls.cert_dir.join(FIRST_KEY),
        });
        let serves = tls.bootstrap && config.server.enabled && tls.certificate.is_none();
        if bootstrap.is_none() && !tls.rotate_client && !serves {
            return None;
        }
        let name = config.node_name.clone();
        let renewal = |what, store, signer| Renewal::new(what, Store::new(&tls.cert_dir, store), signer, &name);
        let own = renewal("the node's client certificate", CLIENT_NAME, CLIENT);
        let serving = serves.then(|| renewal("the node's serving certificate", SERVING_NAME, SERVING));
        let (ips, node_name) = (config.node_ips.clone(), config.node_name.clone());
        let names = move || std::iter::once(node_name.clone()).chain(crate::node::addresses(&ips)).collect();
        let rotate = tls.rotate_client;
        Some(Certificates { client, kubeconfig, bootstrap, own, rotate, serving, names: Box::new(names) })
    }

    /// Whether the server has to be asked for the first certificate, or for a new first one.
    fn lacks_one(&self, now: Timestamp) -> bool {
        self.bootstrap.is_some() && !bootstrap::is_valid(&self.kubeconfig, now)
    }

    /// The certificate that the server knows the node by, if it is by one: the newest, or the kubeconfig's
    /// own, which one of ours then follows.
    fn held(&self) -> Option<Held> {
        self.own.store.read().or_else(|| bootstrap::held(&self.kubeconfig))
    }

    /// Runs as long as the agent does.
    pub fn run(mut self) {
        loop {
            let wait = self.step(Timestamp::now());
            std::thread::sleep(wait);
        }
    }

    fn step(&mut self, now: Timestamp) -> Duration {
        let lacks_one = self.lacks_one(now);
        if let Some(bootstrap) = self.bootstrap.as_ref().filter(|_| lacks_one) {
            let wait = bootstrap.step(&mut self.own, now);
            if self.lacks_one(now) {
                return wait;
            }
            self.client.reload();
        }
        let mut wait = LOOK;
        if let Some(held) = self.held().filter(|_| self.rotate) {
            wait = wait.min(self.own.step(&self.client, Some(&held), Vec::new(), now));
        }
        if let Some(serving) = &mut self.serving {
            let held = serving.store.read();
            wait = wait.min(serving.step(&self.client, held.as_ref(), (self.names)(), now));
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_the_next_one_is_asked_for() {
        let at = |s| Timestamp::from_second(s).expect("a time");
        let validity = Validity { from: at(1000), until: at(2000) };
        for (chance, when) in [(0.0, 1700), (0.5, 1800), (1.0, 1900), (7.0, 1900)] {
            assert_eq!(renewal(validity, chance), at(when), "{chance}");
        }
        assert_eq!(until_due(None, &[], 0.0, at(0)), None);
        let (from, until) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2020, 1, 11));
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).expect("is a name");
        (params.not_before, params.not_after) = (from, until);
        let key = rcgen::KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("is made").pem() + &key.serialize_pem();
        let held = Held::parse(pem.as_bytes()).expect("is one");
        for (now, name, left) in [
            ("2020-01-07T00:00:00Z", "a", Some(24 * 3600)),
            ("2020-01-07T23:59:50Z", "a", Some(10)),
            ("2020-01-08T00:00:00Z", "a", None),
            ("2020-02-01T00:00:00Z", "a", None),
            // The node has another name by now.
            ("2020-01-02T00:00:00Z", "b", None),
        ] {
            let is = until_due(Some(&held), &[name.to_owned()], 0.0, now.parse().expect("is a time"));
            assert_eq!(is, left.map(Duration::from_secs), "{now} {name}");
        }
    }

    #[test]
    fn a_first_request_has_its_keys_name() {
        let (one, other) = (rcgen::KeyPair::generate().expect("a key"), rcgen::KeyPair::generate().expect("a key"));
        let again = rcgen::KeyPair::from_pem(&one.serialize_pem()).expect("is a key");
        assert_eq!(first_name(&one), first_name(&again));
        assert_ne!(first_name(&one), first_name(&other));
        assert_eq!(first_name(&one).len(), "node-csr-".len() + 64);
    }
}
