//! The calls on containers.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cleat::cri::proto::runtime as cri;
use cleat::cri::proto::runtime::{ContainerEventType, ContainerState};
use grpcio::RpcStatusCode;

use super::faults::status;
use super::model::{Container, Model, State, Subject};
use super::operations::{Answer, Operation, forget_name, not_found, reserve, reserved, selected, unknown};
use super::sandboxes::about_sandbox;

fn about_container(model: &Model, id: &str) -> Subject {
    let unknown = || Subject { id: id.to_owned(), ..Subject::default() };
    model.containers.get(id).map_or_else(unknown, Container::subject)
}

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

pub(super) fn remove_container(model: &mut Model, id: &str) {
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

/// How long the command of a call may take.
fn patience(request: &cri::ExecSyncRequest) -> Option<Duration> {
    u64::try_from(request.timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}

impl Operation for cri::ExecSyncRequest {
    type Answer = cri::ExecSyncResponse;

    fn subject(&self, model: &Model) -> Subject {
        about_container(model, &self.container_id)
    }

    fn waits_until(&self, model: &Model, began: Instant) -> Option<Instant> {
        let container = model.containers.get(&self.container_id).filter(|c| c.is_running())?;
        let takes = model.on_exec(container).map(|rule| rule.takes)?;
        Some(began + patience(self).map_or(takes, |patience| patience.min(takes)))
    }

    fn finish(&self, model: &mut Model) -> Answer<cri::ExecSyncResponse> {
        let container = find(model, &self.container_id)?;
        if !container.is_running() {
            return Err(unknown(format!("container {:?} is not running", self.container_id)));
        }
        let mut answer = cri::ExecSyncResponse::new();
        if let Some(rule) = model.on_exec(container) {
            if let Some(patience) = patience(self).filter(|patience| *patience < rule.takes) {
                let why = format!("failed to exec in container: timeout {patience:?} exceeded");
                return Err(status(RpcStatusCode::DEADLINE_EXCEEDED, why));
            }
            answer.exit_code = rule.code;
            answer.stdout = rule.output.clone().into_bytes();
        }
        Ok(answer)
    }
}
