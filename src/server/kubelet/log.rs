//! `/containerLogs/NAMESPACE/POD/CONTAINER`.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{Parts, Target, no_container};
use crate::cri::ContainerState;
use crate::pod::core;
use crate::runtime::log_file;
use crate::runtime::logs::read::{self, Options, Sink};
use crate::runtime::logs::record::{Filter, Stream};
use crate::server::http::{Out, Query, Reply, Response, TEXT};
use crate::status::StoredPod;

pub fn container_log(parts: &Arc<Parts>, target: &Target, query: &Query) -> Reply {
    match prepare(parts, target, query, Timestamp::now()) {
        Ok(reply) => reply,
        Err(refusal) => refusal.into(),
    }
}

fn prepare(parts: &Arc<Parts>, target: &Target, query: &Query, now: Timestamp) -> Result<Reply, Response> {
    let options = options(query, now)?;
    let stored = parts.pod(target)?;
    if stored.pod.container(&target.container).is_none() {
        return Err(no_container(&stored.pod, &target.container));
    }
    let previous = query.flag("previous");
    let chosen = choose(stored.status.as_deref(), &target.container, previous)
        .or_else(|why| started(parts, &stored, &target.container).filter(|_| !previous).ok_or(why))
        .map_err(|why| Response::text(400, format!("{}/{}: {why}\n", stored.pod.name, target.container)))?;
    let path = path(parts, &stored, &target.container, &chosen);
    if !path.is_file() {
        return Err(Response::text(404, format!("the log of this container is not there: {}\n", path.display())));
    }
    let parts = parts.clone();
    let write = move |out: &mut Out<'_>| {
        let runs = || is_running(&parts, &stored, &chosen.id);
        read::show(&path, &options, out, &runs)
    };
    Ok(Reply::Stream(Response::new(200, TEXT, Vec::new()), Box::new(write)))
}

impl Sink for Out<'_> {
    fn send_within(&mut self, time: Duration) -> io::Result<bool> {
        Out::send_within(self, time)
    }

    fn has_hung_up(&self) -> bool {
        Out::has_hung_up(self)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Out::fd(self)
    }
}

/// Reads the query of PodLogOptions (staging/src/k8s.io/api/core/v1).
fn options(query: &Query, now: Timestamp) -> Result<Options, Response> {
    let refused = |name: &str, why: &str| Response::text(422, format!("{name} {why}\n"));
    let number = |name: &str, least: i64| match query.get(name) {
        None | Some("") => Ok(None),
        Some(text) => match text.parse::<i64>().ok().filter(|n| *n >= least) {
            Some(n) => Ok(u64::try_from(n).ok()),
            None => Err(refused(name, &format!("must be a number, {least} or more"))),
        },
    };
    let tail = match query.get("tail") {
        Some("all") => None,
        Some(_) => number("tail", 0)?,
        None => number("tailLines", 0)?,
    };
    let since = match (number("sinceSeconds", 1)?, query.get("sinceTime")) {
        (Some(_), Some(_)) => return Err(refused("sinceSeconds", "can't be used with sinceTime")),
        (Some(seconds), None) => {
            let ago = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
            Some(now.checked_sub(ago).unwrap_or(Timestamp::MIN))
        }
        (None, Some(text)) => {
            Some(text.parse().map_err(|_| refused("sinceTime", "must be a time as RFC 3339 has it"))?)
        }
        (None, None) => None,
    };
    let stream = match query.get("stream") {
        None | Some("" | "All") => None,
        Some("Stdout") => Some(Stream::Stdout),
        Some("Stderr") => Some(Stream::Stderr),
        Some(_) => return Err(refused("stream", "must be one of All, Stdout, Stderr")),
    };
    let limit = number("limitBytes", 1)?;
    let filter = Filter { since, stream, timestamps: query.flag("timestamps"), limit };
    Ok(Options { filter, tail, follow: query.flag("follow") })
}

/// A container of the runtime whose log is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Chosen {
    id: String,
    restart_count: i32,
}

/// The container as it is, or the one before it.
///
/// # Errors
/// Why there is none.
fn choose(status: Option<&core::PodStatus>, name: &str, previous: bool) -> Result<Chosen, String> {
    let lists = status.map(|s| [&s.container_statuses, &s.init_container_statuses, &s.ephemeral_container_statuses]);
    let all = lists.into_iter().flatten().flatten().flatten();
    let status = all.into_iter().find(|status| status.name == name);
    let Some(status) = status else { return Err("it has not been started yet".to_owned()) };
    let id = |id: &str| id.rsplit('/').next().unwrap_or(id).to_owned();
    let terminated = |state: &Option<core::ContainerState>| {
        let ended = state.as_ref().and_then(|state| state.terminated.as_ref())?;
        ended.container_id.as_deref().filter(|id| !id.is_empty()).map(id)
    };
    let current = status.container_id.as_deref().filter(|id| !id.is_empty()).map(id);
    let last = terminated(&status.last_state);
    let waits = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    let restart_count = status.restart_count;
    // One that waits to be started again counts its next start already where it has one.
    let of_last = |id| Chosen { id, restart_count: if waits.is_some() { restart_count } else { restart_count - 1 } };
    match (previous, waits) {
        (true, _) => last.map(of_last).ok_or_else(|| "there is no previous container".to_owned()),
        (false, None) => {
            let id = current.or_else(|| terminated(&status.state)).or(last);
            id.map(|id| Chosen { id, restart_count }).ok_or_else(|| "it has not been started yet".to_owned())
        }
        (false, Some(waiting)) => last.map(of_last).ok_or_else(|| {
            let (reason, message) = (waiting.reason.as_deref(), waiting.message.as_deref());
            format!("it waits to be started: {} {}", reason.unwrap_or("ContainerCreating"), message.unwrap_or_default())
        }),
    }
}

/// The newest container as the runtime knows it, for one that has just been started and whose status doesn't
/// say so yet.
fn started(parts: &Parts, stored: &StoredPod, name: &str) -> Option<Chosen> {
    let all = parts.runtime.cri.list_containers(Some(&stored.pod.uid)).ok()?;
    let ran = all.into_iter().filter(|c| *c.name == *name && c.state != ContainerState::Created);
    let newest = ran.max_by_key(|c| c.attempt)?;
    Some(Chosen { id: newest.id.as_str().to_owned(), restart_count: newest.notes.restart_count })
}

/// Where the runtime writes its log, or where it was told to.
fn path(parts: &Parts, stored: &StoredPod, name: &str, chosen: &Chosen) -> PathBuf {
    let observed = parts.runtime.cache.get(&stored.pod.uid).map(|(observed, _)| observed);
    let known = observed.iter().flat_map(|o| &o.containers).find(|c| c.status.container.id.as_str() == chosen.id);
    match known.map(|c| c.status.log_path.as_str()).filter(|path| !path.is_empty()) {
        Some(path) => path.into(),
        None => parts
            .runtime
            .node
            .paths
            .pod_logs(&stored.pod.uid, &stored.pod.name)
            .join(log_file(name, chosen.restart_count)),
    }
}

fn is_running(parts: &Parts, stored: &StoredPod, id: &str) -> bool {
    let Some((observed, _)) = parts.runtime.cache.get(&stored.pod.uid) else { return true };
    observed.containers.iter().any(|c| c.status.container.id.as_str() == id && c.is_alive())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries() {
        let now: Timestamp = "2024-01-01T00:01:00Z".parse().expect("a time");
        let base = Options::default();
        let filter = |filter: Filter| Options { filter, ..base.clone() };
        let since = |text: &str| filter(Filter { since: Some(text.parse().expect("a time")), ..Filter::default() });
        let good = [
            ("", base.clone()),
            ("follow=true&tailLines=5", Options { follow: true, tail: Some(5), ..base.clone() }),
            ("tail=3", Options { tail: Some(3), ..base.clone() }),
            ("tail=all&tailLines=3", base.clone()),
            ("timestamps=1&limitBytes=9", filter(Filter { timestamps: true, limit: Some(9), ..Filter::default() })),
            ("sinceSeconds=30", since("2024-01-01T00:00:30Z")),
            ("sinceTime=2023-01-01T00:00:00%2B01:00", since("2022-12-31T23:00:00Z")),
            ("stream=Stderr", filter(Filter { stream: Some(Stream::Stderr), ..Filter::default() })),
            ("stream=All&follow=false&pretty=x", base.clone()),
        ];
        for (query, want) in good {
            assert_eq!(options(&Query::parse(query), now).map_err(|r| r.status), Ok(want), "{query}");
        }
        for query in [
            "tailLines=-1",
            "tailLines=x",
            "limitBytes=0",
            "sinceSeconds=0",
            "sinceTime=yesterday",
            "sinceSeconds=1&sinceTime=2023-01-01T00:00:00Z",
            "stream=stdin",
        ] {
            assert_eq!(options(&Query::parse(query), now).map_err(|r| r.status), Err(422), "{query}");
        }
        let long = options(&Query::parse(&format!("sinceSeconds={}", i64::MAX)), now).expect("is good");
        assert_eq!(long.filter.since, Some(Timestamp::MIN));
    }

    #[test]
    fn which_container_it_is() {
        let status = |json: serde_json::Value| -> core::PodStatus {
            let mut json = json;
            for (key, value) in
                [("name", "c".into()), ("image", "i".into()), ("imageID", "".into()), ("ready", true.into())]
            {
                json[key] = value;
            }
            serde_json::from_value(serde_json::json!({"containerStatuses": [json]})).expect("a status")
        };
        let ended =
            |id: &str| serde_json::json!({"terminated": {"exitCode": 0, "containerID": format!("containerd://{id}")}});
        let running = serde_json::json!({"running": {}});
        let waiting = serde_json::json!({"waiting": {"reason": "CrashLoopBackOff", "message": "later"}});
        let chosen = |id: &str, restart_count| Ok(Chosen { id: id.to_owned(), restart_count });
        let two = status(
            serde_json::json!({"restartCount": 2, "containerID": "containerd://b", "state": running, "lastState": ended("a")}),
        );
        assert_eq!(choose(Some(&two), "c", false), chosen("b", 2));
        assert_eq!(choose(Some(&two), "c", true), chosen("a", 1));
        let first = status(serde_json::json!({"restartCount": 0, "containerID": "containerd://a", "state": running}));
        assert!(choose(Some(&first), "c", true).is_err_and(|why| why.contains("previous")));
        let crashed = status(
            serde_json::json!({"restartCount": 1, "containerID": "containerd://a", "state": waiting, "lastState": ended("a")}),
        );
        assert_eq!(choose(Some(&crashed), "c", false), chosen("a", 1));
        let never = status(serde_json::json!({"restartCount": 0, "state": waiting}));
        assert!(choose(Some(&never), "c", false).is_err_and(|why| why.contains("CrashLoopBackOff later")));
        assert!(choose(Some(&never), "d", false).is_err() && choose(None, "c", false).is_err());
    }
}
