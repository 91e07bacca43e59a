//! Reads what [`resolve`](super::resolve) puts together: the files, the host's name, the sockets
//! that are there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::file::Layer;
use super::flags::Flags;
use super::resolve::{Machine, resolve};
use super::{Error, Fault, Loaded};
use crate::disk;

/// Bytes; far more than any configuration has.
const MAX_FILE: u64 = 1 << 20;

/// Where runtimes listen; the first that is there is taken, and the first of all when there is
/// none, since the runtime may come up later.
const RUNTIME_SOCKETS: [&str; 4] = [
    "/run/containerd/containerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/var/run/crio/crio.sock",
    "/run/crio/crio.sock",
];

/// The configuration file and drop-ins that the flags name, merged, with the flags on top. Faults
/// of all files are told together.
pub fn load(flags: &Flags) -> Result<Loaded, Error> {
    let mut paths = Vec::new();
    if !flags.own.config.is_empty() {
        paths.push(PathBuf::from(&flags.own.config));
    }
    if !flags.own.config_dir.is_empty() {
        drop_ins(Path::new(&flags.own.config_dir), &mut paths)?;
    }
    let mut layers = Vec::new();
    let mut faults: Vec<Fault> = Vec::new();
    for path in &paths {
        let text = disk::read_text(path, MAX_FILE).map_err(|source| Error::Read { path: path.clone(), source })?;
        match Layer::parse(path, &text) {
            Ok(layer) => layers.push(layer),
            Err(more) => faults.extend(more),
        }
    }
    if !faults.is_empty() {
        return Err(Error::Invalid(faults));
    }
    resolve(&layers, flags, &machine())
}

/// The `*.conf` files under `dir`, in the order in which the kubelet walks: the entries of a
/// directory by name, a subdirectory at its place.
fn drop_ins(dir: &Path, paths: &mut Vec<PathBuf>) -> Result<(), Error> {
    let failed = |source: io::Error| Error::Read { path: dir.to_owned(), source };
    let entries: io::Result<Vec<_>> = fs::read_dir(dir).map_err(failed)?.collect();
    let mut entries = entries.map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_type().map_err(failed)?.is_dir() {
            drop_ins(&path, paths)?;
        } else if entry.file_name().as_encoded_bytes().ends_with(b".conf") {
            paths.push(path);
        }
    }
    Ok(())
}

fn machine() -> Machine {
    let first = RUNTIME_SOCKETS.iter().find(|path| Path::new(path).exists()).unwrap_or(&RUNTIME_SOCKETS[0]);
    Machine {
        host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        runtime_socket: first.into(),
    }
}
