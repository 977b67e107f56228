//! The objects of the cluster that are read: by namespace and by revision.

use super::{groups::is_custom, namespaces::Namespaces};
use crate::model::{Config, Kind};

/// The label that names the control plane that an object is for.
const REVISION: &str = "istio.io/rev";

/// Whether an object is delivered. An object without the label is for everybody; Gateway API's Gateway is exempt, its
/// revision is a matter of its translation (Istio's `inRevision`).
pub(super) fn is_ours(config: &Config, namespaces: &Namespaces, revision: &str) -> bool {
    let exempt = !is_custom(config.kind()) || config.kind() == Kind::KubernetesGateway || revision.is_empty();
    let in_revision = exempt || config.meta.labels.get(REVISION).is_none_or(|r| r == revision);
    let everywhere = config.kind() == Kind::Namespace;
    in_revision && (everywhere || namespaces.contains(&config.meta.namespace))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::model::{Mesh, Origin, decode::from_value};

    fn object(namespace: &str, revision: Option<&str>) -> Config {
        let labels = revision.map(|r| json!({REVISION: r}));
        let object = json!({"apiVersion": "networking.istio.io/v1", "kind": "Sidecar",
            "metadata": {"name": "a", "namespace": namespace, "labels": labels}});
        from_value(&object, Origin::default()).unwrap()
    }

    #[test]
    fn a_label_names_the_only_revision_that_reads_an_object() {
        let ours = |of: Option<&str>, own: &str| is_ours(&object("n", of), &Namespaces::All, own);
        assert!(ours(None, "") && ours(None, "canary") && ours(Some("canary"), "canary") && ours(Some("canary"), ""));
        assert!(!ours(Some("canary"), "default"));
    }

    #[test]
    fn selectors_decide_by_the_labels_of_the_namespace() {
        let namespace = |name: &str, env: &str| {
            let object =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"env": env}}});
            Arc::new(from_value(&object, Origin::default()).unwrap())
        };
        let objects = [namespace("a", "prod"), namespace("b", "test")];
        let selectors = json!({"discoverySelectors": [{"matchLabels": {"env": "prod"}}]});
        let mesh = Mesh::from_values(&selectors, &serde_json::Value::Null, "d", "c").unwrap();
        let selected = Namespaces::select(&mesh, Some(objects.iter()));
        assert!(is_ours(&object("a", None), &selected, "") && !is_ours(&object("b", None), &selected, ""));
        assert!(is_ours(&objects[1], &selected, ""));
        assert_eq!(Namespaces::select(&mesh, None::<std::slice::Iter<'_, Arc<Config>>>), Namespaces::Unknown);
        assert_eq!(Namespaces::select(&Mesh::default(), None::<std::slice::Iter<'_, Arc<Config>>>), Namespaces::All);
    }
}
