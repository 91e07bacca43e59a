//! Tables and YAML for people. Pure, but for the one place that asks whether there is a terminal.

use std::io::{self, IsTerminal, Write};

use serde_json::Value;

use super::Error;

/// Whether what is printed has colours: on a terminal, unless `NO_COLOR` is set.
pub fn has_color() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

pub fn out(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::Write)
}

/// How a word is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Good,
    /// On its way, or over.
    Middling,
    Bad,
}

impl Tone {
    /// Of a pod's status, an event's type, a node's status; `None` for other words.
    pub fn of(word: &str) -> Option<Tone> {
        match word {
            "Running" | "Ready" | "Active" => Some(Tone::Good),
            "Pending" | "Completed" | "Succeeded" | "Terminating" | "ContainerCreating" | "PodInitializing" => {
                Some(Tone::Middling)
            }
            "Warning" | "Error" | "Failed" | "NotReady" | "OOMKilled" | "Evicted" | "Unknown" => Some(Tone::Bad),
            word if word.starts_with("Init:") && word.contains('/') => Some(Tone::Middling),
            word if word.starts_with(char::is_uppercase) => {
                let bad = ["BackOff", "Err", "Error", "Failed", "Invalid", "Unexpected", "Deadline"];
                bad.iter().any(|part| word.contains(part)).then_some(Tone::Bad)
            }
            _ => None,
        }
    }

    pub fn paint(self, text: &str) -> String {
        let code = match self {
            Tone::Good => 32,
            Tone::Middling => 33,
            Tone::Bad => 31,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Columns below each other, three spaces apart. What is added later keeps to them as far as it fits.
pub struct Table {
    widths: Vec<usize>,
    /// The columns with words that have a tone.
    toned: Vec<usize>,
}

impl Table {
    pub fn plain() -> Table {
        Table { widths: Vec::new(), toned: Vec::new() }
    }

    /// With colours for the words of these columns.
    pub fn toned(columns: Vec<usize>) -> Table {
        Table { widths: Vec::new(), toned: columns }
    }

    pub fn add(&mut self, lines: &[Vec<String>]) -> String {
        for line in lines {
            for (i, cell) in line.iter().enumerate() {
                let length = cell.chars().count();
                match self.widths.get_mut(i) {
                    Some(width) => *width = (*width).max(length),
                    None => self.widths.push(length),
                }
            }
        }
        let mut out = String::new();
        for line in lines {
            let mut spaces = 0;
            for (i, (cell, width)) in line.iter().zip(&self.widths).enumerate() {
                // What would stand at the end of a line is left out.
                if !cell.is_empty() {
                    out.push_str(&" ".repeat(spaces));
                    spaces = 0;
                }
                match Tone::of(cell).filter(|_| self.toned.contains(&i)) {
                    Some(tone) => out.push_str(&tone.paint(cell)),
                    None => out.push_str(cell),
                }
                spaces += width - cell.chars().count().min(*width) + 3;
            }
            out.push('\n');
        }
        out
    }
}

/// What a table of the API holds, as lines of cells.
pub struct Columns {
    shown: Vec<bool>,
    /// Objects are of several namespaces.
    namespace: bool,
    pub head: Vec<String>,
}

impl Columns {
    pub fn new(table: &Value, wide: bool, namespace: bool) -> Columns {
        let columns: Vec<&Value> = table["columnDefinitions"].as_array().into_iter().flatten().collect();
        let shown = columns.iter().map(|c| wide || c["priority"].as_i64().unwrap_or_default() == 0).collect();
        let mut all = Columns { shown, namespace, head: Vec::new() };
        let names = columns.iter().map(|c| text(&c["name"]).to_uppercase()).collect();
        all.head = all.pick("NAMESPACE", names);
        all
    }

    fn pick(&self, namespace: &str, cells: Vec<String>) -> Vec<String> {
        let first = self.namespace.then(|| namespace.to_owned());
        let cells = cells.into_iter().zip(&self.shown).filter(|(_, shown)| **shown).map(|(cell, _)| cell);
        first.into_iter().chain(cells).collect()
    }

    pub fn rows(&self, table: &Value) -> Vec<Vec<String>> {
        let rows = table["rows"].as_array().into_iter().flatten();
        let cells = |row: &Value| row["cells"].as_array().into_iter().flatten().map(text).collect();
        rows.map(|row| self.pick(&text(&row["object"]["metadata"]["namespace"]), cells(row))).collect()
    }

    /// The columns whose words have a tone.
    pub fn toned(&self) -> Vec<usize> {
        let toned = |name: &String| matches!(name.as_str(), "STATUS" | "TYPE");
        self.head.iter().enumerate().filter(|(_, name)| toned(name)).map(|(i, _)| i).collect()
    }
}

fn text(cell: &Value) -> String {
    match cell {
        Value::String(text) => text.replace(char::is_control, " "),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Columns below each other, without colours.
pub fn aligned(lines: &[Vec<String>]) -> String {
    Table::plain().add(lines)
}

/// `12.3MB`, in powers of 1000, as other tools have it for images.
pub fn bytes(size: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    if size < 1000 {
        return format!("{size}B");
    }
    let mut tenths = size / 100;
    for unit in UNITS {
        if tenths < 10_000 {
            return format!("{}.{}{unit}", tenths / 10, tenths % 10);
        }
        tenths /= 1000;
    }
    format!("{}PB", tenths / 10)
}

/// The value as YAML.
pub fn yaml(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

fn block(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                out.push_str(&format!("{indent}{}:", scalar(key)));
                below(value, depth + usize::from(!value.is_array()), out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let mut inner = String::new();
                block(item, depth + 1, &mut inner);
                // The first line stands behind the dash.
                out.push_str(&format!("{indent}- {}", inner.trim_start_matches(' ')));
            }
        }
        value => out.push_str(&format!("{indent}{}\n", flow(value))),
    }
}

fn below(value: &Value, depth: usize, out: &mut String) {
    let nested = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    match nested {
        true => {
            out.push('\n');
            block(value, depth, out);
        }
        false => out.push_str(&format!(" {}\n", flow(value))),
    }
}

fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        other => other.to_string(),
    }
}

/// Plain where nothing else could be read in it, else as JSON has it, which YAML reads too.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let words = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    match starts && text.chars().all(plain) && !words.contains(&text.to_lowercase().as_str()) {
        true => text.to_owned(),
        false => Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn yaml_says_what_json_says() {
        let value = json!({
            "kind": "Pod", "n": 1, "t": "true", "e": {}, "l": [], "z": null, "time": "2026-01-01T00:00:00Z", "q": "a: \"b\"\nc",
            "spec": {"containers": [{"name": "a", "args": ["-c", "x"], "env": [{"name": "X"}]}, {"name": "b"}], "m": [[1, 2], [3]]},
            "a/b": "1e3", "": "x",
        });
        let text = yaml(&value);
        let node = crate::yaml::parse_one(&text, &mut Vec::new()).expect("is YAML").expect("is there");
        let read = crate::yaml::decode::<Value>(&node).expect("decodes").value;
        assert_eq!(read, value, "{text}");
        assert!(text.contains("  containers:\n  - args:\n    - \"-c\"\n    - x\n"), "{text}");
    }

    #[test]
    fn tables() {
        let given = json!({
            "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Node", "priority": 1}, {"name": "Status", "priority": 0}],
            "rows": [
                {"cells": ["a", "n", "Running"], "object": {"metadata": {"namespace": "ns"}}},
                {"cells": ["long\u{1b}[2J", "n", 5], "object": {"metadata": {"namespace": "default"}}},
            ],
        });
        let shown = |wide, namespace, toned| {
            let columns = Columns::new(&given, wide, namespace);
            let mut table = if toned { Table::toned(columns.toned()) } else { Table::plain() };
            table.add(&[&[columns.head.clone()][..], &columns.rows(&given)].concat())
        };
        assert_eq!(shown(false, false, false), "NAME       STATUS\na          Running\nlong [2J   5\n");
        assert_eq!(
            shown(true, true, true),
            "NAMESPACE   NAME       NODE   STATUS\nns          a          n      \x1b[32mRunning\x1b[0m\ndefault     long [2J   n      5\n"
        );
        let mut table = Table::plain();
        let line = |cells: &[&str]| vec![cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>()];
        assert_eq!(table.add(&line(&["wide cell", "x"])), "wide cell   x\n");
        assert_eq!(table.add(&line(&["w", "", ""])), "w\n");
        assert_eq!(table.add(&line(&["w", "y"])), "w           y\n");
    }

    #[test]
    fn tones_and_sizes() {
        for (word, want) in [
            ("Running", Some(Tone::Good)),
            ("Init:0/1", Some(Tone::Middling)),
            ("Init:Error", Some(Tone::Bad)),
            ("CrashLoopBackOff", Some(Tone::Bad)),
            ("ErrImagePull", Some(Tone::Bad)),
            ("Normal", None),
            ("errors", None),
        ] {
            assert_eq!(Tone::of(word), want, "{word}");
        }
        for (size, want) in [(0, "0B"), (999, "999B"), (1000, "1.0kB"), (12_345_678, "12.3MB"), (u64::MAX, "18446PB")] {
            assert_eq!(bytes(size), want);
        }
    }
}
