//! Pods without an agent: for what an earlier agent, or somebody else, left in the runtime.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cleat::cri::proto::runtime as cri;
use cleat::cri::proto::runtime_services::RuntimeServiceClient;
use grpcio::CallOption;

use super::{BUSYBOX, eventually, runtime_client, within};

const SOON: Duration = Duration::from_secs(10);

fn soon() -> CallOption {
    within(SOON)
}

/// The few calls that a pod takes, over the generated client.
pub struct Pods {
    pub client: RuntimeServiceClient,
    logs: PathBuf,
}

impl Pods {
    pub fn new(socket: &Path, logs: &Path) -> Pods {
        Pods { client: runtime_client(socket), logs: logs.to_owned() }
    }

    pub fn config(&self, pod: &str) -> cri::PodSandboxConfig {
        let mut config = cri::PodSandboxConfig::new();
        let metadata = config.metadata.mut_or_insert_default();
        metadata.name = pod.to_owned();
        metadata.namespace = "default".to_owned();
        metadata.uid = format!("uid-of-{pod}");
        config.hostname = pod.to_owned();
        config.log_directory = self.logs.join(pod).display().to_string();
        config.labels.insert("io.kubernetes.pod.name".to_owned(), pod.to_owned());
        config.linux.mut_or_insert_default().cgroup_parent = format!("/kubepods/pod-{pod}");
        config
    }

    pub fn sandbox_request(&self, pod: &str) -> cri::RunPodSandboxRequest {
        let mut request = cri::RunPodSandboxRequest::new();
        request.config = Some(self.config(pod)).into();
        request
    }

    pub fn run_sandbox(&self, pod: &str) -> grpcio::Result<String> {
        Ok(self.client.run_pod_sandbox(&self.sandbox_request(pod), soon())?.pod_sandbox_id)
    }

    pub fn create(&self, sandbox: &str, pod: &str, name: &str, script: &str) -> grpcio::Result<String> {
        let mut config = cri::ContainerConfig::new();
        config.metadata.mut_or_insert_default().name = name.to_owned();
        config.image.mut_or_insert_default().image = BUSYBOX.to_owned();
        config.command = ["sh", "-c", script].map(str::to_owned).to_vec();
        config.log_path = format!("{name}/0.log");
        config.labels.insert("io.kubernetes.container.name".to_owned(), name.to_owned());
        self.create_as(sandbox, &self.config(pod), &config)
    }

    fn create_as(
        &self,
        sandbox: &str,
        of_sandbox: &cri::PodSandboxConfig,
        config: &cri::ContainerConfig,
    ) -> grpcio::Result<String> {
        let mut request = cri::CreateContainerRequest::new();
        request.pod_sandbox_id = sandbox.to_owned();
        request.sandbox_config = Some(of_sandbox.clone()).into();
        request.config = Some(config.clone()).into();
        Ok(self.client.create_container(&request, soon())?.container_id)
    }

    pub fn start(&self, container: &str) -> grpcio::Result<()> {
        let mut request = cri::StartContainerRequest::new();
        request.container_id = container.to_owned();
        self.client.start_container(&request, soon()).map(drop)
    }

    /// A pod with one running container: ids of sandbox and container.
    #[track_caller]
    pub fn run(&self, pod: &str, script: &str) -> (String, String) {
        let sandbox = self.run_sandbox(pod).expect("run the sandbox");
        let container = self.create(&sandbox, pod, "main", script).expect("create the container");
        self.start(&container).expect("start the container");
        (sandbox, container)
    }

    /// The same, for requests that are made already.
    #[track_caller]
    pub fn run_as(&self, sandbox: &cri::PodSandboxConfig, container: &cri::ContainerConfig) -> (String, String) {
        let mut request = cri::RunPodSandboxRequest::new();
        request.config = Some(sandbox.clone()).into();
        let id = self.client.run_pod_sandbox(&request, soon()).expect("run the sandbox").pod_sandbox_id;
        let container = self.create_as(&id, sandbox, container).expect("create the container");
        self.start(&container).expect("start the container");
        (id, container)
    }

    /// The containers that run.
    #[track_caller]
    pub fn running(&self) -> Vec<String> {
        let list = self.client.list_containers(&cri::ListContainersRequest::new(), soon());
        let all = list.expect("the list of containers").containers;
        let running = all.into_iter().filter(|c| c.state == cri::ContainerState::CONTAINER_RUNNING.into());
        running.map(|c| c.id).collect()
    }

    pub fn stop(&self, container: &str, timeout: i64) -> grpcio::Result<()> {
        let mut request = cri::StopContainerRequest::new();
        request.container_id = container.to_owned();
        request.timeout = timeout;
        self.client.stop_container(&request, soon()).map(drop)
    }

    pub fn remove(&self, container: &str) -> grpcio::Result<()> {
        let mut request = cri::RemoveContainerRequest::new();
        request.container_id = container.to_owned();
        self.client.remove_container(&request, soon()).map(drop)
    }

    pub fn stop_sandbox(&self, sandbox: &str) -> grpcio::Result<()> {
        let mut request = cri::StopPodSandboxRequest::new();
        request.pod_sandbox_id = sandbox.to_owned();
        self.client.stop_pod_sandbox(&request, soon()).map(drop)
    }

    pub fn remove_sandbox(&self, sandbox: &str) -> grpcio::Result<()> {
        let mut request = cri::RemovePodSandboxRequest::new();
        request.pod_sandbox_id = sandbox.to_owned();
        self.client.remove_pod_sandbox(&request, soon()).map(drop)
    }

    pub fn sandbox_status(&self, sandbox: &str) -> grpcio::Result<cri::PodSandboxStatus> {
        let mut request = cri::PodSandboxStatusRequest::new();
        request.pod_sandbox_id = sandbox.to_owned();
        Ok(self.client.pod_sandbox_status(&request, soon())?.status.unwrap_or_default())
    }

    pub fn container_status(&self, container: &str) -> grpcio::Result<cri::ContainerStatus> {
        let mut request = cri::ContainerStatusRequest::new();
        request.container_id = container.to_owned();
        Ok(self.client.container_status(&request, soon())?.status.unwrap_or_default())
    }

    /// Waits until the client has noticed that the server is there again.
    #[track_caller]
    pub fn wait_up(&self) {
        eventually("the server", SOON, || self.version(soon()).map(drop).map_err(|e| e.to_string()));
    }

    pub fn version(&self, options: CallOption) -> grpcio::Result<String> {
        Ok(self.client.version(&cri::VersionRequest::new(), options)?.runtime_name)
    }
}
