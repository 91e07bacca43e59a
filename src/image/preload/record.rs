//! Which archives have been imported, on disk: so that each is imported once and not at each start.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::disk;
use crate::image::archive::Held;

/// Bytes; an archive takes some hundred.
const MAX_FILE: u64 = 4 << 20;

/// Tells one content of a file from the next without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    pub size: u64,
    /// Nanoseconds since 1970.
    pub mtime: i128,
    pub inode: u64,
}

impl Stamp {
    pub fn of(metadata: &fs::Metadata) -> Stamp {
        let mtime = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        Stamp { size: metadata.size(), mtime, inode: metadata.ino() }
    }
}

/// An archive that has been imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    pub stamp: Stamp,
    pub images: Vec<Held>,
}

/// By the names of the files.
pub type Record = BTreeMap<String, Imported>;

/// What was kept. One that can't be read is as good as none: the archives are imported once more.
pub fn read(path: &Path) -> Record {
    let record = match disk::read(path, MAX_FILE) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Record::new(),
        Err(e) => Err(e.to_string()),
        Ok(text) => serde_json::from_slice(&text).map_err(|e| e.to_string()),
    };
    record.unwrap_or_else(|e: String| {
        log::warn!("{}: {e}; the image archives are imported once more", path.display());
        Record::new()
    })
}

pub fn write(path: &Path, record: &Record) -> io::Result<()> {
    disk::write_atomic(path, &serde_json::to_vec(record)?, 0o600)
}
