//! The ranges of IDs of pods with a user namespace of their own, in the pods' directories: files that
//! such a pod has made belong to its range, so that it must have the same one for as long as it lives.

use std::fs;
use std::io;

use parking_lot::Mutex;

use super::request::{Allocator, ConfigError, IdRange, IdsError};
use super::{Error, Paths};
use crate::disk;
use crate::pod::PodUid;

pub struct UserNamespaces {
    paths: Paths,
    /// Held for no longer than a look at it takes.
    allocator: Mutex<Allocator>,
}

impl UserNamespaces {
    /// Reads which pods have had a range since before the agent was started. `each`: IDs in a range.
    ///
    /// # Errors
    /// When there are no ranges of so many IDs.
    pub fn open(paths: &Paths, each: u32) -> Result<UserNamespaces, IdsError> {
        let mut allocator = Allocator::all_but_the_nodes(each)?;
        for entry in fs::read_dir(paths.pods()).into_iter().flatten().flatten() {
            let Some(uid) = entry.file_name().to_str().and_then(PodUid::checked) else { continue };
            let path = paths.user_namespace(&uid);
            let known = match fs::read_to_string(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => Err(e.to_string()),
                Ok(text) => match IdRange::from_file(&text) {
                    Some(range) => allocator.restore(&uid, range).map_err(|e| e.to_string()),
                    None => Err("it is no record of a range of IDs".to_owned()),
                },
            };
            if let Err(why) = known {
                // The range depends on the UID, so the pod most likely gets the one that it had.
                log::warn!("{}: {why}; the pod gets a range anew", path.display());
            }
        }
        Ok(UserNamespaces { paths: paths.clone(), allocator: Mutex::new(allocator) })
    }

    /// The pod's range. It is on disk before anything of the pod uses it.
    pub(super) fn of(&self, uid: &PodUid) -> Result<IdRange, Error> {
        let allotted = self.allocator.lock().allot(uid);
        let range = allotted.map_err(|e| {
            log::error!("{e}");
            ConfigError::NoIds
        })?;
        let (path, text) = (self.paths.user_namespace(uid), range.to_file());
        if fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
            disk::write_atomic(&path, text.as_bytes(), 0o600).map_err(|e| Error::io("writing", &path, e))?;
        }
        Ok(range)
    }

    /// The pod is gone, and so are its files.
    pub(super) fn release(&self, uid: &PodUid) {
        self.allocator.lock().release(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(root: &std::path::Path, pods: &[&str]) -> Paths {
        let paths = Paths::new(root, root);
        for uid in pods {
            disk::make_dir(&paths.pod(&PodUid::new(*uid)), 0o750).expect("makes");
        }
        paths
    }

    #[test]
    fn a_pod_keeps_its_range_over_restarts() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = paths(dir.path(), &["a", "b", "c"]);
        let open = || UserNamespaces::open(&paths, 65536).expect("opens");
        let users = open();
        let [a, b] = ["a", "b"].map(|uid| users.of(&PodUid::new(uid)).expect("has one"));
        assert!(a.first >= 65536 && a.length == 65536 && a != b);
        assert_eq!(users.of(&PodUid::new("a")).expect("has one"), a);
        // Another one's range is not given out, even to whom it would fall.
        let third = IdRange { first: a.first, ..a };
        fs::write(paths.user_namespace(&PodUid::new("a")), b.to_file()).expect("writes");
        fs::write(paths.user_namespace(&PodUid::new("b")), third.to_file()).expect("writes");
        let users = open();
        assert_eq!(users.of(&PodUid::new("a")).expect("has one"), b);
        assert_eq!(users.of(&PodUid::new("b")).expect("has one"), a);
        users.release(&PodUid::new("b"));
        for (uid, text) in [("b", "{"), ("c", "")] {
            fs::write(paths.user_namespace(&PodUid::new(uid)), text).expect("writes");
        }
        let users = open();
        assert_eq!(users.of(&PodUid::new("a")).expect("has one"), b);
        assert!([a, b].iter().all(|range| users.of(&PodUid::new("c")).expect("has one") != *range));
        users.of(&PodUid::new("d")).expect_err("has no directory");
    }

    #[test]
    fn ranges_of_an_odd_size() {
        let dir = tempfile::tempdir().expect("a directory");
        let paths = paths(dir.path(), &["a"]);
        for each in [65536, 3 * 65536, 1 << 31] {
            let range = UserNamespaces::open(&paths, each).expect("opens").of(&PodUid::new("a")).expect("has one");
            assert_eq!((range.length, range.first % each), (each, 0));
            fs::remove_file(paths.user_namespace(&PodUid::new("a"))).expect("removes");
        }
        assert!(UserNamespaces::open(&paths, 0).is_err());
    }
}
