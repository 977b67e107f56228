//! The verdict of a Kubernetes API server on an object of an Istio kind: the schema of its CustomResourceDefinition.
//!
//! Istio generates those definitions from its messages, so types, names of enums, ranges of unsigned numbers and alternatives
//! come from the messages here as well. `constraints` holds the limits that the messages lack, `rules` the CEL rules. Istio's
//! own rules, which decide whether an object is taken, are elsewhere: a file may hold an object that an API server would refuse.

mod constraints;
mod rules;
mod walk;

use std::sync::OnceLock;

use prost_reflect::{FieldDescriptor, Kind as FieldKind, MessageDescriptor};
use serde_json::Value;

use super::check::Check;
use crate::model::{Kind, decode::spec_descriptor, kind::KindClass};

/// Deepest nesting of a schema.
const DEEPEST: usize = 24;

/// The reasons for which an API server with Istio's definitions would refuse the document; none for kinds of other APIs. Every
/// text begins with the path of the field.
#[must_use]
pub fn api_server_refusals(kind: Kind, document: &Value) -> Vec<String> {
    let Some(schema) = of(kind) else { return Vec::new() };
    let mut check = Check::new("spec");
    match document.get("spec") {
        Some(spec) => walk::look(&mut check, spec, schema),
        None if constraints::SPEC_REQUIRED.contains(&kind) => check.error("it is required"),
        None => {}
    }
    check.finish().errors
}

/// A condition over a value, in words, and its test.
type Rule = (&'static str, fn(&Value) -> bool);

/// A limit on a field beyond those of its message.
#[derive(Debug, Clone, Copy)]
enum Limit {
    /// The field must be there.
    Required,
    /// Least and most characters of a text.
    Chars(usize, usize),
    /// The pattern of a text.
    Form(Rule),
    /// Least and greatest value of a number.
    Range(f64, f64),
    /// Fewest and most elements of a list or entries of a map.
    Items(usize, usize),
    /// The field in which the elements of a list differ.
    Differ(&'static str),
    /// Limits of the elements of a list, or of the values of a map.
    Each(&'static [Limit]),
    /// A CEL rule.
    Cel(Rule),
    /// A duration that may be any text.
    AnyText,
}

/// The schema of a value.
#[derive(Debug)]
struct Node {
    shape: Shape,
    /// Whether null is taken, which a wrapper of a scalar allows.
    nullable: bool,
    limits: Vec<Limit>,
}

#[derive(Debug)]
enum Shape {
    Text,
    Base64,
    Enum(Vec<String>),
    /// Least and greatest value; the greatest may be unbounded.
    Integer(i64, Option<i64>),
    Number,
    Bool,
    /// Free JSON.
    Free,
    List(Box<Node>),
    Map(Box<Node>),
    Object {
        fields: Vec<(String, Node)>,
        /// Groups of fields of which one at most may be set.
        alternatives: Vec<Vec<String>>,
    },
}

impl Node {
    fn new(shape: Shape, limits: &[Limit]) -> Self {
        Self { shape, nullable: false, limits: limits.to_vec() }
    }

    fn is_required(&self) -> bool {
        self.limits.iter().any(|limit| matches!(limit, Limit::Required))
    }
}

/// The schema of a kind's `spec`, made once.
fn of(kind: Kind) -> Option<&'static Node> {
    static SCHEMAS: [OnceLock<Option<Node>>; Kind::ALL.len()] = [const { OnceLock::new() }; Kind::ALL.len()];
    let place = Kind::ALL.iter().position(|k| *k == kind).filter(|_| kind.class() == KindClass::Istio)?;
    let make = || {
        let mut root = object(&spec_descriptor(kind)?, 0)?;
        root.limits.extend(constraints::of_kind(kind));
        Some(root)
    };
    SCHEMAS.get(place)?.get_or_init(make).as_ref()
}

/// The schema of a message.
fn object(message: &MessageDescriptor, depth: usize) -> Option<Node> {
    if depth > DEEPEST {
        return None;
    }
    let name = constraints::short_name(message);
    let mut fields = Vec::new();
    for field in message.fields() {
        let names = [Some(field.json_name()), constraints::second_name(&name, field.name())];
        for json in names.into_iter().flatten() {
            fields.push((json.to_string(), value(&field, constraints::of_field(&name, json), depth)?));
        }
    }
    let several = message.oneofs().filter(|one| !one.is_synthetic());
    let alternatives = several.map(|one| one.fields().map(|f| f.json_name().to_string()).collect()).collect();
    Some(Node::new(Shape::Object { fields, alternatives }, constraints::of_message(&name)))
}

/// The schema of a field.
fn value(field: &FieldDescriptor, limits: &[Limit], depth: usize) -> Option<Node> {
    let element = |limits: &[Limit]| -> &'static [Limit] {
        limits
            .iter()
            .find_map(|limit| if let Limit::Each(each) = limit { Some(*each) } else { None })
            .unwrap_or_default()
    };
    if let (true, FieldKind::Message(entry)) = (field.is_map(), field.kind()) {
        let of = one(&entry.map_entry_value_field().kind(), element(limits), depth)?;
        return Some(Node::new(Shape::Map(Box::new(of)), limits));
    }
    if field.is_list() {
        let of = one(&field.kind(), element(limits), depth)?;
        return Some(Node::new(Shape::List(Box::new(of)), limits));
    }
    one(&field.kind(), limits, depth)
}

/// The schema of one value of this type.
fn one(kind: &FieldKind, limits: &[Limit], depth: usize) -> Option<Node> {
    const UINT32: Shape = Shape::Integer(0, Some(u32::MAX as i64));
    const INT32: Shape = Shape::Integer(i32::MIN as i64, Some(i32::MAX as i64));
    let shape = match kind {
        FieldKind::String => Shape::Text,
        FieldKind::Bytes => Shape::Base64,
        FieldKind::Bool => Shape::Bool,
        FieldKind::Double | FieldKind::Float => Shape::Number,
        FieldKind::Uint32 | FieldKind::Fixed32 => UINT32,
        FieldKind::Uint64 | FieldKind::Fixed64 => Shape::Integer(0, None),
        FieldKind::Int32 | FieldKind::Sint32 | FieldKind::Sfixed32 => INT32,
        FieldKind::Int64 | FieldKind::Sint64 | FieldKind::Sfixed64 => Shape::Integer(i64::MIN, None),
        FieldKind::Enum(names) => Shape::Enum(names.values().map(|value| value.name().to_string()).collect()),
        FieldKind::Message(message) => {
            let wrapped = match message.full_name() {
                "google.protobuf.Struct" => return Some(Node::new(Shape::Free, limits)),
                "google.protobuf.Duration" => {
                    let mut node = Node::new(Shape::Text, limits);
                    if !limits.iter().any(|limit| matches!(limit, Limit::AnyText)) {
                        node.limits.push(Limit::Cel(rules::LONG_ENOUGH));
                    }
                    return Some(node);
                }
                "google.protobuf.BoolValue" => Shape::Bool,
                "google.protobuf.DoubleValue" | "google.protobuf.FloatValue" => Shape::Number,
                "google.protobuf.UInt32Value" => UINT32,
                "google.protobuf.UInt64Value" => Shape::Integer(0, None),
                "google.protobuf.Int32Value" => INT32,
                "google.protobuf.StringValue" => Shape::Text,
                _ => {
                    let mut node = object(message, depth + 1)?;
                    node.limits.extend(limits);
                    return Some(node);
                }
            };
            return Some(Node { nullable: true, ..Node::new(wrapped, limits) });
        }
    };
    Some(Node::new(shape, limits))
}

#[cfg(any(test, feature = "testing"))]
pub mod outline;

#[cfg(test)]
mod tests;
