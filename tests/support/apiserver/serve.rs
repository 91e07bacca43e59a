//! One connection of the double: requests one after the other, and watches.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Shared;
use super::objects::{Objects, Refusal, selects};

/// How often a watch gets a bookmark when nothing happens: the real server waits a minute.
const BOOKMARK: Duration = Duration::from_secs(5);

pub trait Connection: Read + Write + Send {}
impl<T: Read + Write + Send> Connection for T {}

struct Request {
    method: String,
    path: Vec<String>,
    query: Vec<(String, String)>,
    content_type: String,
    token: String,
    body: Value,
}

impl Request {
    fn read(stream: &mut BufReader<Box<dyn Connection>>) -> Option<Request> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let mut words = head.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let header = |name: &str| {
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).unwrap_or_default()
        };
        let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
        stream.read_exact(&mut body).ok()?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (decode(name), decode(value)));
        Some(Request {
            method,
            path: path.split('/').skip(1).map(decode).collect(),
            query: query.split('&').filter_map(pair).collect(),
            content_type: header("content-type"),
            token: header("authorization").trim_start_matches("Bearer ").to_owned(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
        })
    }

    fn query(&self, name: &str) -> &str {
        self.query.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }

    fn line(&self) -> String {
        let watch = if self.query("watch") == "true" { "?watch" } else { "" };
        format!("{} /{}{watch}", self.method, self.path.join("/"))
    }
}

fn decode(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let hex: Vec<u8> = bytes.by_ref().take(2).collect();
                out.push(u8::from_str_radix(std::str::from_utf8(&hex).expect("hex"), 16).expect("hex"));
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).expect("text")
}

pub fn serve(connection: Box<dyn Connection>, shared: &Shared) {
    let era = shared.lock().era;
    let mut stream = BufReader::new(connection);
    while let Some(request) = Request::read(&mut stream) {
        if shared.lock().era != era {
            return;
        }
        let line = request.line();
        if request.query("watch") == "true" {
            // The client may have had enough.
            let _ = watch(stream.get_mut(), &request, shared, era);
            return;
        }
        let (code, body) = match answer(&request, shared) {
            Ok(object) => (200, object),
            Err(refusal) => (refusal.0, status(&refusal)),
        };
        shared.lock().asked.push((line, code));
        shared.tell();
        if write_answer(stream.get_mut(), code, &body).is_err() {
            return;
        }
    }
}

fn write_answer(stream: &mut dyn Connection, code: u16, body: &Value) -> io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    let head = format!("HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    stream.flush()
}

/// "concepts", error responses: a Status.
fn status(Refusal(code, reason, message): &Refusal) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

fn refuse<T>(code: u16, reason: &'static str, message: &str) -> Result<T, Refusal> {
    Err(Refusal(code, reason, message.to_owned()))
}

/// Resource, namespace, name, subresource.
type Place<'p> = (&'p str, Option<&'p str>, Option<&'p str>, Option<&'p str>);

fn place(path: &[String]) -> Option<Place<'_>> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let rest = match path.as_slice() {
        ["api", "v1", rest @ ..] | ["apis", _, _, rest @ ..] => rest,
        _ => return None,
    };
    Some(match rest {
        ["namespaces", namespace, resource, more @ ..] => {
            (*resource, Some(*namespace), more.first().copied(), more.get(1).copied())
        }
        [resource, more @ ..] => (*resource, None, more.first().copied(), more.get(1).copied()),
        [] => return None,
    })
}

fn answer(request: &Request, shared: &Shared) -> Result<Value, Refusal> {
    let mut state = shared.lock();
    if state.faults.fails == Some(request.method.as_str()) {
        return refuse(500, "InternalError", "as the test wants it");
    }
    if state.faults.token.as_ref().is_some_and(|token| *token != request.token) {
        return refuse(401, "Unauthorized", "Unauthorized");
    }
    let Some((resource, namespace, name, sub)) = place(&request.path) else {
        return refuse(404, "NotFound", "the server could not find the requested resource");
    };
    let objects = &mut state.objects;
    let in_namespace = namespace.unwrap_or_default();
    let result = match (request.method.as_str(), name, sub) {
        ("GET", None, None) => list(request, objects, resource, namespace),
        ("GET", Some(name), None) => objects.get(resource, in_namespace, name),
        ("POST", None, None) => objects.create(resource, in_namespace, request.body.clone()),
        ("POST", Some(name), Some("token")) => token(request, objects, in_namespace, name),
        ("PUT", Some(name), None) => objects.update(resource, in_namespace, name, request.body.clone()),
        ("PATCH", Some(name), Some("status")) => match request.content_type.as_str() {
            "application/strategic-merge-patch+json" => {
                objects.patch_status(resource, in_namespace, name, &request.body)
            }
            _ => refuse(415, "UnsupportedMediaType", "this double knows strategic merges of a status only"),
        },
        ("DELETE", Some(name), None) => {
            let left = objects.delete(resource, in_namespace, name, &request.body)?;
            Ok(left.unwrap_or_else(|| json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})))
        }
        _ => refuse(405, "MethodNotAllowed", "the server does not allow this method on the requested resource"),
    };
    drop(state);
    shared.tell();
    result
}

/// "concepts", retrieving large results sets in chunks: `limit` and `continue`; resource versions: a
/// list that is to be no older than a version that the server hasn't come to yet is refused in the end,
/// with a Timeout whose cause is ResourceVersionTooLarge.
fn list(request: &Request, objects: &Objects, resource: &str, namespace: Option<&str>) -> Result<Value, Refusal> {
    let wanted: u64 = request.query("resourceVersion").parse().unwrap_or(0);
    if wanted > objects.version {
        return refuse(504, "Timeout", &format!("Too large resource version: {wanted}, current: {}", objects.version));
    }
    let all = objects.list(resource, namespace, request.query("fieldSelector"));
    let from: usize = request.query("continue").parse().unwrap_or(0);
    let limit: usize = request.query("limit").parse().unwrap_or(usize::MAX);
    let page: Vec<_> = all.iter().skip(from).take(limit).cloned().collect();
    let next = if from + page.len() < all.len() { (from + page.len()).to_string() } else { String::new() };
    Ok(json!({"kind": "List", "apiVersion": "v1", "items": page,
        "metadata": {"resourceVersion": objects.version.to_string(), "continue": next}}))
}

/// "reference", TokenRequest: a token for a service account that is there, bound to a pod that is there.
fn token(request: &Request, objects: &mut Objects, namespace: &str, account: &str) -> Result<Value, Refusal> {
    objects.get("serviceaccounts", namespace, account)?;
    let spec = &request.body["spec"];
    let bound = &spec["boundObjectRef"];
    let pod = objects.get("pods", namespace, bound["name"].as_str().unwrap_or_default())?;
    if pod["metadata"]["uid"] != bound["uid"] {
        return refuse(409, "Conflict", "the UID in the bound object reference does not match the UID in record");
    }
    objects.version += 1;
    let audience = spec["audiences"][0].as_str().unwrap_or("default");
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(3600);
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds + objects.skew);
    Ok(json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec,
        "status": {"token": format!("{account}.{audience}.{}", objects.version), "expirationTimestamp": at.to_string()}}))
}

/// "concepts", efficient detection of changes and watch bookmarks: events after a version, one JSON
/// object a line; 410 Gone when that version is too old. Without a version, the objects that are there
/// are added first ("concepts", resource versions of a watch: get state and start at most recent).
fn watch(stream: &mut dyn Connection, request: &Request, shared: &Shared, era: u64) -> io::Result<()> {
    let from: u64 = request.query("resourceVersion").parse().unwrap_or(0);
    let (resource, namespace, ..) = place(&request.path).unwrap_or_default();
    let selector = request.query("fieldSelector").to_owned();
    let mut state = shared.lock();
    if state.faults.token.as_ref().is_some_and(|token| *token != request.token) {
        state.asked.push((request.line(), 401));
        drop(state);
        return write_answer(stream, 401, &status(&Refusal(401, "Unauthorized", "Unauthorized".to_owned())));
    }
    state.asked.push((request.line(), 200));
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")?;
    stream.flush()?;
    if from != 0 && from < state.objects.compacted {
        let gone = Refusal(410, "Expired", format!("too old resource version: {from}"));
        drop(state);
        chunk(stream, &event("ERROR", &status(&gone)))?;
        return stream.write_all(b"0\r\n\r\n").and_then(|()| stream.flush());
    }
    let seconds = request.query("timeoutSeconds").parse().unwrap_or(300);
    let until = Instant::now() + Duration::from_secs(seconds);
    let cut = if state.faults.cut_after.is_empty() { None } else { Some(state.faults.cut_after.remove(0)) };
    let (mut last, mut sent, mut next_bookmark) = (from, 0, Instant::now() + BOOKMARK);
    let mut lines = Vec::new();
    if from == 0 {
        let there = state.objects.list(resource, namespace, &selector);
        lines.extend(there.iter().map(|object| event("ADDED", object)));
        last = state.objects.version;
    }
    while Instant::now() < until && state.era == era {
        if state.faults.silent {
            state = shared.wait(state, BOOKMARK);
            continue;
        }
        let of = |object: &Value| {
            selects(&selector, object) && namespace.is_none_or(|n| object["metadata"]["namespace"] == n)
        };
        let news = state.objects.history.iter().filter(|h| h.version > last);
        lines.extend(news.filter(|h| h.resource == resource && of(&h.object)).map(|h| event(h.kind, &h.object)));
        last = state.objects.version;
        if lines.is_empty() && Instant::now() >= next_bookmark {
            next_bookmark = Instant::now() + BOOKMARK;
            let version = state.objects.version.to_string();
            lines.push(event("BOOKMARK", &json!({"metadata": {"resourceVersion": version}})));
        }
        if lines.is_empty() {
            state = shared.wait(state, Duration::from_millis(200));
            continue;
        }
        drop(state);
        for line in std::mem::take(&mut lines) {
            if let Some(most) = cut.filter(|most| sent + line.len() > *most) {
                let part = line.get(..most.saturating_sub(sent)).unwrap_or_default();
                return chunk(stream, part);
            }
            sent += line.len();
            chunk(stream, &line)?;
        }
        state = shared.lock();
    }
    let same = state.era == era;
    drop(state);
    // Whoever goes down says nothing more.
    if same { stream.write_all(b"0\r\n\r\n").and_then(|()| stream.flush()) } else { Ok(()) }
}

fn event(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string() + "\n"
}

fn chunk(stream: &mut dyn Connection, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    write!(stream, "{:x}\r\n{text}\r\n", text.len())?;
    stream.flush()
}
