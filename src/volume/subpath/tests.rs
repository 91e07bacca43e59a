use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::disk::mounts::scratch::Scratch;
use crate::volume::teardown;

/// A pod's directory and a volume, with somebody's data beside it.
struct Given {
    scratch: Scratch,
    pod: PathBuf,
    root: PathBuf,
    precious: PathBuf,
}

impl Given {
    fn new() -> Option<Given> {
        let scratch = Scratch::new()?;
        let at = |name: &str| scratch.path().join(name);
        let (pod, root, precious) = (at("pod"), at("volume"), at("precious"));
        for path in [&pod, &root, &precious] {
            fs::create_dir(path).expect("makes");
        }
        fs::write(precious.join("data"), "precious").expect("writes");
        Some(Given { scratch, pod, root, precious })
    }

    fn bind(&self, path: &str) -> Result<PathBuf, String> {
        let part = SubPath { volume: "v", container: "c", index: 0, path };
        bind(&self.pod, &self.root, &part).map_err(|e| e.to_string())
    }

    fn mounted(&self) -> usize {
        self.scratch.mounted().len()
    }
}

fn same(a: &Path, b: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino())).expect("is there");
    id(a) == id(b)
}

#[test]
fn parts_of_a_volume() {
    let Some(given) = Given::new() else { return };
    let root = &given.root;
    fs::create_dir_all(root.join("a/b")).expect("makes");
    fs::write(root.join("a/file"), "x").expect("writes");
    symlink("a/b", root.join("rel")).expect("links");
    symlink("../a/b", root.join("a/up")).expect("links");
    symlink(root.join("a/b"), root.join("abs")).expect("links");
    symlink("rel", root.join("twice")).expect("links");
    symlink(".", root.join("self")).expect("links");
    let target = given.pod.join("volume-subpaths/v/c/0");
    let table = [
        ("a/b", "a/b"),
        ("./a//b/", "a/b"),
        ("a/file", "a/file"),
        ("rel", "a/b"),
        ("a/up", "a/b"),
        ("abs", "a/b"),
        ("twice", "a/b"),
        ("self/a", "a"),
        (".", "."),
        ("new/deep", "new/deep"),
        ("rel/made", "a/b/made"),
    ];
    for (path, want) in table {
        assert_eq!(given.bind(path).as_ref(), Ok(&target), "{path}");
        assert!(same(&target, &root.join(want)), "{path}");
        // Again, it is the same mount and no other on it.
        given.bind(path).expect("binds");
        assert_eq!(given.mounted(), 1, "{path}");
    }
}

#[test]
fn directories_are_made_like_the_volume() {
    let Some(given) = Given::new() else { return };
    for (mode, want) in [(0o777, 0o777), (0o1777, 0o777), (0o2775, 0o2775), (0o700, 0o700)] {
        fs::set_permissions(&given.root, fs::Permissions::from_mode(mode)).expect("changes");
        given.bind(&format!("{mode:o}/deep")).expect("binds");
        for path in [format!("{mode:o}"), format!("{mode:o}/deep")] {
            let made = fs::metadata(given.root.join(&path)).expect("is there").mode() & 0o7777;
            assert_eq!(made, want, "{path}: {made:o}");
        }
    }
}

#[test]
fn no_path_leads_out() {
    let Some(given) = Given::new() else { return };
    let root = &given.root;
    fs::create_dir(root.join("a")).expect("makes");
    fs::write(root.join("file"), "x").expect("writes");
    let beside = PathBuf::from(format!("{}-more", root.display()));
    let links = [
        ("abs", given.precious.as_path()),
        ("etc", Path::new("/etc")),
        ("up", Path::new("..")),
        ("upup", Path::new("a/../../precious")),
        ("proc", Path::new("/proc/self/root")),
        ("prefix", &beside),
        ("loop", Path::new("loop")),
        ("dangling", Path::new("../none")),
    ];
    for (name, target) in &links {
        symlink(target, root.join(name)).expect("links");
    }
    let table = [
        ("..", "must not contain '..'"),
        ("a/../b", "must not contain '..'"),
        ("/etc", "must be a relative path"),
        ("abs", "abs leads out of the volume"),
        ("abs/data", "abs leads out of the volume"),
        ("etc/passwd", "etc leads out of the volume"),
        ("up", ".. leads out of the volume"),
        ("up/precious", ".. leads out of the volume"),
        ("upup", ".. leads out of the volume"),
        ("proc", "proc leads out of the volume"),
        ("prefix", "prefix leads out of the volume"),
        ("loop", "too many links"),
        ("dangling/made", ".. leads out of the volume"),
        ("file/x", "file/x: Not a directory (os error 20)"),
    ];
    for (path, why) in table {
        assert_eq!(given.bind(path), Err(format!("subPath {path:?}: {why}")), "{path}");
    }
    assert_eq!(given.bind(&"x/".repeat(300)), Err(format!("subPath {:?}: too many directories", "x/".repeat(300))));
    assert_eq!(given.mounted(), 0);
    assert!(!given.scratch.path().join("none").exists());
}

/// A container exchanges a directory for a link to the outside, as fast as it can, while its part
/// of the volume is made ready.
#[test]
fn a_race_with_links_never_leads_out() {
    let Some(given) = Given::new() else { return };
    let (root, stop) = (&given.root, AtomicBool::new(false));
    fs::create_dir_all(root.join("a/data")).expect("makes");
    symlink(&given.precious, root.join("abs")).expect("links");
    symlink("../precious", root.join("rel")).expect("links");
    let (mut bound, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // `a` is now a directory, now a link.
            while !stop.load(Ordering::Relaxed) {
                for other in ["abs", "abs", "rel", "rel"] {
                    let (here, exchange) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
                    rustix::fs::renameat_with(here, root.join("a"), here, root.join(other), exchange).expect("renames");
                }
            }
        });
        for i in 0..5000 {
            let path = ["a", "a/data", "a/new"][i % 3];
            match given.bind(path) {
                Ok(target) => {
                    bound += 1;
                    assert!(!same(&target, &given.precious), "{path} led out");
                    assert!(!same(&target, &given.precious.join("data")), "{path} led out");
                }
                Err(why) => {
                    refused += 1;
                    assert!(why.contains("leads out of the volume"), "{why}");
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(bound > 0 && refused > 0, "{bound} {refused}");
    let left: Vec<_> = fs::read_dir(&given.precious).expect("reads").map(|e| e.expect("reads").file_name()).collect();
    assert_eq!(left, ["data"], "nothing was made outside");
    teardown(&given.pod).expect("is taken away");
    assert_eq!(given.mounted(), 0);
}

#[test]
fn another_thing_at_the_path_replaces_the_mount() {
    let Some(given) = Given::new() else { return };
    let root = &given.root;
    fs::create_dir(root.join("x")).expect("makes");
    given.bind("x").expect("binds");
    // A directory becomes a file, and again another directory.
    fs::rename(root.join("x"), root.join("old")).expect("renames");
    fs::write(root.join("x"), "file").expect("writes");
    let target = given.bind("x").expect("binds");
    assert_eq!(fs::read(&target).expect("reads"), b"file");
    fs::remove_file(root.join("x")).expect("removes");
    let target = given.bind("x").expect("binds");
    assert!(target.is_dir() && same(&target, &root.join("x")));
    assert_eq!(given.mounted(), 1);
    // The agent died right before the mount: what it had made to mount on is there.
    teardown(&given.pod).expect("is taken away");
    fs::create_dir_all(target.parent().expect("one")).expect("makes");
    fs::write(&target, "").expect("writes");
    assert!(given.bind("x").expect("binds").is_dir());
}

#[test]
fn a_key_of_a_config_map() {
    let Some(given) = Given::new() else { return };
    let root = &given.root;
    fs::create_dir(root.join("..v0")).expect("makes");
    fs::write(root.join("..v0/key"), "1").expect("writes");
    symlink("..v0", root.join("..data")).expect("links");
    symlink("..data/key", root.join("key")).expect("links");
    let target = given.bind("key").expect("binds");
    assert_eq!(fs::read(&target).expect("reads"), b"1");
    fs::create_dir(root.join("..v1")).expect("makes");
    fs::write(root.join("..v1/key"), "2").expect("writes");
    symlink("..v1", root.join("..data_tmp")).expect("links");
    fs::rename(root.join("..data_tmp"), root.join("..data")).expect("renames");
    assert_eq!(fs::read(&target).expect("reads"), b"1", "what is mounted stays");
    given.bind("key").expect("binds");
    assert_eq!(fs::read(&target).expect("reads"), b"2", "until the container starts again");
}
