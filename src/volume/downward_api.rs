//! downwardAPI: files with fields of the pod (pkg/volume/downwardapi).

use std::path::{Path, PathBuf};

use super::Error;
use super::atomic::{self, Content, Payload};
use crate::disk;
use crate::pod::{Pod, core, env};

/// What the API fills in for a mode that isn't given.
const DEFAULT_MODE: i32 = 0o644;

pub fn setup(pod: &Pod, source: &core::DownwardAPIVolumeSource, path: PathBuf) -> Result<PathBuf, Error> {
    let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
    let payload = source.items.iter().flatten().map(|item| file(pod, item, mode)).collect::<Result<Payload, _>>()?;
    if !path.is_dir() {
        disk::make_dir(&path, 0o777).map_err(|e| Error::io("making", &path, e))?;
    }
    atomic::write(&path, &payload).map_err(|e| Error::io("writing to", &path, e))?;
    Ok(path)
}

fn file(pod: &Pod, item: &core::DownwardAPIVolumeFile, mode: i32) -> Result<(PathBuf, Content), Error> {
    let Some(field) = &item.field_ref else { return Err(Error::NotServed("downwardAPI with resourceFieldRef")) };
    let text = env::metadata_field(pod, &field.field_path)
        .ok_or_else(|| Error::Invalid(format!("{} can't be had in a volume", field.field_path)))?;
    let mode = u32::try_from(item.mode.unwrap_or(mode)).unwrap_or(0) & 0o777;
    Ok((Path::new(&item.path).to_owned(), Content { bytes: text.into_bytes(), mode }))
}
