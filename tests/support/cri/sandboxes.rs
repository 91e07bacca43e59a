//! The calls on sandboxes.

use cleat::cri::proto::runtime as cri;
use cleat::cri::proto::runtime::{ContainerEventType, PodSandboxState};

use super::containers::remove_container;
use super::model::{Model, Sandbox, Subject};
use super::operations::{Answer, Operation, forget_name, not_found, reserve, reserved, selected, unknown};

pub(super) fn about_sandbox(model: &Model, id: &str) -> Subject {
    let unknown = || Subject { id: id.to_owned(), ..Subject::default() };
    model.sandboxes.get(id).map_or_else(unknown, Sandbox::subject)
}

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
        let handler = self.runtime_handler.clone();
        let mut sandbox = Sandbox { id: id.clone(), config, handler, ready: true, ip: String::new(), created_at };
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
