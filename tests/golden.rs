//! Golden requests: for each manifest in `golden/`, what is sent to the runtime for it, in a form that
//! is made to be read. A manifest's first line says which rule of the kubelet's it shows.
//!
//! `bare.request.txt` has all that a pod with nothing but a container gives. The other files have only
//! what differs from it: a value of `(none)` is one that the bare pod has and this one has not.
//! `UPDATE=1 cargo test --test golden` writes the files; look at what changed before you commit it.

#[path = "golden/node.rs"]
mod node;
#[path = "golden/render.rs"]
mod render;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use node::Setting;

type Lines = BTreeMap<String, String>;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn names(suffix: &str) -> BTreeSet<String> {
    let files = fs::read_dir(golden()).expect("the directory reads").map(|e| e.expect("an entry").file_name());
    let files = files.filter_map(|name| name.to_str().and_then(|n| n.strip_suffix(suffix)).map(str::to_owned));
    files.collect()
}

fn requests(name: &str) -> Lines {
    let text = fs::read_to_string(golden().join(format!("{name}.yaml"))).expect("the manifest reads");
    let first = text.lines().next().unwrap_or_default();
    assert!(first.starts_with("# ") && first.len() > 12, "{name}: the first line must say which rule it shows");
    let setting = Setting::of(&text).unwrap_or_else(|why| panic!("{name}: {why}"));
    render::requests(&setting, &text)
}

/// What a container is called where its name doesn't matter.
const ANY: &str = "container.main.";

/// The lines that differ from those of a bare pod. Containers are compared with its only one.
fn difference(lines: &Lines, bare: &Lines) -> String {
    let containers: BTreeSet<String> = lines
        .keys()
        .filter_map(|key| Some(format!("container.{}.", key.strip_prefix("container.")?.split('.').next()?)))
        .collect();
    let mut expected = Lines::new();
    for (key, value) in bare {
        match key.strip_prefix(ANY) {
            Some(rest) => expected.extend(containers.iter().map(|prefix| (format!("{prefix}{rest}"), value.clone()))),
            None => drop(expected.insert(key.clone(), value.clone())),
        }
    }
    let refused = lines.keys().any(|key| key == "refused" || key.ends_with(".error"));
    let mut out = String::new();
    for key in lines.keys().chain(expected.keys()).collect::<BTreeSet<_>>() {
        match (lines.get(key), expected.get(key)) {
            (Some(value), other) if other != Some(value) => out += &format!("{key} = {value}\n"),
            // Where nothing was sent, everything is missing.
            (None, Some(_)) if !refused => out += &format!("{key} = (none)\n"),
            _ => {}
        }
    }
    out
}

#[test]
fn requests_are_as_reviewed() {
    let manifests = names(".yaml");
    assert!(manifests.len() >= 60, "only {} manifests", manifests.len());
    let orphans: Vec<_> = names(".request.txt").difference(&manifests).cloned().collect();
    assert_eq!(orphans, Vec::<String>::new(), "requests without a manifest");
    let bare = requests("bare");
    let mut wrong = Vec::new();
    for name in &manifests {
        let lines = requests(name);
        let got = match name.as_str() {
            "bare" => lines.iter().map(|(key, value)| format!("{key} = {value}\n")).collect(),
            _ => difference(&lines, &bare),
        };
        let path = golden().join(format!("{name}.request.txt"));
        let want = fs::read_to_string(&path).unwrap_or_default();
        if got == want {
            continue;
        }
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &got).expect("the file is written");
        } else {
            let lost = want.lines().filter(|line| !got.lines().any(|l| l == *line)).map(|line| format!("- {line}\n"));
            let new = got.lines().filter(|line| !want.lines().any(|l| l == *line)).map(|line| format!("+ {line}\n"));
            wrong.push(format!("{name}:\n{}", lost.chain(new).collect::<String>()));
        }
    }
    assert!(wrong.is_empty(), "requests are not as reviewed (UPDATE=1 writes them anew):\n{}", wrong.join("\n"));
}
