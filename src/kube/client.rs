//! Requests to the API server and their answers. Every one has its time, and every body a bound.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use ureq::config::ConfigBuilder;
use ureq::http::{Method, Request, Response, header};
use ureq::typestate::HttpCrateScope;
use ureq::{AsSendBody, Body};

use super::credentials::{Credentials, Session};
use super::error::{Error, Status, describe};
use super::kubeconfig::{self, Access};
use super::path::with_query;
use super::watch::{self, Watch};
use crate::config::Rate;
use crate::rate::Bucket;

/// An answer that isn't whole by then is none.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Until there is a connection; somebody may wait for it.
const CONNECT: Duration = Duration::from_secs(10);
/// Bytes of an answer; a page of a list is the longest one.
const MAX_BODY: u64 = 64 << 20;
/// Bytes that are read of why something was refused.
const MAX_STATUS: u64 = 64 << 10;
/// Bytes in each direction of the connection of a watch, which is kept for long. The head of a request
/// or an answer has to fit.
const WATCH_BUFFER: usize = 8 << 10;
/// Objects on a page.
const PAGE: &str = "50";
/// More pages than any list of a node's has.
const MAX_PAGES: usize = 1000;

/// Shared by everybody who asks the server.
pub struct Client {
    credentials: Arc<Credentials>,
    timeout: Duration,
    rate: Option<Mutex<Bucket>>,
}

/// What a patch is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patch {
    Merge,
    Strategic,
    Json,
    /// Server-side apply.
    Apply,
}

impl Patch {
    fn content_type(self) -> &'static str {
        match self {
            Patch::Merge => "application/merge-patch+json",
            Patch::Strategic => "application/strategic-merge-patch+json",
            Patch::Json => "application/json-patch+json",
            Patch::Apply => "application/apply-patch+yaml",
        }
    }
}

/// How to delete something; nothing set means as the object has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Seconds; 0 removes it at once.
    pub grace_period_seconds: Option<i64>,
    /// Only if it is still the one with this UID.
    pub uid: Option<String>,
    /// Only if it is still this version of it.
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    fn to_json(&self) -> Value {
        let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        if let Some(seconds) = self.grace_period_seconds {
            options["gracePeriodSeconds"] = seconds.into();
        }
        if self.uid.is_some() || self.resource_version.is_some() {
            options["preconditions"] = json!({});
            let all = [("uid", &self.uid), ("resourceVersion", &self.resource_version)];
            for (name, value) in all.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
                options["preconditions"][name] = value.as_str().into();
            }
        }
        options
    }
}

/// All objects of a list, and the version of the whole.
#[derive(Debug, Clone, PartialEq)]
pub struct List {
    pub items: Vec<Value>,
    /// From where a watch goes on.
    pub resource_version: String,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: ListMeta,
    /// Go writes none as null.
    items: Option<Vec<Value>>,
}

impl Client {
    /// What the kubeconfig says is read with the first request, and again when it or a file that it
    /// names has changed.
    pub fn of_file(kubeconfig: &Path, rate: Option<Rate>) -> Client {
        Client::new(Credentials::of_file(kubeconfig), rate)
    }

    pub fn of(access: Access, rate: Option<Rate>) -> Client {
        Client::new(Credentials::of(access), rate)
    }

    fn new(credentials: Credentials, rate: Option<Rate>) -> Client {
        let rate = rate.map(|rate| Mutex::new(Bucket::new(rate)));
        Client { credentials: Arc::new(credentials), timeout: TIMEOUT, rate }
    }

    /// For requests that may take so long; watches are as they were.
    pub fn within(self, timeout: Duration) -> Client {
        Client { timeout, ..self }
    }

    /// Takes the certificate and its key from this file, once it is there, and not what the kubeconfig
    /// says: there it is renewed.
    pub fn with_renewed(self, certificate: &Path) -> Client {
        Client { credentials: Arc::new(self.credentials.with_renewed(certificate)), ..self }
    }

    /// Another one over the same connections, whose requests have no limit.
    pub fn without_limit(&self) -> Client {
        Client { credentials: self.credentials.clone(), timeout: self.timeout, rate: None }
    }

    /// Looks whether there is what requests are made with, without making one.
    ///
    /// # Errors
    /// When the kubeconfig, or what it names, can't be used.
    pub fn check(&self) -> Result<(), kubeconfig::Error> {
        self.credentials.session(Instant::now()).map(drop)
    }

    /// Has the kubeconfig and all files read again with the next request, and that made over a new
    /// connection.
    pub fn reload(&self) {
        self.credentials.forget();
    }

    pub fn get(&self, path: &str) -> Result<Value, Error> {
        self.call(&Call::new(Method::GET, path, &[]))
    }

    /// All objects, page by page. `query`: such as `fieldSelector`. `resourceVersion` 0 is what the
    /// server has at hand, which costs it less, and may be some moments old; without one it is the
    /// newest.
    pub fn list(&self, path: &str, query: &[(&str, &str)]) -> Result<List, Error> {
        self.list_within(path, query, self.timeout)
    }

    /// As [`Client::list`], each page within `time`.
    pub fn list_within(&self, path: &str, query: &[(&str, &str)], time: Duration) -> Result<List, Error> {
        let mut all = Vec::new();
        let mut next = String::new();
        for _ in 0..MAX_PAGES {
            let mut asked: Vec<_> = query.to_vec();
            asked.push(("limit", PAGE));
            if !next.is_empty() {
                // Where a list goes on says which version it is of.
                asked.retain(|(name, _)| !name.starts_with("resourceVersion"));
                asked.push(("continue", &next));
            }
            let request = Call::new(Method::GET, path, &asked);
            let page = self.call_within(&request, time)?;
            let page = Page::deserialize(page)
                .map_err(|e| Error::Answer { request: request.shown(), why: format!("it is no list: {e}") })?;
            all.extend(page.items.into_iter().flatten());
            next = page.metadata.continue_.unwrap_or_default();
            if next.is_empty() {
                let resource_version = page.metadata.resource_version.unwrap_or_default();
                return Ok(List { items: all, resource_version });
            }
        }
        Err(Error::Answer { request: format!("GET {path}"), why: "the list has no end".to_owned() })
    }

    /// Creates an object under `path`, that of its collection or of a subresource.
    pub fn create(&self, path: &str, object: &Value) -> Result<Value, Error> {
        self.call(&Call::new(Method::POST, path, &[]).with("application/json", object))
    }

    pub fn update(&self, path: &str, object: &Value) -> Result<Value, Error> {
        self.call(&Call::new(Method::PUT, path, &[]).with("application/json", object))
    }

    pub fn patch(&self, path: &str, kind: Patch, patch: &Value) -> Result<Value, Error> {
        // Whose fields they are; only an apply may and has to say so.
        let query: &[_] = if kind == Patch::Apply { &[("fieldManager", "cleat"), ("force", "true")] } else { &[] };
        self.call(&Call::new(Method::PATCH, path, query).with(kind.content_type(), patch))
    }

    /// What is being deleted gracefully is still there afterwards.
    pub fn delete(&self, path: &str, options: &DeleteOptions) -> Result<(), Error> {
        let call = Call::new(Method::DELETE, path, &[]).with("application/json", &options.to_json());
        self.call(&call).map(drop)
    }

    /// What changes from `resource_version` on; see [`Watch`]. `silence`: after so long without a word
    /// the connection counts as dead. Servers send a bookmark about each minute.
    pub fn watch(
        &self,
        path: &str,
        query: &[(&str, &str)],
        resource_version: &str,
        silence: Duration,
    ) -> Result<Watch, Error> {
        let timeout = watch::timeout(super::retry::chance());
        let seconds = timeout.as_secs().to_string();
        let mut asked = query.to_vec();
        asked.extend([("watch", "true"), ("allowWatchBookmarks", "true"), ("timeoutSeconds", &seconds)]);
        asked.push(("resourceVersion", resource_version));
        let call = Call::new(Method::GET, path, &asked);
        let session = self.session()?;
        // A moment more, so that the server ends it.
        let times = Times { whole: timeout + TIMEOUT, silence: Some(silence) };
        let response = self.send(&session, &call, times)?;
        let reader = response.into_body().into_with_config().limit(u64::MAX).reader();
        Ok(Watch::new(Box::new(reader), session.server.clone(), call.shown()))
    }

    fn session(&self) -> Result<Arc<Session>, Error> {
        Ok(self.credentials.session(Instant::now())?)
    }

    fn call(&self, call: &Call) -> Result<Value, Error> {
        self.call_within(call, self.timeout)
    }

    fn call_within(&self, call: &Call, time: Duration) -> Result<Value, Error> {
        let session = self.session()?;
        let mut response = self.send(&session, call, Times { whole: time, silence: None })?;
        let length = response.body().content_length();
        let reader = response.body_mut().with_config().limit(MAX_BODY).reader();
        let mut body = Vec::with_capacity(length.unwrap_or_default().min(1 << 16) as usize);
        let read = std::io::BufReader::new(reader).read_to_end(&mut body);
        read.map_err(|e| unreachable(&session, &e.into()))?;
        serde_json::from_slice(&body).map_err(|e| Error::Answer { request: call.shown(), why: e.to_string() })
    }

    /// Sends, and gives the answer if it is a good one.
    fn send(&self, session: &Session, call: &Call, times: Times) -> Result<Response<Body>, Error> {
        self.wait_for_turn();
        let sent = call.request(session).and_then(|request| times.run(session, request));
        let mut response = sent.map_err(|e| unreachable(session, &e))?;
        let code = response.status().as_u16();
        if (200..300).contains(&code) {
            return Ok(response);
        }
        if code == 401 {
            // The next request is made with what there is then.
            self.credentials.forget();
        }
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|v| v.to_str().ok()).map(str::to_owned);
        // What can't be read doesn't make it another refusal.
        let mut body = Vec::new();
        if let Err(e) = response.body_mut().as_reader().take(MAX_STATUS).read_to_end(&mut body) {
            log::debug!("{}: {e}", call.shown());
        }
        Err(Error::Refused { request: call.shown(), status: Status::of(code, retry_after.as_deref(), &body) })
    }

    fn wait_for_turn(&self) {
        let Some(rate) = &self.rate else { return };
        let wait = rate.lock().take(Instant::now());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
    }
}

fn unreachable(session: &Session, error: &ureq::Error) -> Error {
    Error::Unreachable { server: session.server.clone(), why: describe(error) }
}

/// How long things may take.
#[derive(Clone, Copy)]
struct Times {
    whole: Duration,
    /// Of a body that comes bit by bit: between two bits.
    silence: Option<Duration>,
}

impl Times {
    fn run(self, session: &Session, request: Request<Vec<u8>>) -> Result<Response<Body>, ureq::Error> {
        let agent = &session.agent;
        // A body of no bytes would still be one, which a GET must not have.
        if request.body().is_empty() {
            return agent.run(self.configure(agent.configure_request(request.map(drop))));
        }
        // A DELETE with a body is one for the HTTP client.
        agent.run(self.configure(agent.configure_request(request).allow_non_standard_methods(true)))
    }

    fn configure<S: AsSendBody>(self, mut request: ConfigBuilder<HttpCrateScope<S>>) -> Request<S> {
        if self.silence.is_some() {
            request = request.input_buffer_size(WATCH_BUFFER).output_buffer_size(WATCH_BUFFER);
        }
        request
            .timeout_global(Some(self.whole))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(TIMEOUT.min(self.whole)))
            .timeout_per_read(self.silence)
            .build()
    }
}

struct Call {
    method: Method,
    /// With the query.
    target: String,
    path: String,
    content: Option<(&'static str, Vec<u8>)>,
}

impl Call {
    fn new(method: Method, path: &str, query: &[(&str, &str)]) -> Call {
        Call { method, target: with_query(path, query), path: path.to_owned(), content: None }
    }

    fn with(mut self, content_type: &'static str, body: &Value) -> Call {
        self.content = Some((content_type, body.to_string().into_bytes()));
        self
    }

    /// For messages.
    fn shown(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    fn request(&self, session: &Session) -> Result<Request<Vec<u8>>, ureq::Error> {
        let mut builder = Request::builder()
            .method(self.method.clone())
            .uri(format!("{}{}", session.base, self.target))
            .header(header::ACCEPT, "application/json");
        if let Some(host) = &session.host {
            builder = builder.header(header::HOST, host);
        }
        if let Some(authorization) = &session.authorization {
            builder = builder.header(header::AUTHORIZATION, authorization);
        }
        let (content_type, body) = self.content.clone().unzip();
        if let Some(content_type) = content_type {
            builder = builder.header(header::CONTENT_TYPE, content_type);
        }
        Ok(builder.body(body.unwrap_or_default())?)
    }
}
