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

/// One pod's status is written so often in the long run: a container that crashes over and over must
/// not wear the flash out.
const STATUS_PERIOD: Duration = Duration::from_secs(60);
/// And so often at first: a pod that has just become ready is to be known as such if the agent is
/// started again.
const STATUS_BURST: u32 = 5;

/// A status that was written to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    digest: u64,
    /// When a period will have passed for each writing.
    paid: Instant,
}

impl Kept {
    /// What an agent before this one has written.
    pub fn before(status: &core::PodStatus, now: Instant) -> Kept {
        Kept { digest: digest(status), paid: now }
    }
}

/// Keeps the status on disk if what can't be had from the runtime again is other than what is there.
/// Returns after how long to come again, when it is too early to write.
///
/// # Errors
/// When it can't be written.
pub fn keep_status(
    paths: &Paths,
    uid: &PodUid,
    kept: &mut Option<Kept>,
    status: &core::PodStatus,
    now: Instant,
) -> Result<Option<Duration>, Error> {
    let digest = digest(status);
    let mut paid = now;
    if let Some(kept) = kept {
        if kept.digest == digest {
            return Ok(None);
        }
        let wait = kept.paid.saturating_duration_since(now + STATUS_PERIOD * (STATUS_BURST - 1));
        if !wait.is_zero() && !status::is_terminal(status) {
            return Ok(Some(wait));
        }
        paid = kept.paid.max(now);
    }
    let path = paths.status(uid);
    let bytes = serde_json::to_vec(status).map_err(|e| Error::io("writing", &path, e.into()))?;
    disk::write_atomic(&path, &bytes, 0o600).map_err(|e| Error::io("writing", &path, e))?;
    *kept = Some(Kept { digest, paid: paid + STATUS_PERIOD });
    Ok(None)
}

/// Keeps the status of a pod that has ended, of which nothing is to run any more.
pub fn keep_end(paths: &Paths, uid: &PodUid, status: &core::PodStatus) {
    match keep_status(paths, uid, &mut None, status, Instant::now()) {
        // It is gone, or never began.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => log::warn!("keeping the end of pod {uid}: {e}"),
        Ok(_) => {}
    }
}

/// Over what makes a status worth keeping.
fn digest(status: &core::PodStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&status.phase, &status.reason).hash(&mut hasher);
    for c in status.conditions.iter().flatten() {
        (&c.type_, &c.status).hash(&mut hasher);
    }
    for c in status.init_container_statuses.iter().chain(&status.container_statuses).flatten() {
        (&c.name, c.restart_count, c.started, c.ready).hash(&mut hasher);
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
    let entries = disk::entries(&directory).into_iter();
    let uids = entries.filter_map(|path| PodUid::checked(path.file_name()?.to_str()?));
    uids.filter_map(|uid| {
        let path = paths.record(&uid);
        match read(&path, &uid) {
            Ok(pod) => pod.map(|pod| Known { pod: Arc::new(pod), status: read_status(paths, &uid).map(Arc::new) }),
            Err(why) => {
                disk::put_aside(&path, &why);
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
    Ok(Some(Pod { uid: uid.clone(), name, source, origin, status: None, meta, spec }))
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
        keep_status(&paths, &pod.uid, &mut None, &status, Instant::now()).expect("writes");
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
        // What an agent before has written costs nothing, and is not written again.
        fs::write(paths.status(&uid), "").expect("writes");
        let mut kept = Some(Kept::before(&status("Running", 0), start));
        let mut keep = |phase, count, second| {
            let now = start + Duration::from_secs(second);
            let wait = keep_status(&paths, &uid, &mut kept, &status(phase, count), now).expect("writes");
            (wait.map(|d| d.as_secs()), read_status(&paths, &uid).map(|s| s == status(phase, count)))
        };
        assert_eq!(keep("Running", 0, 0), (None, None));
        for count in 1..=5 {
            assert_eq!(keep("Running", count, 10), (None, Some(true)), "{count}");
        }
        assert_eq!(keep("Running", 6, 10), (Some(60), Some(false)));
        assert_eq!(keep("Running", 7, 60), (Some(10), Some(false)));
        assert_eq!(keep("Running", 7, 70), (None, Some(true)));
        assert_eq!(keep("Running", 7, 71), (None, Some(true)));
        assert_eq!(keep("Running", 8, 71), (Some(59), Some(false)));
        assert_eq!(keep("Failed", 8, 71), (None, Some(true)), "its end is kept at once");
        // Of a pod that is new, whatever it says is news.
        fs::write(paths.status(&uid), "").expect("writes");
        let mut kept = None;
        for at in [start, start + STATUS_PERIOD] {
            let wait = keep_status(&paths, &uid, &mut kept, &status("Running", 0), at).expect("writes");
            assert_eq!((wait, read_status(&paths, &uid)), (None, Some(status("Running", 0))));
        }
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
