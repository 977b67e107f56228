//! Objects that a Kubernetes API server would refuse although they are taken here: for `pilothouse validate`.

use std::{cell::OnceCell, path::Path};

use serde_json::Value;

use super::parse::{DocumentText, identity, list_items};
use crate::{
    model::{Kind, validation::api_server_refusals},
    sources::{Refused, yaml},
};

/// Reads a file for the sake of these objects. Documents that cannot be read have none.
pub(super) fn refused_by_api_server(path: &Path, text: &str) -> Vec<Refused> {
    let mut found = Vec::new();
    for chunk in yaml::documents(text) {
        let written = DocumentText { text: chunk.text, outline: OnceCell::new() };
        for document in yaml::values(chunk.text).unwrap_or_default() {
            let objects: Vec<(Option<usize>, &Value)> = match list_items(&document) {
                Some(items) => items.iter().enumerate().map(|(i, item)| (Some(i), item)).collect(),
                None => vec![(None, &document)],
            };
            for (item, object) in objects {
                let who = identity(object);
                let Some(kind) = Kind::parse(&who.api_version, &who.kind) else { continue };
                let reasons = api_server_refusals(kind, object);
                let Some(first) = reasons.first() else { continue };
                let (line, column) = written.place(item, first);
                found.push(Refused {
                    file: path.display().to_string(),
                    line: chunk.line + line,
                    column,
                    kind: who.kind,
                    namespace: kind.namespace(&who.namespace).to_string(),
                    name: who.name,
                    reason: reasons.join("; "),
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_the_fields() {
        let text = "a: 1\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: networking.istio.io/v1\n  kind: DestinationRule\n  \
                    metadata: {name: a}\n  spec:\n    host: a.example\n    trafficPolicy:\n      loadBalancer: {consistentHash: {minimumRingSize: '1'}}\n";
        let found = refused_by_api_server(Path::new("x.yaml"), text);
        let told: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        let place = "x.yaml:12:39: DestinationRule default/a refused: spec.trafficPolicy.loadBalancer.consistentHash.minimumRingSize: ";
        assert!(told[0].starts_with(place), "{told:?}");
    }
}
