//! What the agent asks of the runtime for a pod, so that the bare calls ask for just the same.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleat::cri::proto::runtime::{ContainerConfig, PodSandboxConfig};
use protobuf::Message;

use super::support::pods::Pods;
use super::support::{Agent, BUSYBOX, Cell, FakeCri};

/// The pod that the requests are looked up with. As long as all names that take its place.
const NAME: &str = "asked00000";

pub struct Asked {
    sandbox: PodSandboxConfig,
    container: ContainerConfig,
    /// What stands in the requests, of this pod alone.
    uid: String,
    dir: String,
}

impl Asked {
    /// `manifest`: that of a pod with this name and one container.
    pub fn look(manifest: impl FnOnce(&str) -> String) -> Asked {
        let (cri, cell) = (FakeCri::start(), Arc::new(Cell::start()));
        let mut agent = Agent::in_cell(&cell, cri.socket());
        agent.start();
        agent.write_manifest("pod.yaml", &manifest(NAME));
        cri.wait(Duration::from_secs(60), |model| model.containers.values().any(|c| c.is_running()));
        let (sandbox, container) = cri.look(|model| {
            let container = model.containers.values().next().map(|c| c.config.clone());
            let sandbox = model.sandboxes.values().next().map(|s| s.config.clone());
            (sandbox.expect("a sandbox"), container.expect("a container"))
        });
        agent.stop();
        let uid = sandbox.metadata.uid.clone();
        Asked { sandbox, container, uid, dir: cell.dir().display().to_string() }
    }

    /// Runs such a pod, whose files are in `dir`: ids of sandbox and container.
    pub fn run(&self, pods: &Pods, dir: &Path, number: usize) -> (String, String) {
        let name = format!("bare{number:06}");
        let changes = [
            (NAME, name.as_str()),
            (&self.uid, &format!("{number:0width$x}", width = self.uid.len())),
            (&self.dir, &dir.display().to_string()),
            // An agent on the same runtime must not take them for its own.
            ("/agent/", "/bares/"),
            ("/kubepods/", "/barepods/"),
            ("io.kubernetes.pod.uid", "io.kubernetes.bare.id"),
        ];
        let (sandbox, mut container) = (of_other(&self.sandbox, &changes), of_other(&self.container, &changes));
        container.image.mut_or_insert_default().image = BUSYBOX.to_owned();
        for mount in &container.mounts {
            let path = Path::new(&mount.host_path);
            fs::create_dir_all(path.parent().expect("has a directory")).expect("makes");
            fs::write(path, "").expect("writes");
        }
        pods.run_as(&sandbox, &container)
    }
}

/// The message with other texts in it. Those are as long as what they take the place of: so all
/// lengths in the message stay right.
fn of_other<M: Message>(message: &M, changes: &[(&str, &str)]) -> M {
    let mut bytes = message.write_to_bytes().expect("encodes");
    for (from, to) in changes {
        assert_eq!(from.len(), to.len(), "{from} and {to}");
        let mut at = 0;
        while let Some(found) = bytes[at..].windows(from.len()).position(|window| window == from.as_bytes()) {
            at += found;
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            at += to.len();
        }
    }
    M::parse_from_bytes(&bytes).expect("decodes")
}
