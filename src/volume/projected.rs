//! projected: files of several sources in one directory (pkg/volume/projected).

use super::atomic::{Content, Payload};
use super::{Context, Error, config_map, downward_api, keys, secret};
use crate::local::WantedToken;
use crate::pod::{Source, core};

/// The files of all sources; of two for one path the later one counts.
///
/// # Errors
/// Of the first source that can't be had; or when a file of one is a directory of another.
pub fn files(context: &Context<'_>, source: &core::ProjectedVolumeSource) -> Result<Payload, Error> {
    let mut all = Payload::new();
    for projection in source.sources.iter().flatten() {
        all.extend(of(context, projection, source.default_mode)?);
    }
    for path in all.keys() {
        if let Some(file) = path.ancestors().skip(1).find(|above| all.contains_key(*above)) {
            let why = format!("{} can't be a file and a directory with {} in it", file.display(), path.display());
            return Err(Error::Invalid(why));
        }
    }
    Ok(all)
}

fn of(context: &Context<'_>, source: &core::VolumeProjection, mode: Option<i32>) -> Result<Payload, Error> {
    if let Some(s) = &source.secret {
        return secret::of(context, &s.name, &s.items, mode, s.optional.unwrap_or(false));
    }
    if let Some(s) = &source.config_map {
        return config_map::of(context, &s.name, &s.items, mode, s.optional.unwrap_or(false));
    }
    if let Some(s) = &source.downward_api {
        return downward_api::of(context, &s.items, mode);
    }
    if let Some(s) = source.service_account_token.as_ref().filter(|_| context.pod.source == Source::Api) {
        let wanted = WantedToken::new(context.pod, s);
        let Some(token) = context.objects.token(&wanted) else {
            let name = format!("for service account {}", wanted.service_account);
            return Err(Error::NotFound { kind: "token", name });
        };
        return Ok([(keys::clean(&s.path), of_token(context, token.bytes(), mode))].into());
    }
    let kind = match source {
        s if s.service_account_token.is_some() => "serviceAccountToken",
        s if s.cluster_trust_bundle.is_some() => "clusterTrustBundle",
        s if s.pod_certificate.is_some() => "podCertificate",
        // A source of nothing, as the API allows it.
        _ => return Ok(Payload::new()),
    };
    Err(Error::Invalid(format!("projected source {kind} comes from an API server, which this node doesn't have")))
}

/// A token is its pod's alone, as far as it is told who that is.
fn of_token(context: &Context<'_>, token: &[u8], mode: Option<i32>) -> Content {
    let owner = context.user();
    let mode = match owner.is_some() || context.fs_group().is_some() {
        true => 0o600,
        false => mode.unwrap_or(keys::DEFAULT_MODE),
    };
    Content { owner, ..keys::content(token, mode) }
}
