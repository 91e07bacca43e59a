//! What a scalar means: the rules of YAML 1.1 as Go's yaml.v2 has them, which is what the kubelet
//! reads manifests with (sigs.k8s.io/yaml).

use granit_parser::Tag;

use super::{Problem, Value};

/// A scalar without quotes.
pub fn plain(text: &str, tag: Option<&Tag>, line: u32) -> Result<Value, Problem> {
    match tag {
        None => Ok(resolve(text)),
        Some(tag) => tagged(text.to_owned(), tag, line),
    }
}

/// A scalar in quotes or in block style: a string unless a tag says otherwise.
pub fn quoted(text: String, tag: Option<&Tag>, line: u32) -> Result<Value, Problem> {
    match tag {
        None => Ok(Value::Str(text)),
        Some(tag) => tagged(text, tag, line),
    }
}

fn tagged(text: String, tag: &Tag, line: u32) -> Result<Value, Problem> {
    let bad = |what: &str| Problem::new(line, "", format!("{text:?} is not {what}"));
    match tag.core_suffix() {
        Some("str") => Ok(Value::Str(text)),
        Some("binary") => Err(Problem::new(line, "", "!!binary is not supported here; give the text as it is")),
        Some("int") => match resolve(&text) {
            v @ (Value::Int(_) | Value::Uint(_)) => Ok(v),
            _ => Err(bad("an integer")),
        },
        Some("float") => match resolve(&text) {
            v @ Value::Float(_) => Ok(v),
            Value::Int(i) => Ok(Value::Float(i as f64)),
            _ => Err(bad("a number")),
        },
        Some("bool") => match resolve(&text) {
            v @ Value::Bool(_) => Ok(v),
            _ => Err(bad("a boolean")),
        },
        Some("null") => Ok(Value::Null),
        _ => Ok(Value::Str(text)),
    }
}

fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Value::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Value::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Value::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Value::Float(f64::NEG_INFINITY),
        _ => {}
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Value::Str(text.to_owned());
    }
    integer(text).or_else(|| float(text)).unwrap_or_else(|| Value::Str(text.to_owned()))
}

/// Decimal, `0x` hexadecimal, `0b` binary, `0o` or a leading `0` octal, with a sign and with `_`
/// between the digits.
fn integer(text: &str) -> Option<Value> {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    let (negative, body) = match digits.as_bytes().first()? {
        b'-' => (true, digits.get(1..)?),
        b'+' => (false, digits.get(1..)?),
        _ => (false, digits.as_str()),
    };
    let prefixed = |prefixes: [&str; 2], radix| {
        let rest = prefixes.iter().find_map(|p| body.strip_prefix(p))?;
        Some((rest, radix))
    };
    let (body, radix) = prefixed(["0x", "0X"], 16)
        .or_else(|| prefixed(["0b", "0B"], 2))
        .or_else(|| prefixed(["0o", "0O"], 8))
        .or_else(|| body.strip_prefix('0').filter(|rest| !rest.is_empty()).map(|rest| (rest, 8)))
        .unwrap_or((body, 10));
    if !body.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(body, radix).ok()?;
    match (negative, i64::try_from(magnitude)) {
        (false, Ok(i)) => Some(Value::Int(i)),
        (false, Err(_)) => Some(Value::Uint(magnitude)),
        (true, Ok(i)) => Some(Value::Int(-i)),
        (true, Err(_)) => (magnitude == 1 << 63).then_some(Value::Int(i64::MIN)),
    }
}

/// What yaml.v2 takes for a float: digits with at most one point, and an exponent with a sign.
fn float(text: &str) -> Option<Value> {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    let body = digits.strip_prefix(['+', '-']).unwrap_or(&digits);
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(i) => (body.get(..i)?, Some(body.get(i + 1..)?)),
        None => (body, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let exponent_fits = exponent.is_none_or(|e| {
        let tail = e.strip_prefix(['+', '-']).unwrap_or(e);
        !tail.is_empty() && all_digits(tail)
    });
    if whole.len() + fraction.len() == 0 || !all_digits(whole) || !all_digits(fraction) || !exponent_fits {
        return None;
    }
    digits.parse().ok().map(Value::Float)
}

/// A scalar as the key of a mapping; JSON knows string keys only.
pub fn key(value: Value) -> Option<String> {
    match value {
        Value::Str(s) => Some(s),
        Value::Bool(b) => Some(b.to_string()),
        Value::Int(i) => Some(i.to_string()),
        Value::Uint(u) => Some(u.to_string()),
        Value::Float(f) => Some(f.to_string()),
        Value::Null | Value::Seq(_) | Value::Map(_) => None,
    }
}
