//! A tar that a container sends, as files of this machine. A container may send anything: nothing is
//! written beside the place that was asked for, no link is made, and none is followed below that place.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use super::Error;
use crate::tar::{self, Entry, Kind, Reader, Stream};

/// Names that are told of what was left out.
const TOLD: usize = 10;

/// Writes what is in `prefix` of the tar to `to`.
pub fn unpack(from: impl Read, prefix: &str, to: &Path) -> Result<(), Error> {
    let mut reader = Reader::new(Box::new(Stream(from)));
    let (mut taken, mut left_out) = (false, Vec::new());
    while let Some(entry) = reader.next_entry().map_err(broken)? {
        match below(prefix, &entry.name) {
            Some(names) if entry.kind != Kind::Other => {
                put(&mut reader, &entry, to, &names)?;
                taken = true;
            }
            _ => left_out.push(entry.name),
        }
    }
    for name in left_out.iter().take(TOLD) {
        eprintln!("cleat: left out, for it is a link or no plain file, or is not what was asked for: {name:?}");
    }
    if left_out.len() > TOLD {
        eprintln!("cleat: and {} others", left_out.len() - TOLD);
    }
    match taken {
        true => Ok(()),
        false => Err(Error::Refused("the container sent no file".to_owned())),
    }
}

fn broken(e: tar::Error) -> Error {
    Error::Refused(format!("what the container sent: {e}"))
}

/// The names on the way from `prefix` to an entry; `None` when it isn't in there, or could be
/// elsewhere.
fn below<'e>(prefix: &str, name: &'e str) -> Option<Vec<&'e str>> {
    let mut names = Vec::new();
    for component in Path::new(name).components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => names.push(name.to_str()?),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    match prefix {
        "." => Some(names),
        prefix => (names.first() == Some(&prefix)).then(|| names.split_off(1)),
    }
}

fn put(reader: &mut Reader<'_>, entry: &Entry, to: &Path, names: &[&str]) -> Result<(), Error> {
    let failed = |e: io::Error| {
        let path = names.iter().fold(to.to_owned(), |path, name| path.join(name));
        Error::File { path: path.display().to_string(), why: e.to_string() }
    };
    // Nobody is to be shut out of what he has copied, and no program gets more rights by it.
    let mode = entry.mode & 0o777;
    let mut file = match (names.split_last(), entry.kind) {
        (None, Kind::Directory) => return fs::create_dir_all(to).map_err(failed),
        (None, _) => File::create(to).and_then(|file| set_mode(&file, mode).map(|()| file)),
        (Some((last, parents)), Kind::Directory) => {
            return directory(to, parents).and_then(|parent| make(&parent, last)).map(drop).map_err(failed);
        }
        (Some((last, parents)), _) => directory(to, parents).and_then(|parent| {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            Ok(File::from(openat(&parent, *last, flags, Mode::from_raw_mode(mode | 0o600))?))
        }),
    }
    .map_err(failed)?;
    reader.copy_to(&mut file).map_err(|e| match e {
        tar::Error::Io(e) => failed(e),
        e => broken(e),
    })
}

fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let is_new = file.metadata()?.len() == 0;
    match is_new && mode & 0o111 != 0 {
        true => file.set_permissions(PermissionsExt::from_mode(file.metadata()?.permissions().mode() | (mode & 0o111))),
        false => Ok(()),
    }
}

/// The directory of these names, made where it isn't there. A link in it is none.
fn directory(to: &Path, names: &[&str]) -> io::Result<OwnedFd> {
    fs::create_dir_all(to)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(to, flags, Mode::empty())?;
    for name in names {
        at = make(&at, name)?;
    }
    Ok(at)
}

fn make(parent: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    match mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tar::Writer;

    #[test]
    fn what_is_below() {
        let table: &[(&str, &str, Option<&[&str]>)] = &[
            ("etc", "./etc/", Some(&[])),
            ("etc", "etc/a/b", Some(&["a", "b"])),
            ("etc", "./etc/./a", Some(&["a"])),
            (".", "./a", Some(&["a"])),
            (".", "./", Some(&[])),
            ("etc", "etc2/a", None),
            ("etc", "./etc/../../a", None),
            ("etc", "/etc/a", None),
            ("etc", "../etc/a", None),
            (".", "..", None),
        ];
        for (prefix, name, want) in table {
            assert_eq!(below(prefix, name).as_deref(), *want, "{prefix} {name}");
        }
    }

    fn archive(make: impl FnOnce(&mut Writer<&mut Vec<u8>>) -> io::Result<()>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        make(&mut writer).expect("writes");
        writer.end().expect("ends");
        bytes
    }

    fn mode(path: &Path) -> u32 {
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).expect("is there").permissions()) & 0o7777
    }

    #[test]
    fn files_and_directories() {
        let dir = tempfile::tempdir().expect("a directory");
        let bytes = archive(|w| {
            w.directory("./d", 0o700, 0)?;
            w.file("./d/run", 0o4755, 0, 2, &mut &b"hi"[..])?;
            w.file("./d/deep/er/f", 0, 0, 1, &mut &b"x"[..])
        });
        let to = dir.path().join("copy");
        unpack(&bytes[..], "d", &to).expect("unpacks");
        assert_eq!(fs::read(to.join("run")).expect("is there"), b"hi");
        assert_eq!(fs::read(to.join("deep/er/f")).expect("is there"), b"x");
        assert!(mode(&to.join("run")) & 0o7111 == 0o111 && mode(&to.join("deep/er/f")) & 0o600 == 0o600);
        // One file under another name, and over a longer one.
        let file = dir.path().join("file");
        fs::write(&file, "longer").expect("writes");
        let bytes = archive(|w| w.file("./f", 0o755, 0, 2, &mut &b"hi"[..]));
        unpack(&bytes[..], "f", &file).expect("unpacks");
        assert_eq!(fs::read(&file).expect("is there"), b"hi");
        assert!(unpack(&bytes[..600], "f", &file).is_err());
        assert!(unpack(&archive(|_| Ok(()))[..], "f", &file).is_err());
    }

    /// What a container that means harm sends.
    #[test]
    fn nothing_is_written_elsewhere() {
        let dir = tempfile::tempdir().expect("a directory");
        let to = dir.path().join("to");
        let outside = dir.path().join("outside");
        for directory in [&to, &outside] {
            fs::create_dir(directory).expect("makes");
        }
        let absolute = outside.join("absolute").display().to_string();
        let bytes = archive(|w| {
            w.directory("d", 0o755, 0)?;
            w.link("d/link", outside.to_str().expect("is text"), 0)?;
            w.file("d/link/through", 0o644, 0, 1, &mut &b"x"[..])?;
            w.file("d/../../outside/up", 0o644, 0, 1, &mut &b"x"[..])?;
            w.file(&absolute, 0o644, 0, 1, &mut &b"x"[..])?;
            w.file("other/f", 0o644, 0, 1, &mut &b"x"[..])
        });
        unpack(&bytes[..], "d", &to).expect("takes the rest");
        assert_eq!(fs::read_dir(&outside).expect("reads").count(), 0);
        // The name of the link that was not made has become a directory.
        assert!(to.join("link/through").is_file() && !to.join("link").is_symlink());
        // Links that are there already are not followed either.
        for (entry, link) in [("d/in/f", "in"), ("d/f", "f")] {
            let _ = fs::remove_file(to.join(link));
            let target = if link == "in" { outside.clone() } else { outside.join("target") };
            std::os::unix::fs::symlink(target, to.join(link)).expect("links");
            let bytes = archive(|w| w.file(entry, 0o644, 0, 1, &mut &b"x"[..]));
            assert!(unpack(&bytes[..], "d", &to).is_err(), "{entry}");
        }
        assert_eq!(fs::read_dir(&outside).expect("reads").count(), 0);
    }
}
