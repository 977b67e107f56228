//! The outbound clusters of a proxy, and the inputs of each (Istio's `buildOutboundClusters`,
//! `buildOutboundSniDnatClusters`, `GatewayServices`).

use std::{collections::BTreeSet, sync::Arc};

use rayon::prelude::*;

use super::{
    capabilities::Capabilities,
    inputs::{ClusterInputs, ClusterMode},
};
use crate::{
    generate::{
        endpoint::{ClusterTarget, EndpointClient, EndpointInputs},
        request_authentication,
    },
    model::{Port, Protocol, Resolution, Service, host},
    proto::{mesh::mesh_config::extension_provider::Provider, networking::Subset},
    push::{MergedDestinationRule, ProxyView, PushContext},
};

/// Fewer services are not worth another thread.
const WORTH_A_THREAD: usize = 32;

/// The outbound clusters of one view, not built yet: the owner of the data that their [`ClusterInputs`] borrow.
#[derive(Debug)]
pub struct OutboundPlan<'a> {
    context: &'a PushContext,
    view: &'a ProxyView,
    capabilities: Capabilities,
    client: EndpointClient,
    mode: ClusterMode,
    services: Vec<PlannedService>,
}

#[derive(Debug)]
struct PlannedService {
    service: Arc<Service>,
    rule: Option<Arc<MergedDestinationRule>>,
    accounts: Vec<String>,
}

impl<'a> OutboundPlan<'a> {
    /// The clusters for the traffic of a proxy: those of all services in its scope, or for a router with
    /// `PILOT_FILTER_GATEWAY_CLUSTER_CONFIG` of those that its Gateways lead to.
    #[must_use]
    pub fn of(context: &'a PushContext, view: &'a ProxyView) -> Self {
        let wanted = (context.features().filter_gateway_cluster_config && view.is_router()).then(|| {
            let gateways = context.merged_gateway(view);
            let mut wanted = ReferencedServices::of(context, gateways.iter().flat_map(|g| &g.gateway_names));
            wanted.hosts.extend(request_authentication::key_servers(context, view));
            view.patches.services().for_each(|service| wanted.add(service));
            wanted
        });
        let is_wanted =
            |s: &Service| s.resolution != Resolution::Alias && wanted.as_ref().is_none_or(|wanted| wanted.contains(s));
        Self::with(context, view, ClusterMode::Outbound, is_wanted)
    }

    /// The clusters by which an `AUTO_PASSTHROUGH` gateway passes TLS through, named by SNI; `None` for any other proxy.
    #[must_use]
    pub fn sni_dnat(context: &'a PushContext, view: &'a ProxyView) -> Option<Self> {
        let passes_through =
            view.is_router() && context.merged_gateway(view).is_some_and(|g| g.contains_auto_passthrough);
        passes_through.then(|| Self::with(context, view, ClusterMode::SniDnat, |s| !s.mesh_external))
    }

    fn with(
        context: &'a PushContext,
        view: &'a ProxyView,
        mode: ClusterMode,
        is_wanted: impl Fn(&Service) -> bool,
    ) -> Self {
        let scope = context.scope(view);
        let services = scope
            .services
            .iter()
            .filter(|s| is_wanted(s))
            .map(|service| PlannedService {
                service: service.clone(),
                rule: scope.destination_rule(view, &service.hostname).cloned(),
                accounts: if mode == ClusterMode::SniDnat || is_wildcard_dynamic(service) {
                    Vec::new()
                } else {
                    service_accounts(context, service)
                },
            })
            .collect();
        Self {
            context,
            view,
            capabilities: Capabilities::of(context, view),
            client: EndpointClient::of(view),
            mode,
            services,
        }
    }

    /// The view that the clusters are for.
    #[must_use]
    pub const fn view(&self) -> &'a ProxyView {
        self.view
    }

    /// The inputs of each cluster, in order: services, their ports, for each all endpoints and then the subsets.
    pub fn inputs(&self) -> impl Iterator<Item = ClusterInputs<'_>> {
        self.services.iter().flat_map(|planned| self.inputs_of(planned))
    }

    /// The results of `make` for all inputs, in their order. Where there are many, all cores work on them.
    pub fn make<R: Send>(&self, make: impl Fn(&ClusterInputs<'_>) -> Option<R> + Sync + Send) -> Vec<R> {
        let services = self.services.par_iter().with_min_len(WORTH_A_THREAD);
        services.flat_map_iter(|planned| self.inputs_of(planned)).filter_map(|inputs| make(&inputs)).collect()
    }

    fn inputs_of<'b>(&'b self, planned: &'b PlannedService) -> impl Iterator<Item = ClusterInputs<'b>> {
        let count = if planned.service.is_inference_pool() { 1 } else { usize::MAX };
        let ports = planned.service.ports.iter().take(count).filter(|p| p.protocol != Protocol::Udp);
        ports.flat_map(move |port| {
            let subsets = planned.rule.iter().flat_map(|r| &r.rule.subsets);
            let subsets = subsets.filter(|_| !is_wildcard_dynamic(&planned.service));
            std::iter::once(None).chain(subsets.map(Some)).map(move |subset| self.cluster(planned, port, subset))
        })
    }

    fn cluster<'b>(
        &'b self,
        planned: &'b PlannedService,
        port: &'b Port,
        subset: Option<&'b Subset>,
    ) -> ClusterInputs<'b> {
        let service = &*planned.service;
        let policy = match subset {
            Some(subset) => subset.traffic_policy.as_ref(),
            None => planned.rule.as_ref().and_then(|r| r.rule.traffic_policy.as_ref()),
        };
        let mut inputs = ClusterInputs {
            mode: self.mode,
            service,
            port,
            subset,
            rule: planned.rule.as_deref(),
            mesh: &self.context.inputs.mesh,
            capabilities: &self.capabilities,
            mtls_mode: self.context.service_mtls_mode(policy, service, port.port),
            service_accounts: &planned.accounts,
            endpoints: None,
        };
        if matches!(service.resolution, Resolution::DnsLB | Resolution::DnsRoundRobinLB) {
            let rule = planned.rule.as_deref();
            let target = ClusterTarget { service, port, subset: inputs.subset_name(), rule };
            let name = inputs.name();
            inputs.endpoints = Some(EndpointInputs::of(self.context, self.view, &self.client, target, name));
        }
        inputs
    }
}

fn is_wildcard_dynamic(service: &Service) -> bool {
    service.resolution == Resolution::DynamicDns && host::is_wildcard(&service.hostname)
}

/// Identities of a service's endpoints and its own, in all trust domains of the mesh; sorted.
fn service_accounts(context: &PushContext, service: &Service) -> Vec<String> {
    let of_endpoints = context.endpoints().get(&service.hostname, &service.namespace);
    let of_endpoints = of_endpoints.into_iter().flat_map(|set| &set.service_accounts).map(|a| a.to_string());
    let own = of_endpoints.chain(service.service_accounts.iter().cloned());
    let aliases = &context.mesh().config.trust_domain_aliases;
    let all: BTreeSet<String> = own.flat_map(|identity| in_trust_domains(identity, aliases)).collect();
    all.into_iter().collect()
}

/// A SPIFFE identity, also in the other trust domains; any other identity as it is.
fn in_trust_domains(identity: String, aliases: &[String]) -> Vec<String> {
    let rest = identity.strip_prefix("spiffe://").and_then(|i| i.split_once('/')).map(|(_, rest)| rest.to_string());
    let mut all = vec![identity];
    if let Some(rest) = rest {
        all.extend(aliases.iter().map(|domain| format!("spiffe://{domain}/{rest}")));
    }
    all
}

/// The services that a router's configuration refers to.
struct ReferencedServices {
    hosts: BTreeSet<String>,
    in_namespace: BTreeSet<(String, String)>,
}

impl ReferencedServices {
    /// Destinations of the VirtualServices of these Gateways, and services of extension providers.
    fn of<'a>(context: &PushContext, gateways: impl Iterator<Item = &'a Arc<str>>) -> Self {
        let mut referenced = Self { hosts: BTreeSet::new(), in_namespace: BTreeSet::new() };
        for provider in &context.mesh().config.extension_providers {
            if let Some(service) = provider.provider.as_ref().and_then(service_of_provider) {
                referenced.add(service);
            }
        }
        for gateway in gateways {
            referenced
                .hosts
                .extend(context.virtual_services.destinations_of_gateway(gateway).into_iter().flatten().cloned());
        }
        referenced
    }

    /// A host, or `namespace/host`.
    fn add(&mut self, service: &str) {
        match service.split_once('/') {
            Some((namespace, host)) => {
                self.in_namespace.insert((namespace.to_string(), host.to_string()));
            }
            None => {
                self.hosts.insert(service.to_string());
            }
        }
    }

    fn contains(&self, service: &Service) -> bool {
        self.hosts.contains(&*service.hostname)
            || self.in_namespace.contains(&(service.namespace.to_string(), service.hostname.to_string()))
    }
}

fn service_of_provider(provider: &Provider) -> Option<&str> {
    Some(match provider {
        Provider::EnvoyExtAuthzHttp(p) => &p.service,
        Provider::EnvoyExtAuthzGrpc(p) => &p.service,
        Provider::Zipkin(p) => &p.service,
        Provider::Datadog(p) => &p.service,
        Provider::Skywalking(p) => &p.service,
        Provider::Opentelemetry(p) => &p.service,
        Provider::EnvoyHttpAls(p) => &p.service,
        Provider::EnvoyTcpAls(p) => &p.service,
        Provider::EnvoyOtelAls(p) => &p.service,
        Provider::Sds(p) => &p.service,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_in_all_trust_domains() {
        let aliases = ["old".to_string()];
        assert_eq!(
            in_trust_domains("spiffe://new/ns/a/sa/b".to_string(), &aliases),
            ["spiffe://new/ns/a/sa/b", "spiffe://old/ns/a/sa/b"]
        );
        assert_eq!(in_trust_domains("example.com".to_string(), &aliases), ["example.com"]);
    }
}
