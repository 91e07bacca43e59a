//! A few thousand mutations of what is fuzzed (`fuzz/targets.rs`), the same ones on every run, and the
//! memory that hostile manifests take. `MUTATIONS` tries so many of each target, `MUTATIONS_SEED` others.

#[path = "../fuzz/targets.rs"]
#[allow(dead_code)]
mod targets;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// xorshift64*: the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).expect("31 bits") % end.max(1)
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// What means something to one of the targets.
const WORDS: &str = "\n|: |- |{|}|[|]|,|#|\"|'|&a |*a|<<: *a|---\n|...\n|!!str |!|? || |>-\n|\t|\0|\r\n|\u{feff}|\u{85}|é|\
    null|~|true|yes|0|-1|0x1f|0o17|1e9|1_000|.inf|.nan|9223372036854775807|18446744073709551616|1Ki|8Ei|100m|1e-9|\
    apiVersion: v1\n|kind: Pod\n|metadata|spec|containers|name|image|env|value|valueFrom|volumes|subPathExpr|resources|limits|\
    requests|hugepages-2Mi|items|$(|$$|$(A)|)|..|../|/|//|\\|%|hostUsers: false|=|1h|ms|µs|nameserver |search |options |*|net.|kernel.";

fn mutate(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    const MOST: usize = 64 * 1024;
    let words: Vec<&str> = WORDS.split('|').collect();
    let mut data = random.pick(seeds).clone();
    for _ in 0..=random.below(4) {
        let at = random.below(data.len() + 1);
        let end = (at + random.below(16)).min(data.len());
        match random.below(7) {
            0 => drop(data.drain(at..end)),
            1 => data.truncate(at),
            2 => drop(data.splice(at..at, random.pick(&words).bytes())),
            3 => drop(data.splice(at..end, random.pick(&words).bytes())),
            4 => data[at..end].iter_mut().for_each(|byte| *byte ^= 1 << random.below(8)),
            5 => {
                let copy = data[at..(at + random.below(200)).min(data.len())].repeat(1 + random.below(4));
                drop(data.splice(at..at, copy));
            }
            _ => {
                let other = random.pick(seeds);
                let from = random.below(other.len() + 1);
                let part = other[from..(from + random.below(200)).min(other.len())].to_vec();
                drop(data.splice(at..end, part));
            }
        }
        data.truncate(MOST);
    }
    data
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut directories = vec![root.join("fuzz/seeds").join(target)];
    if matches!(target, "manifest" | "yaml") {
        directories.push(root.join("tests/golden"));
    }
    let files = directories.iter().flat_map(|directory| fs::read_dir(directory).expect("lists the seeds"));
    let mut paths: Vec<_> = files.map(|entry| entry.expect("lists the seeds").path()).collect();
    paths.retain(|path| !path.starts_with(root.join("tests")) || path.extension().is_some_and(|e| e == "yaml"));
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("reads a seed")).collect()
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// No target fails or takes long with any of them.
#[test]
fn mutations() {
    let count = number("MUTATIONS", 1500);
    for (name, target) in targets::ALL {
        let seeds = seeds(name);
        assert!(seeds.len() >= 5, "{name} has too few seeds");
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ number("MUTATIONS_SEED", 1));
        let all = (0..count).map(|_| mutate(&mut random, &seeds));
        for data in seeds.iter().cloned().chain(all) {
            let begin = Instant::now();
            let result = catch_unwind(|| target(&data));
            let took = begin.elapsed();
            let shown = || String::from_utf8_lossy(&data).into_owned();
            assert!(result.is_ok(), "target {name} fails with {:?}", shown());
            assert!(took < Duration::from_secs(5), "target {name} takes {took:?} with {:?}", shown());
        }
    }
}

const MIB: usize = 1 << 20;

/// As often as it fits into 1 MiB, between a head and a tail.
fn filled(head: &str, part: impl Fn(usize) -> String, tail: &str) -> String {
    let mut text = head.to_owned();
    for i in 0.. {
        let part = part(i);
        if text.len() + part.len() + tail.len() > MIB {
            break;
        }
        text += &part;
    }
    text + tail
}

/// A pod with so many items that it is still read, each made long by blanks.
fn fewer(head: &str, part: impl Fn(usize) -> String, tail: &str) -> String {
    let head = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{{head}");
    filled(&head, |i| format!("{:105},", part(i)), &format!("{tail}}}\n"))
}

/// Manifests of 1 MiB that are made to take much memory.
fn hostile() -> Vec<(&'static str, String)> {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: i, command: [";
    let same = |part: &'static str| move |_: usize| part.to_owned();
    let levels = |i: usize| match i {
        0 => "- &a0 [x, x, x, x, x, x, x, x]\n".to_owned(),
        i => format!("- &a{i} [{}]\n", vec![format!("*a{}", i - 1); 8].join(", ")),
    };
    let long = format!("- &a {}\n", "x".repeat(MIB / 2));
    vec![
        ("levels of aliases", filled("", levels, "")),
        ("aliases of a long text", filled(&long, same("- *a\n"), "")),
        ("aliases of a list", filled(&format!("- &a [{}]\n", "x,".repeat(1000)), same("- *a\n"), "")),
        ("short items", filled(&format!("{pod}a"), same(",a"), "]}]}\n")),
        ("numbers", filled(&format!("{pod}1"), same(",1"), "]}]}\n")),
        ("empty lists", filled(&format!("{pod}[]"), same(",[]"), "]}]}\n")),
        ("empty maps", filled(&format!("{pod}{{}}"), same(",{}"), "]}]}\n")),
        ("short keys", filled("{", |i| format!("{i:x}: ,"), "}")),
        ("the same key", filled("{", same("a: ,"), "}")),
        ("nesting", filled("", same("["), "")),
        ("nesting of blocks", filled("", same("- "), "")),
        ("anchors", filled("[", |i| format!("&{i:x} a,"), "]")),
        ("documents", filled("", same("---\na\n"), "")),
        ("documents of a kind", filled("", same("---\nkind: x\n"), "")),
        ("one long text", filled(&format!("{pod}\""), same("abcdefgh"), "\"]}]}\n")),
        ("one long block", filled("a: |\n", same(" abcdefgh\n"), "")),
        ("unknown fields", filled("apiVersion: v1\nkind: Pod\nspec:\n", |i| format!(" x{i}: 1\n"), "")),
        (
            "containers",
            filled("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [", same("{},"), "]}\n"),
        ),
        (
            "pods",
            filled(
                "apiVersion: v1\nkind: PodList\nitems:\n",
                |i| format!("- {{metadata: {{name: p{i}}}, spec: {{containers: [{{name: a, image: i}}]}}}}\n"),
                "",
            ),
        ),
        (
            "variables",
            filled(
                "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a, image: i, env: [",
                |i| format!("{{name: A{i}}},"),
                "]}]}\n",
            ),
        ),
        // Few enough to be read to their end.
        ("fewer variables", fewer("containers: [{name: a, image: i, env: [", |i| format!("{{name: A{i}}}"), "]}]")),
        ("fewer containers", fewer("containers: [", |i| format!("{{name: a{i}, image: i}}"), "]")),
        (
            "fewer ports",
            fewer("containers: [{name: a, image: i, ports: [", |i| format!("{{containerPort: {i}}}"), "]}]"),
        ),
        ("fewer volumes", fewer("containers: [{name: a, image: i}], volumes: [", |i| format!("{{name: a{i}}}"), "]")),
        ("bare volumes", fewer("containers: [{name: a, image: i}], volumes: [", |_| "{}".to_owned(), "]")),
        (
            "secrets",
            filled("apiVersion: v1\nkind: Secret\nmetadata: {name: p}\nstringData: {", |i| format!("a{i}: b,"), "}\n"),
        ),
        ("comments", filled("", same("#\n"), "")),
        ("zeros", "\0".repeat(MIB)),
    ]
}

/// Of this process, in bytes.
fn most_memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("reads");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("is there");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

/// A manifest of 1 MiB takes no more than 64 MiB, whatever is in it. Each is read in a process of its own.
#[test]
fn memory() {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, text) in hostile() {
        assert!(text.len() <= MIB && text.len() > MIB * 9 / 10, "{name}: {}", text.len());
        let path = directory.path().join("manifest.yaml");
        fs::write(&path, text).expect("writes");
        let mut command = Command::new(std::env::current_exe().expect("has a path"));
        command.args(["--exact", "one_manifest", "--ignored", "--nocapture"]).env("MANIFEST", &path);
        let begin = Instant::now();
        let out = command.output().expect("runs");
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "{name}: {said}");
        let took = said.lines().find_map(|line| line.rsplit_once("took ")).expect("it says what it took").1;
        let took: usize = took.parse().expect("a number");
        println!("{name}: {} KiB, {:?}", took / 1024, begin.elapsed());
        assert!(took <= 64 * MIB, "{name} takes {} MiB", took / MIB);
        assert!(begin.elapsed() < Duration::from_secs(30), "{name} takes {:?}", begin.elapsed());
    }
}

#[test]
#[ignore = "a part of another test, which runs it"]
fn one_manifest() {
    let text = fs::read_to_string(std::env::var("MANIFEST").expect("names a file")).expect("reads");
    let before = most_memory();
    let manifest = targets::read(&text);
    let took = most_memory() - before;
    println!("\n{} pods, {} problems, took {took}", manifest.pods.len(), manifest.problems.len());
}
