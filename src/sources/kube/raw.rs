//! An object as the API server wrote it: its identity, and its text.
//!
//! Taking one in cannot fail while the answer is JSON at all, so that one object of a wrong shape never fails a list.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope, Resource};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// An object that is not decoded. Its metadata hold name, namespace and resource version only.
#[derive(Debug, Clone)]
pub struct RawObject {
    metadata: ObjectMeta,
    text: Box<RawValue>,
}

impl RawObject {
    /// Name; empty when it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Namespace; empty for cluster-scoped kinds.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The text, as it came.
    #[must_use]
    pub fn text(&self) -> &str {
        self.text.get()
    }
}

#[derive(Deserialize, Default)]
struct Envelope {
    #[serde(default)]
    metadata: ObjectHead,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectHead {
    #[serde(deserialize_with = "text_or_none")]
    name: Option<String>,
    #[serde(deserialize_with = "text_or_none")]
    namespace: Option<String>,
    #[serde(deserialize_with = "text_or_none")]
    resource_version: Option<String>,
}

fn text_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let ObjectHead { name, namespace, resource_version } =
            serde_json::from_str::<Envelope>(text.get()).unwrap_or_default().metadata;
        Ok(Self { metadata: ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() }, text })
    }
}

impl Resource for RawObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        of.kind.as_str().into()
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        of.group.as_str().into()
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        of.version.as_str().into()
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        of.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The metadata of an object; the server is asked for nothing else.
#[derive(Debug, Clone)]
pub(super) struct RawMetadata(pub(super) RawObject);

impl<'de> Deserialize<'de> for RawMetadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RawObject::deserialize(deserializer).map(Self)
    }
}

impl Resource for RawMetadata {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(of: &ApiResource) -> Cow<'_, str> {
        RawObject::kind(of)
    }

    fn group(of: &ApiResource) -> Cow<'_, str> {
        RawObject::group(of)
    }

    fn version(of: &ApiResource) -> Cow<'_, str> {
        RawObject::version(of)
    }

    fn plural(of: &ApiResource) -> Cow<'_, str> {
        RawObject::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }

    fn metadata_api() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_json_fails_a_list() {
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        let list = format!(
            r#"[{{"metadata":{{"name":"a","namespace":"n","resourceVersion":"7","labels":7}},"spec":{deep}}},
                7, null, {{"metadata":[]}}, {{"metadata":{{"name":{{}}}}}}]"#
        );
        let list: Vec<RawObject> = serde_json::from_str(&list).unwrap();
        assert_eq!((list[0].name(), list[0].namespace()), ("a", "n"));
        assert_eq!(list[0].meta().resource_version.as_deref(), Some("7"));
        assert!(list[1..].iter().all(|o| o.name().is_empty()));
    }
}
