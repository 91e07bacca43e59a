//! downwardAPI: files with fields of the pod and resources of its containers
//! (pkg/volume/downwardapi).

use super::atomic::Payload;
use super::keys::{self, DEFAULT_MODE};
use super::{Context, Error};
use crate::pod::{core, env};

pub fn files(context: &Context<'_>, source: &core::DownwardAPIVolumeSource) -> Result<Payload, Error> {
    of(context, &source.items, source.default_mode)
}

pub fn of(
    context: &Context<'_>,
    items: &Option<Vec<core::DownwardAPIVolumeFile>>,
    default_mode: Option<i32>,
) -> Result<Payload, Error> {
    let mode = default_mode.unwrap_or(DEFAULT_MODE);
    let items = items.iter().flatten();
    let file = |item: &core::DownwardAPIVolumeFile| {
        let text = text(context, item)?;
        Ok((keys::clean(&item.path), keys::content(text.as_bytes(), item.mode.unwrap_or(mode))))
    };
    items.map(file).collect()
}

fn text(context: &Context<'_>, item: &core::DownwardAPIVolumeFile) -> Result<String, Error> {
    if let Some(field) = &item.field_ref {
        let text = env::metadata_field(context.pod, &field.field_path);
        return text.ok_or_else(|| Error::Invalid(format!("{} can't be had in a volume", field.field_path)));
    }
    let Some(field) = &item.resource_field_ref else {
        return Err(Error::Invalid(format!("{}: neither fieldRef nor resourceFieldRef", item.path)));
    };
    let value = env::resource_field(context.pod, None, field, context.allocatable);
    value.map_err(|e| Error::Invalid(format!("{}: {e}", item.path)))
}
