//! What manifests, containers and others on the node may try, and must not get.

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::Value;
use support::eventually;
use support::manifest::Manifest;
use support::node::{Node, SOON};

const RUN: &str = "sleep 1000";
/// How long paths are swapped while containers start.
const RACE: Duration = Duration::from_secs(10);

/// Ends a loop in another thread, however the test ends.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// While directories of the volume are replaced by links that lead out of it, and back, containers get a
/// directory of the volume or nothing.
#[test]
fn a_race_for_a_sub_path() {
    let node = Node::start();
    let volume = node.shared("volume");
    let outside = node.shared("outside");
    let [real, link, used] = ["real", "link", "used"].map(|name| volume.join(name));
    fs::create_dir_all(real.join("sub")).expect("makes");
    fs::create_dir_all(outside.join("sub")).expect("makes");
    fs::write(real.join("sub/who"), "inside").expect("writes");
    fs::write(outside.join("sub/who"), "outside").expect("writes");
    symlink(&outside, &link).expect("links");
    fs::rename(&real, &used).expect("renames");
    // In one step: there is always something.
    let swap = || renameat_with(CWD, &link, CWD, &used, RenameFlags::EXCHANGE).expect("renames");
    let over = AtomicBool::new(false);
    let swaps = std::thread::scope(|scope| {
        let until = Until(&over);
        // It ends by itself, with the good one in place: what was refused in the race runs then.
        let swapper = scope.spawn(|| {
            let end = Instant::now() + RACE;
            let mut swaps = 0u64;
            while !over.load(Ordering::Relaxed) && Instant::now() < end {
                swap();
                swap();
                swaps += 1;
            }
            swaps
        });
        let spec = format!("volumes: [{{name: v, hostPath: {{path: {}}}}}]", volume.display());
        let fields =
            "volumeMounts: [{name: v, mountPath: /a, subPath: used/sub}, {name: v, mountPath: /b, subPath: used/sub}]";
        let names: Vec<_> = (0..6).map(|i| format!("victim{i}")).collect();
        for name in &names {
            let script = "echo $(cat /a/who) $(cat /b/who)";
            let pod = Manifest::job(name).spec(&spec).main(script, fields).container("other", script, fields);
            node.add(&pod);
        }
        for name in &names {
            let pod = node
                .agent
                .wait_pod(name, SOON, |pod| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")));
            for container in ["main", "other"] {
                assert_eq!(node.log(&pod, container, 0), "inside inside", "{name} {container}");
            }
        }
        drop(until);
        swapper.join().expect("no panic")
    });
    assert!(swaps > 1000, "only {swaps}");
    assert_eq!(fs::read_to_string(outside.join("sub/who")).expect("is there"), "outside");
    assert_eq!(fs::read_dir(&outside).expect("reads").count(), 1, "nothing was made there");
    (0..6).for_each(|i| node.remove(&format!("victim{i}")));
    node.nothing_left();
}

/// Links in a volume, by which a container may want to get at what is on the node.
#[test]
fn links_that_lead_out() {
    let node = Node::start();
    let volume = node.shared("volume");
    let outside = node.shared("outside");
    fs::write(outside.join("file"), "precious").expect("writes");
    symlink("/etc", volume.join("absolute")).expect("links");
    symlink("../outside", volume.join("relative")).expect("links");
    symlink("absolute", volume.join("chain")).expect("links");
    symlink("../outside/new", volume.join("dangling")).expect("links");
    symlink(outside.join("file"), volume.join("file")).expect("links");
    let bad = ["absolute", "relative/file", "chain/passwd", "dangling", "file", "absolute/../etc"];
    let spec = format!("volumes: [{{name: v, hostPath: {{path: {}}}}}]", volume.display());
    for (i, path) in bad.iter().enumerate().filter(|(_, path)| !path.contains("..")) {
        let mount = format!("volumeMounts: [{{name: v, mountPath: /v, subPath: {path}}}]");
        node.add(&Manifest::pod(&format!("bad{i}")).spec(&spec).main("cat /v /v/file; sleep 1000", &mount));
    }
    for (i, path) in bad.iter().enumerate().filter(|(_, path)| !path.contains("..")) {
        let message = node.waits(&format!("bad{i}"), "CreateContainerConfigError");
        assert!(message.contains(path) && !message.contains("precious"), "{path}: {message}");
    }
    assert_eq!(fs::read_dir(&outside).expect("reads").count(), 1, "nothing was made there");
}

/// `..` is no part of a path, wherever one can be given.
#[test]
fn paths_that_go_up() {
    let node = Node::start();
    let mount = |more: &str| format!("volumeMounts: [{{name: v, mountPath: /v{more}}}]");
    let empty = "volumes: [{name: v, emptyDir: {}}]";
    let keys = "items: [{key: k, path: ../x}]";
    let cases = [
        ("sub-path", empty.to_owned(), mount(", subPath: ../x")),
        ("sub-path-deep", empty.to_owned(), mount(", subPath: a/../../x")),
        ("sub-path-expr", empty.to_owned(), mount(", subPathExpr: ../$(X)")),
        ("host-path", "volumes: [{name: v, hostPath: {path: /tmp/../etc}}]".to_owned(), mount("")),
        ("config-map", format!("volumes: [{{name: v, configMap: {{name: m, {keys}}}}}]"), mount("")),
        ("secret", format!("volumes: [{{name: v, secret: {{secretName: s, {keys}}}}}]"), mount("")),
        (
            "downward",
            "volumes: [{name: v, downwardAPI: {items: [{path: a/../../x, fieldRef: {fieldPath: metadata.name}}]}}]"
                .to_owned(),
            mount(""),
        ),
        (
            "projected",
            format!("volumes: [{{name: v, projected: {{sources: [{{configMap: {{name: m, {keys}}}}}]}}}}]"),
            mount(""),
        ),
        (
            "seccomp",
            "securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../x.json}}".to_owned(),
            String::new(),
        ),
    ];
    for (name, spec, fields) in &cases {
        node.add(&Manifest::pod(name).spec(spec).main(RUN, fields));
    }
    node.write("uid", &Manifest::pod("uid").metadata("uid: ../../x").main(RUN, "").to_string());
    node.write("name", &Manifest::pod("../name").main(RUN, "").to_string());
    node.add(&Manifest::job("good").main("echo ran", ""));
    assert_eq!(node.output("good"), "ran");
    for name in cases.iter().map(|(name, ..)| *name).chain(["uid", "name"]) {
        node.told(&format!("/{name}.yaml:"));
    }
    assert_eq!(node.agent.pods().len(), 1, "{:?}", node.agent.pods());
}

/// A hostPath is looked at itself, not by its name: what a link leads to must be of the type, and another
/// thing that takes its place later isn't mounted.
#[test]
fn host_paths_of_another_type() {
    let node = Node::start();
    let dir = node.shared("paths");
    fs::create_dir(dir.join("dir")).expect("makes");
    symlink("dir", dir.join("file")).expect("links");
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).expect("binds");
    symlink("socket", dir.join("link")).expect("links");
    let pod = |name: &str, path: &str, kind: &str| {
        let path = dir.join(path).display().to_string();
        let spec = format!("volumes: [{{name: v, hostPath: {{path: {path}, type: {kind}}}}}]");
        Manifest::pod(name).spec(&spec).main("sleep 1000", "volumeMounts: [{name: v, mountPath: /v}]")
    };
    for (name, path, kind, what) in [
        ("a", "file", "File", "a file"),
        ("b", "link", "FileOrCreate", "a file"),
        ("c", "link", "Directory", "a directory"),
    ] {
        node.add(&pod(name, path, kind));
        node.told(&format!("hostPath {} is not {what}", dir.join(path).display()));
        assert_eq!(node.waits(name, "ContainerCreating"), "");
    }
    assert_eq!(node.containerd.tasks().len(), 0);
}

/// All that can be asked over HTTP.
const PAGES: [&str; 10] = [
    "/pods",
    "/healthz",
    "/metrics",
    "/metrics/probes",
    "/metrics/cadvisor",
    "/stats/summary",
    "/logs/",
    "/spec",
    "/configz",
    "/",
];

/// A secret's value is where the pod wants it, and nowhere else.
#[test]
fn secrets_are_kept() {
    const VALUE: &str = "correct-horse-battery";
    const BASE64: &str = "Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5";
    let mut node = Node::configured(serde_json::json!({"logging": {"verbosity": 9}}));
    let secret = |value: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{password: {value}, place: ../{value}}}\n"
        )
    };
    node.write("secret", &secret(VALUE));
    // In this one there is a fault, beside the value.
    let faulty = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: bad}}\nstringData: {{password: [{VALUE}]}}\ndata: {{x: '{VALUE}!', y: {BASE64}}}\n"
    );
    node.write("faulty", &faulty);
    node.write(
        "broken",
        &format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: worse}}\nstringData: {{a: '{VALUE}\n"),
    );
    let key = |name: &str| {
        format!("{{name: {}, valueFrom: {{secretKeyRef: {{name: s, key: {name}}}}}}}", name.to_uppercase())
    };
    let env = format!("env: [{}, {}, {{name: BOTH, value: x-$(PASSWORD)}}]", key("password"), key("place"));
    let volume = "volumes: [{name: v, secret: {secretName: s}}, {name: e, emptyDir: {}}]";
    let mount = "volumeMounts: [{name: v, mountPath: /v}]";
    let probe = "readinessProbe: {exec: {command: [sh, -c, 'exit 1']}, periodSeconds: 1}";
    let script = "test \"$PASSWORD\" = \"$(cat /v/password)\" && echo same; sleep 1000";
    node.add(
        &Manifest::pod("user")
            .spec(volume)
            .main(script, &format!("{env}, envFrom: [{{secretRef: {{name: s}}}}], {mount}, {probe}")),
    );
    let escape = format!("{env}, volumeMounts: [{{name: e, mountPath: /e, subPathExpr: $(PLACE)}}]");
    node.add(&Manifest::pod("escape").spec(volume).main(RUN, &escape));
    node.add(
        &Manifest::pod("no-key")
            .spec(volume)
            .main(RUN, "env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: none}}}]"),
    );
    node.add(
        &Manifest::pod("items")
            .spec("volumes: [{name: v, secret: {secretName: s, items: [{key: none, path: p}]}}]")
            .main(RUN, mount),
    );
    let user = node.runs("user");
    node.says(&user, "main", 0, "same");
    node.waits("escape", "CreateContainerConfigError");
    node.waits("no-key", "CreateContainerConfigError");
    node.told("references non-existent secret key: none");
    node.told("/faulty.yaml:");
    // It is changed, and the agent is restarted.
    node.write("secret", &secret(&format!("{VALUE}-2")));
    eventually("the new value", SOON, || match node.exec(&user, "main", "cat /v/password") {
        Ok(value) if value.ends_with("-2") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    node.agent.restart();
    let user = node.runs("user");

    let clean = |what: &str, text: &str| {
        for secret in [VALUE, BASE64] {
            if let Some(at) = text.find(secret) {
                let line = text[..at].lines().count();
                panic!(
                    "it is in {what}, line {line}: {}",
                    text.lines().nth(line.saturating_sub(1)).unwrap_or_default()
                );
            }
        }
    };
    clean("the agent's log", &node.agent.log());
    clean("containerd's log", &fs::read_to_string(node.containerd.log_path()).expect("reads"));
    for page in PAGES {
        let (status, body) = node.agent.get(page).expect("answers");
        clean(&format!("{page} ({status})"), &body);
    }
    let mut texts = 0;
    // From outside of the cell what is mounted can't be seen: it is in memory, and not on the disk.
    for root in [node.agent.pod_logs(), node.agent.root().join("pods")] {
        each_file(&root, &mut |path, text| {
            texts += 1;
            clean(&path.display().to_string(), text);
        });
    }
    assert!(texts > 3, "only {texts} files");
    let uid = user["metadata"]["uid"].as_str().expect("has one");
    let in_memory = node.agent.root().join("pods").join(uid).join("volumes/kubernetes.io~secret/v/password");
    assert!(fs::read_to_string(node.containerd.cell().path(in_memory)).expect("reads").starts_with(VALUE));
}

fn each_file(directory: &Path, look: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(directory).expect("lists") {
        let path = entry.expect("lists").path();
        if path.is_symlink() {
            continue;
        }
        match path.is_dir() {
            true => each_file(&path, look),
            false => look(&path, &String::from_utf8_lossy(&fs::read(&path).unwrap_or_default())),
        }
    }
}

/// What somebody has mounted in a pod's directory, in any place of it, outlives the pod, also when the agent
/// is killed in between.
#[test]
fn a_foreign_mount_at_removal() {
    let mut node = Node::start();
    let precious = node.shared("precious");
    fs::write(precious.join("data"), "data").expect("writes");
    let fields = "volumeMounts: [{name: v, mountPath: /v}]";
    node.add(&Manifest::pod("web").spec("volumes: [{name: v, emptyDir: {}}]").main(RUN, fields));
    let web: Value = node.runs("web");
    let uid = web["metadata"]["uid"].as_str().expect("has one");
    let pod = node.agent.root().join("pods").join(uid);
    let cell = node.containerd.cell().clone();
    let places = ["foreign", "containers/foreign", "volumes/kubernetes.io~empty-dir/v/foreign"].map(|place| {
        let place = pod.join(place);
        fs::create_dir_all(cell.path(&place)).expect("makes");
        cell.run("mount", &["--bind", &precious.display().to_string(), &place.display().to_string()]).expect("mounts");
        place
    });
    let there =
        || places.iter().all(|place| fs::read_to_string(cell.path(place).join("data")).is_ok_and(|t| t == "data"));
    assert!(there());
    node.remove("web");
    node.told("is mounted in the pod's directory by somebody else");
    node.agent.kill();
    node.agent.start();
    node.add(&Manifest::job("other").main("echo ran", ""));
    assert_eq!(node.output("other"), "ran");
    assert!(there());
    node.remove("other");
    for place in &places {
        cell.run("umount", &[&place.display().to_string()]).expect("unmounts");
    }
    node.nothing_left();
    assert_eq!(fs::read_to_string(precious.join("data")).expect("is there"), "data");
}
