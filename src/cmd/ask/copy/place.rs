//! Where files are copied from and to: `PATH`, `POD:PATH`, `NAMESPACE/POD:PATH`. Pure, but for the name
//! of `.`.

use std::path::{Path, PathBuf};

use super::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Here(PathBuf),
    There(Remote),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    pub namespace: String,
    pub pod: String,
    pub path: String,
}

impl Place {
    /// `namespace`: of a pod without one. What begins with a dot or a slash is a path.
    pub fn parse(text: &str, namespace: &str) -> Result<Place, Error> {
        let parts = text.split_once(':').filter(|_| !text.starts_with(['.', '/']));
        let Some((pod, path)) = parts else { return Ok(Place::Here(text.into())) };
        let (namespace, pod) = pod.split_once('/').unwrap_or((namespace, pod));
        if namespace.is_empty() || pod.is_empty() || path.is_empty() || pod.contains('/') {
            return Err(Error::Usage(format!("{text:?} is neither POD:PATH nor a path; a path may begin with ./")));
        }
        Ok(Place::There(Remote { namespace: namespace.to_owned(), pod: pod.to_owned(), path: path.to_owned() }))
    }
}

impl Remote {
    /// The directory that it is in, and its name there: `.` for a directory that has none.
    pub fn split(&self) -> (&str, &str) {
        let path = self.path.trim_end_matches('/');
        let (directory, name) = match path.rsplit_once('/') {
            Some(("", name)) => ("/", name),
            Some(parts) => parts,
            None if path.is_empty() => ("/", "."),
            None => (".", path),
        };
        match name {
            "." | ".." => (if path.is_empty() { "/" } else { path }, "."),
            name => (directory, name),
        }
    }
}

/// What a file of this machine is called.
pub fn name_of(path: &Path) -> Result<String, Error> {
    let failed = |why: String| Error::File { path: path.display().to_string(), why };
    let real = match path.file_name() {
        Some(_) => path.to_owned(),
        None => path.canonicalize().map_err(|e| failed(e.to_string()))?,
    };
    match real.file_name().and_then(|name| name.to_str()) {
        Some(name) => Ok(name.to_owned()),
        None => Err(failed("it has no name that could be sent".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let there = |namespace: &str, pod: &str, path: &str| {
            Some(Place::There(Remote { namespace: namespace.into(), pod: pod.into(), path: path.into() }))
        };
        let here = |path: &str| Some(Place::Here(path.into()));
        let table = [
            ("web:/etc", there("default", "web", "/etc")),
            ("ns/web:a:b", there("ns", "web", "a:b")),
            ("/a:b", here("/a:b")),
            ("./web:x", here("./web:x")),
            ("file", here("file")),
            ("a/b/c:x", None),
            (":x", None),
            ("web:", None),
            ("/", here("/")),
        ];
        for (text, want) in table {
            assert_eq!(Place::parse(text, "default").ok(), want, "{text}");
        }
    }

    #[test]
    fn directories_and_names() {
        for (path, want) in [
            ("/etc/hosts", ("/etc", "hosts")),
            ("/etc/", ("/", "etc")),
            ("a", (".", "a")),
            ("a/b//", ("a", "b")),
            ("/", ("/", ".")),
            (".", (".", ".")),
            ("/a/..", ("/a/..", ".")),
        ] {
            let remote = Remote { namespace: String::new(), pod: String::new(), path: path.to_owned() };
            assert_eq!(remote.split(), want, "{path}");
        }
        assert_eq!(name_of(Path::new("/etc/hosts")).expect("has one"), "hosts");
        assert!(name_of(Path::new("/")).is_err());
    }
}
