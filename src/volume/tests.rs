//! Volumes of all kinds, made for real.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::disk::mounts::scratch::Scratch;
use crate::local::{self, Object};
use crate::pod::identity::Origin;
use crate::pod::{PodName, PodUid, Source};
use crate::source::manifest;

/// A node with one pod.
pub(super) struct Given {
    pub scratch: Scratch,
    pub pod: Pod,
    objects: local::Objects,
    allocatable: BTreeMap<String, Quantity>,
}

/// Objects from a manifest.
pub(super) fn objects(text: &str) -> local::Objects {
    let origin = Origin { source: Source::File, node_name: "n", place: "/m", seen: jiff::Timestamp::UNIX_EPOCH };
    let read = manifest::read(text, origin);
    assert_eq!((read.problems, read.warnings), (vec![], vec![]));
    let objects = read.objects.into_iter().map(Arc::<Object>::new);
    local::Objects::new(objects, &BTreeMap::new(), &local::Node::new("edge-1", &BTreeMap::new()))
}

const OBJECTS: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: cfg}
data: {a: '1', b: '2'}
binaryData: {c: /w==}
---
apiVersion: v1
kind: Secret
metadata: {name: pw}
stringData: {user: admin, password: hunter2}
";

impl Given {
    /// `None` where we may not mount.
    pub fn new(volumes: Value, security: Value) -> Option<Given> {
        let scratch = Scratch::new()?;
        fs::create_dir(scratch.path().join("pod")).expect("makes");
        let spec = json!({"containers": [{"name": "c", "resources": {"limits": {"memory": "32Mi"}}}],
            "volumes": volumes, "securityContext": security});
        let meta = json!({"name": "web", "labels": {"b": "2", "a": "1"}, "annotations": {"note": "x"}});
        let pod = Pod {
            uid: PodUid::new("u1"),
            name: PodName::new("default", "web"),
            source: Source::File,
            origin: "".into(),
            status: None,
            meta: serde_json::from_value(meta).expect("metadata"),
            spec: serde_json::from_value(spec).expect("a spec"),
        };
        let allocatable = BTreeMap::from([("memory".to_owned(), Quantity::parse("64Mi").expect("a quantity"))]);
        Some(Given { scratch, pod, objects: objects(OBJECTS), allocatable })
    }

    pub fn directory(&self) -> PathBuf {
        self.scratch.path().join("pod")
    }

    pub fn context<'a>(&'a self, directory: &'a Path) -> Context<'a> {
        let Given { pod, objects, allocatable, .. } = self;
        Context { pod, directory, objects, allocatable }
    }

    pub fn setup(&self) -> Result<Ready, (String, Error)> {
        setup(&self.context(&self.directory()))
    }

    pub fn path(&self, volume: &str) -> PathBuf {
        match self.setup().expect("is ready").places.remove(volume) {
            Some(Place::Path { path, .. }) => path,
            other => panic!("{volume}: {other:?}"),
        }
    }

    fn fails(&self) -> String {
        let (name, e) = self.setup().expect_err("is refused");
        format!("{name}: {e}")
    }
}

/// `MODE UID:GID`
fn owner(path: &Path) -> String {
    let meta = fs::symlink_metadata(path).expect("is there");
    format!("{:o} {}:{}", meta.mode() & 0o7777, meta.uid(), meta.gid())
}

/// The files of a volume with their modes: what a container sees.
fn seen(path: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(at) = todo.pop() {
        for entry in fs::read_dir(path.join(&at)).expect("reads").map(|e| e.expect("reads")) {
            let name = at.join(entry.file_name());
            let meta = fs::metadata(path.join(&name)).expect("leads somewhere");
            if entry.file_name().to_string_lossy().starts_with("..") {
                continue;
            }
            if meta.is_dir() {
                todo.push(name);
                continue;
            }
            let text = fs::read(path.join(&name)).expect("reads");
            all.push(format!("{} {:o} {}", name.display(), meta.mode() & 0o7777, String::from_utf8_lossy(&text)));
        }
    }
    all.sort();
    all
}

/// The time of the last change of anything in a volume.
fn changed(path: &Path) -> Vec<(PathBuf, i64, i64)> {
    let mut all = Vec::new();
    let mut todo = vec![path.to_owned()];
    while let Some(at) = todo.pop() {
        let meta = fs::symlink_metadata(&at).expect("is there");
        if meta.is_dir() {
            todo.extend(fs::read_dir(&at).expect("reads").map(|e| e.expect("reads").path()));
        }
        all.push((at, meta.ctime(), meta.ctime_nsec()));
    }
    all.sort();
    all
}

/// A token is for whoever the pod's containers run as.
#[test]
fn whose_a_token_is() {
    let run_as = |user: i64| json!({"securityContext": {"runAsUser": user}});
    for (security, containers, want) in [
        (json!({}), vec![json!({})], "644 0:0"),
        (json!({"runAsUser": 7}), vec![json!({}), json!({})], "600 7:0"),
        (json!({}), vec![run_as(7), run_as(7)], "600 7:0"),
        // Each has another one, or nobody knows.
        (json!({}), vec![run_as(7), run_as(8)], "644 0:0"),
        (json!({}), vec![run_as(7), json!({})], "644 0:0"),
        (json!({"runAsUser": 7}), vec![run_as(8), json!({})], "644 0:0"),
        (json!({"fsGroup": 9}), vec![json!({})], "640 0:9"),
        (json!({"fsGroup": 9, "runAsUser": 7}), vec![json!({})], "640 7:9"),
    ] {
        let volumes = json!([{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]);
        let Some(mut given) = Given::new(volumes, security.clone()) else { return };
        given.pod.source = Source::Api;
        let container = |(i, more): (usize, &Value)| {
            let mut container = json!({"name": format!("c{i}")});
            container.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            serde_json::from_value(container).expect("a container")
        };
        given.pod.spec.containers = containers.iter().enumerate().map(container).collect();
        let key = local::tokens(&given.pod).first().expect("one is wanted").key();
        let body = local::Body::ServiceAccountToken(local::SecretValue::new(b"secret".to_vec()));
        let token = Object { key, labels: BTreeMap::new(), created: None, body };
        given.objects = local::Objects::new([Arc::new(token)], &BTreeMap::new(), &local::Node::default());
        let path = given.path("t");
        let file = path.join("..data/token");
        assert_eq!(owner(&file), want, "{security} {containers:?}");
        let before = fs::metadata(&file).expect("is there").ino();
        given.path("t");
        assert_eq!(fs::metadata(&file).expect("is there").ino(), before, "it is not written again");
    }
}

#[test]
fn files_of_config_maps_and_secrets() {
    let keys = |paths: &[(&str, &str)]| -> Value {
        paths.iter().map(|(key, path)| json!({"key": key, "path": path})).collect()
    };
    let table: Vec<(&str, Value, Vec<&str>)> = vec![
        ("all keys", json!({"configMap": {"name": "cfg"}}), vec!["a 644 1", "b 644 2", "c 644 \u{fffd}"]),
        ("some keys", json!({"configMap": {"name": "cfg", "items": keys(&[("b", "sub/./x")])}}), vec!["sub/x 644 2"]),
        (
            "modes",
            json!({"configMap": {"name": "cfg", "defaultMode": 0o400, "items": [{"key": "a", "path": "a"}, {"key": "b", "path": "b", "mode": 0o751}]}}),
            vec!["a 400 1", "b 751 2"],
        ),
        ("optional map", json!({"configMap": {"name": "none", "optional": true}}), vec![]),
        (
            "optional key",
            json!({"configMap": {"name": "cfg", "optional": true, "items": keys(&[("z", "z"), ("a", "a")])}}),
            vec!["a 644 1"],
        ),
        ("secret", json!({"secret": {"secretName": "pw"}}), vec!["password 644 hunter2", "user 644 admin"]),
        (
            "secret key",
            json!({"secret": {"secretName": "pw", "defaultMode": 0o400, "items": keys(&[("user", "u")])}}),
            vec!["u 400 admin"],
        ),
        ("optional secret", json!({"secret": {"secretName": "none", "optional": true}}), vec![]),
        (
            "downward",
            json!({"downwardAPI": {"items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}, "mode": 0o600},
            {"path": "d/note", "fieldRef": {"fieldPath": "metadata.annotations['note']"}},
            {"path": "mem", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"}}]}}),
            vec!["d/note 644 x", "labels 644 a=\"1\"\nb=\"2\"", "mem 644 32", "name 600 web"],
        ),
        (
            "projected",
            json!({"projected": {"defaultMode": 0o440, "sources": [
            {"configMap": {"name": "cfg", "items": keys(&[("a", "x/a")])}},
            {"secret": {"name": "pw", "items": keys(&[("user", "x/user")])}},
            {"secret": {"name": "none", "optional": true}},
            {"downwardAPI": {"items": [{"path": "uid", "fieldRef": {"fieldPath": "metadata.uid"}}]}}]}}),
            vec!["uid 440 u1", "x/a 440 1", "x/user 440 admin"],
        ),
        (
            "the later source counts",
            json!({"projected": {"sources": [
            {"configMap": {"name": "cfg", "items": keys(&[("a", "f")])}}, {"configMap": {"name": "cfg", "items": keys(&[("b", "f")])}}]}}),
            vec!["f 644 2"],
        ),
    ];
    for (name, mut source, want) in table {
        source["name"] = json!("v");
        let Some(given) = Given::new(json!([source]), json!({})) else { return };
        let path = given.path("v");
        assert_eq!(seen(&path), want, "{name}");
        let before = changed(&path);
        given.setup().expect("is ready");
        assert_eq!(changed(&path), before, "{name}: nothing is written when nothing changed");
    }
}

#[test]
fn what_is_missing_is_told_as_the_kubelet_tells_it() {
    let item = json!([{"key": "z", "path": "z"}]);
    let table = [
        (json!({"configMap": {"name": "x"}}), "v: configmap \"x\" not found"),
        (json!({"configMap": {"name": "cfg", "items": item}}), "v: references non-existent config key: z"),
        (json!({"secret": {"secretName": "x"}}), "v: secret \"x\" not found"),
        (json!({"secret": {"secretName": "pw", "items": item}}), "v: references non-existent secret key: z"),
        (json!({"persistentVolumeClaim": {"claimName": "x"}}), "v: persistentvolumeclaim \"x\" not found"),
        (
            json!({"projected": {"sources": [{"configMap": {"name": "cfg"}}, {"secret": {"name": "x"}}]}}),
            "v: secret \"x\" not found",
        ),
        (
            json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}),
            "v: projected source serviceAccountToken comes from an API server, which this node doesn't have",
        ),
        (
            json!({"projected": {"sources": [{"configMap": {"name": "cfg", "items": [{"key": "a", "path": "f"}, {"key": "b", "path": "f/g"}]}}]}}),
            "v: f can't be a file and a directory with f/g in it",
        ),
        (
            json!({"downwardAPI": {"items": [{"path": "m", "resourceFieldRef": {"containerName": "d", "resource": "limits.cpu"}}]}}),
            "v: m: container \"d\" is not there",
        ),
        (json!({"nfs": {"server": "s", "path": "/"}}), "v: volumes of kind nfs are not served here"),
        (
            json!({"emptyDir": {"medium": "HugePages"}}),
            "v: medium HugePages: hugePages storage requested, but there is no resource request for huge pages",
        ),
    ];
    for (mut source, want) in table {
        source["name"] = json!("v");
        let Some(given) = Given::new(json!([source]), json!({})) else { return };
        assert_eq!(given.fails(), want);
        let shown = format!("{:?}", given.setup());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn a_change_comes_and_what_goes_is_kept() {
    let volumes = json!([{"name": "m", "configMap": {"name": "cfg"}}, {"name": "s", "secret": {"secretName": "pw"}}]);
    let Some(mut given) = Given::new(volumes, json!({})) else { return };
    let (map, secret) = (given.path("m"), given.path("s"));
    given.objects = objects(&OBJECTS.replace("a: '1', b: '2'", "a: '9', d: '4'").replace("hunter2", "hunter3"));
    assert!(given.setup().expect("is ready").stale.is_empty());
    assert_eq!(seen(&map), ["a 644 9", "c 644 \u{fffd}", "d 644 4"]);
    assert_eq!(seen(&secret), ["password 644 hunter3", "user 644 admin"]);
    given.objects = local::Objects::default();
    let ready = given.setup().expect("is ready");
    let stale: Vec<_> = ready.stale.iter().map(|(name, e)| format!("{name}: {e}")).collect();
    assert_eq!(stale, ["m: configmap \"cfg\" not found", "s: secret \"pw\" not found"]);
    assert_eq!((ready.places.len(), seen(&map).len(), seen(&secret).len()), (2, 3, 2));
}

/// COMPLAINTS 34: on a full disk, what runs goes on with what it has.
#[test]
fn kubernetes_74169_a_full_disk_keeps_the_old_files() {
    let Some(mut given) = Given::new(json!([{"name": "m", "configMap": {"name": "cfg"}}]), json!({})) else { return };
    let pod = given.directory();
    let size = rustix::mount::mount("tmpfs", &pod, "tmpfs", rustix::mount::MountFlags::empty(), Some(c"size=256k"));
    size.expect("mounts");
    let map = given.path("m");
    let before = seen(&map);
    given.objects = objects(&OBJECTS.replace("a: '1'", &format!("a: '{}'", "x".repeat(1 << 19))));
    let ready = given.setup().expect("is ready");
    let why = ready.stale.iter().map(|(_, e)| e.to_string()).collect::<String>();
    assert!(why.contains("No space left on device"), "{why}");
    assert_eq!(seen(&map), before);
    assert_eq!(fs::read_dir(&map).expect("reads").count(), 5, "nothing half made is left");
    let free = |path: &Path| rustix::fs::statvfs(path).map(|s| s.f_bfree).expect("is there");
    assert!(free(&pod) > 16, "nor does it keep the disk full");
    given.objects = objects(&OBJECTS.replace("a: '1'", "a: '5'"));
    assert!(given.setup().expect("is ready").stale.is_empty());
    assert_ne!(seen(&map), before);
}

#[test]
fn of_several_volumes_one_that_fails_keeps_no_other() {
    let volumes = json!([{"name": "bad", "configMap": {"name": "x"}}, {"name": "good", "emptyDir": {}}]);
    let Some(given) = Given::new(volumes, json!({})) else { return };
    assert_eq!(given.fails(), "bad: configmap \"x\" not found");
    assert!(given.directory().join("volumes/kubernetes.io~empty-dir/good").is_dir());
}

#[test]
fn directories_that_live_as_long_as_the_pod() {
    let volumes = json!([
        {"name": "disk", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "small", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "large", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]);
    let Some(given) = Given::new(volumes.clone(), json!({})) else { return };
    let size = |path: &Path| rustix::fs::statvfs(path).map(|s| s.f_blocks * s.f_frsize).expect("is there");
    assert_eq!(owner(&given.path("disk")), "777 0:0");
    assert_eq!(owner(&given.path("memory")), "1777 0:0");
    // The pod has 32Mi, all pods have 64Mi.
    assert_eq!(size(&given.path("memory")), 32 << 20);
    assert_eq!(size(&given.path("small")), 1 << 20);
    assert_eq!(size(&given.path("large")), 32 << 20);
    for volume in ["disk", "memory"] {
        fs::write(given.path(volume).join("f"), "x").expect("writes");
        fs::set_permissions(given.path(volume), fs::Permissions::from_mode(0o700)).expect("changes");
        assert_eq!(owner(&given.path(volume)), "700 0:0", "what the pod does with it is its own");
        assert!(given.path(volume).join("f").exists());
    }
    let mut mounted = given.scratch.mounted();
    mounted.sort();
    let at = |name: &str| PathBuf::from("pod/volumes/kubernetes.io~empty-dir").join(name);
    assert_eq!(mounted, [at("large"), at("memory"), at("small")], "mounted once each");

    let Some(given) = Given::new(volumes, json!({"fsGroup": 4711})) else { return };
    assert_eq!(owner(&given.path("disk")), "2777 0:4711");
    assert_eq!(owner(&given.path("memory")), "3777 0:4711");
}

#[test]
fn a_group_is_given_what_is_written_for_it() {
    let volumes = json!([
        {"name": "m", "configMap": {"name": "cfg", "items": [{"key": "a", "path": "d/a", "mode": 0o400}]}},
        {"name": "s", "secret": {"secretName": "pw", "defaultMode": 0o400}}]);
    let Some(mut given) = Given::new(volumes, json!({"fsGroup": 4711})) else { return };
    let (map, secret) = (given.path("m"), given.path("s"));
    assert_eq!((owner(&map), owner(&secret)), ("2777 0:4711".into(), "3777 0:4711".into()));
    assert_eq!(owner(&map.join("..data/d/a")), "440 0:4711");
    assert_eq!(owner(&map.join("..data/d")), "2755 0:4711");
    assert_eq!(owner(&secret.join("..data/user")), "440 0:4711");
    let before = changed(&map);
    given.setup().expect("is ready");
    assert_eq!(changed(&map), before, "nothing is written when nothing changed");
    given.pod.spec.security_context.as_mut().expect("one").fs_group = Some(4712);
    given.setup().expect("is ready");
    assert_eq!((owner(&map), owner(&map.join("..data/d/a"))), ("2777 0:4712".into(), "440 0:4712".into()));
}

#[test]
fn huge_pages() {
    let volumes = json!([{"name": "v", "emptyDir": {"medium": "HugePages-2Mi"}}]);
    let supported = fs::read_to_string("/proc/filesystems").is_ok_and(|list| list.contains("hugetlbfs"))
        && Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists();
    if !supported {
        return;
    }
    for (security, want) in [(json!({}), "755 0:0"), (json!({"fsGroup": 4711}), "2775 0:4711")] {
        let Some(mut given) = Given::new(volumes.clone(), security) else { return };
        given.pod.spec.containers[0].resources =
            serde_json::from_value(json!({"requests": {"hugepages-2Mi": "4Mi"}})).expect("resources");
        assert_eq!(owner(&given.path("v")), want);
        assert_eq!(rustix::fs::statfs(given.path("v")).map(|s| s.f_bsize).ok(), Some(2 << 20));
        assert_eq!(given.scratch.mounted().len(), 1);
        given.pod.spec.containers[0].resources =
            serde_json::from_value(json!({"requests": {"hugepages-1Gi": "4Gi"}})).expect("resources");
        given.pod.spec.volumes =
            serde_json::from_value(json!([{"name": "v", "emptyDir": {"medium": "HugePages"}}])).expect("volumes");
        assert!(given.fails().ends_with("it has pages of 2097152 bytes, where 1073741824 are asked for"));
    }
}

fn claims(path: &Path, more: &str) -> String {
    let affinity = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [edge-1]}]}]}}";
    let volume = |name: &str, kind: &str| {
        format!(
            "apiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}}}\nspec:\n  capacity: {{storage: 1Gi}}\n  accessModes: [ReadWriteOnce]\n  {kind}\n"
        )
    };
    let claim = |name: &str| {
        format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\nspec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}, volumeName: {name}{more}}}\n"
        )
    };
    let path = path.display();
    [
        volume("host", &format!("hostPath: {{path: {path}/host, type: Directory}}")),
        volume("disk", &format!("local: {{path: {path}/disk}}\n  {affinity}{}", more.replace(", ", "\n  "))),
        claim("host").replace(more, ""),
        claim("disk"),
    ]
    .join("---\n")
}

#[test]
fn claims_lead_to_the_node() {
    let volumes = json!([
        {"name": "h", "persistentVolumeClaim": {"claimName": "host"}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "disk"}},
        {"name": "r", "persistentVolumeClaim": {"claimName": "disk", "readOnly": true}}]);
    let Some(mut given) = Given::new(volumes, json!({"fsGroup": 4711})) else { return };
    let root = given.scratch.path().to_owned();
    for name in ["host/f", "disk/f"] {
        fs::create_dir(root.join(name).parent().expect("one")).expect("makes");
        fs::write(root.join(name), "x").expect("writes");
    }
    given.objects = objects(&claims(&root, ""));
    let places = given.setup().expect("is ready").places;
    let path = |name: &str, read_only, relabel| Place::Path { path: root.join(name), read_only, relabel };
    assert_eq!(places["h"], path("host", false, false));
    assert_eq!(places["d"], path("disk", false, true));
    assert_eq!(places["r"], path("disk", true, false));
    assert_eq!((owner(&root.join("disk/f")), owner(&root.join("disk"))), ("664 0:4711".into(), "2775 0:4711".into()));
    assert_eq!(owner(&root.join("host/f")), "644 0:0", "a hostPath is never changed");
    // Once for the pod.
    fs::set_permissions(root.join("disk/f"), fs::Permissions::from_mode(0o600)).expect("changes");
    given.setup().expect("is ready");
    assert_eq!(owner(&root.join("disk/f")), "600 0:4711");

    fs::remove_dir_all(root.join("disk")).expect("removes");
    assert!(given.fails().starts_with(&format!("d: looking at the local volume {}/disk: ", root.display())));
    given.objects = objects(&claims(&root, ", volumeMode: Block"));
    fs::write(root.join("disk"), "no device").expect("writes");
    assert_eq!(given.fails(), format!("d: local volume {}/disk is not a block device", root.display()));
    given.objects = objects(&claims(&root, "").replace("edge-1", "edge-2"));
    let why = "persistentvolume \"disk\" does not fit: its nodeAffinity is not for node edge-1";
    assert_eq!(given.fails(), format!("d: persistentvolumeclaim \"disk\" is not bound: {why}"));
}

#[test]
fn an_image_is_the_runtimes() {
    let volumes = json!([{"name": "i", "image": {"reference": "r/x:1", "pullPolicy": "Always"}}, {"name": "h", "hostPath": {"path": "/etc"}}]);
    let Some(given) = Given::new(volumes, json!({"fsGroup": 4711})) else { return };
    let places = given.setup().expect("is ready").places;
    assert_eq!(places["i"], Place::Image { reference: "r/x:1".into(), pull_policy: Some("Always".into()) });
    assert_eq!(places["h"], Place::Path { path: "/etc".into(), read_only: false, relabel: false });
    assert_eq!(owner(Path::new("/etc")), "755 0:0");
}

/// Secrets are on no disk.
#[test]
fn a_secret_is_only_in_memory() {
    let volumes = json!([
        {"name": "s", "secret": {"secretName": "pw"}},
        {"name": "p", "projected": {"sources": [{"secret": {"name": "pw"}}]}}]);
    let Some(given) = Given::new(volumes, json!({})) else { return };
    for volume in ["s", "p"] {
        let path = given.path(volume);
        assert_eq!(fs::read(path.join("password")).expect("reads"), b"hunter2");
        rustix::mount::unmount(&path, rustix::mount::UnmountFlags::empty()).expect("unmounts");
        assert_eq!(fs::read_dir(&path).expect("reads").count(), 0, "there is nothing below the mount");
    }
    let ready = given.setup().expect("is ready");
    let shown = format!("{ready:?} {ready:#?}");
    assert!(!shown.contains("hunter2") && !shown.contains("104, 117"), "{shown}");
    assert_eq!(given.scratch.mounted().len(), 2, "mounted again");
    // Something else in its place is not written to.
    let path = given.path("s");
    rustix::mount::unmount(&path, rustix::mount::UnmountFlags::empty()).expect("unmounts");
    rustix::mount::mount("proc", &path, "proc", rustix::mount::MountFlags::empty(), None).expect("mounts");
    assert!(given.fails().ends_with("something else is mounted there"), "{}", given.fails());
}
