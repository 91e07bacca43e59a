use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

fn one(text: &str) -> Node {
    parse_one(text, &mut Vec::new()).expect("parses").expect("holds a document")
}

fn value(text: &str) -> Value {
    one(text).value
}

fn problem(text: &str) -> Problem {
    parse(text, &mut Vec::new()).into_iter().find_map(Result::err).expect("is refused")
}

#[test]
fn scalars_are_read_as_yaml_1_1() {
    let table: &[(&str, Value)] = &[
        ("0440", Value::Int(288)),
        ("0o400", Value::Int(256)),
        ("0x1F", Value::Int(31)),
        ("0b101", Value::Int(5)),
        ("-0440", Value::Int(-288)),
        ("+7", Value::Int(7)),
        ("1_000", Value::Int(1000)),
        ("0", Value::Int(0)),
        ("-9223372036854775808", Value::Int(i64::MIN)),
        ("18446744073709551615", Value::Uint(u64::MAX)),
        ("0888", Value::Float(888.0)),
        ("1.5", Value::Float(1.5)),
        (".5", Value::Float(0.5)),
        ("1e+3", Value::Float(1000.0)),
        ("1.", Value::Float(1.0)),
        ("yes", Value::Bool(true)),
        ("n", Value::Bool(false)),
        ("On", Value::Bool(true)),
        ("OFF", Value::Bool(false)),
        ("~", Value::Null),
        ("Null", Value::Null),
        ("'yes'", Value::Str("yes".into())),
        ("\"0440\"", Value::Str("0440".into())),
        ("!!str 0440", Value::Str("0440".into())),
        ("1.2.3", Value::Str("1.2.3".into())),
        ("10.0.0.1", Value::Str("10.0.0.1".into())),
        ("100m", Value::Str("100m".into())),
        ("1Gi", Value::Str("1Gi".into())),
        ("0x", Value::Str("0x".into())),
        ("2026-11-30", Value::Str("2026-11-30".into())),
        ("yess", Value::Str("yess".into())),
        ("|\n  a\n  b\n", Value::Str("a\nb\n".into())),
    ];
    for (text, want) in table {
        let got = one(&format!("k: {text}")).get("k").expect("has k").value.clone();
        assert_eq!(&got, want, "{text}");
    }
}

#[test]
fn json_is_read_too() {
    let text = "{\n\t\"a\": \"x\\/y \\ud83d\\ude00\",\n\t\"b\": [1, 2.5, true, null],\r\n\"c\": {\"d\": \"0440\"}}\n";
    let node = one(text);
    assert_eq!(node.get("a").and_then(Node::as_str), Some("x/y \u{1f600}"));
    assert_eq!(node.get("c").and_then(|c| c.get("d")).and_then(Node::as_str), Some("0440"));
    assert_eq!(node.line_of("b[2]"), 3);
}

#[test]
fn keys_become_strings() {
    let Value::Map(entries) = value("1: a\ntrue: b\non: c\n1.5: d\n") else { panic!("a mapping") };
    let names: Vec<_> = entries.iter().map(|(k, _)| k.name.as_str()).collect();
    assert_eq!(names, ["1", "true", "1.5"], "on is true again");
    assert_eq!(problem("? [a]\n: b").message, "a key must be a string, a number or a boolean");
}

#[test]
fn anchors_and_merge_keys() {
    let text = "base: &b {x: 1, v: 2}\nuse:\n  <<: *b\n  v: 3\nlist: [*b]\nboth:\n  <<: [{z: 9}, *b]\n";
    let node = one(text);
    let at = |path: [&str; 2]| node.get(path[0]).and_then(|n| n.get(path[1])).map(|n| n.value.clone());
    assert_eq!(at(["use", "x"]), Some(Value::Int(1)));
    assert_eq!(at(["use", "v"]), Some(Value::Int(3)));
    assert_eq!(at(["both", "z"]), Some(Value::Int(9)));
    assert_eq!(at(["both", "x"]), Some(Value::Int(1)));
    assert!(problem("a: &a [*a]").message.contains("alias"));
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for i in 1..12 {
        let aliases = vec![format!("*a{}", i - 1); 10].join(",");
        text.push_str(&format!("a{i}: &a{i} [{aliases}]\n"));
    }
    assert!(problem(&text).message.contains("more than 200000 values"));
    assert!(problem(&"[".repeat(5000)).line > 0);
}

#[test]
fn documents_one_by_one() {
    let text = "---\n# nothing\n---\na: 1\n---\nb: [unclosed\n---\nc: 3\n...\n";
    let documents = parse(text, &mut Vec::new());
    let kinds: Vec<_> = documents.iter().map(Result::is_ok).collect();
    assert_eq!(kinds, [true, false, true]);
    assert!(parse("", &mut Vec::new()).is_empty());
    assert!(parse("# only a comment\n", &mut Vec::new()).is_empty());
}

#[test]
fn a_key_given_twice_is_a_warning() {
    let mut warnings = Vec::new();
    let node = parse_one("a: 1\nb: 2\na: 3\n", &mut warnings).expect("parses").expect("one");
    assert_eq!(node.get("a").map(|n| n.value.clone()), Some(Value::Int(3)));
    assert_eq!(warnings, [Problem::new(3, "", "\"a\" stands here again; the last one counts")]);
}

#[test]
fn long_texts_are_not_copied_without_end() {
    let long = "x".repeat(1 << 20);
    let text = |aliases: usize| format!("a: &a {long}\nb: [{}]\n", vec!["*a"; aliases].join(","));
    // The anchor's own copy counts.
    assert!(parse(&text(7), &mut Vec::new()).iter().all(Result::is_ok));
    assert_eq!(problem(&text(8)).to_string(), "line 2: more than 8 MiB of text by anchors and aliases");
    let deep = format!("{}{long}{}", "&a [".repeat(9), "]".repeat(9));
    assert!(problem(&deep).message.contains("anchors and aliases"));
    // A key is text, too.
    let keys = format!("a: &a {{? {long} : b}}\nb: [{}]\n", ["*a"; 8].join(","));
    assert!(problem(&keys).message.contains("anchors and aliases"));
}

#[test]
fn errors_have_a_line() {
    for (text, line) in [("a: b\n  c: d\n", 2), ("a: [1\nb: 2\n", 2), ("a:\n\tb: 1\n", 2), ("a: \"x", 1)] {
        let p = problem(text);
        assert_eq!(p.line, line, "{text:?}: {p}");
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code)]
struct Outer {
    name: String,
    #[serde(default)]
    items: Vec<Inner>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code)]
struct Inner {
    host_port: i32,
    cpu: Option<Quantity>,
}

#[derive(Debug, Deserialize, PartialEq)]
struct Quantity(String);

#[test]
fn decoding_names_the_field_and_the_line() {
    let table = [
        ("name: a\nitems:\n- hostPort: x\n", 3, "items[0].hostPort", "invalid type: string \"x\", expected i32"),
        ("name: 5\n", 1, "name", "invalid type: integer `5`, expected a string"),
        ("name: a\nitems:\n- hostPort: 1\n- {}\n", 4, "items[1]", "missing field `hostPort`"),
        ("name: a\nlabels:\n  a.b/c: yes\n", 3, "labels[a.b/c]", "invalid type: boolean `true`, expected a string"),
        ("name: a\nitems: {}\n", 2, "items", "invalid type: map, expected a sequence"),
        (
            "name: a\nitems:\n- hostPort: 3000000000\n",
            3,
            "items[0].hostPort",
            "invalid value: integer `3000000000`, expected i32",
        ),
    ];
    for (text, line, field, message) in table {
        assert_eq!(decode::<Outer>(&one(text)).expect_err(text), Problem::new(line, field, message));
    }
}

#[test]
fn unknown_fields_are_listed() {
    let text = "name: a\nnmae: b\nitems:\n- hostPort: 1\n  cpu: 0.5\n  portt:\n    deep: 1\nlabels:\n";
    let decoded = decode::<Outer>(&one(text)).expect("decodes");
    assert_eq!(decoded.value.items[0].cpu, Some(Quantity("0.5".into())));
    let fields: Vec<_> = decoded.unknown.iter().map(|p| (p.line, p.field.as_str())).collect();
    assert_eq!(fields, [(2, "nmae"), (6, "items[0].portt")]);
}

#[test]
fn lines_of_paths() {
    let node = one("spec:\n  containers:\n  - name: a\n    ports:\n    - {containerPort: 1}\nlabels:\n  a.b: c\n");
    for (path, line) in [
        ("spec", 1),
        ("spec.containers", 2),
        ("spec.containers[0].name", 3),
        ("spec.containers[0].ports[0].containerPort", 5),
        ("spec.containers[7].name", 2),
        ("labels[a.b]", 7),
        ("nothing", 1),
    ] {
        assert_eq!(node.line_of(path), line, "{path}");
    }
}
