//! `/logs/`: the host's log directory, its files and lists of them, as the kubelet's. Unlike the
//! kubelet's it never leaves that directory: pods that have it mounted can put links there.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags, openat, openat2, readlinkat};
use rustix::io::Errno;

use crate::server::http::{Out, Reply, Response, TEXT, percent_encode};

/// Entries of a directory that are listed.
const MAX_ENTRIES: usize = 10_000;

pub fn serve(root: &Path, path: &[String], directory: bool) -> Reply {
    let relative: PathBuf = path.iter().collect();
    let opened = open(root, &relative).and_then(|file| Ok((file.metadata()?, file)));
    match opened {
        Ok((meta, _)) if meta.is_dir() && !directory => redirect(path).into(),
        Ok((meta, file)) if meta.is_dir() => {
            list(file).map_or_else(failed, |html| Response::new(200, HTML, html)).into()
        }
        Ok((meta, file)) if meta.is_file() && !directory => whole(file, &meta),
        Ok(_) => Response::not_found().into(),
        Err(e) => failed(e).into(),
    }
}

const HTML: &str = "text/html; charset=utf-8";

fn failed(error: io::Error) -> Response {
    match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NOTDIR) => Response::not_found(),
        Some(Errno::XDEV | Errno::LOOP) => Response::text(403, "the path leads out of the log directory\n"),
        Some(Errno::NOSYS) => Response::text(501, "the log directory is served on Linux 5.6 and later only\n"),
        _ => Response::text(500, format!("reading the log: {error}\n")),
    }
}

/// Opens what is below `root`, following links as long as they stay there.
fn open(root: &Path, relative: &Path) -> io::Result<File> {
    let directory = openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let beneath = |path: &Path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        // A pipe without a writer is not waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        openat2(&directory, path, flags, Mode::empty(), ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS)
    };
    match beneath(relative) {
        Err(Errno::XDEV) => {
            // The links of /var/log/containers are absolute, and lead to what is here.
            let target = readlinkat(&directory, relative, Vec::new()).map_err(|_| Errno::XDEV)?;
            let target = PathBuf::from(std::ffi::OsStr::new(&*target.to_string_lossy()));
            let inside = target.strip_prefix(root).map_err(|_| Errno::XDEV)?;
            Ok(beneath(inside)?.into())
        }
        result => Ok(result?.into()),
    }
}

fn redirect(path: &[String]) -> Response {
    let last = path.last().map(|segment| percent_encode(segment)).unwrap_or_default();
    Response::text(301, "").with_header("Location", format!("{last}/"))
}

fn list(directory: File) -> io::Result<Vec<u8>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory.as_fd())?.take(MAX_ENTRIES) {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "." || name == ".." {
            continue;
        }
        let slash = if entry.file_type() == rustix::fs::FileType::Directory { "/" } else { "" };
        names.push(format!("{name}{slash}"));
    }
    names.sort();
    let mut html = String::from("<!doctype html>\n<pre>\n");
    for name in &names {
        let (stem, slash) = name.strip_suffix('/').map_or((name.as_str(), ""), |stem| (stem, "/"));
        html.push_str(&format!("<a href=\"{}{slash}\">{}</a>\n", percent_encode(stem), escape(name)));
    }
    html.push_str("</pre>\n");
    Ok(html.into_bytes())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The file as it is now; what is written to it meanwhile is not waited for.
fn whole(file: File, meta: &Metadata) -> Reply {
    let length = meta.len();
    let write = move |out: &mut Out<'_>| {
        let mut file = file.take(length);
        let mut piece = vec![0; 16 << 10];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(()),
                n => out.write_all(piece.get(..n).unwrap_or_default())?,
            }
        }
    };
    Reply::Stream(Response::new(200, TEXT, Vec::new()), Box::new(write))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn get(root: &Path, path: &str, directory: bool) -> (u16, String) {
        let path: Vec<_> = path.split('/').filter(|s| !s.is_empty()).map(str::to_owned).collect();
        match serve(root, &path, directory) {
            Reply::Whole(response) => (response.status, String::from_utf8(response.body).expect("is text")),
            Reply::Stream(head, write) => {
                let mut bytes = Vec::new();
                let mut out = Out::memory(&mut bytes);
                write(&mut out).and_then(|()| out.flush()).expect("writes");
                drop(out);
                (head.status, String::from_utf8(bytes).expect("is text"))
            }
            Reply::Upgrade(_) => panic!("no upgrade"),
        }
    }

    #[test]
    fn nothing_but_what_is_in_the_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("log");
        fs::create_dir_all(root.join("pods/a")).expect("makes");
        fs::create_dir(root.join("containers")).expect("makes");
        fs::write(root.join("pods/a/0.log"), "in a log\n").expect("writes");
        fs::write(root.join("<b>&\"c"), "x").expect("writes");
        fs::write(dir.path().join("secret"), "secret").expect("writes");
        symlink(root.join("pods/a/0.log"), root.join("containers/a.log")).expect("links");
        symlink("../pods/a/0.log", root.join("containers/relative.log")).expect("links");
        symlink(dir.path().join("secret"), root.join("absolute")).expect("links");
        symlink("../secret", root.join("upwards")).expect("links");
        symlink("/", root.join("all")).expect("links");
        symlink("loop", root.join("loop")).expect("links");
        symlink(root.join("absolute"), root.join("twice")).expect("links");
        symlink(root.join("../secret"), root.join("dots")).expect("links");
        symlink("/proc/self/root", root.join("magic")).expect("links");
        let table = [
            ("pods/a/0.log", false, 200, "in a log\n"),
            ("containers/a.log", false, 200, "in a log\n"),
            ("containers/relative.log", false, 200, "in a log\n"),
            ("pods/a/", true, 200, "<a href=\"0.log\">0.log</a>"),
            ("", true, 200, "<a href=\"%3Cb%3E%26%22c\">&lt;b&gt;&amp;&quot;c</a>"),
            ("", true, 200, "<a href=\"pods/\">pods/</a>"),
            ("pods", false, 301, ""),
            ("pods/a/0.log", true, 404, ""),
            ("none", false, 404, ""),
            ("pods/a/0.log/x", false, 404, ""),
            ("absolute", false, 403, "leads out"),
            ("upwards", false, 403, "leads out"),
            ("all/etc/passwd", false, 403, "leads out"),
            ("loop", false, 403, ""),
            ("twice", false, 403, "leads out"),
            ("dots", false, 403, "leads out"),
            ("magic/etc/passwd", false, 403, ""),
        ];
        for (path, directory, status, part) in table {
            let (got, body) = get(&root, path, directory);
            assert!(got == status && body.contains(part) && !body.contains("secret\n"), "{path}: {got} {body}");
        }
    }
}
