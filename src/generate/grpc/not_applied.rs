//! Parts of config that proxyless gRPC takes and does not apply, each with the object that says it.
//!
//! gRPC hashes headers alone (gRFC A42): other hash policies are passed over, and without one each call gets a random hash.
//! The weights of endpoints count on a hash ring alone; round robin and least request take the endpoints of a locality evenly
//! (gRFC A42, A48). Localities and clusters have their weights everywhere.

use std::collections::HashMap;

use crate::{
    generate::endpoint::EndpointInputs,
    model::ConfigKey,
    proto::networking::load_balancer_settings::{ConsistentHashLb, LbPolicy, consistent_hash_lb::HashKey},
};

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
    use crate::proto::networking::load_balancer_settings::consistent_hash_lb::HttpCookie;

    #[test]
    fn headers_alone_are_hashed() {
        let told = |key| hash_key(&ConsistentHashLb { hash_key: Some(key), ..ConsistentHashLb::default() });
        assert_eq!(told(HashKey::HttpHeaderName("x".to_string())), None);
        assert_eq!(told(HashKey::HttpCookie(HttpCookie::default())), Some("hashes of a cookie"));
        assert_eq!(told(HashKey::UseSourceIp(true)), Some("hashes of the source address"));
        assert_eq!(told(HashKey::UseSourceIp(false)), None);
        assert_eq!(told(HashKey::HttpQueryParameterName("x".to_string())), Some("hashes of a query parameter"));
    }
}
