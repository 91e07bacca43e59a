//! The configuration of a container (pkg/kubelet/kuberuntime/kuberuntime_container.go).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use protobuf::{Enum as _, EnumOrUnknown, MessageField};

use super::mounts::{self, Mounting, Source};
use super::{ConfigError, Context, Environment, environment, labels, security};
use crate::cri::{ContainerId, Image, api};
use crate::pod::core;
use crate::runtime::paths;

/// What a container is made from.
pub struct Input<'a> {
    pub context: &'a Context<'a>,
    pub container: &'a core::Container,
    pub restart_count: i32,
    /// Tells the containers of one name apart.
    pub attempt: u32,
    pub image: &'a Image,
    pub environment: &'a Environment,
    /// Each volume of the pod by its name.
    pub volumes: &'a BTreeMap<&'a str, Source<'a>>,
    /// Where what [`super::sub_paths`] asks for was prepared on the node, by the mount's number.
    pub sub_paths: &'a BTreeMap<usize, PathBuf>,
    /// The node's file that holds what [`super::hosts_file`] says.
    pub hosts: Option<&'a Path>,
    /// The node's file for the termination message.
    pub termination_log: Option<&'a Path>,
    /// The container whose processes a debugging container is to see.
    pub target: Option<&'a ContainerId>,
}

/// The configuration that the container is created with.
pub fn container(input: &Input<'_>) -> Result<api::ContainerConfig, ConfigError> {
    let Input { context: cx, container, .. } = input;
    let (command, args) = command(container, input.environment)?;
    Ok(api::ContainerConfig {
        metadata: MessageField::some(api::ContainerMetadata {
            name: container.name.clone(),
            attempt: input.attempt,
            ..Default::default()
        }),
        image: MessageField::some(api::ImageSpec {
            image: input.image.id.clone(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..Default::default()
        }),
        command,
        args,
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: input.environment.iter().map(|(key, value)| key_value(key, value)).collect(),
        mounts: mounts::mounts(&Mounting {
            cx,
            container,
            env: input.environment,
            volumes: input.volumes,
            prepared: input.sub_paths,
            hosts: input.hosts,
            termination_log: input.termination_log,
        })?,
        devices: mounts::devices(container, input.volumes)?,
        labels: labels::of_container(cx.pod, container),
        annotations: labels::notes(cx.pod, container, input.restart_count),
        log_path: paths::log_file(&container.name, input.restart_count),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        stop_signal: EnumOrUnknown::new(stop_signal(container)?),
        linux: MessageField::some(api::LinuxContainerConfig {
            security_context: MessageField::some(security::of_container(cx, container, input.image, input.target)?),
            ..Default::default()
        }),
        ..Default::default()
    })
}

fn key_value(key: &str, value: &str) -> api::KeyValue {
    api::KeyValue { key: key.to_owned(), value: value.to_owned(), ..Default::default() }
}

/// Command and arguments, with the variables in them replaced.
fn command(container: &core::Container, env: &Environment) -> Result<(Vec<String>, Vec<String>), ConfigError> {
    let mut bytes = 0;
    let mut expand = |words: &Option<Vec<String>>, what: &str| -> Result<Vec<String>, ConfigError> {
        let too_long = || ConfigError::TooLong { what: what.to_owned() };
        let mut out = Vec::new();
        for word in words.iter().flatten() {
            let word = env.expand(word, || what.to_owned())?;
            bytes += word.len() + 1;
            if bytes > environment::MAX_TOTAL {
                return Err(too_long());
            }
            out.push(word);
        }
        Ok(out)
    };
    Ok((expand(&container.command, "command")?, expand(&container.args, "args")?))
}

fn stop_signal(container: &core::Container) -> Result<api::Signal, ConfigError> {
    let Some(signal) = container.lifecycle.as_ref().and_then(|l| l.stop_signal.as_deref()) else {
        return Ok(api::Signal::RUNTIME_DEFAULT);
    };
    // `SIGRTMIN+1` of the API.
    let name = signal.replace('+', "PLUS").replace('-', "MINUS");
    let known = api::Signal::from_str(&name).filter(|s| *s != api::Signal::RUNTIME_DEFAULT);
    known.ok_or_else(|| ConfigError::Unknown { field: "stopSignal", value: signal.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Nothing, context, node, pod};
    use super::super::{EnvInput, environment};
    use super::*;

    fn config(fields: &str) -> Result<api::ContainerConfig, ConfigError> {
        let (pod, node) =
            (pod(&format!("{{containers: [{{name: c, image: 'i:1', {fields}}}], os: {{name: linux}}}}")), node());
        let cx = context(&pod, &node);
        let container_spec = &pod.spec.containers[0];
        let env_input =
            EnvInput { context: &cx, container: container_spec, pod_ips: &[], services: (&[], &[]), lookup: &Nothing };
        let (env, _) = environment(&env_input).expect("an environment");
        let image = Image {
            id: "sha256:1".into(),
            repo_tags: vec![],
            repo_digests: vec![],
            size: 1,
            user: None,
            pinned: false,
        };
        container(&Input {
            context: &cx,
            container: container_spec,
            restart_count: 3,
            attempt: 4,
            image: &image,
            environment: &env,
            volumes: &BTreeMap::new(),
            sub_paths: &BTreeMap::new(),
            hosts: None,
            termination_log: None,
            target: None,
        })
    }

    #[test]
    fn words() {
        let words = "command: [sh, -c, '$(A)'], args: ['$(B)', '$$(A)'], env: [{name: A, value: a}]";
        let got = config(&format!("{words}, workingDir: /w, stdin: true, stdinOnce: true, tty: true"));
        let got = got.expect("a configuration");
        assert_eq!(
            (got.command, got.args),
            (vec!["sh".to_owned(), "-c".into(), "a".into()], vec!["$(B)".to_owned(), "$(A)".into()])
        );
        assert_eq!((got.working_dir.as_str(), got.stdin, got.stdin_once, got.tty), ("/w", true, true, true));
        assert_eq!((got.log_path.as_str(), got.metadata.attempt), ("c/3.log", 4));
        assert_eq!((got.image.image.as_str(), got.image.user_specified_image.as_str()), ("sha256:1", "i:1"));
    }

    #[test]
    fn arguments_keep_to_what_the_kernel_takes() {
        let word = "x".repeat(1000);
        let args = |n: usize| vec!["'$(A)'"; n].join(", ");
        let config = |n: usize| config(&format!("env: [{{name: A, value: {word}}}], args: [{}]", args(n)));
        assert_eq!(config(10).expect("a configuration").args.len(), 10);
        assert_eq!(config(6300), Err(ConfigError::TooLong { what: "args".to_owned() }));
    }

    #[test]
    fn stop_signals() {
        let signal = |name: &str| config(&format!("lifecycle: {{stopSignal: {name}}}")).map(|c| c.stop_signal.value());
        assert_eq!(config("").map(|c| c.stop_signal.value()), Ok(0));
        for (name, number) in
            [("SIGUSR1", 29), ("SIGTERM", 23), ("SIGRTMIN+15", 50), ("SIGRTMAX-14", 51), ("SIGRTMAX", 65)]
        {
            assert_eq!(signal(name), Ok(number), "{name}");
        }
        let lifecycle = core::Lifecycle { stop_signal: Some("TERM".to_owned()), ..Default::default() };
        let container = core::Container { lifecycle: Some(lifecycle), ..Default::default() };
        let unknown = ConfigError::Unknown { field: "stopSignal", value: "TERM".to_owned() };
        assert_eq!(stop_signal(&container), Err(unknown));
    }
}
