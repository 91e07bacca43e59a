//! Who has applied what of an object, for server-side apply: each manager's last configuration, as far
//! as the object still says the same. What nobody has applied is of the time before. Pure.
//!
//! The API server keeps a set of fields for each manager and takes lists as its schema says
//! (structured-merge-diff); here a list is told by its name, as in strategic merges, and one without a
//! key is one field.

use serde_json::{Map, Value};

use super::patch::merge_key;

/// The manager of all that was there before anybody applied.
const BEFORE: &str = "before-first-apply";
/// What old clients keep for themselves; nobody else means it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A field that somebody else has, with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    pub manager: String,
    pub field: String,
}

/// The managers beside the one that applies, with what they have of a value.
pub type Others<'v> = Vec<(&'v str, &'v Value)>;

/// `mine`, without what `live` says otherwise by now. `None` when nothing is left.
pub fn still(mine: &Value, live: Option<&Value>, name: &str) -> Option<Value> {
    match (mine, live?, merge_key(name)) {
        (Value::Object(mine), Value::Object(live), _) => {
            let fields = mine.iter().filter_map(|(key, value)| Some((key.clone(), still(value, live.get(key), key)?)));
            let fields: Map<_, _> = fields.collect();
            (!fields.is_empty() || mine.is_empty()).then(|| fields.into())
        }
        (Value::Array(mine), Value::Array(live), Some(key)) => {
            let items = mine.iter().filter_map(|item| still(item, find(live, key, item), ""));
            let items: Vec<_> = items.collect();
            (!items.is_empty()).then(|| items.into())
        }
        (mine, live, _) => (mine == live).then(|| mine.clone()),
    }
}

/// What of `applied` another manager has otherwise in `live`. `mine`: what the manager has of it.
pub fn conflicts(
    applied: &Value,
    live: Option<&Value>,
    mine: Option<&Value>,
    others: &Others<'_>,
    name: &str,
    path: &str,
    found: &mut Vec<Conflict>,
) {
    let Some(live) = live else { return };
    match (applied, live, merge_key(name)) {
        _ if applied == live => {}
        (Value::Object(fields), Value::Object(live), _) => {
            for (key, value) in fields.iter().filter(|(key, _)| *key != LAST_APPLIED) {
                let below: Others<'_> = others.iter().filter_map(|(who, v)| Some((*who, v.get(key)?))).collect();
                let mine = mine.and_then(|mine| mine.get(key));
                conflicts(value, live.get(key), mine, &below, key, &format!("{path}.{key}"), found);
            }
        }
        (Value::Array(items), Value::Array(live), Some(key)) => {
            let of = |list: &'_ Value, item: &Value| list.as_array().and_then(|list| find(list, key, item)).cloned();
            for item in items {
                let theirs: Vec<_> = others.iter().filter_map(|(who, list)| Some((*who, of(list, item)?))).collect();
                let below: Others<'_> = theirs.iter().map(|(who, item)| (*who, item)).collect();
                let mine = mine.and_then(|mine| of(mine, item));
                let path = format!("{path}[{key}={}]", item.get(key).unwrap_or(&Value::Null));
                conflicts(item, find(live, key, item), mine.as_ref(), &below, "", &path, found);
            }
        }
        _ if others.is_empty() && mine.is_some() => {}
        _ => {
            let who = if others.is_empty() { vec![BEFORE] } else { others.iter().map(|(who, _)| *who).collect() };
            found.extend(who.into_iter().map(|who| Conflict { manager: who.to_owned(), field: path.to_owned() }));
        }
    }
}

/// `live` without what the manager had (`mine`) and applies no more; what others have too stays.
/// `None` when nothing is left.
pub fn without(live: &Value, mine: &Value, applied: Option<&Value>, others: &Others<'_>, name: &str) -> Option<Value> {
    match (live, mine, merge_key(name)) {
        (Value::Object(live), Value::Object(mine), _) => {
            let mut left = live.clone();
            for (key, mine) in mine {
                let Some(value) = left.remove(key) else { continue };
                let below: Others<'_> = others.iter().filter_map(|(who, v)| Some((*who, v.get(key)?))).collect();
                left.extend(
                    without(&value, mine, applied.and_then(|a| a.get(key)), &below, key).map(|v| (key.clone(), v)),
                );
            }
            (applied.is_some() || !others.is_empty() || !left.is_empty()).then(|| left.into())
        }
        (Value::Array(live), Value::Array(mine), Some(key)) => {
            let of = |list: &Value, item: &Value| list.as_array().and_then(|list| find(list, key, item)).cloned();
            let item = |live: &Value| -> Option<Value> {
                let Some(mine) = find(mine, key, live) else { return Some(live.clone()) };
                let theirs: Vec<_> = others.iter().filter_map(|(who, list)| Some((*who, of(list, live)?))).collect();
                let below: Others<'_> = theirs.iter().map(|(who, item)| (*who, item)).collect();
                without(live, mine, applied.and_then(|a| of(a, live)).as_ref(), &below, "")
            };
            let left: Vec<_> = live.iter().filter_map(item).collect();
            (applied.is_some() || !others.is_empty() || !left.is_empty()).then(|| left.into())
        }
        _ if applied.is_none() && others.is_empty() => None,
        _ => Some(live.clone()),
    }
}

/// The item of a list that has the key of this one.
fn find<'v>(list: &'v [Value], key: &str, item: &Value) -> Option<&'v Value> {
    list.iter().find(|other| other.get(key) == item.get(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(applied: &Value, live: &Value, mine: Option<&Value>, others: &Others<'_>) -> Vec<String> {
        let mut all = Vec::new();
        conflicts(applied, Some(live), mine, others, "", "", &mut all);
        all.into_iter().map(|c| format!("{} {}", c.manager, c.field)).collect()
    }

    #[test]
    fn who_is_in_the_way() {
        let live =
            json!({"data": {"a": "1", "b": "2"}, "spec": {"containers": [{"name": "x", "image": "i", "args": ["1"]}]}});
        let of = |data: Value| json!({"data": data});
        let image = |image: &str| json!({"spec": {"containers": [{"name": "x", "image": image}]}});
        type Row = (Value, Option<Value>, Option<Value>, &'static [&'static str]);
        let table: &[Row] = &[
            (of(json!({"a": "1", "c": "3"})), None, None, &[]),
            (of(json!({"a": "9"})), None, None, &["before-first-apply .data.a"]),
            (of(json!({"a": "9"})), Some(of(json!({"a": "1"}))), None, &[]),
            (of(json!({"a": "9"})), Some(of(json!({"a": "1"}))), Some(of(json!({"a": "1"}))), &["other .data.a"]),
            (of(json!({"a": "9"})), Some(of(json!({"a": "1"}))), Some(of(json!({"b": "2"}))), &[]),
            (image("i"), None, Some(image("i")), &[]),
            (image("j"), None, Some(image("i")), &["other .spec.containers[name=\"x\"].image"]),
            (image("j"), Some(image("i")), None, &[]),
            (json!({"spec": {"containers": [{"name": "y", "image": "j"}]}}), None, None, &[]),
            (
                json!({"spec": {"containers": [{"name": "x", "args": ["2"]}]}}),
                None,
                None,
                &["before-first-apply .spec.containers[name=\"x\"].args"],
            ),
            (json!({"metadata": {"annotations": {LAST_APPLIED: "x"}}}), None, None, &[]),
        ];
        for (applied, mine, other, want) in table {
            let others: Others<'_> = other.iter().map(|other| ("other", other)).collect();
            assert_eq!(found(applied, &live, mine.as_ref(), &others), *want, "{applied} {mine:?} {other:?}");
        }
    }

    #[test]
    fn what_is_applied_no_more() {
        let live = json!({"data": {"a": "1", "b": "2"}, "list": [1], "spec": {"env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}});
        let env = |names: &[&str]| {
            let all: Vec<_> =
                names.iter().map(|name| json!({"name": name, "value": if *name == "X" { "1" } else { "2" }})).collect();
            json!({"spec": {"env": all}})
        };
        let table: &[(Value, Value, Option<Value>, Value)] = &[
            (
                json!({"data": {"a": "1"}}),
                json!({}),
                None,
                json!({"data": {"b": "2"}, "list": live["list"], "spec": live["spec"]}),
            ),
            (json!({"data": {"a": "1"}}), json!({"data": {"a": "9"}}), None, live.clone()),
            (json!({"data": {"a": "1"}}), json!({}), Some(json!({"data": {"a": "1"}})), live.clone()),
            (
                json!({"data": {"a": "1", "b": "2"}}),
                json!({}),
                None,
                json!({"list": live["list"], "spec": live["spec"]}),
            ),
            (
                env(&["X", "Y"]),
                env(&["Y"]),
                None,
                json!({"data": live["data"], "list": [1], "spec": {"env": [{"name": "Y", "value": "2"}]}}),
            ),
            (env(&["X"]), env(&[]), Some(env(&["X"])), live.clone()),
            (json!({"list": [1]}), json!({}), None, json!({"data": live["data"], "spec": live["spec"]})),
        ];
        for (mine, applied, other, want) in table {
            let others: Others<'_> = other.iter().map(|other| ("other", other)).collect();
            let got = without(&live, mine, Some(applied), &others, "");
            assert_eq!(got.as_ref(), Some(want), "{mine} {applied} {other:?}");
        }
    }

    #[test]
    fn what_is_still_so() {
        let live = json!({"data": {"a": "1", "b": "9"}, "env": [{"name": "X", "value": "1"}], "e": {}});
        let mine = json!({"data": {"a": "1", "b": "2", "c": "3"}, "env": [{"name": "X", "value": "2"}, {"name": "Z"}], "e": {}});
        assert_eq!(still(&mine, Some(&live), ""), Some(json!({"data": {"a": "1"}, "env": [{"name": "X"}], "e": {}})));
        assert_eq!(still(&json!({"data": {"b": "2"}}), Some(&live), ""), None);
    }
}
