//! The blocking client over the runtime's unix socket: one gRPC channel, a deadline on every call.
//! The channel connects when the first call is made, and again whenever the runtime comes back.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use grpcio::{CallOption, Channel, ChannelBuilder, EnvBuilder};
use protobuf::MessageField;

use super::proto::runtime_services::{ImageServiceClient, RuntimeServiceClient};
use super::{
    Auth, Container, ContainerId, ContainerStatus, Cri, Error, Events, ExecOutput, Image, Result, Sandbox, SandboxId,
    SandboxStatus, Settings, Status, Version, api, convert,
};
use crate::pod::{PodUid, labels};

/// Lists of large nodes are longer than gRPC's own limit of 4 MiB.
const MAX_MESSAGE: i32 = 16 << 20;
/// How long a pull may take: over a slow line, hours of nothing else to do.
const PULL_TIMEOUT: Duration = Duration::from_secs(4 * 3600);
/// How much longer than its command a call may take. A runtime that hangs for a moment is not the
/// command's fault; but some never answer when the command leaves children behind that hold on to
/// its output, and those calls must end too.
const EXEC_MARGIN: Duration = Duration::from_secs(30);

pub struct Client {
    runtime: RuntimeServiceClient,
    images: ImageServiceClient,
    timeout: Duration,
}

impl Client {
    /// `timeout` is the deadline of each call but pulls, and of stops on top of the grace period
    /// (`runtimeRequestTimeout`). Nothing is connected yet.
    pub fn new(runtime: &Path, images: &Path, timeout: Duration) -> Client {
        // One completion queue: a thread that hands answers to the threads that wait for them.
        let env = Arc::new(EnvBuilder::new().cq_count(1).name_prefix("cri-").build());
        let channel = connect(&env, runtime);
        let image_channel = if images == runtime { channel.clone() } else { connect(&env, images) };
        Client {
            runtime: RuntimeServiceClient(grpcio::Client::new(channel)),
            images: ImageServiceClient(grpcio::Client::new(image_channel)),
            timeout,
        }
    }

    fn options(&self) -> CallOption {
        CallOption::default().timeout(self.timeout)
    }
}

fn connect(env: &Arc<grpcio::Environment>, socket: &Path) -> Channel {
    ChannelBuilder::new(env.clone())
        .max_receive_message_len(MAX_MESSAGE)
        .max_send_message_len(MAX_MESSAGE)
        .initial_reconnect_backoff(Duration::from_millis(100))
        .max_reconnect_backoff(Duration::from_secs(1))
        .enable_http_proxy(false)
        .connect(&format!("unix:{}", socket.display()))
}

/// Makes a call and names it in the error.
macro_rules! call {
    ($service:expr, $method:ident, $name:literal, $request:expr, $options:expr) => {{
        let start = std::time::Instant::now();
        let result = $service.$method(&$request, $options).map_err(|e| Error::new($name, e));
        crate::metrics::runtime_operation($name, start.elapsed(), result.is_ok());
        result
    }};
}

mod inspect;

/// Rounded up: the runtime counts in seconds, and a part of one is not nothing.
fn whole_seconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis().div_ceil(1000)).unwrap_or(i64::MAX)
}

fn pod_selector(pod: Option<&PodUid>) -> HashMap<String, String> {
    pod.map(|uid| (labels::POD_UID.to_owned(), uid.to_string())).into_iter().collect()
}

/// An answer about something that is gone is no error where the caller asks whether it is there.
fn found<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(v) => Ok(Some(v)),
        Err(e) if e.code == super::Code::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

impl Cri for Client {
    fn version(&self) -> Result<Version> {
        let request = api::VersionRequest { version: "0.1.0".to_owned(), ..Default::default() };
        let v = call!(self.runtime, version, "Version", request, self.options())?;
        Ok(Version { name: v.runtime_name, version: v.runtime_version })
    }

    fn status(&self) -> Result<Status> {
        call!(self.runtime, status, "Status", api::StatusRequest::new(), self.options()).map(convert::status)
    }

    fn set_pod_cidr(&self, cidr: &str) -> Result<()> {
        let network = api::NetworkConfig { pod_cidr: cidr.to_owned(), ..Default::default() };
        let config = api::RuntimeConfig { network_config: MessageField::some(network), ..Default::default() };
        let request =
            api::UpdateRuntimeConfigRequest { runtime_config: MessageField::some(config), ..Default::default() };
        call!(self.runtime, update_runtime_config, "UpdateRuntimeConfig", request, self.options()).map(drop)
    }

    fn run_pod_sandbox(&self, config: &api::PodSandboxConfig, handler: &str) -> Result<SandboxId> {
        let request = api::RunPodSandboxRequest {
            config: MessageField::some(config.clone()),
            runtime_handler: handler.to_owned(),
            ..Default::default()
        };
        // The runtime sets the pod's network up in this call, which may take its time.
        let options = CallOption::default().timeout(self.timeout * 2);
        let id = call!(self.runtime, run_pod_sandbox, "RunPodSandbox", request, options)?.pod_sandbox_id;
        match id.is_empty() {
            true => Err(Error::garbage("RunPodSandbox", "no sandbox id")),
            false => Ok(SandboxId::new(id)),
        }
    }

    fn stop_pod_sandbox(&self, id: &SandboxId) -> Result<()> {
        let request = api::StopPodSandboxRequest { pod_sandbox_id: id.to_string(), ..Default::default() };
        found(call!(self.runtime, stop_pod_sandbox, "StopPodSandbox", request, self.options())).map(drop)
    }

    fn remove_pod_sandbox(&self, id: &SandboxId) -> Result<()> {
        let request = api::RemovePodSandboxRequest { pod_sandbox_id: id.to_string(), ..Default::default() };
        found(call!(self.runtime, remove_pod_sandbox, "RemovePodSandbox", request, self.options())).map(drop)
    }

    fn pod_sandbox_status(&self, sandbox: &Sandbox) -> Result<Option<SandboxStatus>> {
        let request = api::PodSandboxStatusRequest { pod_sandbox_id: sandbox.id.to_string(), ..Default::default() };
        let answer = found(call!(self.runtime, pod_sandbox_status, "PodSandboxStatus", request, self.options()))?;
        let Some(answer) = answer else { return Ok(None) };
        match answer.status.into_option() {
            Some(status) => Ok(Some(convert::sandbox_status(sandbox, status))),
            None => Err(Error::garbage("PodSandboxStatus", "no status")),
        }
    }

    fn list_pod_sandboxes(&self, pod: Option<&PodUid>) -> Result<Vec<Sandbox>> {
        let filter = api::PodSandboxFilter { label_selector: pod_selector(pod), ..Default::default() };
        let request = api::ListPodSandboxRequest { filter: MessageField::some(filter), ..Default::default() };
        let answer = call!(self.runtime, list_pod_sandbox, "ListPodSandbox", request, self.options())?;
        Ok(answer.items.iter().filter_map(convert::sandbox).collect())
    }

    fn create_container(
        &self,
        sandbox: &SandboxId,
        config: &api::ContainerConfig,
        sandbox_config: &api::PodSandboxConfig,
    ) -> Result<ContainerId> {
        let request = api::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_string(),
            config: MessageField::some(config.clone()),
            sandbox_config: MessageField::some(sandbox_config.clone()),
            ..Default::default()
        };
        let id = call!(self.runtime, create_container, "CreateContainer", request, self.options())?.container_id;
        match id.is_empty() {
            true => Err(Error::garbage("CreateContainer", "no container id")),
            false => Ok(ContainerId::new(id)),
        }
    }

    fn start_container(&self, id: &ContainerId) -> Result<()> {
        let request = api::StartContainerRequest { container_id: id.to_string(), ..Default::default() };
        call!(self.runtime, start_container, "StartContainer", request, self.options()).map(drop)
    }

    fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<()> {
        let request = api::StopContainerRequest {
            container_id: id.to_string(),
            timeout: whole_seconds(grace),
            ..Default::default()
        };
        let options = CallOption::default().timeout(grace.saturating_add(self.timeout));
        found(call!(self.runtime, stop_container, "StopContainer", request, options)).map(drop)
    }

    fn remove_container(&self, id: &ContainerId) -> Result<()> {
        let request = api::RemoveContainerRequest { container_id: id.to_string(), ..Default::default() };
        found(call!(self.runtime, remove_container, "RemoveContainer", request, self.options())).map(drop)
    }

    fn list_containers(&self, pod: Option<&PodUid>) -> Result<Vec<Container>> {
        let filter = api::ContainerFilter { label_selector: pod_selector(pod), ..Default::default() };
        let request = api::ListContainersRequest { filter: MessageField::some(filter), ..Default::default() };
        let answer = call!(self.runtime, list_containers, "ListContainers", request, self.options())?;
        Ok(answer.containers.iter().filter_map(convert::container).collect())
    }

    fn container_status(&self, container: &Container) -> Result<Option<ContainerStatus>> {
        let request = api::ContainerStatusRequest { container_id: container.id.to_string(), ..Default::default() };
        let answer = found(call!(self.runtime, container_status, "ContainerStatus", request, self.options()))?;
        let Some(answer) = answer else { return Ok(None) };
        match answer.status.into_option() {
            Some(status) => Ok(Some(convert::container_status(container, status))),
            None => Err(Error::garbage("ContainerStatus", "no status")),
        }
    }

    fn update_container_resources(&self, id: &ContainerId, resources: &api::LinuxContainerResources) -> Result<()> {
        let request = api::UpdateContainerResourcesRequest {
            container_id: id.to_string(),
            linux: MessageField::some(resources.clone()),
            ..Default::default()
        };
        let options = self.options();
        call!(self.runtime, update_container_resources, "UpdateContainerResources", request, options).map(drop)
    }

    fn reopen_container_log(&self, id: &ContainerId) -> Result<()> {
        let request = api::ReopenContainerLogRequest { container_id: id.to_string(), ..Default::default() };
        call!(self.runtime, reopen_container_log, "ReopenContainerLog", request, self.options()).map(drop)
    }

    fn exec_sync(&self, id: &ContainerId, command: &[String], timeout: Duration) -> Result<ExecOutput> {
        let request = api::ExecSyncRequest {
            container_id: id.to_string(),
            cmd: command.to_vec(),
            timeout: whole_seconds(timeout),
            ..Default::default()
        };
        // Without a limit the command may take as long as it likes.
        let options = match timeout.is_zero() {
            true => CallOption::default(),
            false => CallOption::default().timeout(timeout.saturating_add(self.timeout.min(EXEC_MARGIN))),
        };
        let answer = call!(self.runtime, exec_sync, "ExecSync", request, options)?;
        Ok(ExecOutput { stdout: answer.stdout, stderr: answer.stderr, exit_code: answer.exit_code })
    }

    fn container_events(&self) -> Result<Events> {
        // No deadline: the stream lasts as long as the connection.
        let options = CallOption::default();
        let request = api::GetEventsRequest::new();
        let stream = call!(self.runtime, get_container_events, "GetContainerEvents", request, options)?;
        let items = futures_executor::block_on_stream(stream);
        Ok(Box::new(
            items.map(|item| item.map(|e| convert::event(&e)).map_err(|e| Error::new("GetContainerEvents", e))),
        ))
    }

    fn image_status(&self, image: &str) -> Result<Option<Image>> {
        let spec = api::ImageSpec { image: image.to_owned(), ..Default::default() };
        let request = api::ImageStatusRequest { image: MessageField::some(spec), ..Default::default() };
        let answer = found(call!(self.images, image_status, "ImageStatus", request, self.options()))?;
        Ok(answer.and_then(|a| a.image.into_option()).map(convert::image))
    }

    fn pull_image(&self, image: &str, auth: Option<&Auth>, sandbox: &api::PodSandboxConfig) -> Result<String> {
        let auth = auth.map(|a| api::AuthConfig {
            username: a.username.clone(),
            password: a.password.clone(),
            server_address: a.server_address.clone(),
            identity_token: a.identity_token.clone(),
            registry_token: a.registry_token.clone(),
            ..Default::default()
        });
        let spec = api::ImageSpec { image: image.to_owned(), ..Default::default() };
        let request = api::PullImageRequest {
            image: MessageField::some(spec),
            auth: auth.into(),
            sandbox_config: MessageField::some(sandbox.clone()),
            ..Default::default()
        };
        let options = CallOption::default().timeout(PULL_TIMEOUT);
        let image_ref = call!(self.images, pull_image, "PullImage", request, options)?.image_ref;
        match image_ref.is_empty() {
            true => Err(Error::garbage("PullImage", "no image reference")),
            false => Ok(image_ref),
        }
    }

    fn list_images(&self) -> Result<Vec<Image>> {
        let answer = call!(self.images, list_images, "ListImages", api::ListImagesRequest::new(), self.options())?;
        Ok(answer.images.into_iter().map(convert::image).collect())
    }

    fn remove_image(&self, id: &str) -> Result<()> {
        let spec = api::ImageSpec { image: id.to_owned(), ..Default::default() };
        let request = api::RemoveImageRequest { image: MessageField::some(spec), ..Default::default() };
        found(call!(self.images, remove_image, "RemoveImage", request, self.options())).map(drop)
    }

    fn image_fs_info(&self) -> Result<Vec<PathBuf>> {
        let answer = call!(self.images, image_fs_info, "ImageFsInfo", api::ImageFsInfoRequest::new(), self.options())?;
        let directories = convert::filesystems(answer);
        match directories.is_empty() {
            true => Err(Error::garbage("ImageFsInfo", "no filesystem")),
            false => Ok(directories),
        }
    }

    fn images_in_use(&self) -> Result<BTreeSet<String>> {
        let request = api::ListContainersRequest::new();
        let answer = call!(self.runtime, list_containers, "ListContainers", request, self.options())?;
        Ok(answer.containers.into_iter().flat_map(convert::images_of).collect())
    }

    fn settings(&self) -> Result<Settings> {
        let request = api::StatusRequest { verbose: true, ..Default::default() };
        let answer = call!(self.runtime, status, "Status", request, self.options())?;
        Ok(answer.info.get("config").map(|config| convert::settings(config)).unwrap_or_default())
    }
}
