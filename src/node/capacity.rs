//! What the machine has, and what of it pods may have
//! (pkg/kubelet/nodestatus/setters.go, pkg/kubelet/cm/node_container_manager_linux.go).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::config::Config;
use crate::config::eviction::{Amount, Signal};
use crate::pod::resources::{Amounts, ResourceList};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// Online.
    pub cpus: u32,
    /// Bytes.
    pub memory: u64,
    /// Bytes.
    pub swap: u64,
    /// Bytes by the size of the pages, for each size that the kernel knows.
    pub huge_pages: BTreeMap<u64, u64>,
    /// How many processes and threads there can be at once.
    pub pids: u64,
    /// Bytes of the file system with the agent's directory.
    pub storage: u64,
}

/// Asks the machine. `root_dir` is on the file system that pods' local data is kept on.
///
/// # Errors
/// With the path that can't be read.
pub fn read(root_dir: &Path) -> io::Result<Capacity> {
    let text = |path: &str| fs::read_to_string(path).map_err(|e| named(path, e));
    let meminfo = text("/proc/meminfo")?;
    let number = |path| text(path).map(|t| t.trim().parse().unwrap_or(u64::MAX));
    let cpus = match text("/sys/devices/system/cpu/online") {
        Ok(list) => cpu_list(&list),
        // No sysfs: then what this process may use.
        Err(_) => std::thread::available_parallelism().ok().and_then(|n| u32::try_from(n.get()).ok()),
    };
    let fs = rustix::fs::statvfs(root_dir).map_err(|e| named(&root_dir.to_string_lossy(), e.into()))?;
    Ok(Capacity {
        cpus: cpus.unwrap_or(1),
        memory: meminfo_bytes(&meminfo, "MemTotal"),
        swap: meminfo_bytes(&meminfo, "SwapTotal"),
        huge_pages: huge_pages(Path::new("/sys/kernel/mm/hugepages"))?,
        pids: number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?),
        storage: fs.f_blocks.saturating_mul(fs.f_frsize),
    })
}

fn named(path: &str, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("reading {path}: {e}"))
}

/// How many CPUs a list like `0-3,5` names.
fn cpu_list(text: &str) -> Option<u32> {
    let mut count: u32 = 0;
    for part in text.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
        count = count.checked_add(to.checked_sub(from)?.checked_add(1)?)?;
    }
    Some(count)
}

/// A line of `/proc/meminfo`; 0 when it isn't there.
pub(super) fn meminfo_bytes(meminfo: &str, field: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// Reads `hugepages-2048kB/nr_hugepages` and its like. Without the directory there are none.
fn huge_pages(directory: &Path) -> io::Result<BTreeMap<u64, u64>> {
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries?,
    };
    let mut all = BTreeMap::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let kib = name.to_str().and_then(|n| n.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok());
        let Some(size) = kib.and_then(|kib| kib.checked_mul(1024)) else { continue };
        let count = fs::read_to_string(entry.path().join("nr_hugepages"))?.trim().parse::<u64>().unwrap_or(0);
        all.insert(size, size.saturating_mul(count));
    }
    Ok(all)
}

/// `hugepages-2Mi` for pages of 2 MiB.
pub fn huge_page_resource(size: u64) -> String {
    let units = [(1u64 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    match units.iter().find(|(unit, _)| size % unit == 0) {
        Some((unit, suffix)) => format!("hugepages-{}{suffix}", size / unit),
        None => format!("hugepages-{size}"),
    }
}

/// What is kept from pods.
#[derive(Debug, Clone, Copy)]
pub struct Reserves<'a> {
    pub kube: &'a ResourceList,
    pub system: &'a ResourceList,
    /// Thresholds of hard eviction: what is left when they are reached is never given out.
    pub eviction: &'a BTreeMap<Signal, Amount>,
}

impl Reserves<'_> {
    pub fn of(config: &Config) -> Reserves<'_> {
        Reserves { kube: &config.kube_reserved, system: &config.system_reserved, eviction: &config.eviction.hard }
    }

    fn sum(&self, name: &str) -> i64 {
        let of = |list: &ResourceList| Amounts::from(list.clone()).get(name);
        of(self.kube).saturating_add(of(self.system))
    }

    /// What hard eviction keeps free of this resource.
    fn kept(&self, name: &str, capacity: i64) -> i64 {
        let signal = match name {
            "memory" => Signal::MemoryAvailable,
            "ephemeral-storage" => Signal::NodeFsAvailable,
            _ => return 0,
        };
        match self.eviction.get(&signal) {
            Some(Amount::Quantity(quantity)) => quantity.value(),
            #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
            Some(Amount::Percent(percent)) => (capacity as f64 * percent / 100.0) as i64,
            None => 0,
        }
    }
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// How many pods there may be: `maxPods`, and no more than `podsPerCore` for each CPU.
fn pods(config: &Config, cpus: u32) -> u32 {
    match config.pods_per_core {
        0 => config.max_pods,
        per_core => config.max_pods.min(per_core.saturating_mul(cpus)),
    }
}

impl Capacity {
    /// As a node's status has it. `pods` is how many pods there may be.
    fn with_pods(&self, pods: u32) -> Amounts {
        let mut all = Amounts::default();
        all.set("cpu", i64::from(self.cpus) * 1000);
        all.set("memory", signed(self.memory));
        all.set("ephemeral-storage", signed(self.storage));
        all.set("pods", i64::from(pods));
        for (size, bytes) in &self.huge_pages {
            all.set(&huge_page_resource(*size), signed(*bytes));
        }
        all
    }

    /// The node's capacity.
    pub fn amounts(&self, config: &Config) -> Amounts {
        let mut all = self.with_pods(pods(config, self.cpus));
        if !config.local_storage_capacity_isolation {
            all = all.iter().filter(|(name, _)| *name != "ephemeral-storage").map(|(n, a)| (n.to_owned(), a)).collect();
        }
        all
    }

    /// What of it pods can be given.
    pub fn allocatable(&self, config: &Config) -> Amounts {
        self.less(&self.amounts(config), &Reserves::of(config))
    }

    /// The resources of which more is reserved than there is: such a configuration leaves pods
    /// nothing, and the agent should not start with it.
    pub fn overdrawn(&self, config: &Config) -> Vec<String> {
        let reserves = Reserves::of(config);
        let over =
            |(name, amount): &(&str, i64)| reserves.sum(name).saturating_add(reserves.kept(name, *amount)) > *amount;
        self.amounts(config).iter().filter(over).map(|(name, _)| name.to_owned()).collect()
    }

    /// `all` without what is reserved. Huge pages take from the memory.
    fn less(&self, all: &Amounts, reserves: &Reserves<'_>) -> Amounts {
        let left = all.iter().map(|(name, amount)| {
            let huge = if name == "memory" { self.huge_pages.values().copied().map(signed).sum() } else { 0 };
            let left = amount.saturating_sub(reserves.sum(name)).saturating_sub(reserves.kept(name, amount)).max(0);
            (name.to_owned(), left.saturating_sub(huge).max(0))
        });
        left.collect()
    }

    /// What the cgroup above all pods is held to: all that there is or, where that is enforced for
    /// pods, what is left of it for them. Here eviction is not taken off: it must come before the
    /// limit is reached.
    pub fn enforced(&self, reserves: Option<&Reserves<'_>>) -> Amounts {
        let mut all = self.with_pods(0);
        all.set("pid", signed(self.pids));
        let reserved = |name: &str| reserves.map_or(0, |r| r.sum(name));
        let kept = all.iter().filter(|(name, _)| !matches!(*name, "pods" | "ephemeral-storage"));
        kept.map(|(name, amount)| (name.to_owned(), amount.saturating_sub(reserved(name)).max(0))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::quantity::Quantity;

    fn list(text: &str) -> ResourceList {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, q)| (name.to_owned(), Quantity::parse(q).expect("a quantity"))).collect()
    }

    fn machine() -> Capacity {
        Capacity {
            cpus: 4,
            memory: 1 << 30,
            swap: 0,
            huge_pages: BTreeMap::from([(2 << 20, 64 << 20), (1 << 30, 0)]),
            pids: 32768,
            storage: 100 << 30,
        }
    }

    #[test]
    fn lists_of_cpus() {
        for (text, want) in [
            ("0\n", Some(1)),
            ("0-1\n", Some(2)),
            ("0-3,5,8-9", Some(7)),
            ("", None),
            ("3-1", None),
            ("0-4294967295", None),
            ("x", None),
        ] {
            assert_eq!(cpu_list(text), want, "{text:?}");
        }
    }

    #[test]
    fn memory() {
        let text = "MemTotal:        4045916 kB\nMemFree:  1 kB\nSwapTotal:             8 kB\n";
        assert_eq!(meminfo_bytes(text, "MemTotal"), 4_045_916 * 1024);
        assert_eq!(meminfo_bytes(text, "SwapTotal"), 8192);
        assert_eq!(meminfo_bytes(text, "Mem"), 0);
        assert_eq!(meminfo_bytes("MemTotal: many kB", "MemTotal"), 0);
    }

    #[test]
    fn huge_pages_of_all_sizes() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, count) in [("hugepages-2048kB", "3\n"), ("hugepages-1048576kB", "0\n"), ("other", "1")] {
            fs::create_dir(dir.path().join(name)).expect("makes");
            fs::write(dir.path().join(name).join("nr_hugepages"), count).expect("writes");
        }
        let got = huge_pages(dir.path()).expect("reads");
        assert_eq!(got, BTreeMap::from([(2 << 20, 6 << 20), (1 << 30, 0)]));
        assert_eq!(huge_pages(&dir.path().join("none")).expect("reads"), BTreeMap::new());
        assert_eq!(huge_page_resource(2 << 20), "hugepages-2Mi");
        assert_eq!(huge_page_resource(1 << 30), "hugepages-1Gi");
        assert_eq!(huge_page_resource(64 << 10), "hugepages-64Ki");
    }

    #[test]
    fn pods_get_what_is_not_reserved() {
        let (kube, system) = (list("cpu=100m memory=10Mi pid=100"), list("cpu=1 ephemeral-storage=1Gi"));
        let hard = BTreeMap::from([
            (Signal::MemoryAvailable, Amount::Quantity(Quantity::parse("100Mi").expect("a quantity"))),
            (Signal::NodeFsAvailable, Amount::Percent(10.0)),
        ]);
        let reserves = Reserves { kube: &kube, system: &system, eviction: &hard };
        let machine = machine();
        let all = machine.with_pods(110);
        assert_eq!((all.get("cpu"), all.get("memory"), all.get("pods")), (4000, 1 << 30, 110));
        assert_eq!((all.get("hugepages-2Mi"), all.get("hugepages-1Gi")), (64 << 20, 0));
        let left = machine.less(&all, &reserves);
        assert_eq!(left.get("cpu"), 2900);
        assert_eq!(left.get("memory"), (1024 - 10 - 100 - 64) << 20);
        assert_eq!(left.get("ephemeral-storage"), 89 << 30);
        assert_eq!(left.get("hugepages-2Mi"), 64 << 20);
        assert_eq!(left.get("pods"), 110);
        let much = list("cpu=5 memory=2Gi");
        let left = machine.less(&all, &Reserves { kube: &much, ..reserves });
        assert_eq!((left.get("cpu"), left.get("memory")), (0, 0));
    }

    #[test]
    fn the_cgroup_of_all_pods_leaves_eviction_its_room() {
        let (kube, system) = (list("cpu=100m memory=10Mi pid=100"), list(""));
        let hard = BTreeMap::from([(Signal::MemoryAvailable, Amount::Percent(50.0))]);
        let machine = machine();
        let held = machine.enforced(Some(&Reserves { kube: &kube, system: &system, eviction: &hard }));
        assert_eq!((held.get("cpu"), held.get("memory"), held.get("pid")), (3900, 1014 << 20, 32668));
        let all = machine.enforced(None);
        assert_eq!((all.get("cpu"), all.get("memory"), all.get("pid")), (4000, 1 << 30, 32768));
        assert_eq!(all.get("hugepages-2Mi"), 64 << 20);
        assert!(!all.contains("pods") && !all.contains("ephemeral-storage"));
    }

    #[test]
    fn this_machine_has_something() {
        let all = read(Path::new("/")).expect("reads");
        assert!(all.cpus >= 1 && all.memory > 1 << 20 && all.pids > 100 && all.storage > 1 << 20, "{all:?}");
    }
}
