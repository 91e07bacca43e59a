//! `cleat top`: what the node and its pods use now.

use std::io::Write;

use serde_json::Value;

use super::client::Client;
use super::options::Options;
use super::{Error, print};
use crate::pod::quantity::Quantity;
use crate::server::http::percent_encode;

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";

pub fn run(client: &Client, options: &Options) -> Result<(), Error> {
    let (kind, name) = match options.arguments.is_empty() {
        true => (None, None),
        false => options.kind_and_name().map(|(kind, name)| (Some(kind), name))?,
    };
    let lines = match kind.as_deref() {
        Some("node" | "nodes" | "no") => nodes(client, name.as_deref())?,
        Some("pod" | "pods" | "po") => pods(client, options, name.as_deref())?,
        Some(kind) => return Err(Error::Usage(format!("nothing is known of the usage of {kind}: pods and nodes"))),
        None => {
            let mut text = nodes(client, None)?;
            text.push('\n');
            text + &pods(client, options, None)?
        }
    };
    std::io::stdout().lock().write_all(lines.as_bytes()).map_err(Error::Write)
}

fn nodes(client: &Client, name: Option<&str>) -> Result<String, Error> {
    let used = client.json(&below(METRICS, "nodes", name), "")?;
    let nodes = client.json(&below("/api/v1", "nodes", name), "")?;
    Ok(print::aligned(&of_nodes(&items(&used), &items(&nodes))))
}

fn pods(client: &Client, options: &Options, name: Option<&str>) -> Result<String, Error> {
    let place = match &options.namespace {
        Some(namespace) => format!("{METRICS}/namespaces/{}", percent_encode(namespace)),
        None => METRICS.to_owned(),
    };
    let query = format!("?labelSelector={}", percent_encode(&options.labels));
    let used = client.json(&(below(&place, "pods", name) + &query), "")?;
    let used = items(&used);
    match used.is_empty() {
        true => Ok("No pods.\n".to_owned()),
        false => Ok(print::aligned(&of_pods(&used, options.containers, options.namespace.is_none()))),
    }
}

fn below(place: &str, resource: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{place}/{resource}/{}", percent_encode(name)),
        None => format!("{place}/{resource}"),
    }
}

/// Those of a list, or the one.
fn items(value: &Value) -> Vec<&Value> {
    value["items"].as_array().map_or_else(|| vec![value], |items| items.iter().collect())
}

fn of_nodes(used: &[&Value], nodes: &[&Value]) -> Vec<Vec<String>> {
    let mut lines = vec![words(&["NAME", "CPU(cores)", "CPU%", "MEMORY(bytes)", "MEMORY%"])];
    for one in used {
        let node = nodes.iter().find(|node| node["metadata"]["name"] == one["metadata"]["name"]);
        let there =
            |name: &str| node.map_or_else(Quantity::default, |node| amount(&node["status"]["allocatable"][name]));
        let (cpu, memory) = (amount(&one["usage"]["cpu"]), amount(&one["usage"]["memory"]));
        lines.push(vec![
            text(&one["metadata"]["name"]),
            cores(cpu),
            percent(cpu.milli_value(), there("cpu").milli_value()),
            bytes(memory),
            percent(memory.value(), there("memory").value()),
        ]);
    }
    lines
}

fn of_pods(used: &[&Value], containers: bool, namespaces: bool) -> Vec<Vec<String>> {
    let heads = [("NAMESPACE", namespaces), (if containers { "POD" } else { "NAME" }, true), ("NAME", containers)];
    let mut head: Vec<String> = heads.iter().filter(|(_, is)| *is).map(|(head, _)| (*head).to_owned()).collect();
    head.extend(words(&["CPU(cores)", "MEMORY(bytes)"]));
    let mut lines = vec![head];
    for pod in used {
        let names = [(&pod["metadata"]["namespace"], namespaces), (&pod["metadata"]["name"], true)];
        let names: Vec<String> = names.into_iter().filter(|(_, is)| *is).map(|(name, _)| text(name)).collect();
        let all: Vec<&Value> = pod["containers"].as_array().into_iter().flatten().collect();
        let of = |c: &&Value| (amount(&c["usage"]["cpu"]), amount(&c["usage"]["memory"]));
        if containers {
            for container in &all {
                let (cpu, memory) = of(container);
                let more = [text(&container["name"]), cores(cpu), bytes(memory)];
                lines.push(names.iter().cloned().chain(more).collect());
            }
        } else {
            let (cpu, memory) = all
                .iter()
                .map(of)
                .fold(Default::default(), |(cpu, memory): (Quantity, Quantity), (c, m)| (cpu + c, memory + m));
            lines.push(names.into_iter().chain([cores(cpu), bytes(memory)]).collect());
        }
    }
    lines
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().replace(char::is_control, " ")
}

fn amount(value: &Value) -> Quantity {
    value.as_str().and_then(Quantity::parse).unwrap_or_default()
}

fn cores(cpu: Quantity) -> String {
    format!("{}m", cpu.milli_value())
}

fn bytes(memory: Quantity) -> String {
    format!("{}Mi", memory.value() >> 20)
}

fn percent(used: i64, there: i64) -> String {
    match there {
        ..=0 => "<unknown>".to_owned(),
        there => format!("{}%", i128::from(used) * 100 / i128::from(there)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables() {
        let node = json!({"metadata": {"name": "n"}, "usage": {"cpu": "250000001n", "memory": "1048576Ki"}});
        let there = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "memory": "4Gi"}}});
        assert_eq!(of_nodes(&[&node], &[&there])[1], ["n", "251m", "12%", "1024Mi", "25%"]);
        assert_eq!(of_nodes(&[&node], &[])[1], ["n", "251m", "<unknown>", "1024Mi", "<unknown>"]);
        let pod = json!({"metadata": {"name": "p", "namespace": "ns"}, "containers": [
            {"name": "a", "usage": {"cpu": "1000000n", "memory": "2048Ki"}},
            {"name": "b", "usage": {"cpu": "2000000n", "memory": "1024Ki"}},
        ]});
        assert_eq!(
            of_pods(&[&pod], false, false),
            [words(&["NAME", "CPU(cores)", "MEMORY(bytes)"]), words(&["p", "3m", "3Mi"])]
        );
        let all = of_pods(&[&pod], true, true);
        assert_eq!(all[0], ["NAMESPACE", "POD", "NAME", "CPU(cores)", "MEMORY(bytes)"]);
        assert_eq!((all[1].join(" "), all[2].join(" ")), ("ns p a 1m 2Mi".to_owned(), "ns p b 2m 1Mi".to_owned()));
    }
}
