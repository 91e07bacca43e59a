//! emptyDir: a directory that lives as long as the pod, on disk, in memory or of huge pages
//! (pkg/volume/emptydir).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::memory::{self, Kind};
use super::ownership::{self, Group};
use super::{Context, Error};
use crate::disk;
use crate::pod::quantity::Quantity;
use crate::pod::{Pod, core, resources};

const HUGE_PAGES: &str = "HugePages";

pub fn setup(context: &Context<'_>, source: &core::EmptyDirVolumeSource, name: &str) -> Result<PathBuf, Error> {
    let path = context.path("empty-dir", name);
    let group = context.fs_group().map(Group::writing);
    match source.medium.as_deref().unwrap_or_default() {
        "" => make(&path, group)?,
        "Memory" => {
            let limit = source.size_limit.as_ref().and_then(|q| Quantity::parse(&q.0));
            memory::setup(&path, Kind::Tmpfs { size: memory_size(context, limit) }, group)?;
        }
        medium if medium.starts_with(HUGE_PAGES) => {
            let page = page_size(context.pod, medium).map_err(Error::Invalid)?;
            memory::setup(&path, Kind::HugePages { page }, group)?;
        }
        medium => return Err(Error::Invalid(format!("unknown storage medium {medium:?}"))),
    }
    Ok(path)
}

/// Makes a directory of anybody's, or of the group's. Once it is there, it is its users'.
pub fn make(path: &Path, group: Option<Group>) -> Result<(), Error> {
    if path.is_dir() {
        return Ok(());
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::Invalid(format!("{} is no place for a directory", path.display())));
    };
    // Under another name until it is as it should be. No volume's name begins with a dot.
    let mut new = std::ffi::OsString::from(".new-");
    new.push(name);
    let new = parent.join(new);
    let made = (|| -> io::Result<()> {
        fs::create_dir_all(parent)?;
        disk::remove_tree(&new)?;
        fs::create_dir(&new)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o777))?;
        group.map_or(Ok(()), |group| ownership::take_path(&new, group))?;
        fs::rename(&new, path)
    })();
    made.map_err(|e| Error::io("making", path, e))
}

/// What a file system in memory may take, in bytes: what the pod, or else all pods, may have, or
/// `limit` where that is less. `None` when neither is known.
pub fn memory_size(context: &Context<'_>, limit: Option<Quantity>) -> Option<u64> {
    let known = [context.allocatable.get("memory").copied(), memory_limit(context.pod), limit];
    let bytes = known.into_iter().flatten().map(Quantity::value).filter(|bytes| *bytes > 0).min()?;
    u64::try_from(bytes).ok()
}

/// The memory that the pod's cgroup is limited to (pkg/kubelet/cm/helpers_linux.go).
fn memory_limit(pod: &Pod) -> Option<Quantity> {
    let limited = resources::is_limited(&pod.spec, "memory");
    limited.then(|| resources::limits(&pod.spec).get("memory").copied())?
}

/// The size of huge pages, in bytes: that which `medium` names, or the only one that the pod asks
/// for.
fn page_size(pod: &Pod, medium: &str) -> Result<u64, String> {
    let size = |text: &str| Quantity::parse(text).and_then(|q| u64::try_from(q.value()).ok()).filter(|s| *s > 0);
    let containers = pod.all_containers().filter_map(|c| c.resources.as_ref()).chain(pod.spec.resources.as_ref());
    let names = containers.filter_map(|r| r.requests.as_ref()).flat_map(|requests| requests.keys());
    let asked: BTreeSet<u64> = names.filter_map(|name| size(name.strip_prefix("hugepages-")?)).collect();
    let none =
        || format!("medium {medium}: hugePages storage requested, but there is no resource request for huge pages");
    match medium.strip_prefix(HUGE_PAGES).and_then(|rest| rest.strip_prefix('-')) {
        Some(text) => size(text).filter(|size| asked.contains(size)).ok_or_else(none),
        None if asked.len() > 1 => {
            Err(format!("medium: {medium} can't be used if container requests multiple huge page sizes"))
        }
        None => asked.first().copied().ok_or_else(none),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{PodName, PodUid, Source};
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        Pod {
            uid: PodUid::new("u"),
            name: PodName::new("ns", "web"),
            source: Source::File,
            origin: "".into(),
            status: None,
            meta: Default::default(),
            spec: serde_json::from_value(spec).expect("a spec"),
        }
    }

    fn container(limit: &str) -> Value {
        json!({"name": "c", "resources": {"limits": {"memory": limit}}})
    }

    #[test]
    fn memory_limits() {
        let c = container;
        let sidecar = |limit| {
            let mut c = container(limit);
            c["restartPolicy"] = json!("Always");
            c
        };
        let table = [
            (json!({"containers": [c("1"), c("2")]}), Some(3)),
            (json!({"containers": [c("1"), {"name": "d"}]}), None),
            (json!({"containers": [c("1"), c("0")]}), None),
            (json!({"containers": [{"name": "d"}], "resources": {"limits": {"memory": "7"}}}), Some(7)),
            (json!({"containers": [c("1")], "initContainers": [c("5"), c("4")]}), Some(5)),
            (json!({"containers": [c("1")], "initContainers": [{"name": "i"}]}), None),
            (json!({"containers": [c("4")], "initContainers": [sidecar("2"), c("3")]}), Some(6)),
            (json!({"containers": [c("1")], "initContainers": [sidecar("2"), c("3")]}), Some(5)),
            (json!({"containers": [c("1")], "overhead": {"memory": "10"}}), Some(11)),
        ];
        for (spec, want) in table {
            assert_eq!(memory_limit(&pod(spec.clone())).map(Quantity::value), want, "{spec}");
        }
    }

    #[test]
    fn page_sizes() {
        let asks = |names: &[&str]| {
            let requests: serde_json::Map<_, _> = names.iter().map(|n| ((*n).to_owned(), json!("4Mi"))).collect();
            pod(json!({"containers": [{"name": "a"}, {"name": "b", "resources": {"requests": requests}}]}))
        };
        let none = |medium: &str| {
            Err(format!(
                "medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
            ))
        };
        let table: &[(&[&str], &str, Result<u64, String>)] = &[
            (&["hugepages-2Mi"], "HugePages", Ok(2 << 20)),
            (&["hugepages-2Mi", "cpu"], "HugePages-2Mi", Ok(2 << 20)),
            (&["hugepages-2Mi", "hugepages-1Gi"], "HugePages-1Gi", Ok(1 << 30)),
            (&["hugepages-2Mi"], "HugePages-1Gi", none("HugePages-1Gi")),
            (&["cpu"], "HugePages", none("HugePages")),
            (
                &["hugepages-2Mi", "hugepages-1Gi"],
                "HugePages",
                Err("medium: HugePages can't be used if container requests multiple huge page sizes".into()),
            ),
        ];
        for (names, medium, want) in table {
            assert_eq!(&page_size(&asks(names), medium), want, "{names:?} {medium}");
        }
    }
}
