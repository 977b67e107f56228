//! Parts of config that proxyless gRPC takes and does not apply, each with the object that says it.
//!
//! gRPC hashes headers alone (gRFC A42): other hash policies are passed over, and without one each call gets a random hash.
//! The weights of endpoints count on a hash ring alone; round robin and least request take the endpoints of a locality evenly
//! (gRFC A42, A48). Localities and clusters have their weights everywhere. TLS is that of the mesh, or that of the program's own
//! credentials. Of a cluster one DNS name is resolved, and one of its addresses is called (gRFC A37). Ports of other protocols
//! than HTTP have no routes, without which no call is made.

use std::collections::HashMap;

use crate::{
    generate::endpoint::{Discovery, EndpointInputs, service_entry},
    model::{ConfigKey, Kind, Port, Registry, Service},
    proto::networking::{
        client_tls_settings::TlSmode,
        load_balancer_settings::{ConsistentHashLb, LbPolicy, consistent_hash_lb::HashKey},
    },
};

/// Names of endpoints that a message says.
const NAMES: usize = 8;

/// A part of an object that gRPC does not apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotApplied {
    /// The object, where that is known.
    pub object: Option<ConfigKey>,
    /// The part, for a person.
    pub message: String,
}

/// The key of a hash that gRPC does not read.
pub(super) fn hash_key(hash: &ConsistentHashLb) -> Option<&'static str> {
    match hash.hash_key.as_ref()? {
        HashKey::HttpHeaderName(_) => None,
        HashKey::HttpCookie(_) => Some("hashes of a cookie"),
        HashKey::UseSourceIp(by_source) => by_source.then_some("hashes of the source address"),
        HashKey::HttpQueryParameterName(_) => Some("hashes of a query parameter"),
    }
}

/// The object that a service is made from.
pub(super) fn object_of(service: &Service) -> Option<ConfigKey> {
    let (kind, namespace, name) = (Kind::Service, service.namespace.clone(), service.object_name.clone());
    let of_kubernetes = service.registry == Registry::Kubernetes;
    service_entry(service).or_else(|| of_kubernetes.then_some(ConfigKey { kind, namespace, name }))
}

/// A mode of TLS that gRPC does not take from a rule.
pub(super) fn tls_mode(mode: TlSmode) -> Option<&'static str> {
    match mode {
        TlSmode::Disable | TlSmode::IstioMutual => None,
        TlSmode::Simple => Some("tls of mode SIMPLE (the credentials of the program's channel count)"),
        TlSmode::Mutual => Some("tls of mode MUTUAL (the credentials of the program's channel count)"),
    }
}

/// Tells that some endpoints of a DNS service are not called.
pub(super) fn names(discovery: &Discovery) -> Option<String> {
    let not_called = &discovery.not_called;
    if not_called.is_empty() {
        return None;
    }
    let mut others: Vec<String> = not_called.iter().take(NAMES).map(ToString::to_string).collect();
    if not_called.len() > NAMES {
        others.push(format!("{} more", not_called.len() - NAMES));
    }
    let called = discovery.name.as_ref().map_or_else(|| "the IP addresses".to_string(), ToString::to_string);
    let others = others.join(", ");
    Some(format!("proxyless gRPC resolves one DNS name alone: calls go to {called}, and none to {others}"))
}

/// Tells that a port has no routes, since it is of another protocol than HTTP. gRPC says `failed to find virtual host` then.
pub(super) fn protocol(service: &Service, port: &Port) -> Option<NotApplied> {
    if port.protocol.is_http() || port.protocol.is_unsupported() {
        return None;
    }
    let remedy = match service.registry {
        Registry::Kubernetes => "a name that begins with `grpc-`, or `appProtocol: grpc`, makes it a port of gRPC",
        _ => "`protocol: GRPC` makes it a port of gRPC",
    };
    Some(NotApplied {
        object: object_of(service),
        message: format!(
            "port {} ({:?}) is of protocol {}: proxyless gRPC calls ports of HTTP, HTTP2 and GRPC alone, so its calls fail \
             (no virtual host is found); {remedy}",
            port.port,
            port.name,
            port.protocol.as_str()
        ),
    })
}

/// Tells that the endpoints of a cluster have weights, and its load balancer takes them evenly.
#[must_use]
pub fn endpoint_weights(inputs: &EndpointInputs<'_>) -> Option<NotApplied> {
    let balancer = inputs.policy().load_balancer.and_then(|balancer| balancer.lb_policy.as_ref());
    if matches!(balancer, Some(LbPolicy::ConsistentHash(_))) {
        return None;
    }
    let endpoints = inputs.set?.shards.iter().flat_map(|(_, endpoints)| endpoints.iter());
    let mut weights = HashMap::new();
    let differ = endpoints.filter(|endpoint| endpoint.service_port_name == inputs.port.name).any(|endpoint| {
        *weights.entry(&endpoint.locality).or_insert(endpoint.lb_weight.max(1)) != endpoint.lb_weight.max(1)
    });
    differ.then(|| NotApplied {
        object: inputs.object(),
        message: format!(
            "cluster {}: proxyless gRPC does not apply weights of endpoints, but with consistentHash",
            inputs.cluster_name
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        generate::endpoint::DnsName, model::Protocol,
        proto::networking::load_balancer_settings::consistent_hash_lb::HttpCookie,
    };

    #[test]
    fn headers_alone_are_hashed() {
        let told = |key| hash_key(&ConsistentHashLb { hash_key: Some(key), ..ConsistentHashLb::default() });
        assert_eq!(told(HashKey::HttpHeaderName("x".to_string())), None);
        assert_eq!(told(HashKey::HttpCookie(HttpCookie::default())), Some("hashes of a cookie"));
        assert_eq!(told(HashKey::UseSourceIp(true)), Some("hashes of the source address"));
        assert_eq!(told(HashKey::UseSourceIp(false)), None);
        assert_eq!(told(HashKey::HttpQueryParameterName("x".to_string())), Some("hashes of a query parameter"));
    }

    #[test]
    fn tls_of_the_mesh_alone_is_taken_from_a_rule() {
        assert_eq!([TlSmode::Disable, TlSmode::IstioMutual].map(tls_mode), [None, None]);
        assert!(tls_mode(TlSmode::Simple).unwrap().contains("SIMPLE"));
        assert!(tls_mode(TlSmode::Mutual).unwrap().contains("MUTUAL"));
    }

    #[test]
    fn names_that_are_not_called_are_told_and_bounded() {
        let name = |host: &str| DnsName { host: host.to_string(), port: 50 };
        let mut discovery = Discovery { name: Some(name("a.example")), ..Discovery::default() };
        assert_eq!(names(&discovery), None);
        discovery.not_called = ["c.example", "b.example"].map(name).into();
        let told = names(&discovery).unwrap();
        assert!(told.ends_with("calls go to a.example:50, and none to b.example:50, c.example:50"), "{told}");
        discovery.name = None;
        discovery.not_called = (10..30).map(|i| name(&format!("h{i}"))).collect();
        let told = names(&discovery).unwrap();
        assert!(told.contains("calls go to the IP addresses, and none to h10:50, "), "{told}");
        assert!(told.ends_with("h17:50, 12 more"), "{told}");
    }

    #[test]
    fn ports_without_http_are_told_with_the_remedy() {
        let port = |protocol| Port { name: "raw".into(), port: 7000, protocol };
        for protocol in [Protocol::Http, Protocol::Http2, Protocol::Grpc, Protocol::GrpcWeb, Protocol::Unsupported] {
            assert_eq!(super::protocol(&Service::default(), &port(protocol)), None, "{protocol:?}");
        }
        for (registry, kind, remedy) in
            [(Registry::Kubernetes, Kind::Service, "grpc-"), (Registry::External, Kind::ServiceEntry, "protocol: GRPC")]
        {
            let service = Service { registry, object_name: "cart".into(), ..Service::default() };
            for protocol in [Protocol::Tcp, Protocol::Tls, Protocol::Https, Protocol::Mongo, Protocol::Udp] {
                let told = super::protocol(&service, &port(protocol)).unwrap();
                assert_eq!(told.object.map(|object| (object.kind, object.name)), Some((kind, "cart".into())));
                assert!(told.message.contains(protocol.as_str()) && told.message.contains(remedy), "{}", told.message);
            }
        }
    }
}
