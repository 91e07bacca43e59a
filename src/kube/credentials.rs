//! What requests are made with: the files that a kubeconfig names, read, and read again when they
//! change; the answer of an exec plugin, until it has passed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use parking_lot::Mutex;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

use super::kubeconfig::{self, Access, Bearer, Error, Material};
use super::{exec, tls};
use crate::disk;

/// How often files are looked at, when there are requests.
const CHECK: Duration = Duration::from_secs(10);
/// An answer of a plugin is asked for anew so long before it ends.
const EARLY: Duration = Duration::from_secs(10);
/// Bytes of a certificate, a key or a token.
const MAX_FILE: u64 = 1 << 20;
/// Bytes in each direction of each connection.
const BUFFER: usize = 16 << 10;

/// Ready to be asked with.
pub struct Session {
    pub agent: Agent,
    /// `https://HOST:PORT/PATH`, as requests name it.
    pub base: String,
    /// The server as it is told of.
    pub server: String,
    /// For the header `Host`, where it isn't what the URL says.
    pub host: Option<String>,
    /// For the header `Authorization`.
    pub authorization: Option<String>,
}

pub struct Credentials {
    from: From,
    /// A certificate and its key, which count from when the file is there.
    renewed: Option<PathBuf>,
    state: Mutex<Option<State>>,
}

#[derive(Clone)]
enum From {
    File(PathBuf),
    Given(Box<Access>),
}

struct State {
    session: Arc<Session>,
    stamps: Vec<Stamp>,
    expires: Option<Timestamp>,
    checked: Instant,
}

/// A file, and what tells that it is another than before.
type Stamp = (PathBuf, Option<(SystemTime, u64)>);

impl Credentials {
    pub fn of_file(path: &Path) -> Credentials {
        Credentials { from: From::File(path.to_owned()), renewed: None, state: Mutex::new(None) }
    }

    pub fn of(access: Access) -> Credentials {
        Credentials { from: From::Given(Box::new(access)), renewed: None, state: Mutex::new(None) }
    }

    pub fn with_renewed(&self, certificate: &Path) -> Credentials {
        Credentials { from: self.from.clone(), renewed: Some(certificate.to_owned()), state: Mutex::new(None) }
    }

    /// What to ask with. The first time, and when files have changed, they are read, and a plugin is
    /// run; whoever asks meanwhile waits, for nobody can ask without.
    ///
    /// # Errors
    /// When it can't be had. What was good before is still used when only a file isn't good any more:
    /// it may be half written.
    pub fn session(&self, now: Instant) -> Result<Arc<Session>, Error> {
        let mut state = self.state.lock();
        let before = match state.as_mut() {
            Some(before) => before,
            None => return Ok(state.insert(self.read(now)?).session.clone()),
        };
        let passed = before.expires.is_some_and(|expires| Timestamp::now() + EARLY >= expires);
        if now.saturating_duration_since(before.checked) >= CHECK || passed {
            before.checked = now;
            if passed || changed(&before.stamps) {
                match self.read(now) {
                    Ok(new) => {
                        log::debug!("the credentials for API server {} are read anew", new.session.server);
                        *before = new;
                    }
                    Err(e) if passed => return Err(e),
                    Err(e) => log::warn!("{e}; what was read before is still used"),
                }
            }
        }
        Ok(before.session.clone())
    }

    /// Has everything read again with the next request.
    pub fn forget(&self) {
        *self.state.lock() = None;
    }

    fn read(&self, now: Instant) -> Result<State, Error> {
        let (mut access, path) = match &self.from {
            From::File(path) => (kubeconfig::load(path)?, path.as_path()),
            From::Given(access) => ((**access).clone(), Path::new("(none)")),
        };
        let mut files = vec![stamp(path)];
        if let Some(renewed) = &self.renewed {
            files.push(stamp(renewed));
            if renewed.exists() {
                access.user.certificate = Some((Material::File(renewed.clone()), Material::File(renewed.clone())));
            }
        }
        let (session, expires) = session(&access, &mut files).map_err(|why| Error::new(path, why))?;
        Ok(State { session: Arc::new(session), stamps: files, expires, checked: now })
    }
}

fn stamp(path: &Path) -> Stamp {
    let meta = std::fs::metadata(path).and_then(|meta| Ok((meta.modified()?, meta.len())));
    (path.to_owned(), meta.ok())
}

fn changed(stamps: &[Stamp]) -> bool {
    stamps.iter().any(|old| stamp(&old.0) != *old)
}

fn session(access: &Access, files: &mut Vec<Stamp>) -> Result<(Session, Option<Timestamp>), String> {
    let mut read = |material: &Material, what: &str| match material {
        Material::Data(bytes) => Ok(bytes.clone()),
        Material::File(path) => {
            // Before it is read: what is written meanwhile is seen next time.
            files.push(stamp(path));
            disk::read(path, MAX_FILE).map_err(|e| format!("reading {what} {}: {e}", path.display()))
        }
    };
    let authority = access.authority.as_ref().map(|m| read(m, "certificate-authority")).transpose()?;
    let mut expires = None;
    let mut certificate = access.user.certificate.clone();
    let token = match &access.user.bearer {
        Bearer::None => None,
        Bearer::Token(token) => Some(token.clone()),
        Bearer::TokenFile(path) => {
            let bytes = read(&Material::File(path.clone()), "tokenFile")?;
            let text = String::from_utf8(bytes).map_err(|_| format!("tokenFile {}: it is no text", path.display()))?;
            Some(text.trim().to_owned()).filter(|token| !token.is_empty())
        }
        Bearer::Exec(exec) => {
            let answer = exec::run(exec, access, authority.as_deref())?;
            expires = answer.expires;
            certificate = answer.certificate.or(certificate);
            answer.token
        }
    };
    let certificate = certificate
        .as_ref()
        .map(|(certificate, key)| Ok::<_, String>((read(certificate, "client-certificate")?, read(key, "client-key")?)))
        .transpose()?;
    if token.as_ref().is_some_and(|token| token.bytes().any(|b| !(0x21..=0x7e).contains(&b))) {
        return Err("the token holds what no token can".to_owned());
    }
    let parts = tls::Parts {
        insecure: access.insecure,
        authority: authority.as_deref(),
        certificate: certificate.as_ref().map(|(certificate, key)| (certificate.as_slice(), key.as_slice())),
    };
    Ok((connectable(access, &parts, token)?, expires))
}

fn connectable(access: &Access, parts: &tls::Parts<'_>, token: Option<String>) -> Result<Session, String> {
    let secure = access.server.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
    let real: Uri = access.server.parse().map_err(|e| format!("server {:?}: {e}", access.server))?;
    let authority = real.authority().ok_or_else(|| format!("server {:?} names no host", access.server))?.clone();
    let mut config = Agent::config_builder()
        .user_agent(concat!("cleat/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .max_redirects(0)
        .https_only(secure)
        .input_buffer_size(BUFFER)
        .output_buffer_size(BUFFER)
        .max_idle_age(Duration::from_secs(60))
        .max_idle_connections(2);
    if secure {
        config = tls::configure(config, parts)?;
    }
    let mut session = Session {
        agent: Agent::new_with_defaults(),
        base: access.server.clone(),
        server: access.server.clone(),
        host: None,
        authorization: token.map(|token| format!("Bearer {token}")),
    };
    if let Some(name) = access.tls_server_name.as_ref().filter(|_| secure) {
        // The name in the URL is what the certificate is compared with; where it leads is the
        // resolver's business. A proxy would look it up itself.
        let port = authority.port_u16().unwrap_or(443);
        session.base = format!("https://{name}:{port}{}", real.path().trim_end_matches('/'));
        session.base.parse::<Uri>().map_err(|e| format!("tls-server-name {name:?}: {e}"))?;
        session.host = Some(authority.to_string());
        config = config.proxy(None);
        session.agent = Agent::with_parts(config.build(), DefaultConnector::new(), Host(real));
    } else {
        session.agent = config.build().into();
    }
    Ok(session)
}

/// Finds one host, whatever is asked for.
#[derive(Debug)]
struct Host(Uri);

impl Resolver for Host {
    fn resolve(&self, _: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        DefaultResolver::default().resolve(&self.0, config, timeout)
    }
}
