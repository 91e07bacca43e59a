//! Pods of a real API server, beside the same pods as static ones.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::json;

use super::support::cluster::Cluster;
use super::support::{Containerd, joined};
use super::{Bench, ROUNDS, Usage, agent, row, since};

/// Agents with and without the API server take turns; all pods are wanted when the agent is started.
pub fn run(count: usize) {
    let containerd = Containerd::start();
    let cluster = Cluster::start(containerd.cell()).expect("a control plane");
    let mut alone = Bench::on(containerd);
    let mut member = agent(&alone.containerd);
    member.flags(&["--kubeconfig", &cluster.node_kubeconfig().display().to_string()]);
    let (mut fixed, mut served) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        (0..count).for_each(|i| alone.write(&format!("pod{i}")));
        alone.agent.launch();
        fixed.push(started(&alone, count));
        (0..count).for_each(|i| alone.remove(&format!("pod{i}")));
        alone.empty();
        alone.agent.stop();

        if round > 0 {
            cluster.kubectl.run(&["delete", "pods", "--all", "--grace-period=0", "--force"]);
        }
        create(&cluster, alone.containerd.cell().dir(), count);
        member.launch();
        served.push(started(&alone, count));
        if round + 1 < ROUNDS {
            cluster.kubectl.run(&["delete", "pods", "--all", "--wait=false"]);
            alone.empty();
            member.stop();
        }
    }
    let fixed = row("static pods", &mut fixed);
    let served = row("pods of the API server", &mut served);
    println!("those of the API server take {:.2} times as long", served / fixed);
    // Until all is told, and what was needed for it was given back.
    std::thread::sleep(Duration::from_secs(90));
    println!("afterwards the agent has {}", Usage::of(member.process().pid()).memory());
}

/// From now to the start of the last container, in milliseconds; asks little, which is not for free.
fn started(bench: &Bench, count: usize) -> f64 {
    let start = SystemTime::now();
    bench.running(count);
    let last = bench.bare.running().iter().map(|container| bench.at(container)).max().expect("some");
    let took = since(start, last);
    println!("{count} pods                             {took:>7.0} ms");
    took
}

fn create(cluster: &Cluster, dir: &Path, count: usize) {
    let list: Vec<_> = (0..count).map(|i| joined::pod(&format!("pod{i}"), "sleep 100000")).collect();
    let file = dir.join("pods.json");
    fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": list}).to_string()).expect("writes");
    cluster.kubectl.run(&["create", "-f", &file.display().to_string()]);
}
