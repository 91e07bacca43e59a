//! Plugins that are asked for credentials: programs that get a question as JSON and answer with
//! user and password for registries (pkg/credentialprovider/plugin/plugin.go).

mod config;

use std::collections::{BTreeMap, HashMap};
use std::process::Command;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

pub use config::{Error, Plugin, load};

use super::keyring::{Keyring, place_matches};
use super::scrub::scrub;
use crate::child::{self, Limits};
use crate::config::duration::GoDuration;
use crate::cri::Auth;

const LIMITS: Limits = Limits { time: Duration::from_secs(60), output: 1 << 20 };
/// Plugins that run at once.
const MAX_RUNNING: usize = 4;
/// Answers of one plugin that are remembered; more images than a node has.
const MAX_CACHED: usize = 256;

/// All plugins, and what they answered.
#[derive(Default)]
pub struct Providers {
    plugins: Vec<(Plugin, Mutex<Cache>)>,
    running: Gate,
}

impl Providers {
    pub fn new(plugins: Vec<Plugin>) -> Providers {
        Providers { plugins: plugins.into_iter().map(|p| (p, Mutex::default())).collect(), running: Gate::default() }
    }

    /// What the plugins that care for the repository (`registry/path`) answer. Runs programs, which
    /// may take a minute each. One that fails is told, and is as if it had no answer.
    pub fn lookup(&self, repository: &str) -> Vec<Auth> {
        let mut keyring = Keyring::default();
        for (plugin, cache) in &self.plugins {
            if !plugin.match_images.iter().any(|place| place_matches(place, repository)) {
                continue;
            }
            match self.ask(plugin, cache, repository) {
                Ok(answer) => keyring.merge(answer),
                Err(e) => log::warn!("credential provider {:?}, asked for {repository}: {e}", plugin.name),
            }
        }
        keyring.lookup(repository)
    }

    fn ask(&self, plugin: &Plugin, cache: &Mutex<Cache>, repository: &str) -> Result<Keyring, AskError> {
        if let Some(answer) = cache.lock().get(repository, Instant::now()) {
            return Ok(answer);
        }
        let _running = self.running.enter();
        // Somebody may have asked while this waited.
        if let Some(answer) = cache.lock().get(repository, Instant::now()) {
            return Ok(answer);
        }
        let response = run(plugin, repository)?;
        let lasts = response.cache_duration.map_or(Ok(plugin.default_cache_duration), |d| {
            d.std().ok_or(AskError::Answer("cacheDuration must be 0 or more"))
        })?;
        let key = match response.cache_key_type.as_str() {
            "Image" => Key::Repository(repository.to_owned()),
            "Registry" => Key::Registry(registry(repository).to_owned()),
            "Global" => Key::Global,
            _ => return Err(AskError::Answer("cacheKeyType must be Image, Registry or Global")),
        };
        let mut keyring = Keyring::default();
        for (place, login) in response.auth.unwrap_or_default() {
            keyring.add(&place, Auth { username: login.username, password: login.password, ..Default::default() });
        }
        cache.lock().put(key, keyring.clone(), lasts, Instant::now());
        Ok(keyring)
    }
}

#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error(transparent)]
    Run(#[from] child::Error),
    #[error("{status}: {said}")]
    Failed { status: std::process::ExitStatus, said: String },
    #[error("its answer can't be used: {0}")]
    Answer(&'static str),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    kind: &'static str,
    api_version: &'a str,
    image: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    kind: String,
    api_version: String,
    #[serde(default)]
    cache_key_type: String,
    cache_duration: Option<GoDuration>,
    auth: Option<BTreeMap<String, Login>>,
}

#[derive(Deserialize)]
struct Login {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

fn run(plugin: &Plugin, repository: &str) -> Result<Response, AskError> {
    let request = Request { kind: "CredentialProviderRequest", api_version: &plugin.api_version, image: repository };
    let request = serde_json::to_vec(&request).map_err(|_| AskError::Answer("the question can't be written"))?;
    let mut command = Command::new(&plugin.program);
    command.args(&plugin.args).envs(plugin.env.iter().map(|(name, value)| (name, value)));
    let output = child::run(&mut command, &mut request.as_slice(), LIMITS)?;
    if !output.status.success() {
        return Err(AskError::Failed { status: output.status, said: scrub(&output.stderr, []) });
    }
    // What it says may hold credentials, and so may an error that quotes it.
    let response: Response = serde_json::from_slice(&output.stdout)
        .map_err(|_| AskError::Answer("no JSON of a CredentialProviderResponse"))?;
    match (response.kind.as_str(), response.api_version == plugin.api_version) {
        ("CredentialProviderResponse", true) => Ok(response),
        ("CredentialProviderResponse", false) => Err(AskError::Answer("apiVersion must be that of the question")),
        _ => Err(AskError::Answer("kind must be CredentialProviderResponse")),
    }
}

fn registry(repository: &str) -> &str {
    repository.split('/').next().unwrap_or_default()
}

/// What an answer is good for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Repository(String),
    Registry(String),
    Global,
}

/// Answers, and until when each is good.
#[derive(Default)]
struct Cache(HashMap<Key, (Keyring, Instant)>);

impl Cache {
    fn get(&self, repository: &str, now: Instant) -> Option<Keyring> {
        let keys =
            [Key::Repository(repository.to_owned()), Key::Registry(registry(repository).to_owned()), Key::Global];
        let found = keys.iter().filter_map(|key| self.0.get(key)).find(|(_, until)| now < *until);
        found.map(|(keyring, _)| keyring.clone())
    }

    fn put(&mut self, key: Key, keyring: Keyring, lasts: Duration, now: Instant) {
        self.0.retain(|_, (_, until)| now < *until);
        // What lasts longer than the clock can count is not worth remembering.
        if let Some(until) = now.checked_add(lasts).filter(|_| !lasts.is_zero() && self.0.len() < MAX_CACHED) {
            self.0.insert(key, (keyring, until));
        }
    }
}

/// Lets a few in at once.
#[derive(Default)]
struct Gate {
    inside: Mutex<usize>,
    left: Condvar,
}

impl Gate {
    fn enter(&self) -> Inside<'_> {
        let mut inside = self.inside.lock();
        while *inside >= MAX_RUNNING {
            self.left.wait(&mut inside);
        }
        *inside += 1;
        Inside(self)
    }
}

struct Inside<'g>(&'g Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *self.0.inside.lock() -= 1;
        self.0.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::tests::write_program;

    const API: &str = "credentialprovider.kubelet.k8s.io/v1";

    /// A plugin that notes what it is asked and answers with what `answer` is in a shell.
    fn plugin(dir: &tempfile::TempDir, answer: &str) -> Plugin {
        let program = dir.path().join("plugin");
        let script =
            format!("#!/bin/sh\ncat >> {0}; echo \" $1 $K\" >> {0}\n{answer}\n", dir.path().join("asked").display());
        write_program(&program, &script);
        Plugin {
            name: "plugin".to_owned(),
            program,
            api_version: API.to_owned(),
            match_images: vec!["*.example.com".to_owned()],
            default_cache_duration: Duration::from_secs(3600),
            args: vec!["arg".to_owned()],
            env: vec![("K".to_owned(), "value".to_owned())],
        }
    }

    fn says(rest: &str) -> String {
        format!("echo '{{\"kind\": \"CredentialProviderResponse\", \"apiVersion\": \"{API}\", {rest}}}'")
    }

    fn asked(dir: &tempfile::TempDir) -> usize {
        std::fs::read_to_string(dir.path().join("asked")).unwrap_or_default().lines().count()
    }

    const LOGIN: &str = r#""auth": {"*.example.com": {"username": "u", "password": "p"}, "x.example.com/a": {"username": "a", "password": "q"}}"#;

    #[test]
    fn a_plugin_is_asked_and_its_answer_remembered() {
        // What is asked for one after the other, and how often the plugin is run for it.
        let repositories = ["x.example.com/a", "x.example.com/a", "x.example.com/b", "y.example.com/c", "other.io/d"];
        let table = [
            (r#""cacheKeyType": "Image", "#, 3),
            (r#""cacheKeyType": "Registry", "#, 2),
            (r#""cacheKeyType": "Global", "#, 1),
            (r#""cacheKeyType": "Global", "cacheDuration": "0s", "#, 4),
        ];
        for (kind, want) in table {
            let dir = tempfile::tempdir().expect("a directory");
            let providers = Providers::new(vec![plugin(&dir, &says(&format!("{kind}{LOGIN}")))]);
            let users: Vec<Vec<String>> =
                repositories.iter().map(|r| providers.lookup(r).into_iter().map(|a| a.username).collect()).collect();
            assert_eq!(users, [vec!["a", "u"], vec!["a", "u"], vec!["u"], vec!["u"], vec![]], "{kind}");
            assert_eq!(asked(&dir), want, "{kind}");
            let text = std::fs::read_to_string(dir.path().join("asked")).expect("was asked");
            let first = format!(
                r#"{{"kind":"CredentialProviderRequest","apiVersion":"{API}","image":"x.example.com/a"}} arg value"#
            );
            assert_eq!(text.lines().next(), Some(first.as_str()));
        }
    }

    #[test]
    fn answers_that_can_not_be_used() {
        let table = [
            ("echo hunter2 at https://u:hunter2@x.example.com >&2; exit 7", "exit status: 7"),
            ("echo hunter2", "no JSON"),
            (&says(&format!(r#""cacheKeyType": "Mine", {LOGIN}"#)), "cacheKeyType must be"),
            (&says(r#""cacheKeyType": "Global", "cacheDuration": "-1s""#), "cacheDuration must be"),
            (&says(r#""cacheKeyType": "Global""#).replace("/v1", "/v2"), "apiVersion must be"),
            (&says(r#""cacheKeyType": "Global""#).replace("ProviderResponse", "ProviderRequest"), "kind must be"),
        ];
        for (answer, want) in table {
            let dir = tempfile::tempdir().expect("a directory");
            let providers = Providers::new(vec![plugin(&dir, answer)]);
            let (plugin, cache) = &providers.plugins[0];
            let error = providers.ask(plugin, cache, "x.example.com/a").expect_err("can't be used").to_string();
            assert!(error.contains(want) && !error.contains(":hunter2"), "{error}");
            assert!(providers.lookup("x.example.com/a").is_empty());
        }
        // No credentials for this image is an answer like others.
        let dir = tempfile::tempdir().expect("a directory");
        let providers = Providers::new(vec![plugin(&dir, &says(r#""cacheKeyType": "Registry", "auth": null"#))]);
        assert!(providers.lookup("x.example.com/a").is_empty() && providers.lookup("x.example.com/b").is_empty());
        assert_eq!(asked(&dir), 1);
    }

    #[test]
    fn what_is_remembered_ends_and_is_bounded() {
        let now = Instant::now();
        let later = |s| now + Duration::from_secs(s);
        let mut cache = Cache::default();
        cache.put(Key::Global, Keyring::default(), Duration::from_secs(10), now);
        assert!(cache.get("x.io/a", later(9)).is_some() && cache.get("x.io/a", later(10)).is_none());
        for n in 0..2 * MAX_CACHED {
            cache.put(Key::Repository(n.to_string()), Keyring::default(), Duration::from_secs(10), later(20));
        }
        assert_eq!(cache.0.len(), MAX_CACHED);
        cache.put(Key::Global, Keyring::default(), Duration::MAX, later(40));
        assert!(cache.0.is_empty(), "what is over is forgotten, and what never ends is not kept");
    }
}
