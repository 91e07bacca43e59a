use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};

use futures_util::FutureExt;
use grpcio::{RpcContext, RpcStatus, Server, ServerBuilder, ServerCredentials, ServiceBuilder, UnarySink};

use super::*;
use crate::cri::proto::health::HealthCheckResponse;
use crate::cri::proto::health_services::CHECK;

fn check(context: RpcContext<'_>, request: HealthCheckRequest, sink: UnarySink<HealthCheckResponse>) {
    let status = match request.service.as_str() {
        "" | "ready" => ServingStatus::SERVING,
        "down" => ServingStatus::NOT_SERVING,
        "slow" => {
            // It is never answered, for as long as the client waits.
            std::mem::forget(sink);
            return;
        }
        name => {
            let status = RpcStatus::with_message(RpcStatusCode::NOT_FOUND, format!("no {name}"));
            context.spawn(sink.fail(status).map(drop));
            return;
        }
    };
    let response = HealthCheckResponse { status: status.into(), ..Default::default() };
    context.spawn(sink.success(response).map(drop));
}

fn serve(with_health: bool) -> (Server, u16) {
    let env = Arc::new(EnvBuilder::new().cq_count(1).build());
    let mut builder = ServerBuilder::new(env);
    if with_health {
        builder = builder.register_service(ServiceBuilder::new().add_unary_handler(&CHECK, check).build());
    }
    let mut server = builder.build().expect("builds");
    let port = server.add_listening_port("127.0.0.1:0", ServerCredentials::insecure()).expect("listens");
    server.start();
    (server, port)
}

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn soon(millis: u64) -> Instant {
    Instant::now() + Duration::from_millis(millis)
}

fn failure(why: &str) -> Outcome {
    Outcome::Failure(why.to_owned())
}

#[test]
fn services() {
    let (_server, port) = serve(true);
    let checker = Checker::default();
    let table = [
        ("", Outcome::Success),
        ("ready", Outcome::Success),
        ("down", failure("the service says NOT_SERVING")),
        ("other", failure("the server doesn't know the service: no other")),
    ];
    for (service, want) in table {
        assert_eq!(checker.probe(LOCAL, port, service, soon(10_000)), want, "{service:?}");
    }
}

#[test]
fn no_health_no_server_no_answer() {
    let checker = Checker::default();
    let why = |outcome| match outcome {
        Outcome::Failure(why) => why,
        other => panic!("{other:?}"),
    };
    let (_health, port) = serve(true);
    let text = why(checker.probe(LOCAL, port, "slow", soon(300)));
    assert!(text.starts_with("no answer to the health check within"), "{text}");
    let (_server, port) = serve(false);
    let text = why(checker.probe(LOCAL, port, "", soon(10_000)));
    assert!(text.starts_with("the server doesn't offer grpc.health.v1.Health"), "{text}");

    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("has an address").port();
    let began = Instant::now();
    let text = why(checker.probe(LOCAL, port, "", soon(300)));
    assert!(text.starts_with("no answer to the health check within"), "{text}");
    assert!(began.elapsed() < Duration::from_secs(3));

    drop(listener);
    let text = why(checker.probe(LOCAL, port, "", soon(10_000)));
    assert!(text.starts_with("health check: 14-UNAVAILABLE: "), "{text}");
    let text = why(checker.probe(IpAddr::V6(Ipv6Addr::LOCALHOST), port, "", soon(10_000)));
    assert!(text.starts_with("health check: 14-UNAVAILABLE: "), "{text}");
}

fn count(path: &str) -> usize {
    std::fs::read_dir(path).expect("can be listed").count()
}

/// Connections of this process to a port of loopback.
fn connections(port: u16) -> usize {
    let all = std::fs::read_to_string("/proc/self/net/tcp").expect("can be read");
    let remote = format!("0100007F:{port:04X}");
    let established = |line: &&str| {
        let mut fields = line.split_whitespace();
        fields.nth(2) == Some(&remote) && fields.next() == Some("01")
    };
    all.lines().filter(established).count()
}

#[test]
fn nothing_is_left_of_a_probe() {
    let (_server, port) = serve(true);
    let silent = TcpListener::bind("127.0.0.1:0").expect("listens");
    let silent_port = silent.local_addr().expect("has an address").port();
    let checker = Checker::default();
    let round = || {
        assert_eq!(checker.probe(LOCAL, port, "", soon(10_000)), Outcome::Success);
    };
    round();
    let (threads, files) = (count("/proc/self/task"), count("/proc/self/fd"));
    for _ in 0..200 {
        round();
    }
    for _ in 0..20 {
        assert!(matches!(checker.probe(LOCAL, silent_port, "", soon(50)), Outcome::Failure(_)));
    }
    let until = Instant::now() + Duration::from_secs(10);
    while connections(port) + connections(silent_port) > 0 {
        assert!(Instant::now() < until, "connections are left");
        std::thread::yield_now();
    }
    // Other tests of this process come and go.
    assert!(count("/proc/self/task") < threads + 100, "threads are left");
    assert!(count("/proc/self/fd") < files + 150, "files are left");
}
