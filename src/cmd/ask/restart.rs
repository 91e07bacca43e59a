//! `cleat restart`: the containers of a pod are stopped, with their grace period, and started again at
//! once.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::Client;
use super::options::Options;
use super::{Error, path};
use crate::api::Resource;
use crate::server::http::percent_encode;

/// How long it is waited for the restart, beside the grace period.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);

pub fn run(client: &Client, options: &Options) -> Result<(), Error> {
    let (namespace, pod) = (options.namespace(), options.pod()?);
    let object = path(Resource::Pods, Some(namespace), Some(pod));
    let before = client.json(&object, "")?;
    let mut order = format!("/cleat/v1/namespaces/{}/pods/{}/restart", percent_encode(namespace), percent_encode(pod));
    if let Some(container) = &options.container {
        order.push_str(&format!("?container={}", percent_encode(container)));
    }
    let answer = client.send("POST", &order, "")?;
    let containers = answer["details"]["containers"].as_array().into_iter().flatten();
    let mut waiting: Vec<String> = containers.filter_map(|name| name.as_str().map(str::to_owned)).collect();
    let grace = before["spec"]["terminationGracePeriodSeconds"].as_u64().unwrap_or(30);
    let until = Instant::now() + Duration::from_secs(grace) + PATIENCE;
    while !waiting.is_empty() {
        if Instant::now() >= until {
            let names = waiting.join(", ");
            return Err(Error::Refused(format!(
                "{names} of pod {pod} has not come back yet: cleat describe pod {pod}"
            )));
        }
        thread::sleep(LOOK);
        let now = client.json(&object, "")?;
        waiting.retain(|name| {
            let done = is_other(&before, &now, name);
            if done {
                println!("pod/{pod}: container {name} is restarted");
            }
            !done
        });
    }
    Ok(())
}

/// Whether a container runs that is another one than before.
fn is_other(before: &Value, now: &Value, name: &str) -> bool {
    let status = |pod: &Value| {
        let lists = ["containerStatuses", "initContainerStatuses"];
        let mut all = lists.iter().filter_map(|list| pod["status"][list].as_array()).flatten();
        all.find(|status| status["name"] == name).cloned().unwrap_or_default()
    };
    let (before, now) = (status(before), status(now));
    now["state"].get("running").is_some() && now["containerID"] != before["containerID"]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn which_is_another() {
        let pod = |id: &str, state: &str| json!({"status": {"containerStatuses": [{"name": "c", "containerID": id, "state": {state: {}}}]}});
        let before = pod("a", "running");
        for (now, want) in [
            (pod("a", "running"), false),
            (pod("b", "running"), true),
            (pod("b", "waiting"), false),
            (pod("a", "terminated"), false),
        ] {
            assert_eq!(is_other(&before, &now, "c"), want, "{now}");
        }
        assert!(!is_other(&before, &pod("b", "running"), "d"));
        assert!(is_other(&json!({}), &before, "c"));
    }
}
