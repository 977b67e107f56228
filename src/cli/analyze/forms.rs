//! Findings as text, JSON, YAML and JUnit XML.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use serde_json::{Value, json};

use crate::{
    analysis::{Code, Level, Message, Object},
    sources::file::Written,
};

/// The inputs of an analysis.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    /// The files that were read.
    pub files: BTreeSet<String>,
    /// The number of objects of the cluster, if one was read.
    pub live: Option<usize>,
}

/// Name of the test suite of the cluster's objects.
const CLUSTER: &str = "cluster";

/// A message at its place. An object of the cluster has none: its file is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    pub file: String,
    /// Line, from 1; 0 for the whole file.
    pub line: u32,
    /// Column, from 1; 0 when unknown.
    pub column: u32,
    pub code: Code,
    /// Kind and full name of the object; empty for a file.
    pub origin: String,
    pub text: String,
}

impl Finding {
    /// A finding about an object of a file, or of the cluster.
    pub fn of_object(message: &Message, object: &Object, written: Option<&Written>) -> Self {
        let (line, column) = written.map(|written| written.place(&message.path)).unwrap_or_default();
        Self {
            file: written.map(|written| written.file.display().to_string()).unwrap_or_default(),
            line,
            column,
            code: message.code,
            origin: format!("{} {}", object.kind, object.full_name()),
            text: message.text.clone(),
        }
    }

    /// A finding about a file, or an object in it.
    pub fn of_file(code: Code, file: String, place: (u32, u32), kind: &str, name: String, text: String) -> Self {
        let origin = format!("{kind} {name}").trim().to_string();
        Self { file, line: place.0, column: place.1, code, origin, text }
    }

    pub const fn level(&self) -> Level {
        self.code.level()
    }

    /// `FILE:LINE:COLUMN`, as far as it is known.
    pub fn reference(&self) -> String {
        let numbers = [self.line, self.column].into_iter().take_while(|n| *n > 0);
        numbers.fold(self.file.clone(), |place, number| format!("{place}:{number}"))
    }
}

/// One line for each finding in istioctl's form, with its way out below.
pub(super) fn text(findings: &[Finding], inputs: &Inputs, in_colours: bool) -> String {
    let mut out = String::new();
    for finding in findings {
        let (level, end) = match (in_colours, finding.level()) {
            (false, _) => ("", ""),
            (true, Level::Error) => ("\u{1b}[1;31m", "\u{1b}[0m"),
            (true, Level::Warning) => ("\u{1b}[33m", "\u{1b}[0m"),
            (true, Level::Info) => ("\u{1b}[32m", "\u{1b}[0m"),
        };
        let (origin, place, message) = (&finding.origin, finding.reference(), one_line(&finding.text));
        let space = if origin.is_empty() || place.is_empty() { "" } else { " " };
        let _ = writeln!(out, "{level}{}{end} [{}] ({origin}{space}{place}) {message}", finding.level(), finding.code);
        let _ = writeln!(out, "    way out: {}", finding.code.way_out());
    }
    let count = |level: Level| findings.iter().filter(|finding| finding.level() == level).count();
    let (errors, warnings, infos) = (count(Level::Error), count(Level::Warning), count(Level::Info));
    let _ = write!(out, "{errors} errors, {warnings} warnings, {infos} infos in {} files", inputs.files.len());
    let _ = match inputs.live {
        Some(objects) => writeln!(out, " and {objects} objects of the cluster"),
        None => writeln!(out),
    };
    out
}

/// A text without line ends, so that a name of an object makes no line of its own.
fn one_line(text: &str) -> String {
    text.split(['\n', '\r']).map(str::trim).collect::<Vec<_>>().join(" ").replace('\u{1b}', "\\u{1b}")
}

/// Istio's fields, and place and way out.
pub(super) fn values(findings: &[Finding]) -> Value {
    let of = |finding: &Finding| {
        let mut value = json!({
            "code": finding.code.code(),
            "level": finding.level().as_str(),
            "origin": finding.origin,
            "reference": finding.reference(),
            "message": finding.text,
            "file": finding.file,
            "line": finding.line,
            "column": finding.column,
            "wayOut": finding.code.way_out(),
        });
        if let Some(page) = finding.code.documentation() {
            value["documentationUrl"] = page.into();
        }
        value
    };
    findings.iter().map(of).collect()
}

/// A test suite for each file, and one for the cluster: one test for each finding, or one that passes.
pub(super) fn junit(findings: &[Finding], inputs: &Inputs, threshold: Level) -> String {
    let names = inputs.files.iter().map(String::as_str).chain(inputs.live.map(|_| CLUSTER));
    let mut suites: BTreeMap<&str, Vec<&Finding>> = names.map(|name| (name, Vec::new())).collect();
    for finding in findings {
        let name = if finding.file.is_empty() && inputs.live.is_some() { CLUSTER } else { &finding.file };
        suites.entry(name).or_default().push(finding);
    }
    let fails = |finding: &&Finding| finding.level() >= threshold;
    let (tests, failures) =
        (suites.values().map(|of| of.len().max(1)).sum::<usize>(), findings.iter().filter(fails).count());
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(out, "<testsuites name=\"pilothouse analyze\" tests=\"{tests}\" failures=\"{failures}\">");
    for (file, of) in suites {
        let failed = of.iter().filter(|finding| fails(finding)).count();
        let name = escaped(file);
        let _ = writeln!(out, "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failed}\">", of.len().max(1));
        if of.is_empty() {
            let _ = writeln!(out, "    <testcase classname=\"{name}\" name=\"no findings\"/>");
        }
        for finding in of {
            let title = escaped(&format!("{} {}", finding.code, finding.origin));
            let _ = write!(
                out,
                "    <testcase classname=\"{name}\" name=\"{title}\" file=\"{name}\" line=\"{}\">",
                finding.line
            );
            let body = format!("{}: {}\nway out: {}", finding.reference(), finding.text, finding.code.way_out());
            if finding.level() >= threshold {
                let (level, message) = (finding.level(), escaped(&finding.text));
                let _ = write!(out, "<failure type=\"{level}\" message=\"{message}\">{}</failure>", escaped(&body));
            } else {
                let _ = write!(out, "<system-out>{}: {}</system-out>", finding.level(), escaped(&body));
            }
            out.push_str("</testcase>\n");
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

/// A text in XML; characters that XML does not have are replaced.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push('\t'),
            c if c < ' ' || c == '\u{fffe}' || c == '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(code: Code, text: &str) -> Finding {
        Finding::of_file(code, "a & b.yaml".to_string(), (3, 7), "Gateway", "ns/\"g\"".to_string(), text.to_string())
    }

    #[test]
    fn a_finding_is_one_line_and_its_way_out() {
        let all = [finding(Code::ConflictingGateways, "one\ntwo")];
        let inputs = Inputs { files: BTreeSet::from(["a & b.yaml".to_string()]), live: None };
        let plain = text(&all, &inputs, false);
        assert!(
            plain.starts_with("Error [IST0145] (Gateway ns/\"g\" a & b.yaml:3:7) one two\n    way out: "),
            "{plain}"
        );
        assert!(plain.ends_with("1 errors, 0 warnings, 0 infos in 1 files\n") && plain.lines().count() == 3);
        assert!(text(&all, &inputs, true).starts_with("\u{1b}[1;31mError\u{1b}[0m ["));
    }

    #[test]
    fn an_object_of_the_cluster_has_no_place() {
        let code = Code::ConflictingGateways;
        let live = Finding::of_file(code, String::new(), (0, 0), "Gateway", "ns/g".to_string(), "x".to_string());
        let inputs = Inputs { files: BTreeSet::new(), live: Some(7) };
        let plain = text(std::slice::from_ref(&live), &inputs, false);
        assert!(plain.starts_with("Error [IST0145] (Gateway ns/g) x\n"), "{plain}");
        assert!(plain.ends_with(" in 0 files and 7 objects of the cluster\n"), "{plain}");
        let xml = junit(&[live], &inputs, Level::Error);
        assert!(xml.contains("<testsuite name=\"cluster\" tests=\"1\" failures=\"1\">"), "{xml}");
    }

    #[test]
    fn junit_fails_at_the_threshold_alone() {
        let all = [finding(Code::ConflictingGateways, "<x>\u{1}"), finding(Code::SubsetUnused, "y")];
        let files = BTreeSet::from(["a & b.yaml".to_string(), "clean.yaml".to_string()]);
        let inputs = Inputs { files, live: None };
        let xml = junit(&all, &inputs, Level::Warning);
        assert!(xml.contains("tests=\"3\" failures=\"1\""), "{xml}");
        assert!(xml.contains("message=\"&lt;x&gt;\u{fffd}\"") && xml.contains("<system-out>Info: "), "{xml}");
        assert!(xml.contains("classname=\"clean.yaml\" name=\"no findings\"/>"), "{xml}");
        assert!(junit(&all, &inputs, Level::Info).contains("failures=\"2\""));
    }
}
