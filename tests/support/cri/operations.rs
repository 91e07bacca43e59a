//! The calls of the CRI on the [`Model`], as containerd 1.6 does them: what is common to them, and those
//! on the runtime and on images.

use std::time::Instant;

use cleat::cri::proto::runtime as cri;
use grpcio::{RpcStatus, RpcStatusCode};
use protobuf::Message;

use super::faults::status;
use super::model::{Model, Subject};

pub(super) type Answer<T> = Result<T, RpcStatus>;

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

pub(super) fn not_found(message: String) -> RpcStatus {
    status(RpcStatusCode::NOT_FOUND, message + ": not found")
}

pub(super) fn unknown(message: impl Into<String>) -> RpcStatus {
    status(RpcStatusCode::UNKNOWN, message)
}

/// Takes a name for a new id; containerd keeps it until the sandbox or container is removed.
pub(super) fn reserve(model: &mut Model, kind: &str, name: &str) -> Answer<()> {
    if let Some(id) = model.names.get(name) {
        let why = format!("failed to reserve {kind} name {name:?}: name {name:?} is reserved for {id:?}");
        return Err(unknown(why));
    }
    let id = model.new_id();
    model.names.insert(name.to_owned(), id);
    Ok(())
}

pub(super) fn reserved(model: &Model, name: &str) -> Answer<String> {
    model.names.get(name).cloned().ok_or_else(|| unknown(format!("name {name:?} was not reserved")))
}

pub(super) fn forget_name(model: &mut Model, id: &str) {
    model.names.retain(|_, owner| owner != id);
}

pub(super) type Labels = std::collections::HashMap<String, String>;

/// Whether a filter's id (empty: any) and labels are those of an object.
pub(super) fn selected(id: &str, selector: &Labels, own_id: &str, labels: &Labels) -> bool {
    (id.is_empty() || id == own_id) && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

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
        answer.features = Some(model.features.clone()).into();
        let handler = |(name, features): (&String, &cri::RuntimeHandlerFeatures)| cri::RuntimeHandler {
            name: name.clone(),
            features: Some(features.clone()).into(),
            ..Default::default()
        };
        answer.runtime_handlers = model.handlers.iter().map(handler).collect();
        Ok(answer)
    }
}

fn about_image(name: &str) -> Subject {
    Subject { image: name.to_owned(), ..Subject::default() }
}

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
