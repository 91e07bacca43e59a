//! From the runtime's messages to our types. What lacks the labels of a pod is none of ours and
//! becomes `None`; an answer without what it must have is an error.

use std::path::PathBuf;
use std::sync::Arc;

use protobuf::EnumOrUnknown;

use super::{
    Condition, Container, ContainerEvent, ContainerId, ContainerState, ContainerStatus, HandlerFeatures, Image,
    ImageUser, Notes, PodRef, Sandbox, SandboxId, SandboxStatus, Settings, Status, UnixNanos, api,
};
use crate::pod::{PodName, PodUid, labels};

type Map = std::collections::HashMap<String, String>;

fn pod_ref(map: &Map) -> Option<PodRef> {
    Some(PodRef {
        uid: PodUid::checked(map.get(labels::POD_UID)?)?,
        name: PodName::checked(map.get(labels::POD_NAMESPACE)?, map.get(labels::POD_NAME)?)?,
    })
}

fn is_ready(state: EnumOrUnknown<api::PodSandboxState>) -> bool {
    state == EnumOrUnknown::new(api::PodSandboxState::SANDBOX_READY)
}

pub fn sandbox(s: &api::PodSandbox) -> Option<Sandbox> {
    Some(Sandbox {
        id: SandboxId::new(s.id.as_str()),
        pod: pod_ref(&s.labels)?,
        attempt: s.metadata.attempt,
        ready: is_ready(s.state),
        created_at: UnixNanos(s.created_at),
    })
}

/// `sandbox` with what its status call says.
pub fn sandbox_status(sandbox: &Sandbox, s: api::PodSandboxStatus) -> SandboxStatus {
    let network = s.network.into_option().unwrap_or_default();
    let all = std::iter::once(network.ip).chain(network.additional_ips.into_iter().map(|ip| ip.ip));
    let mode = s.linux.namespaces.options.network;
    SandboxStatus {
        sandbox: Sandbox { ready: is_ready(s.state), ..sandbox.clone() },
        ips: all.filter(|ip| !ip.is_empty()).collect(),
        host_network: mode == EnumOrUnknown::new(api::NamespaceMode::NODE),
    }
}

fn notes(annotations: &Map) -> Arc<Notes> {
    let text = |key| annotations.get(key).cloned().unwrap_or_default();
    Arc::new(Notes {
        hash: text(labels::CONTAINER_HASH),
        restart_count: text(labels::CONTAINER_RESTART_COUNT).parse().unwrap_or(0),
        termination_message_path: text(labels::CONTAINER_TERMINATION_MESSAGE_PATH),
        termination_message_policy: text(labels::CONTAINER_TERMINATION_MESSAGE_POLICY),
        pre_stop: text(labels::CONTAINER_PRE_STOP_HANDLER),
        grace_period: text(labels::POD_TERMINATION_GRACE_PERIOD).parse().ok(),
    })
}

fn state(s: EnumOrUnknown<api::ContainerState>) -> ContainerState {
    match s.enum_value() {
        Ok(api::ContainerState::CONTAINER_CREATED) => ContainerState::Created,
        Ok(api::ContainerState::CONTAINER_RUNNING) => ContainerState::Running,
        Ok(api::ContainerState::CONTAINER_EXITED) => ContainerState::Exited,
        Ok(api::ContainerState::CONTAINER_UNKNOWN) | Err(_) => ContainerState::Unknown,
    }
}

pub fn container(c: &api::Container) -> Option<Container> {
    Some(Container {
        id: ContainerId::new(c.id.as_str()),
        sandbox: SandboxId::new(c.pod_sandbox_id.as_str()),
        pod: pod_ref(&c.labels)?,
        name: c.labels.get(labels::CONTAINER_NAME)?.as_str().into(),
        attempt: c.metadata.attempt,
        state: state(c.state),
        created_at: UnixNanos(c.created_at),
        notes: notes(&c.annotations),
    })
}

/// `container` with what its status call says.
pub fn container_status(container: &Container, s: api::ContainerStatus) -> ContainerStatus {
    let image = s.image.into_option().unwrap_or_default();
    ContainerStatus {
        container: Container { state: state(s.state), ..container.clone() },
        started_at: UnixNanos(s.started_at),
        finished_at: UnixNanos(s.finished_at),
        exit_code: s.exit_code,
        reason: s.reason,
        message: s.message,
        image: if image.user_specified_image.is_empty() { image.image } else { image.user_specified_image },
        image_ref: s.image_ref,
        log_path: s.log_path,
    }
}

pub fn status(s: api::StatusResponse) -> Status {
    let conditions = s.status.into_option().unwrap_or_default().conditions.into_iter();
    let handler = |h: api::RuntimeHandler| {
        let features = HandlerFeatures {
            recursive_read_only: h.features.recursive_read_only_mounts,
            user_namespaces: h.features.user_namespaces,
        };
        (h.name, features)
    };
    Status {
        conditions: conditions.map(condition).collect(),
        handlers: s.runtime_handlers.into_iter().map(handler).collect(),
        supplemental_groups_policy: s.features.supplemental_groups_policy,
    }
}

fn condition(c: api::RuntimeCondition) -> Condition {
    Condition { kind: c.type_, ok: c.status, reason: c.reason, message: c.message }
}

pub fn image(i: api::Image) -> Image {
    let user = match (i.uid.into_option(), i.username) {
        (Some(uid), _) => Some(ImageUser::Uid(uid.value)),
        (None, name) if !name.is_empty() => Some(ImageUser::Name(name)),
        _ => None,
    };
    Image { id: i.id, repo_tags: i.repo_tags, repo_digests: i.repo_digests, size: i.size, user, pinned: i.pinned }
}

/// What a container says of its image: the name that it was made with, digest and id.
pub fn images_of(c: api::Container) -> impl Iterator<Item = String> {
    let name = c.image.into_option().unwrap_or_default().image;
    [name, c.image_ref, c.image_id].into_iter().filter(|name| !name.is_empty())
}

pub fn filesystems(answer: api::ImageFsInfoResponse) -> Vec<PathBuf> {
    let mount_points =
        answer.image_filesystems.into_iter().map(|f| f.fs_id.into_option().unwrap_or_default().mountpoint);
    mount_points.filter(|path| !path.is_empty()).map(PathBuf::from).collect()
}

/// From containerd's configuration, which it shows when asked for all it knows.
pub fn settings(config: &str) -> Settings {
    let config: serde_json::Value = serde_json::from_str(config).unwrap_or_default();
    let text = |pointer| {
        let text = config.pointer(pointer).and_then(serde_json::Value::as_str).unwrap_or_default();
        (!text.is_empty()).then(|| text.to_owned())
    };
    Settings { sandbox_image: text("/sandboxImage"), snapshotter: text("/containerd/snapshotter") }
}

pub fn event(e: &api::ContainerEventResponse) -> ContainerEvent {
    let uid = &e.pod_sandbox_status.metadata.uid;
    ContainerEvent { container: e.container_id.clone(), pod: PodUid::checked(uid) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_containerd() {
        let config = r#"{"containerd": {"snapshotter": "native"}, "sandboxImage": "registry.k8s.io/pause:3.6"}"#;
        let want = Settings {
            sandbox_image: Some("registry.k8s.io/pause:3.6".to_owned()),
            snapshotter: Some("native".to_owned()),
        };
        assert_eq!(settings(config), want);
        for nothing in ["", "{}", r#"{"sandboxImage": "", "containerd": 1}"#] {
            assert_eq!(settings(nothing), Settings::default(), "{nothing}");
        }
    }
}
