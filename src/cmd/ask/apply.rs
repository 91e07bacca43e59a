//! `cleat apply`: what is in a file becomes what is in the manifest directory, whole.

use std::io::Read;
use std::{fs, io};

use serde_json::Value;

use super::client::{Client, message};
use super::options::Options;
use super::{Error, path, resource};
use crate::yaml;

/// Bytes of a file.
const MAX_FILE: u64 = 4 << 20;

pub fn run(client: &Client, options: &Options) -> Result<(), Error> {
    let files = options.files.iter().map(|f| f.display().to_string()).chain(options.arguments.iter().cloned());
    let files: Vec<String> = files.collect();
    if files.is_empty() {
        return Err(Error::Usage("there has to be a file: apply -f web.yaml (- is standard input)".to_owned()));
    }
    for path in &files {
        for object in objects(path)? {
            put(client, options, &object)?;
        }
    }
    Ok(())
}

fn objects(path: &str) -> Result<Vec<Value>, Error> {
    let failed = |why: String| Error::File { path: path.to_owned(), why };
    let file: Box<dyn Read> = match path {
        "-" => Box::new(io::stdin()),
        path => Box::new(fs::File::open(path).map_err(|e| failed(e.to_string()))?),
    };
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text).map_err(|e| failed(e.to_string()))?;
    let mut all = Vec::new();
    for document in yaml::parse(&text, &mut Vec::new()) {
        let node = document.map_err(|p| failed(p.to_string()))?;
        let object = yaml::decode::<Value>(&node).map_err(|p| failed(p.to_string()))?.value;
        match object["items"].as_array() {
            Some(items) => all.extend(items.iter().cloned()),
            None => all.push(object),
        }
    }
    Ok(all)
}

fn put(client: &Client, options: &Options, object: &Value) -> Result<(), Error> {
    let resource = resource(object["kind"].as_str().unwrap_or_default())?;
    let text = |field: &str| object["metadata"][field].as_str().filter(|text| !text.is_empty());
    let namespace = text("namespace").or(options.namespace.as_deref()).unwrap_or("default");
    let name = text("name").ok_or_else(|| Error::Usage("an object has no name".to_owned()))?;
    let body = object.to_string();
    let headers = "Content-Type: application/json\r\n";
    let changed = client.open("PUT", &path(resource, Some(namespace), Some(name)), headers, &body)?;
    let done = match changed.status {
        200..=299 => "configured",
        404 => {
            client.send("POST", &path(resource, Some(namespace), None), &body)?;
            "created"
        }
        _ => return Err(Error::Refused(message(changed)?)),
    };
    println!("{}/{name} {done}", resource.kind().to_lowercase());
    Ok(())
}
