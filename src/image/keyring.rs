//! Which credentials are for which image (pkg/credentialprovider/keyring.go).

use std::collections::BTreeMap;

use super::docker_config::{self, Form};
use crate::cri::Auth;
use crate::local::Secret;

/// How Docker Hub is called in files with credentials.
const DOCKER_HUB: &str = "index.docker.io";

/// Credentials by what they are for: a registry's host, with a port or a part of the path behind
/// it, and with `*` in parts of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keyring(BTreeMap<String, Vec<Auth>>);

/// A secret named in `imagePullSecrets` that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("image pull secret {secret:?}: {source}")]
pub struct SecretError {
    pub secret: String,
    pub source: docker_config::Error,
}

impl Keyring {
    /// Of secrets of the types `kubernetes.io/dockerconfigjson` and `kubernetes.io/dockercfg`; others
    /// hold no such credentials and are passed over.
    pub fn of_secrets<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a Secret)>) -> Result<Keyring, SecretError> {
        let mut keyring = Keyring::default();
        for (name, secret) in secrets {
            let (key, form) = match secret.kind.as_str() {
                "kubernetes.io/dockerconfigjson" => (".dockerconfigjson", Form::Json),
                "kubernetes.io/dockercfg" => (".dockercfg", Form::Cfg),
                _ => continue,
            };
            let Some(text) = secret.data.get(key) else { continue };
            let decoded = docker_config::decode(text.bytes(), form)
                .map_err(|source| SecretError { secret: name.to_owned(), source })?;
            keyring.merge(decoded);
        }
        Ok(keyring)
    }

    /// Adds credentials for `place`, a host or a URL. What is no such thing is never found.
    pub fn add(&mut self, place: &str, auth: Auth) {
        let place = place.strip_prefix("https://").or_else(|| place.strip_prefix("http://")).unwrap_or(place);
        let (host, path) = place.split_once('/').unwrap_or((place, ""));
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        // `https://index.docker.io/v1/` is the whole registry.
        let path = ["v1/", "v2/"].iter().find_map(|version| path.strip_prefix(version)).unwrap_or(path);
        let place = if path.is_empty() { host.to_owned() } else { format!("{host}/{path}") };
        self.0.entry(place).or_default().push(auth);
    }

    /// What stands in both for the same place is tried in order.
    pub fn merge(&mut self, other: Keyring) {
        for (place, auths) in other.0 {
            self.0.entry(place).or_default().extend(auths);
        }
    }

    /// The credentials for a repository (`registry/path`), those for the longest place first.
    pub fn lookup(&self, repository: &str) -> Vec<Auth> {
        // From the end of the order: a longer place before its beginning, a plain one before `*`.
        let matching = self.0.iter().rev().filter(|(place, _)| place_matches(place, repository));
        let mut auths: Vec<_> = matching.flat_map(|(_, auths)| auths.iter().cloned()).collect();
        if auths.is_empty() && repository.starts_with("docker.io/") {
            auths = self.0.get(DOCKER_HUB).cloned().unwrap_or_default();
        }
        auths
    }
}

/// Whether a place with `*` in it holds a repository: the hosts have the same number of parts, each
/// of which fits, the ports are equal, and the path begins with the place's.
pub fn place_matches(place: &str, repository: &str) -> bool {
    let ((place_host, place_port, place_path), (host, port, path)) = (split(place), split(repository));
    let same_length = place_host.split('.').count() == host.split('.').count();
    let parts_fit = place_host.split('.').zip(host.split('.')).all(|(pattern, part)| wildcard(pattern, part));
    place_port == port && same_length && parts_fit && path.starts_with(place_path)
}

/// Host, port and path; empty where there is none.
fn split(text: &str) -> (&str, &str, &str) {
    let (host, path) = text.split_once('/').unwrap_or((text, ""));
    match host.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port, path),
        _ => (host, "", path),
    }
}

/// `*` stands for anything.
fn wildcard(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut pieces: Vec<_> = rest.split('*').collect();
    let tail = pieces.pop().unwrap_or_default();
    for piece in pieces {
        match text.find(piece) {
            Some(at) => text = text.get(at + piece.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    text.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::SecretValue;

    fn user(name: &str) -> Auth {
        Auth { username: name.to_owned(), ..Default::default() }
    }

    fn users(keyring: &Keyring, repository: &str) -> Vec<String> {
        keyring.lookup(repository).into_iter().map(|auth| auth.username).collect()
    }

    #[test]
    fn places() {
        let table = [
            ("quay.io", "quay.io/a/b", true),
            ("quay.io", "quay.io:443/a", false),
            ("quay.io:443", "quay.io:443/a", true),
            ("quay.io", "x.quay.io/a", false),
            ("quay.io/a", "quay.io/a/b", true),
            ("quay.io/a/b", "quay.io/a", false),
            ("*.io", "quay.io/a", true),
            ("*.io", "x.quay.io/a", false),
            ("*.quay.io", "x.quay.io/a", true),
            ("*.quay.io", "quay.io/a", false),
            ("x.*.io", "x.quay.io/a", true),
            ("app*.quay.io", "app1.quay.io/a", true),
            ("app*.quay.io", "web1.quay.io/a", false),
            ("a*b*c.io", "aXbYc.io/a", true),
            ("a*b*c.io", "aXcYb.io/a", false),
            ("*.*", "quay.io/a", true),
            ("[fd00::1]:5000", "[fd00::1]:5000/a", true),
            ("[fd00::1]", "[fd00::1]:5000/a", false),
            ("localhost:5000/team", "localhost:5000/team/app", true),
        ];
        for (place, repository, want) in table {
            assert_eq!(place_matches(place, repository), want, "{place} {repository}");
        }
    }

    #[test]
    fn the_longest_place_comes_first_and_hub_has_many_names() {
        let mut keyring = Keyring::default();
        for place in ["*.io", "quay.io/a/b", "https://quay.io/v2/", "http://quay.io/a", "https://index.docker.io/v1/"] {
            keyring.add(place, user(place));
        }
        keyring.add("quay.io/a", user("second"));
        assert_eq!(
            users(&keyring, "quay.io/a/b/c"),
            ["quay.io/a/b", "http://quay.io/a", "second", "https://quay.io/v2/", "*.io"]
        );
        assert_eq!(users(&keyring, "quay.io/x"), ["https://quay.io/v2/", "*.io"]);
        // `*.io` is one for docker.io, so that Docker Hub's own name isn't looked for.
        assert_eq!(users(&keyring, "docker.io/library/busybox"), ["*.io"]);
        assert!(users(&keyring, "ghcr.example/x").is_empty());

        let mut hub = Keyring::default();
        hub.add("https://index.docker.io/v1/", user("hub"));
        assert_eq!(users(&hub, "docker.io/library/busybox"), ["hub"]);
        hub.add("docker.io", user("short"));
        assert_eq!(users(&hub, "docker.io/library/busybox"), ["short"]);
    }

    #[test]
    fn secrets() {
        let secret = |kind: &str, key: &str, text: &str| Secret {
            kind: kind.to_owned(),
            data: [(key.to_owned(), SecretValue::new(text.as_bytes().to_vec()))].into(),
            ..Secret::default()
        };
        let json =
            secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", r#"{"auths":{"a.io":{"username":"j"}}}"#);
        let cfg = secret("kubernetes.io/dockercfg", ".dockercfg", r#"{"a.io":{"username":"c"}}"#);
        let other = secret("Opaque", ".dockercfg", "hunter2");
        let keyring = Keyring::of_secrets([("one", &json), ("two", &cfg), ("three", &other)]).expect("decodes");
        assert_eq!(users(&keyring, "a.io/x"), ["j", "c"]);
        let broken = secret("kubernetes.io/dockercfg", ".dockercfg", "hunter2");
        let error = Keyring::of_secrets([("one", &json), ("four", &broken)]).expect_err("is refused").to_string();
        assert!(error.contains("\"four\"") && !error.contains("hunter2"), "{error}");
    }
}
