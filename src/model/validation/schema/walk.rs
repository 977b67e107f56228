//! Comparison of a value with its schema.

use std::collections::BTreeSet;

use k8s_openapi::ByteString;
use serde_json::{Map, Value};

use super::{Limit, Node, Shape};
use crate::model::validation::check::Check;

/// Most faults that are told of one object.
const MOST: usize = 20;

/// Records each reason for which the value does not fit.
pub(super) fn look(c: &mut Check, value: &Value, node: &Node) {
    if c.found.errors.len() >= MOST || (value.is_null() && node.nullable) {
        return;
    }
    let before = c.found.errors.len();
    match (&node.shape, value) {
        (Shape::Base64, Value::String(_)) => {
            c.need(serde_json::from_value::<ByteString>(value.clone()).is_ok(), "it must be base64");
        }
        (Shape::Enum(names), Value::String(name)) => {
            c.need(names.contains(name), format_args!("{name:?} is none of {}", names.join(", ")));
        }
        (Shape::Integer(least, most), Value::Number(number)) => {
            let whole = number.as_i64().or_else(|| whole(number.as_f64()?));
            let inside = whole.is_some_and(|n| n >= *least && most.is_none_or(|most| n <= most));
            let large = most.is_none() && number.as_u64().is_some();
            c.need(inside || large, format_args!("{number} is no whole number of its range"));
        }
        (Shape::Text, Value::String(_))
        | (Shape::Free, Value::Object(_))
        | (Shape::Number, Value::Number(_))
        | (Shape::Bool, Value::Bool(_)) => {}
        (Shape::List(of), Value::Array(list)) => {
            for (i, element) in list.iter().enumerate() {
                c.step(format_args!("[{i}]"), |c| look(c, element, of));
            }
        }
        (Shape::Map(of), Value::Object(map)) => {
            for (key, value) in map {
                c.at(key, |c| look(c, value, of));
            }
        }
        (Shape::Object { fields, alternatives }, Value::Object(map)) => {
            object(c, map, fields);
            for group in alternatives {
                let set: Vec<&str> = group.iter().map(String::as_str).filter(|name| map.contains_key(*name)).collect();
                c.need(set.len() < 2, format_args!("only one of {} may be set", set.join(", ")));
            }
        }
        (shape, value) => c.error(format_args!("{} must be {}", short(value), name(shape))),
    }
    // As in an API server, CEL rules see only values that fit otherwise.
    let (cel, plain): (Vec<&Limit>, Vec<&Limit>) = node.limits.iter().partition(|limit| matches!(limit, Limit::Cel(_)));
    for limit in plain.into_iter().chain(cel) {
        if c.found.errors.len() == before || !matches!(limit, Limit::Cel(_)) {
            apply(c, value, limit);
        }
    }
}

fn object(c: &mut Check, map: &Map<String, Value>, fields: &[(String, Node)]) {
    for (name, node) in fields {
        match map.get(name) {
            Some(value) => c.at(name, |c| look(c, value, node)),
            None if node.is_required() => c.at(name, |c| c.error("it is required")),
            None => {}
        }
    }
}

fn apply(c: &mut Check, value: &Value, limit: &Limit) {
    match (limit, value) {
        (Limit::Chars(least, most), Value::String(text)) => {
            let length = text.chars().count();
            c.need(length >= *least, "it must not be empty");
            c.need(length <= *most, format_args!("it has {length} characters, more than {most}"));
        }
        (Limit::Form((form, is)), value @ Value::String(text)) => {
            c.need(is(value), format_args!("{text:?} must be {form}"))
        }
        (Limit::Range(least, most), Value::Number(number)) => {
            let inside = number.as_f64().is_some_and(|n| (*least..=*most).contains(&n));
            c.need(inside, format_args!("{number} must be {}", range(*least, *most)));
        }
        (Limit::Items(fewest, most), Value::Array(_) | Value::Object(_)) => {
            let count = value.as_array().map_or_else(|| value.as_object().map_or(0, Map::len), Vec::len);
            c.need(count >= *fewest, "it must not be empty");
            c.need(count <= *most, format_args!("it has {count} entries, more than {most}"));
        }
        (Limit::Differ(key), Value::Array(list)) => {
            let mut seen = BTreeSet::new();
            for (i, element) in list.iter().enumerate() {
                let Some(value) = element.get(*key).map(Value::to_string) else { continue };
                if !seen.insert(value.clone()) {
                    c.step(format_args!("[{i}].{key}"), |c| c.error(format_args!("{value} is there twice")));
                }
            }
        }
        (Limit::Cel((text, holds)), value) => c.need(holds(value), text),
        _ => {}
    }
}

fn range(least: f64, most: f64) -> String {
    if most == f64::INFINITY { format!("at least {least}") } else { format!("in {least}..{most}") }
}

/// A whole number that is written with a fraction of zero.
fn whole(number: f64) -> Option<i64> {
    let exact = number.fract() == 0.0 && number.abs() < 9e15;
    #[allow(clippy::cast_possible_truncation, reason = "the number is whole and small")]
    exact.then_some(number as i64)
}

fn name(shape: &Shape) -> &'static str {
    match shape {
        Shape::Text | Shape::Base64 | Shape::Enum(_) => "a string",
        Shape::Integer(..) => "a whole number",
        Shape::Number => "a number",
        Shape::Bool => "true or false",
        Shape::List(_) => "a list",
        Shape::Map(_) | Shape::Object { .. } | Shape::Free => "a map",
    }
}

fn short(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_string(),
        Value::Object(_) => "a map".to_string(),
        scalar => scalar.to_string(),
    }
}
