//! The node's credentials for registries: docker's files and the plugins.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::docker_config::{self, Form};
use super::provider::Providers;
use crate::cri::Auth;

pub struct NodeCredentials {
    places: Vec<(PathBuf, Form)>,
    providers: Providers,
    /// What was wrong with the files, as it was told.
    told: Mutex<Vec<String>>,
}

impl NodeCredentials {
    pub fn new(root_dir: &Path, providers: Providers) -> NodeCredentials {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        let places = docker_config::search_places(root_dir, home.as_deref());
        NodeCredentials { places, providers, told: Mutex::default() }
    }

    /// Those for a repository (`registry/path`), in the order in which they are to be tried. Reads
    /// files and runs plugins.
    pub fn lookup(&self, repository: &str) -> Vec<Auth> {
        let found = docker_config::search(&self.places);
        self.tell(found.problems);
        let mut auths = found.keyring.lookup(repository);
        auths.extend(self.providers.lookup(repository));
        auths
    }

    fn tell(&self, problems: Vec<String>) {
        let mut told = self.told.lock();
        for problem in problems.iter().filter(|problem| !told.contains(problem)) {
            log::warn!("{problem}");
        }
        *told = problems;
    }
}
