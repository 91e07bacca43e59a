//! What the agent serves, to whom, and how it ends when the machine does.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use super::optional_path;
use crate::config::check::Check;
use crate::config::duration::GoDuration;
use crate::config::flags::Flags;
use crate::config::kubelet::{API_VERSION, KIND, KubeletConfiguration};
use crate::config::{Api, Authorization, Certificate, Config, Server, Shutdown, Tls, TlsVersion};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(super) fn server(k: &KubeletConfiguration, flags: &Flags, root_dir: &Path, check: &mut Check) -> Server {
    let loopback = LOOPBACK;
    let given = match k.address.as_str() {
        "" => None,
        text => check.ip("address", text),
    };
    let healthz_address = check.ip("healthzBindAddress", &k.healthz_bind_address).unwrap_or(loopback);
    let healthz_port = check.port_or_zero("healthzPort", k.healthz_port);
    let read_only_port = check.port_or_zero("readOnlyPort", k.read_only_port);
    let port = check.within("port", k.port, 1..=65535);
    let webhook = &k.authentication.webhook;
    let ttl = check.period("authentication.webhook.cacheTTL", webhook.cache_ttl);
    Server {
        enabled: k.enable_server,
        address: given.unwrap_or_else(|| reachable(k, flags)),
        read_only_address: given.unwrap_or(loopback),
        port: u16::try_from(port).unwrap_or_default(),
        read_only_port: (read_only_port != 0).then_some(read_only_port),
        healthz: (healthz_port != 0).then(|| SocketAddr::new(healthz_address, healthz_port)),
        tls: tls(k, flags, root_dir, check),
        anonymous: k.authentication.anonymous.enabled,
        token_auth_file: optional_path(&flags.own.token_auth_file),
        client_ca_file: check.path("authentication.x509.clientCAFile", &k.authentication.x509.client_ca_file),
        token_webhook: webhook.enabled.then_some(ttl),
        authorization: authorization(k, check),
        debugging_handlers: k.enable_debugging_handlers,
        system_log_handler: k.enable_system_log_handler,
        streaming_idle: Some(check.period("streamingConnectionIdleTimeout", k.streaming_connection_idle_timeout))
            .filter(|idle| !idle.is_zero()),
        configuration: shown(k),
    }
}

/// The address of the HTTPS API when none is given: all, for an API server, and the loopback one without
/// one. What would let anybody do anything stays on the loopback one.
fn reachable(k: &KubeletConfiguration, flags: &Flags) -> IpAddr {
    match flags.own.kubeconfig.is_empty() || lets_anybody(k) {
        true => LOOPBACK,
        false => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    }
}

/// Whether whoever reaches the HTTPS API may use it, to run commands in pods for instance.
fn lets_anybody(k: &KubeletConfiguration) -> bool {
    k.authentication.anonymous.enabled && k.authorization.mode == "AlwaysAllow"
}

/// What is wrong with who may use the HTTPS API of a node that has an API server.
pub(super) fn open_to_all(k: &KubeletConfiguration, config: &Config) -> Option<String> {
    let server = &config.server;
    if config.node.kubeconfig.is_none() || !server.enabled || !lets_anybody(k) {
        return None;
    }
    let why = "authentication.anonymous.enabled is true and authorization.mode is AlwaysAllow";
    Some(match server.address.is_loopback() {
        true if !k.address.is_empty() => return None,
        true => {
            format!("the API server can't reach port {} of this node: since {why}, it stays at 127.0.0.1", server.port)
        }
        false => format!(
            "whoever reaches port {} at {} may run commands in all pods of this node, since {why}",
            server.port, server.address
        ),
    })
}

/// Where root's socket is, for an agent with the usual root directory.
const API_SOCKET: &str = "/run/cleat/api.sock";
const API_PORT: i64 = 10270;

pub(super) fn api(flags: &Flags, root_dir: &Path, check: &mut Check) -> Api {
    let own = &flags.own;
    let socket = match &own.api_socket {
        Some(path) => optional_path(path),
        // A second agent must not take the first one's.
        None if own.root_dir.is_empty() => Some(API_SOCKET.into()),
        None => Some(root_dir.join("api.sock")),
    };
    let port = own.api_port.unwrap_or(API_PORT);
    let port = u16::try_from(port).unwrap_or_else(|_| {
        check.flag_fault("api-port", format!("must be 0..=65535, not {port}"));
        0
    });
    Api { socket, port: (port != 0).then_some(port) }
}

/// Header values may be passwords.
fn shown(k: &KubeletConfiguration) -> serde_json::Value {
    let mut value = serde_json::to_value(k).unwrap_or_default();
    let headers = value.get_mut("staticPodURLHeader").and_then(serde_json::Value::as_object_mut);
    for header in headers.into_iter().flat_map(serde_json::Map::values_mut) {
        *header = serde_json::json!(["<masked>"]);
    }
    if let Some(object) = value.as_object_mut() {
        object.insert("kind".to_owned(), KIND.into());
        object.insert("apiVersion".to_owned(), API_VERSION.into());
    }
    value
}

fn tls(k: &KubeletConfiguration, flags: &Flags, root_dir: &Path, check: &mut Check) -> Tls {
    let cert_file = check.path("tlsCertFile", &k.tls_cert_file);
    let key_file = check.path("tlsPrivateKeyFile", &k.tls_private_key_file);
    let certificate = match (cert_file, key_file) {
        (Some(cert_file), Some(key_file)) => Some(Certificate { cert_file, key_file }),
        (None, None) => None,
        (Some(_), None) => {
            check.fault("tlsCertFile", "needs tlsPrivateKeyFile to be set");
            None
        }
        (None, Some(_)) => {
            check.fault("tlsPrivateKeyFile", "needs tlsCertFile to be set");
            None
        }
    };
    let versions = [
        ("", TlsVersion::Default),
        ("VersionTLS10", TlsVersion::Tls10),
        ("VersionTLS11", TlsVersion::Tls11),
        ("VersionTLS12", TlsVersion::Tls12),
        ("VersionTLS13", TlsVersion::Tls13),
    ];
    Tls {
        certificate,
        cert_dir: optional_path(&flags.own.cert_dir).unwrap_or_else(|| root_dir.join("pki")),
        cipher_suites: k.tls_cipher_suites.clone(),
        min_version: check.one_of("tlsMinVersion", &k.tls_min_version, &versions, TlsVersion::Default),
        bootstrap: k.server_tls_bootstrap,
        rotate_client: k.rotate_certificates,
    }
}

fn authorization(k: &KubeletConfiguration, check: &mut Check) -> Authorization {
    let ttls = &k.authorization.webhook;
    let webhook = Authorization::Webhook {
        authorized_ttl: check.period("authorization.webhook.cacheAuthorizedTTL", ttls.cache_authorized_ttl),
        unauthorized_ttl: check.period("authorization.webhook.cacheUnauthorizedTTL", ttls.cache_unauthorized_ttl),
    };
    let modes = [("AlwaysAllow", Authorization::AlwaysAllow), ("Webhook", webhook)];
    check.one_of("authorization.mode", &k.authorization.mode, &modes, webhook)
}

pub(super) fn shutdown(k: &KubeletConfiguration, check: &mut Check) -> Shutdown {
    let mut whole_seconds = |field: &str, value: GoDuration| {
        if value > GoDuration::ZERO && value < GoDuration::from_secs(1) {
            check.fault(field, format!("must be 0s, or 1s or more, not {value}"));
        }
        check.period(field, value)
    };
    let total = whole_seconds("shutdownGracePeriod", k.shutdown_grace_period);
    let critical = whole_seconds("shutdownGracePeriodCriticalPods", k.shutdown_grace_period_critical_pods);
    if critical > total {
        let (critical, total) = (k.shutdown_grace_period_critical_pods, k.shutdown_grace_period);
        let message = format!("must be no more than shutdownGracePeriod, {total}, not {critical}");
        check.fault("shutdownGracePeriodCriticalPods", message);
    }
    let list = &k.shutdown_grace_period_by_pod_priority;
    if list.is_empty() {
        return match total.is_zero() {
            true => Shutdown::Off,
            false => Shutdown::Graceful { total, critical },
        };
    }
    if !total.is_zero() || !critical.is_zero() {
        check.fault("shutdownGracePeriodByPodPriority", "can't be used with shutdownGracePeriod");
    }
    let mut by_priority = Vec::new();
    for (i, entry) in list.iter().enumerate() {
        match u64::try_from(entry.shutdown_grace_period_seconds) {
            Ok(secs) => by_priority.push((entry.priority, Duration::from_secs(secs))),
            Err(_) => check.fault(
                &format!("shutdownGracePeriodByPodPriority[{i}].shutdownGracePeriodSeconds"),
                format!("must be 0 or more, not {}", entry.shutdown_grace_period_seconds),
            ),
        }
    }
    by_priority.sort_by_key(|(priority, _)| *priority);
    Shutdown::ByPriority(by_priority)
}
