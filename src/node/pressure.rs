//! Whether the node is short of something, by its eviction thresholds
//! (pkg/kubelet/eviction/helpers.go). Only told of, for those who place pods. Pure, but for [`levels`].

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::capacity::meminfo_bytes;
use super::conditions::Pressure;
use crate::config::eviction::{Amount, Eviction, Signal};

/// How much there is left of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    pub available: u64,
    pub capacity: u64,
}

pub type Levels = BTreeMap<Signal, Level>;

/// Asks the kernel; what it doesn't tell is left out. `root`: where pods' local data is; `images`: where
/// the runtime has its images.
pub fn levels(root: &Path, images: &[PathBuf]) -> Levels {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut levels = Levels::new();
    let meminfo = text("/proc/meminfo");
    if let total @ 1.. = meminfo_bytes(&meminfo, "MemTotal") {
        // What isn't in the working set: free, or pages of files that nobody has used for a while.
        let available = meminfo_bytes(&meminfo, "MemFree").saturating_add(meminfo_bytes(&meminfo, "Inactive(file)"));
        levels.insert(Signal::MemoryAvailable, Level { available, capacity: total });
    }
    let pid_max = text("/proc/sys/kernel/pid_max").trim().parse::<u64>().ok();
    let loadavg = text("/proc/loadavg");
    // The fourth field is of those that run, and of all.
    let pids = loadavg.split_whitespace().nth(3).and_then(|field| field.split_once('/')?.1.parse::<u64>().ok());
    if let (Some(capacity), Some(pids)) = (pid_max, pids) {
        levels.insert(Signal::PidAvailable, Level { available: capacity.saturating_sub(pids), capacity });
    }
    filesystem(root, [Signal::NodeFsAvailable, Signal::NodeFsInodesFree], &mut levels);
    for path in images {
        filesystem(path, [Signal::ImageFsAvailable, Signal::ImageFsInodesFree], &mut levels);
    }
    levels
}

/// Of several for one signal, the one that is fullest counts.
fn filesystem(path: &Path, [bytes, inodes]: [Signal; 2], levels: &mut Levels) {
    let Ok(fs) = rustix::fs::statvfs(path) else { return };
    let size = |blocks: u64| blocks.saturating_mul(fs.f_frsize);
    let mut put = |signal, level: Level| {
        let fuller = |other: &Level| other.available <= level.available;
        // Some file systems make inodes as they are needed, and have no number of them.
        if level.capacity > 0 && !levels.get(&signal).is_some_and(fuller) {
            levels.insert(signal, level);
        }
    };
    put(bytes, Level { available: size(fs.f_bavail), capacity: size(fs.f_blocks) });
    put(inodes, Level { available: fs.f_favail, capacity: fs.f_files });
}

/// What the node is short of, and for how long that counts.
#[derive(Debug)]
pub struct Pressures {
    thresholds: Vec<(Signal, Amount)>,
    /// A shortage that is over is told of for so long, or pods would come and go.
    transition: Duration,
    /// When there was last too little memory, disk and PIDs.
    last: [Option<Instant>; 3],
}

impl Pressures {
    pub fn new(eviction: &Eviction) -> Pressures {
        let hard = eviction.hard.iter().map(|(signal, amount)| (*signal, *amount));
        let soft = eviction.soft.iter().map(|(signal, threshold)| (*signal, threshold.amount));
        let thresholds = hard.chain(soft).collect();
        Pressures { thresholds, transition: eviction.pressure_transition_period, last: [None; 3] }
    }

    pub fn observe(&mut self, levels: &Levels, now: Instant) -> Pressure {
        for (signal, amount) in &self.thresholds {
            let Some(level) = levels.get(signal) else { continue };
            if level.available < least(*amount, level.capacity) {
                if let Some(last) = kind(*signal).and_then(|kind| self.last.get_mut(kind)) {
                    *last = Some(now);
                }
            }
        }
        let [memory, disk, pid] = self
            .last
            .map(|last| last.is_some_and(|at| now == at || now.saturating_duration_since(at) < self.transition));
        Pressure { memory, disk, pid }
    }
}

fn kind(signal: Signal) -> Option<usize> {
    Some(match signal {
        Signal::MemoryAvailable => 0,
        Signal::NodeFsAvailable | Signal::NodeFsInodesFree => 1,
        Signal::ImageFsAvailable | Signal::ImageFsInodesFree => 1,
        Signal::PidAvailable => 2,
        // Not measured.
        Signal::AllocatableMemoryAvailable | Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree => {
            return None;
        }
    })
}

fn least(amount: Amount, capacity: u64) -> u64 {
    match amount {
        Amount::Quantity(quantity) => u64::try_from(quantity.value()).unwrap_or_default(),
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        Amount::Percent(percent) => (capacity as f64 * percent / 100.0) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::eviction::SoftThreshold;
    use crate::pod::quantity::Quantity;

    fn pressures() -> Pressures {
        let soft = SoftThreshold { amount: Amount::Percent(20.0), grace_period: Duration::from_secs(90) };
        Pressures::new(&Eviction {
            hard: [
                (Signal::MemoryAvailable, Amount::Quantity(Quantity::of_value(100))),
                (Signal::NodeFsAvailable, Amount::Percent(10.0)),
                (Signal::ImageFsInodesFree, Amount::Percent(5.0)),
                (Signal::PidAvailable, Amount::Quantity(Quantity::of_value(10))),
            ]
            .into(),
            soft: [(Signal::NodeFsAvailable, soft)].into(),
            minimum_reclaim: BTreeMap::new(),
            pressure_transition_period: Duration::from_secs(300),
            max_pod_grace_period: None,
        })
    }

    #[test]
    fn thresholds() {
        let now = Instant::now();
        let none = Pressure::default();
        let (memory, disk) = (Pressure { memory: true, ..none }, Pressure { disk: true, ..none });
        for (signal, available, pressure) in [
            (Signal::MemoryAvailable, 100, none),
            (Signal::MemoryAvailable, 99, memory),
            (Signal::NodeFsAvailable, 200, none),
            (Signal::NodeFsAvailable, 199, disk),
            (Signal::NodeFsInodesFree, 0, none),
            (Signal::ImageFsInodesFree, 49, disk),
            (Signal::PidAvailable, 9, Pressure { pid: true, ..none }),
        ] {
            let levels = Levels::from([(signal, Level { available, capacity: 1000 })]);
            assert_eq!(pressures().observe(&levels, now), pressure, "{signal} {available}");
        }
        assert_eq!(pressures().observe(&Levels::new(), now), none);
    }

    #[test]
    fn a_shortage_counts_for_a_while() {
        let mut pressures = pressures();
        let start = Instant::now();
        let mut at = |seconds, available| {
            let levels = Levels::from([(Signal::MemoryAvailable, Level { available, capacity: 1000 })]);
            pressures.observe(&levels, start + Duration::from_secs(seconds)).memory
        };
        let seen = [(0, 500), (10, 50), (20, 50), (30, 500), (319, 500), (320, 500)].map(|(s, free)| at(s, free));
        assert_eq!(seen, [false, true, true, true, true, false]);
    }

    #[test]
    fn of_this_machine() {
        let levels = levels(Path::new("/"), &["/proc/none".into()]);
        for signal in [Signal::MemoryAvailable, Signal::PidAvailable, Signal::NodeFsAvailable] {
            let level = levels.get(&signal).expect("is told");
            assert!(level.available > 0 && level.available <= level.capacity, "{signal}: {level:?}");
        }
        assert!(!levels.contains_key(&Signal::ImageFsAvailable));
    }
}
