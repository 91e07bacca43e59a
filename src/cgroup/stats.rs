//! What a cgroup uses, on both versions.

use std::fs;

use super::hierarchy::{Hierarchy, Version};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Nanoseconds of CPU since the cgroup was made; on all CPUs together.
    pub cpu: Option<u64>,
    pub memory: Option<Memory>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

/// In bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// With all caches.
    pub usage: u64,
    /// What can't be taken away without need: usage without the cache that was not used lately.
    pub working_set: u64,
    /// Anonymous memory.
    pub rss: u64,
    /// Counts.
    pub page_faults: u64,
    pub major_page_faults: u64,
    /// `None` without a limit of its own.
    pub limit: Option<u64>,
}

/// What is read of a cgroup; a field that the kernel doesn't have is `None`. `None` altogether when
/// there is no such cgroup.
pub fn read(hierarchy: &Hierarchy, path: &str) -> Option<Stats> {
    let text = |controller: &str, file: &str| {
        let directory = hierarchy.directory(controller, path)?;
        fs::read_to_string(directory.join(file)).ok()
    };
    let number = |controller: &str, file: &str| text(controller, file).and_then(|t| t.trim().parse::<u64>().ok());
    let stats = match hierarchy.version() {
        Version::V1 => Stats {
            cpu: number("cpuacct", "cpuacct.usage"),
            memory: text("memory", "memory.stat")
                .zip(number("memory", "memory.usage_in_bytes"))
                .map(|(stat, usage)| memory(usage, &stat, &V1, number("memory", "memory.limit_in_bytes"))),
            pids: number("pids", "pids.current"),
        },
        Version::V2 => Stats {
            cpu: text("cpu", "cpu.stat").and_then(|t| field(&t, "usage_usec")).map(|n| n.saturating_mul(1000)),
            memory: text("memory", "memory.stat")
                .zip(number("memory", "memory.current"))
                .map(|(stat, usage)| memory(usage, &stat, &V2, number("memory", "memory.max"))),
            pids: number("pids", "pids.current"),
        },
    };
    (stats != Stats::default()).then_some(stats)
}

/// The names of the fields of `memory.stat`, those below a cgroup counted in.
struct Fields {
    inactive_file: &'static str,
    anonymous: &'static str,
    faults: &'static str,
    major_faults: &'static str,
}

const V1: Fields = Fields {
    inactive_file: "total_inactive_file",
    anonymous: "total_rss",
    faults: "total_pgfault",
    major_faults: "total_pgmajfault",
};
const V2: Fields =
    Fields { inactive_file: "inactive_file", anonymous: "anon", faults: "pgfault", major_faults: "pgmajfault" };

/// v1 shows no limit as the largest number of whole pages.
const LARGEST: u64 = 1 << 62;

fn memory(usage: u64, stat: &str, fields: &Fields, limit: Option<u64>) -> Memory {
    let of = |name| field(stat, name).unwrap_or(0);
    Memory {
        usage,
        working_set: usage.saturating_sub(of(fields.inactive_file)),
        rss: of(fields.anonymous),
        page_faults: of(fields.faults),
        major_page_faults: of(fields.major_faults),
        limit: limit.filter(|limit| *limit < LARGEST),
    }
}

/// A line `name value`.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::hierarchy::Mount;

    #[test]
    fn lines() {
        let text = "anon 1\nanon_thp 2\ninactive_file 30\npgfault x\n";
        assert_eq!(field(text, "anon"), Some(1));
        assert_eq!(field(text, "inactive_file"), Some(30));
        assert_eq!(field(text, "pgfault"), None);
        assert_eq!(field(text, "file"), None);
    }

    fn place(dir: &std::path::Path, files: &[(&str, &str)]) {
        fs::create_dir_all(dir).expect("makes");
        for (name, text) in files {
            fs::write(dir.join(name), text).expect("writes");
        }
    }

    fn mount(point: &std::path::Path, controllers: &[&str]) -> Mount {
        Mount { point: point.to_owned(), controllers: controllers.iter().map(|c| (*c).to_owned()).collect() }
    }

    #[test]
    fn of_v2() {
        let dir = tempfile::tempdir().expect("a directory");
        let h = Hierarchy::v2(mount(dir.path(), &["cpu", "memory", "pids"]));
        let stat = "anon 300\nfile 500\ninactive_file 400\npgfault 7\npgmajfault 2\n";
        let files = [
            ("cpu.stat", "usage_usec 1500\nuser_usec 1000\n"),
            ("memory.stat", stat),
            ("memory.current", "1000\n"),
            ("memory.max", "max\n"),
            ("pids.current", "3\n"),
        ];
        place(&dir.path().join("a/b"), &files);
        let memory =
            Memory { usage: 1000, working_set: 600, rss: 300, page_faults: 7, major_page_faults: 2, limit: None };
        let want = Stats { cpu: Some(1_500_000), memory: Some(memory), pids: Some(3) };
        assert_eq!(read(&h, "/a/b"), Some(want));
        place(&dir.path().join("a/b"), &[("memory.max", "4096\n")]);
        assert_eq!(read(&h, "/a/b").and_then(|s| s.memory).and_then(|m| m.limit), Some(4096));
        assert_eq!(read(&h, "/none"), None);
    }

    #[test]
    fn of_v1() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let h = Hierarchy::v1(vec![
            mount(&at("cpu"), &["cpu", "cpuacct"]),
            mount(&at("memory"), &["memory"]),
            mount(&at("pids"), &["pids"]),
        ]);
        place(&at("cpu/p"), &[("cpuacct.usage", "123456789\n")]);
        let stat = "inactive_file 1\ntotal_inactive_file 2000\ntotal_rss 5\ntotal_pgfault 6\ntotal_pgmajfault 7\n";
        let files = [
            ("memory.stat", stat),
            ("memory.usage_in_bytes", "1000"),
            ("memory.limit_in_bytes", "9223372036854771712"),
        ];
        place(&at("memory/p"), &files);
        let memory = Memory { usage: 1000, working_set: 0, rss: 5, page_faults: 6, major_page_faults: 7, limit: None };
        assert_eq!(read(&h, "/p"), Some(Stats { cpu: Some(123_456_789), memory: Some(memory), pids: None }));
    }
}
