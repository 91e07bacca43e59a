//! What the integration tests stand on: a fault-injecting CRI server, a private containerd, and the
//! agent's process. It knows the agent by its outside only: command line, files, HTTP, CRI calls.
//!
//! Needs root and, beside containerd and runc, the programs that [`cell`] and [`containerd`] name when
//! they miss one. Nothing here skips: what can't run panics and says why.

// Each test binary compiles all of this and uses a part.
#![allow(dead_code, unused_imports)]

pub mod agent;
pub mod apiserver;
pub mod cell;
pub mod cgroups;
#[cfg(feature = "tls")]
pub mod cluster;
pub mod containerd;
pub mod cri;
#[cfg(feature = "tls")]
pub mod http;
pub mod huge_pages;
mod images;
#[cfg(feature = "tls")]
pub mod joined;
pub mod kubectl;
pub mod logind;
pub mod manifest;
pub mod node;
pub mod pods;
pub mod process;
pub mod registry;
#[cfg(feature = "tls")]
pub mod target;
pub mod web;

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use cleat::cri::proto::runtime_services::{ImageServiceClient, RuntimeServiceClient};
use grpcio::{CallOption, ChannelBuilder, Client, EnvBuilder, Environment, RpcStatusCode};
use serde_json::Value;

pub use agent::Agent;
pub use apiserver::ApiServer;
pub use cell::Cell;
pub use cgroups::Cgroup;
pub use containerd::Containerd;
pub use cri::FakeCri;
pub use huge_pages::HugePages;
pub use images::{BUSYBOX, Images, PAUSE, archive, images, variant};
pub use manifest::Manifest;
pub use pods::Pods;
pub use process::Process;
pub use registry::Registry;

/// A condition of a pod or a node; null when it hasn't it.
pub fn condition<'o>(object: &'o Value, kind: &str) -> &'o Value {
    let mut all = object["status"]["conditions"].as_array().into_iter().flatten();
    all.find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

/// The name of the node that the agent manages, in a cell and on the host.
pub const NODE: &str = "edge-1";

/// Asks `probe` until it gives a value, and returns that. Panics after `within` with the last reason
/// that it gave. For what can only be asked, like another process; [`FakeCri::wait`] needs no asking.
#[track_caller]
pub fn eventually<T>(what: &str, within: Duration, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + within;
    loop {
        match probe() {
            Ok(value) => return value,
            Err(why) if Instant::now() > deadline => panic!("{what}: not within {within:?}: {why}"),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Runs a future to its end on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

/// The generated client on a CRI socket, without anything that the agent's own client adds.
pub fn runtime_client(socket: &Path) -> RuntimeServiceClient {
    RuntimeServiceClient(client(socket))
}

/// As [`runtime_client`], for the calls on images.
pub fn image_client(socket: &Path) -> ImageServiceClient {
    ImageServiceClient(client(socket))
}

fn client(socket: &Path) -> Client {
    static ENV: LazyLock<Arc<Environment>> =
        LazyLock::new(|| Arc::new(EnvBuilder::new().cq_count(1).name_prefix("test-client").build()));
    let channel = ChannelBuilder::new(ENV.clone())
        // A connection of its own, and no long wait after the server was away.
        .use_local_subchannel_pool(true)
        .initial_reconnect_backoff(Duration::from_millis(50))
        .max_reconnect_backoff(Duration::from_millis(200))
        .connect(&format!("unix:{}", socket.display()));
    Client::new(channel)
}

/// The options of a call that may take so long.
pub fn within(time: Duration) -> CallOption {
    CallOption::default().timeout(time)
}

/// Status code and message of a call that must fail.
#[track_caller]
pub fn refusal<T>(result: grpcio::Result<T>) -> (RpcStatusCode, String) {
    match result {
        Err(grpcio::Error::RpcFailure(status)) => (status.code(), status.message().to_owned()),
        Err(other) => panic!("not an answer: {other}"),
        Ok(_) => panic!("it was done"),
    }
}
