//! Tables and YAML for people. Pure.

use serde_json::Value;

/// A table of the API as lines, without its head when `headless`.
pub fn table(table: &Value, wide: bool, headless: bool) -> String {
    let columns: Vec<&Value> = table["columnDefinitions"].as_array().into_iter().flatten().collect();
    let shown: Vec<bool> = columns.iter().map(|c| wide || c["priority"].as_i64().unwrap_or_default() == 0).collect();
    let pick = |cells: Vec<String>| -> Vec<String> {
        cells.into_iter().zip(&shown).filter(|(_, shown)| **shown).map(|(cell, _)| cell).collect()
    };
    let head = pick(columns.iter().map(|c| text(&c["name"]).to_uppercase()).collect());
    let rows = table["rows"].as_array().into_iter().flatten();
    let rows = rows.map(|row| pick(row["cells"].as_array().into_iter().flatten().map(text).collect()));
    let lines: Vec<Vec<String>> = (!headless).then_some(head).into_iter().chain(rows).collect();
    aligned(&lines)
}

fn text(cell: &Value) -> String {
    match cell {
        Value::String(text) => text.replace(char::is_control, " "),
        other => other.to_string(),
    }
}

/// Columns below each other, three spaces apart.
pub fn aligned(lines: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for line in lines {
        for (i, cell) in line.iter().enumerate() {
            match widths.get_mut(i) {
                Some(width) => *width = (*width).max(cell.chars().count()),
                None => widths.push(cell.chars().count()),
            }
        }
    }
    let mut out = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        out.push_str(cells.collect::<Vec<_>>().join("   ").trim_end());
        out.push('\n');
    }
    out
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
            "columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Node", "priority": 1}, {"name": "Age", "priority": 0}],
            "rows": [{"cells": ["a", "n", "1s"]}, {"cells": ["long\u{1b}[2J", "n", 5]}],
        });
        assert_eq!(table(&given, false, false), "NAME       AGE\na          1s\nlong [2J   5\n");
        assert_eq!(table(&given, true, true), "a          n   1s\nlong [2J   n   5\n");
    }
}
