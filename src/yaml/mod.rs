//! YAML and JSON text into one value tree that knows where each value stands, and from the tree
//! into typed values. Scalars are read as the kubelet's parser reads them (YAML 1.1: `0440` is
//! octal, `yes` is a boolean). JSON is the flow style of YAML, so one parser serves both.
//!
//! Knows nothing of Kubernetes; does no I/O.

mod de;
mod scalar;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;

use granit_parser::{Event, Parser, ScalarStyle};

pub use de::{Decoded, decode};

/// At most so many values in one text, aliases counted each time they are used: what bounds the
/// memory that a hostile manifest can take.
const MAX_NODES: usize = 200_000;
/// A mapping counts as so many values: an API type that it may be decoded to takes up to some 3 KiB,
/// however little of it is given.
const MAPPING: usize = 16;
/// At most so many bytes of text in the values that are copied for anchors and aliases: else a few long
/// texts with many aliases would take any amount of memory, with few values.
const MAX_COPIED: usize = 8 << 20;
/// At most so many levels of nesting, far more than any API type has.
const MAX_DEPTH: usize = 100;

/// A value and the line (from 1) where it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub value: Value,
    pub line: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer above `i64::MAX`.
    Uint(u64),
    Float(f64),
    Str(String),
    Seq(Vec<Node>),
    /// In the order of the text; keys are unique.
    Map(Vec<(Key, Node)>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    pub name: String,
    pub line: u32,
}

/// Something wrong at a place in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// From 1; 0 where the text as a whole is meant.
    pub line: u32,
    /// The field's path as Kubernetes writes it (`spec.containers[0].name`); empty for the whole.
    pub field: String,
    pub message: String,
}

impl Problem {
    pub fn new(line: u32, field: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { line, field: field.into(), message: message.into() }
    }

    /// `PLACE:LINE: FIELD: MESSAGE`, as compilers write it.
    pub fn at(&self, place: &str) -> String {
        let line = if self.line == 0 { String::new() } else { format!(":{}", self.line) };
        let field = if self.field.is_empty() { String::new() } else { format!("{}: ", self.field) };
        format!("{place}{line}: {field}{}", self.message)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => {}
            line => write!(f, "line {line}: ")?,
        }
        match self.field.as_str() {
            "" => f.write_str(&self.message),
            field => write!(f, "{field}: {}", self.message),
        }
    }
}

impl std::error::Error for Problem {}

impl Node {
    /// The value of `key` in a mapping.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(k, _)| k.name == key).map(|(_, v)| v),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The line of the field at `path` (`spec.containers[0].name`), or of the deepest part of the
    /// path that is there. Keys with dots in them are written in brackets: `labels[a.b/c]`.
    pub fn line_of(&self, path: &str) -> u32 {
        let mut node = self;
        let mut line = self.line;
        for step in steps(path) {
            let next = match (&node.value, step.parse::<usize>()) {
                (Value::Seq(items), Ok(i)) => items.get(i).map(|n| (n, n.line)),
                (Value::Map(entries), _) => entries.iter().find(|(k, _)| k.name == step).map(|(k, v)| (v, k.line)),
                _ => None,
            };
            match next {
                Some((n, l)) => (node, line) = (n, l),
                None => break,
            }
        }
        line
    }
}

impl From<serde_json::Value> for Node {
    /// What has been read as JSON before; nothing in it has a line.
    fn from(json: serde_json::Value) -> Node {
        use serde_json::Value as Json;
        let value = match json {
            Json::Null => Value::Null,
            Json::Bool(b) => Value::Bool(b),
            Json::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(i), _) => Value::Int(i),
                (None, Some(u)) => Value::Uint(u),
                (None, None) => Value::Float(n.as_f64().unwrap_or_default()),
            },
            Json::String(s) => Value::Str(s),
            Json::Array(items) => Value::Seq(items.into_iter().map(Node::from).collect()),
            Json::Object(entries) => {
                let entries = entries.into_iter().map(|(name, value)| (Key { name, line: 0 }, Node::from(value)));
                Value::Map(entries.collect())
            }
        };
        Node { value, line: 0 }
    }
}

/// `a.b[0].c[x.y]` → `a`, `b`, `0`, `c`, `x.y`.
fn steps(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = path;
    std::iter::from_fn(move || {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if rest.is_empty() {
            return None;
        }
        let (step, tail) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']').unwrap_or((inner, "")),
            None => rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len())),
        };
        rest = tail;
        Some(step)
    })
}

/// All documents of a text, empty ones left out. A document that can't be read ends as an error;
/// the ones after it are still read. `warnings` gets what is dubious but has a meaning.
pub fn parse(text: &str, warnings: &mut Vec<Problem>) -> Vec<Result<Node, Problem>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder =
        Builder { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0, copied: 0, warnings };
    let mut out = Vec::new();
    loop {
        match builder.document() {
            Ok(Some(node)) if node.value == Value::Null => {}
            Ok(Some(node)) => out.push(Ok(node)),
            Ok(None) => return out,
            Err(problem) => {
                out.push(Err(problem));
                if builder.is_spent() || !matches!(builder.parser.proceed_next_document(), Ok(true)) {
                    return out;
                }
            }
        }
    }
}

/// The only document of a text; `Ok(None)` when there is none.
pub fn parse_one(text: &str, warnings: &mut Vec<Problem>) -> Result<Option<Node>, Problem> {
    let mut documents = parse(text, warnings);
    if documents.len() > 1 {
        let line = documents.get(1).and_then(|d| d.as_ref().ok()).map_or(0, |n| n.line);
        return Err(Problem::new(line, "", "more than one document where one is expected"));
    }
    documents.pop().transpose()
}

struct Builder<'t, 'w> {
    parser: Parser<'t, granit_parser::StrInput<'t>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    /// Bytes.
    copied: usize,
    warnings: &'w mut Vec<Problem>,
}

impl<'t> Builder<'t, '_> {
    fn next(&mut self) -> Result<Option<(Event<'t>, u32)>, Problem> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok((event, span))) => Ok(Some((event, line(span.start.line())))),
            Some(Err(e)) => Err(Problem::new(line(e.marker().line()), "", e.info())),
        }
    }

    fn document(&mut self) -> Result<Option<Node>, Problem> {
        self.anchors.clear();
        while let Some((event, line)) = self.next()? {
            if event.is_node() {
                return self.node(event, line, 0).map(Some);
            }
        }
        Ok(None)
    }

    fn node(&mut self, event: Event<'t>, line: u32, depth: usize) -> Result<Node, Problem> {
        self.charge(1, line)?;
        if depth > MAX_DEPTH {
            return Err(Problem::new(line, "", format!("more than {MAX_DEPTH} levels of nesting")));
        }
        let anchor = event.anchor_id();
        let value = match event {
            Event::Alias(id) => {
                let size = self.anchors.get(&id).map(Node::size);
                let size = size.ok_or_else(|| Problem::new(line, "", "an alias inside of the value that it names"))?;
                self.charge_copy(size, line)?;
                let value = self.anchors.get(&id).map_or(Value::Null, |node| node.value.clone());
                return Ok(Node { value, line });
            }
            Event::Scalar(text, ScalarStyle::Plain, _, tag) => scalar::plain(&text, tag.as_deref(), line)?,
            Event::Scalar(text, _, _, tag) => scalar::quoted(text.into_owned(), tag.as_deref(), line)?,
            Event::SequenceStart(..) => self.sequence(depth)?,
            Event::MappingStart(..) => {
                self.charge(MAPPING - 1, line)?;
                self.mapping(depth)?
            }
            _ => return Err(Problem::new(line, "", "a value is missing here")),
        };
        let node = Node { value, line };
        if let Some(id) = anchor {
            self.charge_copy(node.size(), line)?;
            self.anchors.insert(id, node.clone());
        }
        Ok(node)
    }

    fn sequence(&mut self, depth: usize) -> Result<Value, Problem> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Some((Event::SequenceEnd, _)) => return Ok(Value::Seq(items)),
                Some((event, line)) => items.push(self.node(event, line, depth + 1)?),
                None => return Err(Problem::new(0, "", "the text ends inside of a list")),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, Problem> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        let mut index: HashMap<String, usize> = HashMap::new();
        let mut merged = Vec::new();
        loop {
            let (event, key_line) = match self.next()? {
                Some((Event::MappingEnd, _)) => break,
                Some(next) => next,
                None => return Err(Problem::new(0, "", "the text ends inside of a mapping")),
            };
            let is_merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            let key = self.node(event, key_line, depth + 1)?;
            let Some((event, value_line)) = self.next()? else {
                return Err(Problem::new(key_line, "", "the text ends inside of a mapping"));
            };
            let value = self.node(event, value_line, depth + 1)?;
            if is_merge {
                merged.push(value);
                continue;
            }
            let name = scalar::key(key.value)
                .ok_or_else(|| Problem::new(key_line, "", "a key must be a string, a number or a boolean"))?;
            match index.get(&name).and_then(|i| entries.get_mut(*i)) {
                Some(slot) => {
                    let message = format!("{name:?} stands here again; the last one counts");
                    self.warnings.push(Problem::new(key_line, "", message));
                    slot.1 = value;
                }
                None => {
                    index.insert(name.clone(), entries.len());
                    entries.push((Key { name, line: key_line }, value));
                }
            }
        }
        for node in merged {
            merge(node, &mut entries, &mut index)?;
        }
        Ok(Value::Map(entries))
    }

    fn charge(&mut self, nodes: usize, line: u32) -> Result<(), Problem> {
        self.nodes = self.nodes.saturating_add(nodes);
        match self.nodes > MAX_NODES {
            true => {
                let message = format!(
                    "more than {MAX_NODES} values, aliases counted at each use, and mappings as {MAPPING} values"
                );
                Err(Problem::new(line, "", message))
            }
            false => Ok(()),
        }
    }

    /// For a value of so many values and bytes that is to be copied.
    fn charge_copy(&mut self, (nodes, bytes): (usize, usize), line: u32) -> Result<(), Problem> {
        self.copied = self.copied.saturating_add(bytes);
        if self.copied > MAX_COPIED {
            let message = format!("more than {} MiB of text by anchors and aliases", MAX_COPIED >> 20);
            return Err(Problem::new(line, "", message));
        }
        self.charge(nodes, line)
    }

    /// Whether nothing of the text is read any more.
    fn is_spent(&self) -> bool {
        self.nodes > MAX_NODES || self.copied > MAX_COPIED
    }
}

impl Node {
    /// How many values it holds, itself counted, and bytes of text.
    fn size(&self) -> (usize, usize) {
        let sum = |all: (usize, usize), (nodes, bytes)| (all.0 + nodes, all.1 + bytes);
        match &self.value {
            Value::Seq(items) => items.iter().map(Node::size).fold((1, 0), sum),
            Value::Map(entries) => {
                let entry = |(key, value): &(Key, Node)| sum((0, key.name.len()), value.size());
                entries.iter().map(entry).fold((MAPPING, 0), sum)
            }
            Value::Str(text) => (1, text.len()),
            _ => (1, 0),
        }
    }
}

/// `<<: *a` or `<<: [*a, *b]`: the keys that are not there yet.
fn merge(node: Node, entries: &mut Vec<(Key, Node)>, index: &mut HashMap<String, usize>) -> Result<(), Problem> {
    let line = node.line;
    match node.value {
        Value::Map(more) => {
            for (key, value) in more {
                if !index.contains_key(&key.name) {
                    index.insert(key.name.clone(), entries.len());
                    entries.push((key, value));
                }
            }
            Ok(())
        }
        Value::Seq(items) if items.iter().all(|n| matches!(n.value, Value::Map(_))) => {
            items.into_iter().try_for_each(|item| merge(item, entries, index))
        }
        _ => Err(Problem::new(line, "", "<< takes a mapping or a list of mappings")),
    }
}

fn line(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
