use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;

/// Serves TLS with a certificate that is out of date, for another name, and signed by itself.
fn serve(answer: &'static str) -> (u16, Receiver<String>) {
    let certificate = CertificateDer::from(include_bytes!("cert.der").as_slice());
    let key = PrivatePkcs8KeyDer::from(include_bytes!("key.der").as_slice());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("has versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .expect("is a certificate with its key");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("has an address").port();
    let (tell, heads) = unbounded();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(config.clone()).expect("begins");
            let mut stream = StreamOwned::new(connection, stream.expect("accepts"));
            let head = read_head(&mut stream);
            stream.write_all(answer.as_bytes()).expect("is read");
            // It closes the connection without saying so first, as many do.
            if tell.send(head).is_err() {
                return;
            }
        }
    });
    (port, heads)
}

fn get(port: u16) -> Get {
    let action = core::HTTPGetAction { scheme: Some("HTTPS".to_owned()), ..action(port, "/healthz", &[]) };
    Get::new(&action, port, USER_AGENT).expect("is good")
}

#[test]
fn any_certificate_will_do() {
    for (answer, want) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", None),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", None),
        ("HTTP/1.1 500 Oh\r\n\r\n", Some("status 500")),
    ] {
        let (port, heads) = serve(answer);
        let want = want.map_or(Outcome::Success, |why| {
            Outcome::Failure(format!("Get \"https://127.0.0.1:{port}/healthz\": {why}"))
        });
        assert_eq!(probe_within(&get(port), Duration::from_secs(10)), want, "{answer:?}");
        let head = heads.recv_timeout(Duration::from_secs(10)).expect("a request came");
        assert!(head.starts_with(&format!("GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n")), "{head}");
    }
}

#[test]
fn a_redirect_to_tls_is_followed() {
    let (port, _heads) = serve("HTTP/1.1 200 OK\r\n\r\n");
    let server = Server::start(move |_| redirect(&format!("https://127.0.0.1:{port}/")));
    assert_eq!(probe_path(server.port, "/"), Outcome::Success);
}

#[test]
fn what_speaks_no_tls_fails() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("has an address").port();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepts");
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("is read");
        // Until the client has gone.
        _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let Outcome::Failure(why) = probe_within(&get(port), Duration::from_secs(10)) else { panic!("no failure") };
    assert!(why.starts_with(&format!("Get \"https://127.0.0.1:{port}/healthz\": tls: ")), "{why}");
    thread.join().expect("ends");
    let (silent, time) = (Server::start(|_| None), Duration::from_millis(300));
    let began = Instant::now();
    let Outcome::Failure(why) = probe_within(&get(silent.port), time) else { panic!("no failure") };
    assert!(why.ends_with("tls: no answer in time"), "{why}");
    assert!(began.elapsed() < time * 10);
}
