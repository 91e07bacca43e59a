//! The names of cgroups: paths for cgroupfs, slices for systemd
//! (pkg/kubelet/cm/cgroup_manager_linux.go).

use crate::config::CgroupDriver;
use crate::pod::PodUid;

/// The parts of a cgroup's path, as no driver has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(Vec<String>);

impl Name {
    /// From what the configuration says. A slice's name holds those of the slices that it is in.
    pub fn parse(path: &str, driver: CgroupDriver) -> Name {
        let slice = path.rsplit('/').next().and_then(|last| last.strip_suffix(".slice"));
        match slice.filter(|_| driver == CgroupDriver::Systemd) {
            Some(slice) => Name(slice.split('-').map(unescape).collect()),
            None => Name(path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()),
        }
    }

    pub fn child(&self, part: &str) -> Name {
        Name(self.0.iter().cloned().chain([part.to_owned()]).collect())
    }

    pub fn pod(&self, uid: &PodUid) -> Name {
        self.child(&format!("{POD}{uid}"))
    }

    /// This one and those above it, from the top.
    pub fn lineage(&self) -> impl Iterator<Item = Name> + '_ {
        (1..=self.0.len()).map(|n| Name(self.0.iter().take(n).cloned().collect()))
    }

    /// The directory of the cgroup below its mount; begins with a slash.
    pub fn path(&self, driver: CgroupDriver) -> String {
        match driver {
            CgroupDriver::Cgroupfs => format!("/{}", self.0.join("/")),
            CgroupDriver::Systemd => {
                self.lineage().map(|name| format!("/{}", name.slice())).collect::<Vec<_>>().concat()
            }
        }
    }

    /// The slice in which systemd has it. A `-` would be a step down, and so stands as `_`.
    pub fn slice(&self) -> String {
        let parts: Vec<String> = self.0.iter().map(|part| escape(part)).collect();
        format!("{}.slice", parts.join("-"))
    }

    /// What the runtime is told to make the pod's cgroups in.
    pub fn cgroup_parent(&self, driver: CgroupDriver) -> String {
        match driver {
            CgroupDriver::Cgroupfs => self.path(driver),
            CgroupDriver::Systemd => self.slice(),
        }
    }
}

const POD: &str = "pod";

/// The pod whose cgroup this directory is, by its name.
pub fn pod_of(directory: &str, driver: CgroupDriver) -> Option<PodUid> {
    let part = match driver {
        CgroupDriver::Cgroupfs => directory.to_owned(),
        CgroupDriver::Systemd => last_of_slice(directory.strip_suffix(".slice")?),
    };
    PodUid::checked(part.strip_prefix(POD)?)
}

fn last_of_slice(name: &str) -> String {
    unescape(name.rsplit('-').next().unwrap_or(name))
}

/// As systemd escapes a character that means something else.
const UNDERSCORE: &str = "\\x5f";

fn escape(part: &str) -> String {
    part.replace('_', UNDERSCORE).replace('-', "_")
}

fn unescape(part: &str) -> String {
    part.replace('_', "-").replace(UNDERSCORE, "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use CgroupDriver::{Cgroupfs, Systemd};

    #[test]
    fn paths_and_slices() {
        let uid = PodUid::new("1234-abcd");
        let of = |root: &str| Name::parse(root, Cgroupfs).child("kubepods");
        let table = [
            (of("").pod(&uid), "/kubepods/pod1234-abcd", "/kubepods.slice/kubepods-pod1234_abcd.slice"),
            (
                of("/").child("burstable").pod(&uid),
                "/kubepods/burstable/pod1234-abcd",
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_abcd.slice",
            ),
            (of("/edge-1"), "/edge-1/kubepods", "/edge_1.slice/edge_1-kubepods.slice"),
            (of("/a/b"), "/a/b/kubepods", "/a.slice/a-b.slice/a-b-kubepods.slice"),
        ];
        for (name, path, slices) in table {
            assert_eq!((name.path(Cgroupfs).as_str(), name.path(Systemd).as_str()), (path, slices));
            assert_eq!(name.cgroup_parent(Cgroupfs), path);
            assert_eq!(Some(name.cgroup_parent(Systemd).as_str()), slices.rsplit('/').next());
        }
        let name = Name::parse("/a/b", Cgroupfs);
        assert_eq!(name.lineage().map(|n| n.path(Cgroupfs)).collect::<Vec<_>>(), ["/a", "/a/b"]);
        assert_eq!(Name::parse("/", Cgroupfs).path(Cgroupfs), "/");
    }

    #[test]
    fn slices_in_the_configuration() {
        for (path, want) in [
            ("/edge.slice", "/edge.slice"),
            ("/edge.slice/edge-my_node.slice", "/edge.slice/edge-my_node.slice"),
            ("edge-a.slice", "/edge.slice/edge-a.slice"),
            ("/edge-1", "/edge_1.slice"),
        ] {
            assert_eq!(Name::parse(path, Systemd).path(Systemd), want, "{path}");
        }
        assert_eq!(Name::parse("/edge.slice/x", Cgroupfs).path(Cgroupfs), "/edge.slice/x");
    }

    #[test]
    fn a_pod_is_known_by_its_directory() {
        for uid in ["1234-abcd", "a_b", "a-b_c", "x.y", "5f4dcc3b5aa765d61d8327deb882cf99"] {
            let uid = PodUid::new(uid);
            for driver in [Cgroupfs, Systemd] {
                let name = Name::parse("/", driver).child("kubepods").child("besteffort").pod(&uid);
                let path = name.path(driver);
                let directory = path.rsplit('/').next().unwrap_or_default();
                assert_eq!(pod_of(directory, driver), Some(uid.clone()), "{directory}");
            }
        }
        for directory in ["burstable", "pod", "pod..", "crio-1.scope", "kubepods-burstable"] {
            assert_eq!(pod_of(directory, Cgroupfs), None, "{directory}");
        }
        for directory in ["kubepods-burstable.slice", "podx", "kubepods-podx.scope", "kubepods-pod.slice"] {
            assert_eq!(pod_of(directory, Systemd), None, "{directory}");
        }
    }
}
