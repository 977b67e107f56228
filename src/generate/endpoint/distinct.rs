//! Load assignments in the form that gRPC takes.

use std::collections::HashMap;

use prost::Message;

use crate::proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint, lb_endpoint::HostIdentifier};

/// Puts endpoints of one address together: gRPC-Go refuses a load assignment that names an address twice. The first place
/// keeps the address, with the weights of all.
pub(super) fn distinct(mut assignment: ClusterLoadAssignment) -> ClusterLoadAssignment {
    let address = |endpoint: &LbEndpoint| match &endpoint.host_identifier {
        Some(HostIdentifier::Endpoint(endpoint)) => endpoint.address.as_ref().map(Message::encode_to_vec),
        _ => None,
    };
    let mut weights: HashMap<Vec<u8>, (u32, u64)> = HashMap::new();
    for endpoint in assignment.endpoints.iter().flat_map(|group| &group.lb_endpoints) {
        let Some(key) = address(endpoint) else { continue };
        let (times, weight) = weights.entry(key).or_default();
        *times += 1;
        *weight += u64::from(endpoint.load_balancing_weight.unwrap_or(1));
    }
    if weights.values().all(|(times, _)| *times == 1) {
        return assignment;
    }
    for group in &mut assignment.endpoints {
        group.lb_endpoints.retain_mut(|endpoint| {
            let Some(key) = address(endpoint) else { return true };
            // The first takes the entry away; those behind it find none.
            let Some((times, weight)) = weights.remove(&key) else { return false };
            if times > 1 {
                endpoint.load_balancing_weight = Some(u32::try_from(weight).unwrap_or(u32::MAX));
            }
            true
        });
    }
    assignment.endpoints.retain(|group| !group.lb_endpoints.is_empty());
    assignment
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        generate::names,
        proto::envoy::config::endpoint::v3::{Endpoint, LocalityLbEndpoints},
    };

    #[test]
    fn an_address_stands_once_with_all_its_weight() {
        let endpoint = |ip: &str, weight: Option<u32>| LbEndpoint {
            host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
                address: Some(names::address(ip, 80)),
                ..Endpoint::default()
            })),
            load_balancing_weight: weight,
            ..LbEndpoint::default()
        };
        let group = |lb_endpoints| LocalityLbEndpoints { lb_endpoints, ..LocalityLbEndpoints::default() };
        let given = ClusterLoadAssignment {
            endpoints: vec![
                group(vec![endpoint("10.0.0.1", Some(3)), endpoint("10.0.0.2", None), endpoint("10.0.0.1", None)]),
                group(vec![endpoint("10.0.0.1", Some(2))]),
            ],
            ..ClusterLoadAssignment::default()
        };
        let want = vec![group(vec![endpoint("10.0.0.1", Some(6)), endpoint("10.0.0.2", None)])];
        assert_eq!(distinct(given).endpoints, want);
    }
}
