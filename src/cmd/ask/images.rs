//! `cleat get images`: what the runtime has, and how many pods use it.

use serde_json::Value;

use super::client::Client;
use super::options::{Options, Output};
use super::print::{self, Table};
use super::{Error, path};
use crate::api::Resource;

pub fn run(client: &Client, options: &Options, name: Option<&str>) -> Result<(), Error> {
    if options.watch {
        return Err(Error::Usage("images can't be watched".to_owned()));
    }
    let mut images = client.json("/cleat/v1/images", "")?;
    if let Some(items) = images["items"].as_array_mut() {
        items.retain(|image| name.is_none_or(|name| names(image).any(|n| n.contains(name))));
        items.sort_by_key(|image| image["metadata"]["name"].as_str().map(str::to_owned));
    }
    let text = match options.output {
        Output::Json => serde_json::to_string_pretty(&images).map_err(|e| Error::Answer(e.into()))? + "\n",
        Output::Yaml => print::yaml(&images),
        Output::Name => items(&images).map(|image| format!("image/{}\n", main_name(image))).collect(),
        Output::Table { wide } => {
            let pods = client.json(&path(Resource::Pods, None, None), "")?;
            let rows = rows(&images, &pods, wide);
            Table::plain().add(&rows)
        }
    };
    print::out(&text)
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

/// All that an image is known by.
fn names(image: &Value) -> impl Iterator<Item = &str> {
    let listed = ["tags", "digests"].into_iter().filter_map(|list| image[list].as_array()).flatten();
    listed.chain([&image["id"]]).filter_map(Value::as_str)
}

fn main_name(image: &Value) -> &str {
    image["metadata"]["name"].as_str().unwrap_or_default()
}

/// Pure.
fn rows(images: &Value, pods: &Value, wide: bool) -> Vec<Vec<String>> {
    let mut head = vec!["IMAGE", "ID", "SIZE", "PODS"];
    if wide {
        head.push("DIGEST");
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect()];
    for image in items(images) {
        let id = image["id"].as_str().unwrap_or_default();
        let short = id.strip_prefix("sha256:").unwrap_or(id);
        let count = items(pods).filter(|pod| uses(pod, image)).count();
        let size = image["sizeBytes"].as_u64().unwrap_or_default();
        let names = image["tags"].as_array().filter(|tags| !tags.is_empty());
        let names: Vec<&str> =
            names.map_or(vec![main_name(image)], |tags| tags.iter().filter_map(Value::as_str).collect());
        for name in names {
            let mut row =
                vec![name.to_owned(), short.chars().take(12).collect(), print::bytes(size), count.to_string()];
            if wide {
                row.push(image["digests"][0].as_str().unwrap_or("<none>").to_owned());
            }
            rows.push(row);
        }
    }
    rows
}

fn uses(pod: &Value, image: &Value) -> bool {
    let lists = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
    let statuses = lists.iter().filter_map(|list| pod["status"][list].as_array()).flatten();
    let mut used = statuses.flat_map(|status| [&status["imageID"], &status["image"]]).filter_map(Value::as_str);
    used.any(|used| names(image).any(|name| name == used))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn images() {
        let images = json!({"items": [
            {"metadata": {"name": "a:1"}, "id": "sha256:0123456789abcdef", "tags": ["a:1", "a:2"], "digests": ["a@sha256:d"], "sizeBytes": 12_345_678},
            {"metadata": {"name": "b@sha256:e"}, "id": "sha256:ff", "tags": [], "digests": ["b@sha256:e"], "sizeBytes": 999},
        ]});
        let status = |id: &str| json!({"status": {"containerStatuses": [{"image": "x", "imageID": id}]}});
        let pods = json!({"items": [status("a@sha256:d"), status("sha256:0123456789abcdef"), status("other")]});
        let text = Table::plain().add(&rows(&images, &pods, false));
        assert_eq!(
            text,
            "IMAGE        ID             SIZE     PODS\n\
             a:1          0123456789ab   12.3MB   2\n\
             a:2          0123456789ab   12.3MB   2\n\
             b@sha256:e   ff             999B     0\n"
        );
        assert!(Table::plain().add(&rows(&images, &pods, true)).contains("   DIGEST\n"));
    }
}
