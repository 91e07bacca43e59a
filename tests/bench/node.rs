//! Figures of the agent beside those of the bare CRI calls to the same containerd, in one run:
//! `scripts/bench latency|burst|idle|cluster|probes [N]`. Nothing here passes or fails.

mod asked;
mod cluster;
mod probes;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::time::{Duration, SystemTime};

use asked::Asked;
use support::pods::Pods;
use support::{Agent, BUSYBOX, Containerd, eventually};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let count = args.get(1).and_then(|n| n.parse().ok());
    match args.first().map(String::as_str) {
        Some("latency") => latency(count.unwrap_or(20)),
        Some("burst") => burst(count.unwrap_or(100)),
        Some("idle") => idle(count.unwrap_or(100)),
        Some("cluster") => cluster::run(count.unwrap_or(100)),
        Some("probes") => probes::run(count.unwrap_or(500), args.get(2).map(String::as_str)),
        // What it starts of itself.
        Some("bare-probes") => probes::bare(&args[1..]),
        _ => {
            eprintln!("usage: scripts/bench latency|burst|idle|cluster|probes [N] [http|tcp|exec|containerd]");
            std::process::exit(2);
        }
    }
}

struct Bench {
    containerd: Containerd,
    agent: Agent,
    bare: Pods,
}

impl Bench {
    fn new() -> Bench {
        let mut bench = Bench::on(Containerd::start());
        bench.agent.start();
        bench
    }

    /// With an agent that is not started.
    fn on(containerd: Containerd) -> Bench {
        let logs = containerd.cell().dir().join("bare-logs");
        let bare = Pods::new(&containerd.socket(), &logs);
        Bench { agent: agent(&containerd), containerd, bare }
    }

    fn write(&self, name: &str) {
        self.agent.write_manifest(&format!("{name}.yaml"), &manifest(name));
    }

    /// The calls that a pod takes, and no agent: ids of sandbox and container.
    fn run_bare(&self, asked: &Asked, number: usize) -> (String, String) {
        asked.run(&self.bare, self.containerd.cell().dir(), number)
    }

    fn remove(&self, name: &str) {
        self.agent.remove_manifest(&format!("{name}.yaml"));
    }

    /// When the runtime says that the container of a pod of the agent was started.
    fn started(&self, name: &str) -> SystemTime {
        let pod = self.agent.wait_pod(name, Duration::from_secs(300), |pod| {
            !pod["status"]["containerStatuses"][0]["state"]["running"].is_null()
        });
        let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().expect("has an id");
        self.at(id.trim_start_matches("containerd://"))
    }

    /// Waits until so many containers run, with few looks at the runtime.
    fn running(&self, count: usize) {
        let deadline = SystemTime::now() + Duration::from_secs(300);
        while self.bare.running().len() < count {
            assert!(SystemTime::now() < deadline, "{count} containers don't run in time");
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn at(&self, container: &str) -> SystemTime {
        let status = self.bare.container_status(container).expect("the container's status");
        SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::try_from(status.started_at).expect("a time"))
    }

    fn empty(&self) {
        eventually("an empty node", Duration::from_secs(300), || match self.containerd.leftovers() {
            left if left.containers.is_empty() && left.sandboxes.is_empty() => Ok(()),
            left => Err(format!("{} containers are left", left.containers.len())),
        });
    }

    fn remove_bare(&self, (sandbox, container): (String, String)) {
        self.bare.stop(&container, 0).expect("stop");
        // The runtime hears of the end a little later.
        eventually("removal", Duration::from_secs(10), || self.bare.remove(&container).map_err(|e| e.to_string()));
        self.bare.stop_sandbox(&sandbox).expect("stop the sandbox");
        self.bare.remove_sandbox(&sandbox).expect("remove the sandbox");
    }
}

fn agent(containerd: &Containerd) -> Agent {
    let mut agent = Agent::on_containerd(containerd);
    agent.configure(serde_json::json!({"maxPods": 500}));
    agent
}

fn manifest(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - {{name: main, image: {BUSYBOX}, command: [sh, -c, 'sleep 100000']}}\n"
    )
}

fn since(start: SystemTime, end: SystemTime) -> f64 {
    end.duration_since(start).map_or(0.0, |d| d.as_secs_f64() * 1000.0)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn row(what: &str, values: &mut [f64]) -> f64 {
    let middle = median(values);
    println!("{what:<34} median {middle:>7.0} ms, {:.0} to {:.0}", values[0], values[values.len() - 1]);
    middle
}

/// From the rename of a manifest to its container having been started, beside RunPodSandbox,
/// CreateContainer and StartContainer alone; in turn.
fn latency(rounds: usize) {
    let (bench, asked) = (Bench::new(), Asked::look(manifest));
    let (mut bare, mut agent) = (Vec::new(), Vec::new());
    for i in 0..=rounds {
        let start = SystemTime::now();
        let ids = bench.run_bare(&asked, i);
        let took = since(start, bench.at(&ids.1));
        bench.remove_bare(ids);
        let name = format!("pod{i}");
        let start = SystemTime::now();
        bench.write(&name);
        let ours = since(start, bench.started(&name));
        bench.remove(&name);
        bench.empty();
        // The first round warms up.
        if i > 0 {
            bare.push(took);
            agent.push(ours);
        }
    }
    let mut more: Vec<f64> = agent.iter().zip(&bare).map(|(a, b)| a - b).collect();
    row("bare calls", &mut bare);
    row("agent, rename to started", &mut agent);
    row("the agent's own part, by pairs", &mut more);
}

/// How often the burst's runs take turns: one alone says little on a machine that others use, too.
const ROUNDS: usize = 3;

/// Many pods at once, beside the bare calls at what may be the runtime's best parallelism.
fn burst(count: usize) {
    let (mut bench, asked) = (Bench::new(), Asked::look(manifest));
    let pid = bench.agent.process().pid();
    let mut bare: Vec<(usize, Vec<f64>)> = [2, 4, 8].map(|parallel| (parallel, Vec::new())).into();
    let (mut agent, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (parallel, took) in &mut bare {
            let time = bare_burst(&bench, &asked, count, *parallel);
            println!("bare calls, {count} pods, {parallel} in parallel   {time:>7.0} ms");
            took.push(time);
        }
        let before = Usage::of(pid);
        let time = agent_burst(&bench, count);
        let after = Usage::of(pid);
        println!("agent, {count} pods                      {time:>7.0} ms");
        agent.push(time);
        cpu.push(after.cpu - before.cpu);
        (0..count).for_each(|i| bench.remove(&format!("pod{i}")));
        bench.empty();
    }
    let best = bare.iter_mut().map(|(_, took)| median(took)).fold(f64::MAX, f64::min);
    let middle = row("agent", &mut agent);
    println!("bare calls at their best           median {best:>7.0} ms");
    println!("the agent needs {:.2} times that, and {:.2} s of CPU", middle / best, median(&mut cpu));
}

/// Until the last of the pods was started.
fn bare_burst(bench: &Bench, asked: &Asked, count: usize, parallel: usize) -> f64 {
    let start = SystemTime::now();
    let run = |i: usize| bench.run_bare(asked, i);
    let ids = std::thread::scope(|scope| {
        let worker = |w| scope.spawn(move || (w..count).step_by(parallel).map(run).collect::<Vec<_>>());
        let workers: Vec<_> = (0..parallel).map(worker).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect::<Vec<_>>()
    });
    let last = ids.iter().map(|(_, container)| bench.at(container)).max().expect("some");
    ids.into_iter().for_each(|ids| bench.remove_bare(ids));
    since(start, last)
}

fn agent_burst(bench: &Bench, count: usize) -> f64 {
    let start = SystemTime::now();
    (0..count).for_each(|i| bench.write(&format!("pod{i}")));
    // Asking for the pods is not for free, and the bare calls have nobody that asks.
    bench.running(count);
    let last = (0..count).map(|i| bench.started(&format!("pod{i}"))).max().expect("some");
    since(start, last)
}

/// What the agent takes while nothing happens.
fn idle(count: usize) {
    let mut bench = Bench::new();
    for i in 0..count {
        bench.write(&format!("pod{i}"));
    }
    for i in 0..count {
        bench.started(&format!("pod{i}"));
    }
    let pid = bench.agent.process().pid();
    std::thread::sleep(Duration::from_secs(20));
    let before = Usage::of(pid);
    let time = Duration::from_secs(60);
    std::thread::sleep(time);
    let after = Usage::of(pid);
    println!("idle with {count} pods: {}", after.memory());
    println!(
        "CPU {:.2} % of a core, {:.1} context switches a second, {} threads",
        (after.cpu - before.cpu) / time.as_secs_f64() * 100.0,
        (after.switches - before.switches) as f64 / time.as_secs_f64(),
        after.threads
    );
}

struct Usage {
    /// Seconds.
    cpu: f64,
    switches: u64,
    threads: usize,
    /// KiB.
    pss: u64,
    rss: u64,
    private_dirty: u64,
}

impl Usage {
    fn of(pid: i32) -> Usage {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).expect("the agent runs");
        let field = |text: &str, name: &str| -> u64 {
            let line = text.lines().find(|l| l.starts_with(name)).expect("has the field");
            line.split_whitespace().nth(1).expect("a value").parse().expect("a number")
        };
        let rollup = read("smaps_rollup");
        let mut usage = Usage {
            cpu: 0.0,
            switches: 0,
            threads: 0,
            pss: field(&rollup, "Pss:"),
            rss: field(&rollup, "Rss:"),
            private_dirty: field(&rollup, "Private_Dirty:"),
        };
        for task in fs::read_dir(format!("/proc/{pid}/task")).expect("the agent runs") {
            let dir = task.expect("a thread").path();
            // A thread may have ended since.
            let Ok(status) = fs::read_to_string(dir.join("status")) else { continue };
            usage.threads += 1;
            usage.switches +=
                field(&status, "voluntary_ctxt_switches:") + field(&status, "nonvoluntary_ctxt_switches:");
        }
        let stat = read("stat");
        let after = stat.rsplit(')').next().expect("the command ends");
        let ticks: Vec<u64> = after.split_whitespace().skip(11).take(2).map(|t| t.parse().expect("ticks")).collect();
        usage.cpu = ticks.iter().sum::<u64>() as f64 / 100.0;
        usage
    }

    fn memory(&self) -> String {
        let mib = |kib: u64| kib as f64 / 1024.0;
        format!(
            "PSS {:.1} MiB, RSS {:.1} MiB, private dirty {:.1} MiB",
            mib(self.pss),
            mib(self.rss),
            mib(self.private_dirty)
        )
    }
}
