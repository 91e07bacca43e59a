//! Archives of images: tar files as `docker save` and OCI tools write them, plain or compressed by
//! gzip or zstd. Which images one holds, and its plain bytes; no archive is held in memory.

mod unpack;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use unpack::open;

use super::name::Name;
use crate::tar;

/// Bytes of `manifest.json` or `index.json`; far more than any archive has.
const MAX_JSON: u64 = 4 << 20;
const MANIFEST: &str = "manifest.json";
const INDEX: &str = "index.json";
const LAYOUT: &str = "oci-layout";
/// What containerd and docker call the whole name of an image in an index.
const IMAGE_NAME: &str = "io.containerd.image.name";
/// What OCI calls it; often the tag alone.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// An image in an archive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Held {
    /// As containerd calls it when it has imported the archive.
    pub imported_as: String,
    /// As pods find it: by its tag, and by its digest where the archive keeps that.
    pub names: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tar(#[from] tar::Error),
    #[error("it is compressed by {0}; only gzip and zstd can be read")]
    Compression(&'static str),
    #[error("it is no archive of images: neither {MANIFEST} of docker nor {INDEX} of OCI is in it")]
    NoImages,
    #[error("{file} in it can't be read: {source}")]
    Json { file: &'static str, source: serde_json::Error },
    #[error(
        "no image in it has a whole name (REGISTRY/PATH:TAG, in {IMAGE_NAME} or {REF_NAME} of {INDEX}, or in RepoTags \
         of {MANIFEST}), so no pod could find it"
    )]
    NoNames,
}

/// The images that the archive at `path` holds.
///
/// # Errors
/// When it isn't whole, or is no such archive.
pub fn images(path: &Path) -> Result<Vec<Held>, Error> {
    let mut files = read_files(path)?;
    let parse = |file: &'static str| move |source| Error::Json { file, source };
    // As containerd reads it: an OCI layout is taken as such, whatever else is in it.
    let held = match (files.remove(INDEX), files.remove(MANIFEST)) {
        (Some(index), _) if files.contains_key(LAYOUT) => {
            of_index(serde_json::from_slice(&index).map_err(parse(INDEX))?)
        }
        (_, Some(manifest)) => of_manifest(serde_json::from_slice(&manifest).map_err(parse(MANIFEST))?),
        _ => return Err(Error::NoImages),
    };
    match held.is_empty() {
        true => Err(Error::NoNames),
        false => Ok(held),
    }
}

fn read_files(path: &Path) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let mut files = BTreeMap::new();
    let mut archive = tar::Reader::new(unpack::source(path)?);
    while let Some(entry) = archive.next_entry()? {
        let name = entry.name.strip_prefix("./").unwrap_or(&entry.name);
        if matches!(name, INDEX | MANIFEST | LAYOUT) && entry.kind == tar::Kind::File && entry.size <= MAX_JSON {
            let name = name.to_owned();
            let content = archive.content()?;
            files.insert(name, content);
        }
    }
    Ok(files)
}

#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
struct Descriptor {
    #[serde(default)]
    digest: String,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

fn of_index(index: Index) -> Vec<Held> {
    let mut all = BTreeSet::new();
    for descriptor in index.manifests.unwrap_or_default() {
        let annotations = descriptor.annotations.unwrap_or_default();
        // A tag alone is no name, and containerd would make one up.
        let whole = annotations.get(REF_NAME).filter(|name| name.contains(['/', ':', '@']));
        let Some(imported_as) = annotations.get(IMAGE_NAME).filter(|name| !name.is_empty()).or(whole) else { continue };
        let Ok(name) = Name::parse(imported_as) else { continue };
        let by_digest = name.with_digest(&descriptor.digest).map(|name| name.canonical());
        let mut names = vec![name.canonical()];
        names.extend(by_digest.filter(|by_digest| !names.contains(by_digest)));
        all.insert(Held { imported_as: imported_as.clone(), names });
    }
    all.into_iter().collect()
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(rename = "RepoTags", default)]
    repo_tags: Option<Vec<String>>,
}

fn of_manifest(manifests: Vec<Manifest>) -> Vec<Held> {
    let tags = manifests.into_iter().flat_map(|m| m.repo_tags.unwrap_or_default());
    let names: BTreeSet<_> = tags.filter_map(|tag| Some(Name::parse(&tag).ok()?.canonical())).collect();
    // Importing makes these names whole.
    names.into_iter().map(|name| Held { imported_as: name.clone(), names: vec![name] }).collect()
}

#[cfg(test)]
pub mod tests;
