//! `cleat get`, `cleat events`.

use std::io::{BufRead, BufReader, Write};

use serde_json::Value;

use super::client::Client;
use super::options::{Options, Output};
use super::{Error, path, print, resource};
use crate::api::Resource;
use crate::server::http::percent_encode;

const TABLE: &str = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json\r\n";

pub fn run(client: &Client, options: &Options) -> Result<(), Error> {
    let (kind, name) = options.kind_and_name()?;
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
    let mut out = std::io::stdout().lock();
    write(&mut out, options, resource, &value, false)?;
    if !options.watch {
        return Ok(());
    }
    let version = value["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let answer = client.get(&format!("{target}&watch=true&resourceVersion={version}"), headers)?;
    // The columns come with the first line alone.
    let mut columns = value["columnDefinitions"].clone();
    for line in BufReader::new(answer.body).lines() {
        let event: Value = serde_json::from_str(&line.map_err(Error::Answer)?).map_err(|e| Error::Answer(e.into()))?;
        let mut object = event["object"].clone();
        if event["type"] == "ERROR" {
            return Err(Error::Refused(object["message"].as_str().unwrap_or("the watch ended").to_owned()));
        }
        match object["columnDefinitions"].as_array() {
            Some(new) if !new.is_empty() => columns = object["columnDefinitions"].clone(),
            _ => object["columnDefinitions"] = columns.clone(),
        }
        write(&mut out, options, resource, &object, true)?;
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

fn write(
    out: &mut impl Write,
    options: &Options,
    resource: Resource,
    value: &Value,
    headless: bool,
) -> Result<(), Error> {
    let text = match options.output {
        Output::Table { wide } if headless || value["rows"].as_array().is_some_and(|rows| !rows.is_empty()) => {
            print::table(value, wide, headless)
        }
        Output::Table { .. } => {
            eprintln!("No {} found.", resource.name());
            return Ok(());
        }
        Output::Json => serde_json::to_string_pretty(value).map_err(|e| Error::Answer(e.into()))? + "\n",
        Output::Yaml if headless => format!("---\n{}", print::yaml(value)),
        Output::Yaml => print::yaml(value),
        Output::Name => {
            let one = std::slice::from_ref(value);
            let items = value["items"].as_array().map_or(one, Vec::as_slice);
            let name = |v: &Value| {
                format!("{}/{}\n", resource.kind().to_lowercase(), v["metadata"]["name"].as_str().unwrap_or_default())
            };
            items.iter().map(name).collect()
        }
    };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::Write)
}
