//! Records of objects on disk, one file for each manifest: after a restart, a manifest that is
//! broken by then still gives what it gave when it was good. And which claim has which volume.
//!
//! The records hold secrets, as the manifests do; only root reads them.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Key, Kind, Object, same};
use crate::disk;

const OF_MANIFEST: &str = ".objects.json";
const BINDINGS: &str = "bindings.json";
/// What of a manifest's name goes into that of its record.
const MAX_NAME: usize = 200;

/// The good objects of manifests, by the manifests' paths.
pub type ByPlace = BTreeMap<String, Vec<Arc<Object>>>;

#[derive(Serialize, Deserialize)]
struct Record {
    origin: String,
    objects: Vec<Object>,
}

#[derive(Serialize, Deserialize)]
struct Binding {
    namespace: String,
    claim: String,
    volume: String,
}

/// What is on disk, as far as it is known: nothing is written that is there already.
pub struct Records {
    directory: PathBuf,
    /// By the manifests' paths: the record's file, and what it holds.
    written: HashMap<String, (PathBuf, Vec<Arc<Object>>)>,
    bound: BTreeMap<Key, String>,
}

impl Records {
    /// Reads what there is. A record that can't be read is put aside.
    pub fn open(directory: PathBuf) -> Records {
        let mut records = Records { directory, written: HashMap::new(), bound: BTreeMap::new() };
        for path in disk::entries(&records.directory) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name == BINDINGS {
                let key = |b: &Binding| Key::new(Kind::PersistentVolumeClaim, &b.namespace, &b.claim);
                let bound: Vec<Binding> = read(&path).unwrap_or_default();
                records.bound = bound.into_iter().map(|b| (key(&b), b.volume)).collect();
            } else if name.ends_with(OF_MANIFEST) {
                if let Some(Record { origin, objects }) = read(&path) {
                    records.written.insert(origin, (path, objects.into_iter().map(Arc::new).collect()));
                }
            }
        }
        records
    }

    pub fn objects(&self) -> ByPlace {
        self.written.iter().map(|(place, (_, objects))| (place.clone(), objects.clone())).collect()
    }

    pub fn bound(&self) -> &BTreeMap<Key, String> {
        &self.bound
    }

    /// Makes the records those of `objects`. What could not be written is tried again at the next
    /// call.
    ///
    /// # Errors
    /// The first file that could not be written or removed.
    pub fn keep(&mut self, objects: &ByPlace) -> Result<(), (PathBuf, io::Error)> {
        let mut result = Ok(());
        let given = |place: &String| objects.get(place).is_some_and(|objects| !objects.is_empty());
        self.written.retain(|place, (path, _)| {
            given(place)
                || match fs::remove_file(&*path) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => {
                        result = Err((path.clone(), e));
                        true
                    }
                    _ => false,
                }
        });
        for (place, objects) in objects.iter().filter(|(_, objects)| !objects.is_empty()) {
            let known = self.written.get(place);
            let is_written = |written: &[Arc<Object>]| {
                written.len() == objects.len() && written.iter().zip(objects).all(|(a, b)| same(a, b))
            };
            if known.is_some_and(|(_, written)| is_written(written)) {
                continue;
            }
            let path = known.map_or_else(|| self.directory.join(file_name(place)), |(path, _)| path.clone());
            let record = Record { origin: place.clone(), objects: objects.iter().map(|o| (**o).clone()).collect() };
            match self.write(&path, &record) {
                Ok(()) => _ = self.written.insert(place.clone(), (path, objects.clone())),
                Err(e) => result = Err((path, e)),
            }
        }
        result
    }

    /// Notes which claim has which volume.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn keep_bound(&mut self, bound: BTreeMap<Key, String>) -> Result<(), (PathBuf, io::Error)> {
        if bound == self.bound {
            return Ok(());
        }
        let binding = |(key, volume): (&Key, &String)| Binding {
            namespace: key.namespace.clone(),
            claim: key.name.clone(),
            volume: volume.clone(),
        };
        let path = self.directory.join(BINDINGS);
        self.write(&path, &bound.iter().map(binding).collect::<Vec<_>>()).map_err(|e| (path, e))?;
        self.bound = bound;
        Ok(())
    }

    fn write(&self, path: &Path, value: &impl Serialize) -> io::Result<()> {
        if !self.directory.is_dir() {
            disk::make_dir(&self.directory, 0o700)?;
        }
        disk::write_atomic(path, &serde_json::to_vec(value)?, 0o600)
    }
}

/// What a record holds. What is wrong with one is told without what stands in it.
fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let why = match fs::read(path).map(|bytes| serde_json::from_slice(&bytes)) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(e)) => format!("no record of this agent (line {}, column {})", e.line(), e.column()),
        Err(e) => e.to_string(),
    };
    disk::put_aside(path, &why);
    None
}

fn file_name(place: &str) -> String {
    let name = place.rsplit('/').next().unwrap_or_default();
    if name.len() <= MAX_NAME {
        return format!("{name}{OF_MANIFEST}");
    }
    let mut hasher = DefaultHasher::new();
    place.hash(&mut hasher);
    format!("{:016x}{OF_MANIFEST}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::{Body, ConfigMap, Secret, SecretValue};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn map(name: &str, value: &str) -> Arc<Object> {
        let data = BTreeMap::from([("key".to_owned(), value.to_owned())]);
        let body = Body::ConfigMap(ConfigMap { data, ..Default::default() });
        Arc::new(Object {
            key: Key::new(Kind::ConfigMap, "default", name),
            labels: BTreeMap::new(),
            created: None,
            body,
        })
    }

    fn secret() -> Arc<Object> {
        let data = BTreeMap::from([("key".to_owned(), SecretValue::new(b"\xffhunter2".to_vec()))]);
        let body = Body::Secret(Secret { data, kind: "Opaque".into(), immutable: true });
        Arc::new(Object { key: Key::new(Kind::Secret, "default", "s"), labels: BTreeMap::new(), created: None, body })
    }

    fn files(directory: &Path) -> Vec<(String, u64)> {
        let mut all: Vec<_> = fs::read_dir(directory)
            .expect("reads")
            .map(|e| e.expect("reads"))
            .map(|e| (e.file_name().into_string().expect("text"), e.metadata().expect("is there").ino()))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn objects_are_known_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = dir.path().join("objects");
        let mut records = Records::open(directory.clone());
        assert!(records.objects().is_empty());
        let long = format!("/m/{}.yaml", "x".repeat(250));
        let mut objects = ByPlace::from([
            ("/m/a.yaml".to_owned(), vec![map("a", "1"), secret()]),
            (long.clone(), vec![map("b", "1")]),
            ("/m/pods.yaml".to_owned(), vec![]),
        ]);
        records.keep(&objects).expect("writes");
        let before = files(&directory);
        assert_eq!(before.len(), 2, "{before:?}");
        for (name, _) in &before {
            let mode = fs::metadata(directory.join(name)).expect("is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        let mut records = Records::open(directory.clone());
        objects.remove("/m/pods.yaml");
        assert_eq!(records.objects(), objects);
        records.keep(&objects).expect("writes");
        assert_eq!(files(&directory), before, "what is there already is not written");
        objects.insert("/m/a.yaml".to_owned(), vec![map("a", "2")]);
        objects.remove(&long);
        records.keep(&objects).expect("writes");
        assert_eq!(files(&directory).len(), 1);
        assert_eq!(Records::open(directory).objects(), objects);
    }

    #[test]
    fn bindings_are_known_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut records = Records::open(dir.path().to_owned());
        let bound = BTreeMap::from([(Key::new(Kind::PersistentVolumeClaim, "ns", "c"), "v".to_owned())]);
        records.keep_bound(bound.clone()).expect("writes");
        let before = files(dir.path());
        records.keep_bound(bound.clone()).expect("writes");
        assert_eq!(files(dir.path()), before);
        assert_eq!(Records::open(dir.path().to_owned()).bound(), &bound);
    }

    /// kubernetes#135711, #84783: a corrupt checkpoint stops nothing.
    #[test]
    fn kubernetes_135711_a_corrupt_record_is_put_aside() {
        let dir = tempfile::tempdir().expect("a directory");
        let texts = ["", "{", "\0\0", "[]", r#"{"origin":"/m/a","objects":[{"key":"hunter2"}]}"#];
        for (i, text) in texts.iter().enumerate() {
            fs::write(dir.path().join(format!("{i}{OF_MANIFEST}")), text).expect("writes");
        }
        fs::write(dir.path().join(BINDINGS), "{").expect("writes");
        let records = Records::open(dir.path().to_owned());
        assert!(records.objects().is_empty() && records.bound().is_empty());
        assert!(files(dir.path()).iter().all(|(name, _)| name.ends_with(".bad")));
    }

    #[test]
    fn a_failure_is_told_and_tried_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = dir.path().join("objects");
        fs::write(&directory, "a file in its place").expect("writes");
        let mut records = Records::open(directory.clone());
        let objects = ByPlace::from([("/m/a.yaml".to_owned(), vec![map("a", "1")])]);
        records.keep(&objects).expect_err("can't be written");
        fs::remove_file(&directory).expect("removes");
        records.keep(&objects).expect("writes");
        assert_eq!(Records::open(directory).objects(), objects);
    }
}
