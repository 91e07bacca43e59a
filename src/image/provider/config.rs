//! The configuration of credential provider plugins, checked as the kubelet checks it
//! (pkg/credentialprovider/plugin/config.go).

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::config::duration::GoDuration;
use crate::disk;
use crate::yaml::{self, Problem};

const KIND: &str = "CredentialProviderConfig";
/// Versions that differ in nothing that we read.
const API_VERSIONS: [&str; 3] =
    ["kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"];
const PLUGIN_API_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];
/// Bytes; far more than any configuration has.
const MAX_FILE: u64 = 1 << 20;

/// A plugin that may be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    pub name: String,
    pub program: PathBuf,
    /// Of what goes to the plugin and comes back.
    pub api_version: String,
    pub match_images: Vec<String>,
    pub default_cache_duration: Duration,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("reading {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} holds no *.json, *.yaml or *.yml", path = .0.display())]
    NoFiles(PathBuf),
    #[error("{}", .0.join("; "))]
    Invalid(Vec<String>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    api_version: String,
    kind: String,
    #[serde(default)]
    providers: Vec<Provider>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Provider {
    name: String,
    #[serde(default)]
    match_images: Vec<String>,
    default_cache_duration: Option<GoDuration>,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<EnvVar>,
    token_attributes: Option<TokenAttributes>,
}

#[derive(Deserialize)]
struct EnvVar {
    name: String,
    value: String,
}

/// Only that they are there is looked at.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "known fields, so that they are not told as unknown")]
struct TokenAttributes {
    service_account_token_audience: Option<String>,
    cache_type: Option<String>,
    require_service_account: Option<bool>,
    required_service_account_annotation_keys: Option<Vec<String>>,
    optional_service_account_annotation_keys: Option<Vec<String>>,
}

/// The plugins that `config` names, a file or a directory of files. All faults are told together.
pub fn load(config: &Path, bin_dir: &Path) -> Result<Vec<Plugin>, Error> {
    let mut plugins = Vec::new();
    let mut faults = Vec::new();
    let mut names = HashSet::new();
    for path in files(config)? {
        let text = disk::read_text(&path, MAX_FILE).map_err(|source| Error::Read { path: path.clone(), source })?;
        match parse(&text) {
            Ok(providers) => {
                for (i, provider) in providers.into_iter().enumerate() {
                    let mut own = Vec::new();
                    if !names.insert(provider.name.clone()) {
                        own.push(format!("name: there is more than one {:?}", provider.name));
                    }
                    plugins.push(provider.check(bin_dir, &mut own));
                    faults.extend(own.into_iter().map(|fault| format!("{}: providers[{i}].{fault}", path.display())));
                }
            }
            Err(problems) => faults.extend(problems.iter().map(|p| p.at(&path.display().to_string()))),
        }
    }
    if plugins.is_empty() && faults.is_empty() {
        faults.push(format!("{}: providers: at least one is needed", config.display()));
    }
    match faults.is_empty() {
        true => Ok(plugins),
        false => Err(Error::Invalid(faults)),
    }
}

fn files(config: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |source| Error::Read { path: config.to_owned(), source };
    if !fs::metadata(config).map_err(failed)?.is_dir() {
        return Ok(vec![config.to_owned()]);
    }
    let entries: io::Result<Vec<_>> = fs::read_dir(config).map_err(failed)?.map(|e| e.map(|e| e.path())).collect();
    let mut files = entries.map_err(failed)?;
    files.retain(|path| path.extension().is_some_and(|e| e == "json" || e == "yaml" || e == "yml") && !path.is_dir());
    files.sort();
    match files.is_empty() {
        true => Err(Error::NoFiles(config.to_owned())),
        false => Ok(files),
    }
}

fn parse(text: &str) -> Result<Vec<Provider>, Vec<Problem>> {
    let mut problems = Vec::new();
    let tree = yaml::parse_one(text, &mut problems).map_err(|problem| vec![problem])?;
    let tree = tree.ok_or_else(|| vec![Problem::new(0, "", "the file is empty")])?;
    let decoded = yaml::decode::<Config>(&tree).map_err(|problem| vec![problem])?;
    problems.extend(decoded.unknown);
    let config = decoded.value;
    let line = |field| tree.line_of(field);
    if config.kind != KIND {
        problems.push(Problem::new(line("kind"), "kind", format!("must be {KIND}, not {:?}", config.kind)));
    }
    if !API_VERSIONS.contains(&config.api_version.as_str()) {
        let message = format!("must be {}, not {:?}", API_VERSIONS[0], config.api_version);
        problems.push(Problem::new(line("apiVersion"), "apiVersion", message));
    }
    match problems.is_empty() {
        true => Ok(config.providers),
        false => Err(problems),
    }
}

impl Provider {
    fn check(self, bin_dir: &Path, faults: &mut Vec<String>) -> Plugin {
        let mut fault = |field: &str, message: &str| faults.push(format!("{field}: {message}"));
        let program = bin_dir.join(&self.name);
        if self.name.is_empty() || self.name.contains(['/', ' ']) || matches!(self.name.as_str(), "." | "..") {
            fault("name", "must be the name of a program, without '/' and blanks");
        } else if let Err(e) = rustix::fs::access(&program, rustix::fs::Access::EXEC_OK) {
            fault("name", &format!("{} can't be run: {}", program.display(), io::Error::from(e)));
        }
        if !PLUGIN_API_VERSIONS.contains(&self.api_version.as_str()) {
            fault("apiVersion", &format!("must be {}, not {:?}", PLUGIN_API_VERSIONS[0], self.api_version));
        }
        if self.match_images.is_empty() {
            fault("matchImages", "at least one is needed");
        }
        let cache_duration = self.default_cache_duration.map(GoDuration::std);
        match cache_duration {
            None => fault("defaultCacheDuration", "is missing"),
            Some(None) => fault("defaultCacheDuration", "must be 0 or more"),
            Some(Some(_)) => {}
        }
        if self.token_attributes.is_some() {
            fault(
                "tokenAttributes",
                "tokens of service accounts are not supported: leave this out, so that the plugin is asked without one",
            );
        }
        Plugin {
            name: self.name,
            program,
            api_version: self.api_version,
            match_images: self.match_images,
            default_cache_duration: cache_duration.flatten().unwrap_or_default(),
            args: self.args,
            env: self.env.into_iter().map(|v| (v.name, v.value)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n";
    const GOOD: &str = "- name: acr
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ['*.azurecr.io']
  defaultCacheDuration: 1h30m
  args: [a, b]
  env: [{name: K, value: V}]
";

    fn machine(programs: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        for name in programs {
            let path = dir.path().join(name);
            fs::write(&path, "").expect("writes");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("sets");
        }
        dir
    }

    fn load_text(text: &str) -> Result<Vec<Plugin>, String> {
        let dir = machine(&["acr"]);
        let path = dir.path().join("config.yaml");
        fs::write(&path, text).expect("writes");
        load(&path, dir.path()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_plugin() {
        let plugins = load_text(&format!("{HEAD}providers:\n{GOOD}")).expect("loads");
        let [plugin] = plugins.as_slice() else { panic!("one is there: {plugins:?}") };
        assert_eq!((plugin.name.as_str(), plugin.default_cache_duration.as_secs()), ("acr", 5400));
        assert_eq!(plugin.args, ["a", "b"]);
        assert_eq!(plugin.env, [("K".to_owned(), "V".to_owned())]);
    }

    #[test]
    fn faults() {
        let provider = |text: &str, by: &str| format!("{HEAD}providers:\n{}", GOOD.replace(text, by));
        let table = [
            (String::new(), "the file is empty"),
            (HEAD.to_owned(), "at least one is needed"),
            ("kind: Pod\napiVersion: v1\nproviders: []".to_owned(), "kind: must be CredentialProviderConfig"),
            (provider("name: acr", "name: a/cr"), "providers[0].name: must be the name of a program"),
            (provider("name: acr", "name: ecr"), "ecr can't be run: No such file"),
            (provider("io/v1", "io/v9"), "apiVersion: must be credentialprovider.kubelet.k8s.io/v1"),
            (provider("['*.azurecr.io']", "[]"), "matchImages: at least one is needed"),
            (provider("1h30m", "-1s"), "defaultCacheDuration: must be 0 or more"),
            (provider("  defaultCacheDuration: 1h30m\n", ""), "defaultCacheDuration: is missing"),
            (provider("  args:", "  arg:"), "arg"),
            (format!("{HEAD}providers:\n{GOOD}{GOOD}"), "providers[1].name: there is more than one \"acr\""),
            (
                provider(
                    "  args:",
                    "  tokenAttributes: {serviceAccountTokenAudience: x, requireServiceAccount: true}\n  args:",
                ),
                "tokens of service accounts are not supported",
            ),
        ];
        for (text, want) in table {
            let error = load_text(&text).expect_err(&text);
            assert!(error.contains(want), "{text}\n{error}");
        }
    }

    #[test]
    fn a_directory_is_read_by_name() {
        let dir = machine(&["acr", "ecr"]);
        let configs = dir.path().join("config");
        fs::create_dir(&configs).expect("makes");
        assert!(matches!(load(&configs, dir.path()), Err(Error::NoFiles(_))));
        let write = |name: &str, text: String| fs::write(configs.join(name), text).expect("writes");
        write("2.yaml", format!("{HEAD}providers:\n{GOOD}"));
        write("1.yml", format!("{HEAD}providers:\n{}", GOOD.replace("acr", "ecr")));
        write("3.txt", "not read".to_owned());
        let names: Vec<_> = load(&configs, dir.path()).expect("loads").into_iter().map(|p| p.name).collect();
        assert_eq!(names, ["ecr", "acr"]);
    }
}
