//! What machine and software the node is: `status.nodeInfo`, but for the runtime's version.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// A kubelet's version, as those who compare versions read it: the kubelet that is our reference, and
/// after the plus what it is.
pub const KUBELET_VERSION: &str = concat!("v1.36.0+cleat-", env!("CARGO_PKG_VERSION"));

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    machine_id: String,
    system_uuid: String,
    boot_id: String,
    kernel_version: String,
    os_image: String,
    architecture: &'static str,
}

impl Info {
    /// Asks the machine; what it doesn't tell is empty. `architecture`: as images and labels have it.
    pub fn read(architecture: &'static str) -> Info {
        let machine_id = first_of(&["/etc/machine-id", "/var/lib/dbus/machine-id"]);
        Info {
            // What the firmware says, else what the installation does: it has to tell nodes apart.
            system_uuid: Some(first_of(&["/sys/class/dmi/id/product_uuid", "/proc/device-tree/vm,uuid"]))
                .filter(|uuid| !uuid.is_empty())
                .unwrap_or_else(|| machine_id.clone()),
            machine_id,
            boot_id: first_of(&["/proc/sys/kernel/random/boot_id"]),
            kernel_version: rustix::system::uname().release().to_string_lossy().into_owned(),
            os_image: os_image(&first_of(&["/etc/os-release", "/usr/lib/os-release"])),
            architecture,
        }
    }

    /// With `runtime`, as `containerd://1.6.20`; empty before it is known.
    pub fn shown(&self, runtime: &str) -> Value {
        json!({
            "machineID": self.machine_id, "systemUUID": self.system_uuid, "bootID": self.boot_id,
            "kernelVersion": self.kernel_version, "osImage": self.os_image,
            "containerRuntimeVersion": runtime, "kubeletVersion": KUBELET_VERSION, "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": self.architecture,
        })
    }
}

/// The text of the first file that has any.
fn first_of(paths: &[&str]) -> String {
    let text = |path: &&str| fs::read_to_string(Path::new(path)).ok();
    // The device tree ends its texts with a zero.
    let texts = paths.iter().filter_map(text).map(|text| text.trim_matches(['\0', '\n', ' ']).to_owned());
    texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

fn os_image(os_release: &str) -> String {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map(|name| name.trim_matches(['"', '\'']).to_owned()).unwrap_or_else(|| "Linux".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_system() {
        for (text, name) in [
            ("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n", "Debian GNU/Linux 12 (bookworm)"),
            ("PRETTY_NAME='Alpine'", "Alpine"),
            ("", "Linux"),
        ] {
            assert_eq!(os_image(text), name);
        }
    }

    #[test]
    fn this_machine() {
        let shown = Info::read("amd64").shown("containerd://1");
        for field in ["bootID", "kernelVersion", "osImage"] {
            assert_ne!(shown[field], "", "{field}");
        }
        assert_eq!(shown["containerRuntimeVersion"], "containerd://1");
    }
}
