//! A record of each pod in its directory, so that an agent that was killed, or a node that lost its
//! power, knows its pods again: what a broken manifest gave when it was good, and how a pod whose
//! manifest went meanwhile wants to be ended.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use super::{Error, Paths};
use crate::disk;
use crate::pod::{Pod, PodName, PodUid, Source, core};
use crate::yaml::{self, Node};

#[derive(Serialize)]
pub struct Record<'a> {
    source: &'static str,
    origin: &'a str,
    metadata: &'a ObjectMeta,
    spec: &'a core::PodSpec,
}

/// Writes the pod's record.
pub fn write(paths: &Paths, pod: &Pod) -> Result<(), Error> {
    let path = paths.record(&pod.uid);
    let record = Record { source: pod.source.as_str(), origin: &pod.origin, metadata: &pod.meta, spec: &pod.spec };
    let bytes = serde_json::to_vec(&record).map_err(|e| Error::io("writing", &path, e.into()))?;
    disk::write_atomic(&path, &bytes, 0o600).map_err(|e| Error::io("writing", &path, e))
}

/// All pods that have a good record. A bad one is put aside: the pod is known from the runtime alone
/// then.
pub fn read_all(paths: &Paths) -> Vec<Arc<Pod>> {
    let directory = paths.pods();
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(e) => {
            if e.kind() != std::io::ErrorKind::NotFound {
                log::error!("{}: {e}", directory.display());
            }
            return Vec::new();
        }
    };
    let uids = entries.flatten().filter_map(|entry| PodUid::checked(entry.file_name().to_str()?));
    uids.filter_map(|uid| {
        let path = paths.record(&uid);
        match read(&path, &uid) {
            Ok(pod) => pod.map(Arc::new),
            Err(why) => {
                let aside = path.with_extension("json.bad");
                log::warn!("{}: {why}; put aside as {}", path.display(), aside.display());
                if let Err(e) = fs::rename(&path, &aside) {
                    log::warn!("{}: {e}", path.display());
                }
                None
            }
        }
    })
    .collect()
}

fn read(path: &Path, uid: &PodUid) -> Result<Option<Pod>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.to_string()),
    };
    let root = yaml::parse_one(&text, &mut Vec::new()).map_err(|e| e.to_string())?.ok_or("it is empty")?;
    let get = |key: &str| root.get(key).ok_or_else(|| format!("{key} is missing"));
    let source = match get("source")?.as_str() {
        Some("file") => Source::File,
        Some("http") => Source::Http,
        Some("api") => Source::Api,
        _ => return Err("source is unknown".to_owned()),
    };
    let decode = |node: &Node| yaml::decode::<ObjectMeta>(node).map_err(|e| e.to_string());
    let meta = decode(get("metadata")?)?.value;
    let spec = yaml::decode::<core::PodSpec>(get("spec")?).map_err(|e| e.to_string())?.value;
    if meta.uid.as_deref() != Some(uid.as_str()) {
        return Err("it is that of another pod".to_owned());
    }
    let (Some(namespace), Some(name)) = (&meta.namespace, &meta.name) else {
        return Err("the pod's name is missing".to_owned());
    };
    let name = PodName::new(namespace.as_str(), name.as_str());
    let origin = get("origin")?.as_str().unwrap_or_default().into();
    Ok(Some(Pod { uid: uid.clone(), name, source, origin, meta, spec }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::identity::Origin;
    use crate::source::manifest;

    fn pod() -> Pod {
        let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {a: 'yes'}}\nspec:\n  containers:\n  - {name: main, image: i, resources: {limits: {cpu: 0.5}}, ports: [{containerPort: 80}]}\n";
        let origin =
            Origin { source: Source::File, node_name: "n", place: "/m/web.yaml", seen: jiff::Timestamp::UNIX_EPOCH };
        manifest::read(text, origin).pods.pop().expect("a pod")
    }

    #[test]
    fn a_pod_is_known_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = Paths::new(dir.path(), dir.path());
        assert!(read_all(&paths).is_empty());
        let pod = pod();
        disk::make_dir(&paths.pod(&pod.uid), 0o750).expect("makes");
        write(&paths, &pod).expect("writes");
        assert_eq!(read_all(&paths), [Arc::new(pod)]);
    }

    /// kubernetes#135711, #84783: a corrupt checkpoint stops nothing.
    #[test]
    fn kubernetes_135711_a_corrupt_record_is_put_aside() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = Paths::new(dir.path(), dir.path());
        for (uid, text) in [("a", ""), ("b", "{\"source\":"), ("c", "\0\0\0\0"), ("d", "{}")] {
            let uid = PodUid::new(uid);
            disk::make_dir(&paths.pod(&uid), 0o750).expect("makes");
            fs::write(paths.record(&uid), text).expect("writes");
            assert!(read_all(&paths).is_empty());
            assert!(!paths.record(&uid).exists() && paths.record(&uid).with_extension("json.bad").exists());
        }
    }
}
