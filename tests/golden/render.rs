//! The requests of a manifest as lines `key = value`. The messages are taken apart with all their
//! fields named, so that a field that is new to us can't go unseen.

use std::collections::HashMap;
use std::fmt::Debug;
use std::path::PathBuf;

use cleat::admission;
use cleat::cgroup;
use cleat::cri::api;
use cleat::pod::Source as Origins;
use cleat::pod::identity::Origin;
use cleat::pod::{Pod, core};
use cleat::runtime::request::{self, Context, EnvInput, Event, Input, environment, hosts_file, sandbox, sub_paths};
use cleat::source::manifest;
use protobuf::{Enum, EnumOrUnknown, MessageField};

use super::Lines;
use super::node::{self, Objects, Setting};

/// What is masked in every container that says nothing else, in the kubelet's order.
const MASKED: &str = "/proc/asound /proc/acpi /proc/interrupts /proc/kcore /proc/keys /proc/latency_stats \
    /proc/timer_list /proc/timer_stats /proc/sched_debug /proc/scsi /sys/firmware /sys/devices/virtual/powercap \
    /sys/devices/system/cpu/cpu0/thermal_throttle";

/// All that is sent, or why nothing is, for the pod of a manifest.
pub fn requests(setting: &Setting, text: &str) -> Lines {
    let seen = jiff::Timestamp::UNIX_EPOCH;
    let origin = Origin { source: Origins::File, node_name: node::NAME, place: "/m/web.yaml", seen };
    let manifest = manifest::read(text, origin);
    assert_eq!(manifest.problems, [], "{text}");
    assert_eq!(manifest.warnings, [], "{text}");
    let pod = manifest.pods.first().expect("a pod");
    let lines = match admission::admit(pod, &setting.admission, &[]) {
        Ok(_) => admitted(setting, pod),
        Err(refusal) => Lines::from([("refused".to_owned(), format!("{}: {}", refusal.reason, refusal.message))]),
    };
    // It is made from the manifest's content and says nothing here.
    lines.into_iter().map(|(key, value)| (key, value.replace(pod.uid.as_str(), "UID"))).collect()
}

fn admitted(setting: &Setting, pod: &Pod) -> Lines {
    let cx = Context {
        pod,
        node: &setting.node,
        handler: setting.handler,
        resolv_conf: setting.resolv_conf.as_deref(),
        ids: setting.ids,
        volume_groups: &setting.volume_groups,
    };
    let mut out = Out::default();
    match sandbox(&cx, 0) {
        Ok((mut config, events)) => {
            let linux = config.linux.mut_or_insert_default();
            linux.overhead = cgroup::container::overhead(pod, &setting.policy).into();
            linux.resources = Some(cgroup::container::sandbox_resources(pod, &setting.policy)).into();
            out.sandbox(config);
            out.events("sandbox", &events);
        }
        Err(e) => {
            out.put("sandbox.error", e);
            return out.lines;
        }
    }
    let hosts = hosts_file(&cx, &setting.pod_ips, node::HOSTS);
    for (i, line) in hosts.iter().flat_map(|text| text.lines()).enumerate() {
        out.put(&format!("hosts.{i:02}"), format!("{line:?}"));
    }
    for container in pod.all_containers() {
        let prefix = format!("container.{}", container.name);
        match of_container(&cx, setting, container, hosts.is_some()) {
            Ok((config, events)) => {
                out.container(&prefix, config);
                out.events(&prefix, &events);
            }
            Err(e) => out.put(&format!("{prefix}.error"), e),
        }
    }
    out.lines
}

fn of_container(
    cx: &Context<'_>,
    setting: &Setting,
    container: &core::Container,
    has_hosts: bool,
) -> Result<(api::ContainerConfig, Vec<Event>), request::ConfigError> {
    let of = |namespace: &str| {
        let all = setting.services.iter().filter(|(of, _)| *of == namespace);
        all.map(|(_, service)| service.clone()).collect::<Vec<_>>()
    };
    let (env, events) = environment(&EnvInput {
        context: cx,
        container,
        pod_ips: &setting.pod_ips,
        services: (&of(&cx.pod.name.namespace), &of("default")),
        lookup: &Objects,
    })?;
    let volumes = cx.pod.spec.volumes.iter().flatten();
    let paths: Vec<_> = volumes.map(|v| (v, PathBuf::from(format!("/vol/{}", v.name)))).collect();
    let volumes = paths.iter().map(|(v, path)| (v.name.as_str(), node::source(v, path))).collect();
    let parts = sub_paths(container, &env)?;
    let prepared =
        parts.into_iter().map(|s| (s.index, PathBuf::from(format!("/sub/{}/{}", s.volume, s.path)))).collect();
    let hosts = setting.node.paths.etc_hosts(&cx.pod.uid);
    let mut config = request::container(&Input {
        context: cx,
        container,
        restart_count: 0,
        attempt: 0,
        image: &setting.image,
        environment: &env,
        volumes: &volumes,
        sub_paths: &prepared,
        hosts: Some(hosts.as_path()).filter(|_| has_hosts),
        termination_log: Some(std::path::Path::new("/term/log")),
        target: None,
    })?;
    let resources = cgroup::container::resources(cx.pod, container, &setting.policy);
    config.linux.mut_or_insert_default().resources = Some(resources).into();
    Ok((config, events))
}

#[derive(Default)]
struct Out {
    lines: Lines,
}

impl Out {
    fn put(&mut self, key: &str, value: impl ToString) {
        let old = self.lines.insert(key.to_owned(), value.to_string());
        assert_eq!(old, None, "two values of {key}");
    }

    fn text(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.put(key, value);
        }
    }

    fn flag(&mut self, key: &str, value: bool) {
        if value {
            self.put(key, true);
        }
    }

    fn list(&mut self, key: &str, values: &[impl ToString]) {
        let words: Vec<_> = values.iter().map(ToString::to_string).collect();
        self.text(key, &words.join(" "));
    }

    /// Words that may hold anything.
    fn words(&mut self, key: &str, values: &[String]) {
        for (i, value) in values.iter().enumerate() {
            self.put(&format!("{key}.{i}"), format!("{value:?}"));
        }
    }

    fn map(&mut self, key: &str, values: HashMap<String, String>) {
        for (name, value) in values {
            self.put(&format!("{key}.{name}"), value);
        }
    }

    fn number(&mut self, key: &str, value: MessageField<api::Int64Value>) {
        if let Some(api::Int64Value { value, special_fields: _ }) = value.into_option() {
            self.put(key, value);
        }
    }

    /// Left out where it is the message's default.
    fn choice<E: Enum + Debug>(&mut self, key: &str, value: EnumOrUnknown<E>) {
        if value.value() != E::default().value() {
            self.put(key, format!("{:?}", value.enum_value().expect("a known value")));
        }
    }

    fn events(&mut self, at: &str, events: &[Event]) {
        for (i, Event { kind, reason, message }) in events.iter().enumerate() {
            self.put(&format!("{at}.event.{i}"), format!("{kind:?} {reason}: {message}"));
        }
    }

    fn sandbox(&mut self, config: api::PodSandboxConfig) {
        let api::PodSandboxConfig {
            metadata,
            hostname,
            log_directory,
            dns_config,
            port_mappings,
            labels,
            annotations,
            linux,
            special_fields: _,
        } = config;
        let api::PodSandboxMetadata { name, uid, namespace, attempt, special_fields: _ } = metadata.unwrap();
        self.put("sandbox.metadata", format!("{namespace}/{name} {uid} {attempt}"));
        self.text("sandbox.hostname", &hostname);
        self.text("sandbox.log_directory", &log_directory);
        let api::DNSConfig { servers, searches, options, special_fields: _ } = dns_config.unwrap();
        self.list("sandbox.dns.servers", &servers);
        self.list("sandbox.dns.searches", &searches);
        self.list("sandbox.dns.options", &options);
        for (i, mapping) in port_mappings.into_iter().enumerate() {
            let api::PortMapping { protocol, container_port, host_port, host_ip, special_fields: _ } = mapping;
            let protocol = protocol.enum_value().expect("a known protocol");
            self.put(&format!("sandbox.port.{i}"), format!("{host_ip}:{host_port} -> {container_port} {protocol:?}"));
        }
        self.map("sandbox.label", labels);
        self.map("sandbox.annotation", annotations);
        let api::LinuxPodSandboxConfig {
            cgroup_parent,
            security_context,
            sysctls,
            overhead,
            resources,
            special_fields: _,
        } = linux.unwrap();
        assert_eq!(cgroup_parent, "", "the cgroup is named elsewhere");
        self.resources("sandbox.overhead", overhead);
        self.resources("sandbox.resources", resources);
        self.map("sandbox.sysctl", sysctls);
        self.sandbox_security("sandbox.security", security_context.unwrap());
    }

    fn sandbox_security(&mut self, at: &str, context: api::LinuxSandboxSecurityContext) {
        let api::LinuxSandboxSecurityContext {
            namespace_options,
            selinux_options,
            run_as_user,
            readonly_rootfs,
            supplemental_groups,
            privileged,
            run_as_group,
            seccomp,
            supplemental_groups_policy,
            special_fields: _,
        } = context;
        let key = |name: &str| format!("{at}.{name}");
        self.namespaces(&key("namespaces"), namespace_options.unwrap());
        self.se_linux(&key("selinux"), selinux_options);
        self.number(&key("run_as_user"), run_as_user);
        self.number(&key("run_as_group"), run_as_group);
        self.flag(&key("readonly_rootfs"), readonly_rootfs);
        self.list(&key("groups"), &supplemental_groups);
        self.choice(&key("groups_policy"), supplemental_groups_policy);
        self.flag(&key("privileged"), privileged);
        self.profile(&key("seccomp"), seccomp);
    }

    fn resources(&mut self, at: &str, resources: MessageField<api::LinuxContainerResources>) {
        let Some(resources) = resources.into_option() else { return };
        let api::LinuxContainerResources {
            cpu_period,
            cpu_quota,
            cpu_shares,
            memory_limit_in_bytes,
            oom_score_adj,
            cpuset_cpus,
            cpuset_mems,
            hugepage_limits,
            unified,
            memory_swap_limit_in_bytes,
            special_fields: _,
        } = resources;
        for (name, value) in [
            ("cpu_period", cpu_period),
            ("cpu_quota", cpu_quota),
            ("cpu_shares", cpu_shares),
            ("memory_limit", memory_limit_in_bytes),
            ("memory_swap_limit", memory_swap_limit_in_bytes),
            ("oom_score_adj", oom_score_adj),
        ] {
            if value != 0 {
                self.put(&format!("{at}.{name}"), value);
            }
        }
        self.text(&format!("{at}.cpuset_cpus"), &cpuset_cpus);
        self.text(&format!("{at}.cpuset_mems"), &cpuset_mems);
        for api::HugepageLimit { page_size, limit, special_fields: _ } in hugepage_limits {
            // Those that may have none are the same for all.
            if limit != 0 {
                self.put(&format!("{at}.hugepages.{page_size}"), limit);
            }
        }
        self.map(&format!("{at}.unified"), unified);
    }

    fn namespaces(&mut self, at: &str, options: api::NamespaceOption) {
        let api::NamespaceOption { network, pid, ipc, target_id, userns_options, special_fields: _ } = options;
        for (name, mode) in [("network", network), ("pid", pid), ("ipc", ipc)] {
            self.put(&format!("{at}.{name}"), format!("{:?}", mode.enum_value().expect("a known mode")));
        }
        self.text(&format!("{at}.target"), &target_id);
        let api::UserNamespace { mode, uids, gids, special_fields: _ } = userns_options.unwrap();
        let mode = mode.enum_value().expect("a known mode");
        let ids = format!("{mode:?} {} {}", mappings(uids), mappings(gids));
        self.put(&format!("{at}.user"), ids.trim_end());
    }

    fn se_linux(&mut self, at: &str, options: MessageField<api::SELinuxOption>) {
        if let Some(api::SELinuxOption { user, role, type_, level, special_fields: _ }) = options.into_option() {
            self.put(at, format!("{user}:{role}:{type_}:{level}"));
        }
    }

    fn profile(&mut self, at: &str, profile: MessageField<api::SecurityProfile>) {
        if let Some(api::SecurityProfile { profile_type, localhost_ref, special_fields: _ }) = profile.into_option() {
            let kind = profile_type.enum_value().expect("a known type");
            self.put(at, format!("{kind:?} {localhost_ref}").trim_end());
        }
    }

    fn container(&mut self, at: &str, config: api::ContainerConfig) {
        let api::ContainerConfig {
            metadata,
            image,
            command,
            args,
            working_dir,
            envs,
            mounts,
            devices,
            labels,
            annotations,
            log_path,
            stdin,
            stdin_once,
            tty,
            linux,
            stop_signal,
            special_fields: _,
        } = config;
        let key = |name: &str| format!("{at}.{name}");
        let api::ContainerMetadata { name, attempt, special_fields: _ } = metadata.unwrap();
        self.put(&key("metadata"), format!("{name} {attempt}"));
        self.put(&key("image"), shown_image(image.unwrap()));
        self.words(&key("command"), &command);
        self.words(&key("args"), &args);
        self.text(&key("working_dir"), &working_dir);
        for api::KeyValue { key: name, value, special_fields: _ } in envs {
            self.put(&key(&format!("env.{name}")), format!("{value:?}"));
        }
        for (i, mount) in mounts.into_iter().enumerate() {
            self.put(&key(&format!("mount.{i}")), shown_mount(mount));
        }
        for (i, device) in devices.into_iter().enumerate() {
            let api::Device { container_path, host_path, permissions, special_fields: _ } = device;
            self.put(&key(&format!("device.{i}")), format!("{container_path} <- {host_path} {permissions}"));
        }
        self.map(&key("label"), labels);
        self.map(&key("annotation"), annotations);
        self.text(&key("log_path"), &log_path);
        self.flag(&key("stdin"), stdin);
        self.flag(&key("stdin_once"), stdin_once);
        self.flag(&key("tty"), tty);
        self.choice(&key("stop_signal"), stop_signal);
        let api::LinuxContainerConfig { resources, security_context, special_fields: _ } = linux.unwrap();
        self.resources(&format!("{at}.resources"), resources);
        self.container_security(&key("security"), security_context.unwrap());
    }

    fn container_security(&mut self, at: &str, context: api::LinuxContainerSecurityContext) {
        let api::LinuxContainerSecurityContext {
            capabilities,
            privileged,
            namespace_options,
            selinux_options,
            run_as_user,
            run_as_username,
            readonly_rootfs,
            supplemental_groups,
            apparmor_profile,
            no_new_privs,
            run_as_group,
            masked_paths,
            readonly_paths,
            seccomp,
            apparmor,
            supplemental_groups_policy,
            special_fields: _,
        } = context;
        let key = |name: &str| format!("{at}.{name}");
        if let Some(capabilities) = capabilities.into_option() {
            let api::Capability { add_capabilities, drop_capabilities, special_fields: _ } = capabilities;
            self.list(&key("capabilities.add"), &add_capabilities);
            self.list(&key("capabilities.drop"), &drop_capabilities);
        }
        self.flag(&key("privileged"), privileged);
        self.namespaces(&key("namespaces"), namespace_options.unwrap());
        self.se_linux(&key("selinux"), selinux_options);
        self.number(&key("run_as_user"), run_as_user);
        self.text(&key("run_as_username"), &run_as_username);
        self.number(&key("run_as_group"), run_as_group);
        self.flag(&key("readonly_rootfs"), readonly_rootfs);
        self.list(&key("groups"), &supplemental_groups);
        self.choice(&key("groups_policy"), supplemental_groups_policy);
        self.profile(&key("apparmor"), apparmor);
        self.text(&key("apparmor_profile"), &apparmor_profile);
        self.flag(&key("no_new_privs"), no_new_privs);
        let masked = masked_paths.join(" ");
        self.text(&key("masked_paths"), if masked == MASKED { "the usual 13" } else { &masked });
        self.list(&key("readonly_paths"), &readonly_paths);
        self.profile(&key("seccomp"), seccomp);
    }
}

fn mappings(all: Vec<api::IDMapping>) -> String {
    let one = |api::IDMapping { host_id, container_id, length, special_fields: _ }: api::IDMapping| {
        format!("{container_id}:{host_id}:{length}")
    };
    all.into_iter().map(one).collect::<Vec<_>>().join(",")
}

fn shown_image(image: api::ImageSpec) -> String {
    let api::ImageSpec { image, annotations, user_specified_image, special_fields: _ } = image;
    assert!(annotations.is_empty());
    format!("{image} ({user_specified_image})")
}

/// `/in/the/container <- /on/the/node ro …`
fn shown_mount(mount: api::Mount) -> String {
    let api::Mount {
        container_path,
        host_path,
        readonly,
        selinux_relabel,
        propagation,
        uidMappings,
        gidMappings,
        recursive_read_only,
        image,
        image_sub_path,
        special_fields: _,
    } = mount;
    let mut out = format!("{container_path} <- {host_path}");
    if let Some(image) = image.into_option() {
        out += &format!("image {}", shown_image(image));
    }
    if !image_sub_path.is_empty() {
        out += &format!(" sub_path={image_sub_path}");
    }
    let propagation = match propagation.enum_value().expect("a known value") {
        api::MountPropagation::PROPAGATION_PRIVATE => "",
        api::MountPropagation::PROPAGATION_HOST_TO_CONTAINER => "host-to-container",
        api::MountPropagation::PROPAGATION_BIDIRECTIONAL => "bidirectional",
    };
    let (uids, gids) = (mappings(uidMappings), mappings(gidMappings));
    let words = [
        if readonly { "ro" } else { "rw" }.to_owned(),
        if recursive_read_only { "recursive" } else { "" }.to_owned(),
        if selinux_relabel { "relabel" } else { "" }.to_owned(),
        propagation.to_owned(),
        if uids.is_empty() { String::new() } else { format!("uids={uids}") },
        if gids.is_empty() { String::new() } else { format!("gids={gids}") },
    ];
    for word in words.iter().filter(|w| !w.is_empty()) {
        out += &format!(" {word}");
    }
    out
}
