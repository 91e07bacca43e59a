//! The manager on this machine's own cgroups, and on directories that look like v2.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::hierarchy::Mount;
use super::policy::example;
use super::values::Totals;
use super::*;
use crate::config::{Cgroup, CgroupDriver};
use crate::pod::resources::Amounts;
use crate::pod::testing::{pod, spec};
use crate::pod::{Pod, PodUid};

fn config(root: &str, driver: CgroupDriver) -> Cgroup {
    Cgroup {
        root: root.to_owned(),
        driver,
        per_qos: true,
        fail_v1: false,
        cpu_cfs_quota: true,
        cpu_cfs_quota_period: Duration::from_millis(100),
        single_process_oom_kill: None,
        memory_throttling_factor: 0.9,
        memory_reservation: false,
        kube_reserved: String::new(),
        system_reserved: String::new(),
    }
}

/// A cgroup root of this test's own, in all trees; removed with all in it.
struct Root {
    name: String,
    hierarchy: Hierarchy,
}

impl Root {
    /// `None` where the test may not make cgroups: the caller says so and ends.
    fn new(hierarchy: Hierarchy) -> Option<Root> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("/cleat-test-{}-{count}", std::process::id());
        let root = Root { name, hierarchy };
        let probe = root.hierarchy.mounts().first()?.point.join(root.name.trim_start_matches('/'));
        if fs::create_dir(probe).is_err() {
            eprintln!("not tested: this user can't make cgroups");
            return None;
        }
        Some(root)
    }

    fn manager(&self) -> Manager {
        Manager::unchecked(&config(&self.name, CgroupDriver::Cgroupfs), self.hierarchy.clone(), "busctl")
    }

    fn file(&self, controller: &str, path: &str) -> PathBuf {
        self.hierarchy.directory(controller, &format!("{}/{path}", self.name)).expect("the controller is mounted")
    }

    fn read(&self, controller: &str, path: &str) -> String {
        let file = self.file(controller, path);
        fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display())).trim().to_owned()
    }

    /// Its directories below each mount: none are left when all is removed.
    fn directories(&self, path: &str) -> Vec<PathBuf> {
        let points = self.hierarchy.mounts().iter().map(|m| m.point.join(self.name.trim_start_matches('/')).join(path));
        points.filter(|p| p.exists()).collect()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if let Err(e) = (tree::Tree { hierarchy: self.hierarchy.clone() }).remove(&self.name) {
            eprintln!("left behind: {e}");
        }
    }
}

/// This machine's v1, when that is what it has.
fn v1() -> Option<Root> {
    let hierarchy = Hierarchy::read().expect("has cgroups");
    if hierarchy.version() == Version::V2 {
        eprintln!("not tested: this machine has no cgroup v1");
        return None;
    }
    Root::new(hierarchy)
}

fn guaranteed() -> Pod {
    pod("u-guaranteed", spec(&[], &["cpu=500m memory=64Mi / cpu=500m memory=64Mi"]))
}

fn burstable() -> Pod {
    pod("u-burstable", spec(&[], &["cpu=250m memory=32Mi / cpu=500m", "cpu=100m / cpu=250m"]))
}

fn best_effort() -> Pod {
    pod("u-besteffort", spec(&[], &[""]))
}

fn policy() -> Policy {
    Policy { pod_pids_limit: Some(64), ..example(Version::V1) }
}

fn all_pods() -> Values {
    let held = [("cpu", 1900), ("memory", 1 << 30), ("pid", 10_000)];
    Values::of_all_pods(&held.map(|(name, n)| (name.to_owned(), n)).into_iter().collect::<Amounts>(), &policy())
}

#[test]
fn all_of_a_pods_life_on_v1() {
    let Some(root) = v1() else { return };
    let manager = root.manager();
    let pods = [guaranteed(), burstable(), best_effort()];
    let totals = Totals::of(pods.iter().map(|p| &p.spec));
    manager.ensure_qos(&all_pods(), &totals, &policy()).expect("makes the classes");
    assert_eq!(root.read("cpu", "kubepods/cpu.shares"), "1945");
    assert_eq!(root.read("memory", "kubepods/memory.limit_in_bytes"), (1 << 30).to_string());
    assert_eq!(root.read("pids", "kubepods/pids.max"), "10000");
    assert_eq!(root.read("cpu", "kubepods/burstable/cpu.shares"), "358");
    assert_eq!(root.read("cpu", "kubepods/besteffort/cpu.shares"), "2");
    assert_eq!(root.read("cpuset", "kubepods/besteffort/cpuset.cpus"), {
        let machine = root.hierarchy.directory("cpuset", "/cpuset.cpus").expect("is mounted");
        fs::read_to_string(machine).expect("reads").trim().to_owned()
    });
    assert_eq!(manager.pods().expect("reads"), [].into());

    let parents =
        ["kubepods/podu-guaranteed", "kubepods/burstable/podu-burstable", "kubepods/besteffort/podu-besteffort"];
    for (pod, parent) in pods.iter().zip(parents) {
        assert!(!manager.exists(&pod.uid));
        let values = Values::of_pod(&pod.spec, &policy());
        let told = manager.ensure_pod(pod, &values).expect("makes the cgroup");
        assert_eq!(told, format!("{}/{parent}", root.name));
        assert_eq!(told, manager.cgroup_parent(pod));
        assert!(manager.exists(&pod.uid));
        assert_eq!(root.read("pids", &format!("{parent}/pids.max")), "64");
        assert_eq!(root.directories(parent).len(), root.hierarchy.mounts().len(), "it is in all trees");
    }
    let cpu = |parent: &str| {
        ["cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us"].map(|f| root.read("cpu", &format!("{parent}/{f}")))
    };
    assert_eq!(cpu(parents[0]), ["512", "50000", "100000"]);
    assert_eq!(cpu(parents[1]), ["358", "75000", "100000"]);
    assert_eq!(cpu(parents[2]), ["2", "-1", "100000"]);
    assert_eq!(root.read("memory", &format!("{}/memory.limit_in_bytes", parents[0])), (64 << 20).to_string());
    let unlimited = root.read("memory", &format!("{}/memory.limit_in_bytes", parents[1]));
    assert!(unlimited.parse::<u64>().expect("a number") > 1 << 62, "{unlimited}");
    assert_eq!(manager.pods().expect("reads"), pods.iter().map(|p| p.uid.clone()).collect());

    for (i, pod) in pods.iter().enumerate() {
        manager.remove_pod(&pod.uid).expect("removes");
        assert!(!manager.exists(&pod.uid));
        assert_eq!(root.directories(parents[i]), [""; 0].map(PathBuf::from));
        manager.remove_pod(&pod.uid).expect("is gone already");
    }
    manager.update_qos(&Totals::default(), &policy()).expect("updates");
    assert_eq!(root.read("cpu", "kubepods/burstable/cpu.shares"), "2");
}

#[test]
fn a_cgroup_that_is_there_is_left_as_it_is() {
    let Some(root) = v1() else { return };
    let manager = root.manager();
    let (pod, file) = (guaranteed(), "kubepods/podu-guaranteed/cpu.shares");
    let values = Values::of_pod(&pod.spec, &policy());
    manager.ensure_pod(&pod, &values).expect("makes the cgroup, and what is above it");
    fs::write(root.file("cpu", file), "700").expect("writes");
    manager.ensure_pod(&pod, &values).expect("is there");
    assert_eq!(root.read("cpu", file), "700");
    // One tree lost it: it doesn't count as there any more.
    fs::remove_dir(root.file("pids", "kubepods/podu-guaranteed")).expect("removes");
    assert!(!manager.exists(&pod.uid));
    manager.ensure_pod(&pod, &values).expect("makes it again");
    assert_eq!((root.read("cpu", file).as_str(), manager.exists(&pod.uid)), ("512", true));
}

#[test]
fn a_pod_is_resized() {
    let Some(root) = v1() else { return };
    let manager = root.manager();
    let mut pod = guaranteed();
    let old = Values::of_pod(&pod.spec, &policy());
    manager.ensure_pod(&pod, &old).expect("makes the cgroup");
    pod.spec = spec(&[], &["cpu=250m memory=128Mi / cpu=250m memory=128Mi"]);
    let new = Values::of_pod(&pod.spec, &policy());
    let shown = || {
        let cpu = root.read("cpu", "kubepods/podu-guaranteed/cpu.cfs_quota_us");
        (cpu, root.read("memory", "kubepods/podu-guaranteed/memory.limit_in_bytes"))
    };
    manager.update_pod(&pod, &old.widest(&new)).expect("updates");
    assert_eq!(shown(), ("50000".to_owned(), (128 << 20).to_string()));
    manager.update_pod(&pod, &new).expect("updates");
    assert_eq!(shown(), ("25000".to_owned(), (128 << 20).to_string()));
}

#[test]
fn values_that_are_refused_leave_no_cgroup() {
    let Some(root) = v1() else { return };
    let manager = root.manager();
    let pod = guaranteed();
    // The kernel takes no such quota.
    let values = Values {
        cpu_max: Some(values::CpuMax { quota: Some(1), period: 100_000 }),
        ..Values::of_pod(&pod.spec, &policy())
    };
    let error = manager.ensure_pod(&pod, &values).expect_err("is refused").to_string();
    assert!(error.starts_with("writing \"1\" to ") && error.contains("cpu.cfs_quota_us"), "{error}");
    assert!(!manager.exists(&pod.uid));
    assert_eq!(root.directories("kubepods/podu-guaranteed").len(), 0);
}

/// A process that never ends by itself, in a process group of its own; killed with the test.
struct Process(Child);

impl Process {
    fn spawn(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        Process(command.spawn().expect("spawns"))
    }

    fn enter(&self, directory: &Path) {
        fs::write(directory.join("cgroup.procs"), self.0.id().to_string()).expect("enters");
    }

    /// The signal that ended it.
    fn ended_by(&mut self) -> Option<i32> {
        self.0.wait().expect("waits").signal()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn removal_kills_what_is_left() {
    let Some(root) = v1() else { return };
    let manager = root.manager();
    let pod = best_effort();
    manager.ensure_pod(&pod, &Values::of_pod(&pod.spec, &policy())).expect("makes the cgroup");
    // As a runtime has it: the container's cgroup in the pod's, and one in that.
    let inner = "kubepods/besteffort/podu-besteffort/container/deeper";
    let mut direct = Process::spawn("trap '' TERM; while :; do sleep 1; done");
    let mut nested = Process::spawn("trap '' TERM; while :; do sleep 1; done");
    for mount in root.hierarchy.mounts() {
        let top = mount.point.join(root.name.trim_start_matches('/'));
        fs::create_dir_all(top.join(inner)).expect("makes");
        // Cpusets take no process before they are filled; one tree with processes is enough.
        if mount.controllers.iter().all(|c| c != "cpuset") {
            direct.enter(&top.join("kubepods/besteffort/podu-besteffort"));
            nested.enter(&top.join(inner));
        }
    }
    let stats = manager.pod_stats(&pod).expect("is there");
    assert!(stats.pids.is_some_and(|n| n >= 2), "{stats:?}");
    assert!(stats.memory.is_some_and(|m| m.usage >= m.working_set && m.working_set > 0), "{stats:?}");
    assert!(stats.cpu.is_some(), "{stats:?}");
    assert!(manager.container_stats(&pod, "container").is_some_and(|s| s.pids.is_some_and(|n| n >= 1)));
    assert_eq!(manager.container_stats(&pod, "other"), None);

    // The processes are this test's own: they stay as zombies until it waits for them.
    manager.remove_pod(&pod.uid).expect("kills and removes");
    assert_eq!(root.directories("kubepods/besteffort/podu-besteffort").len(), 0);
    assert_eq!((direct.ended_by(), nested.ended_by()), (Some(9), Some(9)));
}

#[test]
fn reserved_cgroups() {
    let Some(root) = v1() else { return };
    let manager = root.manager();
    let values = Values { cpu_shares: Some(512), ..Values::default() };
    let name = format!("{}/system", root.name);
    let error = manager.enforce(&name, &values).expect_err("isn't there").to_string();
    assert!(error.contains(&name), "{error}");
    tree::Tree { hierarchy: root.hierarchy.clone() }.create(&name).expect("makes");
    manager.enforce(&name, &values).expect("writes");
    assert_eq!(root.read("cpu", "system/cpu.shares"), "512");
}

#[test]
fn nothing_is_made_without_cgroups_for_classes() {
    let config = Cgroup { per_qos: false, ..config("/cleat-test-none", CgroupDriver::Cgroupfs) };
    let hierarchy = Hierarchy::v2(Mount { point: "/none".into(), controllers: Vec::new() });
    let manager = Manager::new(&config, hierarchy).expect("needs nothing");
    let pod = guaranteed();
    manager.ensure_qos(&all_pods(), &Totals::default(), &policy()).expect("does nothing");
    assert_eq!(manager.ensure_pod(&pod, &Values::of_pod(&pod.spec, &policy())).expect("does nothing"), "");
    assert_eq!((manager.cgroup_parent(&pod), manager.exists(&pod.uid)), (String::new(), true));
    manager.remove_pod(&pod.uid).expect("does nothing");
    assert_eq!(manager.pods().expect("does nothing"), [].into());
}

#[test]
fn machines_that_can_not() {
    let v1 = Hierarchy::v1(vec![Mount { point: "/none".into(), controllers: vec!["cpu".into()] }]);
    let config = config("", CgroupDriver::Cgroupfs);
    let error = Manager::new(&config, v1.clone()).expect_err("lacks controllers").to_string();
    assert!(error.contains("cpuacct, cpuset, memory"), "{error}");
    let error = Manager::new(&Cgroup { fail_v1: true, ..config }, v1).expect_err("is v1").to_string();
    assert!(error.contains("failCgroupV1"), "{error}");
}

/// Directories with the files of v2, down to a pod's cgroup.
fn fake_v2(dir: &Path, path: &str, controllers: &str) -> Hierarchy {
    let files = ["cpu.weight", "cpu.max", "memory.max", "memory.min", "memory.low", "pids.max", "hugetlb.2MB.max"];
    let mut directory = dir.to_owned();
    for part in std::iter::once("").chain(path.split('/').filter(|p| !p.is_empty())) {
        directory.push(part);
        fs::create_dir_all(&directory).expect("makes");
        fs::write(directory.join("cgroup.controllers"), controllers).expect("writes");
        for file in files.into_iter().chain(["cgroup.subtree_control", "cgroup.procs"]) {
            fs::write(directory.join(file), "").expect("writes");
        }
    }
    let controllers = controllers.split_whitespace().map(str::to_owned).collect();
    Hierarchy::v2(Mount { point: dir.to_owned(), controllers })
}

#[test]
fn controllers_are_enabled_on_the_way_and_values_written_on_v2() {
    let dir = tempfile::tempdir().expect("a directory");
    let hierarchy = fake_v2(dir.path(), "/edge/kubepods/burstable/podu-burstable", "cpu memory pids rdma");
    fs::write(dir.path().join("cgroup.subtree_control"), "cpu pids").expect("writes");
    let policy = Policy { pod_pids_limit: Some(64), ..example(Version::V2) };
    let config = config("/edge", CgroupDriver::Cgroupfs);
    let manager = Manager::unchecked(&config, hierarchy.clone(), "busctl");
    let read = |path: &str| fs::read_to_string(dir.path().join(path)).expect("reads");
    tree::Tree { hierarchy }.create("/edge/kubepods/burstable").expect("is there");
    // The kernel adds what is written to what it shows; a file keeps the last that was written.
    assert_eq!(read("cgroup.subtree_control"), "+memory");
    assert_eq!(read("edge/kubepods/cgroup.subtree_control"), "+pids");
    assert_eq!(read("edge/kubepods/burstable/cgroup.subtree_control"), "", "the runtime does it for its own");

    let pod = burstable();
    assert_eq!(manager.cgroup_parent(&pod), "/edge/kubepods/burstable/podu-burstable");
    manager.update_pod(&pod, &Values::of_pod(&pod.spec, &policy)).expect("writes");
    let files = ["cpu.weight", "cpu.max", "memory.max", "pids.max", "hugetlb.2MB.max"];
    let got = files.map(|f| read(&format!("edge/kubepods/burstable/podu-burstable/{f}")));
    // No memory limit for one container; and this machine has no controller for huge pages.
    assert_eq!(got, ["14", "75000 100000", "", "64", ""]);
    assert_eq!(manager.pods().expect("reads"), [PodUid::new("u-burstable")].into());
}

#[test]
fn a_file_that_should_be_there_is_missed() {
    let dir = tempfile::tempdir().expect("a directory");
    let hierarchy = fake_v2(dir.path(), "/kubepods", "cpu memory");
    let manager = Manager::unchecked(&config("", CgroupDriver::Cgroupfs), hierarchy, "busctl");
    let pod = guaranteed();
    let error = manager.ensure_pod(&pod, &Values::of_pod(&pod.spec, &example(Version::V2))).expect_err("has no files");
    assert!(error.to_string().contains("cpu.weight"), "{error}");
    assert!(!dir.path().join("kubepods/podu-guaranteed").exists());
    let write_only_optional = Values { cpu_max: Values::of_pod(&pod.spec, &policy()).cpu_max, ..Values::default() };
    manager.ensure_pod(&pod, &write_only_optional).expect("kernels may lack it");
}

#[test]
fn a_real_v2_tree_takes_it_too() {
    let hierarchy = Hierarchy::read().expect("has cgroups");
    // The v2 tree of a hybrid has what v1 left over.
    let mount = hierarchy.mounts().iter().find(|m| m.point.join("cgroup.controllers").exists());
    let Some(point) = mount.map(|m| m.point.clone()) else {
        eprintln!("not tested: this machine has no cgroup v2");
        return;
    };
    let list = |file: &str| -> Vec<String> {
        let text = fs::read_to_string(point.join(file)).expect("reads");
        text.split_whitespace().map(str::to_owned).collect()
    };
    let (controllers, before) = (list("cgroup.controllers"), list("cgroup.subtree_control"));
    let Some(root) = Root::new(Hierarchy::v2(Mount { point: point.clone(), controllers: controllers.clone() })) else {
        return;
    };
    life_on_v2(&root, &controllers);
    drop(root);
    // What the machine's root gives was changed for this test alone.
    for controller in list("cgroup.subtree_control").iter().filter(|c| !before.contains(c)) {
        let put_back = fs::write(point.join("cgroup.subtree_control"), format!("-{controller}"));
        put_back.unwrap_or_else(|e| eprintln!("{controller} stays enabled, somebody uses it: {e}"));
    }
}

fn life_on_v2(root: &Root, controllers: &[String]) {
    let manager = root.manager();
    let policy = Policy { huge_page_sizes: [2 << 20].into(), pod_pids_limit: Some(64), ..example(Version::V2) };
    let text = "cpu=250m memory=32Mi hugepages-2Mi=8Mi / cpu=500m memory=64Mi hugepages-2Mi=8Mi";
    let pod = pod("u-v2", spec(&[], &[text]));
    let totals = Totals::of([&pod.spec]);
    manager.ensure_qos(&Values::default(), &totals, &policy).expect("makes the classes");
    let values = Values { memory_low: Some(4096), ..Values::of_pod(&pod.spec, &policy) };
    manager.ensure_pod(&pod, &values).expect("makes the cgroup");
    let path = "kubepods/burstable/podu-v2";
    let wants = [
        ("cpu", "kubepods/burstable/cpu.weight", "10"),
        ("cpu", "kubepods/besteffort/cpu.weight", "1"),
        ("cpu", "kubepods/burstable/podu-v2/cpu.weight", "10"),
        ("cpu", "kubepods/burstable/podu-v2/cpu.max", "50000 100000"),
        ("memory", "kubepods/burstable/podu-v2/memory.max", "67108864"),
        ("memory", "kubepods/burstable/podu-v2/memory.low", "4096"),
        ("pids", "kubepods/burstable/podu-v2/pids.max", "64"),
        ("hugetlb", "kubepods/burstable/podu-v2/hugetlb.2MB.max", "8388608"),
    ];
    for (controller, file, want) in wants.iter().filter(|(c, ..)| controllers.iter().any(|there| there == c)) {
        assert_eq!(root.read(controller, file), *want, "{file}");
    }
    let directory = root.directories(path).pop().expect("is there");
    fs::create_dir_all(directory.join("container")).expect("makes");
    let mut process = Process::spawn("trap '' TERM; while :; do sleep 1; done");
    process.enter(&directory.join("container"));
    if controllers.iter().any(|c| c == "memory") {
        let stats = manager.pod_stats(&pod).expect("is there");
        assert!(stats.cpu.is_some() && stats.pids.is_some_and(|n| n >= 1), "{stats:?}");
        assert!(stats.memory.is_some_and(|m| m.limit == Some(64 << 20) && m.usage >= m.working_set), "{stats:?}");
    }
    assert_eq!(manager.pods().expect("reads"), [pod.uid.clone()].into());
    manager.remove_pod(&pod.uid).expect("kills and removes");
    assert!(!directory.exists() && !manager.exists(&pod.uid));
    assert_eq!(process.ended_by(), Some(9));
}

/// A systemd that makes and removes the directories of slices, as far as it manages them.
fn fake_busctl(dir: &Path) -> String {
    let busctl = dir.join("busctl");
    let script = format!(
        r#"#!/bin/sh
shift 2; method=$5; slice=$7
echo "$method $slice" >> {dir}/log
path=; rest=${{slice%.slice}}; name=
for part in $(echo "$rest" | tr - ' '); do name="$name${{name:+-}}$part"; path="$path/$name.slice"; done
case $method in
StartTransientUnit) mkdir {dir}/systemd$path;;
StopUnit) rmdir {dir}/systemd$path;;
esac
"#,
        dir = dir.display()
    );
    fs::write(&busctl, script).expect("writes");
    fs::set_permissions(&busctl, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("sets");
    busctl.to_string_lossy().into_owned()
}

#[test]
fn systemd_is_asked_for_slices() {
    let dir = tempfile::tempdir().expect("a directory");
    for tree in ["systemd", "cpu"] {
        fs::create_dir(dir.path().join(tree)).expect("makes");
    }
    let mount =
        |tree: &str, controller: &str| Mount { point: dir.path().join(tree), controllers: vec![controller.to_owned()] };
    // A controller that has no files here, so that none are written.
    let hierarchy = Hierarchy::v1(vec![mount("systemd", "name=systemd"), mount("cpu", "cpuacct")]);
    let config = config("", CgroupDriver::Systemd);
    let manager = Manager::unchecked(&config, hierarchy, &fake_busctl(dir.path()));
    let log = || {
        let text = fs::read_to_string(dir.path().join("log")).unwrap_or_default();
        let _ = fs::remove_file(dir.path().join("log"));
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let pod = burstable();
    let path = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_burstable.slice";
    let values = Values::of_pod(&pod.spec, &policy());
    assert_eq!(manager.ensure_pod(&pod, &values).expect("makes it"), "kubepods-burstable-podu_burstable.slice");
    let start = ["kubepods.slice", "kubepods-burstable.slice", "kubepods-burstable-podu_burstable.slice"];
    assert_eq!(log(), start.map(|slice| format!("StartTransientUnit {slice}")));
    assert!(["systemd", "cpu"].iter().all(|tree| dir.path().join(tree).join(path).is_dir()));
    manager.ensure_pod(&pod, &values).expect("is there");
    assert_eq!(log(), [""; 0]);
    assert_eq!(manager.pods().expect("reads"), [pod.uid.clone()].into());
    manager.update_pod(&pod, &values).expect("updates");
    assert_eq!(log(), ["SetUnitProperties kubepods-burstable-podu_burstable.slice"]);
    manager.remove_pod(&pod.uid).expect("removes");
    assert_eq!(log(), ["StopUnit kubepods-burstable-podu_burstable.slice"]);
    assert!(["systemd", "cpu"].iter().all(|tree| !dir.path().join(tree).join(path).exists()));
}
