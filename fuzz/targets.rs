//! What is fuzzed: each target takes any bytes and must neither panic nor break a rule that holds for all
//! input. `fuzz_targets/` runs them under libFuzzer, `tests/mutations.rs` with a few mutations of the seeds
//! on every test run.

use std::collections::BTreeMap;
use std::path::Path;

use cleat::admission;
use cleat::cgroup::{container as cgroup, values::Totals};
use cleat::config::duration::GoDuration;
use cleat::pod::env::{self, MAX_STRING};
use cleat::pod::identity::Origin;
use cleat::pod::quantity::Quantity;
use cleat::pod::sysctl::{Allowlist, Kernel, Namespace, with_dots};
use cleat::pod::{Pod, PodUid, Source, core, resources};
use cleat::runtime::Paths;
use cleat::runtime::request::{
    self, ClusterDns, Context, EnvInput, Environment, Handler, IdRange, Lookup, Node, env_file, resolv_conf,
};
use cleat::source::manifest::{self, Manifest};
use cleat::yaml;

pub type Target = fn(&[u8]);

pub const ALL: [(&str, Target); 11] = [
    ("manifest", manifest),
    ("yaml", yaml),
    ("quantity", quantity),
    ("duration", duration),
    ("fields", fields),
    ("expand", expand),
    ("sub_path", sub_path),
    ("sysctl", sysctl),
    ("resolv_conf", resolv_conf),
    ("env_file", env_file),
    ("user_ids", user_ids),
];

fn with_text(data: &[u8], look: impl FnOnce(&str)) {
    look(&String::from_utf8_lossy(data));
}

/// Texts that are divided by zero bytes.
fn parts<const N: usize>(text: &str) -> [&str; N] {
    let mut parts = text.splitn(N, '\0');
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

pub fn read(text: &str) -> Manifest {
    let seen = jiff::Timestamp::UNIX_EPOCH;
    manifest::read(text, Origin { source: Source::File, node_name: "edge-1", place: "/m/web.yaml", seen })
}

/// The decoder, and for each pod that it lets pass what is made of it.
pub fn manifest(data: &[u8]) {
    with_text(data, |text| {
        let manifest = read(text);
        manifest.pods.iter().for_each(requests);
        let _ = Totals::of(manifest.pods.iter().map(|pod| &pod.spec));
    });
}

fn requests(pod: &Pod) {
    let node = node();
    let allowlist = Allowlist::new(None, &[]).expect("the safe ones");
    let of_node = admission::Node {
        name: "edge-1".to_owned(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        allocatable: [("cpu".to_owned(), 4000)].into_iter().collect(),
        sysctls: allowlist,
        strict_supplemental_groups: true,
    };
    let _ = admission::admit(pod, &of_node, &[]);
    let _ = (resources::requests(&pod.spec), resources::limits(&pod.spec));
    let cx = context(pod, &node);
    let _ = request::sandbox(&cx, 0);
    let _ = request::hosts_file(&cx, &["10.90.0.7".to_owned()], "127.0.0.1 localhost\n");
    for container in pod.all_containers() {
        let _ = cgroup::resources(pod, container, &policy());
        if let Ok(variables) = environment(&cx, container) {
            within(container, &variables);
        }
    }
}

fn context<'a>(pod: &'a Pod, node: &'a Node) -> Context<'a> {
    let handler = Handler { recursive_read_only: true, user_namespaces: true, groups_policy: true };
    let ids = Some(IdRange { first: 65536, length: 65536 });
    Context { pod, node, handler, resolv_conf: Some("nameserver 192.0.2.53\n"), ids, volume_groups: &[] }
}

fn environment(cx: &Context<'_>, container: &core::Container) -> Result<Environment, request::ConfigError> {
    let input = EnvInput { context: cx, container, pod_ips: &[], services: (&[], &[]), lookup: &Nothing };
    request::environment(&input).map(|(variables, _)| variables)
}

/// No part of a volume is above or beside it.
fn within(container: &core::Container, variables: &Environment) {
    for part in request::sub_paths(container, variables).into_iter().flatten() {
        assert!(!part.path.is_empty() && !part.path.starts_with('/'), "{:?}", part.path);
        assert!(part.path.split('/').all(|step| step != ".."), "{:?}", part.path);
    }
}

fn node() -> Node {
    Node {
        paths: Paths::new(Path::new("/r"), Path::new("/l")),
        ips: vec!["192.0.2.10".to_owned()],
        cluster_dns: ClusterDns { servers: vec![], domain: Some("cluster.local".to_owned()) },
        seccomp_default: false,
        selinux: true,
        masked_paths: Vec::new(),
        allocatable: BTreeMap::new(),
    }
}

fn policy() -> cleat::cgroup::Policy {
    cleat::cgroup::Policy {
        version: cleat::cgroup::Version::V2,
        cpu_quota: true,
        cpu_period: 100_000,
        pod_pids_limit: Some(100),
        huge_page_sizes: [2 << 20].into(),
        memory: 4 << 30,
        swap: 1 << 30,
        allocatable_memory: 3 << 30,
        swap_behavior: Some(cleat::config::MemorySwap::LimitedSwap),
        kill_whole_container: true,
        memory_qos: Some(cleat::cgroup::policy::MemoryQos { throttling_factor: 0.9, reserve: true }),
    }
}

struct Nothing;

impl Lookup for Nothing {
    fn config_map(&self, name: &str) -> Option<BTreeMap<&str, &str>> {
        (name.len() % 2 == 0).then(|| BTreeMap::from([("KEY", "$(KEY)"), ("a=b", "c")]))
    }

    fn secret(&self, name: &str) -> Option<BTreeMap<&str, &[u8]>> {
        (name.len() % 2 == 0).then(|| BTreeMap::from([("KEY", &b"\xff\0"[..])]))
    }

    fn env_file(&self, _: &str, path: &str) -> Result<Option<String>, String> {
        Ok(Some(path.to_owned()))
    }
}

/// All documents of a text; a line that is told is one of the text's.
pub fn yaml(data: &[u8]) {
    with_text(data, |text| {
        let mut warnings = Vec::new();
        let documents = yaml::parse(text, &mut warnings);
        let lines = text.split('\n').count() + text.matches('\r').count() + 1;
        let problems = documents.iter().filter_map(|document| document.as_ref().err());
        for problem in problems.chain(&warnings) {
            assert!(usize::try_from(problem.line).is_ok_and(|line| line <= lines), "{problem:?}");
        }
        for node in documents.iter().flatten() {
            let _ = yaml::decode::<core::Pod>(node);
        }
    });
}

/// What is 0 in whole units is less than one of them.
pub fn quantity(data: &[u8]) {
    with_text(data, |text| {
        let Some(quantity) = Quantity::parse(text) else { return };
        let (whole, milli) = (quantity.value(), quantity.milli_value());
        assert!(
            whole.checked_mul(1000).is_none_or(|most| most >= milli || milli == i64::MAX),
            "{text:?}: {whole} {milli}"
        );
        let _ = (quantity.is_zero(), quantity.is_negative(), quantity.is_whole());
    });
}

/// As it is written, it is read again.
pub fn duration(data: &[u8]) {
    with_text(data, |text| {
        if let Ok(duration) = text.parse::<GoDuration>() {
            assert_eq!(duration.to_string().parse::<GoDuration>(), Ok(duration), "{text:?}");
        }
    });
}

fn pod() -> Pod {
    let text =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {a: b}}\nspec: {containers: [{name: main, image: i}]}";
    read(text).pods.into_iter().next().expect("a pod")
}

/// `fieldRef` and `resourceFieldRef`: the field, the divisor, the amount.
pub fn fields(data: &[u8]) {
    with_text(data, |text| {
        let [path, divisor, amount] = parts(text);
        let mut pod = pod();
        let _ = env::metadata_field(&pod, path);
        let quantity = |text: &str| k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.to_owned());
        let resource = path.split_once('.').map_or(path, |(_, resource)| resource).to_owned();
        let list = Some(BTreeMap::from([(resource, quantity(amount))]));
        let all = core::ResourceRequirements { requests: list.clone(), limits: list, ..Default::default() };
        for container in &mut pod.spec.containers {
            container.resources = Some(all.clone());
        }
        let field = core::ResourceFieldSelector {
            container_name: None,
            divisor: Some(quantity(divisor)),
            resource: path.to_owned(),
        };
        if let Ok(value) = env::resource_field(&pod, pod.spec.containers.first(), &field, &BTreeMap::new()) {
            assert!(value.parse::<i128>().is_ok(), "{value:?}");
        }
    });
}

/// A text in which nothing is known stays as it is, but for its dollar signs.
pub fn expand(data: &[u8]) {
    with_text(data, |text| {
        if let Ok(same) = env::expand(text, |_| None::<&str>) {
            assert!(text.contains("$$") || same == text, "{text:?}: {same:?}");
            assert!(same.len() <= text.len() && same.len() < MAX_STRING);
        }
        let long = "x".repeat(1000);
        let expanded = env::expand(text, |name| (name.len() % 2 == 1).then_some(&long));
        assert!(expanded.is_err() || expanded.is_ok_and(|text| text.len() < MAX_STRING));
    });
}

/// A variable's value and the expression that uses it.
pub fn sub_path(data: &[u8]) {
    with_text(data, |text| {
        let [value, expression, plain] = parts(text);
        let variable = core::EnvVar { name: "A".to_owned(), value: Some(value.to_owned()), ..Default::default() };
        let mount = |sub_path: Option<&str>, expression: Option<&str>| core::VolumeMount {
            name: "v".to_owned(),
            mount_path: "/v".to_owned(),
            sub_path: sub_path.map(str::to_owned),
            sub_path_expr: expression.map(str::to_owned),
            ..Default::default()
        };
        let container = core::Container {
            name: "main".to_owned(),
            env: Some(vec![variable]),
            volume_mounts: Some(vec![mount(None, Some(expression)), mount(Some(plain), None)]),
            ..Default::default()
        };
        let (pod, node) = (pod(), node());
        if let Ok(variables) = environment(&context(&pod, &node), &container) {
            within(&container, &variables);
        }
    });
}

/// Names of sysctls, patterns of them, and the kernel's version.
pub fn sysctl(data: &[u8]) {
    with_text(data, |text| {
        let [name, release] = parts(text);
        assert_eq!(with_dots(name).len(), name.len());
        let known = Namespace::of(&with_dots(name)).is_some();
        let list = Allowlist::new(Kernel::parse(release), &[name.to_owned()]);
        assert!(list.is_ok() || !known || name.ends_with('*'), "{name:?}");
    });
}

/// As it would stand in a pod, it is read again.
pub fn resolv_conf(data: &[u8]) {
    with_text(data, |text| {
        let conf = resolv_conf::parse(text);
        let servers = conf.servers.iter().map(|server| format!("nameserver {server}\n")).collect::<String>();
        let again = format!("{servers}search {}\noptions {}\n", conf.searches.join(" "), conf.options.join(" "));
        let again = resolv_conf::parse(&again);
        assert_eq!((&again.servers, &again.options), (&conf.servers, &conf.options));
        let _ = request::pick_resolv_conf(Path::new("/etc/resolv.conf"), text);
        let (pod, node) = (pod(), node());
        let cx = Context { resolv_conf: Some(text), ..context(&pod, &node) };
        let _ = request::sandbox(&cx, 0);
    });
}

/// A file of variables and the name of one; its value has no quote in it.
pub fn env_file(data: &[u8]) {
    with_text(data, |text| {
        let [key, text] = parts(text);
        match env_file::value(text, key) {
            Ok(value) => assert!(value.is_none_or(|value| !value.contains('\'') && text.contains(value))),
            Err(e) => assert!(e.line <= text.split('\n').count() && e.line > 0),
        }
    });
}

/// The file of a pod's range of IDs.
pub fn user_ids(data: &[u8]) {
    with_text(data, |text| {
        if let Some(range) = IdRange::from_file(text) {
            assert_eq!(IdRange::from_file(&range.to_file()), Some(range));
            let mut all = request::Allocator::all_but_the_nodes(65536).expect("even");
            let _ = all.restore(&PodUid::new("p"), range);
            let _ = all.allot(&PodUid::new("p"));
        }
    });
}
