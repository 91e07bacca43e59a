//! Images: whether one is to be pulled (pkg/kubelet/images/image_manager.go).

mod archive;
mod child;
mod docker_config;
pub mod keyring;
pub mod name;
mod queue;
mod scrub;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    /// A container's `imagePullPolicy`; defaults have been filled in.
    pub fn of(text: Option<&str>) -> PullPolicy {
        match text {
            Some("Always") => PullPolicy::Always,
            Some("Never") => PullPolicy::Never,
            _ => PullPolicy::IfNotPresent,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// The image is there and may be used.
    Nothing,
    Pull,
    /// It is not there and may not be pulled.
    Missing,
}

pub fn need(policy: PullPolicy, present: bool) -> Need {
    match (policy, present) {
        (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, false) => Need::Pull,
        (PullPolicy::IfNotPresent | PullPolicy::Never, true) => Need::Nothing,
        (PullPolicy::Never, false) => Need::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies() {
        use PullPolicy::{Always, IfNotPresent, Never};
        let table = [
            (Always, true, Need::Pull),
            (Always, false, Need::Pull),
            (IfNotPresent, true, Need::Nothing),
            (IfNotPresent, false, Need::Pull),
            (Never, true, Need::Nothing),
            (Never, false, Need::Missing),
        ];
        for (policy, present, want) in table {
            assert_eq!(need(policy, present), want, "{policy:?} {present}");
        }
    }
}
