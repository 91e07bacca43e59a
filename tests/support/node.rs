//! An agent on a private containerd, and what tests ask of its pods.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::{Agent, BUSYBOX, Containerd, Manifest, eventually};

/// Far longer than anything takes on a machine that is not overrun.
pub const SOON: Duration = Duration::from_secs(60);

pub struct Node {
    pub agent: Agent,
    pub containerd: Containerd,
}

impl Node {
    pub fn start() -> Node {
        Node::configured(serde_json::json!({}))
    }

    /// With more fields of the configuration.
    pub fn configured(fields: Value) -> Node {
        Node::flagged(fields, &[])
    }

    /// With more flags, too.
    pub fn flagged(fields: Value, flags: &[&str]) -> Node {
        let containerd = Containerd::start();
        let mut agent = Agent::on_containerd(&containerd);
        agent.configure(fields);
        agent.flags(flags);
        agent.start();
        Node { agent, containerd }
    }

    /// Writes a pod under the name of its file.
    pub fn write(&self, name: &str, text: &str) {
        self.agent.write_manifest(&format!("{name}.yaml"), text);
    }

    pub fn remove(&self, name: &str) {
        self.agent.remove_manifest(&format!("{name}.yaml"));
    }

    /// Writes a pod under its name.
    pub fn add(&self, pod: &Manifest) {
        self.write(pod.name(), &pod.to_string());
    }

    /// What the container `main` of a [`Manifest::job`] has written, when the pod has ended.
    #[track_caller]
    pub fn output(&self, name: &str) -> String {
        let pod = self.agent.wait_pod(name, SOON, |pod| {
            let phase = pod["status"]["phase"].as_str();
            matches!(phase, Some("Succeeded" | "Failed"))
        });
        self.log(&pod, "main", 0)
    }

    /// Waits until a container of the pod waits for this reason, and returns the message.
    #[track_caller]
    pub fn waits(&self, name: &str, reason: &str) -> String {
        let mut message = String::new();
        self.agent.wait_pod(name, SOON, |pod| {
            let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
            message = waiting["message"].as_str().unwrap_or_default().to_owned();
            waiting["reason"] == reason
        });
        message
    }

    /// The process of a container that runs, as numbered in the cell.
    #[track_caller]
    pub fn pid(&self, pod: &Value, container: &str) -> i32 {
        let tasks = self.containerd.tasks();
        let id = id_of(pod, container);
        tasks.get(&id).unwrap_or_else(|| panic!("container {container} doesn't run: {tasks:?}")).pid
    }

    /// A file of `/proc` of a container's process, read.
    #[track_caller]
    pub fn proc(&self, pod: &Value, container: &str, file: &str) -> String {
        let path = self.containerd.cell().path(format!("/proc/{}/{file}", self.pid(pod, container)));
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// What a script that is run in a container says, or how it failed.
    pub fn exec(&self, pod: &Value, container: &str, script: &str) -> Result<String, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let exec_id = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let id = id_of(pod, container);
        let said = self.containerd.try_ctr(&["tasks", "exec", "--exec-id", &exec_id, &id, "sh", "-c", script])?;
        Ok(said.trim_end().to_owned())
    }

    /// The pod as it runs, with all its containers.
    #[track_caller]
    pub fn runs(&self, name: &str) -> Value {
        self.agent.wait_pod(name, SOON, |pod| {
            let containers = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
            pod["status"]["phase"] == "Running" && containers.iter().all(|c| !c["state"]["running"].is_null())
        })
    }

    #[track_caller]
    pub fn reaches(&self, name: &str, phase: &str) -> Value {
        self.agent.wait_pod(name, SOON, |pod| pod["status"]["phase"] == phase)
    }

    /// What a container of the pod has written, without what the runtime puts before each line.
    pub fn log(&self, pod: &Value, container: &str, attempt: u32) -> String {
        let text = fs::read_to_string(self.log_file(pod, container, attempt)).unwrap_or_default();
        text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect::<Vec<_>>().join("\n")
    }

    pub fn log_file(&self, pod: &Value, container: &str, attempt: u32) -> PathBuf {
        let part = |key: &str| pod["metadata"][key].as_str().expect("has it").to_owned();
        let directory = format!("{}_{}_{}", part("namespace"), part("name"), part("uid"));
        self.agent.pod_logs().join(directory).join(container).join(format!("{attempt}.log"))
    }

    #[track_caller]
    pub fn says(&self, pod: &Value, container: &str, attempt: u32, want: &str) {
        eventually("the container's log", SOON, || match self.log(pod, container, attempt) {
            text if text == want => Ok(()),
            text => Err(format!("it says {text:?}")),
        });
    }

    /// Waits until the agent has logged this.
    #[track_caller]
    pub fn told(&self, text: &str) {
        eventually(&format!("{text:?} in the agent's log"), SOON, || match self.agent.log().contains(text) {
            true => Ok(()),
            false => Err("it is not there".to_owned()),
        });
    }

    /// A directory that containers can have mounted, and that the test reads.
    pub fn shared(&self, name: &str) -> PathBuf {
        let path = self.containerd.cell().dir().join("shared").join(name);
        fs::create_dir_all(&path).expect("makes a directory");
        path
    }

    /// Waits until nothing of any pod is left: in the runtime, below the agent's directory, in the logs.
    #[track_caller]
    pub fn nothing_left(&self) {
        eventually("an empty node", SOON, || {
            let left = self.containerd.leftovers();
            let on_disk = entries(&self.agent.root().join("pods")) + entries(&self.agent.pod_logs());
            match left.is_empty() && on_disk == 0 {
                true => Ok(()),
                false => Err(format!("{left:?}, {on_disk} directories")),
            }
        });
    }
}

pub fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

/// The id of a container of the pod, as the runtime has it.
#[track_caller]
pub fn id_of(pod: &Value, container: &str) -> String {
    let status = &pod["status"];
    let all = ["containerStatuses", "initContainerStatuses"].map(|list| status[list].as_array().cloned());
    let found = all.into_iter().flatten().flatten().find(|c| c["name"] == container);
    let id = found.as_ref().and_then(|c| c["containerID"].as_str()?.strip_prefix("containerd://"));
    id.unwrap_or_else(|| panic!("container {container} has no id: {status:#}")).to_owned()
}

/// The id of a pod's first container, as the runtime has it.
pub fn container_id(pod: &Value) -> String {
    let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().expect("has an id");
    id.strip_prefix("containerd://").expect("is containerd's").to_owned()
}

/// A pod with one container that runs `script`.
pub fn pod(name: &str, script: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: {name}}}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: main\n    image: {BUSYBOX}\n    command: [sh, -c, \"{script}\"]\n"
    )
}
