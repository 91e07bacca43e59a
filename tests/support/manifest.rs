//! Manifests of pods, from YAML in flow style: `key: value, …`.

use std::fmt::{self, Display, Formatter};

use super::BUSYBOX;

/// A pod in the making. It shows itself as its manifest.
#[derive(Clone)]
pub struct Manifest {
    name: String,
    metadata: Vec<String>,
    /// Its grace period first.
    spec: Vec<String>,
    init: Vec<String>,
    containers: Vec<String>,
}

impl Manifest {
    /// A pod whose containers run until they are stopped.
    pub fn pod(name: &str) -> Manifest {
        let name = name.to_owned();
        Manifest { name, metadata: Vec::new(), spec: Vec::new(), init: Vec::new(), containers: Vec::new() }
            .spec(&grace_period(1))
    }

    /// Another grace period than a second.
    pub fn grace(mut self, seconds: u32) -> Manifest {
        self.spec[0] = grace_period(seconds);
        self
    }

    /// A pod that ends when its containers have.
    pub fn job(name: &str) -> Manifest {
        Manifest::pod(name).spec("restartPolicy: Never")
    }

    /// Fields of its metadata.
    pub fn metadata(mut self, fields: &str) -> Manifest {
        self.metadata.push(fields.to_owned());
        self
    }

    /// Fields of its spec.
    pub fn spec(mut self, fields: &str) -> Manifest {
        self.spec.push(fields.to_owned());
        self
    }

    /// Its container `main`, which runs a script.
    pub fn main(self, script: &str, fields: &str) -> Manifest {
        self.container("main", script, fields)
    }

    /// A container that runs a script.
    pub fn container(mut self, name: &str, script: &str, fields: &str) -> Manifest {
        self.containers.push(container(name, script, fields));
        self
    }

    /// A container that is given by all of its fields.
    pub fn raw(mut self, fields: &str) -> Manifest {
        self.containers.push(format!("{{{fields}}}"));
        self
    }

    /// An init container that runs a script.
    pub fn init(mut self, name: &str, script: &str, fields: &str) -> Manifest {
        self.init.push(container(name, script, fields));
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

fn grace_period(seconds: u32) -> String {
    format!("terminationGracePeriodSeconds: {seconds}")
}

fn container(name: &str, script: &str, fields: &str) -> String {
    let mut all = vec![format!("name: {name}")];
    if !fields.contains("image: ") {
        all.push(format!("image: {BUSYBOX}"));
    }
    // JSON's quoted text is YAML's, too.
    all.push(format!("command: [sh, -c, {}]", serde_json::Value::from(script)));
    all.extend((!fields.is_empty()).then(|| fields.to_owned()));
    format!("{{{}}}", all.join(", "))
}

impl Display for Manifest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let metadata = [&[format!("name: {}", self.name)], self.metadata.as_slice()].concat().join(", ");
        write!(f, "apiVersion: v1\nkind: Pod\nmetadata: {{{metadata}}}\nspec:\n")?;
        self.spec.iter().try_for_each(|fields| writeln!(f, "  {}", fields.replace('\n', "\n  ")))?;
        for (list, containers) in [("initContainers", &self.init), ("containers", &self.containers)] {
            if !containers.is_empty() {
                writeln!(f, "  {list}:")?;
            }
            containers.iter().try_for_each(|container| writeln!(f, "  - {container}"))?;
        }
        Ok(())
    }
}
