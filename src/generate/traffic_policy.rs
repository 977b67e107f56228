//! The traffic policy in force for a port and subset of a DestinationRule (Istio's `GetPortLevelTrafficPolicy`,
//! `MergeSubsetTrafficPolicy`, `applyDefaultTrafficPolicy`).
//!
//! Precedence: the mesh's default < the rule < its setting for the port < the subset < the subset's setting for the port.
//! A setting for a port replaces connection pool, outlier detection, load balancer and TLS wholly: a field that it leaves out
//! has Envoy's default, nothing is inherited. A subset's policy replaces block by block.

use crate::proto::{
    mesh::MeshConfig,
    networking::{
        ClientTlsSettings, ConnectionPoolSettings, DestinationRule, LoadBalancerSettings, OutlierDetection, Subset,
        TrafficPolicy,
        client_tls_settings::TlSmode,
        load_balancer_settings::{LbPolicy, SimpleLb},
        traffic_policy::{PortTrafficPolicy, ProxyProtocol, RetryBudget, TunnelSettings},
    },
};

/// The blocks of the policy in force; borrowed from the rule or the mesh settings.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[allow(missing_docs, reason = "the fields of TrafficPolicy")]
pub struct EffectivePolicy<'a> {
    pub connection_pool: Option<&'a ConnectionPoolSettings>,
    pub outlier_detection: Option<&'a OutlierDetection>,
    pub load_balancer: Option<&'a LoadBalancerSettings>,
    pub tls: Option<&'a ClientTlsSettings>,
    pub tunnel: Option<&'a TunnelSettings>,
    pub proxy_protocol: Option<&'a ProxyProtocol>,
    pub retry_budget: Option<&'a RetryBudget>,
}

impl<'a> EffectivePolicy<'a> {
    /// The policy for a port, and whether it is a setting for that port.
    #[must_use]
    pub fn for_port(policy: Option<&'a TrafficPolicy>, port: u32) -> (Self, bool) {
        let Some(policy) = policy else {
            return (Self::default(), false);
        };
        match port_level(policy, port) {
            Some(level) => {
                let replaced = Self {
                    connection_pool: level.connection_pool.as_ref(),
                    outlier_detection: level.outlier_detection.as_ref(),
                    load_balancer: level.load_balancer.as_ref(),
                    tls: level.tls.as_ref(),
                    ..Self::default()
                };
                (replaced, true)
            }
            None => {
                let whole = Self {
                    connection_pool: policy.connection_pool.as_ref(),
                    outlier_detection: policy.outlier_detection.as_ref(),
                    load_balancer: policy.load_balancer.as_ref(),
                    tls: policy.tls.as_ref(),
                    tunnel: policy.tunnel.as_ref(),
                    proxy_protocol: policy.proxy_protocol.as_ref(),
                    retry_budget: policy.retry_budget.as_ref(),
                };
                (whole, false)
            }
        }
    }

    /// Puts the mesh's default under it: blocks that are not set come from there.
    #[must_use]
    pub fn over_mesh_default(mut self, mesh: &'a MeshConfig) -> Self {
        if let Some(default) = &mesh.default_traffic_policy {
            self.connection_pool = self.connection_pool.or(default.connection_pool.as_ref());
            self.outlier_detection = self.outlier_detection.or(default.outlier_detection.as_ref());
        }
        self
    }

    /// Puts a subset's policy over it.
    #[must_use]
    pub fn with_subset(self, subset: Option<&'a TrafficPolicy>, port: u32) -> Self {
        if subset.is_none() {
            return self;
        }
        let (over, port_level) = Self::for_port(subset, port);
        if port_level {
            return Self {
                connection_pool: over.connection_pool,
                outlier_detection: over.outlier_detection,
                load_balancer: over.load_balancer,
                tls: over.tls,
                ..self
            };
        }
        Self {
            connection_pool: over.connection_pool.or(self.connection_pool),
            outlier_detection: over.outlier_detection.or(self.outlier_detection),
            load_balancer: over.load_balancer.or(self.load_balancer),
            tls: over.tls.or(self.tls),
            tunnel: over.tunnel.or(self.tunnel),
            proxy_protocol: over.proxy_protocol.or(self.proxy_protocol),
            retry_budget: over.retry_budget.or(self.retry_budget),
        }
    }

    /// The policy of a rule for a port and a subset by name (empty or unknown: the rule's own).
    #[must_use]
    pub fn of_rule(rule: Option<&'a DestinationRule>, port: u32, subset: &str) -> Self {
        let Some(rule) = rule else {
            return Self::default();
        };
        let own = find_subset(rule, subset).and_then(|s| s.traffic_policy.as_ref());
        Self::for_port(rule.traffic_policy.as_ref(), port).0.with_subset(own, port)
    }

    /// The simple load balancer that it names.
    #[must_use]
    pub fn simple_lb(&self) -> SimpleLb {
        simple_lb(self.load_balancer)
    }
}

/// The first subset of that name.
#[must_use]
pub fn find_subset<'a>(rule: &'a DestinationRule, name: &str) -> Option<&'a Subset> {
    rule.subsets.iter().find(|s| s.name == name)
}

/// The simple load balancer that the settings name; `UNSPECIFIED` when none.
#[must_use]
pub fn simple_lb(settings: Option<&LoadBalancerSettings>) -> SimpleLb {
    match settings.and_then(|s| s.lb_policy.as_ref()) {
        Some(LbPolicy::Simple(simple)) => SimpleLb::try_from(*simple).unwrap_or(SimpleLb::Unspecified),
        _ => SimpleLb::Unspecified,
    }
}

/// The client TLS mode that a rule gives to a port and subset, if it gives one (Istio's `tlsModeForDestinationRule`). Unlike
/// the policy for clusters, a setting for the port that has no TLS block inherits here.
#[must_use]
pub fn tls_mode(rule: Option<&DestinationRule>, port: u32, subset: &str) -> Option<TlSmode> {
    let rule = rule?;
    if subset.is_empty() {
        return tls_mode_of(rule.traffic_policy.as_ref(), port);
    }
    let subset = find_subset(rule, subset)?;
    tls_mode_of(subset.traffic_policy.as_ref(), port).or_else(|| tls_mode_of(rule.traffic_policy.as_ref(), port))
}

fn tls_mode_of(policy: Option<&TrafficPolicy>, port: u32) -> Option<TlSmode> {
    let policy = policy?;
    let of_port = policy
        .port_level_settings
        .iter()
        .find(|s| s.port.as_ref().is_some_and(|p| p.number == port) && s.tls.is_some())
        .and_then(|s| s.tls.as_ref());
    of_port.or(policy.tls.as_ref()).map(ClientTlsSettings::mode)
}

fn port_level(policy: &TrafficPolicy, port: u32) -> Option<&PortTrafficPolicy> {
    policy.port_level_settings.iter().find(|s| s.port.as_ref().is_some_and(|p| p.number == port))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::proto::from_json;

    fn rule() -> DestinationRule {
        from_json(
            &json!({
                "host": "a",
                "trafficPolicy": {
                    "connectionPool": {"tcp": {"maxConnections": 1}},
                    "outlierDetection": {"maxEjectionPercent": 1},
                    "loadBalancer": {"simple": "RANDOM"},
                    "tls": {"mode": "SIMPLE"},
                    "proxyProtocol": {"version": "V2"},
                    "portLevelSettings": [{"port": {"number": 80}, "loadBalancer": {"simple": "ROUND_ROBIN"}}]
                },
                "subsets": [
                    {"name": "own", "trafficPolicy": {"outlierDetection": {"maxEjectionPercent": 2}}},
                    {"name": "port", "trafficPolicy": {
                        "loadBalancer": {"simple": "LEAST_REQUEST"},
                        "portLevelSettings": [{"port": {"number": 81}, "tls": {"mode": "DISABLE"}}]}},
                    {"name": "plain"}
                ]
            }),
            true,
        )
        .unwrap()
    }

    #[test]
    fn a_port_setting_replaces_everything() {
        let rule = rule();
        let policy = EffectivePolicy::of_rule(Some(&rule), 80, "");
        assert_eq!(policy.simple_lb(), SimpleLb::RoundRobin);
        assert!(policy.connection_pool.is_none() && policy.outlier_detection.is_none() && policy.tls.is_none());
        assert!(policy.proxy_protocol.is_none());
    }

    #[test]
    fn a_subset_overrides_block_by_block() {
        let rule = rule();
        let policy = EffectivePolicy::of_rule(Some(&rule), 81, "own");
        assert_eq!(policy.outlier_detection.map(|o| o.max_ejection_percent), Some(2));
        assert_eq!(policy.simple_lb(), SimpleLb::Random);
        assert!(policy.connection_pool.is_some() && policy.tls.is_some());
        assert_eq!(EffectivePolicy::of_rule(Some(&rule), 81, "plain"), EffectivePolicy::of_rule(Some(&rule), 81, ""));
    }

    #[test]
    fn a_subsets_port_setting_clears_the_four_blocks_and_keeps_the_rest() {
        let rule = rule();
        let policy = EffectivePolicy::of_rule(Some(&rule), 81, "port");
        assert_eq!(policy.tls.map(ClientTlsSettings::mode), Some(TlSmode::Disable));
        assert!(policy.connection_pool.is_none() && policy.load_balancer.is_none());
        assert!(policy.proxy_protocol.is_some());
    }

    #[test]
    fn the_mesh_default_fills_only_missing_fields() {
        let mesh: MeshConfig = from_json(
            &json!({"defaultTrafficPolicy": {
                "connectionPool": {"tcp": {"maxConnections": 9}}, "outlierDetection": {"maxEjectionPercent": 9}}}),
            true,
        )
        .unwrap();
        let rule = rule();
        let filled = EffectivePolicy::of_rule(Some(&rule), 80, "").over_mesh_default(&mesh);
        assert_eq!(filled.outlier_detection.map(|o| o.max_ejection_percent), Some(9));
        let kept = EffectivePolicy::of_rule(Some(&rule), 81, "").over_mesh_default(&mesh);
        assert_eq!(kept.outlier_detection.map(|o| o.max_ejection_percent), Some(1));
    }

    #[test]
    fn tls_mode_inherits_where_the_port_has_none() {
        let rule = rule();
        assert_eq!(tls_mode(Some(&rule), 80, ""), Some(TlSmode::Simple));
        assert_eq!(tls_mode(Some(&rule), 81, "port"), Some(TlSmode::Disable));
        assert_eq!(tls_mode(Some(&rule), 80, "own"), Some(TlSmode::Simple));
        assert_eq!(tls_mode(Some(&rule), 80, "unknown"), None);
    }
}
