//! What to do about what is wrong, and how far is what takes its time. Pure.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::human;

/// What helps against a reason that a container or a pod gives for not running.
pub fn advice(reason: &str, pod: &str, namespace: &str, container: &str) -> Option<String> {
    let at = match namespace {
        "default" => String::new(),
        namespace => format!(" -n {namespace}"),
    };
    Some(match reason {
        "CrashLoopBackOff" | "Error" | "ContainerCannotRun" | "StartError" | "RunContainerError" => {
            format!("what it said before it ended: cleat logs {pod}{at} -c {container} -p; once it is mended: cleat restart {pod}{at}")
        }
        "OOMKilled" => "it takes more memory than its limit: raise resources.limits.memory, or find out what it needs".to_owned(),
        "ErrImagePull" | "ImagePullBackOff" | "RegistryUnavailable" => {
            "check the image's name, its credentials and the way to the registry; without one, put an archive of it into the image directory".to_owned()
        }
        "ErrImageNeverPull" => "imagePullPolicy is Never and the image is not here: bring an archive of it, or change the policy".to_owned(),
        "InvalidImageName" => "correct the image's name in the manifest".to_owned(),
        "CreateContainerConfigError" => {
            format!("a ConfigMap, a Secret or a key of them is missing: cleat describe pod {pod}{at} says which")
        }
        "CreateContainerError" => format!("the runtime refuses the container: cleat describe pod {pod}{at} tells why"),
        "Evicted" => "the node ran short of memory or disk; the pod comes back when its manifest is written anew".to_owned(),
        "DeadlineExceeded" => "it ran longer than activeDeadlineSeconds allows".to_owned(),
        reason if reason.starts_with("OutOf") || reason == "UnexpectedAdmissionError" => {
            "the node has not enough left for what it requests: lower resources.requests, or remove other pods".to_owned()
        }
        "NotReady" => format!("its readiness probe has not succeeded yet: cleat describe pod {pod}{at}"),
        _ => return None,
    })
}

/// For how long the image has been being pulled for this pod, as its events tell.
pub fn pulling(events: &Value, pod: &Value, image: &str, now: Timestamp) -> Option<String> {
    let quoted = format!("{image:?}");
    let uid = &pod["metadata"]["uid"];
    let all = events["items"].as_array().into_iter().flatten();
    let of_image = all.filter(|e| {
        e["involvedObject"]["uid"] == *uid && e["message"].as_str().is_some_and(|message| message.contains(&quoted))
    });
    // Within a second, what ends comes after what begins.
    let last = of_image.max_by_key(|e| (e["lastTimestamp"].as_str(), e["reason"] != "Pulling"))?;
    let began: Timestamp = last["lastTimestamp"].as_str()?.parse().ok()?;
    (last["reason"] == "Pulling").then(|| human(now.duration_since(began).as_secs().max(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_helps() {
        let told = advice("CrashLoopBackOff", "web-n", "ns", "main").expect("is there");
        assert!(told.contains("cleat logs web-n -n ns -c main -p"), "{told}");
        assert!(
            advice("CrashLoopBackOff", "w", "default", "c").is_some_and(|told| told.contains("cleat logs w -c c -p"))
        );
        assert_eq!(advice("ContainerCreating", "w", "default", "c"), None);
    }

    #[test]
    fn pulls() {
        let event = |reason: &str, time: &str, image: &str| {
            json!({"involvedObject": {"uid": "u"}, "reason": reason, "lastTimestamp": format!("2026-01-01T00:0{time}Z"),
                   "message": format!("{reason} image {image:?} and so on")})
        };
        let pod = json!({"metadata": {"uid": "u"}});
        let now = "2026-01-01T00:05:00Z".parse().expect("a time");
        let table = [
            (vec![], None),
            (vec![event("Pulling", "2:00", "i")], Some("3m")),
            (vec![event("Pulling", "2:00", "i"), event("Pulled", "2:00", "i")], None),
            (vec![event("Failed", "1:00", "i"), event("Pulling", "4:00", "i")], Some("60s")),
            (vec![event("Pulling", "2:00", "i:other")], None),
        ];
        for (events, want) in table {
            let events = json!({"items": events});
            assert_eq!(pulling(&events, &pod, "i", now).as_deref(), want, "{events}");
        }
    }
}
