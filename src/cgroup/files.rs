//! From values to the files that take them.

use super::container::page_size;
use super::cpu;
use super::hierarchy::Version;
use super::values::{CpuMax, Values};

/// One line for one file of a cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    pub controller: &'static str,
    pub file: String,
    pub value: String,
    /// Kernels may be built without it.
    pub optional: bool,
}

fn write(controller: &'static str, file: &str, value: impl ToString) -> Write {
    Write { controller, file: file.to_owned(), value: value.to_string(), optional: false }
}

/// In the order in which they are written.
pub fn writes(values: &Values, version: Version) -> Vec<Write> {
    let mut all = match version {
        Version::V1 => v1(values),
        Version::V2 => v2(values),
    };
    all.extend(values.pids_limit.map(|limit| write("pids", "pids.max", limit)));
    let limit = if version == Version::V1 { "limit_in_bytes" } else { "max" };
    all.extend(values.huge_pages.iter().map(|(size, bytes)| Write {
        optional: true,
        ..write("hugetlb", &format!("hugetlb.{}.{limit}", page_size(*size)), bytes)
    }));
    all
}

fn v1(values: &Values) -> Vec<Write> {
    let mut all = Vec::new();
    all.extend(values.cpu_shares.map(|shares| write("cpu", "cpu.shares", shares)));
    if let Some(CpuMax { quota, period }) = values.cpu_max {
        let quota = quota.map_or("-1".to_owned(), |quota| quota.to_string());
        let bandwidth = [write("cpu", "cpu.cfs_period_us", period), write("cpu", "cpu.cfs_quota_us", quota)];
        all.extend(bandwidth.map(|write| Write { optional: true, ..write }));
    }
    all.extend(values.memory_limit.map(|limit| write("memory", "memory.limit_in_bytes", limit)));
    all
}

fn v2(values: &Values) -> Vec<Write> {
    let mut all = Vec::new();
    all.extend(values.cpu_shares.map(|shares| write("cpu", "cpu.weight", cpu::weight(shares))));
    if let Some(CpuMax { quota, period }) = values.cpu_max {
        let quota = quota.map_or("max".to_owned(), |quota| quota.to_string());
        all.push(Write { optional: true, ..write("cpu", "cpu.max", format!("{quota} {period}")) });
    }
    all.extend(values.memory_limit.map(|limit| write("memory", "memory.max", limit)));
    all.extend(values.memory_min.map(|bytes| write("memory", "memory.min", bytes)));
    all.extend(values.memory_low.map(|bytes| write("memory", "memory.low", bytes)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(values: &Values, version: Version) -> Vec<String> {
        let all = writes(values, version);
        all.iter().map(|w| format!("{}: {} = {}", w.controller, w.file, w.value)).collect()
    }

    #[test]
    fn files_of_both_versions() {
        let values = Values {
            cpu_shares: Some(1024),
            cpu_max: Some(CpuMax { quota: Some(50_000), period: 100_000 }),
            memory_limit: Some(1 << 20),
            pids_limit: Some(64),
            huge_pages: [(2 << 20, 0), (1 << 30, 1 << 62)].into(),
            memory_min: Some(0),
            memory_low: Some(4096),
        };
        let v1 = [
            "cpu: cpu.shares = 1024",
            "cpu: cpu.cfs_period_us = 100000",
            "cpu: cpu.cfs_quota_us = 50000",
            "memory: memory.limit_in_bytes = 1048576",
            "pids: pids.max = 64",
            "hugetlb: hugetlb.2MB.limit_in_bytes = 0",
            "hugetlb: hugetlb.1GB.limit_in_bytes = 4611686018427387904",
        ];
        assert_eq!(shown(&values, Version::V1), v1);
        let v2 = [
            "cpu: cpu.weight = 39",
            "cpu: cpu.max = 50000 100000",
            "memory: memory.max = 1048576",
            "memory: memory.min = 0",
            "memory: memory.low = 4096",
            "pids: pids.max = 64",
            "hugetlb: hugetlb.2MB.max = 0",
            "hugetlb: hugetlb.1GB.max = 4611686018427387904",
        ];
        assert_eq!(shown(&values, Version::V2), v2);
    }

    #[test]
    fn no_limit_and_no_word() {
        let values = Values { cpu_max: Some(CpuMax { quota: None, period: 5000 }), ..Values::default() };
        assert_eq!(shown(&values, Version::V1), ["cpu: cpu.cfs_period_us = 5000", "cpu: cpu.cfs_quota_us = -1"]);
        assert_eq!(shown(&values, Version::V2), ["cpu: cpu.max = max 5000"]);
        assert_eq!(shown(&Values::default(), Version::V1), [""; 0]);
        assert_eq!(shown(&Values::default(), Version::V2), [""; 0]);
    }
}
