//! A container registry in a cell: Debian's docker-registry, as it is or with a password.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use super::containerd::tail;
use super::{Containerd, Process, archive, cell, eventually};

pub const USER: &str = "edge";
pub const PASSWORD: &str = "correct-horse";

pub struct Registry {
    process: Process,
    pub port: u16,
}

impl Registry {
    /// A registry on the cell's loopback. `protected`: nothing is given to who doesn't know the password.
    #[track_caller]
    pub fn start(containerd: &Containerd, port: u16, protected: bool) -> Registry {
        cell::require(&["docker-registry", "perl"]);
        let cell = containerd.cell();
        let dir = cell.dir().join(format!("registry-{port}"));
        fs::create_dir_all(&dir).expect("make the registry's directory");
        let mut config = format!(
            "version: 0.1\nlog: {{level: warn}}\nstorage: {{filesystem: {{rootdirectory: {}/data}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n",
            dir.display()
        );
        if protected {
            let script = format!("print crypt('{PASSWORD}', q{{$2b$05$abcdefghijklmnopqrstuu}})");
            let hash = cell.run("perl", &["-e", &script]).unwrap_or_else(|e| panic!("{e}"));
            let passwords = dir.join("htpasswd");
            fs::write(&passwords, format!("{USER}:{hash}\n")).expect("write the passwords");
            config += &format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", passwords.display());
        }
        fs::write(dir.join("config.yml"), config).expect("write the registry's configuration");
        let log = fs::File::create(dir.join("log")).expect("open its log");
        let mut command = cell.command("docker-registry");
        command.arg("serve").arg(dir.join("config.yml"));
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("share its log")).stderr(log);
        let process = cell.spawn("the registry", command);
        eventually("the registry", Duration::from_secs(30), || {
            match containerd.http_get(&format!("http://127.0.0.1:{port}/v2/")) {
                Ok((200 | 401, _)) => Ok(()),
                other => Err(format!("{other:?}\n{}", tail(&dir.join("log"), 20))),
            }
        });
        Registry { process, port }
    }

    /// Puts an image there that the node doesn't have, with so many random bytes in it; its name.
    #[track_caller]
    pub fn push(&self, containerd: &Containerd, repository: &str, filler: usize) -> String {
        let name = format!("127.0.0.1:{}/{repository}", self.port);
        let archive = archive(containerd.cell().dir(), &name, filler);
        containerd.import(&archive, &name);
        containerd.ctr(&["images", "push", "--plain-http", "--user", &format!("{USER}:{PASSWORD}"), &name]);
        containerd.forget_image(&name);
        fs::remove_file(archive).expect("remove the archive");
        name
    }

    /// What docker calls a configuration: the password for this registry.
    pub fn docker_config(&self, password: &str) -> String {
        format!(r#"{{"auths": {{"127.0.0.1:{}": {{"username": "{USER}", "password": "{password}"}}}}}}"#, self.port)
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
