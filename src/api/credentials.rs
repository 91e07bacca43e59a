//! The token of the local administrator, made at first start, and the kubeconfig with it.

use std::io::{self, Read};
use std::path::Path;
use std::{fs, fs::File};

use base64::Engine as _;
use serde_json::json;

use super::page;
use crate::disk;
use crate::server::auth::MASTERS;

/// Under the root directory; in the format of `--token-auth-file`.
pub const TOKEN_FILE: &str = "api-token.csv";

/// Of the status page, likewise.
pub const PAGE_TOKEN_FILE: &str = "page-token.csv";

/// Makes the tokens, where there are none.
///
/// # Errors
/// When one can't be read from the system or written.
pub fn ensure_tokens(root_dir: &Path) -> io::Result<()> {
    ensure(&root_dir.join(TOKEN_FILE), "cleat-admin", MASTERS)?;
    ensure(&root_dir.join(PAGE_TOKEN_FILE), "cleat-page", page::GROUP)
}

fn ensure(path: &Path, user: &str, group: &str) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let token = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    disk::write_atomic(path, format!("{token},{user},{user},\"{group}\"\n").as_bytes(), 0o600)
}

fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map_err(|e| io::Error::new(e.kind(), format!("reading {}: {e}", path.display())))
}

/// Where a browser of this machine finds the status page, with the token that it needs. What stands
/// behind `#` stays in the browser.
///
/// # Errors
/// When the token can't be read: the agent has not run yet, or somebody else than root asks.
pub fn page_address(root_dir: &Path, port: u16) -> io::Result<String> {
    let tokens = read(&root_dir.join(PAGE_TOKEN_FILE))?;
    let token = tokens.split(',').next().unwrap_or_default();
    Ok(format!("https://127.0.0.1:{port}/#token={token}"))
}

/// A kubeconfig, JSON, for the API at this port with the token and the serving certificate of
/// the agent.
///
/// # Errors
/// When they can't be read: the agent has not run yet, or somebody else than root asks.
pub fn kubeconfig(root_dir: &Path, certificate: &Path, port: u16) -> io::Result<String> {
    let tokens = read(&root_dir.join(TOKEN_FILE))?;
    let token = tokens.split(',').next().unwrap_or_default();
    let authority = base64::engine::general_purpose::STANDARD.encode(read(certificate)?);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "cleat", "preferences": {},
        "clusters": [{"name": "cleat", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": authority,
        }}],
        "users": [{"name": "cleat-admin", "user": {"token": token}}],
        "contexts": [{"name": "cleat", "context": {"cluster": "cleat", "user": "cleat-admin"}}],
    });
    serde_json::to_string_pretty(&config).map(|text| text + "\n").map_err(io::Error::other)
}
