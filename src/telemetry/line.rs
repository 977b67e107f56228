//! One line of the log: the fields of an event, bounded in length, as text or as JSON.
//!
//! External text (names, messages of clients, content of files) appears only inside values. A value can neither start a new
//! line, nor move a terminal's cursor, nor replace a reserved key.

use std::fmt::{self, Write};

use tracing::{
    Event, Level,
    field::{Field, Visit},
};
use tracing_subscriber::fmt::{
    format::Writer,
    time::{FormatTime, SystemTime},
};

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Maximum number of written bytes of one value; the rest is counted.
const LONGEST_VALUE: usize = 4096;
/// Reserved keys of a JSON line.
const RESERVED: [&str; 4] = ["timestamp", "level", "message", "target"];

/// A value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    /// A number or boolean, as in JSON.
    Plain(String),
    /// A string.
    Quoted(String),
    /// Formatted text, such as `Debug` output.
    Text(String),
}

/// A log line before it is rendered.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) level: Level,
    pub(super) target: String,
    pub(super) message: Option<String>,
    fields: Vec<(String, Value)>,
}

impl Line {
    /// A line without an event.
    pub(super) fn new(level: Level, target: &str, message: &str) -> Self {
        Self { level, target: target.to_string(), message: Some(message.to_string()), fields: Vec::new() }
    }

    /// The line of an event.
    pub(super) fn of(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let mut line =
            Self { level: *metadata.level(), target: metadata.target().to_string(), message: None, fields: Vec::new() };
        event.record(&mut line);
        line
    }

    /// The line with one more field.
    pub(super) fn with(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.put(name, Value::Text(cut(format_args!("{value}"))));
        self
    }

    /// The line with one more numeric field.
    pub(super) fn with_number(mut self, name: &str, value: u64) -> Self {
        self.put(name, Value::Plain(value.to_string()));
        self
    }

    fn put(&mut self, name: &str, value: Value) {
        let name = name.strip_prefix("r#").unwrap_or(name);
        match (name, value) {
            // The event's own message comes first; a later field of that name is an ordinary field.
            ("message", Value::Text(text) | Value::Quoted(text)) if self.message.is_none() => self.message = Some(text),
            // Events of the `log` crate carry their target in a field.
            ("log.target", Value::Quoted(target) | Value::Text(target)) => self.target = target,
            ("log.module_path" | "log.file" | "log.line", _) => {}
            (name, value) => {
                let mut name = name.to_string();
                while RESERVED.contains(&name.as_str()) || self.fields.iter().any(|(known, _)| *known == name) {
                    name.push('_');
                }
                self.fields.push((name, value));
            }
        }
    }

    /// Renders the line, with a trailing newline.
    pub(super) fn render(&self, format: LogFormat, colours: bool) -> String {
        let mut out = String::with_capacity(256);
        // Writing to a string cannot fail.
        let _ = match format {
            LogFormat::Text => self.text(&mut out, colours),
            LogFormat::Json => self.json(&mut out),
        };
        out.push('\n');
        out
    }

    fn text(&self, out: &mut String, colours: bool) -> fmt::Result {
        now(out)?;
        let (start, end) = if colours { (colour(self.level), "\u{1b}[0m") } else { ("", "") };
        write!(out, " {start}{:>5}{end} ", self.level.as_str())?;
        let mut escaped = Escaped(&mut *out);
        write!(escaped, "{}:", self.target)?;
        if let Some(message) = &self.message {
            write!(escaped, " {message}")?;
        }
        for (name, value) in &self.fields {
            write!(escaped, " {name}=")?;
            match value {
                Value::Plain(text) | Value::Text(text) => escaped.write_str(text)?,
                Value::Quoted(text) => write!(escaped, "{text:?}")?,
            }
        }
        Ok(())
    }

    fn json(&self, out: &mut String) -> fmt::Result {
        out.push_str("{\"timestamp\":\"");
        now(out)?;
        write!(out, "\",\"level\":\"{}\"", self.level.as_str())?;
        if let Some(message) = &self.message {
            out.push_str(",\"message\":");
            quote(out, message)?;
        }
        for (name, value) in &self.fields {
            out.push(',');
            quote(out, name)?;
            out.push(':');
            match value {
                Value::Plain(text) => out.push_str(text),
                Value::Quoted(text) | Value::Text(text) => quote(out, text)?,
            }
        }
        out.push_str(",\"target\":");
        quote(out, &self.target)?;
        out.push('}');
        Ok(())
    }
}

impl Visit for Line {
    fn record_f64(&mut self, field: &Field, value: f64) {
        let plain = if value.is_finite() { Value::Plain(value.to_string()) } else { Value::Text(value.to_string()) };
        self.put(field.name(), plain);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), Value::Plain(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), Value::Plain(value.to_string()));
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.put(field.name(), Value::Plain(value.to_string()));
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.put(field.name(), Value::Plain(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), Value::Plain(value.to_string()));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), Value::Quoted(cut(format_args!("{value}"))));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), Value::Text(cut(format_args!("{value:?}"))));
    }
}

fn now(out: &mut String) -> fmt::Result {
    SystemTime.format_time(&mut Writer::new(out))
}

const fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\u{1b}[31m",
        Level::WARN => "\u{1b}[33m",
        Level::INFO => "\u{1b}[32m",
        _ => "\u{1b}[2m",
    }
}

/// Whether a terminal or a reader of lines could interpret the character: controls, other line separators, changes of text
/// direction.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Writes such characters as escapes.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if is_control(c) { self.0.extend(c.escape_default()) } else { self.0.push(c) }
        }
        Ok(())
    }
}

/// Writes a JSON string. Such characters are escaped although JSON allows some of them, because people read these lines in
/// terminals too.
fn quote(out: &mut String, text: &str) -> fmt::Result {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if is_control(c) => write!(out, "\\u{:04x}", u32::from(c))?,
            c => out.push(c),
        }
    }
    out.push('"');
    Ok(())
}

/// The text of a value, truncated to the maximum.
fn cut(value: fmt::Arguments<'_>) -> String {
    let mut bounded = Bounded::default();
    let _ = bounded.write_fmt(value);
    if bounded.beyond > 0 {
        let _ = write!(bounded.text, "… ({} bytes more)", bounded.beyond);
    }
    bounded.text
}

/// The last character boundary that is not beyond this many bytes.
pub(super) fn boundary(text: &str, bytes: usize) -> usize {
    (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default()
}

/// Keeps the beginning of the written text and counts the rest.
#[derive(Default)]
struct Bounded {
    text: String,
    beyond: usize,
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = if self.beyond > 0 { 0 } else { LONGEST_VALUE.saturating_sub(self.text.len()) };
        let (kept, rest) = text.split_at(boundary(text, room));
        self.text.push_str(kept);
        self.beyond += rest.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        let mut line = Line::new(Level::WARN, "t", "said");
        line.put("message", Value::Quoted("theirs\n\u{1b}[2J\u{9b}\u{2028}\u{202e}\"".to_string()));
        line.put("target", Value::Text("not\rours".to_string()));
        line.put("r#type", Value::Plain("7".to_string()));
        line
    }

    #[test]
    fn values_neither_break_lines_nor_take_keys() {
        let text = line().render(LogFormat::Text, false);
        assert_eq!(text.chars().filter(|c| is_control(*c)).collect::<Vec<_>>(), ['\n'], "{text:?}");
        assert!(text.contains("WARN t: said message_=\"theirs\\n\\u{1b}[2J"), "{text}");
        assert!(text.contains("target_=not\\rours type=7"), "{text}");

        let json = line().render(LogFormat::Json, false);
        assert_eq!(json.chars().filter(|c| is_control(*c)).collect::<Vec<_>>(), ['\n'], "{json:?}");
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((read["message"].as_str(), read["target"].as_str()), (Some("said"), Some("t")));
        assert_eq!(read["message_"], "theirs\n\u{1b}[2J\u{9b}\u{2028}\u{202e}\"");
        assert_eq!(read["type"], 7);
    }

    #[test]
    fn long_values_are_cut_at_a_character() {
        let text = cut(format_args!("{}{}", "ü".repeat(LONGEST_VALUE), "end"));
        assert!(text.len() < LONGEST_VALUE + 40 && text.ends_with("(4099 bytes more)"), "{text}");
        assert_eq!(cut(format_args!("a{}", "b")), "ab");
    }
}
