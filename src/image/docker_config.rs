//! Docker's files with registry credentials, in both their forms, and where the node's own is
//! looked for (pkg/credentialprovider/config.go).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::Deserialize;

use super::keyring::Keyring;
use crate::cri::Auth;
use crate::disk;

/// Bytes; far more than any such file has.
const MAX_FILE: u64 = 1 << 20;

/// Never shows what is in the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("it is no JSON of a docker configuration (line {line}, column {column})")]
    Json { line: usize, column: usize },
    #[error("the credentials for {registry:?}: auth must be the base64 of USER:PASSWORD")]
    Auth { registry: String },
}

impl From<serde_json::Error> for Error {
    fn from(e: serde_json::Error) -> Error {
        // The text of the error may quote the value that doesn't fit.
        Error::Json { line: e.line(), column: e.column() }
    }
}

/// The two forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `config.json`: the registries stand under `auths`.
    Json,
    /// `.dockercfg`, the old one: the registries stand at the top.
    Cfg,
}

#[derive(Deserialize)]
struct Config {
    #[serde(default)]
    auths: Option<BTreeMap<String, Entry>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Entry {
    username: Option<String>,
    password: Option<String>,
    auth: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

/// Credentials by the registry, or part of one, that they are for.
pub fn decode(text: &[u8], form: Form) -> Result<Keyring, Error> {
    let entries = match form {
        Form::Json => serde_json::from_slice::<Config>(text)?.auths.unwrap_or_default(),
        Form::Cfg => serde_json::from_slice(text)?,
    };
    let mut keyring = Keyring::default();
    for (registry, entry) in entries {
        let auth = entry.auth().ok_or_else(|| Error::Auth { registry: registry.clone() })?;
        keyring.add(&registry, auth);
    }
    Ok(keyring)
}

impl Entry {
    fn auth(self) -> Option<Auth> {
        let (mut username, mut password) = (self.username.unwrap_or_default(), self.password.unwrap_or_default());
        if let Some(auth) = self.auth.filter(|auth| !auth.is_empty()) {
            (username, password) = user_and_password(&auth)?;
        }
        let identity_token = self.identitytoken.unwrap_or_default();
        let registry_token = self.registrytoken.unwrap_or_default();
        if !identity_token.is_empty() || !registry_token.is_empty() {
            // The token stands for the password. With a user name beside it, runtimes would send
            // that with an empty password.
            (username, password) = (String::new(), String::new());
        }
        Some(Auth { username, password, identity_token, registry_token, ..Default::default() })
    }
}

fn user_and_password(auth: &str) -> Option<(String, String)> {
    let auth = auth.trim();
    let engine = if auth.len() % 4 == 0 { &STANDARD } else { &STANDARD_NO_PAD };
    let text = String::from_utf8(engine.decode(auth).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    // Some tools pad with NUL.
    Some((user.to_owned(), password.trim_end_matches('\0').to_owned()))
}

/// The files in which the node's credentials are looked for, in order; the first that is there and
/// can be read is the only one that counts.
pub fn search_places(root_dir: &Path, home: Option<&Path>) -> Vec<(PathBuf, Form)> {
    let root = Path::new("/");
    // The agent's working directory is a place too.
    let here = Path::new("");
    let home = home.unwrap_or(root);
    let (docker_home, docker_root) = (home.join(".docker"), root.join(".docker"));
    let json = [root_dir, here, &docker_home, &docker_root].map(|dir| (dir.join("config.json"), Form::Json));
    let old = [root_dir, here, home, root];
    let cfg = old.map(|dir| (dir.join(".dockercfg"), Form::Cfg));
    let in_secret = old.map(|dir| (dir.join(".dockerconfigjson"), Form::Json));
    json.into_iter().chain(cfg).chain(in_secret).collect()
}

/// What a search has found.
#[derive(Debug, Default)]
pub struct Found {
    pub keyring: Keyring,
    /// What was wrong with the files that had to be passed over.
    pub problems: Vec<String>,
}

/// Reads the first file of `places` that can be read.
pub fn search(places: &[(PathBuf, Form)]) -> Found {
    let mut found = Found::default();
    for (path, form) in places {
        let problem = match disk::read(path, MAX_FILE).map(|text| decode(&text, *form)) {
            Ok(Ok(keyring)) => {
                found.keyring = keyring;
                break;
            }
            Ok(Err(e)) => e.to_string(),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            Err(e) => e.to_string(),
        };
        found.problems.push(format!("the registry credentials in {} are not used: {problem}", path.display()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(keyring: &Keyring, repository: &str) -> Auth {
        keyring.lookup(repository).into_iter().next().unwrap_or_else(|| panic!("nothing for {repository}"))
    }

    #[test]
    fn both_forms() {
        // me:secret, me:se:cret
        let json = br#"{"auths": {"a.io": {"auth": "bWU6c2VjcmV0"}, "https://b.io/v2/": {"auth": "bWU6c2U6Y3JldA"},
            "c.io": {"username": "u", "password": "p"},
            "d.io": {"auth": "MDA6", "identitytoken": "id"}, "e.io": {"registrytoken": "reg"}},
            "credsStore": "desktop"}"#;
        let keyring = decode(json, Form::Json).expect("decodes");
        let plain = |username: &str, password: &str| Auth {
            username: username.to_owned(),
            password: password.to_owned(),
            ..Default::default()
        };
        assert_eq!(first(&keyring, "a.io/x"), plain("me", "secret"));
        assert_eq!(first(&keyring, "b.io/x"), plain("me", "se:cret"));
        assert_eq!(first(&keyring, "c.io/x"), plain("u", "p"));
        assert_eq!(first(&keyring, "d.io/x"), Auth { identity_token: "id".to_owned(), ..Default::default() });
        assert_eq!(first(&keyring, "e.io/x"), Auth { registry_token: "reg".to_owned(), ..Default::default() });

        let cfg = br#"{"a.io": {"auth": "bWU6c2VjcmV0", "email": "me@a.io"}}"#;
        assert_eq!(first(&decode(cfg, Form::Cfg).expect("decodes"), "a.io/x"), plain("me", "secret"));
        assert!(decode(b"{}", Form::Json).expect("decodes").lookup("a.io/x").is_empty());
    }

    #[test]
    fn errors_show_no_secret() {
        for (text, form) in [
            (br#"{"auths": {"a.io": {"auth": "hunter2!"}}}"#.as_slice(), Form::Json),
            (br#"{"auths": {"a.io": {"auth": "aHVudGVyMg=="}}}"#, Form::Json),
            (br#"{"auths": {"a.io": "hunter2"}}"#, Form::Json),
            (br#"{"a.io": {"password": hunter2}}"#, Form::Cfg),
            (br#"{"auths": "hunter2""#, Form::Json),
        ] {
            let message = decode(text, form).expect_err("is refused").to_string();
            assert!(!message.contains("hunter2") && !message.contains("aHVudGVy"), "{message}");
        }
    }

    #[test]
    fn the_first_file_that_can_be_read_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let (root, home) = (dir.path().join("root"), dir.path().join("home"));
        std::fs::create_dir_all(home.join(".docker")).expect("makes");
        std::fs::create_dir_all(&root).expect("makes");
        let places: Vec<_> =
            search_places(&root, Some(&home)).into_iter().filter(|(path, _)| path.starts_with(dir.path())).collect();
        let names: Vec<_> = places.iter().map(|(path, _)| path.strip_prefix(dir.path()).expect("below")).collect();
        assert_eq!(
            names.iter().map(|p| p.to_string_lossy()).collect::<Vec<_>>(),
            [
                "root/config.json",
                "home/.docker/config.json",
                "root/.dockercfg",
                "home/.dockercfg",
                "root/.dockerconfigjson",
                "home/.dockerconfigjson"
            ]
        );
        let write = |path: &str, text: &str| std::fs::write(dir.path().join(path), text).expect("writes");
        assert!(search(&places).keyring.lookup("a.io/x").is_empty());
        write("home/.dockercfg", r#"{"a.io": {"username": "old"}}"#);
        assert_eq!(first(&search(&places).keyring, "a.io/x").username, "old");
        write("home/.docker/config.json", r#"{"auths": {"a.io": {"username": "home"}}}"#);
        assert_eq!(first(&search(&places).keyring, "a.io/x").username, "home");
        write("root/config.json", "not JSON");
        let found = search(&places);
        assert_eq!(first(&found.keyring, "a.io/x").username, "home");
        assert!(found.problems.len() == 1 && found.problems[0].contains("root/config.json"), "{:?}", found.problems);
        write("root/config.json", "{}");
        assert!(search(&places).keyring.lookup("a.io/x").is_empty(), "the first one alone counts");
    }
}
