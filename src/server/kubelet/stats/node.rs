//! What the machine as a whole uses, from `/proc`: there it is the same on all versions of cgroups.

use std::fs;

use crate::cgroup::stats::{Memory, Stats};

/// Of times in `/proc/stat`, on every architecture that there is a CRI runtime for.
const TICKS_PER_SECOND: u64 = 100;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    pub stats: Stats,
    /// Bytes.
    pub memory: u64,
    pub cpus: u64,
    /// Seconds since 1970.
    pub booted: i64,
    pub network: Vec<Interface>,
    /// The greatest number of processes and threads, and how many there are.
    pub max_pids: Option<u64>,
    pub pids: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub received: Traffic,
    pub sent: Traffic,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    pub bytes: u64,
    pub packets: u64,
    pub errors: u64,
    pub dropped: u64,
}

/// What can't be read is left out.
pub fn read() -> Machine {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (stat, meminfo, vmstat) = (text("/proc/stat"), text("/proc/meminfo"), text("/proc/vmstat"));
    let max_pids = text("/proc/sys/kernel/pid_max").trim().parse().ok();
    // The fourth field is of those that run, and of all.
    let loadavg = text("/proc/loadavg");
    let pids = loadavg.split_whitespace().nth(3).and_then(|field| field.split_once('/')?.1.parse().ok());
    let network = interfaces(&text("/proc/net/dev"));
    Machine { network, max_pids, pids, ..machine(&stat, &meminfo, &vmstat) }
}

/// Of the network that a process is in.
pub fn interfaces_of(pid: u32) -> Vec<Interface> {
    // It may have ended by now.
    interfaces(&fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default())
}

fn machine(stat: &str, meminfo: &str, vmstat: &str) -> Machine {
    let total = kib(meminfo, "MemTotal");
    let used = total.saturating_sub(kib(meminfo, "MemFree"));
    let memory = Memory {
        usage: used,
        working_set: used.saturating_sub(kib(meminfo, "Inactive(file)")),
        rss: kib(meminfo, "AnonPages"),
        page_faults: number(vmstat, "pgfault").unwrap_or(0),
        major_page_faults: number(vmstat, "pgmajfault").unwrap_or(0),
        limit: None,
    };
    let of_one =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    Machine {
        stats: Stats { cpu: cpu(stat), memory: (total > 0).then_some(memory), pids: None },
        memory: total,
        cpus: stat.lines().filter(of_one).count() as u64,
        booted: number(stat, "btime").and_then(|n| i64::try_from(n).ok()).unwrap_or_default(),
        ..Machine::default()
    }
}

/// Nanoseconds that all CPUs together were at work.
fn cpu(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // user, nice, system, idle, iowait, irq, softirq, steal; what guests use is in user.
    let times = line.split_whitespace().take(8).enumerate().filter(|(i, _)| !matches!(i, 3 | 4));
    let ticks: Option<u64> = times.map(|(_, time)| time.parse::<u64>().ok()).sum();
    Some(ticks?.saturating_mul(1_000_000_000 / TICKS_PER_SECOND))
}

fn number(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Bytes of a line `name:   n kB`.
fn kib(meminfo: &str, name: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let n = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    n.unwrap_or(0).saturating_mul(1024)
}

/// All but loopback, from the table in `/proc/net/dev`.
fn interfaces(table: &str) -> Vec<Interface> {
    let row = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let fields: Vec<u64> = rest.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let traffic = |from: usize| {
            let of = |i: usize| fields.get(from + i).copied().unwrap_or_default();
            Traffic { bytes: of(0), packets: of(1), errors: of(2), dropped: of(3) }
        };
        Some(Interface { name: name.trim().to_owned(), received: traffic(0), sent: traffic(8) })
    };
    table.lines().filter_map(row).filter(|interface| interface.name != "lo").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_proc() {
        let stat = "cpu  100 10 50 9999 500 1 2 3 40 0\ncpu0 1 2\ncpu1 1 2\nintr 7\nbtime 1700000000\n";
        let meminfo =
            "MemTotal:  1000 kB\nMemFree:  400 kB\nInactive(anon): 7 kB\nInactive(file):  100 kB\nAnonPages: 50 kB\n";
        let got = machine(stat, meminfo, "pgfault 9\npgmajfault 3\npgfaultx 8\n");
        let memory = Memory {
            usage: 600 << 10,
            working_set: 500 << 10,
            rss: 50 << 10,
            page_faults: 9,
            major_page_faults: 3,
            limit: None,
        };
        let stats = Stats { cpu: Some(1_660_000_000), memory: Some(memory), pids: None };
        assert_eq!(got, Machine { stats, memory: 1000 << 10, cpus: 2, booted: 1_700_000_000, ..Machine::default() });
        assert_eq!(machine("", "", ""), Machine::default());
    }

    #[test]
    fn networks() {
        let table = "Inter-|   Receive |  Transmit\n face |bytes packets\n    lo: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n  eth0:10 20 30 40 0 0 0 0 50 60 70 80 0 0 0 0\n";
        let traffic = |n| Traffic { bytes: n, packets: n + 10, errors: n + 20, dropped: n + 30 };
        let want = Interface { name: "eth0".to_owned(), received: traffic(10), sent: traffic(50) };
        assert_eq!(interfaces(table), [want]);
    }
}
