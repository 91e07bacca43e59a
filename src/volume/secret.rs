//! secret: the keys of a secret as files, only ever in memory (pkg/volume/secret).

use std::borrow::Cow;

use super::atomic::Payload;
use super::keys::{self, Wanted};
use super::{Context, Error};
use crate::pod::core;

pub fn files(context: &Context<'_>, source: &core::SecretVolumeSource) -> Result<Payload, Error> {
    let name = source.secret_name.as_deref().unwrap_or_default();
    of(context, name, &source.items, source.default_mode, source.optional.unwrap_or(false))
}

/// The files of the secret `name`; none when it is missing and optional.
pub fn of(
    context: &Context<'_>,
    name: &str,
    items: &Option<Vec<core::KeyToPath>>,
    default_mode: Option<i32>,
    optional: bool,
) -> Result<Payload, Error> {
    let Some(secret) = context.objects.secret(&context.pod.name.namespace, name) else {
        return keys::of_missing("secret", name, optional);
    };
    let data = secret.data.iter().map(|(key, value)| (key.as_str(), Cow::Borrowed(value.bytes())));
    keys::files(&Wanted { kind: "secret", items, default_mode, optional }, &data.collect())
}
