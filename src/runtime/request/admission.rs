//! Pods that must not run on this node because of what they ask of their containers: no request is
//! made for them (pkg/kubelet/lifecycle, pkg/kubelet/sysctl).

use crate::pod::sysctl::{self, Allowlist};
use crate::pod::{Pod, core};

/// Why a pod is refused: its phase becomes Failed, with this reason and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reason: &'static str,
    pub message: String,
}

/// Checks what a pod asks for against what this node does.
pub fn admit(pod: &Pod, sysctls: &Allowlist) -> Result<(), Refusal> {
    let os = |message: String| Refusal { reason: "PodOSNotSupported", message };
    match pod.spec.os.as_ref().map(|os| os.name.as_str()) {
        None | Some("linux") => {}
        Some(name) => return Err(os(format!("the pod is for {name}, and this node runs Linux"))),
    }
    if let Some(at) = windows_options(&pod.spec) {
        return Err(os(format!("{at} is set, and this node runs Linux")));
    }
    sysctls.check(pod).map_err(|e| Refusal { reason: sysctl::FORBIDDEN, message: e.to_string() })
}

/// The first field with options for Windows.
fn windows_options(spec: &core::PodSpec) -> Option<String> {
    if spec.security_context.as_ref().is_some_and(|c| c.windows_options.is_some()) {
        return Some("spec.securityContext.windowsOptions".to_owned());
    }
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let with = containers.find(|c| c.security_context.as_ref().is_some_and(|c| c.windows_options.is_some()))?;
    Some(format!("securityContext.windowsOptions of container {}", with.name))
}

#[cfg(test)]
mod tests {
    use super::super::testing::pod;
    use super::*;

    #[test]
    fn refusals() {
        let list = Allowlist::new(None, &[]).expect("a list");
        let c = "containers: [{name: c, image: i}]";
        let windows = "windowsOptions: {runAsUserName: ContainerUser}";
        let refused = |reason, message: &str| Err(Refusal { reason, message: message.to_owned() });
        let table = [
            (format!("{{{c}}}"), Ok(())),
            (format!("{{{c}, os: {{name: linux}}}}"), Ok(())),
            (
                format!("{{{c}, os: {{name: windows}}}}"),
                refused("PodOSNotSupported", "the pod is for windows, and this node runs Linux"),
            ),
            (
                format!("{{{c}, securityContext: {{{windows}}}}}"),
                refused("PodOSNotSupported", "spec.securityContext.windowsOptions is set, and this node runs Linux"),
            ),
            (
                format!("{{containers: [{{name: c, image: i, securityContext: {{{windows}}}}}]}}"),
                refused(
                    "PodOSNotSupported",
                    "securityContext.windowsOptions of container c is set, and this node runs Linux",
                ),
            ),
            (
                format!("{{{c}, securityContext: {{sysctls: [{{name: kernel.msgmax, value: '1'}}]}}}}"),
                refused("SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted"),
            ),
        ];
        for (spec, want) in table {
            assert_eq!(admit(&pod(&spec), &list), want, "{spec}");
        }
    }
}
