use std::io::Write;
use std::path::PathBuf;

use tempfile::TempDir;

use super::*;

/// A tar file with these files, as `tar` writes it.
pub fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, content) in files {
        if name.len() > 100 {
            entry(&mut out, "././@LongLink", b'L', name.as_bytes());
        }
        entry(&mut out, name, b'0', content);
    }
    out.extend([0; 1024]);
    out
}

fn entry(out: &mut Vec<u8>, name: &str, kind: u8, content: &[u8]) {
    let mut header = [0; 512];
    let cut = name.len().min(100);
    header[..cut].copy_from_slice(&name.as_bytes()[..cut]);
    header[100..108].copy_from_slice(b"0000644\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.extend(header);
    out.extend(content);
    out.resize(out.len().next_multiple_of(512), 0);
}

/// An archive as `docker save` wrote it before it knew OCI.
pub fn docker(tags: &[&str]) -> Vec<u8> {
    let tags = serde_json::to_string(tags).expect("is JSON");
    let manifest = format!(r#"[{{"Config":"c.json","RepoTags":{tags},"Layers":["l/layer.tar"]}}]"#);
    tar(&[("l/layer.tar", &[7; 5000]), ("c.json", b"{}"), (MANIFEST, manifest.as_bytes())])
}

pub const DIGEST: &str = "sha256:a80eec341acbede3021ee730970472ce21a41f04874f3aa94fc9817ca4221983";

/// An archive of an OCI layout with one image that has these annotations.
fn oci(annotations: &str) -> Vec<u8> {
    let index =
        format!(r#"{{"schemaVersion":2,"manifests":[{{"digest":"{DIGEST}","annotations":{{{annotations}}}}}]}}"#);
    tar(&[("./blobs/sha256/x", &[7; 5000]), ("./index.json", index.as_bytes()), ("./oci-layout", b"{}")])
}

pub fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).expect("packs");
    encoder.finish().expect("packs")
}

pub fn zstd(data: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(data, ruzstd::encoding::CompressionLevel::Fastest)
}

fn file(dir: &TempDir, content: &[u8]) -> PathBuf {
    let path = dir.path().join("archive");
    std::fs::write(&path, content).expect("writes");
    path
}

fn names(content: &[u8]) -> Result<Vec<String>, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let held = images(&file(&dir, content)).map_err(|e| e.to_string())?;
    Ok(held.into_iter().flat_map(|held| held.names).collect())
}

#[test]
fn images_of_docker_and_oci_archives() {
    let by_tag = "quay.io/a/b:1";
    let by_digest = format!("quay.io/a/b@{DIGEST}");
    let both = [by_tag, by_digest.as_str()];
    let whole = format!(r#""{IMAGE_NAME}":"quay.io/a/b:1","{REF_NAME}":"1""#);
    let table: [(Vec<u8>, &[&str]); 6] = [
        (docker(&["quay.io/a/b:1", "busybox:2", "NO NAME"]), &["docker.io/library/busybox:2", by_tag]),
        (oci(&whole), &both),
        (oci(&format!(r#""{REF_NAME}":"quay.io/a/b:1""#)), &both),
        (oci(&format!(r#""{REF_NAME}":"{by_digest}""#)), &[&by_digest]),
        // Both forms in one, as docker writes it today: the layout counts.
        (
            tar(&[
                (LAYOUT, b"{}"),
                (INDEX, format!(r#"{{"manifests":[{{"digest":"{DIGEST}","annotations":{{{whole}}}}}]}}"#).as_bytes()),
                (MANIFEST, br#"[{"RepoTags":["other:1"]}]"#),
            ]),
            &both,
        ),
        // An index that is none of OCI's.
        (tar(&[(INDEX, b"x"), (MANIFEST, br#"[{"RepoTags":["quay.io/a/b:1"]},{"RepoTags":null}]"#)]), &[by_tag]),
    ];
    for (content, want) in table {
        assert_eq!(names(&content).expect("is read"), want);
        assert_eq!(names(&gzip(&content)).expect("is unpacked"), want);
        assert_eq!(names(&zstd(&content)).expect("is unpacked"), want);
    }
}

#[test]
fn short_names_are_imported_under_another_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let held = images(&file(&dir, &oci(&format!(r#""{REF_NAME}":"busybox:1""#)))).expect("is read");
    let names = vec!["docker.io/library/busybox:1".to_owned(), format!("docker.io/library/busybox@{DIGEST}")];
    assert_eq!(held, [Held { imported_as: "busybox:1".to_owned(), names }]);
}

#[test]
fn long_names_and_pax_headers() {
    let long = format!("{}/x", "d".repeat(200));
    let mut content = Vec::new();
    entry(&mut content, "pax", b'g', b"18 comment=ignored\n");
    entry(&mut content, "pax", b'x', b"22 path=manifest.json\n11 size=30\n");
    // The size in the header is not the entry's.
    entry(&mut content, "m", b'0', br#"[{"RepoTags":["localhost/a"]}]"#);
    content.extend(tar(&[(&long, b"x")]));
    assert_eq!(names(&content).expect("is read"), ["localhost/a:latest"]);
}

#[test]
fn several_frames_and_members() {
    let content = docker(&["quay.io/a/b:1"]);
    let (head, tail) = content.split_at(3000);
    let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    let frames = [skipped.to_vec(), zstd(head), skipped.to_vec(), zstd(tail)].concat();
    assert_eq!(names(&frames).expect("is unpacked"), ["quay.io/a/b:1"]);
    assert_eq!(names(&[gzip(head), gzip(tail)].concat()).expect("is unpacked"), ["quay.io/a/b:1"]);
    let dir = tempfile::tempdir().expect("a directory");
    let mut plain = Vec::new();
    open(&file(&dir, &frames)).expect("opens").read_to_end(&mut plain).expect("unpacks");
    assert!(plain == content);
}

#[test]
fn what_is_not_whole_is_refused() {
    let plain = docker(&["quay.io/a/b:1"]);
    let whole = plain.len() - 1024;
    // Every cut that takes something away, of each form.
    for packed in [plain[..whole].to_vec(), gzip(&plain), zstd(&plain)] {
        for at in (0..packed.len()).step_by(packed.len() / 97 + 1).chain([packed.len() - 1]) {
            let error = names(&packed[..at]).expect_err("is refused");
            assert!(error.contains("ends in the middle"), "{at} of {}: {error}", packed.len());
        }
    }
}

#[test]
fn what_is_no_archive_is_refused() {
    let table: [(&[u8], &str); 8] = [
        (b"#!/bin/sh\necho this is a script, and it is long enough to be a block", "ends in the middle"),
        (&[b'x'; 2000], "no tar file"),
        (&tar(&[("etc/passwd", b"root")]), "no archive of images"),
        (&tar(&[(MANIFEST, b"[{]")]), "manifest.json in it can't be read"),
        (&docker(&[]), "no image in it has a whole name"),
        (&oci(&format!(r#""{REF_NAME}":"1.0""#)), "no image in it has a whole name"),
        (b"\xfd7zXZ\0 and more", "compressed by xz"),
        (b"BZh91AY", "compressed by bzip2"),
    ];
    for (content, want) in table {
        let error = names(content).expect_err("is refused");
        assert!(error.contains(want), "{error}");
    }
}

use std::io::Read;

/// Work on a lane has a small stack.
#[test]
fn unpacking_needs_little_stack() {
    let dir = tempfile::tempdir().expect("a directory");
    for content in [gzip(&docker(&["a:1"])), zstd(&docker(&["a:1"]))] {
        let path = file(&dir, &content);
        let thread =
            std::thread::Builder::new().stack_size(192 << 10).spawn(move || images(&path).map(|held| held.len()));
        assert_eq!(thread.expect("starts").join().expect("ends").expect("is read"), 1);
    }
}
