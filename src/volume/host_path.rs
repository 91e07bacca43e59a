//! hostPath: a file or directory of the node, checked by its type (pkg/volume/hostpath).

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::Error;
use crate::disk;
use crate::pod::core;

pub fn setup(source: &core::HostPathVolumeSource) -> Result<PathBuf, Error> {
    let path = PathBuf::from(&source.path);
    let kind = source.type_.as_deref().unwrap_or_default();
    match kind {
        "DirectoryOrCreate" if !exists(&path)? => {
            disk::make_dir(&path, 0o755).map_err(|e| Error::io("making", &path, e))?;
        }
        "FileOrCreate" if !exists(&path)? => {
            fs::File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o644)
                .open(&path)
                .map_err(|e| Error::io("making", &path, e))?;
        }
        _ => {}
    }
    let fits: (fn(&fs::FileType) -> bool, &'static str) = match kind {
        "" => return Ok(path),
        "Directory" | "DirectoryOrCreate" => (fs::FileType::is_dir, "a directory"),
        "File" | "FileOrCreate" => (fs::FileType::is_file, "a file"),
        "Socket" => (FileTypeExt::is_socket, "a socket"),
        "CharDevice" => (FileTypeExt::is_char_device, "a character device"),
        "BlockDevice" => (FileTypeExt::is_block_device, "a block device"),
        other => return Err(Error::Invalid(format!("unknown type {other:?} of a hostPath"))),
    };
    match fs::metadata(&path) {
        Ok(meta) if fits.0(&meta.file_type()) => Ok(path),
        Ok(_) => Err(Error::Type { path: source.path.clone(), wanted: fits.1 }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Error::Type { path: source.path.clone(), wanted: fits.1 }),
        Err(e) => Err(Error::io("looking at", &path, e)),
    }
}

fn exists(path: &Path) -> Result<bool, Error> {
    path.try_exists().map_err(|e| Error::io("looking at", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn types() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("dir")).expect("makes");
        fs::write(at("file"), "x").expect("writes");
        let _socket = UnixListener::bind(at("socket")).expect("binds");
        let check = |path: PathBuf, kind: &str| {
            let source =
                core::HostPathVolumeSource { path: path.to_string_lossy().into_owned(), type_: Some(kind.to_owned()) };
            setup(&source).map(drop).map_err(|e| e.to_string().rsplit(" is not ").next().unwrap_or_default().to_owned())
        };
        let refused = |what: &str| Err(what.to_owned());
        let table = [
            ("dir", "", Ok(())),
            ("none", "", Ok(())),
            ("dir", "Directory", Ok(())),
            ("file", "Directory", refused("a directory")),
            ("none", "Directory", refused("a directory")),
            ("file", "File", Ok(())),
            ("dir", "File", refused("a file")),
            ("socket", "Socket", Ok(())),
            ("file", "Socket", refused("a socket")),
            ("file", "BlockDevice", refused("a block device")),
            ("file", "CharDevice", refused("a character device")),
            ("made/deep", "DirectoryOrCreate", Ok(())),
            ("file", "DirectoryOrCreate", refused("a directory")),
            ("made/file", "FileOrCreate", Ok(())),
            ("dir", "FileOrCreate", refused("a file")),
        ];
        for (name, kind, want) in table {
            assert_eq!(check(at(name), kind), want, "{name} as {kind:?}");
        }
        assert_eq!(check("/dev/null".into(), "CharDevice"), Ok(()));
        assert!(at("made/deep").is_dir() && at("made/file").is_file());
    }
}
