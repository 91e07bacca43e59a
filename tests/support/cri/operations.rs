//! The calls of the CRI on the [`Model`], as containerd 1.6 does them.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cleat::cri::proto::runtime as cri;
use cleat::cri::proto::runtime::{ContainerEventType, ContainerState, PodSandboxState};
use grpcio::{RpcStatus, RpcStatusCode};
use protobuf::Message;

use super::faults::status;
use super::model::{Container, Model, Sandbox, State, Subject};

type Answer<T> = Result<T, RpcStatus>;

/// A request that answers itself from the model.
pub(super) trait Operation: Message {
    type Answer: Message;

    /// What it is about.
    fn subject(&self, _: &Model) -> Subject {
        Subject::default()
    }

    /// What it does when it arrives, before any delay.
    fn begin(&self, _: &mut Model) -> Answer<()> {
        Ok(())
    }

    /// Until when it has to wait, as things are, having begun at `began`.
    fn waits_until(&self, _: &Model, _began: Instant) -> Option<Instant> {
        None
    }

    /// What it does in the end.
    fn finish(&self, model: &mut Model) -> Answer<Self::Answer>;

    /// Takes back what it did in [`Operation::begin`]; it won't be finished.
    fn give_up(&self, _: &mut Model) {}
}

fn not_found(message: String) -> RpcStatus {
    status(RpcStatusCode::NOT_FOUND, message + ": not found")
}

fn unknown(message: impl Into<String>) -> RpcStatus {
    status(RpcStatusCode::UNKNOWN, message)
}

fn about_sandbox(model: &Model, id: &str) -> Subject {
    let unknown = || Subject { id: id.to_owned(), ..Subject::default() };
    model.sandboxes.get(id).map_or_else(unknown, Sandbox::subject)
}

fn about_container(model: &Model, id: &str) -> Subject {
    let unknown = || Subject { id: id.to_owned(), ..Subject::default() };
    model.containers.get(id).map_or_else(unknown, Container::subject)
}

fn about_image(name: &str) -> Subject {
    Subject { image: name.to_owned(), ..Subject::default() }
}

/// Takes a name for a new id; containerd keeps it until the sandbox or container is removed.
fn reserve(model: &mut Model, kind: &str, name: &str) -> Answer<()> {
    if let Some(id) = model.names.get(name) {
        let why = format!("failed to reserve {kind} name {name:?}: name {name:?} is reserved for {id:?}");
        return Err(unknown(why));
    }
    let id = model.new_id();
    model.names.insert(name.to_owned(), id);
    Ok(())
}

fn reserved(model: &Model, name: &str) -> Answer<String> {
    model.names.get(name).cloned().ok_or_else(|| unknown(format!("name {name:?} was not reserved")))
}

fn forget_name(model: &mut Model, id: &str) {
    model.names.retain(|_, owner| owner != id);
}

// Runtime

impl Operation for cri::VersionRequest {
    type Answer = cri::VersionResponse;

    fn finish(&self, _: &mut Model) -> Answer<cri::VersionResponse> {
        let mut answer = cri::VersionResponse::new();
        answer.version = "0.1.0".to_owned();
        answer.runtime_name = "fake".to_owned();
        answer.runtime_version = "1.0.0".to_owned();
        answer.runtime_api_version = "v1".to_owned();
        Ok(answer)
    }
}

impl Operation for cri::StatusRequest {
    type Answer = cri::StatusResponse;

    fn finish(&self, model: &mut Model) -> Answer<cri::StatusResponse> {
        let condition = |type_: &str, not_ready: &Option<String>| {
            let mut condition = cri::RuntimeCondition::new();
            condition.type_ = type_.to_owned();
            condition.status = not_ready.is_none();
            if let Some(message) = not_ready {
                condition.reason = format!("{type_}IsFalse");
                condition.message = message.clone();
            }
            condition
        };
        let mut answer = cri::StatusResponse::new();
        answer.status.mut_or_insert_default().conditions = vec![
            condition("RuntimeReady", &model.runtime_not_ready),
            condition("NetworkReady", &model.network_not_ready),
        ];
        Ok(answer)
    }
}

// Sandboxes

fn sandbox_name(config: &cri::PodSandboxConfig) -> String {
    let m = config.metadata.get_or_default();
    format!("{}_{}_{}_{}", m.name, m.namespace, m.uid, m.attempt)
}

impl Operation for cri::RunPodSandboxRequest {
    type Answer = cri::RunPodSandboxResponse;

    fn subject(&self, _: &Model) -> Subject {
        Subject { pod: self.config.metadata.name.clone(), ..Subject::default() }
    }

    fn begin(&self, model: &mut Model) -> Answer<()> {
        if self.config.metadata.is_none() {
            return Err(unknown("sandbox config must include metadata"));
        }
        reserve(model, "sandbox", &sandbox_name(&self.config))
    }

    fn finish(&self, model: &mut Model) -> Answer<cri::RunPodSandboxResponse> {
        let id = reserved(model, &sandbox_name(&self.config))?;
        let config = self.config.get_or_default().clone();
        let created_at = model.now();
        let mut sandbox = Sandbox { id: id.clone(), config, ready: true, ip: String::new(), created_at };
        if !sandbox.uses_node_network() {
            sandbox.ip = model.new_ip();
        }
        model.sandboxes.insert(id.clone(), sandbox);
        model.tell(&id, &id, ContainerEventType::CONTAINER_CREATED_EVENT);
        model.tell(&id, &id, ContainerEventType::CONTAINER_STARTED_EVENT);
        let mut answer = cri::RunPodSandboxResponse::new();
        answer.pod_sandbox_id = id;
        Ok(answer)
    }

    fn give_up(&self, model: &mut Model) {
        if let Ok(id) = reserved(model, &sandbox_name(&self.config)) {
            forget_name(model, &id);
        }
    }
}

fn stop_sandbox(model: &mut Model, id: &str) {
    let in_it = model.containers.values().filter(|c| c.sandbox_id == id).map(|c| c.id.clone());
    for container in in_it.collect::<Vec<_>>() {
        model.exit(&container, 137, "Error");
    }
    let Some(sandbox) = model.sandboxes.get_mut(id) else { return };
    sandbox.ip.clear();
    if std::mem::replace(&mut sandbox.ready, false) {
        model.tell(id, id, ContainerEventType::CONTAINER_STOPPED_EVENT);
    }
}

impl Operation for cri::StopPodSandboxRequest {
    type Answer = cri::StopPodSandboxResponse;

    fn subject(&self, model: &Model) -> Subject {
        about_sandbox(model, &self.pod_sandbox_id)
    }

    fn finish(&self, model: &mut Model) -> Answer<cri::StopPodSandboxResponse> {
        let id = &self.pod_sandbox_id;
        if !model.sandboxes.contains_key(id) {
            return Err(not_found(format!("an error occurred when try to find sandbox {id:?}")));
        }
        stop_sandbox(model, id);
        Ok(cri::StopPodSandboxResponse::new())
    }
}

impl Operation for cri::RemovePodSandboxRequest {
    type Answer = cri::RemovePodSandboxResponse;

    fn subject(&self, model: &Model) -> Subject {
        about_sandbox(model, &self.pod_sandbox_id)
    }

    fn finish(&self, model: &mut Model) -> Answer<cri::RemovePodSandboxResponse> {
        let id = &self.pod_sandbox_id;
        if model.sandboxes.contains_key(id) {
            stop_sandbox(model, id);
            let in_it = model.containers.values().filter(|c| c.sandbox_id == *id).map(|c| c.id.clone());
            for container in in_it.collect::<Vec<_>>() {
                remove_container(model, &container);
            }
            model.tell(id, id, ContainerEventType::CONTAINER_DELETED_EVENT);
            model.sandboxes.remove(id);
            forget_name(model, id);
        }
        Ok(cri::RemovePodSandboxResponse::new())
    }
}

fn sandbox_state(sandbox: &Sandbox) -> PodSandboxState {
    if sandbox.ready { PodSandboxState::SANDBOX_READY } else { PodSandboxState::SANDBOX_NOTREADY }
}

pub(super) fn sandbox_status(sandbox: &Sandbox) -> cri::PodSandboxStatus {
    let mut status = cri::PodSandboxStatus::new();
    status.id = sandbox.id.clone();
    status.metadata = sandbox.config.metadata.clone();
    status.state = sandbox_state(sandbox).into();
    status.created_at = sandbox.created_at;
    status.network.mut_or_insert_default().ip = sandbox.ip.clone();
    let namespaces = status.linux.mut_or_insert_default().namespaces.mut_or_insert_default();
    namespaces.options = Some(sandbox.config.linux.security_context.namespace_options.get_or_default().clone()).into();
    status.labels = sandbox.config.labels.clone();
    status.annotations = sandbox.config.annotations.clone();
    status
}

impl Operation for cri::PodSandboxStatusRequest {
    type Answer = cri::PodSandboxStatusResponse;

    fn subject(&self, model: &Model) -> Subject {
        about_sandbox(model, &self.pod_sandbox_id)
    }

    fn finish(&self, model: &mut Model) -> Answer<cri::PodSandboxStatusResponse> {
        let found = model.sandbox_status(&self.pod_sandbox_id);
        let status = found.ok_or_else(|| not_found("an error occurred when try to find sandbox".to_owned()))?;
        let mut answer = cri::PodSandboxStatusResponse::new();
        answer.status = Some(status).into();
        Ok(answer)
    }
}

type Labels = std::collections::HashMap<String, String>;

/// Whether a filter's id (empty: any) and labels are those of an object.
fn selected(id: &str, selector: &Labels, own_id: &str, labels: &Labels) -> bool {
    (id.is_empty() || id == own_id) && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl Operation for cri::ListPodSandboxRequest {
    type Answer = cri::ListPodSandboxResponse;

    fn finish(&self, model: &mut Model) -> Answer<cri::ListPodSandboxResponse> {
        let filter = self.filter.get_or_default();
        let item = |s: &Sandbox| {
            let mut item = cri::PodSandbox::new();
            item.id = s.id.clone();
            item.metadata = s.config.metadata.clone();
            item.state = sandbox_state(s).into();
            item.created_at = s.created_at;
            item.labels = s.config.labels.clone();
            item.annotations = s.config.annotations.clone();
            item
        };
        let wanted = |s: &&Sandbox| selected(&filter.id, &filter.label_selector, &s.id, &s.config.labels);
        let mut answer = cri::ListPodSandboxResponse::new();
        answer.items = model.sandboxes.values().filter(wanted).map(item).collect();
        Ok(answer)
    }
}

// Containers

fn container_name(model: &Model, request: &cri::CreateContainerRequest) -> Answer<String> {
    let sandbox = model.sandboxes.get(&request.pod_sandbox_id);
    let sandbox =
        sandbox.ok_or_else(|| not_found(format!("failed to find sandbox id {:?}", request.pod_sandbox_id)))?;
    let pod = sandbox.config.metadata.get_or_default();
    let own = request.config.metadata.as_ref().ok_or_else(|| unknown("container config must include metadata"))?;
    Ok(format!("{}_{}_{}_{}_{}", own.name, pod.name, pod.namespace, pod.uid, own.attempt))
}

impl Operation for cri::CreateContainerRequest {
    type Answer = cri::CreateContainerResponse;

    fn subject(&self, model: &Model) -> Subject {
        let container = self.config.metadata.name.clone();
        Subject { id: String::new(), container, ..about_sandbox(model, &self.pod_sandbox_id) }
    }

    fn begin(&self, model: &mut Model) -> Answer<()> {
        let name = container_name(model, self)?;
        reserve(model, "container", &name)
    }

    fn finish(&self, model: &mut Model) -> Answer<cri::CreateContainerResponse> {
        let id = reserved(model, &container_name(model, self)?)?;
        let sandbox = model.sandboxes.get(&self.pod_sandbox_id).filter(|s| s.ready);
        let pod = sandbox.map(|s| s.pod().to_owned()).ok_or_else(|| {
            let id = &self.pod_sandbox_id;
            not_found(format!("failed to get sandbox container task: no running task found: task {id} not found"))
        })?;
        let image = &self.config.image.image;
        let image_id = model.image(image).map(|i| i.id.clone());
        let image_id = image_id.ok_or_else(|| not_found(format!("failed to resolve image {image:?}")))?;
        let log = &self.config.log_path;
        let log_path = Some(Path::new(&self.sandbox_config.log_directory).join(log)).filter(|_| !log.is_empty());
        let container = Container {
            id: id.clone(),
            sandbox_id: self.pod_sandbox_id.clone(),
            pod,
            config: self.config.get_or_default().clone(),
            image_id,
            log_path,
            created_at: model.now(),
            state: State::Created,
            term_at: None,
        };
        model.containers.insert(id.clone(), container);
        model.tell(&id, &self.pod_sandbox_id, ContainerEventType::CONTAINER_CREATED_EVENT);
        let mut answer = cri::CreateContainerResponse::new();
        answer.container_id = id;
        Ok(answer)
    }

    fn give_up(&self, model: &mut Model) {
        if let Ok(id) = container_name(model, self).and_then(|name| reserved(model, &name)) {
            forget_name(model, &id);
        }
    }
}

fn find<'m>(model: &'m Model, id: &str) -> Answer<&'m Container> {
    let found = model.containers.get(id);
    found.ok_or_else(|| not_found(format!("an error occurred when try to find container {id:?}")))
}

/// Makes the container's log file if it isn't there, with its directory as containerd does.
fn open_log(path: &Option<PathBuf>) -> Answer<()> {
    let Some(path) = path else { return Ok(()) };
    let open = || {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        OpenOptions::new().create(true).append(true).open(path)
    };
    open().map(drop).map_err(|e| unknown(format!("failed to open log file {:?}: {e}", path.display())))
}

impl Operation for cri::StartContainerRequest {
    type Answer = cri::StartContainerResponse;

    fn subject(&self, model: &Model) -> Subject {
        about_container(model, &self.container_id)
    }

    fn finish(&self, model: &mut Model) -> Answer<cri::StartContainerResponse> {
        let id = &self.container_id;
        let container = find(model, id)?;
        if container.state != State::Created {
            let state = container_state(container);
            let why = format!("failed to set starting state for container {id:?}: container is in {state:?} state");
            return Err(unknown(why));
        }
        let sandbox = container.sandbox_id.clone();
        if !model.sandboxes.get(&sandbox).is_some_and(|s| s.ready) {
            return Err(unknown(format!("sandbox container {sandbox:?} is not running")));
        }
        open_log(&container.log_path)?;
        let started_at = model.now();
        if let Some(container) = model.containers.get_mut(id) {
            container.state = State::Running { started_at };
        }
        model.tell(id, &sandbox, ContainerEventType::CONTAINER_STARTED_EVENT);
        Ok(cri::StartContainerResponse::new())
    }
}

impl Operation for cri::StopContainerRequest {
    type Answer = cri::StopContainerResponse;

    fn subject(&self, model: &Model) -> Subject {
        about_container(model, &self.container_id)
    }

    fn begin(&self, model: &mut Model) -> Answer<()> {
        if self.timeout > 0 {
            if let Some(container) = model.containers.get_mut(&self.container_id) {
                container.term_at.get_or_insert_with(Instant::now);
            }
        }
        Ok(())
    }

    fn waits_until(&self, model: &Model, began: Instant) -> Option<Instant> {
        let container = model.containers.get(&self.container_id).filter(|c| c.is_running())?;
        let patience = began + Duration::from_secs(self.timeout.try_into().unwrap_or(0));
        Some(container.term_at.map_or(patience, |term| patience.min(term + model.on_term(container).0)))
    }

    fn finish(&self, model: &mut Model) -> Answer<cri::StopContainerResponse> {
        let container = find(model, &self.container_id)?;
        let (takes, code) = model.on_term(container);
        let obeyed = container.term_at.is_some_and(|term| Instant::now() >= term + takes);
        let code = if obeyed { code } else { 137 };
        model.exit(&self.container_id, code, if code == 0 { "Completed" } else { "Error" });
        Ok(cri::StopContainerResponse::new())
    }
}

fn remove_container(model: &mut Model, id: &str) {
    model.exit(id, 137, "Error");
    if let Some(container) = model.containers.remove(id) {
        model.tell(id, &container.sandbox_id, ContainerEventType::CONTAINER_DELETED_EVENT);
        forget_name(model, id);
    }
}

impl Operation for cri::RemoveContainerRequest {
    type Answer = cri::RemoveContainerResponse;

    fn subject(&self, model: &Model) -> Subject {
        about_container(model, &self.container_id)
    }

    fn finish(&self, model: &mut Model) -> Answer<cri::RemoveContainerResponse> {
        remove_container(model, &self.container_id);
        Ok(cri::RemoveContainerResponse::new())
    }
}

fn container_state(container: &Container) -> ContainerState {
    match container.state {
        State::Created => ContainerState::CONTAINER_CREATED,
        State::Running { .. } => ContainerState::CONTAINER_RUNNING,
        State::Exited { .. } => ContainerState::CONTAINER_EXITED,
    }
}

impl Operation for cri::ListContainersRequest {
    type Answer = cri::ListContainersResponse;

    fn finish(&self, model: &mut Model) -> Answer<cri::ListContainersResponse> {
        let filter = self.filter.get_or_default();
        let item = |c: &Container| {
            let mut item = cri::Container::new();
            item.id = c.id.clone();
            item.pod_sandbox_id = c.sandbox_id.clone();
            item.metadata = c.config.metadata.clone();
            item.image = c.config.image.clone();
            item.image_ref = c.image_id.clone();
            item.state = container_state(c).into();
            item.created_at = c.created_at;
            item.labels = c.config.labels.clone();
            item.annotations = c.config.annotations.clone();
            item
        };
        let wanted = |c: &&Container| {
            selected(&filter.id, &filter.label_selector, &c.id, &c.config.labels)
                && (filter.pod_sandbox_id.is_empty() || filter.pod_sandbox_id == c.sandbox_id)
        };
        let mut answer = cri::ListContainersResponse::new();
        answer.containers = model.containers.values().filter(wanted).map(item).collect();
        Ok(answer)
    }
}

impl Operation for cri::ContainerStatusRequest {
    type Answer = cri::ContainerStatusResponse;

    fn subject(&self, model: &Model) -> Subject {
        about_container(model, &self.container_id)
    }

    fn finish(&self, model: &mut Model) -> Answer<cri::ContainerStatusResponse> {
        let container = find(model, &self.container_id)?;
        let mut answer = cri::ContainerStatusResponse::new();
        let status = answer.status.mut_or_insert_default();
        status.id = container.id.clone();
        status.metadata = container.config.metadata.clone();
        status.state = container_state(container).into();
        status.created_at = container.created_at;
        status.image = container.config.image.clone();
        status.image_ref = container.image_id.clone();
        status.labels = container.config.labels.clone();
        status.annotations = container.config.annotations.clone();
        status.log_path = container.log_path.as_ref().map_or(String::new(), |p| p.display().to_string());
        match &container.state {
            State::Created => {}
            State::Running { started_at } => status.started_at = *started_at,
            State::Exited { started_at, finished_at, exit_code, reason } => {
                status.started_at = *started_at;
                status.finished_at = *finished_at;
                status.exit_code = *exit_code;
                status.reason = reason.clone();
            }
        }
        Ok(answer)
    }
}

impl Operation for cri::ReopenContainerLogRequest {
    type Answer = cri::ReopenContainerLogResponse;

    fn subject(&self, model: &Model) -> Subject {
        about_container(model, &self.container_id)
    }

    fn finish(&self, model: &mut Model) -> Answer<cri::ReopenContainerLogResponse> {
        let container = find(model, &self.container_id)?;
        if !container.is_running() {
            return Err(unknown("container is not running"));
        }
        open_log(&container.log_path)?;
        Ok(cri::ReopenContainerLogResponse::new())
    }
}

// Images

impl Operation for cri::ImageStatusRequest {
    type Answer = cri::ImageStatusResponse;

    fn subject(&self, _: &Model) -> Subject {
        about_image(&self.image.image)
    }

    fn finish(&self, model: &mut Model) -> Answer<cri::ImageStatusResponse> {
        let mut answer = cri::ImageStatusResponse::new();
        answer.image = model.image(&self.image.image).cloned().into();
        Ok(answer)
    }
}

impl Operation for cri::PullImageRequest {
    type Answer = cri::PullImageResponse;

    fn subject(&self, _: &Model) -> Subject {
        about_image(&self.image.image)
    }

    fn finish(&self, model: &mut Model) -> Answer<cri::PullImageResponse> {
        let name = &self.image.image;
        if model.image(name).is_none() {
            model.add_image(name);
        }
        let mut answer = cri::PullImageResponse::new();
        answer.image_ref = model.image(name).map(|i| i.id.clone()).unwrap_or_default();
        Ok(answer)
    }
}
