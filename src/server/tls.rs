//! TLS of the server: its certificate, which is made when none is given, whose clients' certificates
//! are trusted, and who a client certificate is for.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion, version};

use crate::config::{Certificate, TlsVersion};
use crate::disk;

/// How often files are looked at for a new certificate, when there are connections.
const CHECK: Duration = Duration::from_secs(60);
/// The names of the kubelet's own files.
const OWN_CERTIFICATE: &str = "kubelet.crt";
const OWN_KEY: &str = "kubelet.key";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("reading {what} {path}: {why}")]
    Read { what: &'static str, path: String, why: String },
    #[error("making a serving certificate in {dir}: {why}")]
    Make { dir: String, why: String },
    #[error("{path} holds no certificate")]
    Empty { path: String },
    #[error("tlsCipherSuites: {name} is no cipher suite; there are {known}")]
    CipherSuite { name: String, known: String },
    #[error("tlsCipherSuites and tlsMinVersion leave no cipher suite: {0}")]
    Nothing(rustls::Error),
    #[error("the certificate {path} with its key: {source}")]
    Pair { path: String, source: rustls::Error },
    #[error("trusting the authorities in {path}: {why}")]
    Authorities { path: String, why: String },
}

/// What the TLS of a listener is made from.
#[derive(Debug, Clone)]
pub struct Settings {
    pub certificate: Certificate,
    /// A file with a certificate that the cluster signs, and its key: counts from when it is there.
    pub signed: Option<PathBuf>,
    pub client_ca_file: Option<PathBuf>,
    /// As Go names them; empty means all. They don't concern TLS 1.3, as with Go.
    pub cipher_suites: Vec<String>,
    pub min_version: TlsVersion,
}

/// Gives each new connection its configuration, and reads the files again when they have changed.
pub struct Acceptor {
    settings: Settings,
    state: Mutex<State>,
}

struct State {
    config: Arc<ServerConfig>,
    stamps: Vec<Option<SystemTime>>,
    checked: Instant,
}

impl Acceptor {
    /// # Errors
    /// When a file can't be read or doesn't fit, or a setting can't be met.
    pub fn new(settings: Settings) -> Result<Acceptor, Error> {
        let stamps = settings.stamps();
        let config = Arc::new(settings.config()?);
        let state = State { config, stamps, checked: Instant::now() };
        Ok(Acceptor { settings, state: Mutex::new(state) })
    }

    pub fn current(&self, now: Instant) -> Arc<ServerConfig> {
        let mut state = self.state.lock();
        if now.saturating_duration_since(state.checked) >= CHECK {
            state.checked = now;
            let stamps = self.settings.stamps();
            if stamps != state.stamps {
                match self.settings.config() {
                    Ok(config) => {
                        log::info!("the certificates of the HTTPS port are read anew");
                        state.config = Arc::new(config);
                        state.stamps = stamps;
                    }
                    // Half written, it may be; the old one serves on.
                    Err(e) => log::warn!("{e}"),
                }
            }
        }
        state.config.clone()
    }
}

impl Settings {
    fn stamps(&self) -> Vec<Option<SystemTime>> {
        let pair = [&self.certificate.cert_file, &self.certificate.key_file];
        let modified = |path: &PathBuf| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
        pair.into_iter().chain(&self.client_ca_file).chain(&self.signed).map(modified).collect()
    }

    /// Where the certificate is now, and its key.
    fn pair(&self) -> (&Path, &Path) {
        match self.signed.as_deref().filter(|signed| signed.exists()) {
            Some(signed) => (signed, signed),
            None => (&self.certificate.cert_file, &self.certificate.key_file),
        }
    }

    fn config(&self) -> Result<ServerConfig, Error> {
        let (cert_file, key_file) = self.pair();
        let chain = read_certificates("the certificate", cert_file)?;
        let key = PrivateKeyDer::from_pem_file(key_file).map_err(|e| read("the key", key_file, &e))?;
        let provider =
            Arc::new(CryptoProvider { cipher_suites: suites(&self.cipher_suites)?, ..ring::default_provider() });
        let clients = match &self.client_ca_file {
            Some(path) => {
                let mut roots = RootCertStore::empty();
                let (added, _) = roots.add_parsable_certificates(read_certificates("the authorities", path)?);
                if added == 0 {
                    return Err(Error::Empty { path: shown(path) });
                }
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                    .allow_unauthenticated()
                    .build()
                    .map_err(|e| Error::Authorities { path: shown(path), why: e.to_string() })?
            }
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(self.versions());
        let mut config = builder
            .map_err(Error::Nothing)?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .map_err(|source| Error::Pair { path: shown(cert_file), source })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Sessions to be resumed would be kept for each handshake of whoever likes to make one.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// 1.2 is the oldest that there is, and so meets lower demands.
    fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static NEW: [&SupportedProtocolVersion; 1] = [&version::TLS13];
        static BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        match self.min_version {
            TlsVersion::Tls13 => &NEW,
            TlsVersion::Default | TlsVersion::Tls10 | TlsVersion::Tls11 | TlsVersion::Tls12 => &BOTH,
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn read(what: &'static str, path: &Path, why: &impl ToString) -> Error {
    Error::Read { what, path: shown(path), why: why.to_string() }
}

fn read_certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let all = CertificateDer::pem_file_iter(path).map_err(|e| read(what, path, &e))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|e| read(what, path, &e))?;
    if all.is_empty() { Err(Error::Empty { path: shown(path) }) } else { Ok(all) }
}

/// Suites that Go offers and that are weaker than any of ours: to be allowed them means nothing.
const WEAKER: [&str; 16] = [
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
];

fn suites(names: &[String]) -> Result<Vec<SupportedCipherSuite>, Error> {
    let all = ring::ALL_CIPHER_SUITES;
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    // TLS13_AES_128_GCM_SHA256, as it is called here, is TLS_AES_128_GCM_SHA256 elsewhere.
    let name = |suite: &SupportedCipherSuite| format!("{:?}", suite.suite()).replace("TLS13_", "TLS_");
    let is = |given: &str, suite: &SupportedCipherSuite| {
        let own = name(suite);
        own == given || own.strip_suffix("_SHA256").is_some_and(|old| old == given && old.ends_with("POLY1305"))
    };
    for given in names {
        if !WEAKER.contains(&given.as_str()) && !all.iter().any(|suite| is(given, suite)) {
            let known = all.iter().map(name).collect::<Vec<_>>().join(", ");
            return Err(Error::CipherSuite { name: given.clone(), known });
        }
    }
    let may = |suite: &&SupportedCipherSuite| suite.tls13().is_some() || names.iter().any(|given| is(given, suite));
    Ok(all.iter().filter(may).copied().collect())
}

/// The certificate of this node in `dir`, made now if it isn't there: signed by itself, for the
/// node's name and addresses, and without an end, since the clock of a node may be wrong by years.
///
/// # Errors
/// When it can't be written.
pub fn own_certificate(dir: &Path, node_name: &str, ips: &[IpAddr]) -> Result<Certificate, Error> {
    let files = Certificate { cert_file: dir.join(OWN_CERTIFICATE), key_file: dir.join(OWN_KEY) };
    if files.cert_file.exists() && files.key_file.exists() {
        return Ok(files);
    }
    let failed = |why: &dyn ToString| Error::Make { dir: shown(dir), why: why.to_string() };
    let (certificate, key) = self_signed(node_name, ips).map_err(|e| failed(&e))?;
    if !dir.is_dir() {
        disk::make_dir(dir, 0o700).map_err(|e| failed(&e))?;
    }
    // The key first: a certificate without its key would be of no use to anybody.
    disk::write_atomic(&files.key_file, key.as_bytes(), 0o600).map_err(|e| failed(&e))?;
    disk::write_atomic(&files.cert_file, certificate.as_bytes(), 0o644).map_err(|e| failed(&e))?;
    log::info!("made a serving certificate, {}", files.cert_file.display());
    Ok(files)
}

/// Certificate and key, PEM.
fn self_signed(node_name: &str, ips: &[IpAddr]) -> Result<(String, String), rcgen::Error> {
    let mut names = vec![node_name.to_owned(), "localhost".to_owned()];
    names.extend(ips.iter().map(ToString::to_string));
    names.extend(["127.0.0.1", "::1"].map(str::to_owned));
    let mut params = rcgen::CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, node_name);
    params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let key = rcgen::KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests;
