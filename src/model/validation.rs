//! Validation by kind, as in Istio's validation webhook.
//!
//! The rules concern one object alone: they see neither other objects nor the mesh nor a clock. Kinds without rules are valid.
//! Retired kinds are reported by decoding.

mod address;
mod authorization_policy;
pub mod cel;
mod check;
mod destination;
mod destination_rule;
mod envoy_filter;
mod extension;
#[cfg(any(test, feature = "testing"))]
pub mod fragments;
mod gateway;
mod gateway_api;
mod header;
mod http_route;
mod jwks;
mod locality;
mod mesh;
mod names;
mod peer_authentication;
mod policy;
mod range;
#[cfg(any(test, feature = "testing"))]
pub mod readers;
mod request_authentication;
mod schema;
mod server_tls;
mod service;
mod service_entry;
mod sidecar;
mod telemetry;
mod traffic_policy;
mod unreachable;
mod uri;
mod virtual_service;
mod workload;

use serde_json::Value;

use super::{Config, Kind, config::Spec, kind::KindClass};
use check::Check;
pub use header::is_jwt_claim;
pub use mesh::{mesh_config, mesh_networks};
pub use schema::api_server_refusals;
#[cfg(any(test, feature = "testing"))]
pub use schema::outline::outline;
pub use unreachable::{Cause, Unreachable, unreachable};

const DRY_RUN: &str = "istio.io/dry-run";
/// Annotations allowed on generated objects only, because they widen the effect of an object.
const RESERVED: [&str; 3] =
    ["internal.istio.io/webhook-always-reject", "internal.istio.io/parent-namespace", "internal.istio.io/parents"];

/// The findings about an object. Warnings do not make it invalid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validation {
    /// Reasons to refuse the object, each with the path of its field.
    pub errors: Vec<String>,
    /// Settings that are valid but probably mistakes.
    pub warnings: Vec<String>,
}

impl Validation {
    /// Whether there is no reason to refuse the object.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

/// Validates a document by the rules that an API server has for its kind. Every text begins with the path of the field. Kinds
/// without such rules here are valid.
#[must_use]
pub fn admission(kind: Kind, document: &Value) -> Validation {
    if kind == Kind::Service { service::admission(document) } else { gateway_api::admission(kind, document) }
}

/// Validates one object by the rules of its kind. Every text begins with the path of the field.
#[must_use]
pub fn validate(config: &Config) -> Validation {
    let mut metadata = Check::new("metadata.annotations");
    if config.kind().class() == KindClass::Istio {
        annotations(&mut metadata, config);
    }
    let refused = metadata.finish();
    if !refused.is_valid() {
        return refused;
    }
    let mut check = Check::new("spec");
    let c = &mut check;
    match &config.spec {
        Spec::AuthorizationPolicy(spec) => authorization_policy::validate(c, spec),
        Spec::DestinationRule(spec) => destination_rule::validate(c, config, spec),
        Spec::EnvoyFilter(spec) => envoy_filter::validate(c, spec),
        Spec::Gateway(spec) => gateway::validate(c, config, spec),
        Spec::PeerAuthentication(spec) => peer_authentication::validate(c, spec),
        Spec::ProxyConfig(spec) => {
            names::selector(c, "selector", spec.selector.as_ref().map(|s| &s.match_labels));
            c.field("concurrency", range::natural(spec.concurrency.unwrap_or(0)));
        }
        Spec::RequestAuthentication(spec) => request_authentication::validate(c, spec),
        Spec::ServiceEntry(spec) => service_entry::validate(c, config, &spec.read()),
        Spec::Sidecar(spec) => sidecar::validate(c, config, spec),
        Spec::Telemetry(spec) => telemetry::validate(c, spec),
        Spec::TrafficExtension(spec) => extension::traffic_extension(c, spec),
        Spec::VirtualService(spec) => virtual_service::validate(c, config, spec),
        Spec::WasmPlugin(spec) => extension::wasm_plugin(c, spec),
        Spec::WorkloadEntry(spec) => workload::entry(c, spec),
        Spec::WorkloadGroup(spec) => workload::group(c, spec),
        _ => {}
    }
    check.finish()
}

fn annotations(c: &mut Check, config: &Config) {
    let annotations = &config.meta.annotations;
    for name in RESERVED.iter().filter(|n| annotations.contains_key(**n)) {
        c.error(format_args!("{name} may not be set by users; remove it"));
    }
    if let Spec::AuthorizationPolicy(policy) = &config.spec {
        authorization_policy::dry_run(c, config, policy);
    }
    c.need(
        config.kind() == Kind::AuthorizationPolicy || !annotations.contains_key(DRY_RUN),
        format_args!("{DRY_RUN} is for AuthorizationPolicy only; remove it"),
    );
}
