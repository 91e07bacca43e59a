use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, unbounded};

use super::collect::Collector;
use super::fake::{Fake, auth, error, image};
use super::gc::{Disk, Policy};
use super::preload::Settings;
use super::provider::Providers;
use super::*;
use crate::config::{self, Rate};
use crate::cri::{Code, Error, api};
use crate::local::{Secret, SecretValue};
use crate::pod::core;

struct Node {
    fake: Arc<Fake>,
    images: Images,
    woken: Receiver<PodUid>,
    now: Instant,
    dir: tempfile::TempDir,
}

fn node(max_parallel: Option<usize>, rate: Option<Rate>) -> Node {
    let (fake, dir) = (Arc::new(Fake::default()), tempfile::tempdir().expect("a directory"));
    let (wake, woken) = unbounded();
    let wake: Wake = Arc::new(move |uid| _ = wake.send(uid.clone()));
    let settings = Settings {
        directory: dir.path().join("archives"),
        record: dir.path().join("record"),
        socket: "/none.sock".into(),
    };
    let preload = Preload::new(settings, fake.clone(), wake.clone());
    let now = Instant::now();
    preload.tick(now);
    wait_for("the first look", || preload.names().is_some());
    let config = config::Image {
        max_parallel_pulls: max_parallel,
        pull_rate: rate,
        gc_high_threshold: 85,
        gc_low_threshold: 80,
        minimum_gc_age: Duration::from_secs(120),
        maximum_gc_age: None,
        credential_provider: None,
        archive_dir: "/none".into(),
    };
    let credentials = NodeCredentials::new(dir.path(), Providers::default());
    Node { images: Images::new(fake.clone(), &config, credentials, preload, wake), fake, woken, now, dir }
}

fn wait_for(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Node {
    fn ask(&self, uid: &str, image: &str, policy: PullPolicy) -> Ensure {
        self.ask_with(uid, image, policy, &[], 0)
    }

    /// What is answered so many seconds later.
    fn ask_with(&self, uid: &str, image: &str, policy: PullPolicy, secrets: &[(&str, &Secret)], later: u64) -> Ensure {
        let (uid, sandbox) = (PodUid::new(uid), api::PodSandboxConfig::new());
        let want = Want { uid: &uid, user: "main", image, policy, secrets, sandbox: &sandbox };
        self.images.ensure(&want, self.now + Duration::from_secs(later)).expect("the runtime answers")
    }

    fn woken(&self, want: &[&str]) {
        let mut woken = BTreeSet::new();
        while woken.len() < want.len() {
            woken.insert(self.woken.recv_timeout(Duration::from_secs(10)).expect("somebody is woken"));
        }
        assert_eq!(woken.iter().map(PodUid::as_str).collect::<Vec<_>>(), want);
    }
}

fn begun(ensure: &Ensure) -> bool {
    matches!(ensure, Ensure::Waiting { begun: Some(_) })
}

fn message(ensure: Ensure) -> String {
    match ensure {
        Ensure::Ready { message, .. } => message,
        other => panic!("it is not there: {other:?}"),
    }
}

fn failure(ensure: Ensure) -> Failure {
    match ensure {
        Ensure::Failed(failure) => failure,
        other => panic!("it did not fail: {other:?}"),
    }
}

use PullPolicy::{Always, IfNotPresent, Never};

#[test]
fn policies() {
    let table = [
        ("busybox", Always),
        ("busybox:latest", Always),
        ("quay.io:443/a", Always),
        ("busybox:1", IfNotPresent),
        ("busybox@sha256:7cc4b5aefd1d0cadf8d97d4350462ba51c694ebca145b08d7d41b41acc8db5aa", IfNotPresent),
        ("busybox:latest@sha256:7cc4b5aefd1d0cadf8d97d4350462ba51c694ebca145b08d7d41b41acc8db5aa", Always),
        ("NO NAME", IfNotPresent),
    ];
    for (image, want) in table {
        assert_eq!(PullPolicy::default_for(image), want, "{image}");
        assert_eq!(PullPolicy::of(Some(want.as_str())), want);
    }
}

#[test]
fn what_is_there_needs_no_network() {
    let node = node(Some(1), None);
    node.fake.add(image("sha256:1", &["docker.io/library/busybox:1"], 5));
    for policy in [IfNotPresent, Never] {
        let ready = message(node.ask("a", "busybox:1", policy));
        assert_eq!(ready, "Container image \"busybox:1\" already present on machine");
    }
    node.fake.no_pull_begins();
}

#[test]
fn an_image_is_pulled_once_for_all_who_want_it() {
    let node = node(Some(1), None);
    for uid in ["a", "b", "c"] {
        assert_eq!(
            node.ask(uid, "a.io/x", Always),
            Ensure::Waiting { begun: Some("Pulling image \"a.io/x\"".to_owned()) }
        );
        assert_eq!(node.ask(uid, "a.io/x", Always), Ensure::Waiting { begun: None });
    }
    let (asked, answer) = node.fake.next_pull();
    assert_eq!(asked, "a.io/x:latest");
    node.fake.no_pull_begins();
    answer.send(Ok(())).expect("is waited for");
    node.woken(&["a", "b", "c"]);
    for uid in ["a", "b", "c"] {
        let ready = message(node.ask(uid, "a.io/x", Always));
        assert!(ready.starts_with("Successfully pulled image \"a.io/x\" in "), "{ready}");
        assert!(ready.ends_with(" including waiting). Image size: 1000 bytes."), "{ready}");
    }
    // The next start asks the registry again; one that wants any image doesn't.
    assert!(begun(&node.ask("a", "a.io/x", Always)));
    assert!(message(node.ask("b", "a.io/x", IfNotPresent)).contains("already present"));
    node.fake.next_pull().1.send(Ok(())).expect("is waited for");
    node.woken(&["a"]);
}

#[test]
fn a_hung_registry_holds_up_its_own_images_alone() {
    let node = node(Some(1), None);
    for (uid, image) in [("a", "hung.io/x:1"), ("b", "hung.io/y:1")] {
        assert!(begun(&node.ask(uid, image, IfNotPresent)));
    }
    let (_, hung) = node.fake.next_pull();
    node.fake.no_pull_begins();
    assert!(begun(&node.ask("c", "fine.io/z:1", IfNotPresent)));
    let (asked, answer) = node.fake.next_pull();
    assert_eq!(asked, "fine.io/z:1");
    answer.send(Ok(())).expect("is waited for");
    node.woken(&["c"]);
    assert!(message(node.ask("c", "fine.io/z:1", IfNotPresent)).starts_with("Successfully pulled"));
    hung.send(Err(error("i/o timeout"))).expect("is waited for");
    node.woken(&["a"]);
    let failed = failure(node.ask("a", "hung.io/x:1", IfNotPresent));
    assert_eq!((failed.reason, failed.message.as_str(), failed.event), ("ErrImagePull", "i/o timeout", "Failed"));
    assert_eq!(node.fake.next_pull().0, "hung.io/y:1");
}

#[test]
fn several_at_once_at_one_registry() {
    let node = node(Some(2), None);
    for n in 0..4 {
        assert!(begun(&node.ask(&n.to_string(), &format!("a.io/x:{n}"), IfNotPresent)));
    }
    let (one, two) = (node.fake.next_pull(), node.fake.next_pull());
    node.fake.no_pull_begins();
    two.1.send(Ok(())).expect("is waited for");
    node.fake.next_pull().1.send(Err(error("no"))).expect("is waited for");
    node.fake.next_pull().1.send(Ok(())).expect("is waited for");
    one.1.send(Ok(())).expect("is waited for");
    node.woken(&["0", "1", "2", "3"]);
}

#[test]
fn failures_back_off_and_end_when_the_image_comes() {
    let node = node(Some(1), None);
    node.fake.answer_pulls("a.io/x:1", [Err(error("RegistryUnavailable: 503"))].into_iter());
    assert!(begun(&node.ask("a", "a.io/x:1", IfNotPresent)));
    node.woken(&["a"]);
    let failed = failure(node.ask("a", "a.io/x:1", IfNotPresent));
    let why = "image pull failed for a.io/x:1 because the registry is unavailable: 503";
    assert_eq!((failed.reason, failed.message.as_str()), ("RegistryUnavailable", why));
    assert_eq!(failed.retry_after, Duration::from_secs(2));
    let failed = failure(node.ask_with("a", "a.io/x:1", IfNotPresent, &[], 3));
    assert_eq!((failed.reason, failed.event), ("ImagePullBackOff", "BackOff"));
    assert_eq!(failed.message, format!("Back-off pulling image \"a.io/x:1\": RegistryUnavailable: {why}"));
    // Somebody brings it.
    node.fake.add(image("sha256:1", &["a.io/x:1"], 5));
    assert!(message(node.ask_with("a", "a.io/x:1", IfNotPresent, &[], 3)).contains("already present"));
    assert_eq!(node.fake.pulled().len(), 1);
}

#[test]
fn a_pull_is_tried_again_when_its_time_has_come() {
    let node = node(Some(1), None);
    node.fake.answer_pulls("a.io/x:1", [Err(error("no")), Err(error("no")), Ok(())].into_iter());
    let mut later = 0;
    for wait in [10, 20] {
        assert!(begun(&node.ask_with("a", "a.io/x:1", IfNotPresent, &[], later)));
        node.woken(&["a"]);
        // The wait counts from the end of the pull, which was just now.
        failure(node.ask_with("a", "a.io/x:1", IfNotPresent, &[], wait - 1));
        later = wait + 2;
    }
    assert!(begun(&node.ask_with("a", "a.io/x:1", IfNotPresent, &[], later)));
    node.woken(&["a"]);
    assert!(message(node.ask_with("a", "a.io/x:1", IfNotPresent, &[], later)).starts_with("Successfully"));
}

#[test]
fn images_that_can_not_be_had() {
    let node = node(Some(1), None);
    let failed = failure(node.ask("a", "a.io/x:1", Never));
    let want = "Container image \"a.io/x:1\" is not present with pull policy of Never";
    assert_eq!((failed.reason, failed.message.as_str()), ("ErrImageNeverPull", want));
    let failed = failure(node.ask("a", "NOT//a valid:image:name", IfNotPresent));
    let want = "Failed to apply default image tag \"NOT//a valid:image:name\": couldn't parse image name \
                \"NOT//a valid:image:name\": invalid reference format";
    assert_eq!((failed.reason, failed.message.as_str()), ("InvalidImageName", want));
    let said = Error { call: "ImageStatus", code: Code::Other, message: "broken store".to_owned() };
    node.fake.state.lock().status_error = Some(said);
    let failed = failure(node.ask("a", "a.io/x:1", IfNotPresent));
    let want = "Failed to inspect image \"a.io/x:1\": broken store";
    assert_eq!((failed.reason, failed.message.as_str()), ("ImageInspectError", want));
    node.fake.no_pull_begins();

    let gone = Error { call: "ImageStatus", code: Code::Unavailable, message: "gone".to_owned() };
    node.fake.state.lock().status_error = Some(gone);
    let (uid, sandbox) = (PodUid::new("a"), api::PodSandboxConfig::new());
    let want =
        Want { uid: &uid, user: "main", image: "a.io/x:1", policy: IfNotPresent, secrets: &[], sandbox: &sandbox };
    assert!(node.images.ensure(&want, node.now).expect_err("can't be asked").is_unreachable());
}

fn secret(config: &str) -> Secret {
    let text = SecretValue::new(config.as_bytes().to_vec());
    let data = [(".dockerconfigjson".to_owned(), text)].into();
    Secret { kind: "kubernetes.io/dockerconfigjson".to_owned(), data, ..Secret::default() }
}

#[test]
fn credentials_of_the_pod_come_before_the_nodes() {
    let node = node(Some(1), None);
    let login = |user: &str| format!(r#"{{"auths": {{"a.io": {{"username": "{user}", "password": "hunter2"}}}}}}"#);
    std::fs::write(node.dir.path().join("config.json"), login("node")).expect("writes");
    let mine = secret(&login("pod"));
    let secrets = [("mine", &mine)];
    let denied = || Err(error("denied to pod:hunter2"));
    node.fake.answer_pulls("a.io/x:1", [denied(), denied(), denied()].into_iter());
    assert!(begun(&node.ask_with("a", "a.io/x:1", IfNotPresent, &secrets, 0)));
    node.woken(&["a"]);
    let tried: Vec<_> = node.fake.pulled().into_iter().map(|(_, auth)| auth).collect();
    assert_eq!(tried, [Some(auth("pod", "hunter2")), Some(auth("node", "hunter2")), None]);
    let failed = failure(node.ask_with("a", "a.io/x:1", IfNotPresent, &secrets, 0));
    assert_eq!(failed.message, "denied to pod:***");
    // Another pod has no such secret, and doesn't share the fate of the first.
    assert!(begun(&node.ask("b", "a.io/x:1", IfNotPresent)));
    node.fake.next_pull().1.send(Ok(())).expect("is waited for");
    node.woken(&["a", "b"]);
}

#[test]
fn a_broken_secret_is_told_by_name() {
    let node = node(Some(1), None);
    let mine = secret("hunter2");
    let secrets = [("mine", &mine)];
    let failed = failure(node.ask_with("a", "a.io/x:1", IfNotPresent, &secrets, 0));
    assert_eq!(failed.reason, "ErrImagePull");
    assert!(failed.message.starts_with("image pull secret \"mine\": ") && !failed.message.contains("hunter2"));
    node.fake.no_pull_begins();
    assert!(begun(&node.ask_with("a", "a.io/x:1", IfNotPresent, &[], 11)), "it is tried again");
    node.fake.next_pull().1.send(Ok(())).expect("is waited for");
    node.woken(&["a"]);
}

#[test]
fn pulls_keep_to_their_rate() {
    let node = node(None, Some(Rate { qps: 20, burst: 2 }));
    let started = Instant::now();
    for n in 0..6 {
        let image = format!("a.io/x:{n}");
        node.fake.answer_pulls(&image, [Ok(())].into_iter());
        assert!(begun(&node.ask(&n.to_string(), &image, IfNotPresent)));
    }
    node.woken(&["0", "1", "2", "3", "4", "5"]);
    // Two at once, and four at 50 ms each.
    assert!(started.elapsed() >= Duration::from_millis(200), "{:?}", started.elapsed());
}

#[test]
fn the_image_of_sandboxes_comes_from_archives_too() {
    let node = node(Some(1), None);
    let uid = PodUid::new("a");
    let ask = || node.images.restore_sandbox_image(&uid, node.now).expect("the runtime answers");
    // While the runtime doesn't say which it is, any new archive may hold it.
    assert!(!ask());
    std::fs::create_dir(node.dir.path().join("archives")).expect("makes");
    assert!(ask());
    node.woken(&["a"]);
    assert!(!ask());
    node.fake.state.lock().settings.sandbox_image = Some("a.io/pause:1".to_owned());
    assert!(!ask(), "no archive holds it");
    node.fake.add(image("sha256:1", &["a.io/pause:1"], 5));
    std::fs::write(node.dir.path().join("archives/x.txt"), "").expect("writes");
    assert!(!ask(), "it is there, so it is something else");
    node.fake.state.lock().images.clear();
    assert!(ask());
    node.woken(&["a"]);
    assert!(!ask());
    node.fake.no_pull_begins();
}

#[test]
fn a_pod_that_goes_is_forgotten() {
    let node = node(Some(1), None);
    assert!(begun(&node.ask("a", "a.io/x:1", IfNotPresent)));
    assert!(begun(&node.ask("b", "a.io/y:1", IfNotPresent)));
    let (_, answer) = node.fake.next_pull();
    node.images.forget(&PodUid::new("a"));
    node.images.forget(&PodUid::new("b"));
    answer.send(Ok(())).expect("is waited for");
    node.fake.no_pull_begins();
    assert!(node.woken.try_recv().is_err(), "nobody waits");
}

// Garbage collection.

const FULL: fn(&Path) -> std::io::Result<Disk> = |_| Ok(Disk { capacity: 10_000, available: 0 });
const EMPTY: fn(&Path) -> std::io::Result<Disk> = |_| Ok(Disk { capacity: 10_000, available: 9_000 });

struct Shop {
    fake: Arc<Fake>,
    collector: Collector,
    now: Instant,
    _dir: tempfile::TempDir,
}

fn shop(
    wanted: Option<&[&str]>,
    max_age: Option<u64>,
    measure: fn(&Path) -> std::io::Result<Disk>,
    record: Option<&str>,
) -> Shop {
    let (fake, dir) = (Arc::new(Fake::default()), tempfile::tempdir().expect("a directory"));
    let settings = Settings {
        directory: PathBuf::from("/no/such/directory"),
        record: dir.path().join("record"),
        socket: "/none.sock".into(),
    };
    if let Some(record) = record {
        std::fs::write(&settings.record, record).expect("writes");
    }
    let wake: Wake = Arc::new(|_| {});
    let preload = Preload::new(settings, fake.clone(), wake);
    let now = Instant::now();
    preload.tick(now);
    wait_for("the first look", || preload.names().is_some());
    let wanted = wanted.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>());
    let policy =
        Policy { high: 85, low: 80, min_age: Duration::from_secs(120), max_age: max_age.map(Duration::from_secs) };
    let collector = Collector::with(fake.clone(), policy, preload, Arc::new(move || wanted.clone()), measure);
    Shop { fake, collector, now, _dir: dir }
}

impl Shop {
    fn removed_after(&self, seconds: &[u64]) -> Vec<String> {
        for s in seconds {
            self.collector.run(self.now + Duration::from_secs(*s));
        }
        self.fake.state.lock().removed.clone()
    }
}

#[test]
fn a_full_disk_is_freed_of_what_nobody_needs() {
    let shop = shop(Some(&["wanted", "a.io/by-digest:1"]), None, FULL, None);
    {
        let mut state = shop.fake.state.lock();
        state.in_use = ["sha256:running".to_owned(), "b.io/by-name".to_owned()].into();
        state.settings.sandbox_image = Some("registry.k8s.io/pause:3.6".to_owned());
        state.images = vec![
            image("sha256:running", &["a.io/running:1"], 9000),
            image("sha256:name", &["b.io/by-name:latest"], 9000),
            image("sha256:wanted", &["docker.io/library/wanted:latest", "a.io/other-name:1"], 9000),
            image("sha256:digest", &["a.io/by-digest:1"], 9000),
            image("sha256:pause", &["registry.k8s.io/pause:3.6"], 9000),
            cri_pinned(image("sha256:pinned", &[], 9000)),
            image("sha256:big", &["a.io/big:1"], 1500),
            image("sha256:small", &["a.io/small:1"], 600),
            image("sha256:tiny", &["a.io/tiny:1"], 10),
        ];
    }
    assert!(shop.removed_after(&[0, 119]).is_empty(), "they are young");
    // 2000 bytes bring it to 80 %; more is not removed.
    assert_eq!(shop.removed_after(&[120]), ["sha256:big", "sha256:small"]);
    assert_eq!(shop.removed_after(&[600, 1200]), ["sha256:big", "sha256:small", "sha256:tiny"]);
}

fn cri_pinned(image: crate::cri::Image) -> crate::cri::Image {
    crate::cri::Image { pinned: true, ..image }
}

#[test]
fn nothing_is_removed_before_it_is_known_what_is_wanted() {
    let shop = shop(None, Some(60), FULL, None);
    shop.fake.add(image("sha256:1", &["a.io/x:1"], 1500));
    assert!(shop.removed_after(&[0, 300, 600, 86_400]).is_empty());
}

#[test]
fn old_images_go_whatever_the_disk() {
    let shop = shop(Some(&["a.io/wanted:1"]), Some(86_400), EMPTY, None);
    shop.fake.add(image("sha256:1", &["a.io/x:1"], 1500));
    shop.fake.add(image("sha256:2", &["a.io/wanted:1"], 1500));
    assert!(shop.removed_after(&[0, 300, 86_400]).is_empty());
    assert_eq!(shop.removed_after(&[86_401]), ["sha256:1"]);
}

#[test]
fn a_runtime_that_can_not_remove_loses_nothing() {
    let shop = shop(Some(&[]), Some(60), FULL, None);
    shop.fake.add(image("sha256:1", &["a.io/x:1"], 1500));
    shop.fake.state.lock().remove_error = Some(error("in use"));
    assert!(shop.removed_after(&[0, 300, 600]).is_empty());
    shop.fake.state.lock().remove_error = None;
    assert_eq!(shop.removed_after(&[900]), ["sha256:1"]);
}

/// k3s#7569, k3s#10209, kubernetes#81756, kubernetes#111796, kubernetes#103255.
#[test]
fn images_of_archives_stay_for_thirty_days_on_a_full_disk() {
    let record = r#"{"x.tar": {"stamp": {"size": 1, "mtime": 1, "inode": 1},
        "images": [{"imported_as": "a.io/x:1", "names": ["a.io/x:1"]}]}}"#;
    let shop = shop(Some(&[]), Some(86_400), FULL, Some(record));
    shop.fake.add(image("sha256:1", &["a.io/x:1"], 1500));
    let month: Vec<_> = (0..30 * 288).map(|n| n * 300).collect();
    assert!(shop.removed_after(&month).is_empty());
    shop.fake.add(image("sha256:2", &["a.io/y:1"], 1500));
    assert_eq!(shop.removed_after(&[30 * 86_400, 30 * 86_400 + 300]), ["sha256:2"]);
}

#[test]
fn the_images_of_a_pod() {
    let container = |image: &str| core::Container { image: Some(image.to_owned()), ..Default::default() };
    let spec = core::PodSpec {
        init_containers: Some(vec![container("init")]),
        containers: vec![container("main"), container("")],
        ephemeral_containers: Some(vec![core::EphemeralContainer {
            image: Some("debug".to_owned()),
            ..Default::default()
        }]),
        volumes: Some(vec![
            core::Volume::default(),
            core::Volume {
                image: Some(core::ImageVolumeSource { reference: Some("data".to_owned()), pull_policy: None }),
                ..Default::default()
            },
        ]),
        ..Default::default()
    };
    let pod = Pod {
        uid: PodUid::new("u"),
        name: crate::pod::PodName::new("default", "p"),
        source: crate::pod::Source::File,
        origin: "p.yaml".into(),
        status: None,
        meta: Default::default(),
        spec,
    };
    assert_eq!(of_pod(&pod).collect::<Vec<_>>(), ["init", "main", "debug", "data"]);
}
