//! Which namespaces a pod shares with the node, and its containers with each other
//! (pkg/kubelet/kuberuntime/util).

use protobuf::{EnumOrUnknown, MessageField};

use super::{ConfigError, Context};
use crate::cri::ContainerId;
use crate::cri::api::{self, NamespaceMode};

/// The namespaces of the pod's sandbox; of its containers too, but see [`of_container`].
pub fn of_pod(cx: &Context<'_>) -> Result<api::NamespaceOption, ConfigError> {
    let spec = &cx.pod.spec;
    let or_host = |host: Option<bool>, own| if host == Some(true) { NamespaceMode::NODE } else { own };
    let pid = match spec.share_process_namespace {
        Some(true) => NamespaceMode::POD,
        _ => NamespaceMode::CONTAINER,
    };
    Ok(api::NamespaceOption {
        network: EnumOrUnknown::new(or_host(spec.host_network, NamespaceMode::POD)),
        pid: EnumOrUnknown::new(or_host(spec.host_pid, pid)),
        ipc: EnumOrUnknown::new(or_host(spec.host_ipc, NamespaceMode::POD)),
        userns_options: MessageField::some(users(cx)?),
        ..Default::default()
    })
}

/// The namespaces of a container; `target` is the one whose processes it is to see.
pub fn of_container(cx: &Context<'_>, target: Option<&ContainerId>) -> Result<api::NamespaceOption, ConfigError> {
    let mut options = of_pod(cx)?;
    if let Some(target) = target.filter(|_| options.pid == EnumOrUnknown::new(NamespaceMode::CONTAINER)) {
        options.pid = EnumOrUnknown::new(NamespaceMode::TARGET);
        options.target_id = target.as_str().to_owned();
    }
    Ok(options)
}

fn users(cx: &Context<'_>) -> Result<api::UserNamespace, ConfigError> {
    if cx.pod.spec.host_users != Some(false) {
        return Ok(api::UserNamespace { mode: EnumOrUnknown::new(NamespaceMode::NODE), ..Default::default() });
    }
    if !cx.handler.user_namespaces {
        return Err(ConfigError::NoUserNamespaces);
    }
    let mapping = cx.ids.ok_or(ConfigError::NoIds)?.mapping();
    Ok(api::UserNamespace {
        mode: EnumOrUnknown::new(NamespaceMode::POD),
        uids: vec![mapping.clone()],
        gids: vec![mapping],
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{context, node, pod};
    use super::super::{Handler, IdRange};
    use super::*;

    #[test]
    fn modes() {
        let node = node();
        let target = ContainerId::new("abc");
        let table = [
            ("", None, "POD CONTAINER POD "),
            ("hostNetwork: true", None, "NODE CONTAINER POD "),
            ("hostPID: true", None, "POD NODE POD "),
            ("hostIPC: true", None, "POD CONTAINER NODE "),
            ("shareProcessNamespace: true", None, "POD POD POD "),
            ("", Some(&target), "POD TARGET POD abc"),
            ("shareProcessNamespace: true", Some(&target), "POD POD POD "),
            ("hostPID: true", Some(&target), "POD NODE POD "),
        ];
        for (spec, target, want) in table {
            let pod = pod(&format!("{{containers: [{{name: c, image: i}}], {spec}}}"));
            let got = of_container(&context(&pod, &node), target).expect("namespaces");
            let mode = |mode: EnumOrUnknown<NamespaceMode>| mode.enum_value_or_default();
            let shown = format!("{:?} {:?} {:?} {}", mode(got.network), mode(got.pid), mode(got.ipc), got.target_id);
            assert_eq!(shown, want, "{spec}");
            assert_eq!(mode(got.userns_options.mode), NamespaceMode::NODE);
        }
    }

    #[test]
    fn users_of_their_own() {
        let node = node();
        let pod = pod("{containers: [{name: c, image: i}], hostUsers: false}");
        let ids = Some(IdRange { first: 131_072, length: 65_536 });
        let cx = Context { ids, ..context(&pod, &node) };
        let users = of_pod(&cx).expect("namespaces").userns_options.unwrap_or_default();
        assert_eq!(users.mode, EnumOrUnknown::new(NamespaceMode::POD));
        assert_eq!(
            (users.uids.as_slice(), users.gids.len()),
            ([IdRange { first: 131_072, length: 65_536 }.mapping()].as_slice(), 1)
        );
        assert_eq!(of_pod(&Context { ids: None, ..cx }), Err(ConfigError::NoIds));
        let handler = Handler { recursive_read_only: true, ..Handler::default() };
        assert_eq!(of_pod(&Context { handler, ..cx }), Err(ConfigError::NoUserNamespaces));
    }
}
