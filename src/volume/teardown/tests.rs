use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{mount_bind, mount_bind_recursive};
use serde_json::json;

use super::*;
use crate::disk::mounts::scratch::Scratch;
use crate::volume::subpath::{SubPath, bind};
use crate::volume::tests::Given;

fn given() -> Option<Given> {
    Given::new(
        json!([
            {"name": "disk", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}},
            {"name": "map", "configMap": {"name": "cfg"}}, {"name": "secret", "secret": {"secretName": "pw"}},
            {"name": "down", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"name": "all", "projected": {"sources": [{"configMap": {"name": "cfg"}}]}}]),
        json!({}),
    )
}

/// Volumes with something in them, and parts of them that are mounted.
fn set_up(given: &Given, root: &Path) {
    given.setup().expect("is ready");
    for volume in ["disk", "memory"] {
        fs::create_dir_all(given.path(volume).join("sub/deep")).expect("makes");
        fs::write(given.path(volume).join("sub/file"), "x").expect("writes");
    }
    for (index, (volume, path)) in
        [("disk", "sub"), ("memory", "sub/file"), ("map", "a"), ("secret", "user")].into_iter().enumerate()
    {
        bind(&given.directory(), &given.path(volume), &SubPath { volume, container: "c", index, path }).expect("binds");
    }
    bind(&given.directory(), root, &SubPath { volume: "host", container: "d", index: 0, path: "x" }).expect("binds");
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("reads");
    let mut names: Vec<_> = entries.map(|e| e.expect("reads").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn precious(scratch: &Scratch) -> PathBuf {
    let precious = scratch.path().join("precious");
    fs::create_dir_all(precious.join("x/y")).expect("makes");
    fs::write(precious.join("x/data"), "precious").expect("writes");
    precious
}

#[test]
fn nothing_is_left_but_what_is_the_hosts() {
    let Some(given) = given() else { return };
    let host = precious(&given.scratch);
    set_up(&given, &host);
    fs::write(given.directory().join("pod.json"), "{}").expect("writes");
    assert_eq!(given.scratch.mounted().len(), 9);
    teardown(&given.directory()).expect("is taken away");
    assert_eq!(given.scratch.mounted(), Vec::<PathBuf>::new());
    assert_eq!(names(&given.directory()), ["pod.json"]);
    assert_eq!(names(&host.join("x")), ["data", "y"]);
    teardown(&given.directory()).expect("again");
    teardown(&given.directory().join("none")).expect("is not there");
    disk::remove_tree(&given.directory()).expect("removes");
}

#[test]
fn what_somebody_else_has_mounted_is_left() {
    let places: &[(&str, &str)] = &[
        ("in a volume on disk", "volumes/kubernetes.io~empty-dir/disk/sub/deep"),
        ("in a volume in memory", "volumes/kubernetes.io~empty-dir/memory/sub/deep"),
        ("over a volume on disk", "volumes/kubernetes.io~empty-dir/disk"),
        ("over a volume in memory", "volumes/kubernetes.io~empty-dir/memory"),
        ("over a secret", "volumes/kubernetes.io~secret/secret"),
        ("over a config map", "volumes/kubernetes.io~configmap/map"),
        ("over a plugin's", "volumes/kubernetes.io~empty-dir"),
        ("over all volumes", "volumes"),
        ("over the pod", ""),
        ("of an unknown plugin", "volumes/kubernetes.io~csi/v/mount"),
        ("beside the volumes", "containers/c/dev"),
        ("a name that is none of ours", "volume-subpaths/disk/c/x"),
    ];
    for (name, place) in places {
        let Some(given) = given() else { return };
        let host = precious(&given.scratch);
        set_up(&given, &host);
        let place = if place.is_empty() { given.directory() } else { given.directory().join(place) };
        fs::create_dir_all(&place).expect("makes");
        mount_bind(&host, &place).expect("mounts");
        for _ in 0..2 {
            let told = teardown(&given.directory()).expect_err(name).to_string();
            let place = fs::canonicalize(&place).expect("is there");
            assert!(
                told.starts_with(&format!("{} is mounted in the pod's directory by somebody else", place.display())),
                "{name}: {told}"
            );
            assert_eq!(
                (names(&host), names(&host.join("x"))),
                (vec!["x".into()], vec!["data".into(), "y".into()]),
                "{name}"
            );
            assert_eq!(names(&place), ["x"], "{name}: it is still mounted");
            disk::remove_tree(&given.directory()).expect_err(name);
        }
        rustix::mount::unmount(&place, UnmountFlags::empty()).expect("unmounts");
        teardown(&given.directory()).expect(name);
        assert_eq!(given.scratch.mounted(), Vec::<PathBuf>::new(), "{name}");
        disk::remove_tree(&given.directory()).expect(name);
        assert_eq!(names(&host.join("x")), ["data", "y"], "{name}");
    }
}

/// COMPLAINTS 35: what a foreign mount keeps is that one volume.
#[test]
fn kubernetes_35406_all_around_a_foreign_mount_is_freed() {
    let Some(given) = given() else { return };
    let host = precious(&given.scratch);
    set_up(&given, &host);
    let disk = given.path("disk");
    fs::write(disk.join("large"), "x").expect("writes");
    mount_bind(&host, disk.join("sub/deep")).expect("mounts");
    teardown(&given.directory()).expect_err("something stays");
    assert_eq!(names(&given.directory()), ["volumes"]);
    assert_eq!(names(&given.directory().join("volumes")), ["kubernetes.io~empty-dir"]);
    assert_eq!((names(&disk), names(&disk.join("sub"))), (vec!["sub".to_owned()], vec!["deep".to_owned()]));
    assert_eq!(given.scratch.mounted().len(), 1);
}

/// A mount in a volume that a part of it shows goes with the part, and from nowhere else.
#[test]
fn what_is_mounted_in_a_volume_stays_there() {
    use rustix::mount::{MountPropagationFlags, mount_change};
    let Some(given) = given() else { return };
    let host = given.scratch.path().join("host");
    let usb = precious(&given.scratch);
    fs::create_dir_all(host.join("x/usb")).expect("makes");
    // As on a node, where mounts are shared.
    mount_bind_recursive(&host, &host).expect("mounts");
    mount_change(&host, MountPropagationFlags::SHARED).expect("changes");
    bind(&given.directory(), &host, &SubPath { volume: "v", container: "c", index: 0, path: "x" }).expect("binds");
    mount_bind(&usb, host.join("x/usb")).expect("mounts");
    let seen = given.directory().join("volume-subpaths/v/c/0/usb");
    assert_eq!(names(&seen), ["x"], "the kernel shows it there too");
    teardown(&given.directory()).expect("is taken away");
    assert_eq!(names(&host.join("x/usb")), ["x"], "it is still mounted in the volume");
    assert_eq!(names(&given.directory()), Vec::<String>::new());
}

#[test]
fn what_is_in_use_is_detached() {
    let Some(given) = given() else { return };
    set_up(&given, &precious(&given.scratch));
    let open = fs::File::open(given.path("memory").join("sub/file")).expect("opens");
    teardown(&given.directory()).expect("is taken away");
    assert_eq!(names(&given.directory()), Vec::<String>::new());
    assert_eq!(std::io::read_to_string(open).expect("reads"), "x");
}

/// Set for the process that is killed.
const VICTIM: &str = "CLEAT_TEST_VICTIM";

/// The victim: sets volumes up and takes them away, again and again.
#[test]
fn victim() {
    let Some(directory) = std::env::var_os(VICTIM) else { return };
    let given = given().expect("we may mount");
    let host = precious(&given.scratch);
    let pod = PathBuf::from(directory);
    loop {
        let _ = fs::create_dir(&pod);
        let context = given.context(&pod);
        let ready = crate::volume::setup(&context).expect("is ready");
        for (index, (volume, path)) in [("disk", "sub/x"), ("secret", "user"), ("map", "a")].into_iter().enumerate() {
            let Some(crate::volume::Place::Path { path: root, .. }) = ready.places.get(volume) else { continue };
            bind(&pod, root, &SubPath { volume, container: "c", index, path }).expect("binds");
        }
        bind(&pod, &host, &SubPath { volume: "host", container: "c", index: 0, path: "x" }).expect("binds");
        teardown(&pod).expect("is taken away");
        disk::remove_tree(&pod).expect("removes");
    }
}

/// COMPLAINTS 18: killed at any instant, it is put in order again by another process, which knows
/// nothing but the directory.
#[test]
fn microk8s_2897_killed_at_any_instant() {
    let Some(given) = given() else { return };
    let pod = given.scratch.path().join("victims");
    let mut found = 0;
    for i in 0..30u64 {
        let mut child = Command::new(std::env::current_exe().expect("is known"))
            .args(["volume::teardown::tests::victim", "--exact", "--nocapture"])
            .env(VICTIM, &pod)
            .env("TMPDIR", given.scratch.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !pod.exists() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        // Another instant each time.
        let until = Instant::now() + Duration::from_micros(i * 977 % 15_000);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        assert!(child.try_wait().expect("is told").is_none(), "it ended by itself");
        child.kill().expect("kills");
        child.wait().expect("is told");
        found += usize::from(pod.exists());
        if i % 2 == 0 && pod.exists() {
            // What was half made is made.
            crate::volume::setup(&given.context(&pod)).expect("is ready");
        }
        teardown(&pod).expect("is taken away");
        disk::remove_tree(&pod).expect("removes");
        assert!(!pod.exists());
        assert_eq!(given.scratch.mounted(), Vec::<PathBuf>::new());
    }
    assert!(found > 10, "{found} of 30 were killed amid their work");
}
