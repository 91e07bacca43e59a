//! What a client wants of a list: a page of it, and how old it may be; and of a watch: where it is to
//! begin (apimachinery/pkg/apis/meta/internalversion/validation). Pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};

use super::answer;
use super::object::Key;
use super::watch::Start;
use crate::server::http::{Query, Response};

/// Where a page begins. The pages of one list all tell its first version, so that whoever watches from
/// there hears of all that has changed while it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Continue {
    pub version: u64,
    /// Namespace, name and UID of the last object of the page before.
    pub after: [String; 3],
}

impl Continue {
    pub fn behind(key: &Key, version: u64) -> Continue {
        Continue { version, after: [&key.namespace, &key.name, &key.uid].map(|part| part.to_string()) }
    }

    pub fn is_before(&self, key: &Key) -> bool {
        let [namespace, name, uid] = &self.after;
        (&**namespace, &**name, &**uid) < (&*key.namespace, &*key.name, &*key.uid)
    }

    pub fn token(&self) -> String {
        BASE64.encode(json!({"v": self.version, "after": self.after}).to_string())
    }

    fn parse(token: &str) -> Option<Continue> {
        let value: Value = serde_json::from_slice(&BASE64.decode(token).ok()?).ok()?;
        let part = |i: usize| value["after"][i].as_str().map(str::to_owned);
        Some(Continue { version: value["v"].as_u64()?, after: [part(0)?, part(1)?, part(2)?] })
    }
}

/// A part of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// So many objects at most.
    pub limit: Option<usize>,
    pub from: Option<Continue>,
}

impl Page {
    /// `now`: the version that there is.
    ///
    /// # Errors
    /// When it can't be had.
    pub fn of(query: &Query, now: u64) -> Result<Page, Response> {
        let text = |name: &str| query.get(name).filter(|text| !text.is_empty());
        let limit = match text("limit").map(str::parse::<i64>) {
            None => None,
            Some(Ok(limit)) => usize::try_from(limit).ok().filter(|limit| *limit > 0),
            Some(Err(_)) => return Err(wrong("limit", query.get("limit"))),
        };
        let version = version(query)?;
        let fits = text("resourceVersionMatch");
        if let Some(token) = text("continue") {
            if version.is_some() || fits.is_some() {
                let message = "specifying resource version is not allowed when using continue";
                return Err(answer::failed(400, message));
            }
            let from = Continue::parse(token).ok_or_else(|| wrong("continue", Some(token)))?;
            return Ok(Page { limit, from: Some(from) });
        }
        match (fits, version) {
            (None, None) => {}
            (Some(_), None) => return Err(forbidden("unless resourceVersion is provided")),
            (Some("Exact"), Some(0)) => return Err(forbidden("as Exact with resourceVersion 0")),
            (Some("Exact"), Some(version)) if version < now => {
                return Err(answer::failed(410, "The provided resource version is no longer available"));
            }
            (Some("Exact" | "NotOlderThan") | None, Some(version)) => not_older(version, now)?,
            (Some(other), _) => return Err(wrong("resourceVersionMatch", Some(other))),
        }
        Ok(Page { limit, from: None })
    }
}

/// Where a watch begins. `now`: the version that there is.
///
/// # Errors
/// When it can't be had.
pub fn start(query: &Query, now: u64) -> Result<Start, Response> {
    let version = version(query)?;
    let fits = query.get("resourceVersionMatch").filter(|text| !text.is_empty());
    let initial = query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents"));
    match (initial, fits, version.filter(|version| *version > 0)) {
        (None, Some(_), _) => Err(forbidden("for watch unless sendInitialEvents is provided")),
        (Some(_), fits, _) if fits != Some("NotOlderThan") => {
            let message = "sendInitialEvents: Forbidden: sendInitialEvents requires setting resourceVersionMatch to \
                           NotOlderThan";
            Err(answer::failed(422, message))
        }
        (Some(true), _, wanted) => {
            wanted.map_or(Ok(()), |wanted| not_older(wanted, now))?;
            Ok(Start::Now { mark: true })
        }
        (Some(false), _, None) => Ok(Start::After(now)),
        (None, _, None) => Ok(Start::Now { mark: false }),
        (_, _, Some(version)) => Ok(Start::After(version)),
    }
}

/// `None` when any will do.
fn version(query: &Query) -> Result<Option<u64>, Response> {
    let text = query.get("resourceVersion").filter(|text| !text.is_empty());
    text.map(|text| text.parse().map_err(|_| wrong("resourceVersion", Some(text)))).transpose()
}

fn not_older(version: u64, now: u64) -> Result<(), Response> {
    if version <= now {
        return Ok(());
    }
    let mut status = answer::failure(504, "Timeout", &format!("Too large resource version: {version}, current: {now}"));
    let causes = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
    status["details"] = json!({"retryAfterSeconds": 1, "causes": causes});
    Err(answer::with(504, &status))
}

fn forbidden(why: &str) -> Response {
    let message = format!("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden {why}");
    answer::failed(422, &message)
}

fn wrong(name: &str, value: Option<&str>) -> Response {
    answer::failed(400, &format!("{name}: Invalid value: {:?}", value.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::resource::Resource;

    #[test]
    fn pages() {
        let key = |namespace: &str, name: &str, uid: &str| Key {
            resource: Resource::Pods,
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
        };
        let from = Continue::behind(&key("b", "m", "u"), 7);
        let token = from.token();
        let page = |limit, from| Ok(Page { limit, from });
        let table = [
            (String::new(), page(None, None)),
            ("limit=500&resourceVersion=0".to_owned(), page(Some(500), None)),
            ("limit=0".to_owned(), page(None, None)),
            ("limit=x".to_owned(), Err(400)),
            (format!("limit=2&continue={token}"), page(Some(2), Some(from.clone()))),
            (format!("continue={token}&resourceVersion=7"), Err(400)),
            ("continue=e30".to_owned(), Err(400)),
            ("continue=%21".to_owned(), Err(400)),
            ("resourceVersion=10".to_owned(), page(None, None)),
            ("resourceVersion=11".to_owned(), Err(504)),
            ("resourceVersion=x".to_owned(), Err(400)),
            ("resourceVersion=10&resourceVersionMatch=Exact".to_owned(), page(None, None)),
            ("resourceVersion=9&resourceVersionMatch=Exact".to_owned(), Err(410)),
            ("resourceVersion=11&resourceVersionMatch=Exact".to_owned(), Err(504)),
            ("resourceVersion=0&resourceVersionMatch=Exact".to_owned(), Err(422)),
            ("resourceVersion=9&resourceVersionMatch=NotOlderThan".to_owned(), page(None, None)),
            ("resourceVersionMatch=NotOlderThan".to_owned(), Err(422)),
            ("resourceVersion=9&resourceVersionMatch=Other".to_owned(), Err(400)),
        ];
        for (query, want) in table {
            let got = Page::of(&Query::parse(&query), 10).map_err(|refusal| refusal.status);
            assert_eq!(got, want, "{query}");
        }
        for (other, want) in [
            (key("a", "z", "z"), false),
            (key("b", "m", "u"), false),
            (key("b", "m", "v"), true),
            (key("c", "", ""), true),
        ] {
            assert_eq!(from.is_before(&other), want, "{other:?}");
        }
    }

    #[test]
    fn watches() {
        let table = [
            ("", Ok(Start::Now { mark: false })),
            ("resourceVersion=0", Ok(Start::Now { mark: false })),
            ("resourceVersion=9", Ok(Start::After(9))),
            ("resourceVersion=x", Err(400)),
            ("resourceVersionMatch=NotOlderThan", Err(422)),
            ("sendInitialEvents=true", Err(422)),
            ("sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=9", Err(422)),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", Ok(Start::Now { mark: true })),
            (
                "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=10",
                Ok(Start::Now { mark: true }),
            ),
            ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=11", Err(504)),
            ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", Ok(Start::After(10))),
            ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=3", Ok(Start::After(3))),
        ];
        for (query, want) in table {
            let got = start(&Query::parse(query), 10).map_err(|refusal| refusal.status);
            assert_eq!(got, want, "{query}");
        }
    }
}
