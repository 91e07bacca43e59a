//! Where the API is reached: a socket for root, and a TLS port of the loopback address.

#[cfg(feature = "tls")]
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use super::credentials;
use super::service::Service;
use super::store::Store;
use super::write::Manifests;
use crate::config::Config;
use crate::disk;
use crate::server::auth::{Authenticator, Tokens};
use crate::server::http::{Endpoint, Tcp, Unix};
use crate::server::kubelet::Parts;
use crate::sync_loop::orders::Orders;

/// The endpoints that are configured. One that can't be had costs itself alone, which is told in the
/// log: pods run without it.
pub fn endpoints(config: &Config, parts: &Arc<Parts>, store: &Arc<Store>, orders: &Orders) -> Vec<Endpoint> {
    let service = |authenticator| {
        let directory = config.static_pod_path.clone().filter(|path| !path.is_file());
        let manifests = directory.map(|directory| Manifests {
            directory,
            applied: config.root_dir.join("applied"),
            node_name: config.node_name.clone(),
        });
        Arc::new(Service {
            parts: parts.clone(),
            store: store.clone(),
            manifests,
            orders: orders.clone(),
            authenticator,
        })
    };
    let mut endpoints = Vec::new();
    if let Some(path) = &config.api.socket {
        match unix(path) {
            Ok(listener) => {
                let service = service(Authenticator::default());
                endpoints.push(Endpoint { listener: Box::new(listener), service });
            }
            Err(e) => log::error!("the API is not offered at {}: {e}", path.display()),
        }
    }
    if let Some(port) = config.api.port {
        match tls(config, port) {
            Ok((listener, authenticator)) => {
                endpoints.push(Endpoint { listener, service: service(authenticator) });
            }
            Err(why) => log::error!("the API is not offered at port {port}: {why}"),
        }
    }
    endpoints
}

fn unix(path: &Path) -> std::io::Result<Unix> {
    if let Some(directory) = path.parent().filter(|directory| !directory.is_dir()) {
        disk::make_dir(directory, 0o755)?;
    }
    Unix::bind(path, 0o600)
}

#[cfg(feature = "tls")]
fn tls(config: &Config, port: u16) -> Result<(Box<dyn crate::server::http::Listen>, Authenticator), String> {
    use crate::server::tls;
    let server = &config.server;
    // The one of the kubelet API may be for other names than this address.
    let certificate = tls::own_certificate(&server.tls.cert_dir, &config.node_name, &[]).map_err(|e| e.to_string())?;
    let acceptor = tls::Acceptor::new(tls::Settings {
        certificate,
        signed: None,
        client_ca_file: server.client_ca_file.clone(),
        cipher_suites: server.tls.cipher_suites.clone(),
        min_version: server.tls.min_version,
    });
    let acceptor = acceptor.map_err(|e| e.to_string())?;
    let authenticator = Authenticator { tokens: tokens(config)?, anonymous: false, webhook: None };
    let tcp = Tcp::bind((Ipv4Addr::LOCALHOST, port).into()).map_err(|e| e.to_string())?;
    Ok((Box::new(tcp.secured(Arc::new(acceptor))), authenticator))
}

#[cfg(not(feature = "tls"))]
fn tls(config: &Config, _: u16) -> Result<(Box<dyn crate::server::http::Listen>, Authenticator), String> {
    tokens(config)?;
    let _ = Tcp::bind;
    Err("this build lacks the feature tls".to_owned())
}

/// The administrator's, the page's, and those that are configured.
fn tokens(config: &Config) -> Result<Tokens, String> {
    credentials::ensure_tokens(&config.root_dir).map_err(|e| format!("making a token: {e}"))?;
    let read = |file| Tokens::read(&config.root_dir.join(file)).map_err(|e| e.to_string());
    let own = read(credentials::TOKEN_FILE)?.and(read(credentials::PAGE_TOKEN_FILE)?);
    match &config.server.token_auth_file {
        Some(path) => Ok(own.and(Tokens::read(path).map_err(|e| e.to_string())?)),
        None => Ok(own),
    }
}
