//! A runtime with images, for tests: what a pull does is scripted or waited for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, unbounded};
use parking_lot::Mutex;

use crate::cri::{
    Auth, Code, Container, ContainerId, ContainerStatus, Cri, Error, Events, ExecOutput, Image, Result, Sandbox,
    SandboxId, SandboxStatus, Settings, Status, Version, api,
};
use crate::image::name::Name;
use crate::pod::PodUid;

pub fn error(message: &str) -> Error {
    Error { call: "PullImage", code: Code::Other, message: message.to_owned() }
}

pub fn auth(user: &str, password: &str) -> Auth {
    Auth { username: user.to_owned(), password: password.to_owned(), ..Default::default() }
}

pub fn image(id: &str, names: &[&str], size: u64) -> Image {
    let names = names.iter().map(|&name| name.to_owned());
    let (repo_digests, repo_tags) = names.partition(|name: &String| name.contains('@'));
    Image { id: id.to_owned(), repo_tags, repo_digests, size, user: None, pinned: false }
}

/// A pull that waits for its answer.
pub type Held = (String, Sender<Result<()>>);

pub struct Fake {
    pub state: Mutex<State>,
    /// Pulls that nothing is scripted for.
    pub pulls: Receiver<Held>,
    held: Sender<Held>,
}

#[derive(Default)]
pub struct State {
    pub runtime: String,
    pub images: Vec<Image>,
    pub in_use: BTreeSet<String>,
    pub settings: Settings,
    pub answers: BTreeMap<String, VecDeque<Result<()>>>,
    pub pulled: Vec<(String, Option<Auth>)>,
    pub removed: Vec<String>,
    pub status_error: Option<Error>,
    pub remove_error: Option<Error>,
}

impl Default for Fake {
    fn default() -> Fake {
        let (held, pulls) = unbounded();
        let state = State { runtime: "containerd".to_owned(), ..Default::default() };
        Fake { state: Mutex::new(state), pulls, held }
    }
}

impl Fake {
    pub fn answer_pulls(&self, image: &str, answers: impl Iterator<Item = Result<()>>) {
        self.state.lock().answers.entry(image.to_owned()).or_default().extend(answers);
    }

    pub fn pulled(&self) -> Vec<(String, Option<Auth>)> {
        self.state.lock().pulled.clone()
    }

    pub fn add(&self, image: Image) {
        self.state.lock().images.push(image);
    }

    /// The next pull that begins.
    pub fn next_pull(&self) -> Held {
        self.pulls.recv_timeout(Duration::from_secs(10)).expect("a pull begins")
    }

    pub fn no_pull_begins(&self) {
        assert!(self.pulls.recv_timeout(Duration::from_millis(50)).is_err(), "a pull began");
    }
}

fn is_called(image: &Image, text: &str) -> bool {
    let wanted = Name::parse(text).map_or(text.to_owned(), |name| name.canonical());
    image.id == text || image.repo_tags.iter().chain(&image.repo_digests).any(|name| *name == wanted)
}

impl Cri for Fake {
    fn version(&self) -> Result<Version> {
        if let Some(e) = &self.state.lock().status_error {
            return Err(e.clone());
        }
        Ok(Version { name: self.state.lock().runtime.clone(), version: "1".to_owned() })
    }

    fn image_status(&self, text: &str) -> Result<Option<Image>> {
        let state = self.state.lock();
        match &state.status_error {
            Some(e) => Err(e.clone()),
            None => Ok(state.images.iter().find(|image| is_called(image, text)).cloned()),
        }
    }

    fn pull_image(&self, text: &str, auth: Option<&Auth>, _: &api::PodSandboxConfig) -> Result<String> {
        let scripted = {
            let mut state = self.state.lock();
            state.pulled.push((text.to_owned(), auth.cloned()));
            state.answers.get_mut(text).and_then(VecDeque::pop_front)
        };
        let answer = scripted.unwrap_or_else(|| {
            let (answer, answers) = unbounded();
            self.held.send((text.to_owned(), answer)).expect("the test listens");
            answers.recv().unwrap_or_else(|_| Err(error("the test is over")))
        });
        answer?;
        let name = Name::parse(text).expect("is a name").canonical();
        let image = image(&format!("sha256:{name}"), &[&name], 1000);
        let mut state = self.state.lock();
        if !state.images.iter().any(|other| other.id == image.id) {
            state.images.push(image);
        }
        Ok(name)
    }

    fn list_images(&self) -> Result<Vec<Image>> {
        Ok(self.state.lock().images.clone())
    }

    fn remove_image(&self, id: &str) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(e) = &state.remove_error {
            return Err(e.clone());
        }
        state.images.retain(|image| image.id != id);
        state.removed.push(id.to_owned());
        Ok(())
    }

    fn image_fs_info(&self) -> Result<Vec<PathBuf>> {
        Ok(vec!["/images".into()])
    }

    fn images_in_use(&self) -> Result<BTreeSet<String>> {
        Ok(self.state.lock().in_use.clone())
    }

    fn settings(&self) -> Result<Settings> {
        Ok(self.state.lock().settings.clone())
    }

    fn status(&self) -> Result<Status> {
        unreachable!("nothing to do with images")
    }
    fn set_pod_cidr(&self, _: &str) -> Result<()> {
        unreachable!("nothing to do with images")
    }
    fn run_pod_sandbox(&self, _: &api::PodSandboxConfig, _: &str) -> Result<SandboxId> {
        unreachable!("nothing to do with images")
    }
    fn stop_pod_sandbox(&self, _: &SandboxId) -> Result<()> {
        unreachable!("nothing to do with images")
    }
    fn remove_pod_sandbox(&self, _: &SandboxId) -> Result<()> {
        unreachable!("nothing to do with images")
    }
    fn pod_sandbox_status(&self, _: &Sandbox) -> Result<Option<SandboxStatus>> {
        unreachable!("nothing to do with images")
    }
    fn list_pod_sandboxes(&self, _: Option<&PodUid>) -> Result<Vec<Sandbox>> {
        unreachable!("nothing to do with images")
    }
    fn create_container(
        &self,
        _: &SandboxId,
        _: &api::ContainerConfig,
        _: &api::PodSandboxConfig,
    ) -> Result<ContainerId> {
        unreachable!("nothing to do with images")
    }
    fn start_container(&self, _: &ContainerId) -> Result<()> {
        unreachable!("nothing to do with images")
    }
    fn stop_container(&self, _: &ContainerId, _: Duration) -> Result<()> {
        unreachable!("nothing to do with images")
    }
    fn remove_container(&self, _: &ContainerId) -> Result<()> {
        unreachable!("nothing to do with images")
    }
    fn list_containers(&self, _: Option<&PodUid>) -> Result<Vec<Container>> {
        unreachable!("nothing to do with images")
    }
    fn container_status(&self, _: &Container) -> Result<Option<ContainerStatus>> {
        unreachable!("nothing to do with images")
    }
    fn reopen_container_log(&self, _: &ContainerId) -> Result<()> {
        unreachable!("nothing to do with images")
    }
    fn container_events(&self) -> Result<Events> {
        unreachable!("nothing to do with images")
    }
    fn update_container_resources(&self, _: &ContainerId, _: &api::LinuxContainerResources) -> Result<()> {
        unreachable!("nothing to do with images")
    }
    fn exec_sync(&self, _: &ContainerId, _: &[String], _: Duration) -> Result<ExecOutput> {
        unreachable!("nothing to do with images")
    }
}
