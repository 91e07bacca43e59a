//! Create, replace, patch and delete, as changes of files in the manifest directory.

mod apply;
mod delete;
mod ephemeral;
mod files;
mod names;
mod owned;
mod patch;
mod wire;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use delete::Options as DeleteOptions;
pub use files::Manifests;
use files::{Error, one};

use super::answer;
use super::object::Secrets;
use super::resource::Resource;
use super::route::Name;
use super::store::{Entry, Store};
use crate::pod::labels;
use crate::server::http::{Request, Response};
use crate::sync_loop::orders::{self, Orders};

/// Bytes of a body.
const MAX_BODY: usize = 3 << 20;
/// Names that are made up for one object before it is given up.
const NAMES_TRIED: usize = 8;
/// How long an answer waits for the agent to see what was written.
const SEEN: Duration = Duration::from_secs(3);

pub struct Writer<'a> {
    /// `None` when there is no manifest directory.
    pub manifests: Option<&'a Manifests>,
    pub store: &'a Store,
    pub orders: &'a Orders,
}

type Result<T> = std::result::Result<T, Response>;

impl Writer<'_> {
    pub fn create(&self, resource: Resource, namespace: &str, request: &mut Request<'_>) -> Result<Response> {
        let manifests = self.manifests()?;
        let mut document = body(request)?;
        let name = self.new_name(manifests, resource, namespace, &document)?;
        prepare(manifests, &name, &mut document)?;
        let text = check(manifests, &name, &document)?;
        if !is_dry(request)? {
            manifests.forget_applied(&name);
            let path = manifests.own_path(&name);
            manifests.write(&path, &text).map_err(|e| refused(&e))?;
            log::info!("{} {namespace}/{} is created in {}", resource.kind(), name.name, path.display());
            document = self.seen(&name, 0).unwrap_or(document);
        }
        Ok(answer::created(&document))
    }

    /// The name of the object, or one that begins as its `generateName` says; nothing has it yet.
    fn new_name(&self, manifests: &Manifests, resource: Resource, namespace: &str, document: &Value) -> Result<Name> {
        let text = |path: &str| document.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let of = |name: String| Name { resource, namespace: namespace.to_owned(), name };
        let is_free = |name: &Name| -> Result<bool> {
            Ok(self.live(name).is_none() && manifests.find(name).map_err(|e| refused(&e))?.is_none())
        };
        let (given, prefix) = (text("/metadata/name"), text("/metadata/generateName"));
        if !given.is_empty() || prefix.is_empty() {
            let name = of(given.to_owned());
            return if is_free(&name)? { Ok(name) } else { Err(answer::exists(&name)) };
        }
        for _ in 0..NAMES_TRIED {
            let name = of(names::generate(prefix).map_err(|e| answer::failed(500, &format!("making a name: {e}")))?);
            if is_free(&name)? {
                return Ok(name);
            }
        }
        Err(answer::exists(&of(prefix.to_owned())))
    }

    pub fn replace(&self, name: &Name, request: &mut Request<'_>) -> Result<Response> {
        let document = body(request)?;
        self.change(name, is_dry(request)?, |_| Ok(document))
    }

    pub fn patch(&self, name: &Name, request: &mut Request<'_>) -> Result<Response> {
        if is_apply(request) {
            return self.apply(name, request);
        }
        let patch = Patch::of(request)?;
        self.change(name, is_dry(request)?, |document| patch.apply(document))
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

    fn manifests(&self) -> Result<&Manifests> {
        self.manifests
            .ok_or_else(|| answer::failed(405, "there is no manifest directory to write to: staticPodPath is none"))
    }

    fn found(&self, manifests: &Manifests, name: &Name) -> Result<files::Found> {
        let found = manifests.find(name).map_err(|e| refused(&e))?;
        found.ok_or_else(|| match self.live(name) {
            Some(_) => in_no_manifest(manifests, name),
            None => answer::not_found(name),
        })
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

fn in_no_manifest(manifests: &Manifests, name: &Name) -> Response {
    let message = format!(
        "{} {:?} is in no manifest of {}: it is ending, or comes from elsewhere",
        name.resource.name(),
        name.name,
        manifests.directory.display()
    );
    answer::failed(409, &message)
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
                "this patch is not understood here: there are application/json-patch+json, \
                 application/merge-patch+json, application/strategic-merge-patch+json, and for whole objects \
                 application/apply-patch+yaml",
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

fn not_taken(name: &Name, why: orders::Refused) -> Response {
    match why {
        orders::Refused::Gone => answer::not_found(name),
        orders::Refused::Stale => modified(name),
        orders::Refused::Busy => answer::failed(503, &why.to_string()),
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

fn is_apply(request: &Request<'_>) -> bool {
    let kind = request.head.header("content-type").unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim() == apply::KIND)
}

/// Whether nothing is to be changed.
fn is_dry(request: &Request<'_>) -> Result<bool> {
    dry(request.head.query.all("dryRun"))
}

fn dry<'v>(values: impl Iterator<Item = &'v str>) -> Result<bool> {
    let mut values = values.filter(|value| !value.is_empty()).peekable();
    let is = values.peek().is_some();
    match values.find(|value| *value != "All") {
        Some(other) => Err(answer::failed(422, &format!("dryRun: Unsupported value: {other:?}: there is All"))),
        None => Ok(is),
    }
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
