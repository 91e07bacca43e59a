use crossbeam::channel::{Receiver, unbounded};

use super::*;
use crate::child::tests::write_program;
use crate::cri::{Code, Error};
use crate::image::archive::tests as archives;
use crate::image::fake::{Fake, image};

struct Node {
    dir: tempfile::TempDir,
    fake: Arc<Fake>,
    preload: Preload,
    woken: Receiver<PodUid>,
    now: Instant,
}

/// A `ctr` that notes how it is called and what it gets, and fails while there is a file `broken`.
const CTR: &str = r#"#!/bin/sh
cd "$(dirname "$0")"
if [ "$6" = import ]; then cat > got; else cat > /dev/null; fi
echo "$@" >> calls
if [ -e broken ]; then echo "it is broken" >&2; exit 1; fi
"#;

fn node() -> Node {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("archives")).expect("makes");
    write_program(&dir.path().join("ctr"), CTR);
    start(dir, Arc::new(Fake::default()))
}

fn start(dir: tempfile::TempDir, fake: Arc<Fake>) -> Node {
    let (wake, woken) = unbounded();
    let settings = Settings {
        directory: dir.path().join("archives"),
        record: dir.path().join("record"),
        socket: "/run/c.sock".into(),
    };
    let importer = Importer { socket: settings.socket.clone(), directories: vec![dir.path().into()] };
    let preload = Preload::with(settings, importer, fake.clone(), Arc::new(move |uid| _ = wake.send(uid.clone())));
    Node { dir, fake, preload, woken, now: Instant::now() }
}

impl Node {
    /// Puts an archive there, written a while ago.
    fn put(&self, file: &str, content: &[u8]) {
        let path = self.dir.path().join("archives").join(file);
        let temporary = self.dir.path().join("temporary");
        fs::write(&temporary, content).expect("writes");
        age(&temporary);
        fs::rename(&temporary, &path).expect("renames");
    }

    fn find(&self, image: &str) -> Found {
        self.preload.find(&Name::parse(image).expect("is a name"), &PodUid::new("a"), self.now)
    }

    /// Asks as a pod does: again each time that it is woken.
    fn wait_for(&self, image: &str) -> Found {
        loop {
            match self.find(image) {
                Found::Coming => drop(self.woken.recv_timeout(Duration::from_secs(20)).expect("is woken")),
                found => return found,
            }
        }
    }

    /// Waits until the pod that asked has been woken, and is told nothing more.
    fn import(&self, image: &str) {
        assert_eq!(self.find(image), Found::Coming);
        self.settle();
    }

    fn settle(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        let busy = || {
            let state = self.preload.0.state.lock();
            let importing = state.archives.values().any(|archive| archive.status == Status::Importing);
            importing || state.look_queued
        };
        while busy() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn look(&mut self) {
        self.now += LOOK;
        self.preload.tick(self.now);
        self.settle();
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    fn shows(&self, names: &[&str]) {
        self.fake.add(image(names[0], names, 1));
    }
}

fn age(path: &Path) {
    let long_ago = SystemTime::now() - Duration::from_secs(60);
    fs::File::options().write(true).open(path).expect("opens").set_modified(long_ago).expect("sets");
}

const IMPORT: &str = "--address /run/c.sock --namespace k8s.io images import -";

#[test]
fn an_image_of_an_archive_is_imported_and_not_waited_for_elsewhere() {
    let node = node();
    let archive = archives::docker(&["busybox:1", "a.io/x:2"]);
    node.put("x.tar.gz", &archives::gzip(&archive));
    node.put("y.tar", &archives::docker(&["a.io/y:1"]));
    node.put("z.tar.zst", &archives::zstd(&archives::docker(&["a.io/z:1"])));
    node.put("README.txt", b"no archive");
    node.put(".hidden.tar", b"no archive");
    assert!(node.preload.names().is_none(), "nothing is known before the first look");
    node.shows(&["docker.io/library/busybox:1", "a.io/x:2"]);
    node.shows(&["a.io/y:1"]);
    node.shows(&["a.io/z:1"]);
    assert_eq!(node.wait_for("a.io/none:1"), Found::Nowhere);
    node.settle();
    assert_eq!(node.calls(), [IMPORT, IMPORT, IMPORT]);
    let names = node.preload.names().expect("is known");
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        ["a.io/x:2", "a.io/y:1", "a.io/z:1", "docker.io/library/busybox:1"]
    );
}

#[test]
fn the_plain_archive_is_what_is_imported() {
    for pack in [|a: &[u8]| a.to_vec(), archives::gzip, archives::zstd] {
        let node = node();
        let archive = archives::docker(&["a.io/x:1"]);
        node.put("x.tar", &pack(&archive));
        node.shows(&["a.io/x:1"]);
        node.import("a.io/x:1");
        assert!(fs::read(node.dir.path().join("got")).expect("was imported") == archive);
    }
}

#[test]
fn each_content_once_and_again_when_it_is_gone() {
    let mut node = node();
    node.put("x.tar", &archives::docker(&["a.io/x:1"]));
    node.shows(&["a.io/x:1"]);
    node.look();
    node.look();
    assert_eq!(node.calls().len(), 1);
    // The agent is started anew.
    let mut node = start(node.dir, node.fake);
    node.look();
    assert_eq!(node.calls().len(), 1);
    // One who asks misses it: it is gone from the runtime.
    node.import("a.io/x:1");
    assert_eq!(node.calls().len(), 2);
    // Another content under the same name.
    node.put("x.tar", &archives::docker(&["a.io/x:2"]));
    node.shows(&["a.io/x:2"]);
    node.look();
    assert_eq!(node.calls().len(), 3);
    assert_eq!(node.preload.names().expect("is known").into_iter().collect::<Vec<_>>(), ["a.io/x:2"]);
    // What is taken away is an image like others.
    fs::remove_file(node.dir.path().join("archives/x.tar")).expect("removes");
    node.look();
    assert!(node.preload.names().expect("is known").is_empty());
    assert_eq!(node.find("a.io/x:2"), Found::Nowhere);
}

#[test]
fn an_archive_that_comes_while_the_image_is_missed() {
    let node = node();
    assert_eq!(node.wait_for("a.io/x:1"), Found::Nowhere);
    node.put("x.tar", &archives::docker(&["a.io/x:1"]));
    node.shows(&["a.io/x:1"]);
    assert_eq!(node.find("a.io/x:1"), Found::Coming, "the directory has changed");
    node.settle();
    assert_eq!(node.calls().len(), 1);
}

#[test]
fn what_is_asked_for_during_a_look_waits_for_its_end() {
    let node = node();
    // Takes a while to be read.
    let large = archives::tar(&[("layer", &[0; 32 << 20]), ("manifest.json", br#"[{"RepoTags":["a.io/large:1"]}]"#)]);
    node.put("a.tar.gz", &archives::gzip(&large));
    node.put("b.tar", &archives::docker(&["a.io/x:1"]));
    node.shows(&["a.io/large:1"]);
    node.shows(&["a.io/x:1"]);
    node.fake.state.lock().settings.snapshotter = Some("native".to_owned());
    node.preload.tick(node.now);
    while node.preload.names().is_none() {
        assert_eq!(node.find("a.io/x:1"), Found::Coming);
        assert!(node.preload.is_busy(&PodUid::new("a"), node.now));
    }
    node.settle();
    let by_native = IMPORT.replace("import -", "import --snapshotter native -");
    assert_eq!(node.calls(), [by_native.as_str(), &by_native]);
}

#[test]
fn a_pod_that_could_not_pull_hears_of_an_import() {
    let mut node = node();
    assert_eq!(node.wait_for("a.io/x:1"), Found::Nowhere);
    node.put("x.tar", &archives::docker(&["a.io/x:1"]));
    node.shows(&["a.io/x:1"]);
    node.look();
    assert_eq!(node.woken.recv_timeout(Duration::from_secs(20)).expect("is woken"), PodUid::new("a"));
}

#[test]
fn failures_are_told_and_tried_again_later() {
    let mut node = node();
    node.put("x.tar", &archives::docker(&["a.io/x:1"]));
    node.shows(&["a.io/x:1"]);
    fs::write(node.dir.path().join("broken"), "").expect("writes");
    let Found::Failed(message) = node.wait_for("a.io/x:1") else { panic!("it was imported") };
    assert!(
        message.contains("x.tar, which holds it, can't be imported: ctr images import: exit status: 1: it is broken")
    );
    node.look();
    assert_eq!(node.calls().len(), 1, "no look tries it again");
    assert!(node.preload.names().expect("is known").contains("a.io/x:1"), "it is not given up");
    fs::remove_file(node.dir.path().join("broken")).expect("removes");
    node.now += Duration::from_secs(60);
    node.import("a.io/x:1");
    assert_eq!(node.calls().len(), 2);
}

#[test]
fn a_runtime_that_comes_late_gets_all_archives() {
    let mut node = node();
    node.put("x.tar", &archives::docker(&["a.io/x:1"]));
    node.shows(&["a.io/x:1"]);
    let away = Error { call: "Version", code: Code::Unavailable, message: "away".to_owned() };
    node.fake.state.lock().status_error = Some(away);
    node.look();
    node.look();
    assert!(node.calls().is_empty());
    node.fake.state.lock().status_error = None;
    node.look();
    assert_eq!(node.calls(), [IMPORT]);
}

#[test]
fn other_runtimes_and_nodes_without_ctr() {
    let node = node();
    node.fake.state.lock().runtime = "cri-o".to_owned();
    node.put("x.tar", &archives::docker(&["a.io/x:1"]));
    let Found::Failed(message) = node.wait_for("a.io/x:1") else { panic!("it was imported") };
    assert!(message.contains("the container runtime is cri-o") && message.contains("skopeo copy"), "{message}");
    assert!(node.calls().is_empty());

    node.fake.state.lock().runtime = "containerd".to_owned();
    fs::remove_file(node.dir.path().join("ctr")).expect("removes");
    let mut node = start(node.dir, node.fake);
    node.look();
    let Found::Failed(message) = node.wait_for("a.io/x:1") else { panic!("it was imported") };
    assert!(message.contains("ctr, which comes with containerd, is needed"), "{message}");
}

#[test]
fn images_are_found_by_digest_and_whole_name() {
    let node = node();
    let index = format!(
        r#"{{"manifests":[{{"digest":"{0}","annotations":{{"org.opencontainers.image.ref.name":"busybox:1"}}}}]}}"#,
        archives::DIGEST
    );
    let archive = archives::tar(&[("index.json", index.as_bytes()), ("oci-layout", b"{}")]);
    node.put("x.tar", &archive);
    let by_digest = format!("docker.io/library/busybox@{}", archives::DIGEST);
    node.shows(&["docker.io/library/busybox:1", &by_digest]);
    node.import(&format!("busybox:1@{}", archives::DIGEST));
    let tag = format!(
        "--address /run/c.sock --namespace k8s.io images tag --force busybox:1 docker.io/library/busybox:1 {by_digest}"
    );
    assert_eq!(node.calls(), [IMPORT, &tag]);
}

#[test]
fn what_is_still_written_is_left_alone() {
    let archive = archives::docker(&["a.io/x:1"]);
    let mut node = node();
    let path = node.dir.path().join("archives/x.tar");
    fs::write(&path, &archive[..1000]).expect("writes");
    node.look();
    assert!(node.preload.0.state.lock().archives.is_empty() && node.preload.0.state.lock().unsettled);
    // It has settled, and is no whole archive.
    age(&path);
    node.look();
    assert_eq!(node.preload.0.state.lock().archives["x.tar"].status, Status::Unusable);
    assert_eq!(node.wait_for("a.io/x:1"), Found::Nowhere);
    fs::write(&path, &archive).expect("writes");
    age(&path);
    node.shows(&["a.io/x:1"]);
    node.look();
    assert_eq!(node.calls(), [IMPORT]);
}

#[test]
fn news_of_a_directory() {
    let now = SystemTime::now();
    let nanos =
        |ago: i128| i128::try_from(now.duration_since(UNIX_EPOCH).expect("after").as_nanos()).expect("fits") - ago;
    let stamp = |ago: i128| Stamp { size: 1, mtime: nanos(ago), inode: 1 };
    let all = |files: &[(&str, Stamp)]| files.iter().map(|(name, s)| ((*name).to_owned(), *s)).collect();
    let second = 1_000_000_000;
    let known = all(&[("same", stamp(9 * second)), ("other", stamp(9 * second)), ("gone", stamp(0))]);
    let files = all(&[
        ("same", stamp(9 * second)),
        ("other", stamp(8 * second)),
        ("new", stamp(2 * second)),
        ("young", stamp(second)),
        ("of-the-future", stamp(-100 * second)),
    ]);
    let news = compare(&known, &files, now);
    assert_eq!(news.fresh.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["new", "of-the-future", "other"]);
    assert!(news.unsettled);
    assert!(!compare(&files, &files, now).unsettled);
}

#[test]
fn a_record_that_can_not_be_read_costs_an_import() {
    let mut node = node();
    fs::write(node.dir.path().join("record"), "not JSON").expect("writes");
    node.put("x.tar", &archives::docker(&["a.io/x:1"]));
    node.shows(&["a.io/x:1"]);
    node.look();
    assert_eq!(node.calls().len(), 1);
    assert!(record::read(&node.dir.path().join("record")).contains_key("x.tar"));
}
