//! Making, writing, emptying and removing cgroups. Paths here are as below the mounts, and begin
//! with a slash.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::files::{self, Write};
use super::hierarchy::{Hierarchy, Version, join};
use super::values::Values;
use super::{Error, Left, Result};

/// What containers are held to, and measured by.
const USED: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];

/// How long killed processes get to end: one in the middle of input or output may need some time.
const REMOVAL: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Cgroups that are looked at in one pass; who makes more in a container is met in the next.
const PASS: usize = 4096;

#[derive(Debug)]
pub struct Tree {
    pub hierarchy: Hierarchy,
}

impl Tree {
    fn directories(&self, path: &str) -> impl Iterator<Item = PathBuf> {
        self.hierarchy.mounts().iter().map(move |mount| join(&mount.point, path))
    }

    /// Whether it is there for all controllers that count.
    pub fn exists(&self, path: &str) -> bool {
        self.hierarchy.counted().all(|mount| join(&mount.point, path).is_dir())
    }

    /// Makes it, and what is missing above it, ready for processes.
    pub fn create(&self, path: &str) -> Result<()> {
        for mount in self.hierarchy.mounts() {
            let is_cpuset = mount.controllers.iter().any(|c| c == "cpuset");
            let mut directory = mount.point.clone();
            for part in path.split('/').filter(|part| !part.is_empty()) {
                let parent = directory.clone();
                directory.push(part);
                if self.hierarchy.version() == Version::V2 {
                    enable(&parent)?;
                }
                make(&directory)?;
                if self.hierarchy.version() == Version::V1 && is_cpuset {
                    fill_cpuset(&parent, &directory)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the values that the mounted controllers take.
    pub fn write(&self, path: &str, values: &Values) -> Result<()> {
        for Write { controller, file, value, optional } in files::writes(values, self.hierarchy.version()) {
            let Some(directory) = self.hierarchy.directory(controller, path) else { continue };
            let file = directory.join(file);
            match write_line(&file, &value) {
                Err(e) if optional && e.kind() == ErrorKind::NotFound => {
                    log::debug!("this kernel has no {}", file.display());
                }
                Err(source) => return Err(Error::Write { path: file, value, source }),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// The names of the cgroups in one, each once.
    pub fn children(&self, path: &str) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for directory in self.directories(path) {
            names.extend(subdirectories(&directory).map_err(Error::io("reading", &directory))?);
        }
        Ok(names)
    }

    /// The first of the processes in it.
    pub fn process(&self, path: &str) -> Option<u32> {
        let mount = self.hierarchy.counted().next()?;
        let list = fs::read_to_string(join(&mount.point, path).join("cgroup.procs")).ok()?;
        list.lines().next()?.trim().parse().ok()
    }

    /// Kills what is in the cgroup and removes it with all below it. That it isn't there is no error.
    pub fn remove(&self, path: &str) -> Result<()> {
        let deadline = Instant::now() + REMOVAL;
        let mut pause = FIRST_PAUSE;
        loop {
            let processes = self.kill(path);
            let mut left = 0;
            for directory in self.directories(path) {
                left += remove_directory(&directory).map_err(Error::io("removing", &directory))?;
            }
            if left == 0 {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let left = if processes > 0 { Left::Processes(processes) } else { Left::Cgroups(left) };
                return Err(Error::Busy { path: path.to_owned(), left });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Kills all processes in the cgroup and below, and says how many there were.
    fn kill(&self, path: &str) -> usize {
        let mut all = BTreeSet::new();
        for directory in self.directories(path) {
            let found = processes(&directory);
            // One write kills all at once, where the kernel has it; nothing is forked away meanwhile.
            if !found.is_empty() && self.hierarchy.version() == Version::V2 {
                if let Err(e) = write_line(&directory.join("cgroup.kill"), "1") {
                    log::debug!("{}: killing by cgroup.kill: {e}", directory.display());
                }
            }
            all.extend(found);
        }
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        for pid in all.iter().filter(|pid| **pid != own).filter_map(|pid| Pid::from_raw(*pid)) {
            match kill_process(pid, Signal::KILL) {
                Ok(()) => log::debug!("killed process {} in cgroup {path}", pid.as_raw_nonzero()),
                Err(rustix::io::Errno::SRCH) => {}
                Err(e) => log::warn!("killing process {} in cgroup {path}: {e}", pid.as_raw_nonzero()),
            }
        }
        all.len()
    }
}

fn make(directory: &Path) -> Result<()> {
    match fs::create_dir(directory) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(Error::io("making", directory)(e)),
        _ => Ok(()),
    }
}

/// Takes one line in one write, as the kernel wants it. The file is there or it isn't: none is made.
fn write_line(file: &Path, line: &str) -> io::Result<()> {
    fs::File::options().write(true).truncate(true).open(file)?.write_all(line.as_bytes())
}

/// Lets the cgroups in `parent` have the controllers that we use (v2).
fn enable(parent: &Path) -> Result<()> {
    let list = |file: &str| fs::read_to_string(parent.join(file)).unwrap_or_default();
    let (there, enabled) = (list("cgroup.controllers"), list("cgroup.subtree_control"));
    let enabled: BTreeSet<_> = enabled.split_whitespace().collect();
    let file = parent.join("cgroup.subtree_control");
    for controller in there.split_whitespace().filter(|c| USED.contains(c) && !enabled.contains(c)) {
        let value = format!("+{controller}");
        // One by one: a controller that can't be had must not take the others with it. Its files
        // will be missed when they are to be written.
        if let Err(source) = write_line(&file, &value) {
            if matches!(controller, "cpu" | "memory") {
                return Err(Error::Write { path: file, value, source });
            }
            log::warn!("writing {value:?} to {}: {source}", file.display());
        }
    }
    Ok(())
}

/// A cpuset takes no process before it has CPUs and memory nodes (v1): those of its parent.
fn fill_cpuset(parent: &Path, directory: &Path) -> Result<()> {
    for name in ["cpuset.cpus", "cpuset.mems"] {
        let file = directory.join(name);
        let own = fs::read_to_string(&file).map_err(Error::io("reading", &file))?;
        if own.trim().is_empty() {
            let above = parent.join(name);
            let value = fs::read_to_string(&above).map_err(Error::io("reading", &above))?;
            let value = value.trim().to_owned();
            write_line(&file, &value).map_err(|source| Error::Write { path: file, value, source })?;
        }
    }
    Ok(())
}

/// What isn't there has none.
fn subdirectories(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

/// The cgroup and those below it, each before those in it; no more than one pass takes. What ends
/// while it is read is passed over.
fn walk(directory: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        let names = subdirectories(&directory).unwrap_or_default();
        let room = PASS.saturating_sub(all.len() + waiting.len());
        waiting.extend(names.into_iter().take(room).map(|name| directory.join(name)));
        all.push(directory);
    }
    all
}

fn processes(directory: &Path) -> BTreeSet<i32> {
    let lists = walk(directory).into_iter().filter_map(|d| fs::read_to_string(d.join("cgroup.procs")).ok());
    let mut all: BTreeSet<i32> = BTreeSet::new();
    for list in lists {
        all.extend(list.lines().filter_map(|line| line.parse::<i32>().ok()));
    }
    // A process outside of our namespace shows as 0.
    all.retain(|pid| *pid > 1);
    all
}

/// Removes what can be removed, and says how many cgroups are left.
fn remove_directory(directory: &Path) -> io::Result<usize> {
    let mut left = 0;
    for directory in walk(directory).iter().rev() {
        match fs::remove_dir(directory) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) if matches!(e.kind(), ErrorKind::ResourceBusy | ErrorKind::DirectoryNotEmpty) => left += 1,
            Err(e) => return Err(e),
        }
    }
    Ok(left)
}
