//! The resources that were sent to a proxy, in the form of Envoy's own `/config_dump`. Each section is there, empty where nothing was sent:
//! readers of dumps take one that is missing for an error. The bootstrap is the proxy's own, so its section is empty.

use std::sync::Arc;

use prost::Message;
use prost_reflect::{DynamicMessage, SerializeOptions};
use serde_json::{Value, json};

use super::document::REDACTED;
use crate::{
    discovery::Connection,
    proto::{pool, wkt},
    xds::{Resource, ResourceType, Snapshot},
};

/// The types of a dump: the dump's message, the list in it, the field of the resource.
const SECTIONS: &[(ResourceType, &str, &str, &str)] = &[
    (ResourceType::Cluster, "ClustersConfigDump", "dynamicActiveClusters", "cluster"),
    (ResourceType::Endpoint, "EndpointsConfigDump", "dynamicEndpointConfigs", "endpointConfig"),
    (ResourceType::Listener, "ListenersConfigDump", "dynamicListeners", "listener"),
    (ResourceType::Route, "RoutesConfigDump", "dynamicRouteConfigs", "routeConfig"),
    (ResourceType::Secret, "SecretsConfigDump", "dynamicActiveSecrets", "secret"),
    (ResourceType::Extension, "EcdsConfigDump", "ecdsFilters", "ecdsFilter"),
];

/// Sections of Envoy's dump that nothing sent can be in.
const EMPTY_SECTIONS: &[&str] = &["BootstrapConfigDump", "ScopedRoutesConfigDump"];

/// The dump of a connection. `types` are short names (`cds`, …; empty is all), `resource` picks one by name.
pub(super) fn dump(connection: &Connection, types: &[&str], resource: Option<&str>) -> Value {
    sections(|kind| connection.status(kind).sent, types, resource)
}

fn sections(sent: impl Fn(ResourceType) -> Option<Arc<Snapshot>>, types: &[&str], resource: Option<&str>) -> Value {
    let url = |message: &str| format!("type.googleapis.com/envoy.admin.v3.{message}");
    let empty = EMPTY_SECTIONS.iter().filter(|_| types.is_empty());
    let mut configs: Vec<Value> = empty.map(|message| json!({"@type": url(message)})).collect();
    for (kind, message, list, field) in SECTIONS {
        if !types.is_empty() && !types.contains(&kind.label()) && !types.contains(&kind.short()) {
            continue;
        }
        let sent = sent(*kind);
        let sent = sent.iter().flat_map(|snapshot| snapshot.iter());
        let entries: Vec<Value> =
            sent.filter(|r| resource.is_none_or(|name| name == &**r.name())).map(|r| entry(*kind, field, r)).collect();
        configs.push(json!({"@type": url(message), *list: entries}));
    }
    json!({ "configs": configs })
}

fn entry(kind: ResourceType, field: &str, resource: &Resource) -> Value {
    let content = redacted(kind, resource);
    let version = resource.version();
    if kind == ResourceType::Listener {
        return json!({"name": &**resource.name(), "activeState": {"versionInfo": version, field: content}});
    }
    json!({"versionInfo": version, field: content})
}

/// The message of a resource as proto3 JSON, without private keys.
pub(super) fn redacted(kind: ResourceType, resource: &Resource) -> Value {
    let mut content = to_json(resource);
    if kind == ResourceType::Secret {
        redact(&mut content);
    }
    content
}

/// The message of a resource as proto3 JSON.
pub(super) fn to_json(resource: &Resource) -> Value {
    let unreadable = |error: String| json!({"name": &**resource.name(), "error": error});
    let any = match wkt::Any::decode(resource.any().clone()) {
        Ok(any) => any,
        Err(error) => return unreadable(error.to_string()),
    };
    let name = any.type_url.rsplit('/').next().unwrap_or_default();
    let Some(descriptor) = pool().get_message_by_name(name) else {
        return unreadable(format!("unknown type {}", any.type_url));
    };
    DynamicMessage::decode(descriptor, any.value.as_slice())
        .map_err(|e| e.to_string())
        .and_then(|m| {
            m.serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new()).map_err(|e| e.to_string())
        })
        .map(|mut value| {
            if let Some(object) = value.as_object_mut() {
                object.insert("@type".to_string(), Value::from(any.type_url));
            }
            value
        })
        .unwrap_or_else(unreadable)
}

fn redact(secret: &mut Value) {
    for path in
        ["/tlsCertificate/privateKey", "/tlsCertificate/password", "/genericSecret/secret", "/sessionTicketKeys"]
    {
        if let Some(value) = secret.pointer_mut(path) {
            *value = Value::from(REDACTED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::{
        config::core::v3::{DataSource, data_source::Specifier},
        extensions::transport_sockets::tls::v3::{Secret, TlsCertificate, secret::Type},
    };

    #[test]
    fn every_section_that_readers_look_for_is_there() {
        let types = |filter: &[&str]| -> Vec<String> {
            let dump = sections(|_| None, filter, None);
            let urls = dump["configs"].as_array().unwrap().iter().map(|c| c["@type"].as_str().unwrap().to_string());
            urls.map(|url| url.rsplit('.').next().unwrap().to_string()).collect()
        };
        let all = types(&[]);
        for section in ["Bootstrap", "Clusters", "Endpoints", "Listeners", "Routes", "Secrets", "Ecds"] {
            assert!(all.contains(&format!("{section}ConfigDump")), "{section} in {all:?}");
        }
        assert_eq!(types(&["cds"]), ["ClustersConfigDump"]);
    }

    #[test]
    fn private_keys_are_never_shown() {
        let source = |text: &str| {
            Some(DataSource { specifier: Some(Specifier::InlineString(text.to_string())), ..DataSource::default() })
        };
        let certificate = TlsCertificate {
            certificate_chain: source("chain"),
            private_key: source("hush"),
            ..TlsCertificate::default()
        };
        let secret = Secret { name: "a".to_string(), r#type: Some(Type::TlsCertificate(certificate)) };
        let text = entry(ResourceType::Secret, "secret", &Resource::encode("a", &secret)).to_string();
        assert!(text.contains("chain") && !text.contains("hush"), "{text}");
    }
}
