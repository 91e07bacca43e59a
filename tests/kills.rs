//! The agent is killed at random moments while manifests are added, changed and removed. Afterwards
//! exactly the wanted pods run, once each, and nothing else is left.
//!
//! `KILLS=200` makes it longer, `SEED=n` another one.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use support::{Agent, BUSYBOX, Containerd, eventually};

const PODS: u64 = 6;

/// xorshift64*: the same seed gives the same test.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn pod(name: &str, version: u64) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{version: v{version}}}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  volumes: [{{name: tmp, emptyDir: {{}}}}]\n  containers:\n  - name: main\n    image: {BUSYBOX}\n    command: [sleep, '1000']\n    volumeMounts: [{{name: tmp, mountPath: /tmp}}]\n"
    )
}

#[test]
fn kills_at_random_moments() {
    let kills = number("KILLS", 20);
    let seed = number("SEED", 7);
    println!("KILLS={kills} SEED={seed}");
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let containerd = Containerd::start();
    let mut agent = Agent::on_containerd(&containerd);
    let mut wanted: BTreeMap<String, u64> = BTreeMap::new();
    let mut version = 0;
    for _ in 0..kills {
        agent.launch();
        // The moment: from before it has read anything to well into the work.
        for _ in 0..random.below(6) {
            version += 1;
            let name = format!("p{}", random.below(PODS));
            match random.below(3) {
                0 => {
                    if wanted.remove(&name).is_some() {
                        agent.remove_manifest(&format!("{name}.yaml"));
                    }
                }
                _ => {
                    agent.write_manifest(&format!("{name}.yaml"), &pod(&name, version));
                    wanted.insert(name, version);
                }
            }
            std::thread::sleep(Duration::from_millis(random.below(150)));
        }
        std::thread::sleep(Duration::from_millis(random.below(700)));
        agent.kill();
    }
    agent.start();
    eventually("exactly the wanted pods", Duration::from_secs(120), || compare(&containerd, &agent, &wanted));

    for name in wanted.keys() {
        agent.remove_manifest(&format!("{name}.yaml"));
    }
    eventually("an empty node", Duration::from_secs(120), || {
        let left = containerd.leftovers();
        let pods = std::fs::read_dir(agent.root().join("pods")).map_or(0, Iterator::count);
        let logs = std::fs::read_dir(agent.pod_logs()).map_or(0, Iterator::count);
        match left.is_empty() && pods + logs == 0 {
            true => Ok(()),
            false => Err(format!("{left:?}, {pods} pod directories, {logs} log directories")),
        }
    });
}

fn compare(containerd: &Containerd, agent: &Agent, wanted: &BTreeMap<String, u64>) -> Result<(), String> {
    let tasks = containerd.tasks();
    let (mut sandboxes, mut containers) = (BTreeMap::new(), BTreeMap::new());
    let running_of = |map: &mut BTreeMap<String, usize>, name: String| *map.entry(name).or_default() += 1;
    let mut versions = BTreeMap::new();
    for c in containerd.containers() {
        let name = c.labels.get("io.kubernetes.pod.name").cloned().unwrap_or_default();
        let name = name.trim_end_matches("-edge-1").to_owned();
        let runs = tasks.get(&c.id).is_some_and(|task| task.status == "RUNNING");
        if !runs {
            return Err(format!("{name}: {} is dead and still there", c.id));
        }
        match c.is_sandbox() {
            true => {
                versions.insert(name.clone(), c.labels.get("version").cloned().unwrap_or_default());
                running_of(&mut sandboxes, name);
            }
            false => running_of(&mut containers, name),
        }
    }
    let want: BTreeMap<String, usize> = wanted.keys().map(|name| (name.clone(), 1)).collect();
    if sandboxes != want || containers != want {
        return Err(format!("sandboxes {sandboxes:?}, containers {containers:?}, wanted {want:?}"));
    }
    let want: BTreeMap<String, String> = wanted.iter().map(|(name, v)| (name.clone(), format!("v{v}"))).collect();
    if versions != want {
        return Err(format!("versions {versions:?}, wanted {want:?}"));
    }
    let directories = std::fs::read_dir(agent.root().join("pods")).map_or(0, Iterator::count);
    if directories != wanted.len() {
        return Err(format!("{directories} pod directories, wanted {}", wanted.len()));
    }
    Ok(())
}
