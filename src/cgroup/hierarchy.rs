//! Where cgroups are mounted: each controller by itself (v1), all in one tree (v2), or v1 with an
//! empty v2 beside it (hybrid).

use std::fs;
use std::path::{Path, PathBuf};

use super::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    /// On v2, those that there are at its root. A v1 tree without a controller is called
    /// `name=systemd` and its like; the v2 tree of a hybrid has none that we use.
    pub controllers: Vec<String>,
}

/// The trees in which a pod's cgroups are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    version: Version,
    mounts: Vec<Mount>,
}

/// Those of v1; the rest of a mount's options are none.
const CONTROLLERS: [&str; 14] = [
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "misc",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
];
/// A cgroup is there when it is there for these.
const COUNTED: [&str; 6] = ["cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb"];

impl Hierarchy {
    /// As it is mounted on this machine.
    pub fn read() -> Result<Hierarchy> {
        let path = Path::new("/proc/self/mountinfo");
        let table = fs::read_to_string(path).map_err(Error::io("reading", path))?;
        let mut found = Hierarchy::parse(&table).ok_or(Error::NotMounted)?;
        if let (Version::V2, [root]) = (found.version, found.mounts.as_mut_slice()) {
            let path = root.point.join("cgroup.controllers");
            let list = fs::read_to_string(&path).map_err(Error::io("reading", &path))?;
            root.controllers = list.split_whitespace().map(str::to_owned).collect();
        }
        Ok(found)
    }

    /// From the lines of mountinfo; `None` when there are no cgroups in it.
    fn parse(mountinfo: &str) -> Option<Hierarchy> {
        let mut v1: Vec<Found<'_>> = Vec::new();
        let mut v2: Vec<Found<'_>> = Vec::new();
        for found in mountinfo.lines().filter_map(Found::parse) {
            let list = if found.version == Version::V1 { &mut v1 } else { &mut v2 };
            match list.iter_mut().find(|other| other.controllers == found.controllers) {
                Some(other) if found.is_better_than(other) => *other = found,
                Some(_) => {}
                None => list.push(found),
            }
        }
        let uses = |names: &[&str]| v1.iter().any(|m| m.controllers.iter().any(|c| names.contains(c)));
        if uses(&["cpu", "memory"]) {
            return Some(Hierarchy::v1(v1.iter().chain(&v2).map(Found::mount).collect()));
        }
        Some(Hierarchy::v2(v2.first()?.mount()))
    }

    pub(super) fn v1(mounts: Vec<Mount>) -> Hierarchy {
        Hierarchy { version: Version::V1, mounts }
    }

    pub(super) fn v2(mount: Mount) -> Hierarchy {
        Hierarchy { version: Version::V2, mounts: vec![mount] }
    }

    pub fn version(&self) -> Version {
        self.version
    }

    pub(super) fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// Those in which a cgroup must be to count as there.
    pub(super) fn counted(&self) -> impl Iterator<Item = &Mount> {
        let counts = |m: &&Mount| m.controllers.iter().any(|c| COUNTED.contains(&c.as_str()));
        self.mounts.iter().filter(move |m| self.version == Version::V2 || counts(m))
    }

    /// The directory of a cgroup for one controller; `None` without that controller.
    pub(super) fn directory(&self, controller: &str, path: &str) -> Option<PathBuf> {
        let mount = self.mounts.iter().find(|m| m.controllers.iter().any(|c| c == controller))?;
        Some(join(&mount.point, path))
    }

    /// Controllers without which the agent can't do its work.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let needed: &[&str] = match self.version {
            Version::V1 => &["cpu", "cpuacct", "cpuset", "memory"],
            Version::V2 => &["cpu", "memory"],
        };
        let there = |name: &&&str| self.mounts.iter().any(|m| m.controllers.iter().any(|c| c == **name));
        needed.iter().filter(|name| !there(name)).copied().collect()
    }

    /// Whether the kernel can limit swap. On v2 the root doesn't tell; what is in it does.
    pub fn limits_swap(&self) -> bool {
        let Some(memory) = self.directory("memory", "/") else { return false };
        if self.version == Version::V1 {
            return memory.join("memory.memsw.limit_in_bytes").exists();
        }
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = own.lines().find_map(|line| line.strip_prefix("0::")).map(|path| join(&memory, path));
        let entries = fs::read_dir(&memory).into_iter().flatten().flatten();
        let mut all = own.into_iter().chain(entries.map(|entry| entry.path()));
        all.any(|directory| directory.join("memory.swap.max").exists())
    }
}

/// A cgroup's path begins with a slash; below its mount it does not.
pub(super) fn join(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_start_matches('/'))
}

/// A line of mountinfo.
struct Found<'a> {
    version: Version,
    /// What of the tree is mounted; all of it is `/`.
    root: &'a str,
    point: &'a str,
    controllers: Vec<&'a str>,
}

impl<'a> Found<'a> {
    fn parse(line: &'a str) -> Option<Found<'a>> {
        let (mount, source) = line.split_once(" - ")?;
        let mut mount = mount.split(' ');
        let (root, point) = (mount.nth(3)?, mount.next()?);
        let mut source = source.split(' ');
        let kind = source.next()?;
        let options = source.nth(1)?.split(',');
        let version = match kind {
            "cgroup" => Version::V1,
            "cgroup2" => Version::V2,
            _ => return None,
        };
        // Blanks are written as escapes; nobody mounts cgroups there.
        if point.contains('\\') {
            return None;
        }
        let named = |o: &&str| CONTROLLERS.contains(o) || o.starts_with("name=");
        let controllers = if version == Version::V1 { options.filter(named).collect() } else { Vec::new() };
        Some(Found { version, root, point, controllers })
    }

    /// The whole tree rather than a part of it, then the shortest path.
    fn is_better_than(&self, other: &Found<'_>) -> bool {
        let rank = |m: &Found<'_>| (m.root != "/", m.point.len());
        rank(self) < rank(other)
    }

    fn mount(&self) -> Mount {
        let controllers = self.controllers.iter().map(|c| (*c).to_owned()).collect();
        Mount { point: self.point.into(), controllers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
31 22 0:28 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate
33 31 0:30 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup rw,xattr,name=systemd
34 31 0:31 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/cpuset rw shared:13 - cgroup cgroup rw,cpuset,clone_children
36 31 0:33 / /sys/fs/cgroup/memory rw shared:14 - cgroup cgroup rw,memory
37 22 0:33 / /mnt/elsewhere/memory rw - cgroup cgroup rw,memory
38 22 0:33 /docker/x /m rw - cgroup cgroup rw,memory
39 22 0:34 / /odd\\040place rw - cgroup cgroup rw,pids
";

    fn shown(h: &Hierarchy) -> Vec<String> {
        h.mounts.iter().map(|m| format!("{}: {}", m.point.display(), m.controllers.join(","))).collect()
    }

    #[test]
    fn hybrid() {
        let h = Hierarchy::parse(V1).expect("has cgroups");
        assert_eq!(h.version(), Version::V1);
        let want = [
            "/sys/fs/cgroup/systemd: name=systemd",
            "/sys/fs/cgroup/cpu,cpuacct: cpu,cpuacct",
            "/sys/fs/cgroup/cpuset: cpuset",
            "/sys/fs/cgroup/memory: memory",
            "/sys/fs/cgroup/unified: ",
        ];
        assert_eq!(shown(&h), want);
        assert_eq!(h.counted().count(), 3);
        let directory = |c| h.directory(c, "/kubepods/burstable");
        assert_eq!(directory("cpuacct"), Some("/sys/fs/cgroup/cpu,cpuacct/kubepods/burstable".into()));
        assert_eq!(directory("pids"), None);
        assert_eq!(h.missing(), [""; 0]);
    }

    #[test]
    fn v2() {
        let line =
            "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup rw,nsdelegate,memory_recursiveprot\n";
        let mut h = Hierarchy::parse(line).expect("has cgroups");
        assert_eq!((h.version(), shown(&h)), (Version::V2, vec!["/sys/fs/cgroup: ".to_owned()]));
        assert_eq!(h.counted().count(), 1);
        assert_eq!(h.missing(), ["cpu", "memory"]);
        h.mounts[0].controllers = ["cpu", "memory"].map(str::to_owned).into();
        assert_eq!(h.missing(), [""; 0]);
        // A v1 tree of systemd's alone makes no v1 machine.
        let with = format!("{line}33 31 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n");
        assert_eq!(Hierarchy::parse(&with).map(|h| h.version()), Some(Version::V2));
    }

    #[test]
    fn nothing_to_use() {
        for text in ["", "x", "22 1 254:0 / / rw - ext4 /dev/root rw", " - cgroup", "1 2 3 / /p rw - cgroup2"] {
            assert_eq!(Hierarchy::parse(text), None, "{text:?}");
        }
        let no_memory =
            "34 31 0:31 / /c/cpu rw - cgroup cgroup rw,cpu,cpuacct\n35 31 0:32 / /c/set rw - cgroup c rw,cpuset\n";
        assert_eq!(Hierarchy::parse(no_memory).map(|h| h.missing()), Some(vec!["memory"]));
    }
}
