//! The client against servers that are good and bad.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Instant;

use super::*;

/// A server that gives these answers, one a connection; the address, and what it was asked.
fn server(answers: Vec<Vec<u8>>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let url = format!("http://{}/pods", listener.local_addr().expect("has an address"));
    let thread = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().expect("accepts");
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("reads") == 1 {
                head.push(byte[0]);
            }
            asked.push(String::from_utf8(head).expect("is text").to_ascii_lowercase());
            // The client may have enough.
            let _ = stream.write_all(&answer);
        }
        asked
    });
    (url, thread)
}

fn settings(url: &str) -> Settings {
    let headers = vec![("X-Node".to_owned(), "a".to_owned()), ("X-Node".to_owned(), "b".to_owned())];
    Settings { url: url.to_owned(), headers, ca_file: None, frequency: Duration::from_secs(20) }
}

fn ask(settings: &Settings, known: &Validators, timeout: Duration) -> Result<Answer, String> {
    get(&agent(settings)?, settings, known, timeout).map_err(|e| describe(&e))
}

#[test]
fn a_request_and_its_answer() {
    let answer = "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nLast-Modified: then\r\nDate: now\r\nConnection: close\r\n\r\nbody";
    let (url, server) = server(vec![answer.into(), b"HTTP/1.1 304 Not Modified\r\n\r\n".to_vec()]);
    let first = ask(&settings(&url), &Validators::default(), TIMEOUT).expect("an answer");
    let validators = Validators { etag: Some("\"1\"".to_owned()), last_modified: Some("then".to_owned()) };
    let want = Answer { status: 200, validators, date: Some("now".to_owned()), body: b"body".to_vec() };
    assert_eq!(first, want);
    let second = ask(&settings(&url), &first.validators, TIMEOUT).expect("an answer");
    assert_eq!((second.status, second.body), (304, vec![]));
    let asked = server.join().expect("it was asked");
    for line in ["get /pods http/1.1\r\n", "x-node: a\r\nx-node: b\r\n", "user-agent: cleat/"] {
        assert!(asked.iter().all(|head| head.contains(line)), "{line}: {asked:?}");
    }
    assert!(!asked[0].contains("if-none-match") && !asked[0].contains("if-modified-since"), "{asked:?}");
    assert!(asked[1].contains("if-none-match: \"1\"\r\nif-modified-since: then\r\n"), "{asked:?}");
}

#[test]
fn what_is_no_answer() {
    let plenty = [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &vec![b'#'; 11 << 20]].concat();
    let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n".to_vec();
    let table: [(Vec<u8>, &str); 6] = [
        (plenty, "the answer is longer than 10 MiB, no manifest"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf".to_vec(), "the connection was closed too early"),
        (chunks, "the connection was closed too early"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec(), "protocol: http parse fail: invalid HTTP version"),
        (Vec::new(), "the connection was closed too early"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n".to_vec(),
            "connection refused",
        ),
    ];
    for (answer, want) in table {
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(60)]).into_owned();
        let (url, server) = server(vec![answer]);
        let why = ask(&settings(&url), &Validators::default(), TIMEOUT).expect_err(&shown);
        assert_eq!(why, want, "{shown}");
        server.join().expect("it was asked");
    }
}

#[test]
fn who_is_slow_or_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let url = format!("http://{}/pods", listener.local_addr().expect("has an address"));
    let start = Instant::now();
    let time = Duration::from_millis(300);
    assert_eq!(ask(&settings(&url), &Validators::default(), time), Err("no whole answer in time".to_owned()));
    // One that always says a little more.
    let (slow, stop) = (url.clone(), std::sync::mpsc::channel::<()>());
    let (_stop, stopped) = stop;
    let thread = std::thread::spawn(move || {
        // The first is the one of above.
        let (_first, _) = listener.accept().expect("accepts");
        let (mut stream, _) = listener.accept().expect("accepts");
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("writes");
        while stream.write_all(b"#\n").is_ok() {
            if stopped.recv_timeout(Duration::from_millis(20)) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                break;
            }
        }
    });
    assert_eq!(ask(&settings(&slow), &Validators::default(), time), Err("no whole answer in time".to_owned()));
    assert!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());
    drop(_stop);
    thread.join().expect("it ends");
    assert_eq!(ask(&settings(&url), &Validators::default(), time), Err("connection refused".to_owned()));
    let nowhere = ask(&settings("http://a b/"), &Validators::default(), time);
    assert!(nowhere.is_err(), "{nowhere:?}");
}

/// The server's certificate is signed by an authority that the configuration names, or not.
#[cfg(feature = "tls")]
#[test]
fn only_who_is_trusted_is_heard() {
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection, StreamOwned};

    let authority = |name: &str| {
        let mut params = rcgen::CertificateParams::new(vec![]).expect("has no names");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("is signed").pem();
        (pem, rcgen::Issuer::new(params, key))
    };
    let (trusted, issuer) = authority("ours");
    let (stranger, _) = authority("another's");
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = vec!["localhost".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).and_then(|p| p.signed_by(&key, &issuer)).expect("is signed");
    let private = PrivateKeyDer::try_from(key.serialize_der()).expect("is a key");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("has versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .expect("they fit");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("has an address").port();
    let redirect = format!("HTTP/1.1 302 Found\r\nLocation: http://localhost:{port}/\r\nContent-Length: 0\r\n\r\n");
    let answers =
        [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody".to_vec(), redirect.into_bytes(), Vec::new(), Vec::new()];
    let thread = std::thread::spawn(move || {
        for answer in answers {
            let (socket, _) = listener.accept().expect("accepts");
            let connection = ServerConnection::new(config.clone()).expect("a connection");
            let mut stream = StreamOwned::new(connection, socket);
            let mut head = [0; 4096];
            // Who doesn't trust us ends it here.
            if stream.read(&mut head).is_ok() {
                let _ = stream.write_all(&answer).and_then(|()| stream.flush());
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("writes");
        path
    };
    let ask_with = |host: &str, ca_file: PathBuf| {
        let settings = Settings { ca_file: Some(ca_file), ..settings(&format!("https://{host}:{port}/pods")) };
        ask(&settings, &Validators::default(), TIMEOUT)
    };
    let ours = file("ours.pem", &trusted);
    assert_eq!(ask_with("localhost", ours.clone()).map(|a| a.body), Ok(b"body".to_vec()));
    let why = ask_with("localhost", ours.clone()).expect_err("it leads to where nobody has a certificate");
    assert!(why.contains("https"), "{why}");
    let why = ask_with("localhost", file("stranger.pem", &stranger)).expect_err("is not trusted");
    assert!(why.contains("certificate"), "{why}");
    let why = ask_with("127.0.0.1", ours).expect_err("the certificate is for another name");
    assert!(why.contains("certificate"), "{why}");
    thread.join().expect("it ends");
    let why = ask_with("localhost", file("none.pem", "")).expect_err("nobody is trusted");
    assert!(why.ends_with("none.pem: there is none in it"), "{why}");
    let missing = ask_with("localhost", dir.path().join("missing")).expect_err("nobody is trusted");
    assert!(missing.contains("/missing: "), "{missing}");
}
