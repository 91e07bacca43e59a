//! `cleat get`, `cleat events`.

use std::io::{BufRead, BufReader};

use serde_json::Value;

use super::client::Client;
use super::options::{Options, Output};
use super::print::{self, Columns, Table};
use super::{Error, images, path, resource};
use crate::api::Resource;
use crate::server::http::percent_encode;

pub const TABLE: &str = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json\r\n";

pub fn run(client: &Client, options: &Options) -> Result<(), Error> {
    let (kind, name) = options.kind_and_name()?;
    if matches!(kind.to_lowercase().as_str(), "images" | "image") {
        return images::run(client, options, name.as_deref());
    }
    show(client, options, resource(&kind)?, name.as_deref())
}

pub fn events(client: &Client, options: &Options) -> Result<(), Error> {
    show(client, options, Resource::Events, None)
}

fn show(client: &Client, options: &Options, resource: Resource, name: Option<&str>) -> Result<(), Error> {
    let namespace = options.namespace.as_deref();
    // One that is watched is one of a list.
    let (below, field) = match name {
        Some(name) if options.watch => (None, format!("metadata.name={name}")),
        name => (name, String::new()),
    };
    let target = format!(
        "{}?labelSelector={}&fieldSelector={}",
        path(resource, namespace, below),
        percent_encode(&options.labels),
        percent_encode(&field)
    );
    let headers = if matches!(options.output, Output::Table { .. }) { TABLE } else { "" };
    let mut value = client.json(&target, headers)?;
    by_time(resource, &mut value);
    let mut printer = Printer::new(options, resource, &value);
    printer.print(&value, false)?;
    if !options.watch {
        return Ok(());
    }
    let version = value["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let answer = client.get(&format!("{target}&watch=true&resourceVersion={version}"), headers)?;
    for line in BufReader::new(answer.body).lines() {
        let event: Value = serde_json::from_str(&line.map_err(Error::Answer)?).map_err(|e| Error::Answer(e.into()))?;
        let object = &event["object"];
        if event["type"] == "ERROR" {
            return Err(Error::Refused(object["message"].as_str().unwrap_or("the watch ended").to_owned()));
        }
        printer.print(object, true)?;
    }
    Ok(())
}

/// Events come by name; people want the newest last.
fn by_time(resource: Resource, value: &mut Value) {
    let list = if value["kind"] == "Table" { "rows" } else { "items" };
    if let (Resource::Events, Some(items)) = (resource, value.get_mut(list).and_then(Value::as_array_mut)) {
        items.sort_by_key(|item| {
            let version =
                item.pointer("/object/metadata/resourceVersion").or(item.pointer("/metadata/resourceVersion"));
            version.and_then(Value::as_str).and_then(|v| v.parse::<u64>().ok())
        });
    }
}

/// What is printed, one answer after the other.
struct Printer {
    output: Output,
    resource: Resource,
    columns: Columns,
    table: Table,
    /// The names of the columns were printed.
    headed: bool,
}

impl Printer {
    fn new(options: &Options, resource: Resource, first: &Value) -> Printer {
        let wide = options.output == Output::Table { wide: true };
        let columns = Columns::new(first, wide, options.namespace.is_none() && resource.is_namespaced());
        let table = if print::has_color() { Table::toned(columns.toned()) } else { Table::plain() };
        Printer { output: options.output, resource, columns, table, headed: false }
    }

    /// `more`: it comes behind what was printed before.
    fn print(&mut self, value: &Value, more: bool) -> Result<(), Error> {
        let text = match self.output {
            Output::Table { .. } => {
                let mut rows = self.columns.rows(value);
                if rows.is_empty() && !more {
                    eprintln!("No {} found.", self.resource.name());
                }
                if !rows.is_empty() && !std::mem::replace(&mut self.headed, true) {
                    rows.insert(0, self.columns.head.clone());
                }
                self.table.add(&rows)
            }
            Output::Json => serde_json::to_string_pretty(value).map_err(|e| Error::Answer(e.into()))? + "\n",
            Output::Yaml if more => format!("---\n{}", print::yaml(value)),
            Output::Yaml => print::yaml(value),
            Output::Name => {
                let one = std::slice::from_ref(value);
                let items = value["items"].as_array().map_or(one, Vec::as_slice);
                let kind = self.resource.kind().to_lowercase();
                let name = |v: &Value| format!("{kind}/{}\n", v["metadata"]["name"].as_str().unwrap_or_default());
                items.iter().map(name).collect()
            }
        };
        print::out(&text)
    }
}
