//! A container's environment: in which order variables are made, which of two counts, and where
//! values come from (pkg/kubelet/kubelet_pods.go `makeEnvironmentVariables`).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::IpAddr;

use super::{ConfigError, Context, Event, env_file, services};
use crate::local::Service;
use crate::pod::core;
use crate::pod::env::{self, TooLong};

/// What the kernel takes as all arguments and variables of a process, in bytes (execve(2)).
pub(super) const MAX_TOTAL: usize = 6 * 1024 * 1024;

/// What variables refer to, beside their own pod: objects of its namespace, and files of its volumes.
pub trait Lookup {
    /// The texts of a ConfigMap by key; `None` when there is no such ConfigMap.
    fn config_map(&self, name: &str) -> Option<BTreeMap<&str, &str>>;
    /// The values of a Secret by key; `None` when there is no such Secret.
    fn secret(&self, name: &str) -> Option<BTreeMap<&str, &[u8]>>;
    /// The text of a file in an emptyDir volume, `None` when there is no such file, or why it can't
    /// be had, which holds nothing of its text. The path leads nowhere but down; links in it must not
    /// lead out of the volume.
    fn env_file(&self, volume: &str, path: &str) -> Result<Option<String>, String>;
}

/// What a container's environment is made from.
pub struct EnvInput<'a> {
    pub context: &'a Context<'a>,
    pub container: &'a core::Container,
    /// The pod's own addresses, the primary one first; those of the node are taken on its network.
    pub pod_ips: &'a [String],
    /// Those of its namespace, and the API server.
    pub services: (&'a [Service], &'a [Service]),
    pub lookup: &'a dyn Lookup,
}

/// Variables by name, each with one value, in the order in which they were first set. It may hold
/// secrets, so only names are shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: Vec<(String, String)>,
    index: HashMap<String, usize>,
    /// What all take in a process.
    bytes: usize,
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.variables.iter().map(|(name, _)| name)).finish()
    }
}

impl Environment {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(*self.index.get(name)?).map(|(_, value)| value.as_str())
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), ConfigError> {
        self.bytes += value.len();
        match self.index.get(name).and_then(|i| self.variables.get_mut(*i)) {
            Some((_, old)) => self.bytes -= std::mem::replace(old, value).len(),
            None => {
                // With '=' and the zero at its end.
                self.bytes += name.len() + 2;
                self.index.insert(name.to_owned(), self.variables.len());
                self.variables.push((name.to_owned(), value));
            }
        }
        match self.bytes > MAX_TOTAL {
            true => Err(ConfigError::TooLong { what: "the environment".to_owned() }),
            false => Ok(()),
        }
    }

    /// `text` with references to variables replaced; `what` it is, should it grow too long.
    pub(super) fn expand(&self, text: &str, what: impl FnOnce() -> String) -> Result<String, ConfigError> {
        env::expand(text, |name| self.get(name)).map_err(|TooLong| ConfigError::TooLong { what: what() })
    }
}

/// The container's environment, and what was left out of it.
///
/// # Errors
/// When something that a variable refers to is not there and not optional.
pub fn environment(input: &EnvInput<'_>) -> Result<(Environment, Vec<Event>), ConfigError> {
    let mut made = Making { input, env: Environment::default(), events: Vec::new() };
    for source in input.container.env_from.iter().flatten() {
        made.all_of(source)?;
    }
    let services = services::variables(input.context.pod, input.services);
    for var in input.container.env.iter().flatten() {
        if let Some(value) = made.value(var, &services)? {
            made.env.set(&var.name, value)?;
        }
    }
    for (name, value) in services {
        if made.env.get(&name).is_none() {
            made.env.set(&name, value)?;
        }
    }
    Ok((made.env, made.events))
}

struct Making<'a> {
    input: &'a EnvInput<'a>,
    env: Environment,
    events: Vec<Event>,
}

impl<'a> Making<'a> {
    fn object(&self, kind: &str, name: &str) -> String {
        format!("{kind} {}/{name}", self.input.context.pod.name.namespace)
    }

    /// All that a ConfigMap or a Secret holds.
    fn all_of(&mut self, source: &core::EnvFromSource) -> Result<(), ConfigError> {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        let mut left_out = Vec::new();
        if let Some(reference) = &source.config_map_ref {
            let Some(data) = self.config_map(&reference.name, reference.optional)? else { return Ok(()) };
            for (key, value) in data {
                self.put(prefix, key, value.to_owned(), &mut left_out)?;
            }
            self.tell_left_out("configMap", &reference.name, left_out);
        } else if let Some(reference) = &source.secret_ref {
            let Some(data) = self.secret(&reference.name, reference.optional)? else { return Ok(()) };
            for (key, value) in data {
                let value = self.text(value, key, &reference.name)?;
                self.put(prefix, key, value, &mut left_out)?;
            }
            self.tell_left_out("secret", &reference.name, left_out);
        }
        Ok(())
    }

    fn put(&mut self, prefix: &str, key: &str, value: String, left_out: &mut Vec<String>) -> Result<(), ConfigError> {
        let name = format!("{prefix}{key}");
        let valid = !name.is_empty() && name.bytes().all(|b| (b == b' ' || b.is_ascii_graphic()) && b != b'=');
        if !valid {
            left_out.push(name);
            return Ok(());
        }
        self.env.set(&name, value)
    }

    fn tell_left_out(&mut self, kind: &str, name: &str, left_out: Vec<String>) {
        if !left_out.is_empty() {
            let keys = left_out.join(", ");
            let object = self.object(kind, name);
            let why = format!("Keys [{keys}] from the EnvFrom {object} were skipped: they can't name a variable");
            self.events.push(Event::warning("InvalidEnvironmentVariableNames", why));
        }
    }

    fn config_map(
        &self,
        name: &str,
        optional: Option<bool>,
    ) -> Result<Option<BTreeMap<&'a str, &'a str>>, ConfigError> {
        match self.input.lookup.config_map(name) {
            None if optional != Some(true) => Err(ConfigError::NoConfigMap(name.to_owned())),
            found => Ok(found),
        }
    }

    fn secret(&self, name: &str, optional: Option<bool>) -> Result<Option<BTreeMap<&'a str, &'a [u8]>>, ConfigError> {
        match self.input.lookup.secret(name) {
            None if optional != Some(true) => Err(ConfigError::NoSecret(name.to_owned())),
            found => Ok(found),
        }
    }

    fn text(&self, bytes: &[u8], key: &str, secret: &str) -> Result<String, ConfigError> {
        let text = std::str::from_utf8(bytes).map(str::to_owned);
        text.map_err(|_| ConfigError::NotText { key: key.to_owned(), object: self.object("Secret", secret) })
    }

    /// The value of a variable; `None` when it refers to something optional that isn't there.
    fn value(&self, var: &core::EnvVar, services: &BTreeMap<String, String>) -> Result<Option<String>, ConfigError> {
        let Some(source) = var.value_from.as_ref().filter(|_| var.value.as_deref().unwrap_or_default().is_empty())
        else {
            let text = var.value.as_deref().unwrap_or_default();
            let lookup = |name: &str| self.env.get(name).or_else(|| services.get(name).map(String::as_str));
            let too_long = |TooLong| ConfigError::TooLong { what: format!("environment variable {}", var.name) };
            return env::expand(text, lookup).map(Some).map_err(too_long);
        };
        if let Some(field) = &source.field_ref {
            let value = self.field(&field.field_path);
            let (name, path) = (var.name.clone(), field.field_path.clone());
            return value.map(Some).ok_or(ConfigError::Field { name, path });
        }
        if let Some(field) = &source.resource_field_ref {
            let Context { pod, node, .. } = self.input.context;
            let value = env::resource_field(pod, Some(self.input.container), field, &node.allocatable);
            return value.map(Some).map_err(|source| ConfigError::Resource { name: var.name.clone(), source });
        }
        if let Some(key) = &source.config_map_key_ref {
            let data = self.config_map(&key.name, key.optional)?;
            let value = data.and_then(|data| data.get(key.key.as_str()).map(|text| (*text).to_owned()));
            return self.or_optional(value, key.optional, &key.key, || self.object("ConfigMap", &key.name));
        }
        if let Some(key) = &source.secret_key_ref {
            let data = self.secret(&key.name, key.optional)?;
            let bytes = data.as_ref().and_then(|data| data.get(key.key.as_str()));
            let value = bytes.map(|bytes| self.text(bytes, &key.key, &key.name)).transpose()?;
            return self.or_optional(value, key.optional, &key.key, || self.object("Secret", &key.name));
        }
        match &source.file_key_ref {
            Some(file) => self.of_file(&var.name, file),
            None => Ok(Some(String::new())),
        }
    }

    fn or_optional(
        &self,
        value: Option<String>,
        optional: Option<bool>,
        key: &str,
        object: impl FnOnce() -> String,
    ) -> Result<Option<String>, ConfigError> {
        match value {
            None if optional != Some(true) => Err(ConfigError::NoKey { key: key.to_owned(), object: object() }),
            value => Ok(value),
        }
    }

    fn of_file(&self, name: &str, file: &core::FileKeySelector) -> Result<Option<String>, ConfigError> {
        let fail = |why: String| ConfigError::File {
            name: name.to_owned(),
            volume: file.volume_name.clone(),
            path: file.path.clone(),
            why,
        };
        let text = self.input.lookup.env_file(&file.volume_name, &file.path).map_err(fail)?;
        let value = match &text {
            Some(text) => env_file::value(text, &file.key).map_err(|e| fail(e.to_string()))?,
            None => None,
        };
        match value {
            Some(value) => Ok(Some(value.to_owned())),
            None if file.optional == Some(true) => Ok(None),
            None if text.is_none() => Err(fail("there is no such file".to_owned())),
            None => Err(fail(format!("key {} is not in it", file.key))),
        }
    }

    /// A field of the pod; `None` when there is no such field.
    fn field(&self, path: &str) -> Option<String> {
        let Context { pod, node, .. } = self.input.context;
        let spec = &pod.spec;
        let first = |ips: &[String]| ips.first().cloned().unwrap_or_default();
        Some(match path {
            // What the field was called long ago is still taken.
            "spec.nodeName" | "spec.host" => spec.node_name.clone().unwrap_or_default(),
            "spec.serviceAccountName" => spec.service_account_name.clone().unwrap_or_default(),
            "status.hostIP" => first(&node.ips),
            "status.hostIPs" => node.ips.join(","),
            "status.podIP" => first(&self.pod_ips()),
            "status.podIPs" => self.pod_ips().join(","),
            _ => return env::metadata_field(pod, path),
        })
    }

    /// The pod's addresses, at most one of each family, that of the node's primary address first.
    fn pod_ips(&self) -> Vec<String> {
        let Context { pod, node, .. } = self.input.context;
        let all = if pod.host_network() { node.ips.as_slice() } else { self.input.pod_ips };
        let family = |six: bool| all.iter().find(|ip| is_v6(ip) == Some(six));
        let first = node.ips.first().and_then(|ip| is_v6(ip)).unwrap_or(false);
        family(first).into_iter().chain(family(!first)).cloned().collect()
    }
}

fn is_v6(ip: &str) -> Option<bool> {
    ip.parse::<IpAddr>().ok().map(|ip| ip.is_ipv6())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{context, node, pod, pod_with};
    use super::*;
    use crate::pod::Pod;

    struct Objects;

    impl Lookup for Objects {
        fn config_map(&self, name: &str) -> Option<BTreeMap<&str, &str>> {
            match name {
                "settings" => Some(BTreeMap::from([("MODE", "fast"), ("LEVEL", "3"), ("a.b-c", "dots")])),
                "odd" => Some(BTreeMap::from([("good", "1"), ("a=b", "2"), ("tab\t", "3")])),
                _ => None,
            }
        }

        fn secret(&self, name: &str) -> Option<BTreeMap<&str, &[u8]>> {
            match name {
                "creds" => Some(BTreeMap::from([("user", &b"root"[..]), ("MODE", b"secret")])),
                "binary" => Some(BTreeMap::from([("key", &b"\xff\xfe"[..]), ("text", b"t")])),
                _ => None,
            }
        }

        fn env_file(&self, volume: &str, path: &str) -> Result<Option<String>, String> {
            match (volume, path) {
                ("v", "good.env") => Ok(Some("A='1'\nEMPTY=''\n".to_owned())),
                ("v", "bad.env") => Ok(Some("A=hidden\n".to_owned())),
                ("v", _) => Ok(None),
                _ => Err("the volume is not there".to_owned()),
            }
        }
    }

    fn make(pod: &Pod, pod_ips: &[&str]) -> Result<(Vec<String>, Vec<Event>), String> {
        let node = node();
        let pod_ips: Vec<_> = pod_ips.iter().map(|ip| (*ip).to_owned()).collect();
        let input = EnvInput {
            context: &context(pod, &node),
            container: &pod.spec.containers[0],
            pod_ips: &pod_ips,
            services: (&[], &[]),
            lookup: &Objects,
        };
        let (env, events) = environment(&input).map_err(|e| e.to_string())?;
        Ok((env.iter().map(|(k, v)| format!("{k}={v}")).collect(), events))
    }

    fn env(container: &str) -> Result<Vec<String>, String> {
        let pod = pod(&format!("{{containers: [{{name: c, image: i, {container}}}], volumes: [{{name: v}}]}}"));
        make(&pod, &["10.9.0.1"]).map(|(env, _)| env)
    }

    fn ok(variables: &[&str]) -> Result<Vec<String>, String> {
        Ok(variables.iter().map(|v| (*v).to_owned()).collect())
    }

    #[test]
    fn order_and_expansion() {
        let table = [
            ("env: []", ok(&[])),
            (
                "env: [{name: A, value: x}, {name: B, value: '$(A)$(C)$$(A)'}, {name: C}]",
                ok(&["A=x", "B=x$(C)$(A)", "C="]),
            ),
            ("env: [{name: A, value: '1'}, {name: B, value: '2'}, {name: A, value: '$(A)$(B)'}]", ok(&["A=12", "B=2"])),
            ("envFrom: [{configMapRef: {name: settings}}]", ok(&["LEVEL=3", "MODE=fast", "a.b-c=dots"])),
            (
                "envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: creds}, prefix: P_}, \
                 {secretRef: {name: creds}}]",
                ok(&["LEVEL=3", "MODE=secret", "a.b-c=dots", "P_MODE=secret", "P_user=root", "user=root"]),
            ),
            (
                "envFrom: [{configMapRef: {name: settings}}], env: [{name: LEVEL, value: 'own $(LEVEL) $(MODE)'}]",
                ok(&["LEVEL=own 3 fast", "MODE=fast", "a.b-c=dots"]),
            ),
            (
                "envFrom: [{configMapRef: {name: none, optional: true}}, {secretRef: {name: none, optional: true}}]",
                ok(&[]),
            ),
        ];
        for (container, want) in table {
            assert_eq!(env(container), want, "{container}");
        }
    }

    #[test]
    fn keys() {
        let map = |name: &str, key: &str, optional: bool| {
            env(&format!(
                "env: [{{name: X, valueFrom: {{configMapKeyRef: {{name: {name}, key: {key}, optional: {optional}}}}}}}]"
            ))
        };
        let secret = |name: &str, key: &str, optional: bool| {
            env(&format!(
                "env: [{{name: X, valueFrom: {{secretKeyRef: {{name: {name}, key: {key}, optional: {optional}}}}}}}]"
            ))
        };
        let err = |text: &str| Err(text.to_owned());
        assert_eq!(map("settings", "MODE", false), ok(&["X=fast"]));
        assert_eq!(map("settings", "none", true), ok(&[]));
        assert_eq!(map("none", "MODE", true), ok(&[]));
        assert_eq!(map("none", "MODE", false), err("configmap \"none\" not found"));
        assert_eq!(map("settings", "none", false), err("couldn't find key none in ConfigMap ns/settings"));
        assert_eq!(secret("creds", "user", false), ok(&["X=root"]));
        assert_eq!(secret("creds", "none", true), ok(&[]));
        assert_eq!(secret("none", "user", true), ok(&[]));
        assert_eq!(secret("none", "user", false), err("secret \"none\" not found"));
        assert_eq!(secret("creds", "none", false), err("couldn't find key none in Secret ns/creds"));
        assert_eq!(
            secret("binary", "key", false),
            err("key key in Secret ns/binary is no UTF-8 text, and can't be a variable")
        );
        assert_eq!(secret("binary", "text", false), ok(&["X=t"]));
        assert_eq!(env("envFrom: [{configMapRef: {name: none}}]"), err("configmap \"none\" not found"));
        assert_eq!(env("envFrom: [{secretRef: {name: none}}]"), err("secret \"none\" not found"));
    }

    #[test]
    fn files() {
        let file = |path: &str, key: &str, optional: bool| {
            env(&format!(
                "env: [{{name: X, valueFrom: {{fileKeyRef: {{volumeName: v, path: {path}, key: {key}, \
                 optional: {optional}}}}}}}]"
            ))
        };
        let err = |path: &str, why: &str| Err(format!("environment variable X: file {path:?} in volume \"v\": {why}"));
        assert_eq!(file("good.env", "A", false), ok(&["X=1"]));
        assert_eq!(file("good.env", "EMPTY", false), ok(&["X="]));
        assert_eq!(file("good.env", "B", true), ok(&[]));
        assert_eq!(file("none.env", "A", true), ok(&[]));
        assert_eq!(file("good.env", "B", false), err("good.env", "key B is not in it"));
        assert_eq!(file("none.env", "A", false), err("none.env", "there is no such file"));
        let malformed = "line 1: a value must stand in single quotes";
        assert_eq!(file("bad.env", "A", true), err("bad.env", malformed));
    }

    #[test]
    fn names_that_can_not_be_are_left_out() {
        let pod = pod("{containers: [{name: c, image: i, envFrom: [{configMapRef: {name: odd}}]}]}");
        let (env, events) = make(&pod, &[]).expect("an environment");
        assert_eq!(env, ["good=1"]);
        let want = "Keys [a=b, tab\t] from the EnvFrom configMap ns/odd were skipped: they can't name a variable";
        assert_eq!(events, [Event::warning("InvalidEnvironmentVariableNames", want.to_owned())]);
    }

    fn field(spec: &str, path: &str, pod_ips: &[&str]) -> String {
        let pod = pod_with(
            "{note: 'a b'}",
            &format!(
                "{{containers: [{{name: c, image: i, \
                 env: [{{name: X, valueFrom: {{fieldRef: {{fieldPath: {path:?}}}}}}}]}}], {spec}}}"
            ),
        );
        let (env, _) = make(&pod, pod_ips).expect("an environment");
        env[0].strip_prefix("X=").expect("X").to_owned()
    }

    #[test]
    fn fields() {
        let ips = &["fd00::1", "10.9.0.1", "10.9.0.2"];
        let table = [
            ("", "metadata.name", "web-n"),
            ("", "metadata.annotations['note']", "a b"),
            ("", "metadata.labels['none']", ""),
            ("", "spec.nodeName", "n"),
            ("", "spec.host", "n"),
            ("", "spec.serviceAccountName", ""),
            ("serviceAccountName: robot", "spec.serviceAccountName", "robot"),
            ("", "status.hostIP", "192.0.2.10"),
            ("", "status.hostIPs", "192.0.2.10,2001:db8::10"),
            ("", "status.podIP", "10.9.0.1"),
            ("", "status.podIPs", "10.9.0.1,fd00::1"),
            ("hostNetwork: true", "status.podIP", "192.0.2.10"),
            ("hostNetwork: true", "status.podIPs", "192.0.2.10,2001:db8::10"),
        ];
        for (spec, path, want) in table {
            assert_eq!(field(spec, path, ips), want, "{spec} {path}");
        }
        assert_eq!(field("", "status.podIP", &[]), "");
    }

    #[test]
    fn the_environment_keeps_to_what_the_kernel_takes() {
        let bomb = |n: usize, more: &str| {
            let mut list = format!("{{name: V0, value: {}}}", "x".repeat(100));
            for i in 1..n {
                list += &format!(", {{name: V{i}, value: '{}'}}", format!("$(V{})", i - 1).repeat(100));
            }
            env(&format!("env: [{list}{more}]"))
        };
        assert_eq!(bomb(2, "").map(|env| env[1].len()), Ok(10_003));
        let refused = Err("environment variable V2: it has more bytes than the kernel takes".to_owned());
        assert_eq!(bomb(20, ""), refused);
        let many: String = (0..700).map(|i| format!(", {{name: M{i}, value: '$(V1)'}}")).collect();
        assert_eq!(bomb(2, &many), Err("the environment: it has more bytes than the kernel takes".to_owned()));
    }

    #[test]
    fn values_are_not_shown() {
        let mut env = Environment::default();
        env.set("TOKEN", "hunter2".to_owned()).expect("fits");
        assert_eq!(format!("{env:?}"), "[\"TOKEN\"]");
    }
}
