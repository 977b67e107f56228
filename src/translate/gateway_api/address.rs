//! Services behind a Gateway, and their effect on its addresses and on `Programmed`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    class::Controller,
    conditions::{Conditions, Problem, human_join},
    input::{Input, Object},
    types::gateway::GatewaySpec,
};
use crate::{
    model::{Endpoint, Service},
    proto::networking::Server,
};

const NAME_OVERRIDE: &str = "gateway.istio.io/name-override";
const SERVICE_TYPE: &str = "networking.istio.io/service-type";
const MANAGED: &str = "gateway.istio.io/managed";

/// Whether Istio deploys the Gateway, because its addresses name no existing service.
pub fn is_managed(input: &Input<'_>, spec: &GatewaySpec) -> bool {
    if !input.objects.features().enable_gateway_api_manual_deployment {
        return true;
    }
    match spec.addresses.as_slice() {
        [] => true,
        [one] => one.r#type.as_deref().is_none_or(|t| t == "IPAddress"),
        _ => false,
    }
}

/// Name of the Deployment and Service of a Gateway.
pub fn default_name(gateway: &Object<GatewaySpec>, controller: Controller) -> String {
    match controller.disables_name_suffix() {
        true => gateway.name().to_string(),
        false => format!("{}-{}", gateway.name(), gateway.spec.gateway_class_name),
    }
}

/// Host names of the services of a Gateway, and the problem of its unsupported addresses.
pub fn services(
    input: &Input<'_>,
    gateway: &Object<GatewaySpec>,
    controller: Controller,
) -> (Vec<String>, Option<Problem>) {
    let (namespace, domain) = (gateway.namespace(), input.domain());
    let annotations = &gateway.config.meta.annotations;
    if is_managed(input, &gateway.spec) {
        let given = annotations.get(NAME_OVERRIDE).filter(|n| !n.is_empty()).cloned();
        let name = given.unwrap_or_else(|| default_name(gateway, controller));
        return (vec![format!("{name}.{namespace}.svc.{domain}")], None);
    }
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    for address in &gateway.spec.addresses {
        if address.r#type.as_deref().is_some_and(|t| t != "Hostname") {
            skipped.push(address.value.as_str());
        } else if address.value.contains('.') {
            found.push(address.value.clone());
        } else {
            found.push(format!("{}.{namespace}.svc.{domain}", address.value));
        }
    }
    let problem = if !skipped.is_empty() {
        let message = format!("only Hostname is supported, ignoring [{}]", skipped.join(" "));
        Some(Problem::new("UnsupportedAddress", message))
    } else if annotations.contains_key(SERVICE_TYPE) {
        let message = format!("annotation {SERVICE_TYPE} is deprecated, use Spec.Infrastructure.Routeability");
        Some(Problem::new("DeprecatedField", message))
    } else {
        None
    };
    (found, problem)
}

/// The places at which the servers of a Gateway are exposed.
#[derive(Debug, Default)]
pub struct Instances {
    /// `host:port` of every service port with an instance.
    pub internal: BTreeSet<String>,
    /// Cluster-internal addresses of the services.
    pub internal_ips: BTreeSet<String>,
    /// External addresses of the services.
    pub external: BTreeSet<String>,
    /// Host names of services that wait for an address.
    pub pending: BTreeSet<String>,
    warnings: Vec<String>,
    unusable: bool,
}

impl Instances {
    /// Looks up the services in the namespace of the Gateway.
    pub fn resolve<'s>(
        input: &Input<'_>,
        namespace: &str,
        services: &[String],
        servers: impl Iterator<Item = &'s Server>,
    ) -> Self {
        let mut found = Self::default();
        let ports: BTreeSet<u32> = servers.filter_map(|s| s.port.as_ref()).map(|p| p.number).collect();
        for host in services {
            match input.service(host, namespace) {
                Some(service) => {
                    let instances = instances(input, service);
                    ports.iter().for_each(|port| found.look(input, host, service, &instances, *port));
                }
                None => found.missing(input, host, namespace),
            }
        }
        found.warnings.sort();
        found
    }

    fn missing(&mut self, input: &Input<'_>, host: &str, namespace: &str) {
        let others: BTreeSet<String> =
            input.objects.services(host).iter().map(|s| format!("{:?}", &*s.namespace)).collect();
        let others: Vec<String> = others.into_iter().collect();
        self.warnings.push(match others.is_empty() {
            true => format!("hostname {host:?} not found"),
            false => format!(
                "hostname {host:?} not found in namespace {namespace:?}, but it was found in namespace(s) {}",
                others.join(", ")
            ),
        });
        self.unusable = true;
    }

    fn look(
        &mut self,
        input: &Input<'_>,
        host: &str,
        service: &Service,
        instances: &BTreeMap<u32, Vec<&Endpoint>>,
        port: u32,
    ) {
        if instances.contains_key(&port) {
            self.internal.insert(format!("{host}:{port}"));
            let vips = service.cluster_vips.get(&input.objects.mesh().cluster_id).filter(|v| !v.is_empty());
            match vips {
                Some(vips) => self.internal_ips.extend(vips.iter().cloned()),
                None if service.default_address.is_empty() => {}
                None => {
                    self.internal_ips.insert(service.default_address.clone());
                }
            }
            if !service.cluster_external_addresses.is_empty() {
                self.external.extend(service.cluster_external_addresses.values().flatten().cloned());
            } else if service.service_type == "LoadBalancer" && self.pending.insert(host.to_string()) {
                self.warnings.push(format!("address pending for hostname {host:?}"));
            }
            return;
        }
        if instances.is_empty() {
            self.warnings.push(format!("no instances found for hostname {host:?}"));
            return;
        }
        let meant = instances.iter().filter(|(_, list)| list.iter().any(|e| e.port == port));
        let mut meant: Vec<String> = meant.map(|(service_port, _)| service_port.to_string()).collect();
        meant.sort();
        let managed = service.labels.contains_key(MANAGED);
        if !meant.is_empty() {
            self.warnings.push(format!(
                "port {port} not found for hostname {host:?} (hint: the service port should be specified, not the \
                 workload port. Did you mean one of these ports: [{}]?)",
                meant.join(" ")
            ));
            self.unusable = true;
        } else if !managed || service.port_by_number(port).is_none() {
            self.warnings.push(format!("port {port} not found for hostname {host:?}"));
            self.unusable = true;
        }
    }

    /// Reports in `Programmed` the services of the servers, or the reasons there are none.
    pub fn report(&self, services: &[String], conditions: &mut Conditions) {
        let internal: Vec<&String> = self.internal.iter().collect();
        let assigned = human_join(&internal);
        if !internal.is_empty() {
            conditions
                .reword("Programmed", None, |_| format!("Resource programmed, assigned to service(s) {assigned}"));
        }
        if services.is_empty() {
            let message = "Failed to assign to any requested addresses";
            conditions.problem("Programmed", Problem::new("UnsupportedAddress", message));
        } else if !self.warnings.is_empty() {
            let warnings = self.warnings.join("; ");
            let message = match internal.is_empty() {
                true => format!("Failed to assign to any requested addresses: {warnings}"),
                false => format!(
                    "Assigned to service(s) {assigned}, but failed to assign to all requested addresses: {warnings}"
                ),
            };
            let reason = if self.unusable { "AddressNotUsable" } else { "AddressNotAssigned" };
            conditions.problem("Programmed", Problem::new(reason, message));
        }
    }
}

/// The endpoints of a service by service port.
fn instances<'a>(input: &'a Input<'_>, service: &Service) -> BTreeMap<u32, Vec<&'a Endpoint>> {
    let mut by_port: BTreeMap<u32, Vec<&Endpoint>> = BTreeMap::new();
    for endpoint in input.objects.endpoints(service).into_iter().flat_map(|set| set.iter()) {
        let port = match endpoint.legacy_cluster_port_key {
            0 => service.port_by_name(&endpoint.service_port_name).map(|p| p.port),
            key => Some(key).filter(|key| service.port_by_number(*key).is_some()),
        };
        if let Some(port) = port {
            by_port.entry(port).or_default().push(endpoint);
        }
    }
    by_port
}
