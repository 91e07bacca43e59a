//! Server-side apply: a manager says what it wants of an object, and gets a say in nothing else of it
//! (KEP 555). What each manager has applied is kept beside the manifests, which don't tell of it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::owned::{self, Conflict, Others};
use super::{MAX_BODY, Manifests, Result, Writer, check, is_dry, one, patch, prepare, refused};
use crate::api::answer;
use crate::api::route::Name;
use crate::disk;
use crate::server::http::{Request, Response};

pub const KIND: &str = "application/apply-patch+yaml";
/// Managers of one object, and bytes of the name of one.
const MAX_MANAGERS: usize = 32;
const MAX_NAME: usize = 128;
/// Bytes of what they have applied.
const MAX_KEPT: u64 = 32 << 20;

/// What managers have applied of one object.
type Applied = BTreeMap<String, Value>;

impl Writer<'_> {
    pub fn apply(&self, name: &Name, request: &mut Request<'_>) -> Result<Response> {
        let manifests = self.manifests()?;
        let dry = is_dry(request)?;
        let query = &request.head.query;
        let (manager, force) = (query.get("fieldManager").unwrap_or_default().to_owned(), query.flag("force"));
        if manager.is_empty() || manager.len() > MAX_NAME || manager.chars().any(char::is_control) {
            let message =
                format!("fieldManager: Required value: is required for apply patch, {MAX_NAME} bytes at most");
            return Err(answer::failed(422, &message));
        }
        let config = config(manifests, name, &request.body.read(MAX_BODY)?)?;
        let found = manifests.find(name).map_err(|e| refused(&e))?;
        let before = self.live(name);
        let Some(found) = found else {
            if before.is_some() {
                return Err(super::in_no_manifest(manifests, name));
            }
            let mut document = config.clone();
            prepare(manifests, name, &mut document)?;
            let text = check(manifests, name, &document)?;
            if !dry {
                let path = manifests.own_path(name);
                manifests.write(&path, &text).map_err(|e| refused(&e))?;
                log::info!(
                    "{} {}/{} is created in {}",
                    name.resource.kind(),
                    name.namespace,
                    name.name,
                    path.display()
                );
                manifests.keep_applied(name, &BTreeMap::from([(manager, config)])).map_err(|e| not_kept(&e))?;
                document = self.seen(name, 0).unwrap_or(document);
            }
            return Ok(answer::created(&document));
        };
        let mut applied = manifests.applied(name);
        // Who has something that is other by now, has it no more.
        let still = |(who, config): (String, Value)| Some((who, owned::still(&config, Some(&found.document), "")?));
        applied = applied.into_iter().filter_map(still).collect();
        let mut document = merged(name, &found.document, &config, &manager, &mut applied, force)?;
        if applied.len() >= MAX_MANAGERS {
            return Err(answer::failed(422, &format!("more than {MAX_MANAGERS} managers have applied it")));
        }
        let changed = document != found.document;
        prepare(manifests, name, &mut document)?;
        let text = check(manifests, name, &document)?;
        if dry {
            return Ok(answer::ok(&document));
        }
        if changed {
            manifests.write(&found.path, &text).map_err(|e| refused(&e))?;
            let (kind, path) = (name.resource.kind(), found.path.display());
            log::info!("{kind} {}/{} is changed in {path}", name.namespace, name.name);
        }
        applied.insert(manager, config);
        manifests.keep_applied(name, &applied).map_err(|e| not_kept(&e))?;
        let after = before.as_ref().map_or(0, |(version, _)| *version);
        let shown = if changed { self.seen(name, after) } else { before.map(|(_, live)| live) };
        Ok(answer::ok(&shown.unwrap_or(document)))
    }
}

/// The object of `live` with what the manager wants of it.
fn merged(
    name: &Name,
    live: &Value,
    config: &Value,
    manager: &str,
    applied: &mut Applied,
    force: bool,
) -> Result<Value> {
    let mine = applied.remove(manager);
    let others: Others<'_> = applied.iter().map(|(who, config)| (who.as_str(), config)).collect();
    let mut found = Vec::new();
    owned::conflicts(config, Some(live), mine.as_ref(), &others, "", "", &mut found);
    if !found.is_empty() && !force {
        return Err(conflict(name, &found));
    }
    let left = match &mine {
        Some(mine) => owned::without(live, mine, Some(config), &others, "").unwrap_or_else(|| json!({})),
        None => live.clone(),
    };
    patch::apply(patch::Kind::Strategic, left, config).map_err(|why| answer::failed(422, &why))
}

fn conflict(name: &Name, found: &[Conflict]) -> Response {
    let all: Vec<String> = found.iter().map(|c| format!("conflict with {:?}: {}", c.manager, c.field)).collect();
    let count = if found.len() == 1 { "1 conflict".to_owned() } else { format!("{} conflicts", found.len()) };
    let message = format!("Apply failed with {count}: {}", all.join("; "));
    let mut status = answer::failure(409, "Conflict", &message);
    let cause = |c: &Conflict| json!({"reason": "FieldManagerConflict", "message": format!("conflict with {:?}", c.manager), "field": c.field});
    let causes: Vec<Value> = found.iter().map(cause).collect();
    status["details"] = json!({"name": name.name, "kind": name.resource.name(), "causes": causes});
    answer::with(409, &status)
}

/// What the manager says, without what every object has.
fn config(manifests: &Manifests, name: &Name, bytes: &[u8]) -> Result<Value> {
    let wrong = |why: &str| answer::failed(400, &format!("the configuration can't be read: {why}"));
    let text = std::str::from_utf8(bytes).map_err(|e| wrong(&e.to_string()))?;
    let mut config = one(text).map_err(|why| wrong(&why))?;
    let named = config.pointer("/metadata/name").and_then(Value::as_str).unwrap_or(&name.name);
    if manifests.manifest_name(named) != manifests.manifest_name(&name.name) {
        return Err(wrong("its name is not that of the request"));
    }
    prepare(manifests, name, &mut config)?;
    tidy(&mut config, "").map_err(|why| answer::failed(422, &why))?;
    if let Some(config) = config.as_object_mut() {
        for key in ["apiVersion", "kind"] {
            config.remove(key);
        }
        if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut) {
            for key in ["name", "namespace"] {
                metadata.remove(key);
            }
        }
        config.retain(|key, value| key != "metadata" || *value != json!({}));
    }
    Ok(config)
}

/// Without fields that are null; refuses what a merge would take for something else.
fn tidy(value: &mut Value, name: &str) -> std::result::Result<(), String> {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            for (key, value) in fields {
                if key.starts_with('$') {
                    return Err(format!("{key:?} can't be applied"));
                }
                tidy(value, key)?;
            }
        }
        Value::Array(items) => {
            if let Some(key) = patch::merge_key(name) {
                let keys: Vec<_> = items.iter().map(|item| item.get(key)).collect();
                if keys.iter().any(Option::is_none) {
                    return Err(format!("an item of {name} has no {key}"));
                }
                if keys.iter().enumerate().any(|(i, key)| keys.iter().skip(i + 1).any(|other| other == key)) {
                    return Err(format!("two items of {name} have the same {key}; apply it from the client's side"));
                }
            }
            items.iter_mut().try_for_each(|item| tidy(item, ""))?;
        }
        _ => {}
    }
    Ok(())
}

fn not_kept(error: &io::Error) -> Response {
    answer::failed(500, &format!("the object is written, but not who applied it: {error}"))
}

impl Manifests {
    fn applied_path(&self, name: &Name) -> Option<PathBuf> {
        let mut file = self.own_path(name).file_name()?.to_owned();
        file.push(".json");
        Some(self.applied.join(file))
    }

    /// What managers have applied; nothing when that can't be read: then the fields are of the time
    /// before.
    fn applied(&self, name: &Name) -> Applied {
        let Some(path) = self.applied_path(name).filter(|path| path.exists()) else { return Applied::default() };
        let read =
            disk::read(&path, MAX_KEPT).and_then(|bytes| serde_json::from_slice(&bytes).map_err(io::Error::other));
        read.inspect_err(|e| log::warn!("{}: {e}", path.display())).unwrap_or_default()
    }

    fn keep_applied(&self, name: &Name, applied: &Applied) -> io::Result<()> {
        let path = self.applied_path(name).ok_or(io::ErrorKind::InvalidInput)?;
        if !self.applied.is_dir() {
            disk::make_dir(&self.applied, 0o700)?;
        }
        let all: Map<String, Value> = applied.iter().map(|(who, config)| (who.clone(), config.clone())).collect();
        disk::write_atomic(&path, Value::from(all).to_string().as_bytes(), 0o600)
    }

    /// The object is gone, or is to begin anew.
    pub fn forget_applied(&self, name: &Name) {
        let Some(path) = self.applied_path(name) else { return };
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => log::warn!("{}: {e}", path.display()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_applied() {
        let table = [
            (json!({"data": {"a": null, "b": "1"}}), Ok(json!({"data": {"b": "1"}}))),
            (json!({"spec": {"$patch": "replace"}}), Err("$patch")),
            (json!({"ports": [{"containerPort": 53}, {"containerPort": 53}]}), Err("same containerPort")),
            (json!({"env": [{"value": "1"}]}), Err("has no name")),
            (json!({"args": ["1", "1"]}), Ok(json!({"args": ["1", "1"]}))),
        ];
        for (mut config, want) in table {
            let result = tidy(&mut config, "");
            match want {
                Ok(want) => assert_eq!((result, config), (Ok(()), want)),
                Err(why) => assert!(result.as_ref().is_err_and(|e| e.contains(why)), "{config}: {result:?}"),
            }
        }
    }
}
