//! Cgroups of a cell, read from the kernel's files, whatever version of cgroups the machine has.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Cell;

/// Of version 1, what the kernel shows as no limit of memory.
const UNLIMITED: u64 = 1 << 62;

#[derive(Debug)]
pub struct Cgroup {
    path: String,
    /// One in each hierarchy that has it.
    directories: Vec<PathBuf>,
}

impl Cgroup {
    /// The cgroup at `path`, counted from the cell's own one.
    #[track_caller]
    pub fn at(cell: &Cell, path: &str) -> Cgroup {
        let tops = fs::read_to_string(cell.dir().join("cgroups")).expect("read the list of the cell's cgroups");
        let all = tops.lines().map(|top| Path::new(top).join(path.trim_start_matches('/')));
        let directories: Vec<_> = all.filter(|directory| directory.is_dir()).collect();
        assert!(!directories.is_empty(), "there is no cgroup {path}; there are {:#?}", cell.cgroups());
        Cgroup { path: path.to_owned(), directories }
    }

    /// The cgroup of a pod that `/pods` has told of.
    #[track_caller]
    pub fn of_pod(cell: &Cell, pod: &Value) -> Cgroup {
        let name = format!("/pod{}", pod["metadata"]["uid"].as_str().expect("has one"));
        let found = cell.cgroups().into_iter().find(|path| path.ends_with(&name));
        Cgroup::at(cell, &found.unwrap_or_else(|| panic!("no cgroup {name} in {:#?}", cell.cgroups())))
    }

    /// The cgroup below this one with that name.
    #[track_caller]
    pub fn child(&self, cell: &Cell, name: &str) -> Cgroup {
        Cgroup::at(cell, &format!("{}/{name}", self.path))
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// The text of the first of these files that there is: the one of version 1, the one of version 2.
    #[track_caller]
    pub fn read(&self, names: &[&str]) -> String {
        let files = self.directories.iter().flat_map(|dir| names.iter().map(move |name| dir.join(name)));
        let found = files.into_iter().find_map(|file| fs::read_to_string(file).ok());
        found.unwrap_or_else(|| panic!("{} has none of {names:?}", self.path)).trim().to_owned()
    }

    #[track_caller]
    fn limit(&self, names: &[&str]) -> Option<u64> {
        let text = self.read(names);
        text.parse().ok().filter(|limit| *limit < UNLIMITED)
    }

    /// Bytes.
    #[track_caller]
    pub fn memory(&self) -> Option<u64> {
        self.limit(&["memory.limit_in_bytes", "memory.max"])
    }

    #[track_caller]
    pub fn pids(&self) -> Option<u64> {
        self.limit(&["pids.max"])
    }

    /// Quota, `None` without one, and period, in microseconds.
    #[track_caller]
    pub fn cpu_max(&self) -> (Option<u64>, u64) {
        let text = self.read(&["cpu.cfs_quota_us", "cpu.max"]);
        let number = |text: &str| text.parse::<u64>().expect("a number");
        match text.split_once(' ') {
            Some((quota, period)) => (quota.parse().ok(), number(period)),
            None => (text.parse().ok(), number(&self.read(&["cpu.cfs_period_us"]))),
        }
    }

    /// Fails unless it has its part of the CPU by so many shares. Version 2 has a weight in their stead.
    #[track_caller]
    pub fn has_shares(&self, shares: u64) {
        let got: u64 = self.read(&["cpu.shares", "cpu.weight"]).parse().expect("a number");
        let weight = 1 + (shares - 2) * 9999 / 262_142;
        let v2 = !self.directories.iter().any(|dir| dir.join("cpu.shares").exists());
        assert_eq!(got, if v2 { weight } else { shares }, "{}", self.path);
    }
}
