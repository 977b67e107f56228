//! The schema of a kind, node by node, in the words of OpenAPI: for the comparison with Istio's definitions.
//!
//! Built for tests only. Nothing here decides anything.

use std::collections::BTreeMap;

use super::{Limit, Node, Shape, of};
use crate::model::Kind;

/// Path of a node → its properties, each as `name=value`. Elements of lists are `[]`, values of maps `{}`.
#[must_use]
pub fn outline(kind: Kind) -> BTreeMap<String, Vec<String>> {
    let mut nodes = BTreeMap::new();
    if let Some(root) = of(kind) {
        visit("spec", root, &mut nodes);
    }
    nodes
}

fn visit(path: &str, node: &Node, nodes: &mut BTreeMap<String, Vec<String>>) {
    let mut said = properties(node);
    match &node.shape {
        Shape::List(of) => visit(&format!("{path}[]"), of, nodes),
        Shape::Map(of) => visit(&format!("{path}{{}}"), of, nodes),
        Shape::Object { fields, alternatives } => {
            for (name, field) in fields {
                visit(&format!("{path}.{name}"), field, nodes);
            }
            let mut required: Vec<&str> =
                fields.iter().filter(|(_, f)| f.is_required()).map(|(n, _)| n.as_str()).collect();
            required.sort_unstable();
            if !required.is_empty() {
                said.push(format!("required={}", required.join(",")));
            }
            for group in alternatives {
                let mut group = group.clone();
                group.sort_unstable();
                said.push(format!("oneOf={}", group.join(",")));
            }
        }
        _ => {}
    }
    said.sort_unstable();
    nodes.insert(path.to_string(), said);
}

fn properties(node: &Node) -> Vec<String> {
    let mut said = Vec::new();
    let (mut least, mut most) = (None, None);
    let kind = match &node.shape {
        Shape::Text | Shape::Enum(_) | Shape::Base64 => "string",
        Shape::Integer(..) => "integer",
        Shape::Number => "number",
        Shape::Bool => "boolean",
        Shape::List(_) => "array",
        Shape::Free | Shape::Map(_) | Shape::Object { .. } => "object",
    };
    said.push(format!("type={kind}"));
    match &node.shape {
        Shape::Enum(names) => {
            let mut names = names.clone();
            names.sort_unstable();
            said.push(format!("enum={}", names.join(",")));
        }
        Shape::Base64 => said.push("format=byte".to_string()),
        Shape::Free => said.push("free".to_string()),
        Shape::Integer(low, high) if *low == i64::from(i32::MIN) && high.is_some() => {
            said.push("format=int32".to_string())
        }
        Shape::Integer(low, high) => {
            least = Some(*low as f64);
            most = high.map(|high| high as f64);
        }
        _ => {}
    }
    if node.nullable {
        said.push("nullable".to_string());
    }
    for limit in &node.limits {
        match limit {
            Limit::Chars(shortest, longest) => {
                said.extend((*shortest > 0).then(|| format!("minLength={shortest}")));
                said.extend((*longest < usize::MAX).then(|| format!("maxLength={longest}")));
            }
            Limit::Form(_) => said.push("pattern".to_string()),
            Limit::Range(low, high) => {
                least = Some(*low);
                most = Some(*high).filter(|high| high.is_finite());
            }
            Limit::Items(fewest, most) => {
                let of = if kind == "array" { "Items" } else { "Properties" };
                said.extend((*fewest > 0).then(|| format!("min{of}={fewest}")));
                said.extend((*most < usize::MAX).then(|| format!("max{of}={most}")));
            }
            Limit::Differ(key) => said.push(format!("keys={key}")),
            Limit::Required | Limit::Each(_) | Limit::Cel(_) | Limit::AnyText => {}
        }
    }
    said.extend(least.map(|n| format!("minimum={n}")));
    said.extend(most.map(|n| format!("maximum={n}")));
    let rules = node.limits.iter().filter(|limit| matches!(limit, Limit::Cel(_))).count();
    said.extend((rules > 0).then(|| format!("rules={rules}")));
    said
}
