//! One endpoint in Envoy's form: address, weight, health, and the metadata that transport sockets and telemetry read
//! (Istio's `buildEnvoyLbEndpoint`, `AppendLbEndpointMetadata`).

use std::collections::BTreeMap;

use super::{client::canonical_service, group::Member, inputs::EndpointInputs};
use crate::{
    generate::names,
    model::{Endpoint, HealthStatus},
    proto::{
        envoy::config::{
            core::v3 as core,
            endpoint::v3::{self as envoy, LbEndpoint, endpoint::AdditionalAddress, lb_endpoint::HostIdentifier},
        },
        networking::client_tls_settings::TlSmode,
        wkt,
    },
    push::{OwnPeer, authn::MtlsMode, network_gateways::NetworkGateway},
};

/// Metadata that Envoy matches transport sockets by.
const TRANSPORT_SOCKET_MATCH: &str = "envoy.transport_socket_match";
const TLS_MODE: &str = "tlsMode";
const ISTIO_MUTUAL: &str = "istio";
const CANONICAL_NAME: &str = "service.istio.io/canonical-name";
const CANONICAL_REVISION: &str = "service.istio.io/canonical-revision";

/// The endpoint as a member of a group.
pub(super) fn of_endpoint(inputs: &EndpointInputs<'_>, endpoint: &Endpoint) -> Member {
    let mtls_wanted = mtls_wanted(inputs, endpoint);
    let tls_mode = if mtls_wanted { &*endpoint.tls_mode } else { "" };
    let health = if is_draining(inputs, endpoint) { HealthStatus::Draining } else { endpoint.health };
    let first = endpoint.addresses.first().map_or("", |a| &**a);
    let additional =
        if inputs.features.istio_dual_stack { endpoint.addresses.get(1..).unwrap_or_default() } else { &[] };
    let additional_addresses =
        additional.iter().map(|ip| AdditionalAddress { address: Some(names::address(ip, endpoint.port)) }).collect();
    let mut metadata = core::Metadata::default();
    add_tls_mode(&mut metadata, tls_mode);
    if telemetry_labels(inputs) {
        add_workload(&mut metadata, workload(inputs, endpoint));
    }
    if inputs.client.counts {
        metadata.filter_metadata.insert(OwnPeer::METADATA.to_string(), peer(inputs, endpoint));
    }
    Member {
        labels: endpoint.labels.clone(),
        network: endpoint.network.clone(),
        cluster: endpoint.cluster.clone(),
        mtls: tls_mode == ISTIO_MUTUAL,
        endpoint: LbEndpoint {
            health_status: envoy_health(health).into(),
            load_balancing_weight: Some(endpoint.lb_weight.max(1)),
            metadata: Some(metadata),
            host_identifier: Some(HostIdentifier::Endpoint(envoy::Endpoint {
                address: Some(names::address(first, endpoint.port)),
                additional_addresses,
                ..Default::default()
            })),
        },
    }
}

/// A gateway of another network as an endpoint.
pub(super) fn of_gateway(inputs: &EndpointInputs<'_>, gateway: &NetworkGateway, weight: u32) -> LbEndpoint {
    let mut metadata = core::Metadata::default();
    add_tls_mode(&mut metadata, ISTIO_MUTUAL);
    if telemetry_labels(inputs) {
        add_workload(&mut metadata, format!(";;;;{}", gateway.cluster));
    }
    LbEndpoint {
        load_balancing_weight: Some(weight),
        metadata: Some(metadata),
        host_identifier: Some(HostIdentifier::Endpoint(envoy::Endpoint {
            address: Some(names::address(&gateway.address, gateway.port)),
            ..Default::default()
        })),
        ..Default::default()
    }
}

/// The host that an endpoint leads to; `None` for a pipe or an empty address.
pub(super) fn host(endpoint: &LbEndpoint) -> Option<&str> {
    let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else {
        return None;
    };
    match endpoint.address.as_ref()?.address.as_ref()? {
        core::address::Address::SocketAddress(socket) if !socket.address.is_empty() => Some(&socket.address),
        _ => None,
    }
}

/// Terminating, by its state or by its label.
pub(super) fn is_draining(inputs: &EndpointInputs<'_>, endpoint: &Endpoint) -> bool {
    let label = &inputs.features.draining_label;
    let labelled = !label.is_empty() && endpoint.labels.get(label).is_some_and(|v| !v.is_empty());
    endpoint.health == HealthStatus::Draining || labelled
}

/// Whether a client is to use mutual TLS: by the rule, else where the endpoint has a sidecar and its
/// PeerAuthentication does not forbid it (Istio's `checkMtlsEnabled`).
fn mtls_wanted(inputs: &EndpointInputs<'_>, endpoint: &Endpoint) -> bool {
    if let Some(mode) = inputs.rule_tls_mode() {
        return mode == TlSmode::IstioMutual;
    }
    &*endpoint.tls_mode == ISTIO_MUTUAL
        && inputs.authn.mode(&endpoint.namespace, &*endpoint.labels, Some(endpoint.port)) != MtlsMode::Disable
}

fn envoy_health(health: HealthStatus) -> core::HealthStatus {
    match health {
        HealthStatus::Unknown => core::HealthStatus::Unknown,
        HealthStatus::Healthy => core::HealthStatus::Healthy,
        HealthStatus::UnHealthy => core::HealthStatus::Unhealthy,
        HealthStatus::Draining | HealthStatus::Terminating => core::HealthStatus::Draining,
    }
}

fn telemetry_labels(inputs: &EndpointInputs<'_>) -> bool {
    inputs.features.enable_telemetry_label && inputs.features.endpoint_telemetry_label
}

/// `workload;namespace;canonical name;canonical revision;cluster`.
fn workload(inputs: &EndpointInputs<'_>, endpoint: &Endpoint) -> String {
    let (mut name, mut revision) = canonical_service(endpoint);
    let mut namespace = &endpoint.namespace;
    let service = inputs.service;
    if inputs.features.label_canonical_services_for_mesh_external_service_entries && service.mesh_external {
        namespace = &service.namespace;
        if let Some(own) = service.labels.get(CANONICAL_NAME) {
            name = own;
            revision = service.labels.get(CANONICAL_REVISION).map_or("", String::as_str);
            revision = if revision == "latest" { "" } else { revision };
        }
    }
    [&*endpoint.workload_name, namespace, name, revision, &*endpoint.cluster].join(";")
}

/// The endpoint as the client counts it.
fn peer(inputs: &EndpointInputs<'_>, endpoint: &Endpoint) -> wkt::Struct {
    let (namespace, else_) = match inputs.service.mesh_external {
        true => (&inputs.service.namespace, &*inputs.service.name),
        false => (&endpoint.namespace, ""),
    };
    let of = [&*endpoint.workload_name, &**namespace, &*endpoint.cluster];
    let peer = OwnPeer::of_labels(|key| endpoint.labels.get(key), of, else_);
    let text = |field: &str| wkt::Value { kind: Some(wkt::value::Kind::StringValue(peer.value(field).to_string())) };
    wkt::Struct { fields: OwnPeer::FIELDS.map(|field| (field.to_string(), text(field))).into() }
}

fn add_tls_mode(metadata: &mut core::Metadata, mode: &str) {
    if !mode.is_empty() && mode != "disabled" {
        metadata.filter_metadata.insert(TRANSPORT_SOCKET_MATCH.to_string(), text_field(TLS_MODE, mode.to_string()));
    }
}

fn add_workload(metadata: &mut core::Metadata, workload: String) {
    metadata.filter_metadata.insert("istio".to_string(), text_field("workload", workload));
}

fn text_field(key: &str, value: String) -> wkt::Struct {
    let value = wkt::Value { kind: Some(wkt::value::Kind::StringValue(value)) };
    wkt::Struct { fields: BTreeMap::from([(key.to_string(), value)]) }
}
