//! Metrics that are read when they are asked for, in Prometheus' text format.
//!
//! Beside the recorder: a series whose thing is gone (a source, a cluster) is gone with it, which gauges of the recorder are not.

use std::fmt::Write;

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// Grows only.
    Counter,
    /// Any value.
    Gauge,
}

/// Labels of a series.
pub type SeriesLabels = Vec<(&'static str, String)>;

/// A metric with its series.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Name.
    pub name: &'static str,
    /// Description, in one line.
    pub help: &'static str,
    /// Type.
    pub kind: FamilyKind,
    /// Values by labels.
    pub series: Vec<(SeriesLabels, f64)>,
}

impl Family {
    /// A gauge without series.
    #[must_use]
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: FamilyKind::Gauge, series: Vec::new() }
    }

    /// A counter without series.
    #[must_use]
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: FamilyKind::Counter, series: Vec::new() }
    }

    /// The same with this as its only series.
    #[must_use]
    pub fn of(mut self, value: f64) -> Self {
        self.series.push((Vec::new(), value));
        self
    }

    /// Adds a series.
    pub fn add(&mut self, labels: impl IntoIterator<Item = (&'static str, String)>, value: f64) {
        self.series.push((labels.into_iter().collect(), value));
    }
}

/// Metrics in Prometheus' text format; one without series is not there.
#[must_use]
pub fn exposition(families: &[Family]) -> String {
    let mut out = String::new();
    for family in families.iter().filter(|family| !family.series.is_empty()) {
        let kind = match family.kind {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
        };
        let _ = writeln!(out, "# HELP {} {}\n# TYPE {} {kind}", family.name, family.help, family.name);
        for (labels, value) in &family.series {
            out.push_str(family.name);
            for (i, (name, text)) in labels.iter().enumerate() {
                let _ = write!(out, "{}{name}=\"{}\"", if i == 0 { '{' } else { ',' }, escaped(text));
            }
            let _ = writeln!(out, "{} {value}", if labels.is_empty() { "" } else { "}" });
        }
        out.push('\n');
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_have_their_labels_and_nothing_stands_for_nothing() {
        let mut by_source = Family::gauge("age", "Age.");
        by_source.add([("source", "file:\"a\\b\n".to_string()), ("state", "x".to_string())], 1.5);
        let families = [Family::counter("all", "All.").of(3.0), Family::gauge("none", "None."), by_source];
        assert_eq!(
            exposition(&families),
            "# HELP all All.\n# TYPE all counter\nall 3\n\n# HELP age Age.\n# TYPE age gauge\n\
             age{source=\"file:\\\"a\\\\b\\n\",state=\"x\"} 1.5\n\n"
        );
    }
}
