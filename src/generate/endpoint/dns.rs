//! Endpoints of DNS services as proxyless gRPC reaches them: IP addresses by EDS, which needs no DNS, else one name, the only
//! one that gRPC resolves for a cluster (gRFC A37).

use std::{collections::BTreeSet, fmt, net::IpAddr};

use super::{group::LocalityGroup, inputs::EndpointInputs, member};
use crate::{
    model::{Registry, Resolution, host},
    proto::envoy::config::{
        core::v3::{HealthStatus, address::Address, socket_address::PortSpecifier},
        endpoint::v3::{LbEndpoint, lb_endpoint::HostIdentifier},
    },
};

/// A name that DNS resolves, with a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DnsName {
    /// The name.
    pub host: String,
    /// The port.
    pub port: u32,
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// The way on which proxyless gRPC finds the endpoints of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovery {
    /// The name that it resolves; without one, endpoints come by EDS.
    pub name: Option<DnsName>,
    /// Names of endpoints that it does not call.
    pub not_called: BTreeSet<DnsName>,
}

impl EndpointInputs<'_> {
    /// The way on which proxyless gRPC finds these endpoints.
    #[must_use]
    pub fn discovery(&self) -> Discovery {
        match self.service.resolution {
            Resolution::DnsLB | Resolution::DnsRoundRobinLB => self.discovery_of_names(),
            // The address that a client without gRPC would have dialled is the one of the host.
            Resolution::Passthrough
                if self.service.registry == Registry::External
                    && self.set.is_none_or(|set| set.iter().next().is_none())
                    && !host::is_wildcard(&self.service.hostname) =>
            {
                let port = *self.service.passthrough_target_ports.get(&self.port.port).unwrap_or(&self.port.port);
                let name = DnsName { host: self.service.hostname.to_string(), port };
                Discovery { name: Some(name), ..Discovery::default() }
            }
            _ => Discovery::default(),
        }
    }

    fn discovery_of_names(&self) -> Discovery {
        let groups = self.arranged(self.inline_groups());
        let has_numbers = groups.iter().flat_map(|group| &group.members).any(|m| is_number(&m.endpoint));
        let members = groups.iter().flat_map(|group| group.members.iter().map(|m| (group.priority, &m.endpoint)));
        // The nearest healthy name; among equals the first.
        let mut names: Vec<_> = members
            .filter_map(|(priority, endpoint)| {
                let unhealthy = endpoint.health_status == i32::from(HealthStatus::Unhealthy);
                Some(((unhealthy, priority), name_of(endpoint)?))
            })
            .collect();
        names.sort_by_key(|(rank, _)| *rank);
        let mut names = names.into_iter().map(|(_, name)| name);
        let name = if has_numbers { None } else { names.next() };
        let not_called = names.filter(|other| name.as_ref() != Some(other)).collect();
        Discovery { name, not_called }
    }

    /// The endpoints of a DNS cluster that need no DNS.
    pub(super) fn resolved_groups(&self) -> Vec<LocalityGroup> {
        let mut groups = self.inline_groups();
        for group in &mut groups {
            group.members.retain(|m| is_number(&m.endpoint));
            group.refresh_weight();
        }
        groups.retain(|group| !group.members.is_empty());
        groups
    }
}

fn is_number(endpoint: &LbEndpoint) -> bool {
    member::host(endpoint).is_some_and(|host| host.parse::<IpAddr>().is_ok())
}

/// The name of an endpoint that is no IP address.
fn name_of(endpoint: &LbEndpoint) -> Option<DnsName> {
    let host = member::host(endpoint).filter(|host| host.parse::<IpAddr>().is_err())?;
    let Some(HostIdentifier::Endpoint(endpoint)) = &endpoint.host_identifier else { return None };
    match endpoint.address.as_ref()?.address.as_ref()? {
        Address::SocketAddress(socket) => match socket.port_specifier {
            Some(PortSpecifier::PortValue(port)) => Some(DnsName { host: host.to_string(), port }),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{
        generate::endpoint::EndpointPlan,
        model::{
            Endpoint, EndpointIndex, EndpointSet, HealthStatus as Health, Locality, Node, Port, RegistrySnapshot,
            Service, ShardKey,
        },
        push::{PushContext, context::PushInputs},
    };

    /// The way to the endpoints at these addresses, and the number of those in EDS.
    fn found(resolution: Resolution, hostname: &str, addresses: &[(&str, Health)]) -> (Discovery, usize) {
        let port = Port { name: "grpc".into(), port: 9000, ..Port::default() };
        let service = Service {
            hostname: hostname.into(),
            namespace: "b".into(),
            ports: vec![port],
            registry: Registry::External,
            resolution,
            ..Service::default()
        };
        let endpoint = |(address, health): &(&str, Health)| {
            let addresses = vec![(*address).into()];
            let (service_port_name, health) = ("grpc".into(), *health);
            Arc::new(Endpoint {
                addresses,
                port: 50,
                service_port_name,
                health,
                legacy_cluster_port_key: 9000,
                ..Endpoint::default()
            })
        };
        let shard = ShardKey { provider: Registry::External, cluster: "c".into() };
        let mut endpoints = EndpointIndex::default();
        if !addresses.is_empty() {
            let set = EndpointSet::of(vec![(shard, addresses.iter().map(endpoint).collect())]);
            endpoints.by_service.insert((hostname.into(), "b".into()), Arc::new(set));
        }
        let services = Arc::new(vec![Arc::new(service.stamped())]);
        let registry = RegistrySnapshot { services, endpoints: Arc::new(endpoints), ..RegistrySnapshot::default() };
        let context = PushContext::build(PushInputs { registry, ..PushInputs::default() });
        let id = "sidecar~10.0.0.1~a.b~b.svc.cluster.local";
        let node = Node::from_parts(id, json!({"GENERATOR": "grpc"}), Locality::default()).unwrap();
        let view = context.view_of(&node);
        let read = |inputs: &EndpointInputs<'_>| {
            let sent = inputs.load_assignment().endpoints.iter().map(|group| group.lb_endpoints.len()).sum();
            (inputs.discovery(), sent)
        };
        EndpointPlan::of(&context, &view).with(&format!("outbound|9000||{hostname}"), read).unwrap()
    }

    fn name(host: &str, port: u32) -> DnsName {
        DnsName { host: host.to_string(), port }
    }

    #[test]
    fn one_name_is_resolved_and_others_are_not_called() {
        const UP: Health = Health::Healthy;
        for resolution in [Resolution::DnsLB, Resolution::DnsRoundRobinLB] {
            let (one, sent) = found(resolution, "h", &[("a.example", UP)]);
            assert_eq!((one.name, one.not_called.len(), sent), (Some(name("a.example", 50)), 0, 0));
            let (twice, _) = found(resolution, "h", &[("a.example", UP), ("a.example", UP)]);
            assert!(twice.not_called.is_empty(), "{twice:?}");
        }
        let (several, _) = found(Resolution::DnsLB, "h", &[("b.example", UP), ("a.example", UP)]);
        assert_eq!(several.name, Some(name("b.example", 50)));
        assert_eq!(several.not_called, [name("a.example", 50)].into());
        let ill = Health::UnHealthy;
        let (healthy, _) = found(Resolution::DnsLB, "h", &[("b.example", ill), ("a.example", UP)]);
        assert_eq!(healthy.name, Some(name("a.example", 50)));
    }

    #[test]
    fn ip_addresses_need_no_dns() {
        const UP: Health = Health::Healthy;
        let numbers = found(Resolution::DnsLB, "h", &[("10.0.0.1", UP), ("::1", UP)]);
        assert_eq!(numbers, (Discovery::default(), 2));
        let (mixed, sent) = found(Resolution::DnsLB, "h", &[("a.example", UP), ("10.0.0.1", UP)]);
        assert_eq!((mixed.name, sent), (None, 1));
        assert_eq!(mixed.not_called, [name("a.example", 50)].into());
        assert_eq!(found(Resolution::DnsLB, "h", &[]), (Discovery::default(), 0));
    }

    #[test]
    fn a_host_without_resolution_is_resolved_itself() {
        let (of_host, _) = found(Resolution::Passthrough, "a.example", &[]);
        assert_eq!(of_host.name, Some(name("a.example", 9000)));
        assert_eq!(found(Resolution::Passthrough, "*.example", &[]).0, Discovery::default());
        let known = found(Resolution::Passthrough, "a.example", &[("10.0.0.1", Health::Healthy)]);
        assert_eq!(known, (Discovery::default(), 1));
        assert_eq!(found(Resolution::ClientSideLB, "a.example", &[]).0, Discovery::default());
    }
}
