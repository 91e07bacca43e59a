//! The calls of [`Inspect`].

use std::time::Duration;

use grpcio::CallOption;

use super::{Client, MessageField, whole_seconds};
use crate::cri::{ContainerId, ContainerUsage, Error, Inspect, Result, SandboxId, Streams, Usage, api};

impl Inspect for Client {
    fn exec(&self, id: &ContainerId, command: &[String], streams: Streams) -> Result<String> {
        let Streams { stdin, stdout, stderr, tty } = streams;
        let (container_id, cmd) = (id.to_string(), command.to_vec());
        let request = api::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr, ..Default::default() };
        url("Exec", call!(self.runtime, exec, "Exec", request, self.options())?.url)
    }

    fn attach(&self, id: &ContainerId, streams: Streams) -> Result<String> {
        let Streams { stdin, stdout, stderr, tty } = streams;
        let container_id = id.to_string();
        let request = api::AttachRequest { container_id, stdin, tty, stdout, stderr, ..Default::default() };
        url("Attach", call!(self.runtime, attach, "Attach", request, self.options())?.url)
    }

    fn port_forward(&self, sandbox: &SandboxId, ports: &[i32]) -> Result<String> {
        let (pod_sandbox_id, port) = (sandbox.to_string(), ports.to_vec());
        let request = api::PortForwardRequest { pod_sandbox_id, port, ..Default::default() };
        url("PortForward", call!(self.runtime, port_forward, "PortForward", request, self.options())?.url)
    }

    fn checkpoint_container(&self, id: &ContainerId, location: &str, timeout: Duration) -> Result<()> {
        let request = api::CheckpointContainerRequest {
            container_id: id.to_string(),
            location: location.to_owned(),
            timeout: whole_seconds(timeout),
            ..Default::default()
        };
        let limit = if timeout.is_zero() { self.timeout } else { self.timeout.saturating_add(timeout) };
        let options = CallOption::default().timeout(limit);
        call!(self.runtime, checkpoint_container, "CheckpointContainer", request, options).map(drop)
    }

    fn list_container_stats(&self) -> Result<Vec<ContainerUsage>> {
        let request = api::ListContainerStatsRequest::new();
        let answer = call!(self.runtime, list_container_stats, "ListContainerStats", request, self.options())?;
        Ok(answer.stats.into_iter().filter_map(container_usage).collect())
    }

    fn image_usage(&self) -> Result<Vec<(String, Usage)>> {
        let request = api::ImageFsInfoRequest::new();
        let answer = call!(self.images, image_fs_info, "ImageFsInfo", request, self.options())?;
        let mountpoint = |fs: &api::FilesystemUsage| fs.fs_id.as_ref().map(|id| id.mountpoint.clone());
        let places = answer.image_filesystems.iter().filter_map(|fs| Some((mountpoint(fs)?, usage(fs))));
        Ok(places.filter(|(path, _)| !path.is_empty()).collect())
    }
}

fn url(call: &'static str, url: String) -> Result<String> {
    if url.is_empty() { Err(Error::garbage(call, "no URL")) } else { Ok(url) }
}

fn value(field: &MessageField<api::UInt64Value>) -> Option<u64> {
    field.as_ref().map(|v| v.value)
}

fn usage(fs: &api::FilesystemUsage) -> Usage {
    Usage { bytes: value(&fs.used_bytes), inodes: value(&fs.inodes_used) }
}

fn container_usage(stats: api::ContainerStats) -> Option<ContainerUsage> {
    let memory = stats.memory.as_ref();
    Some(ContainerUsage {
        id: ContainerId::new(stats.attributes.into_option()?.id),
        cpu: stats.cpu.as_ref().and_then(|cpu| value(&cpu.usage_core_nano_seconds)),
        working_set: memory.and_then(|m| value(&m.working_set_bytes)),
        memory: memory.and_then(|m| value(&m.usage_bytes)),
        rss: memory.and_then(|m| value(&m.rss_bytes)),
        page_faults: memory.and_then(|m| value(&m.page_faults)),
        major_page_faults: memory.and_then(|m| value(&m.major_page_faults)),
        writable_layer: stats.writable_layer.as_ref().map(usage).unwrap_or_default(),
    })
}
