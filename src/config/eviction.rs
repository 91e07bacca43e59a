//! Thresholds of node-pressure eviction (pkg/kubelet/eviction, `ParseThresholdConfig`).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::pod::quantity::Quantity;

use super::check::Check;
use super::duration::GoDuration;
use super::kubelet::{KubeletConfiguration, Strings};

#[derive(Debug, Clone, PartialEq)]
pub struct Eviction {
    /// A signal that is not here has no threshold.
    pub hard: BTreeMap<Signal, Amount>,
    pub soft: BTreeMap<Signal, SoftThreshold>,
    pub minimum_reclaim: BTreeMap<Signal, Amount>,
    pub pressure_transition_period: Duration,
    /// Longest grace period in a soft eviction; `None` means the pod's own.
    pub max_pod_grace_period: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SoftThreshold {
    pub amount: Amount,
    /// How long it must be crossed.
    pub grace_period: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    Quantity(Quantity),
    /// Of the capacity, more than 0 and less than 100.
    Percent(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    MemoryAvailable,
    AllocatableMemoryAvailable,
    NodeFsAvailable,
    NodeFsInodesFree,
    ImageFsAvailable,
    ImageFsInodesFree,
    ContainerFsAvailable,
    ContainerFsInodesFree,
    PidAvailable,
}

impl Signal {
    const ALL: [(Signal, &'static str); 9] = [
        (Signal::MemoryAvailable, "memory.available"),
        (Signal::AllocatableMemoryAvailable, "allocatableMemory.available"),
        (Signal::NodeFsAvailable, "nodefs.available"),
        (Signal::NodeFsInodesFree, "nodefs.inodesFree"),
        (Signal::ImageFsAvailable, "imagefs.available"),
        (Signal::ImageFsInodesFree, "imagefs.inodesFree"),
        (Signal::ContainerFsAvailable, "containerfs.available"),
        (Signal::ContainerFsInodesFree, "containerfs.inodesFree"),
        (Signal::PidAvailable, "pid.available"),
    ];

    fn parse(name: &str) -> Option<Signal> {
        Signal::ALL.iter().find(|(_, n)| *n == name).map(|(signal, _)| *signal)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Signal::ALL.iter().find(|(signal, _)| signal == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

pub(super) fn read(k: &KubeletConfiguration, check: &mut Check) -> Eviction {
    let hard = k.eviction_hard.clone().unwrap_or_default();
    let grace_periods = grace_periods(&k.eviction_soft_grace_period, check);
    let mut soft = BTreeMap::new();
    for (signal, amount) in amounts("evictionSoft", &k.eviction_soft, check) {
        match grace_periods.get(&signal) {
            Some(grace_period) => {
                soft.insert(signal, SoftThreshold { amount, grace_period: *grace_period });
            }
            None => check.fault(&format!("evictionSoft[{signal}]"), "needs a grace period in evictionSoftGracePeriod"),
        }
    }
    let max = k.eviction_max_pod_grace_period;
    Eviction {
        hard: amounts("evictionHard", &hard, check),
        soft,
        minimum_reclaim: amounts("evictionMinimumReclaim", &k.eviction_minimum_reclaim, check),
        pressure_transition_period: check
            .period("evictionPressureTransitionPeriod", k.eviction_pressure_transition_period),
        max_pod_grace_period: u64::try_from(max).ok().map(Duration::from_secs),
    }
}

fn signal(field: &str, name: &str, check: &mut Check) -> Option<Signal> {
    let signal = Signal::parse(name);
    if signal.is_none() {
        let known: Vec<&str> = Signal::ALL.iter().map(|(_, name)| *name).collect();
        check.fault(&format!("{field}[{name}]"), format!("is no eviction signal; there are {}", known.join(", ")));
    }
    signal
}

fn amounts(field: &str, texts: &Strings, check: &mut Check) -> BTreeMap<Signal, Amount> {
    let mut amounts = BTreeMap::new();
    for (name, text) in texts {
        let Some(signal) = signal(field, name, check) else { continue };
        // Nothing need be reclaimed; but a threshold of nothing is a mistake.
        match amount(text, field == "evictionMinimumReclaim") {
            Ok(Some(amount)) => {
                amounts.insert(signal, amount);
            }
            Ok(None) => {}
            Err(message) => check.fault(&format!("{field}[{name}]"), message),
        }
    }
    amounts
}

/// `None` turns the signal off.
fn amount(text: &str, zero: bool) -> Result<Option<Amount>, String> {
    let malformed = || format!("{text:?} is neither a quantity like 100Mi nor a percentage like 10%");
    let Some(percent) = text.strip_suffix('%') else {
        return match Quantity::parse(text).ok_or_else(malformed)? {
            q if q.is_zero() && zero => Ok(None),
            q if q.is_negative() || q.is_zero() => Err(format!("must be more than 0, not {text}; 0% turns it off")),
            q => Ok(Some(Amount::Quantity(q))),
        };
    };
    match percent.parse::<f64>().map_err(|_| malformed())? {
        0.0 | 100.0 => Ok(None),
        p if p > 0.0 && p < 100.0 => Ok(Some(Amount::Percent(p))),
        _ => Err(format!("must be between 0% and 100%, not {text}")),
    }
}

fn grace_periods(texts: &Strings, check: &mut Check) -> BTreeMap<Signal, Duration> {
    let mut periods = BTreeMap::new();
    for (name, text) in texts {
        let Some(signal) = signal("evictionSoftGracePeriod", name, check) else { continue };
        let field = format!("evictionSoftGracePeriod[{name}]");
        match text.parse::<GoDuration>() {
            Ok(period) => {
                periods.insert(signal, check.period(&field, period));
            }
            Err(e) => check.fault(&field, e.to_string()),
        }
    }
    periods
}
