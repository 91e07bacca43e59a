//! TCP probes: whether a connection can be made (pkg/probe/tcp).

use std::time::Instant;

use super::net::Resolver;
use super::worker::Outcome;

pub fn probe(resolver: &Resolver, host: &str, port: u16, until: Instant) -> Outcome {
    match resolver.connect(host, port, until) {
        Ok(_) => Outcome::Success,
        Err(why) => Outcome::Failure(why),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    #[test]
    fn open_and_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let port = listener.local_addr().expect("has an address").port();
        let probe = || probe(&Resolver::default(), "127.0.0.1", port, Instant::now() + Duration::from_secs(5));
        assert_eq!(probe(), Outcome::Success);
        drop(listener);
        assert_eq!(probe(), Outcome::Failure(format!("dial tcp 127.0.0.1:{port}: connection refused")));
    }
}
