//! What the agent offers over HTTP: the kubelet API on its three ports.
//!
//! Reads what the agent knows; what it hands to the runtime is what people ask for, not what the agent
//! wants.

pub mod auth;
pub mod http;
pub mod kubelet;
mod proxy;
#[cfg(feature = "tls")]
pub mod tls;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use crate::config::{self, Config};
use crate::cri::Inspect;
use crate::kube;
use crate::runtime::Runtime;
use crate::status::Store;
use crate::sync_loop::Heartbeat;
use http::{Endpoint, Listen, Tcp};
use kubelet::{Access, Handlers, Kubelet, Offer, Parts};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("listening on {address} ({name}): {source}")]
    Listen { name: &'static str, address: SocketAddr, source: io::Error },
    #[error("starting the HTTP server: {0}")]
    Start(io::Error),
}

/// Listens on the ports of the configuration, and serves them from now on; and what `more` gives, which
/// tells of the same. `kube` is asked who asks, and what they may.
///
/// # Errors
/// When it can't listen. Certificates or tokens that can't be read cost the HTTPS port alone, which
/// is told in the log: pods run without it.
pub fn start(
    config: &Config,
    kube: Option<&Arc<kube::Client>>,
    runtime: &Arc<Runtime>,
    inspect: Arc<dyn Inspect>,
    store: &Arc<Store>,
    heartbeat: &Arc<Heartbeat>,
    more: impl FnOnce(&Arc<Parts>) -> Vec<Endpoint>,
) -> Result<(), Error> {
    let server = &config.server;
    let parts = Arc::new(Parts {
        runtime: runtime.clone(),
        inspect,
        store: store.clone(),
        heartbeat: heartbeat.clone(),
        node_name: config.node_name.clone(),
        root_dir: config.root_dir.clone(),
        configuration: server.configuration.clone(),
        streaming_idle: server.streaming_idle,
        started: jiff::Timestamp::now().as_second(),
        rates: kubelet::Rates::default(),
    });
    let mut endpoints = more(&parts);
    let mut add = |listener: Box<dyn Listen>, offer: Offer, access: Option<Access>| {
        let service = Arc::new(Kubelet { parts: parts.clone(), offer, access });
        endpoints.push(Endpoint { listener, service });
    };
    if let Some(port) = server.read_only_port {
        add(Box::new(bind("read-only", SocketAddr::new(server.read_only_address, port))?), Offer::ReadOnly, None);
    }
    if let Some(address) = server.healthz {
        add(Box::new(bind("healthz", address)?), Offer::Health, None);
    }
    if server.enabled {
        let address = reachable(server.address, &crate::node::addresses(&config.node_ips));
        let tcp = bind("HTTPS", SocketAddr::new(address, server.port))?;
        let handlers = Handlers { debugging: server.debugging_handlers, system_log: server.system_log_handler };
        match secure(config, kube, tcp) {
            Ok((listener, access)) => add(listener, Offer::Full(handlers), Some(access)),
            Err(why) => log::error!("the HTTPS port {} is not offered: {why}", server.port),
        }
    }
    http::start(endpoints).map_err(Error::Start)
}

/// All addresses of a node that has those of IPv6 only are others than those of IPv4.
fn reachable(address: IpAddr, of_node: &[String]) -> IpAddr {
    let only_new = !of_node.is_empty() && of_node.iter().all(|ip| ip.parse().is_ok_and(|ip: IpAddr| ip.is_ipv6()));
    match address {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) if only_new => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        address => address,
    }
}

fn bind(name: &'static str, address: SocketAddr) -> Result<Tcp, Error> {
    Tcp::bind(address).map_err(|source| Error::Listen { name, address, source })
}

/// The listener with TLS, and who may ask there.
#[cfg(feature = "tls")]
fn secure(config: &Config, kube: Option<&Arc<kube::Client>>, tcp: Tcp) -> Result<(Box<dyn Listen>, Access), String> {
    let server = &config.server;
    let certificate = match &server.tls.certificate {
        Some(certificate) => certificate.clone(),
        None => {
            let ips = crate::node::addresses(&config.node_ips);
            let ips: Vec<_> = ips.iter().filter_map(|ip| ip.parse().ok()).collect();
            tls::own_certificate(&server.tls.cert_dir, &config.node_name, &ips).map_err(|e| e.to_string())?
        }
    };
    let acceptor = tls::Acceptor::new(tls::Settings {
        certificate,
        signed: server.tls.bootstrap.then(|| crate::certificates::serving_file(&server.tls.cert_dir)),
        client_ca_file: server.client_ca_file.clone(),
        cipher_suites: server.tls.cipher_suites.clone(),
        min_version: server.tls.min_version,
    });
    let acceptor = Arc::new(acceptor.map_err(|e| e.to_string())?);
    Ok((Box::new(tcp.secured(acceptor)), access(config, kube)?))
}

#[cfg(not(feature = "tls"))]
fn secure(config: &Config, kube: Option<&Arc<kube::Client>>, _: Tcp) -> Result<(Box<dyn Listen>, Access), String> {
    access(config, kube)?;
    Err("this build lacks the feature tls".to_owned())
}

fn access(config: &Config, kube: Option<&Arc<kube::Client>>) -> Result<Access, String> {
    let server = &config.server;
    let webhook = kube.map(|kube| {
        let ask = ask(kube.clone());
        Arc::new(auth::Webhook::new(ask, &config.node_name, server.token_webhook, server.authorization))
    });
    let tokens = server.token_auth_file.as_deref().map(auth::Tokens::read).transpose();
    let authenticator = auth::Authenticator {
        tokens: tokens.map_err(|e| e.to_string())?.unwrap_or_default(),
        anonymous: server.anonymous,
        webhook: webhook.clone().filter(|_| server.token_webhook.is_some()),
    };
    let authorizer = match (server.authorization, webhook) {
        (config::Authorization::AlwaysAllow, _) => auth::Authorizer::AlwaysAllow,
        (config::Authorization::Webhook { .. }, Some(webhook)) => auth::Authorizer::Webhook(webhook),
        (config::Authorization::Webhook { .. }, None) => {
            log::info!("there is no API server to authorize by: only members of system:masters may use the HTTPS port");
            auth::Authorizer::WebhookWithoutServer
        }
    };
    Ok(Access { authenticator, authorizer })
}

/// How the API server is asked about users.
fn ask(kube: Arc<kube::Client>) -> auth::Ask {
    Box::new(move |group, resource, review| {
        let path = kube::path(&["apis", group, "v1", resource]);
        let mut answer = kube.create(&path, review);
        if let Err(kube::Error::Unreachable { .. }) = &answer {
            // It may just have closed a connection that nobody used for long.
            answer = kube.create(&path, review);
        }
        answer.map_err(|e| e.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_new_addresses_only() {
        for (address, of_node, want) in [
            ("0.0.0.0", &["192.0.2.1"][..], "0.0.0.0"),
            ("0.0.0.0", &["192.0.2.1", "2001:db8::1"], "0.0.0.0"),
            ("0.0.0.0", &["2001:db8::1"], "::"),
            ("0.0.0.0", &[], "0.0.0.0"),
            ("127.0.0.1", &["2001:db8::1"], "127.0.0.1"),
        ] {
            let of_node: Vec<_> = of_node.iter().map(|ip| (*ip).to_owned()).collect();
            let is = reachable(address.parse().expect("is one"), &of_node);
            assert_eq!(is.to_string(), want, "{address} {of_node:?}");
        }
    }
}
