//! Importing an archive into containerd, by its own `ctr`: it reads every form of archive, unpacks
//! for the node's platform, and is on every node by containerd's side. Other runtimes have no such
//! way, and say so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, io};

use crate::child::{self, Limits, Output};
use crate::cri::{self, Cri};
use crate::image::archive::{self, Held};

/// Where containerd keeps the images of pods.
const NAMESPACE: &str = "k8s.io";
/// An archive of gigabytes on a slow card takes its time.
const IMPORT: Limits = Limits { time: Duration::from_secs(3600), output: 1 << 20 };
const TAG: Limits = Limits { time: Duration::from_secs(60), output: 1 << 20 };
/// How long the runtime may take to show what was imported: it hears of it by an event.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);
/// Where `ctr` may lie when it isn't in `PATH`.
const DIRECTORIES: [&str; 6] = [
    "/usr/local/bin",
    "/usr/bin",
    "/opt/bin",
    "/opt/containerd/bin",
    "/var/lib/rancher/k3s/data/current/bin",
    "/var/lib/rancher/rke2/bin",
];

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the container runtime is {0}, and images can be imported into containerd only; load them on the node with the \
         runtime's own tools (skopeo copy docker-archive:FILE containers-storage:NAME, or podman load), into its storage"
    )]
    NotContainerd(String),
    #[error("ctr, which comes with containerd, is needed to import images, and is neither in PATH nor in {0}")]
    NoCtr(String),
    #[error(transparent)]
    Archive(#[from] archive::Error),
    #[error("{command}: {source}")]
    Run { command: &'static str, source: child::Error },
    #[error("{command}: {status}: {said}")]
    Failed { command: &'static str, status: std::process::ExitStatus, said: String },
    #[error("it was imported, but containerd doesn't show {0}")]
    NotShown(String),
    #[error(transparent)]
    Cri(#[from] cri::Error),
}

/// Imports into the containerd behind a socket.
#[derive(Debug, Clone)]
pub struct Importer {
    /// containerd's socket.
    pub socket: PathBuf,
    /// Where `ctr` is looked for.
    pub directories: Vec<PathBuf>,
}

impl Importer {
    pub fn new(socket: &Path) -> Importer {
        let path = env::var_os("PATH").unwrap_or_default();
        let directories = env::split_paths(&path).chain(DIRECTORIES.iter().map(PathBuf::from)).collect();
        Importer { socket: socket.to_owned(), directories }
    }

    /// Imports the archive at `path`, which holds these images, and waits until pods find all of
    /// them. Takes minutes where the archive is large.
    pub fn import(&self, cri: &dyn Cri, path: &Path, held: &[Held]) -> Result<(), Error> {
        let runtime = cri.version()?.name;
        if runtime != "containerd" {
            return Err(Error::NotContainerd(runtime));
        }
        let ctr = self.find_ctr()?;
        let snapshotter = cri.settings()?.snapshotter;
        let mut plain = archive::open(path)?;
        let mut args = vec!["import"];
        // Unpacked by another one, it would have to be unpacked once more.
        args.extend(snapshotter.iter().flat_map(|name| ["--snapshotter", name]));
        args.push("-");
        self.run(&ctr, "ctr images import", &args, &mut plain, IMPORT)?;
        for image in held {
            let others: Vec<_> = image.names.iter().filter(|name| **name != image.imported_as).collect();
            if others.is_empty() {
                continue;
            }
            let mut args = vec!["tag", "--force", &image.imported_as];
            args.extend(others.into_iter().map(String::as_str));
            self.run(&ctr, "ctr images tag", &args, &mut io::empty(), TAG)?;
        }
        wait_until_shown(cri, held.iter().flat_map(|image| &image.names))
    }

    fn find_ctr(&self) -> Result<PathBuf, Error> {
        let runs = |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file();
        self.directories
            .iter()
            .map(|dir| dir.join("ctr"))
            .find(runs)
            .ok_or_else(|| Error::NoCtr(DIRECTORIES.join(", ")))
    }

    fn run(
        &self,
        ctr: &Path,
        name: &'static str,
        args: &[&str],
        input: &mut dyn io::Read,
        limits: Limits,
    ) -> Result<(), Error> {
        let mut command = Command::new(ctr);
        command.arg("--address").arg(&self.socket).args(["--namespace", NAMESPACE, "images"]).args(args);
        let Output { status, stderr, .. } =
            child::run(&mut command, input, limits).map_err(|source| Error::Run { command: name, source })?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::Failed { command: name, status, said: stderr }),
        }
    }
}

fn wait_until_shown<'a>(cri: &dyn Cri, names: impl Iterator<Item = &'a String>) -> Result<(), Error> {
    let deadline = Instant::now() + SHOWN_WITHIN;
    for name in names {
        while cri.image_status(name)?.is_none() {
            if Instant::now() >= deadline {
                return Err(Error::NotShown(name.clone()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}
