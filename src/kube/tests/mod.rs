//! The client against servers that are good and bad.

#[cfg(feature = "tls")]
mod tls;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use super::kubeconfig::{Access, Bearer, User};
use super::*;

fn access(server: String) -> Access {
    Access { server, tls_server_name: None, insecure: false, authority: None, user: User::default() }
}

/// Reads one request: its head and its body.
fn read_request(stream: &mut impl BufRead) -> Option<(String, String)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some((head, String::from_utf8(body).ok()?))
}

fn answer(code: u16, body: &Value) -> String {
    let body = body.to_string();
    format!("HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// A server that gives these answers, all over as many connections as the client makes; what it was
/// asked.
fn server(answers: Vec<String>) -> (String, JoinHandle<Vec<(String, String)>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let url = format!("http://{}", listener.local_addr().expect("has an address"));
    let thread = std::thread::spawn(move || {
        let mut asked = Vec::new();
        let mut answers = answers.into_iter();
        while answers.len() > 0 {
            let (stream, _) = listener.accept().expect("accepts");
            let mut stream = BufReader::new(stream);
            while let Some(request) = read_request(&mut stream) {
                asked.push(request);
                let Some(answer) = answers.next() else { return asked };
                stream.get_mut().write_all(answer.as_bytes()).expect("is read");
                // One whose body has no length ends with the connection.
                if answers.len() == 0 || !answer.contains("Content-Length") {
                    break;
                }
            }
        }
        asked
    });
    (url, thread)
}

#[test]
fn requests() {
    let object = json!({"metadata": {"name": "a", "resourceVersion": "5"}});
    let (url, server) = server((0..5).map(|_| answer(200, &object)).collect());
    let mut access = access(format!("{url}/cluster/"));
    access.server.pop();
    access.user.bearer = Bearer::Token("secret".to_owned());
    let client = Client::of(access, None);
    let pod = named("default", "pods", "a");
    assert_eq!(version(&client.get(&pod).expect("answers")), "5");
    client.create(&in_namespace("default", "pods"), &object).expect("answers");
    client.update(&pod, &object).expect("answers");
    client.patch(&pod, Patch::Strategic, &json!({"status": {}})).expect("answers");
    let options =
        DeleteOptions { grace_period_seconds: Some(0), uid: Some("u".to_owned()), ..DeleteOptions::default() };
    client.delete(&pod, &options).expect("answers");
    let asked = server.join().expect("it was asked");
    let line = |i: usize| asked[i].0.lines().next().unwrap_or_default().to_owned();
    assert_eq!(line(0), "GET /cluster/api/v1/namespaces/default/pods/a HTTP/1.1");
    assert_eq!(line(1), "POST /cluster/api/v1/namespaces/default/pods HTTP/1.1");
    assert_eq!(line(2), "PUT /cluster/api/v1/namespaces/default/pods/a HTTP/1.1");
    assert_eq!(line(3), "PATCH /cluster/api/v1/namespaces/default/pods/a HTTP/1.1");
    assert_eq!(line(4), "DELETE /cluster/api/v1/namespaces/default/pods/a HTTP/1.1");
    let head = asked[3].0.to_ascii_lowercase();
    for part in ["authorization: bearer secret", "content-type: application/strategic-merge-patch+json", "cleat/"] {
        assert!(head.contains(part), "{head}");
    }
    let body: Value = serde_json::from_str(&asked[4].1).expect("JSON");
    let want =
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": "u"}});
    assert_eq!(body, want);
}

#[test]
fn a_list_in_pages() {
    let page = |items: Value, next: &str| {
        answer(200, &json!({"metadata": {"resourceVersion": "9", "continue": next}, "items": items}))
    };
    let (url, server) = server(vec![page(json!([1, 2]), "x="), page(json!([3]), ""), page(Value::Null, "")]);
    let client = Client::of(access(url), None);
    let query = [("fieldSelector", "spec.nodeName=n"), ("resourceVersion", "0")];
    let all = client.list("/api/v1/pods", &query).expect("answers");
    assert_eq!(all, List { items: vec![1.into(), 2.into(), 3.into()], resource_version: "9".to_owned() });
    assert!(client.list("/api/v1/pods", &[]).expect("answers").items.is_empty());
    let asked = server.join().expect("it was asked");
    let line = |i: usize| asked[i].0.lines().next().unwrap_or_default().to_owned();
    assert_eq!(line(0), "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn&resourceVersion=0&limit=50 HTTP/1.1");
    assert_eq!(line(1), "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn&limit=50&continue=x%3D HTTP/1.1");
}

#[test]
fn what_is_no_answer() {
    let status = json!({"kind": "Status", "reason": "NotFound", "message": "pods \"a\" not found", "code": 404});
    let table = [
        (answer(404, &status), "GET /api/v1/x: pods \"a\" not found (404)"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"half".to_owned(), "the connection was closed too early"),
        ("HTTP/1.1 200 OK\r\n\r\nno JSON".to_owned(), "the answer can't be used: expected ident at line 1 column 2"),
        ("HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n".to_owned(), "status 302 (302)"),
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned(), "protocol: http parse fail: invalid HTTP version"),
    ];
    for (text, why) in table {
        let (url, server) = server(vec![text]);
        let error = Client::of(access(url), None).get("/api/v1/x").expect_err(why);
        assert!(error.to_string().ends_with(why), "{error}");
        assert_eq!(error.is_not_found(), why.contains("not found"));
        server.join().expect("it was asked");
    }
}

#[test]
fn a_server_that_is_not_there() {
    let client = Client::of(access("http://127.0.0.1:1".to_owned()), None);
    let error = client.get("/x").expect_err("is not there");
    assert_eq!(error.to_string(), "API server http://127.0.0.1:1: connection refused");
    assert!(error.status().is_none());
    let missing = Client::of_file(std::path::Path::new("/no/such/kubeconfig"), None);
    assert!(matches!(missing.get("/x"), Err(Error::Config(e)) if e.missing));
}

/// Watches what a server sends in these pieces, with this much silence at the end.
fn watch(pieces: &'static [&'static str], then: Duration, silence: Duration) -> Vec<String> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let url = format!("http://{}", listener.local_addr().expect("has an address"));
    let server = std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("accepts");
        let mut stream = BufReader::new(stream);
        let (head, _) = read_request(&mut stream).expect("a request");
        let stream = stream.get_mut();
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").expect("is read");
        for piece in pieces {
            let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
            stream.write_all(chunk.as_bytes()).expect("is read");
        }
        match then.is_zero() {
            true => stream.write_all(b"0\r\n\r\n").expect("is read"),
            // Until the client has had enough.
            false => {
                stream.set_read_timeout(Some(then)).expect("is set");
                _ = stream.read(&mut [0]);
            }
        }
        head
    });
    let client = Client::of(access(url), None);
    let events = client.watch("/api/v1/pods", &[("fieldSelector", "a=b")], "7", silence).expect("answers");
    let shown = events.map(|event| match event {
        Ok(Event::Added(object)) => format!("added {}", version(&object)),
        Ok(Event::Modified(object)) => format!("modified {}", version(&object)),
        Ok(Event::Deleted(object)) => format!("deleted {}", version(&object)),
        Ok(Event::Bookmark(version)) => format!("bookmark {version}"),
        Err(e) => format!("gone {}: {e}", e.is_gone()).replace(|c: char| c.is_ascii_digit(), "#"),
    });
    let shown = shown.collect();
    let head = server.join().expect("it was asked");
    let wanted = "GET /api/v1/pods?fieldSelector=a%3Db&watch=true&allowWatchBookmarks=true&timeoutSeconds=";
    assert!(head.starts_with(wanted) && head.contains("&resourceVersion=7 "), "{head}");
    shown
}

#[test]
fn watches() {
    let long = Duration::from_secs(60);
    let events = watch(
        &[
            "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"8\"}}}\n{\"type\":\"MODI",
            "FIED\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\"}}}\n",
            "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"resourceVersion\":\"10\"}}}\n",
            "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"11\"}}}\n",
        ],
        Duration::ZERO,
        long,
    );
    assert_eq!(events, ["added 8", "modified 9", "deleted 10", "bookmark 11"]);
    let gone = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\",\"message\":\"too old\"}}\n";
    let pieces: &'static [&'static str] = Box::leak(Box::new([gone]));
    assert_eq!(watch(pieces, Duration::ZERO, long), ["gone true: GET /api/v#/pods: too old (###)"]);
    let broken = watch(&["{\"type\":\"ADDED\",\"obj"], Duration::ZERO, long);
    assert!(broken.len() == 1 && broken[0].ends_with("broke off in the midst of an event"), "{broken:?}");
    let other = watch(&["<html>\n"], Duration::ZERO, long);
    assert!(other.len() == 1 && other[0].contains("can't be used"), "{other:?}");
}

#[test]
fn a_silent_watch_is_dead() {
    let bookmark = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"11\"}}}\n";
    let pieces: &'static [&'static str] = Box::leak(Box::new([bookmark]));
    let events = watch(pieces, Duration::from_secs(60), Duration::from_millis(300));
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events[1].ends_with("not a word for too long"), "{events:?}");
}

#[test]
fn a_token_file_is_read_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("token");
    std::fs::write(&file, "one\n").expect("writes");
    let (url, server) = server((0..2).map(|_| answer(200, &json!({}))).collect());
    let mut access = access(url);
    access.user.bearer = Bearer::TokenFile(file.clone());
    let client = Client::of(access, None);
    client.get("/a").expect("answers");
    std::fs::write(&file, "second\n").expect("writes");
    client.reload();
    client.get("/b").expect("answers");
    let asked = server.join().expect("it was asked");
    let tokens: Vec<_> =
        asked.iter().filter_map(|(head, _)| head.lines().find_map(|l| l.split_once("Bearer "))).collect();
    assert_eq!(tokens.iter().map(|(_, token)| *token).collect::<Vec<_>>(), ["one", "second"]);
}
