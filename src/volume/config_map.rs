//! configMap: the keys of a config map as files (pkg/volume/configmap).

use std::borrow::Cow;

use super::atomic::Payload;
use super::keys::{self, Wanted};
use super::{Context, Error};
use crate::pod::core;

pub fn files(context: &Context<'_>, source: &core::ConfigMapVolumeSource) -> Result<Payload, Error> {
    let optional = source.optional.unwrap_or(false);
    of(context, &source.name, &source.items, source.default_mode, optional)
}

/// The files of the config map `name`; none when it is missing and optional.
pub fn of(
    context: &Context<'_>,
    name: &str,
    items: &Option<Vec<core::KeyToPath>>,
    default_mode: Option<i32>,
    optional: bool,
) -> Result<Payload, Error> {
    let Some(map) = context.objects.config_map(&context.pod.name.namespace, name) else {
        return keys::of_missing("configmap", name, optional);
    };
    let texts = map.data.iter().map(|(key, text)| (key.as_str(), Cow::Borrowed(text.as_bytes())));
    let binary = map.binary_data.iter().map(|(key, bytes)| (key.as_str(), Cow::Borrowed(bytes.0.as_slice())));
    keys::files(&Wanted { kind: "config", items, default_mode, optional }, &texts.chain(binary).collect())
}
