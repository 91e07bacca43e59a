//! A double of the API server: objects in memory over HTTP, with watches, and with the faults that a
//! test wants. Each of its answers is what Kubernetes' documentation says of the API; "concepts" below
//! is <https://kubernetes.io/docs/reference/using-api/api-concepts/>, "reference" the API reference.

mod objects;
mod serve;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

pub use objects::{Objects, Refusal};
pub use serve::Connection;

use super::{Cell, NODE, eventually};

const SOON: Duration = Duration::from_secs(90);

/// What the server does wrong.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// The connections of the next watches break off after so many bytes of events, one after the other.
    pub cut_after: Vec<usize>,
    /// Watches are accepted, and then nothing comes: as with a half-open connection.
    pub silent: bool,
    /// Requests with this method are answered with status 500.
    pub fails: Option<&'static str>,
    /// Requests with this token only are taken.
    pub token: Option<String>,
}

pub struct State {
    pub objects: Objects,
    pub faults: Faults,
    /// Method and path of each request, with the status of its answer.
    pub asked: Vec<(String, u16)>,
    /// Counts up when all connections are to be closed.
    pub era: u64,
}

pub struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, at most so long.
    pub fn wait<'g>(&self, state: MutexGuard<'g, State>, time: Duration) -> MutexGuard<'g, State> {
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }

    pub fn tell(&self) {
        self.changed.notify_all();
    }
}

/// What a connection is.
pub type Accept = Arc<dyn Fn(std::net::TcpStream) -> Option<Box<dyn serve::Connection>> + Send + Sync>;

pub struct ApiServer {
    port: u16,
    cell: Arc<Cell>,
    shared: Arc<Shared>,
    accept: Accept,
    serving: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl ApiServer {
    /// One on the cell's loopback, with the node in it.
    pub fn start(cell: &Arc<Cell>, port: u16) -> ApiServer {
        ApiServer::accepting(cell, port, Arc::new(|stream| Some(Box::new(stream))))
    }

    pub fn accepting(cell: &Arc<Cell>, port: u16, accept: Accept) -> ApiServer {
        let state = State { objects: Objects::new(1000), faults: Faults::default(), asked: Vec::new(), era: 0 };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let mut server = ApiServer { port, cell: cell.clone(), shared, accept, serving: None };
        server.populate();
        server.open();
        server
    }

    fn populate(&self) {
        self.create("nodes", json!({"metadata": {"name": NODE}}));
        self.create("namespaces", json!({"metadata": {"name": "default"}}));
    }

    /// A kubeconfig for it, with a token.
    pub fn kubeconfig(&self) -> PathBuf {
        self.write_kubeconfig(&json!({"server": format!("http://127.0.0.1:{}", self.port)}), &json!({"token": "t"}))
    }

    pub fn write_kubeconfig(&self, cluster: &Value, user: &Value) -> PathBuf {
        let path = self.cell.dir().join("kubeconfig");
        let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": cluster}], "users": [{"name": "u", "user": user}]});
        std::fs::write(&path, text.to_string()).expect("write the kubeconfig");
        path
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    pub fn faults(&self, faults: Faults) {
        self.state().faults = faults;
        self.shared.tell();
    }

    /// Closes all connections, watches too.
    pub fn disconnect(&self) {
        self.state().era += 1;
        self.shared.tell();
    }

    /// Another one in its place, that has never been one: no objects but the node, old versions.
    pub fn replace(&self) {
        self.state().objects = Objects::new(1);
        self.populate();
        self.disconnect();
    }

    /// Forgets what happened until now: watches from before have to list again.
    pub fn compact(&self) {
        self.state().objects.compact();
        self.disconnect();
    }

    fn change<T>(&self, change: impl FnOnce(&mut Objects) -> Result<T, Refusal>) -> T {
        let result = change(&mut self.state().objects);
        self.shared.tell();
        result.unwrap_or_else(|refusal| panic!("{refusal:?}"))
    }

    /// Creates an object in its namespace, or in `default`.
    #[track_caller]
    pub fn create(&self, resource: &str, object: Value) -> Value {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        self.change(|objects| objects.create(resource, &namespace, object))
    }

    /// Merges a patch into an object of the namespace `default`.
    #[track_caller]
    pub fn patch(&self, resource: &str, name: &str, patch: &Value) -> Value {
        self.change(|objects| objects.merge(resource, "default", name, patch))
    }

    /// Deletes as kubectl does; with `grace` other than the object's own.
    #[track_caller]
    pub fn delete(&self, resource: &str, name: &str, grace: Option<i64>) {
        let options = grace.map_or(json!({}), |seconds| json!({"gracePeriodSeconds": seconds}));
        let _ = self.change(|objects| objects.delete(resource, "default", name, &options));
    }

    pub fn get(&self, resource: &str, name: &str) -> Option<Value> {
        self.state().objects.get(resource, "default", name).ok()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until an object of the namespace `default` meets this, and returns it.
    #[track_caller]
    pub fn wait(&self, resource: &str, name: &str, mut meets: impl FnMut(&Value) -> bool) -> Value {
        eventually(&format!("{resource} {name} of the API server"), SOON, || match self.get(resource, name) {
            None => Err("it isn't there".to_owned()),
            Some(object) if meets(&object) => Ok(object),
            Some(object) => Err(format!("it is {object:#}")),
        })
    }

    #[track_caller]
    pub fn wait_gone(&self, resource: &str, name: &str) {
        eventually(&format!("the end of {resource} {name}"), SOON, || match self.get(resource, name) {
            None => Ok(()),
            Some(object) => Err(format!("it is {object:#}")),
        });
    }

    /// The requests so far that this holds for.
    pub fn asked(&self, of: impl Fn(&str) -> bool) -> Vec<(String, u16)> {
        self.state().asked.iter().filter(|(line, _)| of(line)).cloned().collect()
    }

    /// Listens again after [`ApiServer::close`].
    pub fn open(&mut self) {
        let listener = self.cell.in_network(|| TcpListener::bind(("127.0.0.1", self.port)).expect("listens"));
        let (end, shared, accept) = (Arc::new(AtomicBool::new(false)), self.shared.clone(), self.accept.clone());
        let ends = end.clone();
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let (stream, shared, accept) = (stream.expect("accepts"), shared.clone(), accept.clone());
                thread::spawn(move || {
                    if let Some(connection) = accept(stream) {
                        serve::serve(connection, &shared);
                    }
                });
            }
        });
        self.serving = Some((end, thread));
    }

    /// Nobody listens any more, and all connections are closed.
    pub fn close(&mut self) {
        if let Some((end, thread)) = self.serving.take() {
            end.store(true, Ordering::Relaxed);
            let _ = self.cell.connect(self.port);
            thread.join().expect("the server ends");
        }
        self.disconnect();
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        self.close();
    }
}
