//! File systems in memory, mounted where a volume lies: tmpfs and hugetlbfs.

use std::ffi::CString;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags, fstat, fstatfs, open};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use super::Error;
use super::ownership::{self, Group};
use crate::disk;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// At most `size` bytes; without one, half of the machine's memory.
    Tmpfs { size: Option<u64> },
    /// With pages of so many bytes.
    HugePages { page: u64 },
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Tmpfs { .. } => "tmpfs",
            Kind::HugePages { .. } => "hugetlbfs",
        }
    }

    /// As the kernel numbers kinds of file systems.
    fn magic(self) -> u64 {
        match self {
            Kind::Tmpfs { .. } => 0x0102_1994,
            Kind::HugePages { .. } => 0x9584_58f6,
        }
    }
}

/// Mounts a file system at `path`, unless it is there already. It is the group's from the first
/// moment on; what is mounted stays as it is but for that.
pub fn setup(path: &Path, kind: Kind, group: Option<Group>) -> Result<(), Error> {
    if !path.is_dir() {
        disk::make_dir(path, 0o777).map_err(|e| Error::io("making", path, e))?;
    }
    match mounted(path, kind) {
        Ok(true) => {}
        Ok(false) => mount_new(path, kind, group).map_err(|e| Error::io("mounting", path, e))?,
        Err(e) => return Err(Error::io("looking at", path, e)),
    }
    // hugetlbfs doesn't take all of the mode.
    if let (Kind::HugePages { .. }, Some(group)) = (kind, group) {
        ownership::take_path(path, group).map_err(|e| Error::io("changing the group of", path, e))?;
    }
    Ok(())
}

/// Whether a file system of the kind is mounted at `path`.
fn mounted(path: &Path, kind: Kind) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    let parent = open(path.parent().unwrap_or(path), flags, Mode::empty())?;
    if fstat(&file)?.st_dev == fstat(&parent)?.st_dev {
        return Ok(false);
    }
    let found = fstatfs(&file)?;
    // The type of the field differs between architectures; the magic has 32 bits.
    if found.f_type as u32 != kind.magic() as u32 {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "something else is mounted there"));
    }
    match kind {
        Kind::HugePages { page } if u64::try_from(found.f_bsize).ok() != Some(page) => {
            let why = format!("it has pages of {} bytes, where {page} are asked for", found.f_bsize);
            Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
        }
        _ => Ok(true),
    }
}

fn mount_new(path: &Path, kind: Kind, group: Option<Group>) -> io::Result<()> {
    let attempt = |options: &[String]| {
        let options = CString::new(options.join(","))?;
        let source = kind.name();
        mount(source, path, kind.name(), MountFlags::empty(), options.as_c_str()).map_err(io::Error::from)
    };
    let mut options: Vec<_> = group.map(|g| format!("gid={}", g.gid)).into_iter().collect();
    match kind {
        Kind::Tmpfs { size } => {
            options.push(format!("mode={:o}", group.map_or(0o1777, |g| g.directory_mode(0o1777))));
            options.extend(size.map(|size| format!("size={size}")));
            options.push("noswap".to_owned());
            match attempt(&options) {
                // Before Linux 6.4, tmpfs knows no `noswap`.
                Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                    options.pop();
                    attempt(&options)
                }
                result => result,
            }
        }
        Kind::HugePages { page } => {
            options.push(format!("pagesize={page}"));
            attempt(&options)
        }
    }
}
