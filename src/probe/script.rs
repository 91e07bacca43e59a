//! A runtime for tests, that runs commands as it is told to.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crate::cri::{
    Auth, Code, Container, ContainerId, ContainerStatus, Cri, Error, Events, ExecOutput, Image, Result, Sandbox,
    SandboxId, SandboxStatus, Settings, Status, Version, api,
};
use crate::pod::PodUid;

type Exec = dyn Fn(&ContainerId, &[String], Duration) -> Result<ExecOutput> + Send + Sync;

pub struct Script(Box<Exec>);

impl Script {
    pub fn new(
        exec: impl Fn(&ContainerId, &[String], Duration) -> Result<ExecOutput> + Send + Sync + 'static,
    ) -> Script {
        Script(Box::new(exec))
    }

    /// A runtime that is asked nothing.
    pub fn unused() -> Script {
        Script::new(|_, _, _| unreachable!("no command is to be run"))
    }
}

pub fn output(exit_code: i32, stdout: &str, stderr: &str) -> ExecOutput {
    ExecOutput { stdout: stdout.into(), stderr: stderr.into(), exit_code }
}

pub fn error(code: Code) -> Error {
    Error { call: "ExecSync", code, message: "scripted".to_owned() }
}

macro_rules! unasked {
    ($(fn $name:ident($($argument:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $(_: $argument),*) -> Result<$result> {
            unreachable!("probes only run commands")
        })*
    };
}

impl Cri for Script {
    fn exec_sync(&self, id: &ContainerId, command: &[String], timeout: Duration) -> Result<ExecOutput> {
        self.0(id, command, timeout)
    }

    unasked! {
        fn version() -> Version;
        fn status() -> Status;
        fn set_pod_cidr(&str) -> ();
        fn run_pod_sandbox(&api::PodSandboxConfig, &str) -> SandboxId;
        fn stop_pod_sandbox(&SandboxId) -> ();
        fn remove_pod_sandbox(&SandboxId) -> ();
        fn pod_sandbox_status(&Sandbox) -> Option<SandboxStatus>;
        fn list_pod_sandboxes(Option<&PodUid>) -> Vec<Sandbox>;
        fn create_container(&SandboxId, &api::ContainerConfig, &api::PodSandboxConfig) -> ContainerId;
        fn start_container(&ContainerId) -> ();
        fn stop_container(&ContainerId, Duration) -> ();
        fn remove_container(&ContainerId) -> ();
        fn list_containers(Option<&PodUid>) -> Vec<Container>;
        fn container_status(&Container) -> Option<ContainerStatus>;
        fn update_container_resources(&ContainerId, &api::LinuxContainerResources) -> ();
        fn reopen_container_log(&ContainerId) -> ();
        fn container_events() -> Events;
        fn image_status(&str) -> Option<Image>;
        fn pull_image(&str, Option<&Auth>, &api::PodSandboxConfig) -> String;
        fn list_images() -> Vec<Image>;
        fn remove_image(&str) -> ();
        fn image_fs_info() -> Vec<PathBuf>;
        fn images_in_use() -> BTreeSet<String>;
        fn settings() -> Settings;
    }
}
