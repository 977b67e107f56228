//! The mutual TLS mode that clients may assume of a service (Istio's `BestEffortInferServiceMTLSMode`).

use super::MtlsMode;
use crate::{
    model::{Endpoint, Resolution, Service},
    proto::networking::{
        TrafficPolicy,
        load_balancer_settings::{LbPolicy, SimpleLb},
    },
    push::context::PushContext,
};

/// `security.istio.io/tlsMode` of an endpoint without a sidecar.
const TLS_DISABLED: &str = "disabled";

impl PushContext {
    /// The mode of a service's port as clients see it: the namespace's or the mesh's; `Unknown` for a service outside of
    /// the mesh. Where the client dials the address itself it is disabled unless all endpoints have a sidecar.
    #[must_use]
    pub fn service_mtls_mode(&self, policy: Option<&TrafficPolicy>, service: &Service, port: u32) -> MtlsMode {
        if service.mesh_external {
            return MtlsMode::Unknown;
        }
        let passthrough = service.resolution == Resolution::Passthrough || policy.is_some_and(is_passthrough);
        if passthrough && !self.all_have_sidecars(service, port) {
            return MtlsMode::Disable;
        }
        self.authn.namespace_mode(&service.namespace)
    }

    fn all_have_sidecars(&self, service: &Service, port: u32) -> bool {
        let Some(set) = self.endpoints().get(&service.hostname, &service.namespace) else { return false };
        let mut endpoints = set.iter().filter(|endpoint| serves(endpoint, service, port)).peekable();
        endpoints.peek().is_some() && endpoints.all(|endpoint| *endpoint.tls_mode != *TLS_DISABLED)
    }
}

fn is_passthrough(policy: &TrafficPolicy) -> bool {
    let simple = policy.load_balancer.as_ref().and_then(|lb| match lb.lb_policy.as_ref()? {
        LbPolicy::Simple(simple) => Some(*simple),
        LbPolicy::ConsistentHash(_) | LbPolicy::BackendUtilization(_) => None,
    });
    simple == Some(SimpleLb::Passthrough as i32)
}

/// Whether the endpoint belongs to this port of the service: by number where it says so, else by name.
fn serves(endpoint: &Endpoint, service: &Service, port: u32) -> bool {
    match endpoint.legacy_cluster_port_key {
        0 => service.port_by_name(&endpoint.service_port_name).is_some_and(|p| p.port == port),
        key => key == port,
    }
}
