//! A record of each pod in its directory, so that an agent that was killed, or a node that lost its
//! power, knows its pods again: what a broken manifest gave when it was good, and how a pod whose
//! manifest went meanwhile wants to be ended.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use super::memory::Kept;
use super::{Error, Paths};
use crate::disk;
use crate::pod::{Pod, PodName, PodUid, Source, core};
use crate::status;
use crate::yaml::{self, Node};

/// A pod that the agent kept before it was started, with its status then.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    pub pod: Arc<Pod>,
    pub status: Option<Arc<core::PodStatus>>,
}

#[derive(Serialize)]
struct Record<'a> {
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

/// Between two writings of one pod's status: a container that crashes over and over must not wear
/// the flash out.
const STATUS_PERIOD: Duration = Duration::from_secs(60);

/// Keeps the status on disk if what can't be had from the runtime again is other than what is there.
/// `before` is the status as it was, which is what is there after the agent was started. Returns
/// after how long to come again, when it is too early to write.
///
/// # Errors
/// When it can't be written.
pub fn keep_status(
    paths: &Paths,
    uid: &PodUid,
    kept: &mut Option<Kept>,
    status: &core::PodStatus,
    before: Option<&core::PodStatus>,
    now: Instant,
) -> Result<Option<Duration>, Error> {
    let digest = digest(status);
    if kept.is_none() {
        *kept = before.map(|before| Kept { digest: self::digest(before), at: now });
    }
    if let Some(kept) = kept {
        if kept.digest == digest {
            return Ok(None);
        }
        let next = kept.at + STATUS_PERIOD;
        if now < next && !status::is_terminal(status) {
            return Ok(Some(next - now));
        }
    }
    let path = paths.status(uid);
    let bytes = serde_json::to_vec(status).map_err(|e| Error::io("writing", &path, e.into()))?;
    disk::write_atomic(&path, &bytes, 0o600).map_err(|e| Error::io("writing", &path, e))?;
    *kept = Some(Kept { digest, at: now });
    Ok(None)
}

/// Over what makes a status worth keeping.
fn digest(status: &core::PodStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&status.phase, &status.reason).hash(&mut hasher);
    for c in status.conditions.iter().flatten() {
        (&c.type_, &c.status).hash(&mut hasher);
    }
    for c in status.init_container_statuses.iter().chain(&status.container_statuses).flatten() {
        (&c.name, c.restart_count).hash(&mut hasher);
    }
    hasher.finish()
}

/// The status of a pod as it was last kept; one that can't be read is as good as none.
fn read_status(paths: &Paths, uid: &PodUid) -> Option<core::PodStatus> {
    let text = fs::read_to_string(paths.status(uid)).ok()?;
    let root = yaml::parse_one(&text, &mut Vec::new()).ok()??;
    Some(yaml::decode::<core::PodStatus>(&root).ok()?.value)
}

/// All pods that have a good record. A bad one is put aside: the pod is known from the runtime alone
/// then.
pub fn read_all(paths: &Paths) -> Vec<Known> {
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
            Ok(pod) => pod.map(|pod| Known { pod: Arc::new(pod), status: read_status(paths, &uid).map(Arc::new) }),
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
        let status = core::PodStatus { phase: Some("Running".to_owned()), ..Default::default() };
        keep_status(&paths, &pod.uid, &mut None, &status, None, Instant::now()).expect("writes");
        assert_eq!(read_all(&paths), [Known { pod: Arc::new(pod), status: Some(Arc::new(status)) }]);
    }

    #[test]
    fn a_status_is_written_when_it_matters_and_not_too_often() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = Paths::new(dir.path(), dir.path());
        let uid = PodUid::new("u");
        disk::make_dir(&paths.pod(&uid), 0o750).expect("makes");
        let status = |phase: &str, restart_count| core::PodStatus {
            phase: Some(phase.to_owned()),
            container_statuses: Some(vec![core::ContainerStatus {
                name: "main".to_owned(),
                restart_count,
                ..Default::default()
            }]),
            ..Default::default()
        };
        let start = Instant::now();
        let mut kept = None;
        let mut keep = |phase, count, second| {
            let now = start + Duration::from_secs(second);
            keep_status(&paths, &uid, &mut kept, &status(phase, count), None, now).expect("writes").map(|d| d.as_secs())
        };
        assert_eq!(keep("Running", 0, 0), None);
        assert_eq!(keep("Running", 0, 1), None);
        assert_eq!(keep("Running", 1, 10), Some(50));
        assert_eq!(read_status(&paths, &uid), Some(status("Running", 0)));
        assert_eq!(keep("Running", 3, 60), None);
        assert_eq!(read_status(&paths, &uid), Some(status("Running", 3)));
        assert_eq!(keep("Failed", 3, 61), None);
        assert_eq!(read_status(&paths, &uid), Some(status("Failed", 3)), "its end is kept at once");
        fs::write(paths.status(&uid), "{").expect("writes");
        assert_eq!(read_status(&paths, &uid), None);
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
