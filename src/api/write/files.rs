//! The manifest directory, as the API changes it: a file for each object that it made; files that
//! people have written are changed only when they hold that one object and nothing else.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::Value;

use crate::api::resource::Resource;
use crate::api::route::Name;
use crate::disk;
use crate::pod::Source;
use crate::pod::identity::Origin;
use crate::source::{is_manifest_name, manifest};
use crate::yaml;

/// What files of the API end with.
const OWN: &str = ".api.yaml";
/// Bytes of a manifest that is looked at.
const MAX_FILE: u64 = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what} {path}: {source}")]
    Io { what: &'static str, path: String, source: io::Error },
    #[error("{path} holds more than this object ({count} in all), or something that can't be used: change it there")]
    Shared { path: String, count: usize },
    #[error("{path} can't be read as one object: {why}")]
    Unreadable { path: String, why: String },
}

pub struct Manifests {
    pub directory: PathBuf,
    /// Where it is kept who applied what of them.
    pub applied: PathBuf,
    pub node_name: String,
}

/// A file that holds one object.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub path: PathBuf,
    /// As it is written there.
    pub document: Value,
}

impl Manifests {
    /// What the name of the pod is in its manifest: without the node's.
    pub fn manifest_name<'n>(&self, name: &'n str) -> &'n str {
        let suffix = format!("-{}", self.node_name.to_lowercase());
        name.strip_suffix(suffix.as_str()).filter(|rest| !rest.is_empty()).unwrap_or(name)
    }

    /// Where an object of this name is, or would be written by the API.
    pub fn own_path(&self, name: &Name) -> PathBuf {
        let (kind, object) = match name.resource {
            Resource::Pods => ("pod", self.manifest_name(&name.name)),
            resource => (resource.kind(), name.name.as_str()),
        };
        self.directory.join(format!("{}_{object}.{}{OWN}", name.namespace, kind.to_lowercase()))
    }

    /// The file that holds the object.
    ///
    /// # Errors
    /// When it holds more, or can't be read.
    pub fn find(&self, name: &Name) -> Result<Option<Found>, Error> {
        let own = self.own_path(name);
        let mut paths = self.paths()?;
        // Most likely there.
        paths.sort_by_key(|path| (*path != own, path.clone()));
        for path in paths {
            let shown = path.display().to_string();
            let Some(text) = read(&path) else { continue };
            let read = self.read(&text, &shown);
            if !self.holds(&read, name) {
                continue;
            }
            let count = read.pods.len() + read.objects.len();
            if count != 1 || !read.problems.is_empty() {
                return Err(Error::Shared { path: shown, count });
            }
            let document = one(&text).map_err(|why| Error::Unreadable { path: shown.clone(), why })?;
            if document.get("kind").and_then(Value::as_str) != Some(name.resource.kind()) {
                return Err(Error::Unreadable { path: shown, why: "it is a list".to_owned() });
            }
            return Ok(Some(Found { path, document }));
        }
        Ok(None)
    }

    /// # Errors
    /// What is wrong with the object, as the agent would read it: fields, and what of them.
    pub fn check(&self, name: &Name, text: &str) -> Result<(), Vec<(String, String)>> {
        let read = self.read(text, "the object");
        let problems: Vec<_> = read.problems.iter().map(|p| (p.field.clone(), p.message.clone())).collect();
        match problems.is_empty() && self.holds(&read, name) {
            true => Ok(()),
            false if problems.is_empty() => {
                Err(vec![("metadata".to_owned(), "it is not the object that it is said to be".to_owned())])
            }
            false => Err(problems),
        }
    }

    /// # Errors
    /// When it can't be written; then what was there before is.
    pub fn write(&self, path: &Path, text: &str) -> Result<(), Error> {
        let failed = |source| Error::Io { what: "writing", path: path.display().to_string(), source };
        disk::write_atomic(path, text.as_bytes(), 0o600).map_err(failed)
    }

    /// # Errors
    /// When it can't be removed.
    pub fn remove(&self, path: &Path) -> Result<(), Error> {
        let failed = |source| Error::Io { what: "removing", path: path.display().to_string(), source };
        fs::remove_file(path).and_then(|()| File::open(&self.directory)?.sync_all()).map_err(failed)
    }

    fn paths(&self) -> Result<Vec<PathBuf>, Error> {
        let failed = |source| Error::Io { what: "reading", path: self.directory.display().to_string(), source };
        let entries = match fs::read_dir(&self.directory) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let names = entries.flatten().filter(|e| e.file_name().to_str().is_some_and(is_manifest_name));
        Ok(names.map(|entry| entry.path()).collect())
    }

    fn read(&self, text: &str, place: &str) -> manifest::Manifest {
        let seen = Timestamp::UNIX_EPOCH;
        manifest::read(text, Origin { source: Source::File, node_name: &self.node_name, place, seen })
    }

    fn holds(&self, read: &manifest::Manifest, name: &Name) -> bool {
        match name.resource {
            Resource::Pods => read.pods.iter().any(|pod| {
                *pod.name.namespace == *name.namespace
                    && self.manifest_name(&pod.name.name) == self.manifest_name(&name.name)
            }),
            resource => read.objects.iter().any(|object| {
                let key = &object.key;
                key.kind.to_string() == resource.kind() && key.namespace == name.namespace && key.name == name.name
            }),
        }
    }
}

/// `None`: no manifest.
fn read(path: &Path) -> Option<String> {
    let fits = fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_FILE);
    fits.then(|| fs::read_to_string(path).ok())?
}

/// The one object of a text, YAML or JSON.
pub fn one(text: &str) -> Result<Value, String> {
    let node = yaml::parse_one(text, &mut Vec::new()).map_err(|problem| problem.message)?;
    let node = node.ok_or("there is no object in it")?;
    yaml::decode::<Value>(&node).map(|decoded| decoded.value).map_err(|problem| problem.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n";
    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web, namespace: ns}\ndata: {k: v}\n";

    fn name(resource: Resource, namespace: &str, name: &str) -> Name {
        Name { resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn which_file_holds_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let manifests =
            Manifests { directory: dir.path().join("m"), applied: dir.path().join("a"), node_name: "Node".to_owned() };
        let pod = name(Resource::Pods, "default", "web");
        assert_eq!(manifests.find(&pod).expect("no directory"), None);
        fs::create_dir(&manifests.directory).expect("makes");
        let put = |file: &str, text: &str| fs::write(manifests.directory.join(file), text).expect("writes");
        put("broken.yaml", "{[");
        put(".hidden.yaml", POD);
        assert_eq!(manifests.find(&pod).expect("looks"), None);
        put("web.yaml", POD);
        let found = |n: &Name| manifests.find(n).map(|f| f.map(|f| f.path.file_name().map(|n| n.to_owned())));
        for n in [&pod, &name(Resource::Pods, "default", "web-node")] {
            assert_eq!(found(n).expect("finds"), Some(Some("web.yaml".into())));
        }
        assert_eq!(found(&name(Resource::Pods, "other", "web")).expect("looks"), None);
        let found = manifests.find(&pod).expect("finds").expect("is there");
        assert_eq!(found.document["spec"]["containers"][0]["image"], "i");
        put("web.yaml", &format!("{POD}---\n{MAP}"));
        for n in [&pod, &name(Resource::ConfigMaps, "ns", "web")] {
            let why = manifests.find(n).expect_err("is refused").to_string();
            assert!(why.contains("web.yaml holds more than this object (2 in all)"), "{why}");
        }
        put("web.yaml", &format!("apiVersion: v1\nkind: List\nitems:\n- {}", POD.replace('\n', "\n  ")));
        assert!(manifests.find(&pod).expect_err("is refused").to_string().contains("it is a list"));
    }

    #[test]
    fn names_of_own_files() {
        let manifests = Manifests { directory: "/m".into(), applied: "/a".into(), node_name: "Node".to_owned() };
        for (n, want) in [
            (name(Resource::Pods, "ns", "web-node"), "/m/ns_web.pod.api.yaml"),
            (name(Resource::Pods, "ns", "web"), "/m/ns_web.pod.api.yaml"),
            (name(Resource::ConfigMaps, "ns", "a-node"), "/m/ns_a-node.configmap.api.yaml"),
        ] {
            assert_eq!(manifests.own_path(&n), Path::new(want));
        }
        let pod = name(Resource::Pods, "default", "web");
        assert_eq!(manifests.check(&pod, POD), Ok(()));
        let broken = POD.replace("image: i", "imag: i");
        assert!(
            manifests.check(&pod, &broken).is_err_and(|all| all.iter().any(|(field, _)| field.contains("imag"))),
            "{broken}"
        );
        assert!(manifests.check(&name(Resource::Pods, "default", "other"), POD).is_err());
    }
}
