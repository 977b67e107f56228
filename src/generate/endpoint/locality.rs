//! Locality load balancing: the setting in force, and its effect on priorities and weights
//! (Istio's `loadbalancer` package).
//!
//! Order of settings: DestinationRule, then the service's traffic distribution, then the mesh; at each level zone-aware
//! before locality. Failover needs outlier detection, or Envoy would never leave the first priority; traffic distribution
//! and zone-aware settings fail over without it.

use std::collections::BTreeMap;

use super::group::LocalityGroup;
use crate::{
    model::{LabelSet, Labels, Locality, Service},
    proto::{
        mesh::MeshConfig,
        networking::{
            LoadBalancerSettings, LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting,
            locality_load_balancer_setting::{Distribute, Failover},
        },
    },
};

const NETWORK: &str = "topology.istio.io/network";
const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";
const SUBZONE: &str = "topology.istio.io/subzone";
const NODE: &str = "kubernetes.io/hostname";

/// The setting in force for one cluster.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LocalityLb<'a> {
    /// `localityLbSetting`, enabled.
    Locality(&'a LocalityLoadBalancerSetting),
    /// The labels that a service's traffic distribution prefers, most important first.
    Prefer(&'static [&'static str]),
    /// `zoneAwareLbSetting`, enabled or not.
    ZoneAware(&'a ZoneAwareLoadBalancerSetting),
}

impl<'a> LocalityLb<'a> {
    /// The setting in force; `None` when there is none or it is off (Istio's `GetEffectiveLbSetting`).
    #[must_use]
    pub fn effective(mesh: &'a MeshConfig, rule: Option<&'a LoadBalancerSettings>, service: &Service) -> Option<Self> {
        let enabled = |s: &&LocalityLoadBalancerSetting| s.enabled != Some(false);
        if let Some(zone_aware) = rule.and_then(|r| r.zone_aware_lb_setting.as_ref()) {
            return Some(Self::ZoneAware(zone_aware));
        }
        if let Some(locality) = rule.and_then(|r| r.locality_lb_setting.as_ref()) {
            return Some(locality).filter(enabled).map(Self::Locality);
        }
        match TrafficDistribution::of(service) {
            TrafficDistribution::Any => {}
            TrafficDistribution::SameZone => return Some(Self::Prefer(&[NETWORK, REGION, ZONE])),
            TrafficDistribution::SameNode => return Some(Self::Prefer(&[NETWORK, REGION, ZONE, SUBZONE, NODE])),
        }
        if let Some(zone_aware) = &mesh.zone_aware_lb_setting {
            return Some(Self::ZoneAware(zone_aware));
        }
        mesh.locality_lb_setting.as_ref().filter(enabled).map(Self::Locality)
    }

    /// Fails over also without outlier detection.
    #[must_use]
    pub fn forces_failover(&self) -> bool {
        match self {
            Self::Locality(_) => false,
            Self::Prefer(_) => true,
            Self::ZoneAware(setting) => setting.enabled != Some(false),
        }
    }

    /// Weights per locality; empty unless the setting distributes.
    #[must_use]
    pub fn distribute(&self) -> &'a [Distribute] {
        match self {
            Self::Locality(setting) => &setting.distribute,
            _ => &[],
        }
    }

    /// Failover between regions, as written in a locality setting.
    #[must_use]
    pub fn failover(&self) -> &'a [Failover] {
        match self {
            Self::Locality(setting) => &setting.failover,
            _ => &[],
        }
    }

    /// Labels that decide the priority, most important first.
    #[must_use]
    pub fn failover_priority(&self) -> Vec<&'a str> {
        match self {
            Self::Locality(setting) => setting.failover_priority.iter().map(String::as_str).collect(),
            Self::Prefer(labels) => labels.to_vec(),
            Self::ZoneAware(setting) if setting.enabled != Some(false) => {
                setting.failover_priority.iter().map(String::as_str).collect()
            }
            Self::ZoneAware(_) => Vec::new(),
        }
    }

    /// Whether priorities or weights can depend on where the proxy is.
    #[must_use]
    pub fn depends_on_proxy(&self, failover: bool) -> bool {
        failover || self.forces_failover() || !self.distribute().is_empty()
    }

    /// Sets priorities and weights as a proxy at `place` sees them.
    pub(crate) fn apply(&self, groups: &mut Vec<LocalityGroup>, place: &ProxyLocality, failover: bool) {
        match self {
            Self::ZoneAware(setting) => {
                if setting.enabled == Some(false) {
                    return;
                }
                if !setting.failover_priority.is_empty() {
                    prioritise_by_labels(groups, &place.labels, &self.failover_priority());
                }
                let preferred = setting.failover.iter().find(|f| f.from == *place.locality.region);
                prioritise(groups, 3, |l| match preferred {
                    _ if l.region == place.locality.region => 0,
                    Some(to) if to.to == *l.region => 1,
                    _ => 2,
                });
            }
            _ if !self.distribute().is_empty() => distribute(groups, &place.locality, self.distribute()),
            _ if failover || self.forces_failover() => {
                let labels = self.failover_priority();
                if !labels.is_empty() {
                    prioritise_by_labels(groups, &place.labels, &labels);
                }
                if labels.is_empty() || !self.failover().is_empty() {
                    fail_over(groups, &place.locality, self.failover());
                }
            }
            _ => {}
        }
    }
}

/// The place of a proxy, as far as locality load balancing reads it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ProxyLocality {
    /// Its locality.
    pub locality: Locality,
    /// Its labels among those that the setting compares.
    pub labels: Labels,
}

impl ProxyLocality {
    /// The place of a proxy with these labels, narrowed to the labels that `setting` reads.
    #[must_use]
    pub fn of(setting: &LocalityLb<'_>, locality: &Locality, labels: &Labels) -> Self {
        let keys = setting.failover_priority();
        let read = |key: &str| keys.iter().any(|k| k.split_once('=').map_or(*k, |(name, _)| name) == key);
        let labels = labels.iter().filter(|(k, _)| read(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
        Self { locality: locality.clone(), labels }
    }
}

/// The preference of a service among its endpoints by their distance (Istio's `TrafficDistribution`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficDistribution {
    /// No preference.
    Any,
    /// The same zone first, then region, then network.
    SameZone,
    /// The same node first, then sub-zone, zone, region, network.
    SameNode,
}

impl TrafficDistribution {
    /// Reads it from a service.
    #[must_use]
    pub fn of(service: &Service) -> Self {
        match service.traffic_distribution.to_ascii_lowercase().as_str() {
            "preferclose" | "prefersamezone" => Self::SameZone,
            "prefersamenode" => Self::SameNode,
            _ => Self::Any,
        }
    }
}

/// Whether a locality fits `region/zone/subzone` of a rule, where `*` and missing parts fit all.
fn matches(locality: &Locality, rule: &str) -> bool {
    let rule = Locality::parse(rule);
    let part = |pattern: &str, value: &str| pattern == "*" || pattern.is_empty() || pattern == value;
    (&*rule.region == "*" || rule.region == locality.region)
        && part(&rule.zone, &locality.zone)
        && part(&rule.subzone, &locality.subzone)
}

/// Gives each locality its share of the first rule that fits the proxy; localities that no rule names get no endpoints.
fn distribute(groups: &mut [LocalityGroup], from: &Locality, rules: &[Distribute]) {
    let Some(rule) = rules.iter().find(|r| matches(from, &r.from)) else {
        return;
    };
    let mut open: Vec<&mut LocalityGroup> = groups.iter_mut().collect();
    for (to, weight) in &rule.to {
        let (chosen, rest): (Vec<_>, Vec<_>) = open.into_iter().partition(|g| matches(&g.locality, to));
        open = rest;
        let total: f64 = chosen.iter().map(|g| f64::from(g.weight.unwrap_or(1))).sum();
        for group in chosen {
            let share = f64::from(group.weight.unwrap_or(1)) * f64::from(*weight) / total;
            if share > 0.0 {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the rule's weight")]
                let share = share.ceil() as u32;
                group.weight = Some(share);
            }
        }
    }
    for group in open {
        group.members.clear();
    }
}

/// Priority by distance: same sub-zone, zone, region, then the region that the rule names, then the rest.
fn fail_over(groups: &mut [LocalityGroup], from: &Locality, rules: &[Failover]) {
    let rule = rules.iter().find(|r| r.from == *from.region);
    prioritise(groups, 5, |to| {
        if from.region != to.region {
            return if rule.is_some_and(|r| r.to != *to.region) { 4 } else { 3 };
        }
        if from.zone != to.zone {
            return 2;
        }
        u32::from(from.subzone != to.subzone)
    });
}

/// Refines the present priorities by `rank` (less than `ranks`), then closes the gaps.
fn prioritise(groups: &mut [LocalityGroup], ranks: u32, rank: impl Fn(&Locality) -> u32) {
    for group in groups.iter_mut() {
        group.priority = group.priority.saturating_mul(ranks).saturating_add(rank(&group.locality));
    }
    close_gaps(groups);
}

/// Numbers the priorities in use from 0 up.
fn close_gaps(groups: &mut [LocalityGroup]) {
    let mut used: Vec<u32> = groups.iter().map(|g| g.priority).collect();
    used.sort_unstable();
    used.dedup();
    for group in groups {
        group.priority = used.binary_search(&group.priority).map_or(group.priority, |i| i as u32);
    }
}

/// Splits each group by how many of the labels an endpoint shares with the proxy, counted from the first one. A label may
/// be written `name=value`: then that value counts instead of the proxy's. When the network is the first label, another
/// network only adds a whole step, and the labels after it still count.
fn prioritise_by_labels(groups: &mut Vec<LocalityGroup>, proxy: &Labels, labels: &[&str]) {
    let wanted: Vec<(&str, &str)> = labels
        .iter()
        .map(|label| match label.split_once('=') {
            Some((name, value)) if !value.contains('=') => (name, value),
            _ => {
                let name = label.split('=').next().unwrap_or(label);
                (name, proxy.get(name).map_or("", String::as_str))
            }
        })
        .collect();
    let lowest = wanted.len();
    let network_first = labels.first() == Some(&NETWORK);
    let rank = |labels: &LabelSet| {
        let mut step = 0;
        for (i, (name, value)) in wanted.iter().enumerate() {
            if labels.get(name).unwrap_or_default() != *value {
                if i == 0 && network_first {
                    step = lowest;
                    continue;
                }
                return step + lowest - i;
            }
        }
        step
    };
    let mut split = Vec::with_capacity(groups.len());
    for group in groups.drain(..) {
        let mut by_rank: BTreeMap<usize, LocalityGroup> = BTreeMap::new();
        for member in group.members {
            let rank = rank(&member.labels);
            let part = by_rank.entry(rank).or_insert_with(|| LocalityGroup {
                locality: group.locality.clone(),
                priority: rank as u32,
                ..LocalityGroup::default()
            });
            part.members.push(member);
        }
        split.extend(by_rank.into_values().map(|mut part| {
            part.weight = Some(part.sum());
            part
        }));
    }
    *groups = split;
    close_gaps(groups);
}

#[cfg(test)]
#[path = "locality_tests.rs"]
mod tests;
