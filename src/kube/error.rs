//! What can be wrong with a request to the API server.

use std::io;
use std::time::Duration;

use serde::Deserialize;

use super::kubeconfig;

/// Why the server refused something: the part of `meta/v1.Status` that is acted on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    pub code: u16,
    /// A word of the API, such as `NotFound`; empty when the answer was not the API's.
    pub reason: String,
    pub message: String,
    pub details: Option<Details>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Details {
    pub retry_after_seconds: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the request would be made with can't be used.
    #[error(transparent)]
    Config(#[from] kubeconfig::Error),
    /// There was no answer, or it broke off.
    #[error("API server {server}: {why}")]
    Unreachable { server: String, why: String },
    /// The server said no.
    #[error("{request}: {} ({})", .status.message, .status.code)]
    Refused { request: String, status: Status },
    /// The answer is not what the API says that it is.
    #[error("{request}: the answer can't be used: {why}")]
    Answer { request: String, why: String },
}

impl Error {
    pub fn status(&self) -> Option<&Status> {
        match self {
            Error::Refused { status, .. } => Some(status),
            _ => None,
        }
    }

    fn is(&self, code: u16, reason: &str) -> bool {
        self.status().is_some_and(|status| status.reason == reason || status.reason.is_empty() && status.code == code)
    }

    pub fn is_not_found(&self) -> bool {
        self.is(404, "NotFound")
    }

    pub fn is_already_exists(&self) -> bool {
        self.status().is_some_and(|status| status.reason == "AlreadyExists")
    }

    /// Somebody else changed it, or it isn't what the request was made for.
    pub fn is_conflict(&self) -> bool {
        self.is(409, "Conflict")
    }

    /// What is known is too old for a watch to go on from: list again.
    pub fn is_gone(&self) -> bool {
        self.status().is_some_and(|status| status.code == 410 || matches!(status.reason.as_str(), "Expired" | "Gone"))
    }

    /// The server knows nobody with these credentials.
    pub fn is_unauthorized(&self) -> bool {
        self.is(401, "Unauthorized")
    }

    pub fn is_forbidden(&self) -> bool {
        self.is(403, "Forbidden")
    }

    /// The same request can't succeed later either, unless something else is changed first.
    pub fn is_final(&self) -> bool {
        self.status().is_some_and(|s| matches!(s.code, 400 | 404..=406 | 409 | 410 | 413 | 415 | 422))
    }

    /// How long the server wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status()?.details.as_ref()?.retry_after_seconds?;
        // More would be as if it never answered again.
        Some(Duration::from_secs(seconds.min(600)))
    }
}

impl Status {
    /// Of an answer with an error: what its body says, or what its code does when it isn't the API's.
    pub fn of(code: u16, retry_after: Option<&str>, body: &[u8]) -> Status {
        let mut status: Status = serde_json::from_slice(body).unwrap_or_default();
        status.code = code;
        if status.message.is_empty() {
            let text = String::from_utf8_lossy(body.get(..body.len().min(200)).unwrap_or_default());
            status.message = format!("status {code} {}", text.trim()).trim_end().to_owned();
        }
        let seconds = retry_after.and_then(|text| text.trim().parse().ok());
        if let Some(seconds) = seconds {
            status.details.get_or_insert_default().retry_after_seconds.get_or_insert(seconds);
        }
        status
    }
}

/// The error in few words, the same ones each time.
pub fn describe(error: &ureq::Error) -> String {
    use io::ErrorKind as Kind;
    match error {
        ureq::Error::Timeout(ureq::Timeout::PerRead) => "not a word for too long".to_owned(),
        ureq::Error::Timeout(_) => "no whole answer in time".to_owned(),
        ureq::Error::BodyExceedsLimit(_) => "the answer is too long".to_owned(),
        ureq::Error::HostNotFound => "its host is not known".to_owned(),
        ureq::Error::Io(e) => match e.kind() {
            Kind::ConnectionRefused => "connection refused".to_owned(),
            Kind::ConnectionReset => "connection reset by peer".to_owned(),
            Kind::HostUnreachable => "no route to host".to_owned(),
            Kind::NetworkUnreachable => "network is unreachable".to_owned(),
            Kind::UnexpectedEof => "the connection was closed too early".to_owned(),
            Kind::TimedOut => "no whole answer in time".to_owned(),
            _ => match e.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>()) {
                Some(inner) => describe(inner),
                None => e.to_string(),
            },
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals() {
        let refused = |code, retry: Option<&str>, body: &str| {
            let status = Status::of(code, retry, body.as_bytes());
            Error::Refused { request: "GET /x".to_owned(), status }
        };
        let gone = r#"{"kind":"Status","status":"Failure","message":"too old resource version","reason":"Expired","code":410}"#;
        let e = refused(410, None, gone);
        assert!(e.is_gone() && !e.is_not_found());
        assert_eq!(e.to_string(), "GET /x: too old resource version (410)");
        let busy =
            r#"{"kind":"Status","reason":"TooManyRequests","message":"later","details":{"retryAfterSeconds":3}}"#;
        assert_eq!(refused(429, Some("1"), busy).retry_after(), Some(Duration::from_secs(3)));
        assert_eq!(refused(503, Some("7"), "busy").retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(refused(502, None, "<html>").to_string(), "GET /x: status 502 <html> (502)");
        // AlreadyExists has the code of a conflict, and is none.
        let exists = refused(409, None, r#"{"reason":"AlreadyExists","message":"m"}"#);
        assert!(exists.is_already_exists() && !exists.is_conflict());
        assert!(refused(404, None, "").is_not_found());
    }
}
