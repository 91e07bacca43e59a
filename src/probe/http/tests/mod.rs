use std::net::TcpListener;
use std::time::Duration;

use crossbeam::channel::{Receiver, unbounded};

use super::*;
use crate::probe::USER_AGENT;

#[cfg(feature = "tls")]
mod tls;

/// Listens on loopback and answers each request with what `answer` makes of its head; with nothing,
/// it says nothing and keeps the connection.
struct Server {
    port: u16,
    heads: Receiver<String>,
}

impl Server {
    fn start(answer: impl Fn(&str) -> Option<Vec<u8>> + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let port = listener.local_addr().expect("has an address").port();
        let (tell, heads) = unbounded();
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.expect("accepts");
                let head = read_head(&mut stream);
                let bytes = answer(&head);
                if tell.send(head).is_err() {
                    return;
                }
                match bytes {
                    // The client may have seen enough and gone.
                    Some(bytes) => _ = stream.write_all(&bytes),
                    None => silent.push(stream),
                }
            }
        });
        Server { port, heads }
    }

    fn saying(answer: &'static str) -> Server {
        Server::start(move |_| Some(answer.as_bytes().to_vec()))
    }

    fn head(&self) -> String {
        self.heads.recv_timeout(Duration::from_secs(10)).expect("a request came")
    }
}

fn read_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("reads") == 1 {
        head.extend(byte);
    }
    String::from_utf8(head).expect("is text")
}

fn action(port: u16, path: &str, headers: &[(&str, &str)]) -> core::HTTPGetAction {
    let header = |(name, value): &(&str, &str)| core::HTTPHeader { name: (*name).into(), value: (*value).into() };
    core::HTTPGetAction {
        path: Some(path.to_owned()),
        port: k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(port.into()),
        http_headers: Some(headers.iter().map(header).collect()),
        ..Default::default()
    }
}

fn probe_within(get: &Get, time: Duration) -> Outcome {
    probe(&Resolver::default(), get, "127.0.0.1", Instant::now() + time)
}

fn probe_path(port: u16, path: &str) -> Outcome {
    let get = Get::new(&action(port, path, &[]), port, USER_AGENT).expect("is good");
    probe_within(&get, Duration::from_secs(10))
}

#[test]
fn requests() {
    let server = Server::saying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let port = server.port;
    let host = format!("127.0.0.1:{port}");
    let plain: &[(&str, &str)] = &[("User-Agent", "kube-probe/1.36"), ("Accept", "*/*"), ("Connection", "close")];
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let table: [(&str, Headers<'_>, &str, &str, Headers<'_>); 6] = [
        ("/healthz?full=1", &[], "/healthz?full=1", &host, plain),
        ("healthz", &[("HOST", "pod.example")], "/healthz", "pod.example", plain),
        (
            "",
            &[("Host", ""), ("X-A", " 1 "), ("x-a", "")],
            "/",
            &host,
            &[("X-A", "1"), ("x-a", ""), ("User-Agent", "kube-probe/1.36"), ("Accept", "*/*"), ("Connection", "close")],
        ),
        (
            "/",
            &[("user-agent", "me"), ("accept", "text/html")],
            "/",
            &host,
            &[("user-agent", "me"), ("accept", "text/html"), ("Connection", "close")],
        ),
        ("/", &[("User-Agent", ""), ("Accept", "")], "/", &host, &[("Connection", "close")]),
        ("/", &[("Connection", "keep-alive"), ("Content-Length", "7"), ("Transfer-Encoding", "x")], "/", &host, plain),
    ];
    for (path, headers, target, host, want) in table {
        let get = Get::new(&action(port, path, headers), port, USER_AGENT).expect("is good");
        assert_eq!(probe_within(&get, Duration::from_secs(10)), Outcome::Success);
        let mut expected = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n");
        for (name, value) in want {
            expected.push_str(&format!("{name}: {value}\r\n"));
        }
        expected.push_str("\r\n");
        assert_eq!(server.head(), expected, "{path:?} {headers:?}");
    }
    let error = Get::new(&action(port, "/", &[("X", "a\r\nY: b")]), port, USER_AGENT).expect_err("is refused");
    assert_eq!(error, "the value of the header \"X\" holds a control character");
}

#[test]
fn answers() {
    let failure = |why: &str| Outcome::Failure(why.to_owned());
    let warning = |why: &str| Outcome::Warning(why.to_owned());
    let error = |why: &str| Outcome::Error(why.to_owned());
    let table = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Outcome::Success),
        ("HTTP/1.0 200\r\n\r\nuntil the end", Outcome::Success),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", Outcome::Success),
        ("HTTP/1.1 299 Fine\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", Outcome::Success),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Outcome::Success),
        ("HTTP/1.1 101 Switching\r\n\r\n", failure("status 101")),
        ("HTTP/1.1 304 Not Modified\r\n\r\n", warning("status 304, which leads nowhere")),
        ("HTTP/1.1 302 Found\r\n\r\n", warning("status 302, which leads nowhere")),
        ("HTTP/1.1 400 Bad\r\n\r\nsecret", failure("status 400")),
        ("HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n", failure("status 503")),
        ("HTTP/1.1 999 Odd\r\n\r\n", failure("status 999")),
        ("", failure("the connection was closed without an answer")),
        ("HTTP/1.1 200 OK\r\nX:", failure("the connection was closed without an answer")),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", failure("the answer is no HTTP: invalid HTTP version")),
        ("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", failure("the answer has a bad Content-Length")),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
            error("reading the body: the connection was closed too early"),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            error("reading the body: its chunks make no sense"),
        ),
        (
            "HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            error("reading the body: the connection was closed too early"),
        ),
    ];
    for (answer, want) in table {
        let server = Server::saying(answer);
        let told = |why: &str| format!("Get \"http://127.0.0.1:{}/\": {why}", server.port);
        let want = match want {
            Outcome::Success => Outcome::Success,
            Outcome::Warning(why) => Outcome::Warning(told(&why)),
            Outcome::Failure(why) => Outcome::Failure(told(&why)),
            Outcome::Error(why) => Outcome::Error(told(&why)),
        };
        assert_eq!(probe_path(server.port, "/"), want, "{answer:?}");
    }
}

#[test]
fn of_a_long_answer_only_the_beginning_is_read() {
    let endless = |head: &'static str, piece: &'static [u8]| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let port = listener.local_addr().expect("has an address").port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("accepts");
            read_head(&mut stream);
            stream.write_all(head.as_bytes()).expect("is read");
            // Until the client has had enough.
            while stream.write_all(piece).is_ok() {}
        });
        probe_path(port, "/")
    };
    assert_eq!(endless("HTTP/1.1 200 OK\r\n\r\n", b"body"), Outcome::Success);
    assert_eq!(endless("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n", b"body"), Outcome::Success);
    assert_eq!(endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4\r\nbody\r\n"), Outcome::Success);
    let Outcome::Failure(why) = endless("HTTP/1.1 200 OK\r\n", b"X-A: b\r\n") else { panic!("no failure") };
    assert!(why.ends_with("the answer is no HTTP: too many headers"), "{why}");
    let Outcome::Failure(why) = endless("HTTP/1.1 200 OK\r\nX-A: ", b"bbbbbbbb") else { panic!("no failure") };
    assert!(why.ends_with("the head of the answer is too long"), "{why}");
}

#[test]
fn silence_ends_in_time() {
    let time = Duration::from_millis(300);
    let ends = |port| {
        let get = Get::new(&action(port, "/", &[]), port, USER_AGENT).expect("is good");
        let began = Instant::now();
        let outcome = probe_within(&get, time);
        let took = began.elapsed();
        assert!(took >= time && took < time * 10, "took {took:?}");
        outcome
    };
    let silent = Server::start(|_| None);
    let url = format!("Get \"http://127.0.0.1:{}/\"", silent.port);
    assert_eq!(ends(silent.port), Outcome::Failure(format!("{url}: no answer in time")));
    // Drop by drop, without an end.
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("has an address").port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepts");
        stream.write_all(b"HTTP/1.1 200 OK\r\nX-A: ").expect("is read");
        while stream.write_all(b"b").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let Outcome::Failure(_) = ends(port) else { panic!("no failure") };
    // The body hangs: nothing is known of the container.
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("has an address").port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepts");
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n").expect("is read");
        _ = stream.read(&mut [0]);
    });
    let url = format!("Get \"http://127.0.0.1:{port}/\"");
    assert_eq!(ends(port), Outcome::Error(format!("{url}: reading the body: no answer in time")));
}

fn redirect(to: &str) -> Option<Vec<u8>> {
    // Without an end to its body, which nobody waits for.
    Some(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 1000\r\n\r\n").into_bytes())
}

#[test]
fn redirects_within_the_host() {
    let server = Server::start(|head| {
        let host = head.lines().find_map(|l| l.strip_prefix("Host: ")).unwrap_or_default();
        match head.split(' ').nth(1).unwrap_or_default() {
            "/a/" => redirect("../b?c"),
            "/b?c" => redirect("/ok"),
            "/loop" => redirect("/loop"),
            "/elsewhere" => redirect("http://127.0.0.2/x"),
            "/bad" => redirect("gopher://127.0.0.1/"),
            "/host" => redirect("/told-host"),
            "/told-host" if host == "pod.example" => Some(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
            "/ok" => Some(b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
            _ => Some(b"HTTP/1.1 404 Not Found\r\n\r\n".to_vec()),
        }
    });
    let port = server.port;
    let url = |path: &str| format!("Get \"http://127.0.0.1:{port}{path}\"");
    assert_eq!(probe_path(port, "/a/"), Outcome::Success);
    let loops = Outcome::Failure(format!("{}: 10 redirects and no end", url("/loop")));
    assert_eq!(probe_path(port, "/loop"), loops);
    assert_eq!(server.heads.try_iter().filter(|head| head.starts_with("GET /loop ")).count(), 10);
    let other = format!("{}: status 302, not followed to \"http://127.0.0.2/x\"", url("/elsewhere"));
    assert_eq!(probe_path(port, "/elsewhere"), Outcome::Warning(other));
    let bad = format!("{}: a redirect to \"gopher\"", url("/bad"));
    assert_eq!(probe_path(port, "/bad"), Outcome::Failure(bad));
    let get = Get::new(&action(port, "/host", &[("Host", "pod.example")]), port, USER_AGENT).expect("is good");
    assert_eq!(probe_within(&get, Duration::from_secs(10)), Outcome::Success, "the Host header stays");
}

#[test]
fn an_address_of_ipv6() {
    let Ok(listener) = TcpListener::bind((std::net::Ipv6Addr::LOCALHOST, 0)) else { return };
    let port = listener.local_addr().expect("has an address").port();
    let head = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accepts");
        let head = read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("is read");
        head
    });
    let get = Get::new(&action(port, "/", &[]), port, USER_AGENT).expect("is good");
    let until = Instant::now() + Duration::from_secs(10);
    assert_eq!(probe(&Resolver::default(), &get, "::1", until), Outcome::Success);
    assert!(head.join().expect("answers").contains(&format!("Host: [::1]:{port}\r\n")));
}
