//! `cleat check`: what is wrong in manifests, by the decoder that the agent uses.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use jiff::Timestamp;

use crate::pod::Source;
use crate::pod::identity::Origin;
use crate::source::{is_manifest_name, manifest};
use crate::yaml::Problem;

pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let paths: Vec<PathBuf> = args.map(PathBuf::from).collect();
    if paths.is_empty() {
        eprintln!("cleat: check takes files or directories of manifests");
        return ExitCode::from(2);
    }
    let mut bad = false;
    for path in &paths {
        for file in files(path) {
            let lines = match file.and_then(|file| read(&file).map(|text| check(&file, &text))) {
                Ok(lines) => lines,
                Err(e) => vec![format!("{}: {e}", path.display())],
            };
            bad |= !lines.is_empty();
            lines.iter().for_each(|line| println!("{line}"));
        }
    }
    if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The file, or the manifests of the directory.
fn files(path: &Path) -> Vec<io::Result<PathBuf>> {
    if !path.is_dir() {
        return vec![Ok(path.to_owned())];
    }
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) => return vec![Err(e)],
    };
    let mut files: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|e| e.file_name().to_str().is_some_and(is_manifest_name) && e.path().is_file())
        .map(|e| e.path())
        .collect();
    files.sort();
    files.into_iter().map(Ok).collect()
}

fn read(path: &Path) -> io::Result<String> {
    String::from_utf8(fs::read(path)?).map_err(|_| io::Error::other("not UTF-8 text, no manifest"))
}

/// `FILE:LINE: FIELD: MESSAGE` for all that is wrong; what the agent would only warn of, too.
fn check(path: &Path, text: &str) -> Vec<String> {
    let place = path.display().to_string();
    let origin = Origin { source: Source::File, node_name: "node", place: &place, seen: Timestamp::UNIX_EPOCH };
    let manifest = manifest::read(text, origin);
    let mut problems: Vec<Problem> = manifest.problems.into_iter().chain(manifest.warnings).collect();
    problems.sort_by_key(|p| p.line);
    problems.iter().map(|p| p.at(&place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_wrong_in_the_order_of_lines() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: main\n    image: i\n    imagePullPolice: Never\n---\nkind: [\n";
        assert_eq!(
            check(Path::new("a.yaml"), text),
            ["a.yaml:8: spec.containers[0].imagePullPolice: unknown field", "a.yaml:10: unclosed bracket '['"]
        );
    }
}
