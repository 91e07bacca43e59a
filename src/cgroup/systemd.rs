//! Slices, where systemd manages cgroups: it is asked over D-Bus, by its own `busctl`, once for each
//! pod that comes, changes or goes. What systemd doesn't manage is written into the cgroups
//! directly afterwards, and so is what it rounds.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::cpu;
use super::hierarchy::Version;
use super::values::{CpuMax, Values};
use super::{Error, Result};

#[derive(Debug)]
pub struct Systemd {
    /// The program to run.
    pub busctl: PathBuf,
    pub version: Version,
}

/// Seconds that systemd may take for an answer.
const TIMEOUT: &str = "--timeout=10";

/// A unit's property: its name, its type on D-Bus, its value.
type Property = (&'static str, &'static str, String);

impl Systemd {
    pub fn new(version: Version) -> Systemd {
        Systemd { busctl: "busctl".into(), version }
    }

    /// Has a slice made, and its cgroup soon after.
    pub fn start(&self, slice: &str, values: &Values) -> Result<()> {
        let transient = self.call("start", slice, "StartTransientUnit", &start_transient(slice, values, self.version));
        let Err(error) = transient else { return Ok(()) };
        // It is known to systemd already: from a unit file, or because it was never quite gone.
        match self.call("start", slice, "StartUnit", &["ss", slice, "replace"]) {
            Ok(()) => self.set(slice, values),
            Err(_) => Err(error),
        }
    }

    pub fn set(&self, slice: &str, values: &Values) -> Result<()> {
        self.call("change", slice, "SetUnitProperties", &set_properties(slice, values, self.version))
    }

    /// Has a slice ended, and its cgroup removed.
    pub fn stop(&self, slice: &str) -> Result<()> {
        self.call("stop", slice, "StopUnit", &["ss", slice, "replace"])
    }

    fn call<S: AsRef<str>>(&self, what: &'static str, slice: &str, method: &str, arguments: &[S]) -> Result<()> {
        let failed = |message| Error::Systemd { what, unit: slice.to_owned(), message };
        let manager =
            ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", method];
        let output = Command::new(&self.busctl)
            .args(["--system", TIMEOUT, "call"])
            .args(manager)
            .args(arguments.iter().map(AsRef::as_ref))
            .stdin(Stdio::null())
            .output()
            .map_err(|e| failed(format!("can't run {}: {e}", self.busctl.display())))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        }
    }
}

/// What `StartTransientUnit` takes, as busctl has it.
fn start_transient(slice: &str, values: &Values, version: Version) -> Vec<String> {
    let mut properties = vec![
        ("Description", "s", format!("cleat pods {slice}")),
        ("DefaultDependencies", "b", "false".to_owned()),
        ("CPUAccounting", "b", "true".to_owned()),
        ("MemoryAccounting", "b", "true".to_owned()),
        ("TasksAccounting", "b", "true".to_owned()),
    ];
    properties.extend(resources(values, version));
    let head = ["ssa(sv)a(sa(sv))", slice, "replace"].map(str::to_owned);
    // No further units with it.
    head.into_iter().chain(array(properties)).chain(["0".to_owned()]).collect()
}

/// What `SetUnitProperties` takes; until the next boot.
fn set_properties(slice: &str, values: &Values, version: Version) -> Vec<String> {
    let head = ["sba(sv)", slice, "true"].map(str::to_owned);
    head.into_iter().chain(array(resources(values, version))).collect()
}

fn array(properties: Vec<Property>) -> impl Iterator<Item = String> {
    let count = properties.len().to_string();
    let flat = properties.into_iter().flat_map(|(name, kind, value)| [name.to_owned(), kind.to_owned(), value]);
    std::iter::once(count).chain(flat)
}

/// Of what systemd knows.
fn resources(values: &Values, version: Version) -> Vec<Property> {
    let mut all: Vec<Property> = Vec::new();
    let mut add = |name, value: Option<u64>| all.extend(value.map(|value| (name, "t", value.to_string())));
    match version {
        Version::V1 => {
            add("CPUShares", values.cpu_shares);
            add("MemoryLimit", values.memory_limit);
        }
        Version::V2 => {
            add("CPUWeight", values.cpu_shares.map(cpu::weight));
            add("MemoryMax", values.memory_limit);
            add("MemoryMin", values.memory_min);
            add("MemoryLow", values.memory_low);
        }
    }
    add("CPUQuotaPerSecUSec", values.cpu_max.map(per_second));
    add("TasksMax", values.pids_limit);
    all
}

/// Systemd keeps whole hundredths of a CPU; less than was given would hold the pod down.
const HUNDREDTH: u64 = 10_000;

/// Microseconds of CPU a second.
fn per_second(max: CpuMax) -> u64 {
    let Some(quota) = max.quota else { return u64::MAX };
    let exact = quota.saturating_mul(1_000_000) / max.period.max(1);
    exact.div_ceil(HUNDREDTH).saturating_mul(HUNDREDTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn values() -> Values {
        Values {
            cpu_shares: Some(1024),
            cpu_max: Some(CpuMax { quota: Some(50_500), period: 100_000 }),
            memory_limit: Some(1 << 20),
            pids_limit: Some(64),
            ..Values::default()
        }
    }

    #[test]
    fn what_busctl_is_told() {
        let start = start_transient("kubepods-podx.slice", &values(), Version::V2).join(" ");
        let want = "ssa(sv)a(sa(sv)) kubepods-podx.slice replace 9 Description s cleat pods kubepods-podx.slice \
                    DefaultDependencies b false CPUAccounting b true MemoryAccounting b true TasksAccounting b true \
                    CPUWeight t 39 MemoryMax t 1048576 CPUQuotaPerSecUSec t 510000 TasksMax t 64 0";
        assert_eq!(start, want);
        let set = set_properties("kubepods-podx.slice", &values(), Version::V1).join(" ");
        let want = "sba(sv) kubepods-podx.slice true 4 CPUShares t 1024 MemoryLimit t 1048576 \
                    CPUQuotaPerSecUSec t 510000 TasksMax t 64";
        assert_eq!(set, want);
        assert_eq!(set_properties("x.slice", &Values::default(), Version::V2).join(" "), "sba(sv) x.slice true 0");
    }

    #[test]
    fn quotas_are_rounded_up() {
        let of = |quota, period| per_second(CpuMax { quota, period });
        assert_eq!(of(Some(50_000), 100_000), 500_000);
        assert_eq!(of(Some(1000), 100_000), 10_000);
        assert_eq!(of(Some(1001), 100_000), 20_000);
        assert_eq!(of(Some(1000), 5000), 200_000);
        assert_eq!(of(None, 100_000), u64::MAX);
    }

    /// A `busctl` that notes what it is told, and refuses what `refused` names.
    fn fake(dir: &std::path::Path, refused: &str) -> Systemd {
        let busctl = dir.join("busctl");
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {}/log\ncase \"$*\" in *{refused}*) echo \"no $7\" >&2; exit 1;; esac\n",
            dir.display()
        );
        fs::write(&busctl, script).expect("writes");
        fs::set_permissions(&busctl, fs::Permissions::from_mode(0o755)).expect("sets");
        Systemd { busctl, version: Version::V2 }
    }

    #[test]
    fn calls() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = || {
            let text = fs::read_to_string(dir.path().join("log")).unwrap_or_default();
            let methods = text.lines().filter_map(|line| line.split(' ').nth(6).map(str::to_owned));
            methods.collect::<Vec<_>>()
        };
        let systemd = fake(dir.path(), "NOTHING");
        systemd.start("a.slice", &values()).expect("starts");
        systemd.stop("a.slice").expect("stops");
        assert_eq!(log(), ["StartTransientUnit", "StopUnit"]);
        let systemd = fake(dir.path(), "StartTransientUnit");
        systemd.start("a.slice", &values()).expect("starts what is known already");
        assert_eq!(log()[2..], ["StartTransientUnit", "StartUnit", "SetUnitProperties"]);
        let systemd = fake(dir.path(), "Start");
        let error = systemd.start("a.slice", &values()).expect_err("is refused").to_string();
        assert_eq!(error, "asking systemd to start a.slice: no StartTransientUnit");
        let systemd = Systemd { busctl: dir.path().join("none"), version: Version::V1 };
        assert!(systemd.stop("a.slice").expect_err("has no busctl").to_string().contains("can't run"));
    }
}
