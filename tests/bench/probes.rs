//! Many containers with a probe each second: how late the probes are, how many threads the agent has
//! for them, and what it takes beside the same probes made by a plain loop.
//!
//! Commands are run by the fault-injecting runtime, since hundreds of real ones a second are more than a
//! small machine can do; HTTP and TCP probes ask a server of this process.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cleat::cri::{Client, ContainerId};
use cleat::pod::core;
use cleat::probe::{Handler, Means, Outcome};
use serde_json::{Value, json};

use crate::Usage;
use crate::support::target::{Request, Target};
use crate::support::{Agent, BUSYBOX, Cell, Containerd, FakeCri, NODE};

const SOON: Duration = Duration::from_secs(300);
/// How long each figure is measured.
const SPAN: Duration = Duration::from_secs(30);
/// Containers in one pod.
const CROWD: usize = 50;
const PERIOD: Duration = Duration::from_secs(1);
/// Servers. To one alone the ports of the connections of a minute would not be enough, and looking for
/// a free one would be all that is measured; pods have an address each.
const TARGETS: usize = 16;

/// `only`: one of the four, by name.
pub fn run(count: usize, only: Option<&str>) {
    let wanted = |what: &str| only.is_none_or(|only| only == what);
    for kind in ["http", "tcp", "exec"].into_iter().filter(|kind| wanted(kind)) {
        Bench::on_fake().measure(kind, count, CROWD);
    }
    if wanted("containerd") {
        println!("on containerd, a pod for each container:");
        Bench::on_containerd().measure("http", (count / 5).clamp(1, 100), 1);
    }
}

enum Runtime {
    Fake(FakeCri),
    Real { _containerd: Containerd },
}

struct Bench {
    agent: Agent,
    runtime: Runtime,
    cell: Arc<Cell>,
    socket: PathBuf,
    targets: Vec<Target>,
}

fn targets(cell: &Cell) -> Vec<Target> {
    (0..TARGETS).map(|_| Target::in_cell(cell)).collect()
}

impl Bench {
    fn on_fake() -> Bench {
        let (cri, cell) = (FakeCri::start(), Arc::new(Cell::start()));
        let (agent, socket) = (Agent::in_cell(&cell, cri.socket()), cri.socket().to_owned());
        Bench { agent, socket, targets: targets(&cell), cell, runtime: Runtime::Fake(cri) }
    }

    fn on_containerd() -> Bench {
        let containerd = Containerd::start();
        let (agent, cell) = (Agent::on_containerd(&containerd), containerd.cell().clone());
        let (targets, socket) = (targets(&cell), containerd.socket());
        Bench { agent, socket, targets, cell, runtime: Runtime::Real { _containerd: containerd } }
    }

    fn measure(mut self, kind: &str, count: usize, crowd: usize) {
        self.agent.configure(json!({"maxPods": 500}));
        self.agent.start();
        self.write(count, crowd, |_| None);
        let idle = self.cpu_of_agent(&mut |_| {});
        self.write(count, crowd, |i| Some(self.probe(kind, i)));
        // All ticks have had their turn by then.
        std::thread::sleep(Duration::from_secs(5));
        self.requests();
        let (begin, mut threads, mut lanes) = (Instant::now(), 0, 0);
        let busy = self.cpu_of_agent(&mut |pid| {
            let names = names_of_threads(pid);
            threads = threads.max(names.len());
            lanes = lanes.max(names.iter().filter(|name| *name == "lane-probe").count());
        });
        let late = self.lateness(kind, begin);
        let memory = Usage::of(self.agent.process().pid()).memory();
        self.agent.stop();
        let bare = self.bare(kind, count);

        let load = fs::read_to_string("/proc/loadavg").expect("the load");
        let load = load.split(' ').next().unwrap_or_default();
        println!("{count} containers with a probe each second, {kind} (load {load}):");
        match late {
            Some((attempts, late)) => {
                let at = |percent: usize| late[(late.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
                let (median, p99, worst) = (at(50), at(99), at(100));
                println!(
                    "  lateness      median {median:.1} ms, p99 {p99:.1} ms, the worst {worst:.1} ms ({attempts} probes)"
                );
            }
            None => println!("  lateness      is not told by connections"),
        }
        println!("  threads       up to {threads}, of which {lanes} for probes; {memory}");
        let percent = |cpu: f64| cpu / SPAN.as_secs_f64() * 100.0;
        println!(
            "  CPU           {:.1} % of a core, {:.1} % without probes; the bare probes {:.1} %",
            percent(busy),
            percent(idle),
            percent(bare)
        );
        println!("  to the bare   {:.2} in all, {:.2} for the probes", busy / bare, (busy - idle) / bare);
    }

    /// What has been asked since the last time.
    fn requests(&self) -> Vec<Request> {
        self.targets.iter().flat_map(Target::take).collect()
    }

    fn probe(&self, kind: &str, i: usize) -> Value {
        let mut probe = action(kind, self.targets[i % TARGETS].address, i);
        probe["periodSeconds"] = 1.into();
        probe["timeoutSeconds"] = 5.into();
        probe
    }

    /// Writes the pods, and waits until all containers run and are ready.
    fn write(&self, count: usize, crowd: usize, probe: impl Fn(usize) -> Option<Value>) {
        let names: Vec<_> = (0..count.div_ceil(crowd)).map(|p| format!("p{p}")).collect();
        let mut probed = false;
        for (p, name) in names.iter().enumerate() {
            let containers: Vec<_> = (p * crowd..count.min((p + 1) * crowd))
                .map(|i| {
                    let mut container =
                        json!({"name": format!("c{i}"), "image": BUSYBOX, "command": ["sleep", "100000"]});
                    if let Some(probe) = probe(i) {
                        container["readinessProbe"] = probe;
                        probed = true;
                    }
                    container
                })
                .collect();
            let spec = json!({"terminationGracePeriodSeconds": 1, "containers": containers});
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
            self.agent.write_manifest(&format!("{name}.yaml"), &pod.to_string());
        }
        for name in names {
            self.agent.wait_pod(&name, SOON, |pod| {
                let is_new = |c: &Value| c["readinessProbe"].is_object() == probed;
                let specs = pod["spec"]["containers"].as_array().into_iter().flatten();
                let mut containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten().peekable();
                specs.into_iter().all(is_new) && containers.peek().is_some() && containers.all(|c| c["ready"] == true)
            });
        }
        std::thread::sleep(Duration::from_secs(5));
    }

    /// Seconds of CPU that the agent takes in the span; `look` is given its process id again and again.
    fn cpu_of_agent(&mut self, look: &mut dyn FnMut(i32)) -> f64 {
        let pid = self.agent.process().pid();
        let (before, until) = (Usage::of(pid).cpu, Instant::now() + SPAN);
        while Instant::now() < until {
            look(pid);
            std::thread::sleep(Duration::from_millis(200).min(until.saturating_duration_since(Instant::now())));
        }
        Usage::of(pid).cpu - before
    }

    /// How much later than at its container's ticks each probe of the span arrived, in order of size.
    fn lateness(&self, kind: &str, begin: Instant) -> Option<(usize, Vec<Duration>)> {
        let until = begin + SPAN;
        let mut arrivals = BTreeMap::<String, Vec<Instant>>::new();
        match (kind, &self.runtime) {
            ("http", _) => {
                for request in self.requests() {
                    arrivals.entry(request.path).or_default().push(request.at);
                }
            }
            ("exec", Runtime::Fake(cri)) => cri.look(|m| {
                for call in m.calls_of("ExecSync") {
                    arrivals.entry(call.subject.id.clone()).or_default().push(call.at);
                }
            }),
            _ => return None,
        }
        let mut late = Vec::new();
        for times in arrivals.values() {
            let times: Vec<_> = times.iter().copied().filter(|at| (begin..until).contains(at)).collect();
            let phases = times.iter().zip(0..).filter_map(|(at, i)| at.checked_sub(PERIOD * i));
            let Some(phase) = phases.min() else { continue };
            late.extend(times.iter().zip(0..).map(|(at, i)| *at - (phase + PERIOD * i)));
        }
        late.sort_unstable();
        Some((late.len(), late))
    }

    /// Seconds of CPU that as many probes take in a process of their own.
    fn bare(&self, kind: &str, count: usize) -> f64 {
        let id = match &self.runtime {
            Runtime::Fake(cri) => {
                let name = format!("p0-{NODE}");
                cri.look(|m| m.containers_of(&name).find(|c| c.is_running()).expect("one runs").id.clone())
            }
            Runtime::Real { .. } => String::new(),
        };
        let program = std::env::current_exe().expect("it has a path");
        let mut command = self.cell.command(program.to_str().expect("a plain path"));
        let socket = self.socket.to_str().expect("a plain path");
        let addresses: Vec<_> = self.targets.iter().map(|target| target.address.to_string()).collect();
        command.args(["bare-probes", kind, &addresses.join(","), socket, &id, &count.to_string()]);
        let mut process = self.cell.spawn("the bare probes", {
            command.stdin(Stdio::null());
            command
        });
        let pid = process.pid();
        std::thread::sleep(Duration::from_secs(3));
        let before = Usage::of(pid).cpu;
        std::thread::sleep(SPAN);
        let cpu = Usage::of(pid).cpu - before;
        process.kill();
        cpu
    }
}

fn names_of_threads(pid: i32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the agent runs");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).collect()
}

fn action(kind: &str, address: SocketAddr, i: usize) -> Value {
    let (host, port) = (address.ip().to_string(), address.port());
    match kind {
        "http" => json!({"httpGet": {"host": host, "port": port, "path": format!("/c{i}")}}),
        "tcp" => json!({"tcpSocket": {"host": host, "port": port}}),
        _ => json!({"exec": {"command": ["probe"]}}),
    }
}

/// Makes so many probes a second, one after the other, and nothing else; for ever.
pub fn bare(args: &[String]) {
    let [kind, addresses, socket, id, count] = args else { panic!("arguments {args:?}") };
    let addresses: Vec<SocketAddr> = addresses.split(',').map(|a| a.parse().expect("an address")).collect();
    let count: usize = count.parse().expect("a number");
    let socket = PathBuf::from(socket);
    let means = Means::new(Arc::new(Client::new(&socket, &socket, Duration::from_secs(120))));
    let handlers: Vec<_> = (0..count)
        .map(|i| {
            let address = addresses[i % addresses.len()];
            let probe: core::Probe = serde_json::from_value(action(kind, address, i)).expect("a probe");
            Handler::of(&probe, &core::Container::default())
        })
        .collect();
    let (id, ip) = (ContainerId::new(id.as_str()), addresses[0].ip());
    let (begin, step) = (Instant::now(), PERIOD / u32::try_from(count).expect("a small number"));
    for (i, handler) in (0..).zip(handlers.iter().cycle()) {
        std::thread::sleep((begin + step * i).saturating_duration_since(Instant::now()));
        let outcome = means.probe(handler, &id, Some(ip), Duration::from_secs(5));
        assert_eq!(outcome, Outcome::Success, "{kind}");
    }
}
