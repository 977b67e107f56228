//! Consistent hashing: which setting a DestinationRule gives to a destination, and the hash policy that a route needs for it
//! (Istio's `HashForHTTPDestination`, `hashForService`, `ConsistentHashToHashPolicy`).

use crate::proto::{
    envoy::config::route::v3::route_action::{
        HashPolicy,
        hash_policy::{ConnectionProperties, Cookie, CookieAttribute, Header, PolicySpecifier, QueryParameter},
    },
    networking::{
        Destination, DestinationRule, LoadBalancerSettings, TrafficPolicy,
        load_balancer_settings::{ConsistentHashLb, LbPolicy, consistent_hash_lb::HashKey},
        traffic_policy::PortTrafficPolicy,
    },
};

/// The setting for a destination of a VirtualService: port of the subset, subset, port, top level; the first that is given.
#[must_use]
pub fn of_destination<'a>(rule: &'a DestinationRule, destination: &Destination) -> Option<&'a ConsistentHashLb> {
    let policy = rule.traffic_policy.as_ref();
    let subset = rule.subsets.iter().find(|s| s.name == destination.subset).and_then(|s| s.traffic_policy.as_ref());
    let port = destination.port.as_ref().map(|p| p.number);
    let of_port =
        |policy: Option<&'a TrafficPolicy>| of_load_balancer(port_setting(policy, port?)?.load_balancer.as_ref());
    of_port(subset).or_else(|| of_policy(subset)).or_else(|| of_port(policy)).or_else(|| of_policy(policy))
}

/// The setting for a service port without a VirtualService: port, then top level.
#[must_use]
pub fn of_port(rule: &DestinationRule, port: u32) -> Option<&ConsistentHashLb> {
    let policy = rule.traffic_policy.as_ref();
    port_setting(policy, port).and_then(|p| of_load_balancer(p.load_balancer.as_ref())).or_else(|| of_policy(policy))
}

/// The hash policy for a setting; `None` when it names no key.
#[must_use]
pub fn policy(hash: &ConsistentHashLb) -> Option<HashPolicy> {
    let specifier = match hash.hash_key.as_ref()? {
        HashKey::HttpHeaderName(name) => {
            PolicySpecifier::Header(Header { header_name: name.clone(), ..Default::default() })
        }
        HashKey::HttpCookie(cookie) => PolicySpecifier::Cookie(Cookie {
            name: cookie.name.clone(),
            ttl: cookie.ttl,
            path: cookie.path.clone(),
            attributes: cookie
                .attributes
                .iter()
                .map(|a| CookieAttribute { name: a.name.clone(), value: a.value.clone() })
                .collect(),
        }),
        HashKey::UseSourceIp(source_ip) => {
            PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip: *source_ip })
        }
        HashKey::HttpQueryParameterName(name) => PolicySpecifier::QueryParameter(QueryParameter { name: name.clone() }),
    };
    Some(HashPolicy { terminal: false, policy_specifier: Some(specifier) })
}

fn port_setting(policy: Option<&TrafficPolicy>, port: u32) -> Option<&PortTrafficPolicy> {
    policy?.port_level_settings.iter().find(|s| s.port.as_ref().map_or(0, |p| p.number) == port)
}

fn of_policy(policy: Option<&TrafficPolicy>) -> Option<&ConsistentHashLb> {
    of_load_balancer(policy?.load_balancer.as_ref())
}

fn of_load_balancer(settings: Option<&LoadBalancerSettings>) -> Option<&ConsistentHashLb> {
    match settings?.lb_policy.as_ref()? {
        LbPolicy::ConsistentHash(hash) => Some(hash),
        LbPolicy::Simple(_) | LbPolicy::BackendUtilization(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::networking::{PortSelector, Subset};

    fn balancer(header: &str) -> Option<LoadBalancerSettings> {
        let hash = ConsistentHashLb { hash_key: Some(HashKey::HttpHeaderName(header.into())), ..Default::default() };
        Some(LoadBalancerSettings { lb_policy: Some(LbPolicy::ConsistentHash(hash)), ..Default::default() })
    }

    fn traffic_policy(top: &str, port: u32, of_port: &str) -> Option<TrafficPolicy> {
        let setting = PortTrafficPolicy {
            port: Some(PortSelector { number: port }),
            load_balancer: balancer(of_port),
            ..Default::default()
        };
        Some(TrafficPolicy { load_balancer: balancer(top), port_level_settings: vec![setting], ..Default::default() })
    }

    #[test]
    fn the_closest_setting_wins() {
        let rule = DestinationRule {
            traffic_policy: traffic_policy("top", 80, "port"),
            subsets: vec![
                Subset {
                    name: "v1".into(),
                    traffic_policy: traffic_policy("subset", 81, "subset-port"),
                    ..Default::default()
                },
                Subset { name: "v2".into(), ..Default::default() },
            ],
            ..Default::default()
        };
        let name = |subset: &str, port: Option<u32>| {
            let port = port.map(|number| PortSelector { number });
            let destination = Destination { subset: subset.into(), port, ..Default::default() };
            match of_destination(&rule, &destination).unwrap().hash_key.as_ref().unwrap() {
                HashKey::HttpHeaderName(name) => name.clone(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(name("v1", Some(81)), "subset-port");
        assert_eq!(name("v1", Some(80)), "subset");
        assert_eq!(name("v2", Some(80)), "port");
        assert_eq!(name("", None), "top");
    }
}
