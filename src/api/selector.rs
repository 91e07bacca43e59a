//! Label and field selectors. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::resource::Resource;

/// All of them have to hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    of: Of,
    test: Test,
}

#[derive(Debug, Clone, PartialEq)]
enum Of {
    Label(String),
    Field(String),
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    NotExists,
}

impl Selector {
    /// From `labelSelector` and `fieldSelector` of a query. `alias`: what a pod of that name is
    /// really called.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(
        resource: Resource,
        labels: &str,
        fields: &str,
        alias: impl Fn(&str) -> String,
    ) -> Result<Selector, String> {
        let mut all = Vec::new();
        for part in split(labels) {
            all.push(label(part)?);
        }
        for part in fields.split(',').filter(|part| !part.trim().is_empty()) {
            let (name, negative, value) = equality(part).ok_or_else(|| {
                format!("invalid selector: '{part}'; can't understand it, there has to be =, == or !=")
            })?;
            let known =
                ["metadata.name", "metadata.namespace"].contains(&name) || resource.selectable().contains(&name);
            if !known {
                return Err(format!("field label not supported: {name}"));
            }
            let value = if matches!(
                (resource, name),
                (Resource::Pods, "metadata.name") | (Resource::Events, "involvedObject.name")
            ) {
                alias(value)
            } else {
                value.to_owned()
            };
            let values = BTreeSet::from([value]);
            let test = if negative { Test::NotIn(values) } else { Test::In(values) };
            all.push(Requirement { of: Of::Field(name.to_owned()), test });
        }
        Ok(Selector(all))
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|requirement| requirement.holds(object))
    }
}

impl Requirement {
    fn holds(&self, object: &Value) -> bool {
        let value = match &self.of {
            Of::Label(name) => {
                object.pointer("/metadata/labels").and_then(|l| l.get(name)).and_then(Value::as_str).map(str::to_owned)
            }
            // A field that isn't there is empty.
            Of::Field(path) => Some(field(object, path)),
        };
        match (&self.test, &value) {
            (Test::In(values), Some(value)) => values.contains(value),
            (Test::In(_), None) => false,
            (Test::NotIn(values), Some(value)) => !values.contains(value),
            (Test::NotIn(_), None) => true,
            (Test::Exists, value) => value.is_some(),
            (Test::NotExists, value) => value.is_none(),
        }
    }
}

fn field(object: &Value, path: &str) -> String {
    let path = if path == "source" { "source.component" } else { path };
    match path.split('.').try_fold(object, |value, part| value.get(part)) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => match path {
            "spec.unschedulable" | "spec.hostNetwork" => "false".to_owned(),
            _ => String::new(),
        },
        Some(other) => other.to_string(),
    }
}

/// Splits at commas that are not in parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// Name, whether it is negated, and value of `a=b`, `a==b`, `a!=b`.
fn equality(part: &str) -> Option<(&str, bool, &str)> {
    let (name, value) = part.split_once('=')?;
    Some(match name.strip_suffix('!') {
        Some(name) => (name.trim(), true, value.trim()),
        None => (name.trim(), false, value.strip_prefix('=').unwrap_or(value).trim()),
    })
}

fn label(part: &str) -> Result<Requirement, String> {
    let wrong = || format!("unable to parse requirement: {part:?}");
    let named = |name: &str, test| {
        let clean = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        match !name.is_empty() && name.chars().all(clean) {
            true => Ok(Requirement { of: Of::Label(name.to_owned()), test }),
            false => Err(wrong()),
        }
    };
    if let Some((head, values)) = part.split_once('(') {
        let values = values.strip_suffix(')').ok_or_else(wrong)?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(name), Some("in"), None) => named(name, Test::In(values)),
            (Some(name), Some("notin"), None) => named(name, Test::NotIn(values)),
            _ => Err(wrong()),
        };
    }
    if let Some((name, negative, value)) = equality(part) {
        let values = BTreeSet::from([value.to_owned()]);
        return named(name, if negative { Test::NotIn(values) } else { Test::In(values) });
    }
    match part.strip_prefix('!') {
        Some(name) => named(name.trim(), Test::NotExists),
        None => named(part, Test::Exists),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors() {
        let pod = serde_json::json!({
            "metadata": {"name": "web-node", "namespace": "default", "labels": {"app": "web", "tier": "front"}},
            "spec": {"nodeName": "node"}, "status": {"phase": "Running"},
        });
        let table: &[(&str, &str, Result<bool, &str>)] = &[
            ("", "", Ok(true)),
            ("app=web", "", Ok(true)),
            ("app == web , tier!=back", "", Ok(true)),
            ("app=db", "", Ok(false)),
            ("app!=web", "", Ok(false)),
            ("none!=x", "", Ok(true)),
            ("app in (db, web),tier notin (back)", "", Ok(true)),
            ("app notin (db,web)", "", Ok(false)),
            ("app", "", Ok(true)),
            ("!app", "", Ok(false)),
            ("!none", "", Ok(true)),
            ("none", "", Ok(false)),
            ("app in web", "", Err("unable to parse")),
            ("app near (web)", "", Err("unable to parse")),
            ("a b", "", Err("unable to parse")),
            ("app in (web", "", Err("unable to parse")),
            ("", "metadata.name=web-node", Ok(true)),
            ("", "metadata.name=web", Ok(true)),
            ("", "metadata.name==db", Ok(false)),
            ("", "status.phase!=Running", Ok(false)),
            ("", "status.phase=Running,spec.nodeName=node", Ok(true)),
            ("", "status.podIP=", Ok(true)),
            ("app=web", "status.phase=Failed", Ok(false)),
            ("", "spec.containers=x", Err("field label not supported: spec.containers")),
            ("", "status.phase", Err("invalid selector")),
        ];
        for (labels, fields, want) in table {
            let alias = |name: &str| if name == "web" { "web-node".to_owned() } else { name.to_owned() };
            let got = Selector::parse(Resource::Pods, labels, fields, alias).map(|s| s.matches(&pod));
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got, *want, "{labels:?} {fields:?}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{got}"),
                (got, _) => panic!("{labels:?} {fields:?}: {got:?}"),
            }
        }
    }
}
