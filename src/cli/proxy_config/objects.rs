//! The objects that resources were made from, as far as their metadata and the registry of a server name them.

use std::collections::BTreeMap;

use serde_json::Value;

/// An empty cell of a table.
pub(super) const NONE: &str = "-";

/// Name and namespace of the object in the metadata `istio.config` of a resource, as istioctl shows them.
pub(super) fn name_of(metadata: &Value) -> Option<String> {
    let (_, namespace, name) = parts(metadata)?;
    Some(format!("{name}.{namespace}"))
}

/// The same with the kind: `VirtualService/NAME.NAMESPACE`.
pub(super) fn object_of(metadata: &Value) -> Option<String> {
    let (kind, namespace, name) = parts(metadata)?;
    Some(format!("{}/{name}.{namespace}", in_words(kind)))
}

/// Kind (in kebab case), namespace and name of `/apis/GROUP/VERSION/namespaces/NAMESPACE/KIND/NAME`.
fn parts(metadata: &Value) -> Option<(&str, &str, &str)> {
    let path = metadata["filterMetadata"]["istio"]["config"].as_str()?;
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["", "apis", _, _, "namespaces", namespace, kind, name] => Some((kind, namespace, name)),
        _ => None,
    }
}

fn in_words(kebab: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(letters).collect::<String>()
    };
    kebab.split('-').map(capital).collect()
}

/// The objects behind services, by host and namespace.
#[derive(Debug, Clone, Default)]
pub(super) struct Services(BTreeMap<(String, String), String>);

impl Services {
    /// Of the page `/debug/registryz`.
    pub(super) fn of(registryz: &Value) -> Self {
        let entry = |service: &Value| {
            let text = |key: &str| service[key].as_str();
            let (host, namespace) = (text("hostname")?, text("namespace")?);
            let kind = if text("registry")? == "Kubernetes" { "Service" } else { "ServiceEntry" };
            let name = text("object_name").filter(|name| !name.is_empty()).or_else(|| text("name"))?;
            Some(((host.to_string(), namespace.to_string()), format!("{kind}/{name}.{namespace}")))
        };
        Self(registryz.as_array().into_iter().flatten().filter_map(entry).collect())
    }

    /// The objects of the services in the metadata `istio.services` of a cluster; of an unknown one its host and namespace.
    pub(super) fn of_cluster(&self, metadata: &Value) -> Option<String> {
        let services = metadata["filterMetadata"]["istio"]["services"].as_array()?;
        let shown = |service: &Value| {
            let text = |key: &str| service[key].as_str().unwrap_or_default().to_string();
            let (host, namespace) = (text("host"), text("namespace"));
            let unknown = format!("{namespace}/{host}");
            self.0.get(&(host, namespace)).cloned().unwrap_or(unknown)
        };
        Some(services.iter().map(shown).collect::<Vec<_>>().join(",")).filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_named_by_metadata() {
        let metadata = |path: &str| json!({"filterMetadata": {"istio": {"config": path}}});
        let of_rule = metadata("/apis/networking.istio.io/v1/namespaces/shop/destination-rule/web");
        assert_eq!(name_of(&of_rule).as_deref(), Some("web.shop"));
        assert_eq!(object_of(&of_rule).as_deref(), Some("DestinationRule/web.shop"));
        assert_eq!(name_of(&metadata("/apis/x")), None);
        assert_eq!(object_of(&Value::Null), None);
    }

    #[test]
    fn a_service_is_named_by_its_object_where_the_registry_is_known() {
        let services = Services::of(&json!([
            {"hostname": "a.example", "namespace": "shop", "name": "a.example", "object_name": "a", "registry": "External"},
            {"hostname": "b.shop.svc", "namespace": "shop", "name": "b", "object_name": "b", "registry": "Kubernetes"}]));
        let of = |host: &str| {
            let listed = json!([{"host": host, "name": "x", "namespace": "shop"}]);
            services.of_cluster(&json!({"filterMetadata": {"istio": {"services": listed}}}))
        };
        assert_eq!(of("a.example").as_deref(), Some("ServiceEntry/a.shop"));
        assert_eq!(of("b.shop.svc").as_deref(), Some("Service/b.shop"));
        assert_eq!(of("c.example").as_deref(), Some("shop/c.example"));
        assert_eq!(services.of_cluster(&json!({})), None);
    }
}
