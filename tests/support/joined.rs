//! An agent that has joined a real control plane, and what tests ask of both.

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::kubectl::Kubectl;
use super::node::SOON;
use super::{Agent, BUSYBOX, Containerd, NODE, condition, eventually};

/// A control plane and an agent, which isn't started yet.
pub struct Joined {
    pub agent: Agent,
    pub cluster: Cluster,
    pub containerd: Containerd,
}

impl Joined {
    /// `None` when the test has to be skipped.
    pub fn prepare() -> Option<Joined> {
        let containerd = Containerd::start();
        let cluster = match Cluster::start(containerd.cell()) {
            Ok(cluster) => cluster,
            Err(why) => {
                eprintln!("skipped: {why}");
                return None;
            }
        };
        let mut agent = Agent::on_containerd(&containerd);
        agent.configure(json!({
            // Where it listens then is for the API server to reach.
            "address": null,
            "authentication": {
                "anonymous": {"enabled": false}, "webhook": {"enabled": true},
                "x509": {"clientCAFile": cluster.authority()},
            },
            "authorization": {"mode": "Webhook"},
        }));
        Some(Joined { agent, cluster, containerd })
    }

    pub fn start() -> Option<Joined> {
        Joined::configured(json!({}))
    }

    /// With more fields of the configuration.
    pub fn configured(fields: Value) -> Option<Joined> {
        let mut joined = Joined::prepare()?;
        joined.agent.configure(fields);
        let kubeconfig = joined.cluster.node_kubeconfig();
        joined.agent.flags(&["--kubeconfig", &kubeconfig.display().to_string()]);
        joined.agent.start();
        joined.ready();
        Some(joined)
    }

    pub fn kubectl(&self) -> &Kubectl {
        &self.cluster.kubectl
    }

    /// Waits until the node is ready, as the API server has it.
    #[track_caller]
    pub fn ready(&self) -> Value {
        self.node("True")
    }

    /// Waits until the node's condition `Ready` is this.
    #[track_caller]
    pub fn node(&self, status: &str) -> Value {
        eventually("the node's condition", SOON, || {
            let node = self.kubectl().attempt_json(&["get", "node", NODE])?;
            let is = condition(&node, "Ready")["status"] == status;
            if is { Ok(node) } else { Err(node["status"]["conditions"].to_string()) }
        })
    }

    pub fn lease(&self) -> Result<Value, String> {
        self.kubectl().attempt_json(&["get", "lease", "-n", "kube-node-lease", NODE])
    }

    /// Waits for a lease that has been renewed after `renewed`.
    #[track_caller]
    pub fn renewed_after(&self, renewed: &Value) -> Value {
        eventually("a renewal of the lease", SOON, || {
            let lease = self.lease()?;
            let at = &lease["spec"]["renewTime"];
            if at != renewed { Ok(lease) } else { Err(format!("it was renewed at {at}")) }
        })
    }

    /// Waits until the API server has a pod that meets this.
    #[track_caller]
    pub fn pod(&self, name: &str, meets: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("pod {name}"), SOON, || {
            let pod = self.kubectl().attempt_json(&["get", "pod", name])?;
            if meets(&pod) { Ok(pod) } else { Err(pod["status"].to_string()) }
        })
    }

    /// Waits until it runs and is ready.
    #[track_caller]
    pub fn runs(&self, name: &str) -> Value {
        self.pod(name, |pod| condition(pod, "Ready")["status"] == "True")
    }

    #[track_caller]
    pub fn gone(&self, name: &str) {
        eventually(&format!("the end of pod {name}"), SOON, || match self.kubectl().attempt(&["get", "pod", name]) {
            Err(why) if why.contains("not found") => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}

/// A pod with one container that runs `script`, bound to the node as by a scheduler.
pub fn pod(name: &str, script: &str) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": NODE, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": BUSYBOX, "command": ["sh", "-c", script]}],
        },
    })
}
