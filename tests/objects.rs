//! ConfigMaps, Secrets, claims, volumes and classes in the manifest directory, and what pods get of them.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use support::manifest::Manifest;
use support::node::{Node, SOON};
use support::{Cgroup, eventually};

fn object(kind: &str, name: &str, rest: &str) -> String {
    format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\n{rest}\n")
}

const MODES: &str = "stat -L -c '%a %g' ";

/// kubernetes#27312: the kubelet has no ConfigMaps for static pods, and forbids to name one.
#[test]
fn kubernetes_27312_config_maps_in_the_manifest_directory() {
    let node = Node::start();
    let map = object("ConfigMap", "map", "data: {a: one, b: two}\nbinaryData: {bin: AP8=}");
    let secret = object("Secret", "secret", "data: {user: YWRtaW4=}\nstringData: {password: hunter2}");
    node.write("objects", &format!("{map}---\n{secret}"));
    let volumes = "volumes: [{name: map, configMap: {name: map}}, {name: secret, secret: {secretName: secret}},
        {name: some, secret: {secretName: secret, defaultMode: 0400, items: [{key: user, path: deep/er/name}]}}]";
    let mounts = "volumeMounts: [{name: map, mountPath: /map}, {name: secret, mountPath: /secret},
        {name: some, mountPath: /some}, {name: map, mountPath: /a, subPath: a}]";
    let script = format!(
        "cat /map/a /map/b /secret/user /secret/password /some/deep/er/name /a; echo; od -An -tx1 /map/bin
        ls /map /some; readlink /map/a; {MODES} /map/a /secret/password /some/deep/er/name
        grep -o -e '^tmpfs /secret tmpfs ro' -e '^tmpfs /some tmpfs ro' -e '^tmpfs /map' /proc/mounts
        touch /map/x /secret/x 2>&1 | grep -c 'Read-only file system'"
    );
    let group = "securityContext: {fsGroup: 4711}";
    node.add(&Manifest::job("plain").spec(volumes).main(&script, mounts));
    node.add(&Manifest::job("grouped").spec(volumes).spec(group).main(&script, mounts));
    // What is of another namespace is not for them.
    let elsewhere = Manifest::pod("elsewhere").metadata("namespace: other").spec(volumes).main("sleep 1000", mounts);
    node.add(&elsewhere);
    let want = |modes: &str| {
        format!(
            "onetwoadminhunter2adminone\n 00 ff\na\nb\nbin\n\ndeep\n..data/a\n{modes}\ntmpfs /secret tmpfs ro\ntmpfs /some tmpfs ro\n2"
        )
    };
    let lines = |text: String| text.replace("/map:\n", "").replace("/some:\n", "");
    assert_eq!(lines(node.output("plain")), want("644 0\n644 0\n400 0"));
    assert_eq!(lines(node.output("grouped")), want("644 4711\n644 4711\n440 4711"));
    node.told("MountVolume.SetUp failed for volume \"map\" : configmap \"map\" not found");
    let elsewhere = node.agent.wait_pod("elsewhere", SOON, |_| true);
    assert_eq!(elsewhere["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
}

/// The reader sees the old files or the new ones, never some of both; a variable and a mounted part stay.
#[test]
fn a_change_comes_to_volumes_as_a_whole() {
    let node = Node::start();
    let map = |n: u32| object("ConfigMap", "map", &format!("data: {{a: '{n}', b: '{n}'}}"));
    node.write("map", &map(0));
    let script = "while true; do
        (cd /map/..data && a=$(cat a 2>/dev/null) && b=$(cat b 2>/dev/null) && [ \"$a\" != \"$b\" ] && echo torn $a $b >>/tmp/torn)
        a=$(cat /map/a) || echo gone >>/tmp/torn; [ \"$a\" = \"$last\" ] || { echo $a >>/tmp/seen; last=$a; }
        done";
    let fields = "volumeMounts: [{name: map, mountPath: /map}, {name: map, mountPath: /part, subPath: a}],
        env: [{name: A, valueFrom: {configMapKeyRef: {name: map, key: a}}}]";
    node.add(&Manifest::pod("web").spec("volumes: [{name: map, configMap: {name: map}}]").main(script, fields));
    let web = node.runs("web");
    for n in 1..=20 {
        node.write("map", &map(n));
        let start = Instant::now();
        eventually("the new value", SOON, || match node.exec(&web, "main", "cat /map/a")? {
            value if value == n.to_string() => Ok(()),
            other => Err(other),
        });
        assert!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());
    }
    let rest = "cat /part; echo; tr '\\0' '\\n' </proc/1/environ | grep ^A=; ls -A /map | wc -l; cat /tmp/torn 2>/dev/null; true";
    assert_eq!(node.exec(&web, "main", rest).expect("runs"), "0\nA=0\n4", "..data, what it points to, a and b");
    let seen = node.exec(&web, "main", "sort -n -c /tmp/seen && tail -n 1 /tmp/seen").expect("in order");
    assert_eq!(seen, "20");
    // A key that goes takes its file with it, one that comes brings one.
    node.write("map", &object("ConfigMap", "map", "data: {b: new, c: newer}"));
    eventually("the new keys", SOON, || match node.exec(&web, "main", "ls /map; cat /map/*")?.as_str() {
        "b\nc\nnewnewer" => Ok(()),
        other => Err(other.to_owned()),
    });
}

/// An object that goes while a pod uses it leaves the pod what it had; what is broken keeps the last good.
#[test]
fn what_is_lost_or_broken_takes_nothing_from_pods() {
    let mut node = Node::start();
    let map = |value: &str| object("ConfigMap", "map", &format!("data: {{a: {value}}}"));
    let volumes = "volumes: [{name: map, configMap: {name: map}}]";
    let mount = "volumeMounts: [{name: map, mountPath: /map}]";
    let pod = |name: &str| Manifest::pod(name).spec(volumes).main("cat /map/a; echo; sleep 1000", mount);
    node.write("map", &map("good"));
    node.add(&pod("first"));
    let first = node.runs("first");
    node.write("map", "kind: [");
    node.told("/map.yaml:");
    node.add(&pod("second"));
    node.says(&node.runs("second"), "main", 0, "good");
    // Also when the agent has never seen the good one.
    node.agent.kill();
    node.agent.start();
    node.add(&pod("third"));
    node.says(&node.runs("third"), "main", 0, "good");
    node.remove("map");
    node.told(
        "default/first-edge-1: FailedMount: MountVolume.SetUp failed for volume \"map\" : configmap \"map\" not found",
    );
    node.add(&pod("fourth"));
    node.told("default/fourth-edge-1: MountVolume.SetUp failed for volume \"map\" : configmap \"map\" not found");
    assert_eq!(node.exec(&first, "main", "cat /map/a"), Ok("good".to_owned()));
    node.write("map", &map("back"));
    node.says(&node.runs("fourth"), "main", 0, "back");
    eventually("the new value", SOON, || match node.exec(&first, "main", "cat /map/a")?.as_str() {
        "back" => Ok(()),
        other => Err(other.to_owned()),
    });
}

#[test]
fn immutable_and_twice_told_objects() {
    let node = Node::start();
    node.write("map", &object("ConfigMap", "map", "data: {a: first}\nimmutable: true"));
    let from = "env: [{name: A, valueFrom: {configMapKeyRef: {name: map, key: a}}}]";
    node.add(&Manifest::job("one").main("echo $A", from));
    assert_eq!(node.output("one"), "first");
    node.write("map", &object("ConfigMap", "map", "data: {a: other}\nimmutable: true"));
    node.told("map.yaml: ConfigMap default/map is immutable");
    node.write("again", &object("ConfigMap", "map", "data: {a: twin}"));
    node.told("again.yaml: ConfigMap default/map is that of");
    node.add(&Manifest::job("two").main("echo $A", from));
    assert_eq!(node.output("two"), "first");
    node.remove("map");
    node.add(&Manifest::job("three").main("echo $A", from));
    assert_eq!(node.output("three"), "twin");
}

fn claim(name: &str, class: &str, size: &str) -> String {
    let spec = format!(
        "accessModes: [ReadWriteOnce], storageClassName: '{class}', resources: {{requests: {{storage: {size}}}}}"
    );
    object("PersistentVolumeClaim", name, &format!("spec: {{{spec}}}"))
}

fn volume(name: &str, class: &str, size: &str, source: &str) -> String {
    let spec =
        format!("accessModes: [ReadWriteOnce], storageClassName: '{class}', capacity: {{storage: {size}}}, {source}");
    object("PersistentVolume", name, &format!("spec: {{{spec}}}"))
}

#[test]
fn claims_and_their_volumes() {
    let mut node = Node::start();
    let disk = node.shared("disk");
    let at = |name: &str| {
        let path = disk.join(name);
        fs::create_dir(&path).expect("makes a directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("changes");
        path.display().to_string()
    };
    let here = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [edge-1]}]}]}}";
    let there = here.replace("edge-1", "edge-2");
    let objects = [
        volume("big", "disk", "100Gi", &format!("local: {{path: {}}}, {here}", at("big"))),
        volume("small", "disk", "2Gi", &format!("local: {{path: {}}}, {here}", at("small"))),
        volume("elsewhere", "disk", "1Gi", &format!("local: {{path: {}}}, {there}", at("elsewhere"))),
        volume("host", "", "1Gi", &format!("hostPath: {{path: {}/made, type: DirectoryOrCreate}}", disk.display())),
        claim("data", "disk", "1Gi"),
        claim("host", "", "1Gi"),
        claim("more", "disk", "200Gi"),
    ];
    node.write("disks", &objects.join("---\n"));
    let uses = |name: &str, claim: &str, more: &str, script: &str| {
        let volumes = format!("volumes: [{{name: v, persistentVolumeClaim: {{claimName: {claim}{more}}}}}]");
        Manifest::job(name).spec(&volumes).main(script, "volumeMounts: [{name: v, mountPath: /v}]")
    };
    node.add(&uses("writes", "data", "", "echo kept >/v/file; echo done"));
    node.add(&uses("host", "host", "", "echo x >/v/file; echo done"));
    node.add(&uses("waits", "more", "", "echo x"));
    node.add(&uses("lost", "none", "", "echo x"));
    assert_eq!((node.output("writes"), node.output("host")), ("done".to_owned(), "done".to_owned()));
    assert_eq!(fs::read_to_string(disk.join("small/file")).expect("is there"), "kept\n", "the smallest that fits");
    assert_eq!(fs::read_to_string(disk.join("made/file")).expect("is there"), "x\n");
    node.told("persistentvolumeclaim \"more\" is not bound: no persistent volume with storage class \"disk\"");
    node.told("persistentvolumeclaim \"none\" not found");

    // A better one that comes later changes nothing, also after a restart.
    node.write("better", &volume("better", "disk", "1Gi", &format!("local: {{path: {}}}, {here}", at("better"))));
    node.write("larger", &volume("larger", "disk", "300Gi", &format!("local: {{path: {}}}, {here}", at("larger"))));
    assert_eq!(node.output("waits"), "x");
    node.agent.kill();
    node.agent.start();
    let script = "cat /v/file; touch /v/new 2>&1 | grep -o 'Read-only'";
    node.add(&uses("reads", "data", ", readOnly: true", script));
    assert_eq!(node.output("reads"), "kept\nRead-only");
    for name in ["writes", "host", "waits", "lost", "reads"] {
        node.remove(name);
    }
    node.nothing_left();
    assert_eq!(fs::read_to_string(disk.join("small/file")).expect("is still there"), "kept\n");
}

/// fsGroup of a claim's volume: all that is in it, or nothing where its root is the group's already.
#[test]
fn the_group_of_a_claims_volume() {
    let node = Node::start();
    let disk = node.shared("disk");
    fs::write(disk.join("old"), "x").expect("writes");
    fs::set_permissions(disk.join("old"), fs::Permissions::from_mode(0o600)).expect("changes");
    let here = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: Exists}]}]}}";
    let local = format!("local: {{path: {}}}, {here}", disk.display());
    node.write("disk", &[volume("disk", "", "1Gi", &local), claim("data", "", "1Gi")].join("---\n"));
    let uses = |name: &str, policy: &str, script: &str| {
        let context = format!("securityContext: {{fsGroup: 4711, fsGroupChangePolicy: {policy}, runAsUser: 1000}}");
        let volumes = "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]";
        Manifest::job(name).spec(volumes).spec(&context).main(script, "volumeMounts: [{name: v, mountPath: /v}]")
    };
    let look = "cd /v; stat -c '%n %a %u %g' . *";
    node.add(&uses("first", "OnRootMismatch", &format!("echo y >/v/new; {look}")));
    assert_eq!(node.output("first"), ". 2775 0 4711\nnew 644 1000 4711\nold 660 0 4711");
    fs::write(disk.join("later"), "x").expect("writes");
    fs::set_permissions(disk.join("later"), fs::Permissions::from_mode(0o600)).expect("changes");
    std::os::unix::fs::chown(disk.join("later"), Some(0), Some(0)).expect("changes");
    node.add(&uses("second", "OnRootMismatch", &format!("{look} | grep later")));
    assert_eq!(node.output("second"), "later 600 0 0");
    node.add(&uses("third", "Always", &format!("{look} | grep later")));
    assert_eq!(node.output("third"), "later 660 0 4711");
}

/// A RuntimeClass: its handler runs the pod, and its overhead is in the pod's cgroup.
#[test]
fn a_runtime_class() {
    let node = Node::start();
    let cell = node.containerd.cell();
    let mark = node.containerd.other_handler();
    let limits = "resources: {limits: {cpu: 100m, memory: 32Mi}}";
    let pod = |name: &str| Manifest::pod(name).spec("runtimeClassName: vm").main("sleep 1000", limits);
    node.add(&pod("early"));
    node.add(&Manifest::pod("plain").main("sleep 1000", limits));
    node.told("FailedCreatePodSandBox: RuntimeClass \"vm\" not found");
    node.runs("plain");
    assert!(!mark.exists());
    let class = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: vm}\nhandler: other\noverhead: {podFixed: {cpu: 50m, memory: 16Mi}}\n";
    node.write("class", class);
    let early = node.runs("early");
    assert!(mark.exists(), "the other handler has run it");
    let cgroup = Cgroup::of_pod(cell, &early);
    assert_eq!(cgroup.memory(), Some(48 << 20));
    assert_eq!(cgroup.cpu_max(), (Some(15_000), 100_000));
    assert_eq!(Cgroup::of_pod(cell, &node.runs("plain")).memory(), Some(32 << 20));
}
