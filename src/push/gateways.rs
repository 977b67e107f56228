//! Gateways that select a router, merged by port into one logical gateway (Istio's `model.MergedGateway`).
//!
//! Owns selection, port translation, conflict rules and route names; listeners and routes are generated from the result.
//! A [`MergedGateway`] depends on the Gateways, the flags, and of the view only its namespace, labels and own services, so
//! it is memoised by these. Servers that lose a conflict are left out and named in [`MergedGateway::conflicts`].

mod credentials;
mod merge;
mod select;
mod server;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use self::select::Selected;
pub use self::{credentials::CredentialReference, server::GatewayServer};
use super::{ProxyView, context::PushInputs};
use crate::{
    model::{Config, Features, Identity, Kind, Labels, NodeType, ServiceTarget},
    translate::Translation,
};

/// A port that a router listens on, as the servers on it see it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerPort {
    /// The port that is bound: the target port of the server's port.
    pub number: u32,
    /// Protocol as written.
    pub protocol: String,
    /// Address as written; empty for the wildcard.
    pub bind: String,
}

/// The servers of one port, merged.
#[derive(Debug, Clone, Default)]
pub struct MergedServers {
    /// In the order of their Gateways.
    pub servers: Vec<Arc<GatewayServer>>,
    /// RDS name for plaintext HTTP; HTTPS servers have their own ([`GatewayServer::route_name`]).
    pub route_name: String,
}

/// All servers of all Gateways that select one router, merged by port.
#[derive(Debug, Default)]
pub struct MergedGateway {
    /// Ports in the order in which they were first used.
    pub server_ports: Vec<ServerPort>,
    /// Servers over TCP by port.
    pub servers: BTreeMap<ServerPort, MergedServers>,
    /// Servers over QUIC by port; mirrors of HTTPS servers, only with `PILOT_ENABLE_QUIC_LISTENERS`.
    pub quic_servers: BTreeMap<ServerPort, MergedServers>,
    /// RDS names whose virtual hosts advertise HTTP/3.
    pub http3_advertising_routes: BTreeSet<String>,
    /// Servers behind one RDS name. Only plaintext HTTP has more than one.
    pub servers_by_route_name: BTreeMap<String, Vec<Arc<GatewayServer>>>,
    /// `namespace/name` of every Gateway that takes part.
    pub gateway_names: BTreeSet<Arc<str>>,
    /// Whether some server is AUTO_PASSTHROUGH, so clusters with SNI names are needed.
    pub contains_auto_passthrough: bool,
    /// Hosts of the AUTO_PASSTHROUGH servers.
    pub auto_passthrough_sni_hosts: BTreeSet<String>,
    /// Server ports by the port number in the RDS name.
    pub port_map: BTreeMap<u32, BTreeSet<u32>>,
    /// Credentials that the servers refer to; [`MergedGateway::verified_references`] decides the proxies that get them.
    pub credentials: Vec<CredentialReference>,
    /// The servers that were left out, each with its reason, as text for users.
    pub conflicts: Vec<String>,
}

impl MergedGateway {
    /// SDS names that a proxy with this identity may have because its gateway configuration refers to them
    /// (Istio's `VerifiedCertificateReferences`): configuration, Secret and proxy are all in one namespace, or a
    /// ReferenceGrant permits the reference.
    #[must_use]
    pub fn verified_references(&self, identity: &Identity, translation: &Translation) -> BTreeSet<String> {
        self.credentials.iter().filter_map(|c| c.granted_to(identity, translation)).flatten().collect()
    }
}

/// Gateways, and the memo of merged ones.
#[derive(Debug, Default)]
pub struct GatewayIndex {
    /// All Gateways, oldest first.
    pub all: Vec<Arc<Config>>,
    memo: select::Memo,
}

impl GatewayIndex {
    /// Builds the index.
    #[must_use]
    pub fn build(inputs: &PushInputs) -> Self {
        Self { all: inputs.configs.list(Kind::Gateway).to_vec(), memo: select::Memo::default() }
    }

    /// The Gateways that select the view, merged; `None` when none does. Target ports come from the view's own services.
    pub(super) fn merged(&self, features: &Features, view: &ProxyView) -> Option<Arc<MergedGateway>> {
        if view.node_type == NodeType::Agentgateway {
            return None;
        }
        self.memo.get_or_merge(view, || {
            let selected = self.select(features, &view.namespace, &view.labels, &view.targets);
            (!selected.is_empty()).then(|| Arc::new(merge::merge(&selected, features)))
        })
    }

    fn select<'a>(
        &'a self,
        features: &Features,
        namespace: &str,
        labels: &Labels,
        targets: &'a [ServiceTarget],
    ) -> Vec<Selected<'a>> {
        let mut selected: Vec<_> = self
            .all
            .iter()
            .filter(|g| !features.scope_gateway_to_namespace || *g.meta.namespace == *namespace)
            .filter_map(|g| Selected::of(g, labels, targets))
            .collect();
        if features.enable_strict_gateway_merging {
            select::keep_managed_namespaces(&mut selected);
        }
        selected
    }
}
