//! Walks over an encoded message and compares it with the table of rules.
//!
//! Works on bytes, without decoding: the message was encoded a moment ago, and a copy of it would cost more than the
//! check. Pure; depth and the number of findings are bounded.

use std::{collections::HashMap, fmt::Write, sync::LazyLock};

use parking_lot::Mutex;
use regex::bytes::Regex;

use super::{
    fields::{Fields, Raw, find, varint},
    shown::shown,
    special,
};
use crate::proto::validate::{self, Field, Kind, Message, Rule};

/// Messages within messages, counted with those inside of `Any`.
const DEEPEST: usize = 100;
/// Findings of one message at most.
const MOST_FINDINGS: usize = 4;
/// No message of the table has more fields (build.rs sees to it).
const MOST_FIELDS: usize = 96;
/// Nearly all messages have no more fields than this. Counters for [`MOST_FIELDS`] would have to be cleared for each of them.
const FEW_FIELDS: usize = 8;

/// A rule that a message breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Path of the field, from the message that was checked.
    pub field: String,
    /// The rule, for a person.
    pub reason: String,
}

/// The rules that an encoded message of this type breaks; none when Envoy has no reason to refuse it.
#[must_use]
pub fn violations(name: &str, bytes: &[u8]) -> Vec<Violation> {
    let mut walk = Walk { path: Vec::new(), found: Vec::new() };
    if let Some(message) = validate::message(name) {
        walk.message(message, bytes);
    }
    walk.found
}

struct Walk {
    path: Vec<(&'static str, Option<u32>)>,
    found: Vec<Violation>,
}

impl Walk {
    fn message(&mut self, message: &'static Message, bytes: &[u8]) {
        if self.path.len() >= DEEPEST {
            return self.broken("is nested too deep");
        }
        if let Some(Err(reason)) = message.special.map(|s| special::of_message(s, bytes)) {
            self.broken(&reason);
        }
        if message.fields.len() <= FEW_FIELDS {
            self.fields::<FEW_FIELDS>(message, bytes);
        } else {
            self.fields::<MOST_FIELDS>(message, bytes);
        }
    }

    /// Checks the fields of a message that has at most `N` of them.
    fn fields<const N: usize>(&mut self, message: &'static Message, bytes: &[u8]) {
        let mut seen = [0u32; N];
        let mut set = 0u64;
        for next in Fields(bytes) {
            let Some((number, raw)) = next else { return self.broken("does not decode") };
            let Ok(at) = message.fields.binary_search_by(|f| f.number.cmp(&number)) else { continue };
            let (Some(field), Some(count)) = (message.fields.get(at), seen.get_mut(at)) else { continue };
            let index = (field.max > 1).then_some(*count);
            *count += 1;
            set |= 1 << field.oneof;
            if field.max.checked_add(1) == Some(*count) {
                self.path.push((field.name, None));
                self.broken(&format!("may hold {} values", field.max));
                self.path.pop();
            }
            self.path.push((field.name, index));
            self.value(field, raw);
            self.path.pop();
            if self.found.len() >= MOST_FINDINGS {
                return;
            }
        }
        for at in message.required {
            let (Some(field), Some(count)) = (message.fields.get(*at), seen.get(*at)) else { continue };
            if *count < field.min {
                self.path.push((field.name, None));
                self.broken(&format!("is not given as often as it has to be ({count} of {})", field.min));
                self.path.pop();
            }
        }
        for (index, oneof) in message.oneofs.iter().enumerate() {
            if set & (1 << (index + 1)) == 0 {
                self.broken(&format!("one of {oneof} has to be given"));
            }
        }
    }

    fn value(&mut self, field: &'static Field, raw: Raw) {
        match (&field.kind, raw) {
            (Kind::Message(message), Raw::Bytes(bytes)) => {
                self.rules(field.rules, &Value::Text(bytes));
                self.message(message, bytes);
            }
            (Kind::Any, Raw::Bytes(bytes)) => self.any(bytes),
            (Kind::Opaque, Raw::Bytes(bytes)) => self.rules(field.rules, &Value::Text(bytes)),
            (Kind::Duration, Raw::Bytes(bytes)) => {
                let part = |number| match find(bytes, number) {
                    Some(Raw::Varint(n)) => i128::from(n.cast_signed()),
                    _ => 0,
                };
                self.rules(field.rules, &Value::Integer(part(1) * 1_000_000_000 + part(2)));
            }
            (Kind::WrappedSigned, Raw::Bytes(b)) => self.scalar(field.rules, &Kind::Signed, wrapped(b, Raw::Varint(0))),
            (Kind::WrappedUnsigned, Raw::Bytes(b)) => {
                self.scalar(field.rules, &Kind::Unsigned, wrapped(b, Raw::Varint(0)));
            }
            (Kind::WrappedFloat, Raw::Bytes(b)) => self.scalar(field.rules, &Kind::Float, wrapped(b, Raw::Fixed32(0))),
            (Kind::WrappedDouble, Raw::Bytes(b)) => {
                self.scalar(field.rules, &Kind::Double, wrapped(b, Raw::Fixed64(0)))
            }
            (Kind::WrappedText, Raw::Bytes(b)) => self.scalar(field.rules, &Kind::Text, wrapped(b, Raw::Bytes(&[]))),
            (Kind::Signed | Kind::Unsigned, Raw::Bytes(packed)) => {
                let mut rest = packed;
                while let Some(n) = varint(&mut rest) {
                    self.scalar(field.rules, &field.kind, Raw::Varint(n));
                }
            }
            (kind, raw) => self.scalar(field.rules, kind, raw),
        }
    }

    fn any(&mut self, bytes: &[u8]) {
        let (Some(Raw::Bytes(url)), value) = (find(bytes, 1), find(bytes, 2)) else { return };
        let name = url.rsplit(|b| *b == b'/').next().and_then(|n| std::str::from_utf8(n).ok()).unwrap_or_default();
        let value = match value {
            Some(Raw::Bytes(value)) => value,
            _ => &[],
        };
        if let Some(message) = validate::message(name) {
            self.message(message, value);
        }
    }

    fn scalar(&mut self, rules: &'static [Rule], kind: &Kind, raw: Raw) {
        match (kind, raw) {
            (Kind::Signed, Raw::Varint(n)) => self.rules(rules, &Value::Integer(n.cast_signed().into())),
            (Kind::Unsigned, Raw::Varint(n)) => self.rules(rules, &Value::Integer(n.into())),
            (Kind::Float, Raw::Fixed32(n)) => self.rules(rules, &Value::Real(f32::from_bits(n).into())),
            (Kind::Double, Raw::Fixed64(n)) => self.rules(rules, &Value::Real(f64::from_bits(n))),
            (Kind::Text, Raw::Bytes(text)) => self.rules(rules, &Value::Text(text)),
            _ => {}
        }
    }

    fn rules(&mut self, rules: &'static [Rule], value: &Value) {
        for rule in rules {
            if let Err(reason) = obeys(rule, value) {
                self.broken(&reason);
            }
        }
    }

    fn broken(&mut self, reason: &str) {
        if self.found.len() >= MOST_FINDINGS {
            return;
        }
        let mut field = String::new();
        for (name, index) in &self.path {
            let dot = if field.is_empty() { "" } else { "." };
            let _ = write!(field, "{dot}{name}");
            if let Some(index) = index {
                let _ = write!(field, "[{index}]");
            }
        }
        self.found.push(Violation { field, reason: reason.to_string() });
    }
}

enum Value<'a> {
    Integer(i128),
    Real(f64),
    Text(&'a [u8]),
}

fn obeys(rule: &Rule, value: &Value) -> Result<(), String> {
    let need = |holds: bool, reason: &dyn Fn() -> String| if holds { Ok(()) } else { Err(reason()) };
    match (rule, value) {
        (Rule::AtLeast(low), Value::Integer(n)) => need(n >= low, &|| format!("{n} is less than {low}")),
        (Rule::AtMost(high), Value::Integer(n)) => need(n <= high, &|| format!("{n} is more than {high}")),
        (Rule::OneOf(list), Value::Integer(n)) => {
            need(list.iter().any(|known| i128::from(*known) == *n), &|| format!("{n} is none of {list:?}"))
        }
        (Rule::NoneOf(list), Value::Integer(n)) => {
            need(!list.iter().any(|known| i128::from(*known) == *n), &|| format!("{n} is not allowed"))
        }
        (Rule::RealAtLeast(low), Value::Real(n)) => need(n >= low, &|| format!("{n} is less than {low}")),
        (Rule::RealAbove(low), Value::Real(n)) => need(n > low, &|| format!("{n} is not above {low}")),
        (Rule::RealAtMost(high), Value::Real(n)) => need(n <= high, &|| format!("{n} is more than {high}")),
        (Rule::RealBelow(high), Value::Real(n)) => need(n < high, &|| format!("{n} is not below {high}")),
        (Rule::UnlessEmpty(_), Value::Text([]) | Value::Integer(0)) => Ok(()),
        (Rule::UnlessEmpty(rules), value) => rules.iter().try_for_each(|rule| obeys(rule, value)),
        (Rule::Special(special), Value::Text(bytes)) => special::of_field(*special, bytes),
        (rule, Value::Text(bytes)) => text(rule, bytes),
        _ => Ok(()),
    }
}

fn text(rule: &Rule, bytes: &[u8]) -> Result<(), String> {
    let chars = || String::from_utf8_lossy(bytes).chars().count();
    let holds = match rule {
        Rule::MinChars(n) => bytes.len() >= *n && (*n <= 1 || chars() >= *n),
        Rule::MaxChars(n) => bytes.len() <= *n || chars() <= *n,
        Rule::MinBytes(n) => bytes.len() >= *n,
        Rule::MaxBytes(n) => bytes.len() <= *n,
        Rule::Prefix(prefix) => bytes.starts_with(prefix.as_bytes()),
        Rule::Suffix(suffix) => bytes.ends_with(suffix.as_bytes()),
        Rule::OneText(list) => list.iter().any(|known| known.as_bytes() == bytes),
        Rule::Pattern(pattern) => fits(pattern, bytes),
        Rule::HeaderName { strict } => is_header_name(bytes, *strict),
        Rule::HeaderValue { strict } => is_header_value(bytes, *strict),
        _ => true,
    };
    if holds { Ok(()) } else { Err(demand(rule, bytes)) }
}

/// The rule that a text breaks, for a person.
fn demand(rule: &Rule, bytes: &[u8]) -> String {
    let shown = shown(bytes);
    match rule {
        Rule::MinChars(_) | Rule::MinBytes(_) if bytes.is_empty() => "must not be empty".to_string(),
        Rule::MinChars(n) => format!("{shown} has less than {n} characters"),
        Rule::MaxChars(n) => format!("has more than {n} characters"),
        Rule::MinBytes(n) => format!("{shown} has less than {n} bytes"),
        Rule::MaxBytes(n) => format!("has {} bytes, more than {n}", bytes.len()),
        Rule::Prefix(prefix) => format!("{shown} does not begin with {prefix:?}"),
        Rule::Suffix(suffix) => format!("{shown} does not end with {suffix:?}"),
        Rule::OneText(list) => format!("{shown} is none of {list:?}"),
        Rule::Pattern(pattern) => format!("{shown} does not match {pattern}"),
        Rule::HeaderName { .. } => format!("{shown} is no header name"),
        _ => format!("{shown} holds characters that no header value may"),
    }
}

/// Whether a text fits a pattern of the table. Each pattern is compiled once in the process: there are as many as the table
/// of constant rules has.
fn fits(pattern: &'static str, bytes: &[u8]) -> bool {
    static COMPILED: LazyLock<Mutex<HashMap<&'static str, Option<Regex>>>> = LazyLock::new(Mutex::default);
    let mut compiled = COMPILED.lock();
    let regex = compiled.entry(pattern).or_insert_with(|| Regex::new(pattern).ok()).clone();
    drop(compiled);
    // A pattern that cannot be compiled refuses nothing.
    regex.is_none_or(|regex| regex.is_match(bytes))
}

fn is_header_name(bytes: &[u8], strict: bool) -> bool {
    if !strict {
        return !bytes.iter().any(|b| matches!(b, 0 | b'\n' | b'\r'));
    }
    let name = bytes.strip_prefix(b":").unwrap_or(bytes);
    name.iter().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_|~`".contains(b))
}

fn is_header_value(bytes: &[u8], strict: bool) -> bool {
    let control = |b: &u8| matches!(b, 0..=8 | 10..=31 | 127);
    if strict { !bytes.iter().any(control) } else { !bytes.iter().any(|b| matches!(b, 0 | b'\n' | b'\r')) }
}

/// The value inside of a wrapper, which is left out where it is the default.
fn wrapped<'a>(bytes: &'a [u8], default: Raw<'a>) -> Raw<'a> {
    find(bytes, 1).unwrap_or(default)
}
