//! Create, replace, patch and delete, as changes of files in the manifest directory.

mod ephemeral;
mod files;
mod patch;
mod wire;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use files::Manifests;
use files::{Error, one};

use super::answer;
use super::object::Secrets;
use super::resource::Resource;
use super::route::Name;
use super::store::{Entry, Store};
use crate::pod::labels;
use crate::server::http::{Request, Response};

/// Bytes of a body.
const MAX_BODY: usize = 3 << 20;
/// How long an answer waits for the agent to see what was written.
const SEEN: Duration = Duration::from_secs(3);

pub struct Writer<'a> {
    /// `None` when there is no manifest directory.
    pub manifests: Option<&'a Manifests>,
    pub store: &'a Store,
}

type Result<T> = std::result::Result<T, Response>;

impl Writer<'_> {
    pub fn create(&self, resource: Resource, namespace: &str, request: &mut Request<'_>) -> Result<Response> {
        let manifests = self.manifests()?;
        let mut document = body(request)?;
        let object = document.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = Name { resource, namespace: namespace.to_owned(), name: object };
        prepare(manifests, &name, &mut document)?;
        if self.live(&name).is_some() || manifests.find(&name).map_err(|e| refused(&e))?.is_some() {
            return Err(answer::exists(&name));
        }
        let text = check(manifests, &name, &document)?;
        if !is_dry(request) {
            let path = manifests.own_path(&name);
            manifests.write(&path, &text).map_err(|e| refused(&e))?;
            log::info!("{} {namespace}/{} is created in {}", resource.kind(), name.name, path.display());
            document = self.seen(&name, 0).unwrap_or(document);
        }
        Ok(answer::created(&document))
    }

    pub fn replace(&self, name: &Name, request: &mut Request<'_>) -> Result<Response> {
        let document = body(request)?;
        self.change(name, is_dry(request), |_| Ok(document))
    }

    pub fn patch(&self, name: &Name, request: &mut Request<'_>) -> Result<Response> {
        let patch = Patch::of(request)?;
        self.change(name, is_dry(request), |document| patch.apply(document))
    }

    fn change(&self, name: &Name, dry: bool, change: impl FnOnce(Value) -> Result<Value>) -> Result<Response> {
        let manifests = self.manifests()?;
        let found = self.found(manifests, name)?;
        let before = self.live(name);
        let mut document = change(found.document.clone())?;
        if let Some((version, _)) = &before {
            same_version(name, &document, *version)?;
        }
        prepare(manifests, name, &mut document)?;
        let text = check(manifests, name, &document)?;
        if dry || document == found.document {
            return Ok(answer::ok(&before.map_or(document, |(_, live)| live)));
        }
        manifests.write(&found.path, &text).map_err(|e| refused(&e))?;
        log::info!("{} {}/{} is changed in {}", name.resource.kind(), name.namespace, name.name, found.path.display());
        let after = before.map_or(0, |(version, _)| version);
        Ok(answer::ok(&self.seen(name, after).unwrap_or(document)))
    }

    pub fn delete(&self, name: &Name, request: &mut Request<'_>) -> Result<Response> {
        let manifests = self.manifests()?;
        let bytes = request.body.read(MAX_BODY)?;
        let options: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let dry = is_dry(request) || options.get("dryRun").and_then(Value::as_array).is_some_and(|d| !d.is_empty());
        let found = self.found(manifests, name)?;
        let uid = self.live(name).and_then(|(_, live)| live.pointer("/metadata/uid").cloned()).unwrap_or_default();
        if !dry {
            manifests.remove(&found.path).map_err(|e| refused(&e))?;
            log::info!(
                "{} {}/{} is deleted with {}",
                name.resource.kind(),
                name.namespace,
                name.name,
                found.path.display()
            );
        }
        Ok(answer::ok(&json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": name.name, "kind": name.resource.name(), "uid": uid},
        })))
    }

    fn manifests(&self) -> Result<&Manifests> {
        self.manifests
            .ok_or_else(|| answer::failed(405, "there is no manifest directory to write to: staticPodPath is none"))
    }

    fn found(&self, manifests: &Manifests, name: &Name) -> Result<files::Found> {
        match manifests.find(name).map_err(|e| refused(&e))? {
            Some(found) => Ok(found),
            None if self.live(name).is_some() => {
                let message = format!(
                    "{} {:?} is in no manifest of {}: it is ending, or comes from elsewhere",
                    name.resource.name(),
                    name.name,
                    manifests.directory.display()
                );
                Err(answer::failed(409, &message))
            }
            None => Err(answer::not_found(name)),
        }
    }

    /// The object as the agent has it, and its version.
    fn live(&self, name: &Name) -> Option<(u64, Value)> {
        find(self.store, name, self.manifests)
    }

    /// The object once the agent has it in a version after this.
    fn seen(&self, name: &Name, after: u64) -> Option<Value> {
        let until = Instant::now() + SEEN;
        loop {
            let version = self.store.version();
            if let Some((_, value)) = self.live(name).filter(|(version, _)| *version > after) {
                return Some(value);
            }
            let left = until.saturating_duration_since(Instant::now());
            // Whatever has changed since, it is looked for once more.
            if left.is_zero() || self.store.since(version, left).is_err() {
                return None;
            }
        }
    }
}

/// The object of this name, as it is now; a pod also by the name in its manifest.
pub fn find(store: &Store, name: &Name, manifests: Option<&Manifests>) -> Option<(u64, Value)> {
    newest(store, name, manifests).map(|entry| {
        let mut value = entry.object.json(entry.version, Secrets::Shown);
        call(&mut value, &name.name);
        (entry.version, value)
    })
}

fn newest(store: &Store, name: &Name, manifests: Option<&Manifests>) -> Option<Entry> {
    let (_, all) = store.list(name.resource);
    let wanted = |key: &str| match (name.resource, manifests) {
        (Resource::Pods, Some(m)) => m.manifest_name(key) == m.manifest_name(&name.name),
        _ => key == name.name,
    };
    let named = all.iter().filter(|(key, _)| *key.namespace == *name.namespace && wanted(&key.name));
    // One that ends may have the name too; it came first.
    let newest = named.max_by_key(|(key, entry)| (*key.name == *name.name, seen_at(&entry.object), entry.version));
    newest.map(|(_, entry)| entry.clone())
}

/// Gives an object the name that it was asked for by: kubectl looks for it under that name.
pub fn call(value: &mut Value, name: &str) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("name".to_owned(), name.into());
    }
}

fn seen_at(object: &super::object::Object) -> Option<jiff::Timestamp> {
    match object {
        super::object::Object::Pod { pod, .. } => pod.meta.annotations.as_ref()?.get(labels::CONFIG_SEEN)?.parse().ok(),
        _ => None,
    }
}

/// What the manifest has beyond what the agent knows of an object: its annotations.
pub fn annotate(value: &mut Value, manifests: Option<&Manifests>, name: &Name) {
    let found = manifests.and_then(|m| m.find(name).ok().flatten());
    let annotations = found.and_then(|f| f.document.pointer("/metadata/annotations").cloned());
    if let (Some(metadata), Some(annotations)) = (value.get_mut("metadata").and_then(Value::as_object_mut), annotations)
    {
        metadata.insert("annotations".to_owned(), annotations);
    }
}

/// A patch, with what its request says.
struct Patch {
    kind: patch::Kind,
    value: Value,
}

impl Patch {
    fn of(request: &mut Request<'_>) -> Result<Patch> {
        let kind = request.head.header("content-type").and_then(patch::Kind::of).ok_or_else(|| {
            answer::failed(
                415,
                "this patch is not understood: there are application/json-patch+json, application/merge-patch+json \
                 and application/strategic-merge-patch+json (no server-side apply)",
            )
        })?;
        let bytes = request.body.read(MAX_BODY)?;
        let value =
            serde_json::from_slice(&bytes).map_err(|e| answer::failed(400, &format!("the patch is no JSON: {e}")))?;
        Ok(Patch { kind, value })
    }

    fn apply(&self, document: Value) -> Result<Value> {
        patch::apply(self.kind, document, &self.value).map_err(|why| answer::failed(422, &format!("the patch: {why}")))
    }
}

/// Whoever says which version an object is a change of, means that one.
fn same_version(name: &Name, document: &Value, version: u64) -> Result<()> {
    let expected = document.pointer("/metadata/resourceVersion").and_then(Value::as_str).filter(|v| !v.is_empty());
    match expected.is_none_or(|expected| *expected == version.to_string()) {
        true => Ok(()),
        false => Err(modified(name)),
    }
}

fn modified(name: &Name) -> Response {
    let message = format!(
        "Operation cannot be fulfilled on {} {:?}: the object has been modified; please apply your changes to the \
         latest version and try again",
        name.resource.name(),
        name.name
    );
    answer::failed(409, &message)
}

fn is_dry(request: &Request<'_>) -> bool {
    request.head.query.get("dryRun").is_some_and(|value| !value.is_empty())
}

fn refused(error: &Error) -> Response {
    match error {
        Error::Io { .. } => answer::failed(500, &error.to_string()),
        Error::Shared { .. } | Error::Unreadable { .. } => answer::failed(409, &error.to_string()),
    }
}

fn body(request: &mut Request<'_>) -> Result<Value> {
    let content_type = request.head.header("content-type").unwrap_or("application/json").to_owned();
    let bytes = request.body.read(MAX_BODY)?;
    let wrong = |why: &str| answer::failed(400, &format!("the body can't be read as an object: {why}"));
    if content_type.contains("protobuf") {
        return wire::decode(&bytes).map_err(|why| answer::failed(415, &format!("the body: {why}")));
    }
    match content_type.contains("yaml") {
        true => one(std::str::from_utf8(&bytes).map_err(|e| wrong(&e.to_string()))?).map_err(|why| wrong(&why)),
        false => serde_json::from_slice(&bytes).map_err(|e| wrong(&e.to_string())),
    }
}

/// Makes the object what stands in a manifest: without what the agent adds to it.
fn prepare(manifests: &Manifests, name: &Name, document: &mut Value) -> Result<()> {
    let wrong = |why: &str| answer::failed(400, why);
    let kind = (document.get("apiVersion").and_then(Value::as_str), document.get("kind").and_then(Value::as_str));
    if kind.0.is_some_and(|v| v != "v1") || kind.1.is_some_and(|k| k != name.resource.kind()) {
        return Err(wrong(&format!("this has to be a {} of v1", name.resource.kind())));
    }
    let object = document.as_object_mut().ok_or_else(|| wrong("the body is no object"))?;
    object.insert("apiVersion".to_owned(), "v1".into());
    object.insert("kind".to_owned(), name.resource.kind().into());
    object.remove("status");
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    let metadata = metadata.as_object_mut().ok_or_else(|| wrong("metadata is no object"))?;
    let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if !namespace.is_empty() && namespace != name.namespace {
        return Err(wrong("the namespace of the object is not that of the request"));
    }
    for field in [
        "resourceVersion",
        "uid",
        "creationTimestamp",
        "generation",
        "managedFields",
        "selfLink",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        metadata.remove(field);
    }
    let in_manifest = match name.resource {
        Resource::Pods => manifests.manifest_name(&name.name),
        _ => &name.name,
    };
    metadata.insert("name".to_owned(), in_manifest.into());
    metadata.insert("namespace".to_owned(), name.namespace.as_str().into());
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        for ours in [labels::CONFIG_HASH, labels::CONFIG_SOURCE, labels::CONFIG_SEEN, labels::CONFIG_MIRROR] {
            annotations.remove(ours);
        }
    }
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        if spec.get("nodeName").and_then(Value::as_str) == Some(&manifests.node_name) {
            spec.remove("nodeName");
        }
    }
    Ok(())
}

/// The text of the manifest, once it is known that the agent can use it.
fn check(manifests: &Manifests, name: &Name, document: &Value) -> Result<String> {
    // JSON is YAML too, and says what it says.
    let text = serde_json::to_string_pretty(document).map_err(|e| answer::failed(500, &e.to_string()))? + "\n";
    manifests.check(name, &text).map_err(|problems| answer::invalid(name, &problems))?;
    Ok(text)
}
