//! Typed values from a tree, by serde. One `Deserializer` type for everything, so that the code
//! for the API types is generated once.

use std::cell::RefCell;
use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Visitor};
use serde::forward_to_deserialize_any;

use super::{Key, Node, Problem, Value};

/// A typed value, and the fields of the text that its type doesn't know.
#[derive(Debug)]
pub struct Decoded<T> {
    pub value: T,
    pub unknown: Vec<Problem>,
}

/// Decodes `node` as `T`; the error names the innermost value that doesn't fit.
pub fn decode<T: for<'de> Deserialize<'de>>(node: &Node) -> Result<Decoded<T>, Problem> {
    let unknown = RefCell::new(Vec::new());
    let value = T::deserialize(De { node, line: node.line, path: &Path::Root, unknown: &unknown }).map_err(|e| e.0)?;
    Ok(Decoded { value, unknown: unknown.into_inner() })
}

/// Where the value stands, as a list from the inside out on the stack: no allocation unless an
/// error has to be told.
enum Path<'p> {
    Root,
    Field(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(parent, name) if name.contains('.') => write!(f, "{parent}[{name}]"),
            Path::Field(Path::Root, name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, i) => write!(f, "{parent}[{i}]"),
        }
    }
}

#[derive(Debug)]
struct Error(Problem);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(msg: T) -> Error {
        Error(Problem::new(0, "", msg.to_string()))
    }
}

#[derive(Clone, Copy)]
struct De<'a> {
    node: &'a Node,
    /// Where to point at: a field by its key.
    line: u32,
    path: &'a Path<'a>,
    unknown: &'a RefCell<Vec<Problem>>,
}

impl<'a> De<'a> {
    /// Gives an error that has no place yet this value's.
    fn place<T>(self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|e| match e.0.line {
            0 => Error(Problem::new(self.line, self.path.to_string(), e.0.message)),
            _ => e,
        })
    }

    fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let result = match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::Int(i) => visitor.visit_i64(*i),
            Value::Uint(u) => visitor.visit_u64(*u),
            Value::Float(f) => visitor.visit_f64(*f),
            Value::Str(s) => visitor.visit_str(s),
            Value::Seq(items) => visitor.visit_seq(Items { of: self, items: items.iter().enumerate() }),
            Value::Map(entries) => visitor.visit_map(Entries { of: self, entries: entries.iter(), value: None }),
        };
        self.place(result)
    }
}

impl<'de> de::Deserializer<'de> for De<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.visit(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    /// The API takes a quantity as a number too: `cpu: 1`, `cpu: 0.5`.
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        let text = match (name, &self.node.value) {
            ("Quantity", Value::Int(i)) => i.to_string(),
            ("Quantity", Value::Uint(u)) => u.to_string(),
            ("Quantity", Value::Float(f)) => f.to_string(),
            _ => return visitor.visit_newtype_struct(self),
        };
        let node = Node { value: Value::Str(text), line: self.node.line };
        visitor.visit_newtype_struct(De { node: &node, ..self })
    }

    /// A unit variant by its name.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let result = match &self.node.value {
            Value::Str(s) => visitor.visit_enum(de::value::StrDeserializer::<Error>::new(s)),
            _ => Err(de::Error::custom("a string is expected here")),
        };
        self.place(result)
    }

    /// Only fields that a type doesn't know are ignored.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let problem = Problem::new(self.line, self.path.to_string(), "unknown field");
        self.unknown.borrow_mut().push(problem);
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier
    }
}

struct Items<'a, I> {
    of: De<'a>,
    items: I,
}

impl<'de, 'a, I: Iterator<Item = (usize, &'a Node)>> de::SeqAccess<'de> for Items<'a, I> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((i, node)) = self.items.next() else { return Ok(None) };
        let path = Path::Index(self.of.path, i);
        let de = De { node, line: node.line, path: &path, unknown: self.of.unknown };
        de.place(seed.deserialize(de)).map(Some)
    }
}

struct Entries<'a, I> {
    of: De<'a>,
    entries: I,
    value: Option<&'a (Key, Node)>,
}

impl<'de, 'a, I: Iterator<Item = &'a (Key, Node)>> de::MapAccess<'de> for Entries<'a, I> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        self.value = self.entries.next();
        let Some((key, _)) = self.value else { return Ok(None) };
        seed.deserialize(de::value::StrDeserializer::new(&key.name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some((key, node)) = self.value.take() else {
            return Err(de::Error::custom("a value was asked for before its key"));
        };
        let path = Path::Field(self.of.path, &key.name);
        let de = De { node, line: key.line, path: &path, unknown: self.of.unknown };
        de.place(seed.deserialize(de))
    }
}
