//! Metadata of clusters for Istio's filters and telemetry: `filterMetadata.istio`.

use crate::{
    model::{Service, ServiceTarget},
    proto::{
        envoy::config::{cluster::v3::Cluster, core::v3::Metadata},
        wkt,
    },
    push::{MergedDestinationRule, OwnPeer},
};

const ISTIO: &str = "istio";

/// The services that a cluster stands for.
pub(super) fn add_services<'a>(cluster: &mut Cluster, services: impl IntoIterator<Item = &'a Service>) {
    let values = services.into_iter().map(service).collect();
    let list = wkt::value::Kind::ListValue(wkt::ListValue { values });
    set(cluster, "services", list);
}

/// The service by which an Envoy that counts tells the cluster's traffic apart.
pub(super) fn add_counted(cluster: &mut Cluster, service: &Service) {
    add_names(cluster, [&service.hostname, &service.name, &service.namespace]);
}

/// The cluster's own name in place of a service, which it has not.
pub(super) fn add_nameless(cluster: &mut Cluster) {
    let name = cluster.name.clone();
    add_names(cluster, [&name, &name, "unknown"]);
}

fn add_names(cluster: &mut Cluster, names: [&str; 3]) {
    let text = |text: &str| wkt::Value { kind: Some(wkt::value::Kind::StringValue(text.to_string())) };
    let keys = ["service", "service_name", "service_namespace"].into_iter().zip(names);
    let fields = keys.map(|(key, name)| (key.to_string(), text(name))).collect();
    let metadata = cluster.metadata.get_or_insert_with(Metadata::default);
    metadata.filter_metadata.insert(OwnPeer::METADATA.to_string(), wkt::Struct { fields });
}

/// The services of an inbound cluster: one per host, and only those with the port of the first.
pub(super) fn add_inbound_services(cluster: &mut Cluster, targets: &[ServiceTarget]) {
    let Some(first) = targets.first().filter(|t| !t.service.mesh_external) else {
        return;
    };
    let mut services: Vec<&Service> = Vec::new();
    for target in targets.iter().filter(|t| t.port.port == first.port.port) {
        if !services.iter().any(|s| s.hostname == target.service.hostname) {
            services.push(&target.service);
        }
    }
    add_services(cluster, services);
}

/// The DestinationRule that a cluster follows.
pub(super) fn add_rule(cluster: &mut Cluster, rule: &MergedDestinationRule) {
    let path = format!("/apis/networking.istio.io/v1/namespaces/{}/destination-rule/{}", rule.namespace, rule.name);
    add_text(cluster, "config", &path);
}

/// A text under a key.
pub(super) fn add_text(cluster: &mut Cluster, key: &str, text: &str) {
    set(cluster, key, wkt::value::Kind::StringValue(text.to_string()));
}

/// The cluster is outside of the mesh.
pub(super) fn add_external(cluster: &mut Cluster) {
    set(cluster, "external", wkt::value::Kind::BoolValue(true));
}

fn set(cluster: &mut Cluster, key: &str, kind: wkt::value::Kind) {
    let metadata = cluster.metadata.get_or_insert_with(Metadata::default);
    let fields = &mut metadata.filter_metadata.entry(ISTIO.to_string()).or_default().fields;
    fields.insert(key.to_string(), wkt::Value { kind: Some(kind) });
}

fn service(service: &Service) -> wkt::Value {
    let text = |text: &str| wkt::Value { kind: Some(wkt::value::Kind::StringValue(text.to_string())) };
    let fields = [
        ("host".to_string(), text(&service.hostname)),
        ("name".to_string(), text(&service.name)),
        ("namespace".to_string(), text(&service.namespace)),
    ];
    wkt::Value { kind: Some(wkt::value::Kind::StructValue(wkt::Struct { fields: fields.into() })) }
}
