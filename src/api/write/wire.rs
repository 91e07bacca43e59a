//! Bodies in Kubernetes' protobuf form, which kubectl 1.32 sends when it creates ConfigMaps and Secrets
//! (the generated.proto of staging/src/k8s.io/api/core/v1 and of apimachinery). Pure.

use base64::Engine as _;
use protobuf::CodedInputStream;
use serde_json::{Map, Value, json};

const MAGIC: &[u8] = b"k8s\0";

/// A field's number and content; a number is its only varint.
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The object as JSON.
///
/// # Errors
/// Why it can't be read.
pub fn decode(body: &[u8]) -> Result<Value, String> {
    let rest = body.strip_prefix(MAGIC).ok_or("it does not begin as Kubernetes' protobuf does")?;
    let (mut kind, mut raw) = (String::new(), Vec::new());
    for (number, field) in fields(rest)? {
        match (number, field) {
            (1, Field::Bytes(bytes)) => kind = string(fields(&bytes)?, 2)?,
            (2, Field::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let mut object = json!({"apiVersion": "v1", "kind": kind});
    let is_secret = match kind.as_str() {
        "ConfigMap" => false,
        "Secret" => true,
        kind => return Err(format!("a {kind} has to be sent as JSON")),
    };
    let (mut texts, mut binaries) = (Map::new(), Map::new());
    for (number, field) in fields(&raw)? {
        match (number, field) {
            (1, Field::Bytes(bytes)) => object["metadata"] = metadata(&bytes)?,
            (2, Field::Bytes(bytes)) if !is_secret => entry(&bytes, &mut texts, text)?,
            (3, Field::Bytes(bytes)) if !is_secret => entry(&bytes, &mut binaries, base64)?,
            (4, Field::Number(n)) if !is_secret => object["immutable"] = (n != 0).into(),
            (2, Field::Bytes(bytes)) => entry(&bytes, &mut binaries, base64)?,
            (3, Field::Bytes(bytes)) => object["type"] = text(bytes)?,
            (4, Field::Bytes(bytes)) => entry(&bytes, &mut texts, text)?,
            (5, Field::Number(n)) => object["immutable"] = (n != 0).into(),
            _ => {}
        }
    }
    let names = if is_secret { ("stringData", "data") } else { ("data", "binaryData") };
    for (name, map) in [(names.0, texts), (names.1, binaries)] {
        if !map.is_empty() {
            object[name] = map.into();
        }
    }
    Ok(object)
}

/// What a client may set of it.
fn metadata(bytes: &[u8]) -> Result<Value, String> {
    let mut metadata = json!({});
    let (mut labels, mut annotations) = (Map::new(), Map::new());
    for (number, field) in fields(bytes)? {
        match (number, field) {
            (1, Field::Bytes(bytes)) => metadata["name"] = text(bytes)?,
            (3, Field::Bytes(bytes)) => metadata["namespace"] = text(bytes)?,
            (6, Field::Bytes(bytes)) => metadata["resourceVersion"] = text(bytes)?,
            (11, Field::Bytes(bytes)) => entry(&bytes, &mut labels, text)?,
            (12, Field::Bytes(bytes)) => entry(&bytes, &mut annotations, text)?,
            _ => {}
        }
    }
    for (name, map) in [("labels", labels), ("annotations", annotations)] {
        if !map.is_empty() {
            metadata[name] = map.into();
        }
    }
    Ok(metadata)
}

fn entry(
    bytes: &[u8],
    map: &mut Map<String, Value>,
    read: impl Fn(Vec<u8>) -> Result<Value, String>,
) -> Result<(), String> {
    let (mut key, mut value) = (String::new(), Vec::new());
    for (number, field) in fields(bytes)? {
        match (number, field) {
            (1, Field::Bytes(bytes)) => key = utf8(bytes)?,
            (2, Field::Bytes(bytes)) => value = bytes,
            _ => {}
        }
    }
    map.insert(key, read(value)?);
    Ok(())
}

fn string(fields: Vec<(u32, Field)>, wanted: u32) -> Result<String, String> {
    for (number, field) in fields {
        if let (true, Field::Bytes(bytes)) = (number == wanted, field) {
            return utf8(bytes);
        }
    }
    Ok(String::new())
}

fn utf8(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|_| "a text in it is no UTF-8".to_owned())
}

fn text(bytes: Vec<u8>) -> Result<Value, String> {
    utf8(bytes).map(Value::from)
}

// Its type is that of `text`.
#[allow(clippy::unnecessary_wraps, clippy::needless_pass_by_value)]
fn base64(bytes: Vec<u8>) -> Result<Value, String> {
    Ok(base64::engine::general_purpose::STANDARD.encode(&bytes).into())
}

fn fields(bytes: &[u8]) -> Result<Vec<(u32, Field)>, String> {
    let broken = |e: protobuf::Error| format!("its protobuf is broken: {e}");
    let mut stream = CodedInputStream::from_bytes(bytes);
    let mut all = Vec::new();
    while let Some(tag) = stream.read_raw_tag_or_eof().map_err(broken)? {
        let field = match tag & 7 {
            0 => Field::Number(stream.read_raw_varint64().map_err(broken)?),
            2 => Field::Bytes(stream.read_bytes().map_err(broken)?),
            1 => Field::Number(stream.read_fixed64().map_err(broken)?),
            5 => Field::Number(stream.read_fixed32().map_err(broken)?.into()),
            kind => return Err(format!("its protobuf is broken: there is no wire type {kind}")),
        };
        all.push((tag >> 3, field));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with bytes shorter than 128.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(bytes.len()).expect("is short")], bytes].concat()
    }

    fn object(kind: &str, raw: &[u8]) -> Vec<u8> {
        let types = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &types), &field(2, raw)].concat()
    }

    #[test]
    fn objects() {
        let pair = |key: &[u8], value: &[u8]| [field(1, key), field(2, value)].concat();
        let meta = [field(1, b"m"), field(3, b"ns"), field(11, &pair(b"app", b"web"))].concat();
        let map =
            [field(1, &meta), field(2, &pair(b"k", b"v")), field(3, &pair(b"b", &[255])), vec![4 << 3, 1]].concat();
        assert_eq!(
            decode(&object("ConfigMap", &map)),
            Ok(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "immutable": true, "data": {"k": "v"}, "binaryData": {"b": "/w=="},
                      "metadata": {"name": "m", "namespace": "ns", "labels": {"app": "web"}}})
            )
        );
        let secret = [field(1, &meta), field(2, &pair(b"k", b"v")), field(3, b"Opaque")].concat();
        let read = decode(&object("Secret", &secret)).expect("reads");
        assert_eq!((&read["data"]["k"], &read["type"]), (&json!("dg=="), &json!("Opaque")));
        for broken in
            [&b"{}"[..], b"k8s\0\x0a\x7f", b"k8s\0\x0b", &object("Pod", b""), &object("ConfigMap", &[0x0a, 5, 1])]
        {
            assert!(decode(broken).is_err(), "{broken:?}");
        }
    }
}
