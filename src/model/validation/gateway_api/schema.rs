//! The schema of a field, and the walk that compares a document with it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::model::validation::check::Check;

/// A rule over several fields of one value.
pub(super) type Rule = fn(&Value, &mut Check);

/// The schema of a value.
#[derive(Debug)]
pub(super) enum Node {
    /// A string: minimum and maximum length, and its form.
    Text(usize, usize, Form),
    /// A string out of these.
    Enum(&'static [&'static str]),
    /// An integer between these bounds, inclusive.
    Integer(i64, i64),
    /// An integer out of these.
    Code(&'static [i64]),
    /// A boolean.
    Bool,
    /// An object with these fields.
    Object(&'static [Field]),
    /// A list: the schema of its elements, their minimum and maximum number.
    List(&'static Node, usize, usize),
    /// A list whose elements differ in this field; with an empty name, in their whole value.
    Unique(&'static Node, usize, usize, &'static str),
    /// A map of strings to values of this schema, with a maximum number of entries.
    Map(&'static Node, usize),
    /// Another schema with rules over the whole value.
    Checked(&'static Node, &'static [Rule]),
}

/// The form of a string: its description and its test.
pub(super) type Form = (&'static str, fn(&str) -> bool);

/// A field of an object.
#[derive(Debug)]
pub(super) struct Field {
    name: &'static str,
    node: &'static Node,
    required: bool,
}

/// An optional field.
pub(super) const fn may(name: &'static str, node: &'static Node) -> Field {
    Field { name, node, required: false }
}

/// A required field.
pub(super) const fn must(name: &'static str, node: &'static Node) -> Field {
    Field { name, node, required: true }
}

impl Check {
    /// Compares a value with its schema.
    pub(super) fn look(&mut self, value: &Value, node: &Node) {
        match (node, value) {
            (Node::Text(shortest, longest, form), Value::String(text)) => self.text(text, *shortest, *longest, *form),
            (Node::Enum(names), Value::String(name)) => {
                self.need(names.contains(&name.as_str()), format_args!("{name:?} is none of {}", names.join(", ")));
            }
            (Node::Integer(least, most), Value::Number(number)) => {
                let fits = number.as_i64().is_some_and(|n| (*least..=*most).contains(&n));
                self.need(fits, format_args!("{number} is not between {least} and {most}"));
            }
            (Node::Code(codes), Value::Number(number)) => {
                let known = number.as_i64().is_some_and(|n| codes.contains(&n));
                self.need(known, format_args!("{number} is none of {codes:?}"));
            }
            (Node::Bool, Value::Bool(_)) => {}
            (Node::Object(fields), Value::Object(map)) => self.object(map, fields),
            (Node::List(of, fewest, most), Value::Array(list)) => self.list(list, of, *fewest, *most),
            (Node::Unique(of, fewest, most, key), Value::Array(list)) => {
                self.list(list, of, *fewest, *most);
                self.unique(list, key);
            }
            (Node::Map(of, most), Value::Object(map)) => {
                self.need(map.len() <= *most, format_args!("it has {} entries, more than {most}", map.len()));
                for (key, value) in map {
                    self.at(key, |walk| walk.look(value, of));
                }
            }
            (Node::Checked(node, rules), value) => {
                let before = self.found.errors.len();
                self.look(value, node);
                if self.found.errors.len() == before {
                    rules.iter().for_each(|rule| rule(value, self));
                }
            }
            (node, value) => self.error(format_args!("{} is not {}", short(value), node.name())),
        }
    }

    fn text(&mut self, text: &str, shortest: usize, longest: usize, (name, is): Form) {
        let length = text.chars().count();
        self.need(length >= shortest, "it is empty");
        self.need(length <= longest, format_args!("it is longer than {longest} characters"));
        if (shortest..=longest).contains(&length) {
            self.need(is(text), format_args!("{text:?} is not {name}"));
        }
    }

    fn object(&mut self, map: &Map<String, Value>, fields: &[Field]) {
        for field in fields {
            match map.get(field.name).filter(|value| !value.is_null()) {
                Some(value) => self.at(field.name, |walk| walk.look(value, field.node)),
                None if field.required => self.at(field.name, |walk| walk.error("it is missing")),
                None => {}
            }
        }
        for key in map.keys().filter(|key| fields.iter().all(|field| field.name != **key)) {
            self.found.warnings.push(format!("unknown field {}.{key}", self.path));
        }
    }

    fn list(&mut self, list: &[Value], of: &Node, fewest: usize, most: usize) {
        self.need(list.len() >= fewest, "it is empty");
        self.need(list.len() <= most, format_args!("it has {} elements, more than {most}", list.len()));
        for (i, value) in list.iter().enumerate().take(most) {
            self.step(format_args!("[{i}]"), |walk| walk.look(value, of));
        }
    }

    fn unique(&mut self, list: &[Value], key: &str) {
        let mut seen = BTreeSet::new();
        for (i, element) in list.iter().enumerate() {
            let value = if key.is_empty() { Some(element) } else { element.get(key) };
            let Some(value) = value.map(Value::to_string) else { continue };
            if seen.contains(&value) {
                self.step(format_args!("[{i}]"), |walk| walk.error(format_args!("{key} {value} is there twice")));
            }
            seen.insert(value);
        }
    }
}

impl Node {
    fn name(&self) -> &'static str {
        match self {
            Self::Text(..) | Self::Enum(_) => "a string",
            Self::Integer(..) | Self::Code(_) => "a number",
            Self::Bool => "true or false",
            Self::Object(_) | Self::Map(..) => "a map",
            Self::List(..) | Self::Unique(..) => "a list",
            Self::Checked(node, _) => node.name(),
        }
    }
}

fn short(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_string(),
        Value::Object(_) => "a map".to_string(),
        scalar => scalar.to_string(),
    }
}
