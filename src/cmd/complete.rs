//! `cleat completion`: what shells need to complete our commands. The scripts only ask us again, by
//! [`WORDS`], with the words that stand there.

use std::ffi::OsString;
use std::process::ExitCode;

use super::ask::{self, Operands, options};
use super::{OTHERS, access};
use crate::config::flags;

/// The command that the scripts call, which is in no list.
pub const WORDS: &str = "__complete";

const BASH: &str = include_str!("../../scripts/packaging/debian/completion.bash");
const ZSH: &str = include_str!("../../scripts/packaging/debian/completion.zsh");
const FISH: &str = include_str!("../../scripts/packaging/debian/completion.fish");

/// Prints the script for a shell.
pub fn script(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let text = match (args.next().as_ref().and_then(|shell| shell.to_str()), args.next()) {
        (Some("bash"), None) => BASH,
        (Some("zsh"), None) => ZSH,
        (Some("fish"), None) => FISH,
        _ => {
            eprintln!("cleat: completion is there for bash, zsh and fish: cleat completion bash");
            return ExitCode::from(2);
        }
    };
    print!("{text}");
    ExitCode::SUCCESS
}

/// Prints what the last of these words can become.
pub fn words(args: impl Iterator<Item = OsString>) -> ExitCode {
    let words: Vec<String> = args.map(|word| word.to_string_lossy().into_owned()).collect();
    for word in candidates(&words, ask::names) {
        println!("{word}");
    }
    ExitCode::SUCCESS
}

/// What the last word can become; nothing where it may be a file. `names`: of the objects of a kind, in
/// a namespace, by the agent at a socket.
fn candidates(words: &[String], names: impl Fn(&ask::Names<'_>) -> Vec<String>) -> Vec<String> {
    let Some((last, before)) = words.split_last() else { return Vec::new() };
    let all: Vec<String> = match before.split_first() {
        None => OTHERS.iter().copied().chain(ask::COMMANDS.iter().map(|c| c.name)).map(str::to_owned).collect(),
        Some((command, rest)) => match (command.as_str(), ask::command(command)) {
            (_, Some(command)) => of_command(command, rest, last, names),
            ("run", _) if last.starts_with('-') => flags::names().map(|name| format!("--{name}")).collect(),
            ("kubeconfig" | "dashboard", _) => access::FLAGS.map(|name| format!("--{name}")).to_vec(),
            ("completion", _) => ["bash", "zsh", "fish"].map(str::to_owned).to_vec(),
            _ => Vec::new(),
        },
    };
    let mut all: Vec<String> = all.into_iter().filter(|word| word.starts_with(last.as_str())).collect();
    all.sort();
    all.dedup();
    all
}

fn of_command(
    command: &ask::Command,
    before: &[String],
    last: &str,
    names: impl Fn(&ask::Names<'_>) -> Vec<String>,
) -> Vec<String> {
    // What runs in a container is not ours to know.
    if before.iter().any(|word| word == "--") {
        return Vec::new();
    }
    let (mut operands, mut names_asked) = (Vec::new(), ask::Names::default());
    let mut value_of = None;
    for word in before {
        match (value_of.take(), word.starts_with('-')) {
            (Some("namespace"), _) => names_asked.namespace = word,
            (Some("socket"), _) => names_asked.socket = Some(word),
            (Some(_), _) => {}
            (None, true) => value_of = options::takes_value(command.flags, word),
            (None, false) => operands.push(word.as_str()),
        }
    }
    match value_of {
        Some("namespace") => return names(&ask::Names { kind: "namespaces", ..names_asked }),
        Some("output") => return ["wide", "json", "yaml", "name"].map(str::to_owned).to_vec(),
        Some(_) => return Vec::new(),
        None if last.starts_with('-') => {
            return options::of(command.flags).map(|flag| format!("--{}", flag.long)).collect();
        }
        None => {}
    }
    let pods = || names(&ask::Names { kind: "pods", ..names_asked });
    match (command.operands, operands.as_slice()) {
        (Operands::KindName, []) => ask::kinds(),
        (Operands::Used, []) => vec!["nodes".to_owned(), "pods".to_owned()],
        (Operands::KindName | Operands::Used, [kind]) => names(&ask::Names { kind, ..names_asked }),
        (Operands::Pod | Operands::PodCommand | Operands::PodPorts, []) => pods(),
        // What a path in a container begins with; without a colon it may be a file here.
        (Operands::Places, [] | [_]) if !last.contains(['/', ':', '.']) => {
            pods().into_iter().map(|pod| format!("{pod}:/")).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_words_can_become() {
        let names = |asked: &ask::Names<'_>| -> Vec<String> {
            match (asked.kind, asked.namespace, asked.socket) {
                ("pods" | "pod", "default", None) => vec!["web-n".to_owned(), "db-n".to_owned()],
                ("pods", "ns", Some("/s")) => vec!["other-n".to_owned()],
                ("namespaces", ..) => vec!["default".to_owned(), "ns".to_owned()],
                _ => vec![],
            }
        };
        let table: &[(&str, &[&str])] = &[
            ("re", &["restart"]),
            ("c", &["check", "completion", "cp"]),
            ("logs ", &["db-n", "web-n"]),
            ("logs we", &["web-n"]),
            ("logs web-n ", &[]),
            ("logs -n ns --socket /s ", &["other-n"]),
            ("logs -n ", &["default", "ns"]),
            ("logs --f", &["--follow"]),
            ("logs -f ", &["db-n", "web-n"]),
            ("get po", &["pods"]),
            ("get i", &["images"]),
            ("get pod ", &["db-n", "web-n"]),
            ("get pods -o y", &["yaml"]),
            ("describe pods w", &["web-n"]),
            ("exec -it web-n -- ", &[]),
            ("cp we", &["web-n:/"]),
            ("cp ./we", &[]),
            ("apply ", &[]),
            ("apply -f ", &[]),
            ("completion z", &["zsh"]),
            ("dashboard --r", &["--root-dir"]),
            ("run --pod-man", &["--pod-manifest-path"]),
            ("none ", &[]),
        ];
        for (line, want) in table {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(candidates(&words, names), *want, "{line:?}");
        }
        assert!(candidates(&[], names).is_empty());
    }

    #[test]
    fn the_manual_tells_of_all_commands_and_flags() {
        let manual = include_str!("../../docs/cleat.8").replace("\\-", "-");
        let has = |text: &str| assert!(manual.contains(text), "docs/cleat.8 lacks {text}");
        let others = OTHERS.iter().filter(|name| !matches!(**name, "help" | "version"));
        for name in ask::COMMANDS.iter().map(|c| c.name).chain(others.copied()) {
            assert!([".B ", ".BI ", ".B cleat "].iter().any(|b| manual.contains(&format!("\n{b}{name}"))), "{name}");
        }
        for flag in options::FLAGS {
            has(&format!("--{}", flag.long));
            flag.short.iter().for_each(|short| has(&format!("-{short}")));
        }
    }
}
