//! The node's object as the server has it, as far as others go by it. Kept on disk, so that a node that
//! was started without its server goes by what it last knew.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::disk;

/// Bytes of the file.
const MAX_FILE: u64 = 1 << 20;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Known {
    pub uid: String,
    pub labels: BTreeMap<String, String>,
    /// The networks of the pods' addresses.
    #[serde(rename = "podCIDRs")]
    pub pod_cidrs: Vec<String>,
}

impl Known {
    fn of(node: &Value) -> Known {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
        let mut pod_cidrs: Vec<_> = node["spec"]["podCIDRs"].as_array().into_iter().flatten().map(text).collect();
        if pod_cidrs.is_empty() {
            pod_cidrs.extend(node["spec"]["podCIDR"].as_str().map(str::to_owned));
        }
        Known {
            uid: text(&node["metadata"]["uid"]),
            labels: labels.map(|(key, value)| (key.clone(), text(value))).collect(),
            pod_cidrs,
        }
    }
}

/// Shared by those who go by it.
pub struct Seen {
    path: PathBuf,
    known: Mutex<Option<Arc<Known>>>,
}

impl Seen {
    /// With what was known when the agent last ran.
    pub fn open(path: PathBuf) -> Seen {
        let known = match disk::read(&path, MAX_FILE) {
            Ok(text) => serde_json::from_slice(&text).map_err(|e| log::warn!("{}: {e}", path.display())).ok(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => {
                log::warn!("reading {}: {e}", path.display());
                None
            }
        };
        Seen { path, known: Mutex::new(known.map(Arc::new)) }
    }

    /// `None` while the server has never been heard.
    pub fn known(&self) -> Option<Arc<Known>> {
        self.known.lock().clone()
    }

    /// The server has this node.
    pub fn note(&self, node: &Value) -> Arc<Known> {
        let new = Arc::new(Known::of(node));
        let mut known = self.known.lock();
        if let Some(same) = known.as_ref().filter(|before| **before == new) {
            return same.clone();
        }
        *known = Some(new.clone());
        drop(known);
        let text = serde_json::to_vec(&*new).map_err(std::io::Error::from);
        if let Err(e) = text.and_then(|text| disk::write_atomic(&self.path, &text, 0o600)) {
            log::warn!("writing {}: {e}", self.path.display());
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_is_known_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("node.json");
        let seen = Seen::open(path.clone());
        assert_eq!(seen.known(), None);
        let node = json!({
            "metadata": {"uid": "u", "labels": {"a": "b"}, "managedFields": []},
            "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"]},
        });
        let known = seen.note(&node);
        assert_eq!((known.uid.as_str(), known.labels["a"].as_str(), known.pod_cidrs.len()), ("u", "b", 2));
        assert_eq!(Seen::open(path.clone()).known(), Some(known));
        let old = json!({"spec": {"podCIDR": "10.0.0.0/24"}});
        assert_eq!(seen.note(&old).pod_cidrs, ["10.0.0.0/24"]);
        std::fs::write(&path, "{").expect("writes");
        assert_eq!(Seen::open(path).known(), None);
    }
}
