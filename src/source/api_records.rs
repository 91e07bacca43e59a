//! The pods of the API server on disk, one checked file a pod: with the server cut off, also after the
//! node was started again, they go on. Only root reads them.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::api_pods;
use crate::disk::{self, checked};
use crate::pod::{Pod, PodUid, identity};

/// Bytes; the server stores no larger objects.
const MAX_FILE: u64 = 8 << 20;
/// There when the server was heard once: then no files means no pods.
const HEARD: &str = "heard";

pub struct Records {
    directory: PathBuf,
    /// As they are on disk.
    written: HashMap<PodUid, Arc<Pod>>,
    heard: bool,
    /// The last failure, told once.
    failed: Option<String>,
}

impl Records {
    /// Reads what there is. A file that is damaged is put aside; what of its pod is known elsewhere
    /// (`ran_before`) stands in for it.
    pub fn open(directory: PathBuf, origin: &str, ran_before: &[Arc<Pod>]) -> Records {
        let mut records = Records { directory, written: HashMap::new(), heard: false, failed: None };
        let origin: Arc<str> = origin.into();
        for path in disk::entries(&records.directory) {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if name == HEARD {
                records.heard = true;
            }
            let Some(uid) = name.strip_suffix(".json").and_then(PodUid::checked) else { continue };
            let pod = match read(&path, &uid, &origin) {
                Ok(pod) => Arc::new(pod),
                Err(why) => {
                    disk::put_aside(&path, &why);
                    let Some(known) = ran_before.iter().find(|pod| pod.uid == uid) else { continue };
                    known.clone()
                }
            };
            records.written.insert(uid, pod);
        }
        records
    }

    /// The pods of before; `None` when the server has never been heard, so that nobody knows.
    pub fn pods(&self) -> Option<Vec<Arc<Pod>>> {
        self.heard.then(|| self.written.values().cloned().collect())
    }

    /// Makes the files those of `pods`. What could not be written is tried again at the next call.
    pub fn keep(&mut self, pods: &[Arc<Pod>]) {
        if let Err((path, e)) = self.try_keep(pods) {
            let text =
                format!("{}: {e}; with the API server cut off, a restart would not find all pods", path.display());
            if self.failed.as_ref() != Some(&text) {
                log::error!("{text}");
            }
            self.failed = Some(text);
        } else {
            self.failed = None;
        }
    }

    fn try_keep(&mut self, pods: &[Arc<Pod>]) -> Result<(), (PathBuf, io::Error)> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |e| (path, e)
        };
        if !self.directory.is_dir() {
            disk::make_dir(&self.directory, 0o700).map_err(at(&self.directory))?;
        }
        let gone: Vec<_> =
            self.written.keys().filter(|uid| !pods.iter().any(|pod| pod.uid == **uid)).cloned().collect();
        for uid in gone {
            let path = self.path(&uid);
            match fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err((path, e)),
                _ => _ = self.written.remove(&uid),
            }
        }
        for pod in pods {
            let known = self.written.get(&pod.uid);
            if known.is_some_and(|known| Arc::ptr_eq(known, pod) || !identity::changed(known, pod)) {
                continue;
            }
            let path = self.path(&pod.uid);
            let text = json!({"metadata": pod.meta, "spec": pod.spec}).to_string();
            checked::write(&path, text.as_bytes()).map_err(at(&path))?;
            self.written.insert(pod.uid.clone(), pod.clone());
        }
        if !self.heard {
            let path = self.directory.join(HEARD);
            disk::write_atomic(&path, b"", 0o600).map_err(at(&path))?;
            self.heard = true;
        }
        Ok(())
    }

    fn path(&self, uid: &PodUid) -> PathBuf {
        self.directory.join(format!("{uid}.json"))
    }
}

fn read(path: &Path, uid: &PodUid, origin: &Arc<str>) -> Result<Pod, String> {
    let bytes = checked::load(path, MAX_FILE).map_err(|e| e.to_string())?;
    let object: Value = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
    let pod = api_pods::decode(object, origin, Timestamp::UNIX_EPOCH)?;
    if pod.uid == *uid { Ok(pod) } else { Err("it is that of another pod".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing;

    fn pod(uid: &str, edit: impl FnOnce(&mut Pod)) -> Arc<Pod> {
        let object = json!({"metadata": {"namespace": "ns", "name": format!("p-{uid}"), "uid": uid},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let mut pod = api_pods::decode(object, &"k".into(), Timestamp::UNIX_EPOCH).expect("is a pod");
        edit(&mut pod);
        Arc::new(pod)
    }

    fn uids(records: &Records) -> Option<Vec<String>> {
        let mut uids: Vec<_> = records.pods()?.iter().map(|pod| pod.uid.to_string()).collect();
        uids.sort();
        Some(uids)
    }

    #[test]
    fn pods_are_there_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = dir.path().join("api");
        let open = || Records::open(directory.clone(), "k", &[]);
        let mut records = open();
        assert_eq!(uids(&records), None, "nobody has been heard");
        let a = pod("a", |_| {});
        records.keep(&[a.clone(), pod("b", |_| {})]);
        assert_eq!(uids(&open()), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(*open().written.get("a").expect("is there").clone(), *a);
        records.keep(&[a]);
        assert_eq!(uids(&open()), Some(vec!["a".to_owned()]));
        records.keep(&[]);
        assert_eq!(uids(&open()), Some(vec![]), "no pods, and that is known");
    }

    #[test]
    fn nothing_is_written_twice_and_damage_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut records = Records::open(dir.path().join("api"), "k", &[]);
        records.keep(&[pod("a", |_| {})]);
        let path = dir.path().join("api/a.json");
        fs::write(&path, "not ours").expect("writes");
        // Another version of the server's object with nothing new for the node.
        records.keep(&[pod("a", |p| p.meta.resource_version = Some("9".to_owned()))]);
        assert_eq!(fs::read_to_string(&path).expect("reads"), "not ours");
        let known = Arc::new(testing::pod("a", Default::default()));
        let again = Records::open(dir.path().join("api"), "k", std::slice::from_ref(&known));
        assert_eq!(again.pods(), Some(vec![known]));
        assert!(!path.exists() && dir.path().join("api/a.json.bad").exists());
        assert_eq!(Records::open(dir.path().join("api"), "k", &[]).pods(), Some(vec![]));
    }

    #[test]
    fn a_disk_that_cannot_be_written_costs_no_more_than_that() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("api"), "a file").expect("writes");
        let mut records = Records::open(dir.path().join("api/pods"), "k", &[]);
        records.keep(&[pod("a", |_| {})]);
        assert!(records.failed.is_some());
        fs::remove_file(dir.path().join("api")).expect("removes");
        records.keep(&[pod("a", |_| {})]);
        assert_eq!((records.failed.clone(), uids(&records)), (None, Some(vec!["a".to_owned()])));
    }
}
