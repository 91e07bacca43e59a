//! The fake does what containerd does, and what it is told to do wrong.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use cleat::cri::proto::runtime as cri;
use cleat::cri::proto::runtime::ContainerEventType as Event;
use futures_util::StreamExt;
use grpcio::{CallOption, RpcStatusCode};

use crate::support::cri::{Memory, State};
use crate::support::{BUSYBOX, FakeCri, Pods, block_on, image_client, refusal, within};

const SOON: Duration = Duration::from_secs(10);

fn soon() -> CallOption {
    within(SOON)
}

/// A fake server, and pods on it.
fn fake() -> (FakeCri, Pods, tempfile::TempDir) {
    let cri = FakeCri::start();
    let logs = tempfile::tempdir().expect("make a directory for logs");
    let pods = Pods::new(cri.socket(), logs.path());
    (cri, pods, logs)
}

#[test]
fn runs_a_pod_from_first_to_last() {
    let (cri, pods, logs) = fake();
    let (sandbox, container) = pods.run("web", "");
    let status = pods.sandbox_status(&sandbox).unwrap();
    assert_eq!(status.metadata.name, "web");
    assert_eq!(status.state, cri::PodSandboxState::SANDBOX_READY.into());
    assert!(status.network.ip.starts_with("10.88."), "{status:?}");
    assert!(status.created_at > 0);

    let status = pods.container_status(&container).unwrap();
    assert_eq!(status.state, cri::ContainerState::CONTAINER_RUNNING.into());
    assert!(status.started_at > status.created_at);
    let log = logs.path().join("web/main/0.log");
    assert_eq!(status.log_path, log.display().to_string());
    cri.write_log("web/main", "hello");
    assert!(fs::read_to_string(&log).unwrap().ends_with("Z stdout F hello\n"));

    cri.exit_container("web/main", 3);
    let status = pods.container_status(&container).unwrap();
    assert_eq!((status.exit_code, &*status.reason), (3, "Error"));
    assert!(status.finished_at > status.started_at);
    let again = refusal(pods.start(&container));
    assert!(again.1.contains("is in CONTAINER_EXITED state"), "{again:?}");

    pods.stop_sandbox(&sandbox).unwrap();
    let status = pods.sandbox_status(&sandbox).unwrap();
    assert_eq!(status.state, cri::PodSandboxState::SANDBOX_NOTREADY.into());
    assert_eq!(status.network.ip, "");
    pods.remove_sandbox(&sandbox).unwrap();
    pods.remove_sandbox(&sandbox).unwrap();
    assert_eq!(refusal(pods.sandbox_status(&sandbox)).0, RpcStatusCode::NOT_FOUND);
    assert_eq!(refusal(pods.container_status(&container)).0, RpcStatusCode::NOT_FOUND);
    cri.look(|m| assert!(m.sandboxes.is_empty() && m.containers.is_empty(), "{m}"));
}

#[test]
fn lists_by_id_sandbox_and_labels() {
    let (_cri, pods, _logs) = fake();
    let (web, _) = pods.run("web", "");
    let (db, container) = pods.run("db", "");
    let mut request = cri::ListPodSandboxRequest::new();
    let sandboxes = |r: &cri::ListPodSandboxRequest| {
        let items = pods.client.list_pod_sandbox(r, soon()).unwrap().items;
        items.into_iter().map(|s| s.id).collect::<Vec<_>>()
    };
    assert_eq!(sandboxes(&request), [web.clone(), db.clone()]);
    let label = ("io.kubernetes.pod.name".to_owned(), "db".to_owned());
    request.filter.mut_or_insert_default().label_selector.insert(label.0, label.1);
    assert_eq!(sandboxes(&request), std::slice::from_ref(&db));
    request.filter.mut_or_insert_default().id = web;
    assert!(sandboxes(&request).is_empty());

    let mut request = cri::ListContainersRequest::new();
    assert_eq!(pods.client.list_containers(&request, soon()).unwrap().containers.len(), 2);
    request.filter.mut_or_insert_default().pod_sandbox_id = db;
    let found = pods.client.list_containers(&request, soon()).unwrap().containers;
    assert_eq!(found.into_iter().map(|c| c.id).collect::<Vec<_>>(), [container]);
}

#[test]
fn keeps_names_until_removal() {
    let (cri, pods, _logs) = fake();
    let (sandbox, container) = pods.run("web", "");
    let (code, message) = refusal(pods.run_sandbox("web"));
    assert_eq!(code, RpcStatusCode::UNKNOWN);
    let name = "\"web_default_uid-of-web_0\"";
    assert_eq!(message, format!("failed to reserve sandbox name {name}: name {name} is reserved for {sandbox:?}"));
    let (code, message) = refusal(pods.create(&sandbox, "web", "main", ""));
    assert_eq!(code, RpcStatusCode::UNKNOWN);
    let name = "\"main_web_default_uid-of-web_0\"";
    let wanted = format!("failed to reserve container name {name}: name {name} is reserved for {container:?}");
    assert_eq!(message, wanted);

    cri.exit_container("web", 0);
    refusal(pods.create(&sandbox, "web", "main", ""));
    pods.remove(&container).unwrap();
    pods.create(&sandbox, "web", "main", "").unwrap();
    pods.stop_sandbox(&sandbox).unwrap();
    refusal(pods.run_sandbox("web"));
    pods.remove_sandbox(&sandbox).unwrap();
    pods.run_sandbox("web").unwrap();
}

#[test]
fn a_slow_call_holds_its_name_and_a_refused_one_does_not() {
    let (cri, pods, _logs) = fake();
    let slow = cri.on("RunPodSandbox").of("web").hang();
    let late = pods.client.run_pod_sandbox(&pods.sandbox_request("web"), within(Duration::from_millis(200)));
    assert_eq!(refusal(late).0, RpcStatusCode::DEADLINE_EXCEEDED);
    assert!(refusal(pods.run_sandbox("web")).1.contains("is reserved for"));
    slow.remove();
    cri.wait(SOON, |m| m.sandbox("web").is_some());
    assert!(refusal(pods.run_sandbox("web")).1.contains("is reserved for"));

    let sandbox = pods.run_sandbox("db").unwrap();
    cri.edit(|m| m.images.clear());
    let (code, message) = refusal(pods.create(&sandbox, "db", "main", ""));
    assert_eq!(
        (code, &*message),
        (RpcStatusCode::NOT_FOUND, "failed to resolve image \"cleat.local/busybox:1\": not found")
    );
    cri.edit(|m| m.add_image(BUSYBOX));
    pods.create(&sandbox, "db", "main", "").unwrap();
}

#[test]
fn delays_only_what_it_should() {
    let (cri, pods, _logs) = fake();
    let delay = Duration::from_millis(400);
    let fault = cri.on("RunPodSandbox").of("slow").delay(delay);
    let start = Instant::now();
    pods.run_sandbox("quick").unwrap();
    pods.version(soon()).unwrap();
    assert!(start.elapsed() < delay, "another pod was delayed");
    assert_eq!(fault.hits(), 0);
    pods.run_sandbox("slow").unwrap();
    assert!(start.elapsed() >= delay);
    assert_eq!(fault.hits(), 1);
}

#[test]
fn fails_so_many_times() {
    let (cri, pods, _logs) = fake();
    cri.on("RunPodSandbox").of("web").times(2).fail(RpcStatusCode::UNAVAILABLE, "not now");
    pods.run_sandbox("other").unwrap();
    for _ in 0..2 {
        assert_eq!(refusal(pods.run_sandbox("web")), (RpcStatusCode::UNAVAILABLE, "not now".to_owned()));
    }
    pods.run_sandbox("web").unwrap();
    cri.look(|m| assert_eq!(m.count_of("RunPodSandbox", "web"), 3));
}

#[test]
fn does_it_and_loses_the_answer() {
    let (cri, pods, _logs) = fake();
    cri.on("RunPodSandbox").times(1).fail_after(RpcStatusCode::UNKNOWN, "lost");
    assert_eq!(refusal(pods.run_sandbox("web")).1, "lost");
    cri.look(|m| assert_eq!(m.sandboxes_of("web").count(), 1));
}

#[test]
fn answers_garbage_and_nothing() {
    let (cri, pods, _logs) = fake();
    cri.on("RunPodSandbox").times(1).garbage();
    match pods.run_sandbox("web") {
        Err(grpcio::Error::Codec(_)) => {}
        other => panic!("{other:?}"),
    }
    cri.on("RunPodSandbox").times(1).empty();
    assert_eq!(pods.run_sandbox("web").unwrap(), "");
    cri.on("ContainerStatus").empty();
    assert_eq!(pods.container_status("any").unwrap(), cri::ContainerStatus::new());
    cri.look(|m| assert!(m.sandboxes.is_empty()));
}

#[test]
fn hanging_calls_hold_up_nobody() {
    let (cri, pods, _logs) = fake();
    let hang = cri.on("ListContainers").hang();
    thread::scope(|scope| {
        let calls: Vec<_> = (0..30)
            .map(|_| scope.spawn(|| pods.client.list_containers(&cri::ListContainersRequest::new(), soon())))
            .collect();
        hang.wait_hits(30, SOON);
        assert_eq!(pods.version(within(Duration::from_secs(2))).unwrap(), "fake");
        cri.look(|m| assert_eq!(m.in_flight("ListContainers"), 30));
        hang.remove();
        for call in calls {
            call.join().unwrap().unwrap();
        }
    });
    cri.look(|m| assert_eq!(m.in_flight("ListContainers"), 0));
}

#[test]
fn stops_containers_in_their_time() {
    let (cri, pods, _logs) = fake();
    cri.set_stop("obeys", Duration::from_millis(200), 7);
    cri.set_stop_duration("stays/main", Duration::from_secs(60));
    // name, timeout of the call, at least, exit code
    let cases = [("prompt", 5, 0, 0), ("obeys", 5, 200, 7), ("stays", 1, 1000, 137), ("now", 0, 0, 137)];
    for (name, timeout, least, code) in cases {
        let (_, container) = pods.run(name, "");
        let start = Instant::now();
        pods.stop(&container, timeout).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(least), "{name}: after {:?}", start.elapsed());
        assert!(start.elapsed() < Duration::from_millis(least + 900), "{name}: after {:?}", start.elapsed());
        assert_eq!(pods.container_status(&container).unwrap().exit_code, code, "{name}");
        pods.stop(&container, timeout).unwrap();
    }
    assert_eq!(refusal(pods.stop("nothing", 1)).0, RpcStatusCode::NOT_FOUND);
}

#[test]
fn a_container_that_exits_ends_the_wait_for_it() {
    let (cri, pods, _logs) = fake();
    cri.set_stop_duration("web", Duration::from_secs(60));
    let (_, container) = pods.run("web", "");
    thread::scope(|scope| {
        let stop = scope.spawn(|| pods.stop(&container, 9));
        cri.wait(SOON, |m| m.in_flight("StopContainer") == 1);
        cri.exit_container("web", 5);
        stop.join().unwrap().unwrap();
    });
    cri.look(|m| assert_eq!(m.container("web").and_then(|c| c.exit_code()), Some(5)));
}

#[test]
fn commands_end_as_the_test_wants() {
    let (cri, pods, _logs) = fake();
    let (_, container) = pods.run("web", "");
    let exec = |timeout| {
        let mut request = cri::ExecSyncRequest::new();
        request.container_id = container.clone();
        request.timeout = timeout;
        let start = Instant::now();
        (pods.client.exec_sync(&request, soon()), start.elapsed())
    };
    let code = |result: grpcio::Result<cri::ExecSyncResponse>| {
        let answer = result.unwrap();
        (answer.exit_code, String::from_utf8(answer.stdout).unwrap())
    };
    assert_eq!(code(exec(0).0), (0, String::new()));
    cri.set_exec("web/main", Duration::from_millis(200), 3, "why");
    let (answer, took) = exec(5);
    assert_eq!(code(answer), (3, "why".to_owned()));
    assert!(took >= Duration::from_millis(200), "{took:?}");
    cri.set_exec("web", Duration::from_secs(9), 0, "");
    let (answer, took) = exec(1);
    assert_eq!(refusal(answer).0, RpcStatusCode::DEADLINE_EXCEEDED);
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(8), "{took:?}");
    cri.exit_container("web", 0);
    assert!(refusal(exec(1).0).1.contains("is not running"));
}

#[test]
fn a_sandbox_can_die_alone() {
    let (cri, pods, _logs) = fake();
    let (sandbox, _) = pods.run("web", "");
    cri.kill_sandbox("web");
    assert_eq!(pods.sandbox_status(&sandbox).unwrap().state, cri::PodSandboxState::SANDBOX_NOTREADY.into());
    cri.look(|m| assert_eq!(m.running("web"), 1));
    refusal(pods.create(&sandbox, "web", "second", ""));
    pods.stop_sandbox(&sandbox).unwrap();
    cri.look(|m| assert_eq!(m.container("web").and_then(|c| c.exit_code()), Some(137)));
}

#[test]
fn restarts_with_and_without_memory() {
    let (cri, pods, _logs) = fake();
    let (sandbox, _) = pods.run("web", "");
    let _hang = cri.on("RunPodSandbox").of("late").hang();
    thread::scope(|scope| {
        let late = scope.spawn(|| pods.run_sandbox("late"));
        cri.wait(SOON, |m| m.in_flight("RunPodSandbox") == 1);
        cri.stop();
        assert_eq!(refusal(late.join().unwrap()).0, RpcStatusCode::UNAVAILABLE);
    });
    assert!(!cri.socket().exists());
    assert_eq!(refusal(pods.version(soon())).0, RpcStatusCode::UNAVAILABLE);
    cri.clear_faults();
    cri.look(|m| assert!(m.running("web") == 1 && m.sandbox("late").is_none(), "{m}"));

    cri.restart(Memory::Kept);
    pods.wait_up();
    assert_eq!(pods.sandbox_status(&sandbox).unwrap().metadata.name, "web");
    pods.run_sandbox("late").unwrap();

    cri.stop();
    cri.restart(Memory::Lost);
    pods.wait_up();
    assert_eq!(refusal(pods.sandbox_status(&sandbox)).0, RpcStatusCode::NOT_FOUND);
    pods.run("web", "");
}

#[test]
fn tells_events_when_switched_on() {
    let (cri, pods, _logs) = fake();
    let listen =
        || pods.client.get_container_events(&cri::GetEventsRequest::new(), within(Duration::from_secs(30))).unwrap();
    let first = block_on(listen().next()).expect("an answer");
    assert_eq!(refusal(first).0, RpcStatusCode::UNIMPLEMENTED);

    cri.set_events(true);
    let mut events = listen();
    cri.wait(SOON, |m| m.in_flight("GetContainerEvents") == 1);
    let (sandbox, container) = pods.run("web", "");
    cri.exit_container("web", 0);
    pods.remove_sandbox(&sandbox).unwrap();
    let wanted = [
        (&sandbox, Event::CONTAINER_CREATED_EVENT),
        (&sandbox, Event::CONTAINER_STARTED_EVENT),
        (&container, Event::CONTAINER_CREATED_EVENT),
        (&container, Event::CONTAINER_STARTED_EVENT),
        (&container, Event::CONTAINER_STOPPED_EVENT),
        (&sandbox, Event::CONTAINER_STOPPED_EVENT),
        (&container, Event::CONTAINER_DELETED_EVENT),
        (&sandbox, Event::CONTAINER_DELETED_EVENT),
    ];
    for (id, kind) in wanted {
        let event = block_on(events.next()).expect("the stream goes on").unwrap();
        assert_eq!((&event.container_id, event.container_event_type), (id, kind.into()));
        assert_eq!(event.pod_sandbox_status.metadata.name, "web");
    }
    cri.stop();
    assert_eq!(refusal(block_on(events.next()).expect("an answer")).0, RpcStatusCode::UNAVAILABLE);
    cri.restart(Memory::Kept);
    pods.wait_up();

    let mut events = listen();
    cri.wait(SOON, |m| m.in_flight("GetContainerEvents") == 1);
    cri.set_events(false);
    assert_eq!(refusal(block_on(events.next()).expect("an answer")).0, RpcStatusCode::UNIMPLEMENTED);
}

#[test]
fn rotates_logs() {
    let (cri, pods, logs) = fake();
    let (_, container) = pods.run("web", "");
    let log = logs.path().join("web/main/0.log");
    cri.write_log("web", "old");
    fs::rename(&log, log.with_extension("rotated")).unwrap();
    let mut request = cri::ReopenContainerLogRequest::new();
    request.container_id = container;
    pods.client.reopen_container_log(&request, soon()).unwrap();
    assert_eq!(fs::read_to_string(&log).unwrap(), "");
    cri.exit_container("web", 0);
    assert_eq!(refusal(pods.client.reopen_container_log(&request, soon())).1, "container is not running");
}

#[test]
fn has_images_and_conditions() {
    let (cri, pods, _logs) = fake();
    let images = image_client(cri.socket());
    let mut wanted = cri::ImageStatusRequest::new();
    wanted.image.mut_or_insert_default().image = "cleat.local/new:1".to_owned();
    assert!(images.image_status(&wanted, soon()).unwrap().image.is_none());
    let mut pull = cri::PullImageRequest::new();
    pull.image = wanted.image.clone();
    cri.on("PullImage").of("cleat.local/new:1").times(1).fail(RpcStatusCode::UNKNOWN, "no registry");
    assert_eq!(refusal(images.pull_image(&pull, soon())).1, "no registry");
    let id = images.pull_image(&pull, soon()).unwrap().image_ref;
    assert_eq!(images.image_status(&wanted, soon()).unwrap().image.id, id);

    cri.edit(|m| m.network_not_ready = Some("cni plugin not initialized".to_owned()));
    let conditions = pods.client.status(&cri::StatusRequest::new(), soon()).unwrap().status.conditions.clone();
    let conditions: Vec<_> = conditions.into_iter().map(|c| (c.type_, c.status)).collect();
    assert_eq!(conditions, [("RuntimeReady".to_owned(), true), ("NetworkReady".to_owned(), false)]);
}

#[test]
fn a_wait_in_vain_shows_what_happened() {
    let (cri, pods, _logs) = fake();
    pods.run("web", "");
    let panicked = catch_unwind(AssertUnwindSafe(|| cri.wait(Duration::from_millis(100), |m| m.running("web") == 2)));
    let shown = panicked.unwrap_err().downcast::<String>().unwrap();
    assert!(shown.contains("container web main"), "{shown}");
    assert!(shown.contains("StartContainer web main"), "{shown}");

    cri.holds(Duration::from_millis(50), |m| m.running("web") == 1);
    let broken = catch_unwind(AssertUnwindSafe(|| cri.holds(SOON, |m| m.running("web") == 0)));
    broken.unwrap_err();
    let unknown = catch_unwind(AssertUnwindSafe(|| drop(cri.on("RunPod"))));
    assert!(unknown.unwrap_err().downcast::<String>().unwrap().contains("RunPodSandbox"));
}

#[test]
fn forgets_a_container_as_the_test_likes() {
    let (cri, pods, _logs) = fake();
    let (_, container) = pods.run("web", "");
    cri.edit(|m| {
        m.exit(&container, 137, "OOMKilled");
        m.calls.clear();
    });
    assert_eq!(pods.container_status(&container).unwrap().reason, "OOMKilled");
    cri.look(|m| {
        assert!(matches!(m.container("web/main").unwrap().state, State::Exited { exit_code: 137, .. }));
        assert_eq!((m.count("StartContainer"), m.count("ContainerStatus")), (0, 1));
    });
}
