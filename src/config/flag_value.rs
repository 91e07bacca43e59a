//! Values of flags, read as the kubelet's flag types read them (k8s.io/component-base/cli/flag,
//! pkg/util/flag). A flag can be given more than once: the last scalar counts, lists and mappings
//! grow.

use std::collections::BTreeMap;
use std::str::FromStr;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::duration::GoDuration;
use super::kubelet::{KubeletConfiguration, MemoryReservation, Strings, VModule};

/// A value from all the texts that a flag was given; the error says what is wrong with them.
pub trait FlagValue: Sized {
    fn read(values: &[String]) -> Result<Self, String>;
}

/// Every text must be right, the last one counts.
fn last<T>(values: &[String], read: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
    let mut value = Err("a value is missing".to_owned());
    for text in values {
        value = Ok(read(text)?);
    }
    value
}

impl FlagValue for String {
    fn read(values: &[String]) -> Result<String, String> {
        last(values, |text| Ok(text.to_owned()))
    }
}

impl FlagValue for bool {
    fn read(values: &[String]) -> Result<bool, String> {
        last(values, boolean)
    }
}

fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

fn integer<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| match text.parse::<i128>() {
        Ok(_) => format!("{text} is out of range"),
        Err(_) => format!("{text:?} is not a whole number"),
    })
}

impl FlagValue for i32 {
    fn read(values: &[String]) -> Result<i32, String> {
        last(values, integer)
    }
}

impl FlagValue for i64 {
    fn read(values: &[String]) -> Result<i64, String> {
        last(values, integer)
    }
}

impl FlagValue for u32 {
    fn read(values: &[String]) -> Result<u32, String> {
        last(values, integer)
    }
}

impl FlagValue for GoDuration {
    fn read(values: &[String]) -> Result<GoDuration, String> {
        last(values, |text| text.parse::<GoDuration>().map_err(|e| e.to_string()))
    }
}

impl FlagValue for Quantity {
    fn read(values: &[String]) -> Result<Quantity, String> {
        last(values, |text| Ok(Quantity(text.to_owned())))
    }
}

impl<T: FlagValue> FlagValue for Option<T> {
    fn read(values: &[String]) -> Result<Option<T>, String> {
        T::read(values).map(Some)
    }
}

/// The items of comma-separated lists; an empty list has none.
fn items(values: &[String]) -> impl Iterator<Item = &str> {
    values.iter().filter(|text| !text.is_empty()).flat_map(|text| text.split(','))
}

impl FlagValue for Vec<String> {
    fn read(values: &[String]) -> Result<Vec<String>, String> {
        Ok(items(values).map(str::to_owned).collect())
    }
}

impl FlagValue for Vec<i32> {
    fn read(values: &[String]) -> Result<Vec<i32>, String> {
        items(values).map(integer).collect()
    }
}

/// `key=value`, with the separator that the flag uses; empty items are skipped.
fn pair(item: &str, separator: char) -> Result<(String, String), String> {
    let (key, value) =
        item.split_once(separator).ok_or_else(|| format!("{item:?} is not of the form KEY{separator}VALUE"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

fn pairs(values: &[String], separator: char) -> Result<Strings, String> {
    items(values).filter(|item| !item.is_empty()).map(|item| pair(item, separator)).collect()
}

impl FlagValue for Strings {
    fn read(values: &[String]) -> Result<Strings, String> {
        pairs(values, '=')
    }
}

impl FlagValue for Vec<VModule> {
    fn read(values: &[String]) -> Result<Vec<VModule>, String> {
        let module = |item: &str| {
            let (file_pattern, verbosity) = pair(item, '=')?;
            Ok(VModule { file_pattern, verbosity: integer(&verbosity)? })
        };
        items(values).map(module).collect()
    }
}

/// `key=value:effect` or `key:effect` (pkg/util/taints).
impl FlagValue for Vec<Taint> {
    fn read(values: &[String]) -> Result<Vec<Taint>, String> {
        let taint = |item: &str| {
            let (rest, effect) =
                item.split_once(':').ok_or_else(|| format!("{item:?} is not of the form KEY=VALUE:EFFECT"))?;
            let (key, value) = match rest.split_once('=') {
                Some((key, value)) => (key, Some(value.to_owned())),
                None => (rest, None),
            };
            Ok(Taint { key: key.to_owned(), value, effect: effect.to_owned(), time_added: None })
        };
        items(values).map(taint).collect()
    }
}

/// `NODE:TYPE=QUANTITY,...`, one NUMA node each time that the flag is given.
impl FlagValue for Vec<MemoryReservation> {
    fn read(values: &[String]) -> Result<Vec<MemoryReservation>, String> {
        let reservation = |text: &String| {
            let (node, limits) = text
                .split_once(':')
                .ok_or_else(|| format!("{text:?} is not of the form NUMA-NODE:TYPE=QUANTITY,..."))?;
            let limits = limits.split(',').map(|item| pair(item, '=').map(|(k, v)| (k, Quantity(v))));
            Ok(MemoryReservation { numa_node: integer(node)?, limits: limits.collect::<Result<_, String>>()? })
        };
        values.iter().filter(|text| !text.is_empty()).map(reservation).collect()
    }
}

/// `--eviction-hard` and its like write `signal<amount`.
pub(super) fn thresholds(values: &[String]) -> Result<Strings, String> {
    pairs(values, '<')
}

/// `name:value`, several values to a name in their order.
pub(super) fn headers(values: &[String]) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for item in items(values).filter(|item| !item.is_empty()) {
        let (name, value) = pair(item, ':')?;
        headers.entry(name).or_default().push(value);
    }
    Ok(headers)
}

/// Labels may leave out the value.
pub(super) fn labels(values: &[String]) -> Result<Strings, String> {
    let label = |item: &str| pair(item, '=').unwrap_or_else(|_| (item.trim().to_owned(), String::new()));
    Ok(items(values).filter(|item| !item.trim().is_empty()).map(label).collect())
}

/// Feature gates go over those of the files one by one; other mappings replace theirs.
pub(super) fn feature_gates(config: &mut KubeletConfiguration, values: &[String]) -> Result<(), String> {
    for (gate, on) in pairs(values, '=')? {
        config.feature_gates.insert(gate, boolean(&on)?);
    }
    Ok(())
}
