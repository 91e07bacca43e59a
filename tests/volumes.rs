//! Volumes: what containers see of them, what they are on the node, and that they go with the pod.

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use cleat::cri::proto::runtime::RuntimeHandlerFeatures;
use serde_json::Value;
use support::manifest::Manifest;
use support::node::{Node, SOON, entries};
use support::{Agent, FakeCri, HugePages, eventually};

fn object(kind: &str, name: &str, rest: &str) -> String {
    format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\n{rest}\n")
}

/// The directory of a pod below the agent's, with what is mounted in it.
fn directory(node: &Node, pod: &Value) -> PathBuf {
    let uid = pod["metadata"]["uid"].as_str().expect("has one");
    node.containerd.cell().path(node.agent.root().join("pods").join(uid))
}

fn mounts_of_pods(node: &Node) -> Vec<PathBuf> {
    node.containerd.cell().mounts_below(&node.agent.root().join("pods"))
}

#[test]
fn empty_directories() {
    let node = Node::start();
    let volumes = "volumes: [{name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory, sizeLimit: 8Mi}},
        {name: rest, emptyDir: {medium: Memory}}]";
    let mounts = "volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}, {name: rest, mountPath: /rest}]";
    let limit = format!("{mounts}, resources: {{limits: {{memory: 64Mi}}}}");
    let look = "stat -c '%a %u %g' /disk /memory /rest; grep -c -e '^tmpfs /memory tmpfs rw' -e '^tmpfs /rest tmpfs rw' /proc/mounts
        df -k /memory /rest | awk '/tmpfs/ {print $2}'";
    node.add(&Manifest::job("plain").spec(volumes).main(look, &limit));
    let group = "securityContext: {fsGroup: 4711, runAsUser: 1000}";
    let writes = format!("{look}; echo x >/disk/f; echo x >/memory/f; stat -c '%u %g' /disk/f /memory/f");
    node.add(&Manifest::job("grouped").spec(volumes).spec(group).main(&writes, &limit));
    // They are the pod's: of all its containers, and over their restarts.
    let once = "cat /disk/f /memory/f 2>/dev/null && sleep 1000; echo first >/disk/f; echo second >/memory/f; exit 1";
    let other = "while [ ! -e /disk/f ] || [ ! -e /memory/f ]; do sleep 0.1; done; cat /disk/f /memory/f; sleep 1000";
    node.add(&Manifest::pod("shared").spec(volumes).main(once, mounts).container("other", other, mounts));

    assert_eq!(node.output("plain"), "777 0 0\n1777 0 0\n1777 0 0\n2\n8192\n65536");
    let want = "2777 0 4711\n3777 0 4711\n3777 0 4711\n2\n8192\n65536\n1000 4711\n1000 4711";
    assert_eq!(node.output("grouped"), want);
    let shared = node.agent.wait_pod("shared", SOON, |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1);
    node.says(&shared, "main", 1, "first\nsecond");
    node.says(&shared, "other", 0, "first\nsecond");
    let on_node = directory(&node, &shared).join("volumes/kubernetes.io~empty-dir/disk/f");
    assert_eq!(fs::read_to_string(on_node).expect("is there"), "first\n");
    for name in ["plain", "grouped", "shared"] {
        node.remove(name);
    }
    node.nothing_left();
}

#[test]
fn host_paths_by_their_types() {
    let node = Node::start();
    let dir = node.shared("paths");
    let at = |name: &str| dir.join(name).display().to_string();
    fs::create_dir(at("dir")).expect("makes");
    fs::write(at("file"), "text").expect("writes");
    std::os::unix::fs::symlink("dir", at("link")).expect("links");
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("binds");
    let cell = node.containerd.cell();
    for (name, kind) in [("block", "b"), ("char", "c")] {
        cell.run("mknod", &[&at(name), kind, "7", "7"]).expect("makes a device");
    }
    let good = [
        ("dir", "", "directory"),
        ("not-there", "", "directory"),
        ("dir", "Directory", "directory"),
        ("link", "Directory", "directory"),
        ("made/deep", "DirectoryOrCreate", "directory"),
        ("file", "File", "regular file"),
        ("new", "FileOrCreate", "regular empty file"),
        ("socket", "Socket", "socket"),
        ("char", "CharDevice", "character special file"),
        ("block", "BlockDevice", "block special file"),
    ];
    let volume = |i: usize, name: &str, kind: &str| {
        let kind = if kind.is_empty() { String::new() } else { format!(", type: {kind}") };
        format!("{{name: v{i}, hostPath: {{path: {}{kind}}}}}", at(name))
    };
    let volumes: Vec<_> = good.iter().enumerate().map(|(i, (name, kind, _))| volume(i, name, kind)).collect();
    let mounts: Vec<_> = (0..good.len()).map(|i| format!("{{name: v{i}, mountPath: /v/{i}}}")).collect();
    let spec = format!("volumes: [{}]", volumes.join(", "));
    let fields = format!("volumeMounts: [{}]", mounts.join(", "));
    let last = good.len() - 1;
    node.add(
        &Manifest::job("good")
            .spec(&spec)
            .main(&format!("for i in $(seq 0 {last}); do stat -c %F /v/$i; done"), &fields),
    );
    let bad = [
        ("file", "Directory", "a directory"),
        ("gone", "Directory", "a directory"),
        ("file", "DirectoryOrCreate", "a directory"),
        ("dir", "File", "a file"),
        ("gone", "File", "a file"),
        ("dir", "FileOrCreate", "a file"),
        ("file", "Socket", "a socket"),
        ("block", "CharDevice", "a character device"),
        ("char", "BlockDevice", "a block device"),
    ];
    for (i, (name, kind, _)) in bad.iter().enumerate() {
        let spec = format!("volumes: [{}]", volume(i, name, kind));
        let mount = format!("volumeMounts: [{{name: v{i}, mountPath: /v}}]");
        node.add(&Manifest::job(&format!("bad{i}")).spec(&spec).main("echo ran", &mount));
    }
    let want: Vec<_> = good.iter().map(|(.., kind)| *kind).collect();
    assert_eq!(node.output("good"), want.join("\n"));
    let mode = |name: &str| fs::metadata(at(name)).expect("is there").mode() & 0o7777;
    assert_eq!((mode("made/deep"), mode("new")), (0o755, 0o644));
    for (i, (name, _, what)) in bad.iter().enumerate() {
        node.told(&format!(
            "default/bad{i}-edge-1: MountVolume.SetUp failed for volume \"v{i}\" : hostPath {} is not {what}",
            at(name)
        ));
        assert_eq!(node.waits(&format!("bad{i}"), "ContainerCreating"), "");
    }
    assert!(!dir.join("gone").exists());
    // What is wanted comes.
    fs::create_dir(at("gone")).expect("makes");
    assert_eq!(node.output("bad1"), "ran");
}

/// downwardAPI and projected volumes: paths, modes, what is optional and what is not.
#[test]
fn files_of_several_sources() {
    let node = Node::start();
    node.write("map", &object("ConfigMap", "map", "data: {a: from-map, b: not-asked-for}"));
    node.write("secret", &object("Secret", "secret", "stringData: {s: from-secret}"));
    let items = "items: [{path: name, fieldRef: {fieldPath: metadata.name}},
        {path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: deep/uid, fieldRef: {fieldPath: metadata.uid}, mode: 0444},
        {path: memory, resourceFieldRef: {containerName: main, resource: limits.memory, divisor: 1Mi}},
        {path: notes, fieldRef: {fieldPath: \"metadata.annotations['z']\"}}]";
    let all = format!(
        "{{name: all, projected: {{defaultMode: 0440, sources: [
            {{configMap: {{name: map, items: [{{key: a, path: x/map, mode: 0400}}]}}}}, {{secret: {{name: secret}}}},
            {{downwardAPI: {{{items}}}}}, {{configMap: {{name: none, optional: true}}}}, {{secret: {{name: none, optional: true}}}}]}}}}"
    );
    let rest =
        "{name: down, downwardAPI: {ITEMS, defaultMode: 0400}}, {name: maybe, configMap: {name: none, optional: true}},
        {name: some, configMap: {name: map, optional: true, items: [{key: none, path: none}, {key: a, path: a}]}}"
            .replace("ITEMS", items);
    let fields =
        "volumeMounts: [{name: all, mountPath: /all}, {name: down, mountPath: /down}, {name: maybe, mountPath: /maybe},
        {name: some, mountPath: /some}], resources: {limits: {memory: 64Mi}}";
    let script = "cd /all; for f in name labels memory notes x/map s; do echo \"$(cat $f) $(stat -L -c %a $f)\"; done; stat -L -c %a deep/uid
        cd /down; cat deep/uid; echo; stat -L -c %a name deep/uid; ls /maybe /some; grep -o '^tmpfs /down tmpfs ro' /proc/mounts";
    let metadata = "labels: {b: two, a: \"1\"}, annotations: {z: last}";
    node.add(
        &Manifest::job("files").metadata(metadata).spec(&format!("volumes: [{all}, {rest}]")).main(script, fields),
    );
    let missing = [
        ("configMap: {name: none}", "configmap \"none\" not found"),
        ("secret: {secretName: none}", "secret \"none\" not found"),
        ("configMap: {name: map, items: [{key: none, path: x}]}", "references non-existent config key: none"),
        (
            "projected: {sources: [{secret: {name: secret, items: [{key: none, path: x}]}}]}",
            "references non-existent secret key: none",
        ),
        (
            "downwardAPI: {items: [{path: x, resourceFieldRef: {containerName: other, resource: limits.cpu}}]}",
            "x: container \"other\" is not there",
        ),
    ];
    for (i, (source, _)) in missing.iter().enumerate() {
        let spec = format!("volumes: [{{name: v, {source}}}]");
        node.add(
            &Manifest::job(&format!("missing{i}")).spec(&spec).main("true", "volumeMounts: [{name: v, mountPath: /v}]"),
        );
    }
    let text = node.output("files");
    let uid = node.agent.wait_pod("files", SOON, |_| true)["metadata"]["uid"].as_str().expect("has one").to_owned();
    let want = format!(
        "files-edge-1 440\na=\"1\"\nb=\"two\" 440\n64 440\nlast 440\nfrom-map 400\nfrom-secret 440\n444\n{uid}\n400\n444\n/maybe:\n\n/some:\na\ntmpfs /down tmpfs ro"
    );
    assert_eq!(text, want);
    for (i, (source, why)) in missing.iter().enumerate() {
        let told = format!("default/missing{i}-edge-1: MountVolume.SetUp failed for volume \"v\" : {why}");
        if source.starts_with("downwardAPI") && !node.agent.log().contains(&told) {
            continue; // The manifest itself may be refused for it.
        }
        node.told(&told);
    }
}

/// Kinds that need an API server or a driver: the manifest is refused, and says which field it is.
#[test]
fn what_is_not_served_is_refused() {
    let node = Node::start();
    let kinds = [
        ("nfs", "nfs: {server: s, path: /p}", "is not served here"),
        (
            "iscsi",
            "iscsi: {targetPortal: '192.0.2.1:3260', iqn: 'iqn.2001-04.com.example:d', lun: 0}",
            "is not served here",
        ),
        ("csi", "csi: {driver: d.example.org}", "is not served here"),
        (
            "ephemeral",
            "ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}",
            "an API server makes its claim",
        ),
    ];
    for (kind, source, _) in kinds {
        let spec = format!("volumes: [{{name: v, {source}}}]");
        node.add(&Manifest::pod(kind).spec(&spec).main("sleep 1000", "volumeMounts: [{name: v, mountPath: /v}]"));
    }
    node.add(&Manifest::job("good").main("echo ran", ""));
    assert_eq!(node.output("good"), "ran");
    for (kind, _, why) in kinds {
        node.told(&format!("/{kind}.yaml:6: spec.volumes[0].{kind}: Forbidden: "));
        assert!(node.agent.log().contains(why));
    }
    assert_eq!(node.agent.pods().len(), 1);
}

#[test]
fn parts_of_volumes() {
    let node = Node::start();
    let dir = node.shared("parts");
    let spec = format!(
        "volumes: [{{name: d, hostPath: {{path: {}}}}}, {{name: e, emptyDir: {{}}}}]\nsecurityContext: {{fsGroup: 4711}}",
        dir.display()
    );
    let prepare = "mkdir -p /d/dir/sub && echo one >/d/dir/f && echo two >/d/dir/sub/f && ln -s dir /d/inside";
    let fields = "env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}], volumeMounts: [
        {name: d, mountPath: /whole, readOnly: true}, {name: d, mountPath: /dir, subPath: dir, readOnly: true},
        {name: d, mountPath: /file, subPath: dir/sub/f}, {name: d, mountPath: /new, subPath: not/yet},
        {name: d, mountPath: /link, subPath: inside/sub}, {name: d, mountPath: /own, subPathExpr: by-name/$(POD)},
        {name: e, mountPath: /empty, subPath: a/b}]";
    let script = "cat /dir/f /file /link/f; for d in /whole /dir; do touch $d/x 2>&1 | grep -o 'Read-only'; done
        echo made >/new/g; echo mine >/own/g; echo three >/file; stat -c '%a %g' /empty; ls /own";
    node.add(
        &Manifest::job("parts")
            .spec(&spec)
            .init("prepare", prepare, "volumeMounts: [{name: d, mountPath: /d}]")
            .main(script, fields),
    );
    assert_eq!(node.output("parts"), "one\ntwo\ntwo\nRead-only\nRead-only\n2777 4711\ng");
    let text = |path: &str| fs::read_to_string(dir.join(path)).expect("is there");
    assert_eq!(
        (text("not/yet/g"), text("by-name/parts-edge-1/g"), text("dir/sub/f")),
        ("made\n".into(), "mine\n".into(), "three\n".into())
    );
    let bad = [
        ("variable", "subPathExpr: $(NONE)/x", "subPathExpr refers to"),
        ("absolute", "subPathExpr: $(ROOT)", "subPath must be relative"),
        ("up", "subPathExpr: $(UP)/x", "subPath must be relative and must not contain '..'"),
    ];
    for (name, part, _) in bad {
        let fields = format!(
            "env: [{{name: ROOT, value: /etc}}, {{name: UP, value: a/../..}}], volumeMounts: [{{name: e, mountPath: /v, {part}}}]"
        );
        node.add(&Manifest::pod(name).spec("volumes: [{name: e, emptyDir: {}}]").main("sleep 1000", &fields));
    }
    for (name, _, why) in bad {
        let message = node.waits(name, "CreateContainerConfigError");
        assert!(message.contains(why), "{message}");
    }
    ["parts", "variable", "absolute", "up"].iter().for_each(|name| node.remove(name));
    node.nothing_left();
}

/// Whether mounts that are made later show on the other side.
#[test]
fn mount_propagation() {
    let node = Node::start();
    let dir = node.shared("mounts");
    let cell = node.containerd.cell();
    let spec = format!("volumes: [{{name: d, hostPath: {{path: {}}}}}]", dir.display());
    let pod = |mode: &str, more: &str| {
        let fields = format!("volumeMounts: [{{name: d, mountPath: /d, mountPropagation: {mode}}}]{more}");
        Manifest::pod(&mode.to_lowercase()).spec(&spec).main("sleep 1000", &fields)
    };
    node.add(&pod("None", ""));
    node.add(&pod("HostToContainer", ", securityContext: {privileged: true}"));
    node.add(&pod("Bidirectional", ", securityContext: {privileged: true}"));
    let [none, one_way, both] = ["none", "hosttocontainer", "bidirectional"].map(|name| node.runs(name));
    fs::create_dir(dir.join("late")).expect("makes");
    let late = dir.join("late").display().to_string();
    cell.run("mount", &["-t", "tmpfs", "tmpfs", &late]).expect("mounts");
    cell.run("touch", &[&format!("{late}/seen")]).expect("writes");
    assert_eq!(node.exec(&none, "main", "ls /d/late"), Ok(String::new()));
    assert_eq!(node.exec(&one_way, "main", "ls /d/late"), Ok("seen".to_owned()));
    assert_eq!(node.exec(&both, "main", "ls /d/late"), Ok("seen".to_owned()));
    let mount = |name: &str| format!("mkdir /d/{name} && mount -t tmpfs tmpfs /d/{name} && touch /d/{name}/seen");
    node.exec(&one_way, "main", &mount("one")).expect("mounts");
    node.exec(&both, "main", &mount("two")).expect("mounts");
    let on_node = |name: &str| cell.path(dir.join(name)).join("seen").exists();
    assert!(!on_node("one"), "it goes one way");
    assert!(on_node("two"));
    assert_eq!(node.exec(&one_way, "main", "ls /d/two"), Ok("seen".to_owned()));
    for name in ["two", "late"] {
        cell.run("umount", &[dir.join(name).to_str().expect("plain")]).expect("unmounts");
    }
}

/// recursiveReadOnly where the runtime doesn't have it, and what is asked of one that has.
#[test]
fn recursively_read_only() {
    let volume = "volumes: [{name: e, emptyDir: {}}]";
    let mount =
        |mode: &str| format!("volumeMounts: [{{name: e, mountPath: /e, readOnly: true, recursiveReadOnly: {mode}}}]");
    let node = Node::start();
    node.add(
        &Manifest::job("possible").spec(volume).main("touch /e/x 2>&1 | grep -o 'Read-only'", &mount("IfPossible")),
    );
    node.add(&Manifest::pod("enabled").spec(volume).main("sleep 1000", &mount("Enabled")));
    assert_eq!(node.output("possible"), "Read-only");
    let message = node.waits("enabled", "CreateContainerConfigError");
    assert!(message.contains("recursiveReadOnly"), "{message}");

    let cri = FakeCri::start();
    let features = RuntimeHandlerFeatures { recursive_read_only_mounts: true, ..Default::default() };
    cri.edit(|model| model.handlers.insert(String::new(), features));
    let mut agent = Agent::on_host(&cri);
    agent.start();
    for mode in ["IfPossible", "Enabled", "Disabled"] {
        agent.write_manifest(
            &format!("{mode}.yaml"),
            &Manifest::pod(&mode.to_lowercase()).spec(volume).main("", &mount(mode)).to_string(),
        );
    }
    for (mode, want) in [("IfPossible", true), ("Enabled", true), ("Disabled", false)] {
        agent.wait_pod(&mode.to_lowercase(), SOON, |pod| pod["status"]["phase"] == "Running");
        let pod = format!("{}-edge-1", mode.to_lowercase());
        let mounts = cri.look(|model| model.container(&pod).expect("is there").config.mounts.clone());
        let mount = mounts.iter().find(|m| m.container_path == "/e").expect("is there");
        assert!(mount.readonly && mount.recursive_read_only == want, "{mode}: {mount:?}");
    }
}

/// A claim with `volumeMode: Block` is a device in the container.
#[test]
fn block_devices() {
    let node = Node::start();
    let device = node.shared("devices").join("disk");
    node.containerd.cell().run("mknod", &[device.to_str().expect("plain"), "b", "7", "7"]).expect("makes a device");
    let volume = format!(
        "spec: {{accessModes: [ReadWriteOnce], capacity: {{storage: 1Gi}}, volumeMode: Block, local: {{path: {}}},
          nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: kubernetes.io/os, operator: Exists}}]}}]}}}}}}",
        device.display()
    );
    let claim = "spec: {accessModes: [ReadWriteOnce], volumeMode: Block, resources: {requests: {storage: 1Gi}}}";
    node.write(
        "disk",
        &[object("PersistentVolume", "disk", &volume), object("PersistentVolumeClaim", "disk", claim)].join("---\n"),
    );
    let claims = "volumes: [{name: v, persistentVolumeClaim: {claimName: disk}}]";
    let script = "stat -c '%F %t:%T' /dev/mine; cat /dev/mine >/dev/null && echo may be read";
    node.add(&Manifest::job("block").spec(claims).main(script, "volumeDevices: [{name: v, devicePath: /dev/mine}]"));
    node.add(&Manifest::pod("mounts").spec(claims).main("sleep 1000", "volumeMounts: [{name: v, mountPath: /v}]"));
    assert_eq!(node.output("block"), "block special file 7:7\nmay be read");
    let message = node.waits("mounts", "CreateContainerConfigError");
    assert!(message.contains("volume \"v\""), "{message}");
}

/// kubernetes#35406: what a pod wrote is freed when it has ended, though the pod is still there.
#[test]
fn kubernetes_35406_an_empty_dir_is_freed_with_the_pods_end() {
    let mut node = Node::start();
    let volumes = "volumes: [{name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory}}, {name: map, configMap: {name: map}}]";
    let mounts = "volumeMounts: [{name: disk, mountPath: /disk, subPath: part}, {name: memory, mountPath: /memory}, {name: map, mountPath: /map}]";
    node.write("map", &object("ConfigMap", "map", "data: {a: b}"));
    let script = "dd if=/dev/zero of=/disk/f bs=1M count=8 2>/dev/null; echo x >/memory/f; echo wrote";
    node.add(&Manifest::job("good").spec(volumes).main(script, mounts));
    node.add(&Manifest::job("bad").spec(volumes).main(&format!("{script}; exit 3"), mounts));
    node.add(&Manifest::job("late").spec(volumes).spec("activeDeadlineSeconds: 1").main("sleep 1000", mounts));
    assert_eq!((node.output("good"), node.output("bad")), ("wrote".to_owned(), "wrote".to_owned()));
    let freed = |node: &Node, name: &str| {
        let pod =
            node.agent.wait_pod(name, SOON, |pod| ["Succeeded", "Failed"].iter().any(|p| pod["status"]["phase"] == *p));
        let directory = directory(node, &pod);
        let uid = pod["metadata"]["uid"].as_str().expect("has one").to_owned();
        eventually("freed volumes", SOON, || {
            let mounts = mounts_of_pods(node).into_iter().filter(|m| m.to_string_lossy().contains(&uid)).count();
            let left = ["volumes", "volume-subpaths"].iter().filter(|name| directory.join(name).exists()).count();
            let cgroup = node.containerd.cell().cgroups().iter().any(|path| path.contains(&uid));
            if mounts + left == 0 && !cgroup {
                Ok(())
            } else {
                Err(format!("{mounts} mounts, {left} directories, cgroup {cgroup}"))
            }
        });
        pod
    };
    for name in ["good", "bad", "late"] {
        freed(&node, name);
    }
    let before = node.agent.wait_pod("bad", SOON, |_| true);
    node.agent.kill();
    node.agent.start();
    let after = freed(&node, "bad");
    let containers = |pod: &Value| pod["status"]["containerStatuses"].clone();
    assert_eq!(containers(&after), containers(&before), "it isn't run again for it");
    assert_eq!(node.log(&after, "main", 0), "wrote", "its log is still there");
    for name in ["good", "bad", "late"] {
        node.remove(name);
    }
    node.nothing_left();
}

/// kubernetes#60987, #45464, #134075: volumes of pods that nobody knows any more are cleaned up, whatever
/// state they were left in.
#[test]
fn kubernetes_60987_orphaned_volumes_are_cleaned_up() {
    let mut node = Node::start();
    let volumes = "volumes: [{name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory}}, {name: secret, secret: {secretName: s}}]";
    let mounts = "volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory, subPath: part}, {name: secret, mountPath: /s}]";
    node.write("secret", &object("Secret", "s", "stringData: {a: b}"));
    node.add(&Manifest::pod("web").spec(volumes).main("echo x >/disk/f; sleep 1000", mounts));
    let web = node.runs("web");
    let uid = web["metadata"]["uid"].as_str().expect("has one").to_owned();
    assert!(mounts_of_pods(&node).len() >= 3);
    node.agent.kill();
    node.remove("web");
    let pods = node.agent.root().join("pods");
    let cell = node.containerd.cell();
    let seen = cell.path(&pods);
    // Neither record nor containers tell of this one, and of the next not even a good name.
    for (name, path) in
        [("lost-pod", "volumes/kubernetes.io~empty-dir/v/deep/er"), ("half-made", ".new"), ("empty", "")]
    {
        fs::create_dir_all(seen.join(name).join(path)).expect("makes");
    }
    fs::write(seen.join("lost-pod/volumes/kubernetes.io~empty-dir/v/deep/file"), "x").expect("writes");
    let memory = pods.join("lost-pod/volumes/kubernetes.io~empty-dir/m");
    fs::create_dir_all(cell.path(&memory)).expect("makes");
    cell.run("mount", &["-t", "tmpfs", "tmpfs", memory.to_str().expect("plain")]).expect("mounts");
    node.agent.start();
    node.nothing_left();
    assert_eq!(entries(&seen), 0);
    let complaints = node.agent.log().lines().filter(|line| line.contains(&uid) && line.contains("WARN")).count();
    assert!(complaints < 5, "{complaints} complaints");
}

/// kubernetes#60987: what somebody else has mounted in a pod's directory is not lost with it. The log says so
/// now and then, and when it is unmounted the rest goes.
#[test]
fn kubernetes_60987_foreign_mounts_are_left_alone() {
    let node = Node::start();
    let precious = node.shared("precious");
    fs::create_dir(precious.join("deep")).expect("makes");
    fs::write(precious.join("deep/data"), "data").expect("writes");
    let volumes = "volumes: [{name: e, emptyDir: {}}, {name: m, emptyDir: {medium: Memory}}]";
    let mounts = "volumeMounts: [{name: e, mountPath: /e}, {name: m, mountPath: /m, subPath: part}]";
    node.add(
        &Manifest::pod("web").spec(volumes).main("mkdir -p /e/x /m/y; echo big >/e/big; echo made; sleep 1000", mounts),
    );
    let web = node.runs("web");
    node.says(&web, "main", 0, "made");
    let uid = web["metadata"]["uid"].as_str().expect("has one");
    let volumes = node.agent.root().join("pods").join(uid).join("volumes/kubernetes.io~empty-dir");
    let cell = node.containerd.cell();
    let mount = |at: &str| {
        let at = volumes.join(at).display().to_string();
        cell.run("mount", &["--bind", precious.to_str().expect("plain"), &at]).expect("mounts");
        at
    };
    let places = [mount("e/x"), mount("m/part/y")];
    node.remove("web");
    node.told(
        "is mounted in the pod's directory by somebody else; what is there is left as it is until that is unmounted",
    );
    let seen = cell.path(&volumes);
    eventually("the end of the pod's own data", SOON, || {
        if seen.join("e/big").exists() { Err("it is there".to_owned()) } else { Ok(()) }
    });
    // Other pods come and go meanwhile, and nobody is told twice.
    node.add(&Manifest::job("other").main("echo ran", ""));
    assert_eq!(node.output("other"), "ran");
    node.remove("other");
    node.agent.wait_gone("other", SOON);
    for place in &places {
        assert_eq!(fs::read_to_string(cell.path(place).join("deep/data")).expect("is there"), "data");
    }
    let told = node.agent.log().lines().filter(|line| line.contains("by somebody else")).count();
    assert!(told <= 4, "it was told {told} times");
    for place in &places {
        cell.run("umount", &[place]).expect("unmounts");
    }
    node.nothing_left();
    assert_eq!(fs::read_to_string(precious.join("deep/data")).expect("is there"), "data");
}

/// Pages of memory that the kernel has set aside.
#[test]
fn huge_pages() {
    let _pages = HugePages::at_least(4);
    let node = Node::start();
    let volumes =
        "volumes: [{name: h, emptyDir: {medium: HugePages}}, {name: named, emptyDir: {medium: HugePages-2Mi}}]";
    let fields = "volumeMounts: [{name: h, mountPath: /h}, {name: named, mountPath: /named}],
        resources: {limits: {hugepages-2Mi: 4Mi, memory: 64Mi, cpu: 100m}}";
    let script =
        "grep -o -e '^[^ ]* /h hugetlbfs' -e '^[^ ]* /named hugetlbfs' /proc/mounts; grep -c pagesize=2M /proc/mounts";
    node.add(&Manifest::job("pages").spec(volumes).main(script, fields));
    assert_eq!(node.output("pages"), "hugetlbfs /h hugetlbfs\nhugetlbfs /named hugetlbfs\n2");
    node.remove("pages");
    node.nothing_left();
}
