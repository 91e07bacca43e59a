//! The keys of a config map or a secret as files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use super::Error;
use super::atomic::{Content, Payload};
use crate::pod::core;

/// What the API fills in for a mode that isn't given.
pub const DEFAULT_MODE: i32 = 0o644;

/// What is wanted of an object's keys.
pub struct Wanted<'a> {
    /// For messages: `config` or `secret`.
    pub kind: &'static str,
    /// Without any, all keys are files.
    pub items: &'a Option<Vec<core::KeyToPath>>,
    pub default_mode: Option<i32>,
    /// A key that is missing is left out.
    pub optional: bool,
}

/// The files for the keys that are wanted of `data`.
///
/// # Errors
/// When a key is missing.
pub fn files(wanted: &Wanted<'_>, data: &BTreeMap<&str, Cow<'_, [u8]>>) -> Result<Payload, Error> {
    let default = wanted.default_mode.unwrap_or(DEFAULT_MODE);
    let items = wanted.items.iter().flatten();
    if items.clone().next().is_none() {
        let all = data.iter().map(|(key, bytes)| (PathBuf::from(key), content(bytes, default)));
        return Ok(all.collect());
    }
    let mut payload = Payload::new();
    for item in items {
        match data.get(item.key.as_str()) {
            Some(bytes) => _ = payload.insert(clean(&item.path), content(bytes, item.mode.unwrap_or(default))),
            None if wanted.optional => {}
            None => return Err(Error::NoKey { kind: wanted.kind, key: item.key.clone() }),
        }
    }
    Ok(payload)
}

/// What there is in place of an object that is missing.
///
/// # Errors
/// Unless it is optional.
pub fn of_missing(kind: &'static str, name: &str, optional: bool) -> Result<Payload, Error> {
    match optional {
        true => Ok(Payload::new()),
        false => Err(Error::NotFound { kind, name: name.to_owned() }),
    }
}

pub fn content(bytes: &[u8], mode: i32) -> Content {
    Content { bytes: bytes.to_vec(), mode: u32::try_from(mode).unwrap_or(0) & 0o777, owner: None }
}

/// A path without what means nothing in it: `./a//b/` is `a/b`.
pub fn clean(path: &str) -> PathBuf {
    PathBuf::from(path).components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}
