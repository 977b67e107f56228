//! The view: everything of a proxy that generation may read, and nothing else. Proxies with equal views get equal bytes.
//!
//! A view is the cache key of the resources generated for it, so a generator cannot read an input that the key does not
//! hold. It has two halves. [`ProxyView::outbound`] blanks the inputs of inbound generation (own IPs, own services), so that
//! all workloads of a namespace share the outbound half; generators of outbound resources are given that one.

use std::{hash::Hash, sync::Arc};

use xxhash_rust::xxh3::Xxh3Default;

use super::{OwnPeer, envoy_filters::PatchSet};
use crate::model::{Labels, Locality, Node, NodeMetadata, NodeType, ServiceTarget};

/// The names of a proxy's service in its spans.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SpanNames {
    /// The cluster of its node message.
    pub cluster: Arc<str>,
    /// The name by OpenTelemetry's semantic conventions.
    pub service: Arc<str>,
}

/// Labels by which the replicas of one version of a workload are told from those of another.
pub(crate) const TEMPLATE_HASHES: [&str; 2] = ["pod-template-hash", "rollouts-pod-template-hash"];

/// The inputs of generation that come from a proxy.
#[derive(Debug, Clone, PartialEq)]
pub struct ProxyView {
    /// Kind of the proxy: sidecar, router, …
    pub node_type: NodeType,
    /// Config namespace.
    pub namespace: Arc<str>,
    /// DNS domain of the namespace, as `ns.svc.cluster.local`.
    pub dns_domain: Arc<str>,
    /// Workload labels, restricted to keys that some selector of the snapshot reads (see `PushContext::view_of`).
    pub labels: Labels,
    /// Region, zone and subzone of the proxy.
    pub locality: Locality,
    /// Network of the proxy; empty when it is unknown.
    pub network: Arc<str>,
    /// Cluster that the proxy runs in.
    pub cluster_id: Arc<str>,
    /// Whether the proxy has an IPv4 address.
    pub ipv4: bool,
    /// Whether the proxy has an IPv6 address.
    pub ipv6: bool,
    /// The first address is IPv6 (decides wildcard and localhost addresses on dual-stack proxies).
    pub ipv6_first: bool,
    /// Names for spans; empty where no tracing provider takes them.
    pub span_names: SpanNames,
    /// The workload itself, in listeners of a stock Envoy that counts.
    pub own: Option<Arc<OwnPeer>>,
    /// The proxy is a stock Envoy that counts: endpoints and clusters tell it about themselves.
    pub counts: bool,
    /// Metadata that changes the generated resources.
    pub metadata: Arc<NodeMetadata>,
    /// Names a proxyless gRPC client or SDS asks for are not here: they are arguments of those generators.
    /// Own IPs; empty in the outbound half unless outbound generation needs them (own pod of a headless service).
    pub ips: Vec<Arc<str>>,
    /// The patches of EnvoyFilters for the proxy; in the halves only those of their resources.
    pub patches: Arc<PatchSet>,
    /// The control plane issues the workload's certificate: the client is a stock Envoy that proved its identity.
    pub certified: bool,
    /// The client proved its identity; of one on loopback the word of its node may do.
    pub is_proven: bool,
    /// Services that the workload serves itself; empty in the outbound half.
    pub targets: Arc<[ServiceTarget]>,
}

impl ProxyView {
    /// The view of a node as it stands, with all labels and IPs. `PushContext::view_of` narrows it.
    #[must_use]
    pub fn of_node(node: &Node) -> Self {
        let v6 = |ip: &Arc<str>| ip.contains(':');
        Self {
            node_type: node.node_type,
            namespace: node.namespace.clone(),
            dns_domain: node.dns_domain.clone(),
            labels: node.labels.clone(),
            locality: node.locality.clone(),
            network: node.network.clone(),
            cluster_id: node.cluster_id.clone(),
            ipv4: node.ips.iter().any(|i| !v6(i)),
            ipv6: node.ips.iter().any(v6),
            ipv6_first: node.ips.first().is_some_and(v6),
            span_names: SpanNames::default(),
            own: None,
            counts: false,
            metadata: Arc::new(node.metadata.clone()),
            ips: node.ips.clone(),
            patches: PatchSet::none(),
            certified: false,
            is_proven: false,
            targets: Arc::from([]),
        }
    }

    /// 128 bits that stand for the view: equal views have equal keys, and different views different ones for all practical
    /// purposes. The same in every run of the same build; own services count by their stamps.
    #[must_use]
    pub fn key(&self) -> u128 {
        let mut hasher = Xxh3Default::new();
        (self.node_type, &self.namespace, &self.dns_domain, &self.labels).hash(&mut hasher);
        (&self.locality, &self.network, &self.cluster_id).hash(&mut hasher);
        (self.ipv4, self.ipv6, self.ipv6_first, &self.span_names, &self.metadata, &self.ips).hash(&mut hasher);
        (self.certified, self.is_proven, self.counts, &self.own).hash(&mut hasher);
        (self.certified, self.is_proven, self.patches.key()).hash(&mut hasher);
        self.targets.len().hash(&mut hasher);
        for target in &*self.targets {
            (target.service.stamp, &target.port, target.target_port).hash(&mut hasher);
        }
        hasher.digest128()
    }

    /// Whether this is a gateway: its traffic has no outbound half of its own, and it has Gateways instead of services.
    #[must_use]
    pub fn is_router(&self) -> bool {
        matches!(self.node_type, NodeType::Router | NodeType::Agentgateway)
    }

    /// The service whose endpoints are the workload's own: the oldest that it serves, ties by host (Istio's `LocalService`).
    #[must_use]
    pub fn own_service(&self) -> Option<&ServiceTarget> {
        self.targets.iter().min_by(|a, b| {
            let age = |target: &ServiceTarget| (target.service.creation_time, target.service.hostname.clone());
            age(a).cmp(&age(b))
        })
    }

    /// Whether the proxy is Istio's own build of Envoy (it says so by `ISTIO_VERSION`), which has Istio's extensions.
    #[must_use]
    pub fn is_istio_proxy(&self) -> bool {
        !self.metadata.istio_version.is_empty()
    }

    /// The wildcard address that listeners of this proxy bind to first (Istio's `getActualWildcardAndLocalHost`).
    #[must_use]
    pub fn wildcard(&self) -> &'static str {
        if self.ipv4 { "0.0.0.0" } else { "::" }
    }

    /// The loopback address of this proxy.
    #[must_use]
    pub fn localhost(&self) -> &'static str {
        if self.ipv4 { "127.0.0.1" } else { "::1" }
    }

    /// Whether the proxy supports both address families (only counts with `ISTIO_DUAL_STACK`).
    #[must_use]
    pub fn is_dual_stack(&self) -> bool {
        self.ipv4 && self.ipv6
    }

    /// The half that outbound generation reads: no own services, and own IPs only where `keep_ips`.
    #[must_use]
    pub fn outbound(&self, keep_ips: bool) -> Self {
        let mut half = self.clone();
        half.targets = Arc::from([]);
        if !keep_ips {
            half.ips.clear();
        }
        half
    }
}
