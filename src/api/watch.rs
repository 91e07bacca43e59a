//! Watches: what changes, line by line, for as long as the client listens. A client that is too slow
//! finds that the changes it lacks are no longer kept, and is told to list anew: nothing is kept for
//! a single one of them.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::answer;
use super::list::{Continue, Page};
use super::object::{Object, Secrets};
use super::resource::Resource;
use super::selector::Selector;
use super::store::{Change, Gone, Store};
use super::table::{self, Include};
use super::write;
use crate::server::http::Out;

/// How often it is looked whether the client is still there.
const LOOK: Duration = Duration::from_secs(1);
const BOOKMARK: Duration = Duration::from_secs(60);

/// What is watched, and how it is shown.
#[derive(Debug, Clone)]
pub struct View {
    pub resource: Resource,
    /// All of them when `None`.
    pub namespace: Option<String>,
    pub selector: Selector,
    pub secrets: Secrets,
    /// The name that the one pod was asked for by, when it is not its own.
    pub called: Option<String>,
    /// As a table.
    pub table: Option<Include>,
}

impl View {
    /// The object, if it is one of those that are asked for.
    pub fn show(&self, object: &Object, version: u64) -> Option<Value> {
        let mut value = object.json(version, self.secrets);
        if !self.selector.matches(&value) {
            return None;
        }
        if let Some(called) = &self.called {
            write::call(&mut value, called);
        }
        Some(value)
    }

    pub fn has(&self, namespace: &str) -> bool {
        self.namespace.as_ref().is_none_or(|wanted| wanted == namespace)
    }

    /// All that are there, and the version of that.
    pub fn list(&self, store: &Store) -> (u64, Vec<Value>) {
        let Listed { version, objects, .. } = self.page(store, &Page::default());
        (version, objects)
    }

    /// Those of a page.
    pub fn page(&self, store: &Store, page: &Page) -> Listed {
        let (now, all) = store.list(self.resource);
        let version = page.from.as_ref().map_or(now, |from| from.version);
        let asked = all.iter().filter(|(key, _)| self.has(&key.namespace));
        let mut asked = asked.filter(|(key, _)| page.from.as_ref().is_none_or(|from| from.is_before(key))).peekable();
        let mut listed = Listed { version, objects: Vec::new(), more: None, left: None };
        while let Some((key, entry)) = asked.next() {
            listed.objects.extend(self.show(&entry.object, entry.version));
            if page.limit.is_some_and(|limit| listed.objects.len() >= limit) && asked.peek().is_some() {
                listed.more = Some(Continue::behind(key, version));
                // How many of the others there are is not known before all of them are looked at.
                listed.left = self.selector.is_empty().then(|| asked.count());
                break;
            }
        }
        listed
    }

    /// What the change is to a client that sees these objects alone.
    fn event(&self, change: &Change) -> Option<(&'static str, Value)> {
        if change.key.resource != self.resource || !self.has(&change.key.namespace) {
            return None;
        }
        let show = |object: &Option<Object>| self.show(object.as_ref()?, change.version);
        match (show(&change.before), show(&change.after)) {
            (None, Some(after)) => Some(("ADDED", after)),
            (Some(_), Some(after)) => Some(("MODIFIED", after)),
            (Some(before), None) => Some(("DELETED", before)),
            (None, None) => None,
        }
    }
}

/// What a list, or a page of it, has.
pub struct Listed {
    pub version: u64,
    pub objects: Vec<Value>,
    /// Where to go on, when there may be more.
    pub more: Option<Continue>,
    /// How many more there are, when that is known.
    pub left: Option<usize>,
}

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With what is there now, which is told first; its end may be marked.
    Now { mark: bool },
    /// After this version.
    After(u64),
}

#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub from: Start,
    pub bookmarks: bool,
    pub time: Duration,
}

/// Tells of changes until the client goes or the time is over.
pub fn watch(store: &Arc<Store>, view: &View, options: Options, out: &mut Out<'_>) -> io::Result<()> {
    let end = Instant::now() + options.time;
    let mut lines = Lines { view, headless: false };
    let mut version = match options.from {
        Start::After(version) => version,
        Start::Now { mark } => {
            let (version, objects) = view.list(store);
            for object in objects {
                lines.event(out, "ADDED", object, version)?;
            }
            if mark {
                lines.bookmark(out, version, true)?;
            }
            version
        }
    };
    // The head is to be seen at once.
    out.flush()?;
    let mut marked = Instant::now();
    while Instant::now() < end && !out.has_hung_up() {
        let changes = match store.since(version, LOOK) {
            Ok((now, changes)) => {
                version = now;
                changes
            }
            Err(Gone) => {
                let gone = answer::failure(410, "Expired", &format!("too old resource version: {version}"));
                writeln!(out, "{}", json!({"type": "ERROR", "object": gone}))?;
                return out.flush();
            }
        };
        for change in changes {
            if let Some((kind, object)) = view.event(&change) {
                lines.event(out, kind, object, change.version)?;
            }
        }
        if options.bookmarks && marked.elapsed() >= BOOKMARK {
            marked = Instant::now();
            lines.bookmark(out, version, false)?;
        }
        out.flush()?;
    }
    Ok(())
}

struct Lines<'a> {
    view: &'a View,
    /// The columns of the table were told.
    headless: bool,
}

impl Lines<'_> {
    fn event(&mut self, out: &mut Out<'_>, kind: &str, object: Value, version: u64) -> io::Result<()> {
        let object = match self.view.table {
            None => object,
            Some(include) => {
                let headless = std::mem::replace(&mut self.headless, true);
                table::table(self.view.resource, &[object], version, include, headless, Timestamp::now())
            }
        };
        writeln!(out, "{}", json!({"type": kind, "object": object}))
    }

    fn bookmark(&self, out: &mut Out<'_>, version: u64, initial: bool) -> io::Result<()> {
        let (kind, api_version) = match self.view.table {
            None => (self.view.resource.kind(), "v1"),
            Some(_) => ("Table", "meta.k8s.io/v1"),
        };
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        writeln!(out, "{}", json!({"type": "BOOKMARK", "object": object}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::feed::Feed;

    fn view(selector: &str) -> View {
        let selector = Selector::parse(Resource::Nodes, selector, "", str::to_owned).expect("a selector");
        View {
            resource: Resource::Nodes,
            namespace: None,
            selector,
            secrets: Secrets::Hidden,
            called: None,
            table: None,
        }
    }

    fn node(app: &str) -> Object {
        Object::Node(Arc::new(json!({"metadata": {"name": "n", "labels": {"app": app}}})))
    }

    fn watched(store: &Arc<Store>, view: &View, from: Option<u64>) -> Vec<String> {
        let mut bytes = Vec::new();
        let mut out = Out::memory(&mut bytes);
        let from = from.map_or(Start::Now { mark: true }, Start::After);
        let options = Options { from, bookmarks: false, time: Duration::from_millis(10) };
        watch(store, view, options, &mut out).expect("writes");
        drop(out);
        let text = String::from_utf8(bytes).expect("text");
        let line = |line: &str| {
            let event: Value = serde_json::from_str(line).expect("JSON");
            let version = event.pointer("/object/metadata/resourceVersion").or(event.pointer("/object/code"));
            format!("{} {}", event["type"].as_str().unwrap_or_default(), version.unwrap_or(&Value::Null))
        };
        text.lines().map(line).collect()
    }

    #[test]
    fn pages_of_a_list() {
        let store = Arc::new(Store::new(0, Feed::default()));
        let names = ["a", "b", "c", "d"];
        store.replace(names.map(|name| Object::Namespace(name.into())));
        let view = View { resource: Resource::Namespaces, ..view("") };
        for limit in 1..=5 {
            let (mut page, first) = (Page { limit: Some(limit), from: None }, store.version());
            let mut seen: Vec<String> = Vec::new();
            loop {
                let listed = view.page(&store, &page);
                assert_eq!(listed.version, first, "that of the first page");
                seen.extend(listed.objects.iter().map(|o| o["metadata"]["name"].as_str().unwrap_or("?").to_owned()));
                let Some(more) = listed.more else { break };
                assert_eq!((listed.objects.len(), listed.left), (limit, Some(4 - seen.len())));
                page.from = Some(more);
                // What comes behind it meanwhile doesn't disturb.
                store.replace(names.into_iter().chain([" "]).map(|name| Object::Namespace(name.into())));
            }
            assert_eq!(seen, names, "{limit}");
            store.replace(names.map(|name| Object::Namespace(name.into())));
        }
    }

    #[test]
    fn what_changes_and_what_starts_and_ends_to_fit() {
        let store = Arc::new(Store::new(0, Feed::default()));
        store.replace([]);
        store.replace([node("a")]);
        store.replace([node("b")]);
        store.replace([node("a")]);
        store.replace([]);
        let all = ["ADDED \"2\"", "MODIFIED \"3\"", "MODIFIED \"4\"", "DELETED \"5\""];
        assert_eq!(watched(&store, &view(""), Some(1)), all);
        assert_eq!(
            watched(&store, &view("app=a"), Some(1)),
            ["ADDED \"2\"", "DELETED \"3\"", "ADDED \"4\"", "DELETED \"5\""]
        );
        assert_eq!(watched(&store, &view("app=c"), Some(1)), [""; 0]);
        assert_eq!(watched(&store, &view(""), Some(9)), ["ERROR 410"]);
        store.replace([node("a")]);
        assert_eq!(watched(&store, &view(""), None), ["ADDED \"6\"", "BOOKMARK \"6\""]);
    }
}
