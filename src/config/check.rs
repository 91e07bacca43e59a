//! Turns the texts and numbers of a configuration into typed values, and collects what is wrong
//! with them, with the place that each came from. A wrong value becomes its type's default, which
//! nobody sees, since a configuration with faults is refused.

use std::fmt::Display;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::pod::quantity::Quantity;

use super::duration::GoDuration;
use super::fault::{Fault, Origin};
use super::file::Layer;
use super::flags::Flags;

pub(super) struct Check<'a> {
    layers: &'a [Layer],
    flags: &'a Flags,
    pub faults: Vec<Fault>,
}

impl<'a> Check<'a> {
    pub fn new(layers: &'a [Layer], flags: &'a Flags) -> Check<'a> {
        Check { layers, flags, faults: Vec::new() }
    }

    /// Where a field has its value from: a flag, or the last file that sets it.
    fn origin(&self, field: &str) -> Origin {
        if let Some(flag) = self.flags.setter_of(field) {
            return Origin::Flag(flag);
        }
        let top = field.split(['.', '[']).next().unwrap_or(field);
        [field, top]
            .into_iter()
            .find_map(|field| {
                let place = |layer: &Layer| layer.line_of(field).map(|line| (layer.path.clone(), line));
                self.layers.iter().rev().find_map(place)
            })
            .map_or(Origin::Own, |(path, line)| Origin::File { path, line })
    }

    pub fn fault(&mut self, field: &str, message: impl Into<String>) {
        let origin = self.origin(field);
        self.faults.push(Fault { origin, field: field.to_owned(), message: message.into() });
    }

    /// For a rule about two fields: told at the first of them that is set.
    pub fn fault_between(&mut self, field: &str, other: &str, message: impl Into<String>) {
        let origin = match self.origin(field) {
            Origin::Own => self.origin(other),
            origin => origin,
        };
        self.faults.push(Fault { origin, field: field.to_owned(), message: message.into() });
    }

    /// For a flag that has no field.
    pub fn flag_fault(&mut self, flag: &'static str, message: impl Into<String>) {
        self.faults.push(Fault { origin: Origin::Flag(flag), field: String::new(), message: message.into() });
    }

    pub fn period(&mut self, field: &str, value: GoDuration) -> Duration {
        match value.std() {
            Some(d) => d,
            None => {
                self.fault(field, format!("must not be negative, not {value}"));
                Duration::ZERO
            }
        }
    }

    pub fn positive(&mut self, field: &str, value: GoDuration) -> Duration {
        if value == GoDuration::ZERO {
            self.fault(field, "must be more than 0s");
        }
        self.period(field, value)
    }

    pub fn within<T: PartialOrd + Display + Default>(&mut self, field: &str, value: T, range: RangeInclusive<T>) -> T {
        if range.contains(&value) {
            return value;
        }
        let (from, to) = range.into_inner();
        self.fault(field, format!("must be between {from} and {to}, not {value}"));
        T::default()
    }

    /// 0 or more.
    pub fn count(&mut self, field: &str, value: i32) -> u32 {
        match u32::try_from(value) {
            Ok(n) => n,
            Err(_) => {
                self.fault(field, format!("must be 0 or more, not {value}"));
                0
            }
        }
    }

    /// A port, or 0.
    pub fn port_or_zero(&mut self, field: &str, value: i32) -> u16 {
        u16::try_from(self.within(field, value, 0..=65535)).unwrap_or_default()
    }

    pub fn one_of<T: Copy>(&mut self, field: &str, value: &str, choices: &[(&str, T)], otherwise: T) -> T {
        match choices.iter().find(|(name, _)| *name == value) {
            Some((_, choice)) => *choice,
            None => {
                let names: Vec<&str> = choices.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect();
                self.fault(field, format!("must be one of {}, not {value:?}", names.join(", ")));
                otherwise
            }
        }
    }

    pub fn ip(&mut self, field: &str, value: &str) -> Option<IpAddr> {
        let ip = value.trim().parse().ok();
        if ip.is_none() {
            self.fault(field, format!("must be an IP address, not {value:?}"));
        }
        ip
    }

    pub fn quantity(&mut self, field: &str, value: &str) -> Quantity {
        match Quantity::parse(value) {
            None => self.fault(field, format!("must be a quantity like 100Mi, not {value:?}")),
            Some(q) if q.is_negative() => self.fault(field, format!("must not be negative, not {value}")),
            Some(q) => return q,
        }
        Quantity::default()
    }

    /// `None` when it is empty. A relative path in a file starts at that file's directory
    /// (pkg/kubelet/kubeletconfig/configfiles), one in a flag at the working directory.
    pub fn path(&self, field: &str, value: &str) -> Option<PathBuf> {
        if value.is_empty() {
            return None;
        }
        match self.origin(field) {
            Origin::File { path, .. } => Some(path.parent().map_or_else(|| value.into(), |dir| dir.join(value))),
            _ => Some(value.into()),
        }
    }

    /// `unix:///path`; `None` when it is empty.
    pub fn socket(&mut self, field: &str, value: &str) -> Option<PathBuf> {
        if value.is_empty() {
            return None;
        }
        match value.strip_prefix("unix://") {
            Some(path) if path.starts_with('/') => return Some(path.into()),
            _ if value.starts_with('/') => self.fault(field, format!("must be written unix://{value}")),
            _ => self
                .fault(field, format!("must be a socket like unix:///run/containerd/containerd.sock, not {value:?}")),
        }
        None
    }
}
