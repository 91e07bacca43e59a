//! The text format of Prometheus, for what is not counted but read when it is asked for: those series
//! come and go with pods, and some have a time of their own. Pure.

use std::fmt::Write as _;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Name and value of each label, in the order in which they are shown. An empty value is as none.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// Begins a metric: what follows are its samples.
    pub fn metric(&mut self, name: &'static str, kind: Kind, help: &str) -> Metric<'_> {
        self.push(format_args!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.as_str()));
        Metric { text: self, name }
    }

    pub fn into_string(self) -> String {
        self.0
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _ = self.0.write_fmt(text);
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: Labels<'_>, value: f64, at: Option<i64>) {
        self.push(format_args!("{name}{suffix}"));
        let mut open = '{';
        for (label, value) in labels {
            self.push(format_args!("{open}{label}=\""));
            escape(value, &mut self.0);
            self.0.push('"');
            open = ',';
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        self.push(format_args!(" {value}"));
        if let Some(at) = at {
            self.push(format_args!(" {at}"));
        }
        self.0.push('\n');
    }
}

pub struct Metric<'a> {
    text: &'a mut Text,
    name: &'static str,
}

impl Metric<'_> {
    pub fn sample(&mut self, labels: Labels<'_>, value: f64) {
        self.text.sample(self.name, "", labels, value, None);
    }

    /// A value of a time, in milliseconds since 1970.
    pub fn sample_at(&mut self, labels: Labels<'_>, value: f64, at: i64) {
        self.text.sample(self.name, "", labels, value, Some(at));
    }

    /// `buckets`: upper bounds, with how many values are up to each. `all`: their number and sum.
    pub fn histogram(&mut self, labels: Labels<'_>, buckets: impl Iterator<Item = (f64, u64)>, all: (u64, f64)) {
        let (count, sum) = (whole(all.0), all.1);
        for (bound, up_to) in buckets {
            let bound = bound.to_string();
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.text.sample(self.name, "_bucket", &labels, whole(up_to), None);
        }
        let last = [labels, &[("le", "+Inf")]].concat();
        self.text.sample(self.name, "_bucket", &last, count, None);
        self.text.sample(self.name, "_sum", labels, sum, None);
        self.text.sample(self.name, "_count", labels, count, None);
    }
}

/// As Prometheus has all numbers: exact to 2^53.
#[allow(clippy::cast_precision_loss)]
pub fn whole(n: u64) -> f64 {
    n as f64
}

fn escape(value: &str, out: &mut String) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format() {
        let mut text = Text::default();
        let mut metric = text.metric("a_bytes", Kind::Gauge, "What it is.");
        metric.sample(&[], 12_345_678_901_234.0);
        metric.sample_at(&[("x", "a\"b\\c\nd"), ("y", "")], 0.25, 1_700_000_000_000);
        text.metric("b_total", Kind::Counter, "Another.").sample(&[("z", "ä")], 3.0);
        let mut histogram = text.metric("c_seconds", Kind::Histogram, "A third.");
        histogram.histogram(&[("q", "r")], [(0.005, 1), (10.0, 2)].into_iter(), (3, 1.5));
        let want = "# HELP a_bytes What it is.\n# TYPE a_bytes gauge\na_bytes 12345678901234\n\
                    a_bytes{x=\"a\\\"b\\\\c\\nd\",y=\"\"} 0.25 1700000000000\n\
                    # HELP b_total Another.\n# TYPE b_total counter\nb_total{z=\"ä\"} 3\n\
                    # HELP c_seconds A third.\n# TYPE c_seconds histogram\n\
                    c_seconds_bucket{q=\"r\",le=\"0.005\"} 1\nc_seconds_bucket{q=\"r\",le=\"10\"} 2\n\
                    c_seconds_bucket{q=\"r\",le=\"+Inf\"} 3\nc_seconds_sum{q=\"r\"} 1.5\nc_seconds_count{q=\"r\"} 3\n";
        assert_eq!(text.into_string(), want);
    }
}
