//! The annotations of Istio's API: the kinds of objects that each is for, its maturity, and the form of its value.

/// The form of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    /// Any text.
    Any,
    /// Ranges of addresses, or all.
    Ranges,
    /// Ranges of addresses.
    ExcludedRanges,
    /// Ports, or all.
    Ports,
    /// Ports.
    ExcludedPorts,
    /// One port.
    Port,
    /// A natural number.
    Number,
    /// A truth value.
    Bool,
    /// A way of interception.
    Interception,
    /// A quantity of Kubernetes.
    Quantity,
}

/// An annotation.
pub(super) struct Annotation {
    pub name: &'static str,
    /// Kinds that it may stand on; `Any` for all.
    pub kinds: &'static [&'static str],
    pub is_alpha: bool,
    pub is_deprecated: bool,
    pub values: Values,
}

const fn annotation(
    name: &'static str,
    kinds: &'static [&'static str],
    is_alpha: bool,
    is_deprecated: bool,
    values: Values,
) -> Annotation {
    Annotation { name, kinds, is_alpha, is_deprecated, values }
}

/// All annotations, each with its kinds, whether it is alpha, whether it is deprecated, and the form of its value.
pub(super) const TABLE: &[Annotation] = &[
    annotation("alpha.istio.io/canonical-serviceaccounts", &["Service"], true, true, Values::Any),
    annotation("alpha.istio.io/kubernetes-serviceaccounts", &["Service"], true, true, Values::Any),
    annotation("ambient.istio.io/bypass-inbound-capture", &["Pod"], true, false, Values::Any),
    annotation("ambient.istio.io/dns-capture", &["Pod"], true, false, Values::Any),
    annotation("ambient.istio.io/redirection", &["Pod"], false, false, Values::Any),
    annotation("ambient.istio.io/waypoint-inbound-binding", &["GatewayClass", "Gateway"], true, false, Values::Any),
    annotation("galley.istio.io/analyze-suppress", &["Any"], true, false, Values::Any),
    annotation("gateway.istio.io/controller-version", &["Any"], true, false, Values::Any),
    annotation("gateway.istio.io/name-override", &["Gateway"], true, false, Values::Any),
    annotation("gateway.istio.io/service-account", &["Gateway"], true, false, Values::Any),
    annotation("inject.istio.io/templates", &["Pod"], true, false, Values::Any),
    annotation("istio.io/autoRegistrationGroup", &["WorkloadEntry"], true, false, Values::Any),
    annotation("istio.io/connectedAt", &["WorkloadEntry"], true, false, Values::Any),
    annotation("istio.io/disconnectedAt", &["WorkloadEntry"], true, false, Values::Any),
    annotation("istio.io/dry-run", &["AuthorizationPolicy"], true, false, Values::Any),
    annotation("istio.io/reroute-virtual-interfaces", &["Pod"], true, false, Values::Any),
    annotation("istio.io/rev", &["Pod"], true, false, Values::Any),
    annotation(
        "istio.io/use-waypoint-canary-weight",
        &["Service", "ServiceEntry", "Namespace"],
        true,
        false,
        Values::Any,
    ),
    annotation("istio.io/workloadController", &["WorkloadEntry"], true, false, Values::Any),
    annotation("kubernetes.io/ingress.class", &["Ingress"], false, false, Values::Any),
    annotation("networking.istio.io/exportTo", &["Service"], true, false, Values::Any),
    annotation("networking.istio.io/service-type", &["Gateway"], true, false, Values::Any),
    annotation(
        "networking.istio.io/traffic-distribution",
        &["Namespace", "Service", "ServiceEntry"],
        true,
        false,
        Values::Any,
    ),
    annotation("prometheus.istio.io/merge-metrics", &["Pod"], true, false, Values::Bool),
    annotation("proxy.istio.io/config", &["Pod"], false, false, Values::Any),
    annotation("proxy.istio.io/overrides", &["Pod"], true, false, Values::Any),
    annotation("readiness.status.sidecar.istio.io/applicationPorts", &["Pod"], true, false, Values::Any),
    annotation("readiness.status.sidecar.istio.io/failureThreshold", &["Pod"], true, false, Values::Number),
    annotation("readiness.status.sidecar.istio.io/initialDelaySeconds", &["Pod"], true, false, Values::Number),
    annotation("readiness.status.sidecar.istio.io/periodSeconds", &["Pod"], true, false, Values::Number),
    annotation("sidecar.istio.io/agentLogLevel", &["Pod"], true, false, Values::Any),
    annotation("sidecar.istio.io/bootstrapOverride", &["Pod"], true, false, Values::Any),
    annotation("sidecar.istio.io/componentLogLevel", &["Pod"], true, false, Values::Any),
    annotation("sidecar.istio.io/discoveryAddress", &["Pod"], true, true, Values::Any),
    annotation("sidecar.istio.io/extraStatTags", &["Pod"], true, true, Values::Any),
    annotation("sidecar.istio.io/inject", &["Pod"], false, true, Values::Any),
    annotation("sidecar.istio.io/interceptionMode", &["Pod"], true, false, Values::Interception),
    annotation("sidecar.istio.io/logLevel", &["Pod"], true, false, Values::Any),
    annotation("sidecar.istio.io/nativeSidecar", &["Pod"], true, false, Values::Any),
    annotation("sidecar.istio.io/proxyCPU", &["Pod"], true, false, Values::Quantity),
    annotation("sidecar.istio.io/proxyCPULimit", &["Pod"], true, false, Values::Quantity),
    annotation("sidecar.istio.io/proxyImage", &["Pod"], true, false, Values::Any),
    annotation("sidecar.istio.io/proxyImageType", &["Pod"], true, false, Values::Any),
    annotation("sidecar.istio.io/proxyMemory", &["Pod"], true, false, Values::Quantity),
    annotation("sidecar.istio.io/proxyMemoryLimit", &["Pod"], true, false, Values::Quantity),
    annotation("sidecar.istio.io/rewriteAppHTTPProbers", &["Pod"], true, false, Values::Any),
    annotation("sidecar.istio.io/statsCompression", &["Pod"], true, true, Values::Any),
    annotation("sidecar.istio.io/statsEvictionInterval", &["Pod"], true, false, Values::Any),
    annotation("sidecar.istio.io/statsFlushInterval", &["Pod"], true, false, Values::Any),
    annotation("sidecar.istio.io/statsHistogramBins", &["Pod"], true, false, Values::Any),
    annotation("sidecar.istio.io/statsHistogramBuckets", &["Pod"], true, false, Values::Any),
    annotation("sidecar.istio.io/statsInclusionPrefixes", &["Pod"], true, true, Values::Any),
    annotation("sidecar.istio.io/statsInclusionRegexps", &["Pod"], true, true, Values::Any),
    annotation("sidecar.istio.io/statsInclusionSuffixes", &["Pod"], true, true, Values::Any),
    annotation("sidecar.istio.io/status", &["Pod"], true, false, Values::Any),
    annotation("sidecar.istio.io/userVolume", &["Pod"], true, false, Values::Any),
    annotation("sidecar.istio.io/userVolumeMount", &["Pod"], true, false, Values::Any),
    annotation("status.sidecar.istio.io/port", &["Pod"], true, false, Values::Port),
    annotation("topology.istio.io/controlPlaneClusters", &["Namespace"], true, false, Values::Any),
    annotation("traffic.istio.io/nodeSelector", &["Service"], false, false, Values::Any),
    annotation("traffic.sidecar.istio.io/excludeInboundPorts", &["Pod"], true, false, Values::ExcludedPorts),
    annotation("traffic.sidecar.istio.io/excludeInterfaces", &["Pod"], true, false, Values::Any),
    annotation("traffic.sidecar.istio.io/excludeOutboundIPRanges", &["Pod"], true, false, Values::ExcludedRanges),
    annotation("traffic.sidecar.istio.io/excludeOutboundPorts", &["Pod"], true, false, Values::ExcludedPorts),
    annotation("traffic.sidecar.istio.io/includeInboundPorts", &["Pod"], true, false, Values::Ports),
    annotation("traffic.sidecar.istio.io/includeOutboundIPRanges", &["Pod"], true, false, Values::Ranges),
    annotation("traffic.sidecar.istio.io/includeOutboundPorts", &["Pod"], true, false, Values::Any),
    annotation("traffic.sidecar.istio.io/kubevirtInterfaces", &["Pod"], true, true, Values::Any),
];
