//! One configuration file or drop-in as a tree that knows its lines, and the trees merged. Reads
//! no files: texts come in.

use std::path::{Path, PathBuf};

use crate::yaml::{self, Node, Problem, Value};

use super::fault::{Fault, Origin};
use super::kubelet::{API_VERSION, KIND, KubeletConfiguration};

/// A file that is a `KubeletConfiguration` by itself: of the right kind, and with known fields of
/// the right types.
#[derive(Debug, Clone)]
pub struct Layer {
    pub path: PathBuf,
    tree: Node,
}

impl Layer {
    /// Strict, as the kubelet decodes its file: an unknown field or a key that stands twice is a
    /// fault, and all of them are told.
    pub fn parse(path: &Path, text: &str) -> Result<Layer, Vec<Fault>> {
        let fault = |problem: Problem| Fault {
            origin: Origin::File { path: path.to_owned(), line: problem.line },
            field: problem.field,
            message: problem.message,
        };
        let mut doubtful = Vec::new();
        let mut tree = match yaml::parse_one(text, &mut doubtful) {
            Ok(Some(tree)) => tree,
            Ok(None) => return Err(vec![fault(Problem::new(0, "", "the file is empty"))]),
            Err(problem) => return Err(vec![fault(problem)]),
        };
        kind_of(&tree).map_err(|problem| vec![fault(problem)])?;
        let decoded = decode(&tree).map_err(|problem| vec![fault(problem)])?;
        // The parser lets the last key win and warns; here neither is right.
        let twice = doubtful.into_iter().map(|p| {
            let message = p.message.trim_end_matches("; the last one counts");
            Problem::new(p.line, p.field, message)
        });
        let mut problems: Vec<Problem> = twice.chain(decoded.unknown).collect();
        problems.sort_by_key(|p| p.line);
        if !problems.is_empty() {
            return Err(problems.into_iter().map(fault).collect());
        }
        drop_keys(&mut tree, |name| name == "apiVersion" || name == "kind");
        Ok(Layer { path: path.to_owned(), tree })
    }

    /// The names of the fields that the file sets.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        let entries: &[_] = match &self.tree.value {
            Value::Map(entries) => entries,
            _ => &[],
        };
        entries.iter().filter(|(_, v)| v.value != Value::Null).map(|(k, _)| k.name.as_str())
    }

    /// The line of a field (`a.b`, `a[key]`, `a[0].b`) that the file sets.
    pub fn line_of(&self, field: &str) -> Option<u32> {
        sets(&self.tree, field).then(|| self.tree.line_of(field))
    }
}

fn sets(node: &Node, path: &str) -> bool {
    if path.is_empty() {
        return node.value != Value::Null;
    }
    let (step, rest) = match path.strip_prefix('[') {
        Some(inner) => inner.split_once(']').unwrap_or((inner, "")),
        None => {
            let path = path.strip_prefix('.').unwrap_or(path);
            path.split_at(path.find(['.', '[']).unwrap_or(path.len()))
        }
    };
    let next = match (&node.value, step.parse::<usize>()) {
        (Value::Seq(items), Ok(i)) => items.get(i),
        _ => node.get(step),
    };
    next.is_some_and(|node| sets(node, rest))
}

fn kind_of(tree: &Node) -> Result<(), Problem> {
    if !matches!(tree.value, Value::Map(_)) {
        return Err(Problem::new(tree.line, "", format!("a mapping with kind {KIND} is expected here")));
    }
    for (field, want) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match tree.get(field).map(|n| (n, n.as_str())) {
            None => return Err(Problem::new(tree.line, field, format!("is missing; it must be {want}"))),
            Some((_, Some(is))) if is == want => {}
            Some((node, is)) => {
                let is = is.map(|is| format!(", not {is:?}")).unwrap_or_default();
                return Err(Problem::new(node.line, field, format!("must be {want}{is}")));
            }
        }
    }
    Ok(())
}

fn decode(tree: &Node) -> Result<yaml::Decoded<KubeletConfiguration>, Problem> {
    let mut tree = tree.clone();
    drop_keys(&mut tree, |name| name == "apiVersion" || name == "kind");
    drop_nulls(&mut tree);
    yaml::decode(&tree)
}

/// The files one over the other, later ones on top, as a JSON merge patch (RFC 7386) does it:
/// mappings key by key, lists and scalars as a whole, and null takes a field away. Where the main
/// file leaves `evictionHard` out, drop-ins go over its default, since the kubelet merges them into
/// the file with its defaults filled in.
///
/// `main` is whether the first layer is the main file and not a drop-in.
pub fn merge(layers: &[Layer], main: bool) -> Result<KubeletConfiguration, Problem> {
    let mut merged = Node { value: Value::Map(Vec::new()), line: 0 };
    for (i, layer) in layers.iter().enumerate() {
        patch(&mut merged, &layer.tree);
        if i == 0 && main && merged.get("evictionHard").is_none() && layers.len() > 1 {
            patch(&mut merged, &super::defaults::eviction_hard_tree());
        }
    }
    decode(&merged).map(|d| d.value)
}

fn patch(base: &mut Node, with: &Node) {
    let Value::Map(changes) = &with.value else {
        *base = with.clone();
        return;
    };
    if !matches!(base.value, Value::Map(_)) {
        *base = Node { value: Value::Map(Vec::new()), line: with.line };
    }
    let Value::Map(entries) = &mut base.value else { return };
    for (key, change) in changes {
        if change.value == Value::Null {
            entries.retain(|(k, _)| k.name != key.name);
            continue;
        }
        match entries.iter_mut().find(|(k, _)| k.name == key.name) {
            Some((_, slot)) => patch(slot, change),
            None => {
                let mut value = change.clone();
                drop_nulls(&mut value);
                entries.push((key.clone(), value));
            }
        }
    }
}

fn drop_keys(node: &mut Node, unwanted: impl Fn(&str) -> bool) {
    if let Value::Map(entries) = &mut node.value {
        entries.retain(|(key, _)| !unwanted(&key.name));
    }
}

/// A field that is null is a field that is not there.
fn drop_nulls(node: &mut Node) {
    match &mut node.value {
        Value::Map(entries) => {
            entries.retain(|(_, v)| v.value != Value::Null);
            entries.iter_mut().for_each(|(_, v)| drop_nulls(v));
        }
        Value::Seq(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
