//! Deletes: the file that holds the object is removed. A pod is there until it has ended, and may be
//! told meanwhile to end sooner.

use serde_json::{Value, json};

use super::{MAX_BODY, Result, Writer, dry, in_no_manifest, newest, not_taken, refused};
use crate::api::answer;
use crate::api::object::Object;
use crate::api::route::Name;
use crate::pod::Pod;
use crate::server::http::{Query, Request, Response};
use crate::sync_loop::orders::{Refused, What};

/// How it is to be deleted; from the body, or else from the query.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// Seconds.
    grace: Option<i64>,
    /// It has to be this one.
    uid: Option<String>,
    version: Option<String>,
    dry: bool,
}

impl Options {
    pub fn of(request: &mut Request<'_>) -> Result<Options> {
        let is_protobuf = request.head.header("content-type").is_some_and(|kind| kind.contains("protobuf"));
        let bytes = request.body.read(MAX_BODY)?;
        if is_protobuf && !bytes.is_empty() {
            return Err(answer::failed(415, "options of a delete have to be JSON"));
        }
        Options::parse(&bytes, &request.head.query)
    }

    fn parse(body: &[u8], query: &Query) -> Result<Options> {
        let body: Value = match body.is_empty() {
            true => json!({}),
            false => serde_json::from_slice(body)
                .ok()
                .filter(Value::is_object)
                .ok_or_else(|| answer::failed(400, "the body can't be read as DeleteOptions"))?,
        };
        let text = |path: &str| body.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
        let grace = match (body.get("gracePeriodSeconds"), query.get("gracePeriodSeconds")) {
            (None | Some(Value::Null), None) => None,
            (Some(Value::Number(number)), _) => number.as_i64(),
            (_, Some(text)) => text.parse().ok(),
            (Some(_), None) => return Err(answer::failed(400, "gracePeriodSeconds: it is no number of seconds")),
        };
        let policy = text("/propagationPolicy").or(query.get("propagationPolicy")).unwrap_or("Background");
        // Nothing depends on what can be deleted here, so that they are all the same.
        if !["Background", "Foreground", "Orphan"].contains(&policy) {
            let message = format!(
                "propagationPolicy: Unsupported value: {policy:?}: there are Background, Foreground and Orphan"
            );
            return Err(answer::failed(422, &message));
        }
        let in_body = body.get("dryRun").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Ok(Options {
            // As the API server takes it.
            grace: grace.map(|grace| if grace < 0 { 1 } else { grace }),
            uid: text("/preconditions/uid").map(str::to_owned),
            version: text("/preconditions/resourceVersion").map(str::to_owned),
            dry: dry(in_body.iter().map(|v| v.as_str().unwrap_or("?")).chain(query.all("dryRun")))?,
        })
    }

    fn check(&self, name: &Name, uid: &str, version: u64) -> Result<()> {
        let version = version.to_string();
        for (what, wanted, is) in [("UID", &self.uid, uid), ("ResourceVersion", &self.version, &version)] {
            if let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != is) {
                let message = format!(
                    "Operation cannot be fulfilled on {} {:?}: Precondition failed: {what} in precondition: {wanted}, \
                     {what} in object meta: {is}",
                    name.resource.name(),
                    name.name
                );
                return Err(answer::failed(409, &message));
            }
        }
        Ok(())
    }

    /// How long the pod has to end; what it says itself unless it is said.
    fn grace_of(&self, pod: &Pod) -> i64 {
        self.grace.unwrap_or_else(|| pod.meta.deletion_grace_period_seconds.unwrap_or_else(|| pod.grace_period()))
    }
}

impl Writer<'_> {
    pub fn delete(&self, name: &Name, options: &Options) -> Result<Response> {
        let manifests = self.manifests()?;
        let found = manifests.find(name).map_err(|e| refused(&e))?;
        let live = newest(self.store, name, self.manifests);
        let uid = live.as_ref().map(|entry| entry.object.uid()).unwrap_or_default();
        if let Some(live) = &live {
            options.check(name, &uid, live.version)?;
        }
        let pod = match live.as_ref().map(|entry| (&entry.object, entry.version)) {
            Some((Object::Pod { pod, .. }, version)) => Some((pod, version)),
            _ => None,
        };
        let is_ending = pod.is_some_and(|(pod, _)| pod.meta.deletion_timestamp.is_some());
        match (&found, &live) {
            (None, None) => return Err(answer::not_found(name)),
            (None, Some(_)) if !is_ending => return Err(in_no_manifest(manifests, name)),
            _ => {}
        }
        if !options.dry {
            if let Some(found) = found {
                manifests.remove(&found.path).map_err(|e| refused(&e))?;
                manifests.forget_applied(name);
                let kind = name.resource.kind();
                log::info!("{kind} {}/{} is deleted with {}", name.namespace, name.name, found.path.display());
            }
            if let Some((pod, _)) = pod {
                match self.orders.give(pod.uid.clone(), What::End { grace: options.grace_of(pod) }) {
                    // It may have ended at once.
                    Ok(()) | Err(Refused::Gone) => {}
                    Err(why) => return Err(not_taken(name, why)),
                }
            }
        }
        let shown = match pod {
            Some((_, version)) if !options.dry && !is_ending => self.seen(name, version),
            Some(_) => self.live(name).map(|(_, live)| live),
            None => None,
        };
        Ok(answer::ok(&shown.unwrap_or_else(|| {
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": {"name": name.name, "kind": name.resource.name(), "uid": uid},
            })
        })))
    }

    /// All of those; what can't be deleted doesn't keep the others.
    pub fn delete_all(&self, names: &[Name], options: &Options) -> Result<()> {
        let results: Vec<Result<Response>> = names.iter().map(|name| self.delete(name, options)).collect();
        // One that has gone by itself is what was wanted.
        results.into_iter().find_map(|result| result.err().filter(|refusal| refusal.status != 404)).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::resource::Resource;

    #[test]
    fn options() {
        let of = |grace, dry| Ok(Options { grace, dry, ..Options::default() });
        let table = [
            ("", "", of(None, false)),
            ("{}", "", of(None, false)),
            (r#"{"gracePeriodSeconds": 0, "kind": "DeleteOptions"}"#, "gracePeriodSeconds=5", of(Some(0), false)),
            (r#"{"gracePeriodSeconds": null}"#, "", of(None, false)),
            ("", "gracePeriodSeconds=5", of(Some(5), false)),
            (r#"{"gracePeriodSeconds": -1}"#, "", of(Some(1), false)),
            (r#"{"gracePeriodSeconds": "x"}"#, "", Err(400)),
            (r#"{"propagationPolicy": "Orphan"}"#, "", of(None, false)),
            (r#"{"propagationPolicy": "None"}"#, "", Err(422)),
            ("", "propagationPolicy=x", Err(422)),
            (r#"{"dryRun": ["All"]}"#, "", of(None, true)),
            (r#"{"dryRun": []}"#, "", of(None, false)),
            (r#"{"dryRun": ["Some"]}"#, "", Err(422)),
            ("", "dryRun=All", of(None, true)),
            ("", "dryRun=server", Err(422)),
            ("{", "", Err(400)),
            ("[]", "", Err(400)),
        ];
        for (body, query, want) in table {
            let got = Options::parse(body.as_bytes(), &Query::parse(query)).map_err(|refusal| refusal.status);
            assert_eq!(got, want, "{body} {query}");
        }
        let both = Options::parse(br#"{"preconditions": {"uid": "u", "resourceVersion": "7"}}"#, &Query::parse(""));
        let both = both.expect("reads");
        let name = Name { resource: Resource::Pods, namespace: "ns".to_owned(), name: "web".to_owned() };
        for (uid, version, want) in [("u", 7, Ok(())), ("v", 7, Err(409)), ("u", 8, Err(409))] {
            assert_eq!(both.check(&name, uid, version).map_err(|refusal| refusal.status), want, "{uid} {version}");
        }
    }
}
