//! Endpoints of one locality while they are being arranged: Envoy's form beside the data that arranging needs.

use std::sync::Arc;

use crate::{
    model::{LabelSet, Locality},
    proto::envoy::config::{
        core::v3 as core,
        endpoint::v3::{LbEndpoint, LocalityLbEndpoints},
    },
};

/// One endpoint in Envoy's form, with the data that filters read.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// Labels, for failover by label.
    pub(crate) labels: Arc<LabelSet>,
    /// Network that it is in.
    pub(crate) network: Arc<str>,
    /// Cluster that it is in.
    pub(crate) cluster: Arc<str>,
    /// Whether a client would use mutual TLS.
    pub(crate) mtls: bool,
    /// The endpoint as it is sent.
    pub(crate) endpoint: LbEndpoint,
}

impl Member {
    /// Its weight; 0 when none is set.
    pub(crate) fn weight(&self) -> u32 {
        self.endpoint.load_balancing_weight.unwrap_or_default()
    }
}

/// Endpoints of one locality and priority.
#[derive(Debug, Clone, Default)]
pub(crate) struct LocalityGroup {
    /// Their locality.
    pub(crate) locality: Locality,
    /// 0 is tried first.
    pub(crate) priority: u32,
    /// Weight of the locality.
    pub(crate) weight: Option<u32>,
    /// The endpoints.
    pub(crate) members: Vec<Member>,
}

impl LocalityGroup {
    /// Sets the weight to the sum of the members'; none without members.
    pub(crate) fn refresh_weight(&mut self) {
        self.weight = (!self.members.is_empty()).then(|| self.sum());
    }

    /// The sum of the members' weights, at most `u32::MAX`.
    pub(crate) fn sum(&self) -> u32 {
        self.members.iter().fold(0, |sum: u32, m| sum.saturating_add(m.weight()))
    }
}

impl From<LocalityGroup> for LocalityLbEndpoints {
    fn from(group: LocalityGroup) -> Self {
        Self {
            locality: Some(core::Locality {
                region: group.locality.region.to_string(),
                zone: group.locality.zone.to_string(),
                sub_zone: group.locality.subzone.to_string(),
            }),
            lb_endpoints: group.members.into_iter().map(|m| m.endpoint).collect(),
            load_balancing_weight: group.weight,
            priority: group.priority,
            ..Self::default()
        }
    }
}
