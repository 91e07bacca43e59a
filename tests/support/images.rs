//! The test images: built by `scripts/images`, once for each state of what goes into them.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::{fs, io};

use serde_json::{Value, json};

/// The sandbox image.
pub const PAUSE: &str = "cleat.local/pause:1";
/// A shell and the usual tools; its default command is `sh`.
pub const BUSYBOX: &str = "cleat.local/busybox:1";

/// Docker archives, as `ctr images import` takes them.
pub struct Images {
    pub pause: PathBuf,
    pub busybox: PathBuf,
}

/// Builds the images, or finds them built by an earlier run.
pub fn images() -> &'static Images {
    static BUILT: LazyLock<Images> = LazyLock::new(|| {
        let dir = build();
        Images { pause: dir.join("pause.tar"), busybox: dir.join("busybox.tar") }
    });
    &BUILT
}

fn build() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = root.join("scripts/images");
    let mut hash = DefaultHasher::new();
    for input in [&script, &root.join("tests/support/pause.c"), Path::new("/bin/busybox")] {
        let bytes = fs::read(input).unwrap_or_else(|e| panic!("the images need {}: {e}", input.display()));
        hash.write(&bytes);
    }
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let built = cache.join(format!("images-{:016x}", hash.finish()));
    if built.exists() {
        return built;
    }
    // Other test binaries may build at the same time: the first to rename wins.
    let fresh = tempfile::tempdir_in(cache).expect("make a directory for the images");
    let mut command = Command::new(&script);
    for setting in ["ARCH", "BUSYBOX", "CC"] {
        command.env_remove(setting);
    }
    let out = command.arg(fresh.path()).output().unwrap_or_else(|e| panic!("{}: {e}", script.display()));
    assert!(out.status.success(), "{}: {}\n{}", script.display(), out.status, String::from_utf8_lossy(&out.stderr));
    match fs::rename(fresh.path(), &built) {
        Ok(()) => drop(fresh.keep()),
        Err(e) => assert!(built.exists(), "rename {} to {}: {e}", fresh.path().display(), built.display()),
    }
    built
}

/// An archive of the busybox image under another name and with another configuration (`User`, `Env`,
/// `WorkingDir`, `Entrypoint`, `Cmd`), in `dir`.
pub fn variant(dir: &Path, name: &str, config: Value) -> PathBuf {
    let files = dir.join(format!("image-{}", name.replace(['/', ':'], "-")));
    fs::create_dir(&files).expect("make the image's directory");
    let tar = |args: &[&OsStr]| {
        let out = Command::new("tar").args(args).output().unwrap_or_else(|e| panic!("tar: {e}"));
        assert!(out.status.success(), "tar {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    };
    tar(&["-xf".as_ref(), images().busybox.as_ref(), "-C".as_ref(), files.as_ref()]);
    let edit = |path: &Path, change: &dyn Fn(&mut Value)| {
        let mut value = serde_json::from_slice(&fs::read(path).expect("read the image")).expect("it is JSON");
        change(&mut value);
        fs::write(path, value.to_string()).expect("write the image");
    };
    let manifest = files.join("manifest.json");
    edit(&manifest, &|manifest| manifest[0]["RepoTags"] = json!([name]));
    for entry in fs::read_dir(&files).expect("list the image").map(|e| e.expect("list the image").path()) {
        if entry.extension().is_some_and(|e| e == "json") && entry != manifest {
            let of_image = |image: &mut Value| {
                let old = image["config"].as_object_mut().expect("the image has a configuration");
                old.extend(config.as_object().expect("fields by name").clone());
            };
            edit(&entry, &of_image);
        }
    }
    let archive = files.with_extension("tar");
    tar(&["-cf".as_ref(), archive.as_ref(), "-C".as_ref(), files.as_ref(), ".".as_ref()]);
    archive
}

/// A docker archive of an image that no other shares anything with: busybox and `filler` random bytes.
#[track_caller]
pub fn archive(directory: &Path, name: &str, filler: usize) -> PathBuf {
    const SCRIPT: &str = r#"
        set -e
        cd "$1"; mkdir -p layer/bin; cp /bin/busybox layer/bin/
        for applet in sh sleep cat; do ln -sf busybox layer/bin/$applet; done
        head -c "$3" /dev/urandom >layer/filler
        tar -C layer --owner=0 --group=0 -cf layer.tar .
        arch=$(dpkg --print-architecture); [ $arch != armhf ] || arch=arm
        sum=$(sha256sum <layer.tar | cut -d' ' -f1)
        echo '{"architecture":"'$arch'","os":"linux","config":{"Cmd":["sh"],"Env":["PATH=/bin"]},"rootfs":{"type":"layers","diff_ids":["sha256:'$sum'"]}}' >config.json
        echo '[{"Config":"config.json","RepoTags":["'"$2"'"],"Layers":["layer.tar"]}]' >manifest.json
        tar -cf image.tar manifest.json config.json layer.tar
    "#;
    let build = tempfile::tempdir_in(directory).expect("make a directory for the image");
    let out =
        Command::new("sh").args(["-c", SCRIPT, "sh"]).arg(build.path()).arg(name).arg(filler.to_string()).output();
    let out = out.expect("run sh");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let path = directory.join(format!("{:016x}.tar", {
        let mut hash = DefaultHasher::new();
        hash.write(name.as_bytes());
        hash.finish()
    }));
    fs::rename(build.path().join("image.tar"), &path).expect("move the image");
    path
}
