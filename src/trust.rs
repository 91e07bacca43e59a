//! Whom a client of ours trusts: the certificates of authorities in a file, or those that the system
//! trusts. Only in builds with TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsConfigBuilder};

/// Where systems keep the certificates that they trust: Debian and Alpine, Fedora, openSUSE.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The file with what the system trusts.
pub fn system() -> Option<PathBuf> {
    let named = std::env::var_os("SSL_CERT_FILE").filter(|file| !file.is_empty()).map(PathBuf::from);
    named.or_else(|| SYSTEM.into_iter().map(PathBuf::from).find(|file| file.is_file()))
}

/// # Errors
/// When the file can't be read, or there is none in it.
pub fn in_file(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let of_file = |why: String| format!("certificates of authorities {}: {why}", path.display());
    let all = CertificateDer::pem_file_iter(path).map_err(|e| of_file(e.to_string()))?;
    collect(all).map_err(of_file)
}

/// # Errors
/// When `pem` is none, or there is none in it.
pub fn in_pem(pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    collect(CertificateDer::pem_slice_iter(pem)).map_err(|why| format!("certificates of authorities: {why}"))
}

fn collect(
    all: impl Iterator<Item = Result<CertificateDer<'static>, pem::Error>>,
) -> Result<Vec<Certificate<'static>>, String> {
    let all = all.map(|c| c.map(|der| Certificate::from_der(&der).to_owned()));
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    if all.is_empty() { Err("there is none in it".to_owned()) } else { Ok(all) }
}

/// TLS to servers whose certificates these authorities have signed.
pub fn tls(authorities: &[Certificate<'static>]) -> TlsConfigBuilder {
    TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::new_with_certs(authorities))
}
