//! gRPC probes: the health checking service, without TLS (pkg/probe/grpc).

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use grpcio::{CallOption, ChannelBuilder, EnvBuilder, Environment, Error, RpcStatusCode};

use super::USER_AGENT;
use super::worker::Outcome;
use crate::cri::proto::health::{HealthCheckRequest, health_check_response::ServingStatus};
use crate::cri::proto::health_services::HealthClient;

/// Makes a channel for each probe. Its one thread, which hands answers out, is started with the
/// first probe: most nodes have none.
#[derive(Default)]
pub struct Checker(OnceLock<Arc<Environment>>);

impl Checker {
    pub fn probe(&self, ip: IpAddr, port: u16, service: &str, until: Instant) -> Outcome {
        let timeout = until.saturating_duration_since(Instant::now());
        let env = self.0.get_or_init(|| Arc::new(EnvBuilder::new().cq_count(1).name_prefix("probe-grpc-").build()));
        let address = match ip {
            IpAddr::V4(ip) => format!("ipv4:{ip}:{port}"),
            IpAddr::V6(ip) => format!("ipv6:[{ip}]:{port}"),
        };
        let channel = ChannelBuilder::new(env.clone())
            .primary_user_agent(USER_AGENT)
            .enable_http_proxy(false)
            // A connection of its own, that ends with the channel.
            .use_local_subchannel_pool(true)
            .connect(&address);
        let client = HealthClient(grpcio::Client::new(channel));
        let request = HealthCheckRequest { service: service.to_owned(), ..Default::default() };
        match client.check(&request, CallOption::default().timeout(timeout)) {
            Ok(response) => match response.status.enum_value() {
                Ok(ServingStatus::SERVING) => Outcome::Success,
                Ok(status) => Outcome::Failure(format!("the service says {status:?}")),
                Err(number) => Outcome::Failure(format!("the service says {number}, which is no status")),
            },
            Err(e) => Outcome::Failure(describe(&e, timeout)),
        }
    }
}

fn describe(error: &Error, timeout: Duration) -> String {
    let Error::RpcFailure(status) = error else { return format!("health check: {error}") };
    let message = status.message();
    match status.code() {
        RpcStatusCode::UNIMPLEMENTED => {
            format!("the server doesn't offer grpc.health.v1.Health: {message}")
        }
        RpcStatusCode::NOT_FOUND => format!("the server doesn't know the service: {message}"),
        RpcStatusCode::DEADLINE_EXCEEDED => format!("no answer to the health check within {timeout:.0?}"),
        code => format!("health check: {code}: {message}"),
    }
}

#[cfg(test)]
mod tests;
