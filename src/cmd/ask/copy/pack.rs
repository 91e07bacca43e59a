//! Files of this machine, as a tar for a container.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Error;
use crate::tar::Writer;

/// Directories in each other.
const MAX_DEPTH: usize = 128;

/// Writes what is at `path`, with all that is in it, under `name`. Links go as links.
pub fn pack(path: &Path, name: &str, out: impl Write) -> Result<(), Error> {
    let mut writer = Writer::new(out);
    // The one that is named may be a link to what is meant.
    let meta = fs::metadata(path).map_err(failed(path))?;
    add(&mut writer, path, name, &meta, 0)?;
    writer.end().map_err(Error::Write)
}

fn add(writer: &mut Writer<impl Write>, path: &Path, name: &str, meta: &Metadata, depth: usize) -> Result<(), Error> {
    let (mode, time) = (meta.mode() & 0o7777, u64::try_from(meta.mtime()).unwrap_or(0));
    if meta.is_dir() {
        if depth >= MAX_DEPTH {
            return Err(failed(path)(io::Error::other("there are too many directories in each other")));
        }
        writer.directory(name, mode, time).map_err(Error::Write)?;
        let entries = fs::read_dir(path).map_err(failed(path))?;
        let mut paths = entries.map(|e| e.map(|e| e.path())).collect::<io::Result<Vec<_>>>().map_err(failed(path))?;
        paths.sort();
        for path in paths {
            let meta = fs::symlink_metadata(&path).map_err(failed(&path))?;
            match path.file_name().and_then(|name| name.to_str()) {
                Some(below) => add(writer, &path, &format!("{name}/{below}"), &meta, depth + 1)?,
                None => eprintln!("cleat: left out, its name is no UTF-8: {}", path.display()),
            }
        }
        Ok(())
    } else if meta.is_file() {
        let mut file = File::open(path).map_err(failed(path))?;
        writer.file(name, mode, time, meta.len(), &mut file).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => failed(path)(e),
            _ => Error::Write(e),
        })
    } else if meta.is_symlink() {
        let target = fs::read_link(path).map_err(failed(path))?;
        writer.link(name, &target.to_string_lossy(), time).map_err(Error::Write)
    } else {
        eprintln!("cleat: left out, it is neither file, directory nor link: {}", path.display());
        Ok(())
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Error + use<> {
    let path = path.display().to_string();
    move |e| Error::File { path: path.clone(), why: e.to_string() }
}
