//! Where a problem stands and how it is told: paths of fields, and the kinds of refusal that the
//! API has (apimachinery/pkg/util/validation/field). Knows nothing of pods.
//!
//! Paths are Kubernetes' own. Only where its validation leaves open which field it means (an index
//! left out, a name misspelt) do we name that field, so that its line can be found.

use std::fmt;

use super::format::Format;
use crate::yaml::Problem;

/// A field's path, as a list from the inside out on the stack: it is written out only when there
/// is a problem.
#[derive(Clone, Copy)]
pub struct Path<'p> {
    parent: Option<&'p Path<'p>>,
    step: Step<'p>,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Field(&'static str),
    Index(usize),
    Key(&'p str),
}

impl<'p> Path<'p> {
    pub fn root(name: &'static str) -> Path<'static> {
        Path { parent: None, step: Step::Field(name) }
    }

    pub fn field(&'p self, name: &'static str) -> Path<'p> {
        Path { parent: Some(self), step: Step::Field(name) }
    }

    pub fn index(&'p self, i: usize) -> Path<'p> {
        Path { parent: Some(self), step: Step::Index(i) }
    }

    pub fn key(&'p self, key: &'p str) -> Path<'p> {
        Path { parent: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Field(name) if self.parent.is_some() => write!(f, ".{name}"),
            Step::Field(name) => f.write_str(name),
            Step::Index(i) => write!(f, "[{i}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// The problems found so far; a pod with more than [`MAX_PROBLEMS`] needs another look anyway.
#[derive(Default)]
pub struct Report {
    pub problems: Vec<Problem>,
}

const MAX_PROBLEMS: usize = 100;

/// Longer values are cut where they are told.
const MAX_VALUE: usize = 120;

fn shown(value: impl fmt::Debug) -> String {
    let mut text = format!("{value:?}");
    if let Some((end, _)) = text.char_indices().nth(MAX_VALUE) {
        text.truncate(end);
        text.push('…');
    }
    text
}

impl Report {
    fn add(&mut self, at: &Path<'_>, message: String) {
        match self.problems.len() {
            ..MAX_PROBLEMS => self.problems.push(Problem::new(0, at.to_string(), message)),
            MAX_PROBLEMS => self.problems.push(Problem::new(0, "", "Too many: there are more problems than these")),
            _ => {}
        }
    }

    pub fn invalid(&mut self, at: &Path<'_>, value: impl fmt::Debug, why: impl fmt::Display) {
        self.add(at, format!("Invalid value: {}: {why}", shown(value)));
    }

    pub fn required(&mut self, at: &Path<'_>) {
        self.add(at, "Required value".to_owned());
    }

    pub fn required_because(&mut self, at: &Path<'_>, why: impl fmt::Display) {
        self.add(at, format!("Required value: {why}"));
    }

    pub fn duplicate(&mut self, at: &Path<'_>, value: impl fmt::Debug) {
        self.add(at, format!("Duplicate value: {}", shown(value)));
    }

    pub fn unsupported(&mut self, at: &Path<'_>, value: impl fmt::Debug, allowed: &[&str]) {
        let quoted: Vec<_> = allowed.iter().map(|a| format!("{a:?}")).collect();
        self.add(at, format!("Unsupported value: {}: one of {}", shown(value), quoted.join(", ")));
    }

    pub fn not_found(&mut self, at: &Path<'_>, value: impl fmt::Debug) {
        self.add(at, format!("Not found: {}", shown(value)));
    }

    pub fn forbidden(&mut self, at: &Path<'_>, why: impl fmt::Display) {
        self.add(at, format!("Forbidden: {why}"));
    }

    pub fn too_long(&mut self, at: &Path<'_>, max: usize) {
        self.add(at, format!("Too long: may not be more than {max} bytes"));
    }

    pub fn too_many(&mut self, at: &Path<'_>, count: usize, max: usize) {
        self.add(at, format!("Too many: {count}: may not be more than {max}"));
    }

    /// Checks that `value` isn't empty.
    pub fn present(&mut self, at: &Path<'_>, value: &str) {
        if value.is_empty() {
            self.required(at);
        }
    }

    /// Checks that `value` is written as `format` wants it.
    pub fn format(&mut self, at: &Path<'_>, value: &str, format: Format) {
        if !(format.holds)(value) {
            self.invalid(at, value, format.says);
        }
    }

    /// Checks that `value` isn't empty, and written as `format` wants it.
    pub fn present_format(&mut self, at: &Path<'_>, value: &str, format: Format) {
        match value {
            "" => self.required(at),
            _ => self.format(at, value, format),
        }
    }

    /// Checks that `value` is one of `allowed`.
    pub fn choice(&mut self, at: &Path<'_>, value: &str, allowed: &[&str]) {
        if !allowed.contains(&value) {
            match value {
                "" => self.required_because(at, format_args!("one of {}", allowed.join(", "))),
                _ => self.unsupported(at, value, allowed),
            }
        }
    }

    /// Checks that `value` is from `min` to `max`.
    pub fn range(&mut self, at: &Path<'_>, value: i64, min: i64, max: i64) {
        if value < min || value > max {
            self.invalid(at, value, format_args!("must be from {min} to {max}"));
        }
    }

    pub fn not_negative(&mut self, at: &Path<'_>, value: i64) {
        if value < 0 {
            self.invalid(at, value, "must not be negative");
        }
    }
}

/// A set of fields of which exactly one must be there.
pub struct OneOf<'r> {
    report: &'r mut Report,
    at: &'r Path<'r>,
    what: &'static str,
    found: bool,
}

impl<'r> OneOf<'r> {
    pub fn new(report: &'r mut Report, at: &'r Path<'r>, what: &'static str) -> OneOf<'r> {
        OneOf { report, at, what, found: false }
    }

    /// Checks the first of the fields that is there with `check`, and refuses any further one.
    pub fn field<T>(
        &mut self,
        name: &'static str,
        value: Option<&T>,
        check: impl FnOnce(&mut Report, &Path<'_>, &T),
    ) -> &mut Self {
        let Some(value) = value else { return self };
        let at = self.at.field(name);
        match self.found {
            true => self.report.forbidden(&at, format_args!("may not specify more than one {}", self.what)),
            false => check(self.report, &at, value),
        }
        self.found = true;
        self
    }

    pub fn end(&mut self) {
        if !self.found {
            self.report.required_because(self.at, format_args!("must specify a {}", self.what));
        }
    }
}

/// The text of an optional field; one that is left out is empty, as in the API.
pub fn text(field: &Option<String>) -> &str {
    field.as_deref().unwrap_or_default()
}

/// The elements of an optional list, with their paths.
pub fn each<'p, 't, T>(at: &'p Path<'p>, list: &'t Option<Vec<T>>) -> impl Iterator<Item = (Path<'p>, &'t T)> {
    list.iter().flatten().enumerate().map(|(i, item)| (at.index(i), item))
}

/// What is already taken in a set of values that must differ.
#[derive(Default)]
pub struct Unique<'v>(std::collections::HashSet<&'v str>);

impl<'v> Unique<'v> {
    /// Refuses a `value` that was seen before; an empty one is refused elsewhere.
    pub fn check(&mut self, report: &mut Report, at: &Path<'_>, value: &'v str) {
        if !value.is_empty() && !self.0.insert(value) {
            report.duplicate(at, value);
        }
    }
}
