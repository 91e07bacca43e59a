//! What pods of the API server refer to, on disk, one checked file an object: with the server cut off,
//! also after the node was started again, the pods begin all the same. Only root reads them; they hold
//! secrets.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::disk::{self, checked};
use crate::local::{Key, Object};

/// Bytes; the server stores no larger objects.
const MAX_FILE: u64 = 8 << 20;

/// What is known of a key: an object, or that there is none.
pub type Answer = Option<Arc<Object>>;

#[derive(Serialize, Deserialize)]
struct Record {
    key: Key,
    object: Option<Object>,
}

pub struct Records {
    directory: PathBuf,
    /// As they are on disk.
    written: BTreeMap<Key, (PathBuf, Answer)>,
    /// The last failure, told once.
    failed: Option<String>,
}

impl Records {
    /// Reads what there is. A file that is damaged is put aside.
    pub fn open(directory: PathBuf) -> Records {
        let mut records = Records { directory, written: BTreeMap::new(), failed: None };
        let files = disk::entries(&records.directory).into_iter();
        for path in files.filter(|path| path.extension().is_some_and(|e| e == "json")) {
            match read(&path) {
                Ok(Record { key, object }) => _ = records.written.insert(key, (path, object.map(Arc::new))),
                Err(e) => disk::put_aside(&path, &e.to_string()),
            }
        }
        records
    }

    pub fn answers(&self) -> BTreeMap<Key, Answer> {
        self.written.iter().map(|(key, (_, answer))| (key.clone(), answer.clone())).collect()
    }

    /// Makes the files those of `answers`. What could not be written is tried again at the next call.
    pub fn keep(&mut self, answers: &HashMap<&Key, &Answer>) {
        let failed = self.try_keep(answers).err().map(|(path, e)| {
            format!("{}: {e}; with the API server cut off, a restart would not find all that pods need", path.display())
        });
        if let Some(text) = failed.as_ref().filter(|text| self.failed.as_ref() != Some(text)) {
            log::error!("{text}");
        }
        self.failed = failed;
    }

    fn try_keep(&mut self, answers: &HashMap<&Key, &Answer>) -> Result<(), (PathBuf, io::Error)> {
        let gone: Vec<_> = self.written.keys().filter(|key| !answers.contains_key(key)).cloned().collect();
        for key in gone {
            let Some((path, _)) = self.written.get(&key) else { continue };
            match fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err((path.clone(), e)),
                _ => _ = self.written.remove(&key),
            }
        }
        for (key, answer) in answers {
            if self.written.get(key).is_some_and(|(_, written)| written == *answer) {
                continue;
            }
            if !self.directory.is_dir() {
                disk::make_dir(&self.directory, 0o700).map_err(|e| (self.directory.clone(), e))?;
            }
            let known = self.written.get(key).map(|(path, _)| path.clone());
            let path = known.unwrap_or_else(|| self.directory.join(file_name(key)));
            let record = Record { key: (*key).clone(), object: answer.as_deref().cloned() };
            let written =
                serde_json::to_vec(&record).map_err(io::Error::from).and_then(|text| checked::write(&path, &text));
            written.map_err(|e| (path.clone(), e))?;
            self.written.insert((*key).clone(), (path, (*answer).clone()));
        }
        Ok(())
    }
}

/// The same for one key over all restarts, and another for each.
fn file_name(key: &Key) -> String {
    let readable: String = key.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(60).collect();
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    format!("{}-{readable}-{:016x}.json", key.kind, hasher.finish())
}

fn read(path: &Path) -> io::Result<Record> {
    let record: Record = serde_json::from_slice(&checked::load(path, MAX_FILE)?)?;
    match record.object.as_ref().is_none_or(|object| object.key == record.key) {
        true => Ok(record),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "it is that of another object")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::local::{Body, ConfigMap, Kind};

    #[test]
    fn answers_are_there_again_and_written_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = dir.path().join("objects");
        let key = |name: &str| Key::new(Kind::ConfigMap, "ns", name);
        let map = |name: &str, value: &str| -> Answer {
            let data = BTreeMap::from([("k".to_owned(), value.to_owned())]);
            let body = Body::ConfigMap(ConfigMap { data, ..ConfigMap::default() });
            Some(Arc::new(Object { key: key(name), labels: BTreeMap::new(), created: None, body }))
        };
        let mut records = Records::open(directory.clone());
        let (a, b) = (key("a"), key("b"));
        let (one, two, missing) = (map("a", "1"), map("a", "2"), None);
        records.keep(&HashMap::from([(&a, &one), (&b, &missing)]));
        let want = BTreeMap::from([(a.clone(), one.clone()), (b.clone(), None)]);
        assert_eq!(Records::open(directory.clone()).answers(), want);
        let path = records.written[&a].0.clone();
        assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&directory).expect("is there").permissions().mode() & 0o777, 0o700);
        fs::write(&path, "damaged").expect("writes");
        records.keep(&HashMap::from([(&a, &map("a", "1")), (&b, &missing)]));
        assert_eq!(fs::read_to_string(&path).expect("reads"), "damaged", "it was not written again");
        assert_eq!(Records::open(directory.clone()).answers(), BTreeMap::from([(b, None)]));
        assert!(path.with_extension("json.bad").exists());
        records.keep(&HashMap::from([(&a, &two)]));
        assert_eq!(Records::open(directory).answers(), BTreeMap::from([(a, two)]));
    }
}
