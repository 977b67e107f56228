//! Mesh settings that apply by the labels of a namespace: `discoverySelectors`, which limit the namespaces whose Kubernetes
//! objects are read, and `serviceEntryVisibility`, which limits the visibility of ServiceEntries.

use std::collections::BTreeSet;

use super::{Labels, Visibility, labels};
use crate::proto::mesh::{
    LabelSelector, MeshConfig,
    service_entry_visibility::{Visibility as Scope, match_rule::Matcher},
};

/// Whether objects of a namespace with these labels are read. Without selectors all are; otherwise one selector has to match. A
/// namespace without a Namespace object (`None`) matches none.
#[must_use]
pub fn is_discovered(mesh: &MeshConfig, namespace: Option<&Labels>) -> bool {
    let selectors = &mesh.discovery_selectors;
    selectors.is_empty() || namespace.is_some_and(|labels| selectors.iter().any(|s| selects(s, labels)))
}

/// `exportTo` of a ServiceEntry, restricted by the mesh's `serviceEntryVisibility` where that applies to sidecars.
#[must_use]
pub fn capped_export_to(
    mesh: &MeshConfig,
    own: BTreeSet<Visibility>,
    namespace: &str,
    labels: Option<&Labels>,
) -> BTreeSet<Visibility> {
    let Some(rules) = mesh.service_entry_visibility.as_ref().filter(|v| v.apply_to_sidecars) else { return own };
    let default = || mesh.default_service_export_to.iter().map(|e| Visibility::parse(e)).collect();
    let declared: BTreeSet<Visibility> = if own.is_empty() { default() } else { own.clone() };
    if declared.len() == 1 && declared.contains(&Visibility::None) {
        return own;
    }
    let none = Labels::new();
    let labels = labels.unwrap_or(&none);
    let holds = |rule: &crate::proto::mesh::service_entry_visibility::MatchRule| match &rule.matcher {
        Some(Matcher::NamespaceSelector(selector)) => selects(selector, labels),
        None => false,
    };
    let policy = rules.policies.iter().find(|p| p.matching_rules.iter().all(holds));
    let local = |e: &Visibility| match e {
        Visibility::Public | Visibility::Private => true,
        Visibility::Namespace(name) => **name == *namespace,
        Visibility::None => false,
    };
    match policy.map_or(rules.default_visibility(), |p| p.visibility()) {
        Scope::Namespace if declared.is_empty() || declared.iter().any(local) => BTreeSet::from([Visibility::Private]),
        Scope::Namespace | Scope::None => BTreeSet::from([Visibility::None]),
        Scope::Unspecified | Scope::Public => own,
    }
}

/// Whether a Kubernetes label selector matches. An unknown operator matches nothing.
fn selects(selector: &LabelSelector, of: &Labels) -> bool {
    let holds = |e: &crate::proto::mesh::LabelSelectorRequirement| {
        let value = of.get(&e.key);
        match e.operator.as_str() {
            "In" => value.is_some_and(|v| e.values.contains(v)),
            "NotIn" => value.is_none_or(|v| !e.values.contains(v)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    };
    labels::matches(&selector.match_labels, of) && selector.match_expressions.iter().all(holds)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::Mesh;

    fn mesh(value: Value) -> Mesh {
        Mesh::from_values(&value, &Value::Null, "cluster.local", "c").unwrap()
    }

    fn labels(key: &str, value: &str) -> Labels {
        Labels::from([(key.to_string(), value.to_string())])
    }

    #[test]
    fn one_selector_has_to_match() {
        let mesh = mesh(json!({"discoverySelectors": [{"matchLabels": {"env": "prod"}},
            {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}]}));
        assert!(is_discovered(&mesh.config, Some(&labels("env", "prod"))));
        assert!(is_discovered(&mesh.config, Some(&labels("team", "b"))));
        assert!(!is_discovered(&mesh.config, Some(&labels("team", "c"))));
        assert!(!is_discovered(&mesh.config, None));
        assert!(is_discovered(&Mesh::default().config, None));
    }

    #[test]
    fn visibility_only_narrows() {
        let rules = json!({"applyToSidecars": true, "defaultVisibility": "NAMESPACE", "policies": [{"visibility": "PUBLIC",
            "matchingRules": [{"namespaceSelector": {"matchLabels": {"open": "yes"}}}]}]});
        let mesh = mesh(json!({"serviceEntryVisibility": rules}));
        let of = |own: &[&str], labels: Option<&Labels>| {
            let own = own.iter().map(|e| Visibility::parse(e)).collect();
            capped_export_to(&mesh.config, own, "ns", labels).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(of(&[], None), [Visibility::Private]);
        assert_eq!(of(&["other"], None), [Visibility::None]);
        assert_eq!(of(&["other"], Some(&labels("open", "yes"))), [Visibility::Namespace("other".into())]);
        assert_eq!(of(&["~"], None), [Visibility::None]);
    }
}
