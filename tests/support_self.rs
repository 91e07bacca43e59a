//! Whether the tests' own support does what it says: a test on a fake that lies proves nothing.

#[path = "support_self/fake_cri.rs"]
mod fake_cri;
#[path = "support_self/private_containerd.rs"]
mod private_containerd;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use support::Process;

#[test]
fn a_process_on_the_host_ends_with_its_owner() {
    let mut command = Process::host_command("sleep");
    command.arg("1000");
    let process = thread::spawn(|| Process::on_host("a sleep", command)).join().unwrap();
    let alive = PathBuf::from(format!("/proc/{}", process.pid()));
    // The thread that asked for it is gone; that is not the owner's end.
    thread::sleep(Duration::from_millis(50));
    assert!(alive.exists());
    drop(process);
    assert!(!alive.exists());
}

#[test]
fn images_are_the_same_each_time() {
    let built = support::images();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/images");
    let dir = tempfile::tempdir().unwrap();
    assert!(Command::new(script).arg(dir.path()).status().unwrap().success());
    for image in [&built.pause, &built.busybox] {
        let again = dir.path().join(image.file_name().unwrap());
        assert!(fs::read(image).unwrap() == fs::read(&again).unwrap(), "{} differs", again.display());
    }
}
