//! Manifests: text into pods that are decoded, defaulted, validated and have their identity, and
//! into the objects that pods refer to.
//!
//! Does no I/O and knows nothing of where the text came from beyond its name.

pub mod defaults;
mod object;
#[cfg(test)]
mod tests;
pub mod validate;

use crate::local::{Kind, Object};
use crate::pod::identity::{self, Origin};
use crate::pod::{Pod, PodUid, core, labels};
use crate::yaml::{self, Node, Problem, Value};

/// What can stand in a manifest.
const USABLE: &str = "Pod, ConfigMap, Secret, PersistentVolumeClaim, PersistentVolume, RuntimeClass, PriorityClass, \
                      PodList and List";

/// What a pod's name may have.
const MAX_NAME: usize = 253;

/// What a manifest holds.
#[derive(Debug, Default, PartialEq)]
pub struct Manifest {
    pub pods: Vec<Pod>,
    /// What pods refer to.
    pub objects: Vec<Object>,
    /// What keeps an object of the manifest from being used.
    pub problems: Vec<Problem>,
    /// What is dubious, and used all the same.
    pub warnings: Vec<Problem>,
}

/// Reads all documents of a manifest. An object with a problem is left out, the others are there.
pub fn read(text: &str, origin: Origin<'_>) -> Manifest {
    let mut manifest = Manifest::default();
    let documents = yaml::parse(text, &mut manifest.warnings);
    // A list with nothing in it says so.
    if documents.is_empty() {
        manifest.problems.push(Problem::new(0, "", "there is no object in it"));
    }
    for document in documents {
        match document {
            Ok(node) => manifest.object(&node, &node, "", origin),
            Err(problem) => manifest.problems.push(problem),
        }
    }
    manifest
}

impl Manifest {
    /// `node` stands at `path` of `document`.
    fn object(&mut self, document: &Node, node: &Node, path: &str, origin: Origin<'_>) {
        let text = |key| node.get(key).and_then(Node::as_str);
        let (version, kind) = (text("apiVersion"), text("kind"));
        if let Some(kind) = version.zip(kind).and_then(|(version, kind)| Kind::of(version, kind)) {
            return self.other(document, node, path, kind);
        }
        match (version, kind) {
            (Some("v1"), Some("Pod")) => self.pod(document, node, path, origin),
            (Some("v1"), Some("List" | "PodList")) if path.is_empty() => self.list(document, node, origin),
            (version, kind) => {
                let (field, message) = match (version, kind) {
                    (Some(version), Some(kind)) if Kind::VERSIONS.contains(&version) => {
                        ("kind", format!("{kind:?} of {version} can't be used here: only {USABLE}"))
                    }
                    (Some(version), _) => {
                        ("apiVersion", format!("{version:?} is not known: only {}", Kind::VERSIONS.join(", ")))
                    }
                    (None, Some(_)) => ("apiVersion", "Required value".to_owned()),
                    (None, None) => ("kind", "Required value".to_owned()),
                };
                let line = node.get(field).map_or(node.line, |n| n.line);
                self.problems.push(Problem::new(line, join(path, field), message));
            }
        }
    }

    fn list(&mut self, document: &Node, node: &Node, origin: Origin<'_>) {
        let pods = node.get("kind").and_then(Node::as_str) == Some("PodList");
        let items = match node.get("items").map(|n| &n.value) {
            Some(Value::Seq(items)) => items.as_slice(),
            None | Some(Value::Null) => &[],
            Some(_) => {
                let line = document.line_of("items");
                return self.problems.push(Problem::new(line, "items", "must be a list"));
            }
        };
        for (i, item) in items.iter().enumerate() {
            let path = format!("items[{i}]");
            // The items of a PodList need not say what they are.
            match pods && item.get("kind").is_none() {
                true => self.pod(document, item, &path, origin),
                false => self.object(document, item, &path, origin),
            }
        }
    }

    fn pod(&mut self, document: &Node, node: &Node, path: &str, origin: Origin<'_>) {
        let decoded = match yaml::decode::<core::Pod>(node) {
            Ok(decoded) => decoded,
            Err(p) => return self.problems.push(Problem { field: join(path, &p.field), ..p }),
        };
        let placed = |p| place(document, path, p);
        self.warnings.extend(decoded.unknown.into_iter().map(placed));
        let mut object = decoded.value;
        object.status = None;
        // A mirror pod that was copied from a cluster is a plain pod here.
        if let Some(annotations) = &mut object.metadata.annotations {
            annotations.remove(labels::CONFIG_MIRROR);
        }
        let uid = match object.metadata.uid.take().filter(|uid| !uid.is_empty()) {
            Some(uid) => match PodUid::checked(&uid) {
                Some(uid) => uid,
                None => {
                    let message = format!("Invalid value: {uid:?}: letters, digits, '-', '_' and '.', at most 128");
                    return self.problems.push(placed(Problem::new(0, "metadata.uid", message)));
                }
            },
            None => identity::static_uid(&object, origin),
        };
        defaults::set_defaults(&mut object);
        let mut problems = validate::validate_pod(&object);
        problems.extend(validate::validate_static(&object));
        let pod = identity::static_pod(object, uid, origin);
        if pod.name.name.len() > MAX_NAME {
            let message = format!("Too long: with the node's name it may have {MAX_NAME} characters");
            problems.push(Problem::new(0, "metadata.name", message));
        }
        if problems.is_empty() {
            self.pods.push(pod);
        }
        let mut problems: Vec<_> = problems.into_iter().map(placed).collect();
        problems.sort_by_key(|p| p.line);
        self.problems.extend(problems);
    }

    fn other(&mut self, document: &Node, node: &Node, path: &str, kind: Kind) {
        let object::Read { object, problems, warnings } = object::read(kind, node);
        let placed = |p| place(document, path, p);
        self.objects.extend(object);
        self.warnings.extend(warnings.into_iter().map(placed));
        let mut problems: Vec<_> = problems.into_iter().map(placed).collect();
        problems.sort_by_key(|p| p.line);
        self.problems.extend(problems);
    }
}

/// An object that pods refer to, from elsewhere than a manifest.
///
/// # Errors
/// When it isn't one that can be used; nothing of a secret is in it.
pub fn read_object(kind: Kind, node: &Node) -> Result<Object, String> {
    let object::Read { object, problems, .. } = object::read(kind, node);
    object.ok_or_else(|| problems.first().map_or_else(|| "it can't be used".to_owned(), ToString::to_string))
}

/// Gives a problem of the object at `path` its place in the document.
fn place(document: &Node, path: &str, problem: Problem) -> Problem {
    let field = join(path, &problem.field);
    let line = if problem.line == 0 { document.line_of(&field) } else { problem.line };
    Problem { line, field, ..problem }
}

fn join(path: &str, field: &str) -> String {
    match (path, field) {
        ("", _) => field.to_owned(),
        (_, "") => path.to_owned(),
        _ if field.starts_with('[') => format!("{path}{field}"),
        _ => format!("{path}.{field}"),
    }
}
