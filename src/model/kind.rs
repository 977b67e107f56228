//! The kinds of objects that are read, each with group, versions, aliases, plural and scope.
//!
//! The table follows Istio's schema collections (`collections.Pilot`, 15 kinds), plus the core Kubernetes kinds that the
//! registry reads, the Gateway API and Ingress kinds, the first group of the service APIs, and the kinds of Istio 1.6 that are
//! accepted as retired.

use std::fmt;

macro_rules! kinds {
    ($($kind:ident, $group:literal, [$($version:literal),+], $plural:literal, $scope:ident, $class:ident;)+) => {
        /// A kind of object. `Ord` follows the table, which is grouped by API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each variant is the kind of that name")]
        pub enum Kind { $($kind),+ }

        impl Kind {
            /// Every kind, in table order.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind),+];

            /// The kind as written in YAML. Names that several groups have (`Gateway`, `HTTPRoute`) are distinguished by the
            /// group.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    Kind::KubernetesGateway | Kind::ServiceApisGateway => "Gateway",
                    Kind::ServiceApisGatewayClass => "GatewayClass",
                    Kind::ServiceApisHTTPRoute => "HTTPRoute",
                    Kind::ServiceApisTCPRoute => "TCPRoute",
                    Kind::ServiceApisTLSRoute => "TLSRoute",
                    $(#[allow(unreachable_patterns, reason = "kinds above are written otherwise than their variants")]
                    Kind::$kind => stringify!($kind)),+
                }
            }

            /// The API group; empty for core.
            #[must_use]
            pub const fn group(self) -> &'static str { match self { $(Kind::$kind => $group),+ } }

            /// Accepted versions; the first one is used for writing.
            #[must_use]
            pub const fn versions(self) -> &'static [&'static str] { match self { $(Kind::$kind => &[$($version),+]),+ } }

            /// The plural name in a resource path.
            #[must_use]
            pub const fn plural(self) -> &'static str { match self { $(Kind::$kind => $plural),+ } }

            /// Whether the kind is namespaced.
            #[must_use]
            pub const fn namespaced(self) -> bool { match self { $(Kind::$kind => matches!(Scope::$scope, Scope::Namespaced)),+ } }

            /// The family of the kind.
            #[must_use]
            pub const fn class(self) -> KindClass { match self { $(Kind::$kind => KindClass::$class),+ } }
        }
    };
}

enum Scope {
    Namespaced,
    Cluster,
}

/// Families of kinds, by API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindClass {
    /// Istio's current API.
    Istio,
    /// Core and discovery kinds of Kubernetes.
    Kubernetes,
    /// Gateway API and its predecessor, the service APIs: translated into Istio's kinds.
    GatewayApi,
    /// Kinds of Istio 1.6: accepted, stored and reported as retired, without effect.
    Retired,
}

kinds! {
    AuthorizationPolicy, "security.istio.io", ["v1", "v1beta1"], "authorizationpolicies", Namespaced, Istio;
    DestinationRule, "networking.istio.io", ["v1", "v1alpha3", "v1beta1"], "destinationrules", Namespaced, Istio;
    EnvoyFilter, "networking.istio.io", ["v1alpha3"], "envoyfilters", Namespaced, Istio;
    Gateway, "networking.istio.io", ["v1", "v1alpha3", "v1beta1"], "gateways", Namespaced, Istio;
    PeerAuthentication, "security.istio.io", ["v1", "v1beta1"], "peerauthentications", Namespaced, Istio;
    ProxyConfig, "networking.istio.io", ["v1beta1"], "proxyconfigs", Namespaced, Istio;
    RequestAuthentication, "security.istio.io", ["v1", "v1beta1"], "requestauthentications", Namespaced, Istio;
    ServiceEntry, "networking.istio.io", ["v1", "v1alpha3", "v1beta1"], "serviceentries", Namespaced, Istio;
    Sidecar, "networking.istio.io", ["v1", "v1alpha3", "v1beta1"], "sidecars", Namespaced, Istio;
    Telemetry, "telemetry.istio.io", ["v1", "v1alpha1"], "telemetries", Namespaced, Istio;
    TrafficExtension, "extensions.istio.io", ["v1alpha1"], "trafficextensions", Namespaced, Istio;
    VirtualService, "networking.istio.io", ["v1", "v1alpha3", "v1beta1"], "virtualservices", Namespaced, Istio;
    WasmPlugin, "extensions.istio.io", ["v1alpha1"], "wasmplugins", Namespaced, Istio;
    WorkloadEntry, "networking.istio.io", ["v1", "v1alpha3", "v1beta1"], "workloadentries", Namespaced, Istio;
    WorkloadGroup, "networking.istio.io", ["v1", "v1alpha3", "v1beta1"], "workloadgroups", Namespaced, Istio;
    ConfigMap, "", ["v1"], "configmaps", Namespaced, Kubernetes;
    Endpoints, "", ["v1"], "endpoints", Namespaced, Kubernetes;
    EndpointSlice, "discovery.k8s.io", ["v1"], "endpointslices", Namespaced, Kubernetes;
    Namespace, "", ["v1"], "namespaces", Cluster, Kubernetes;
    Node, "", ["v1"], "nodes", Cluster, Kubernetes;
    Pod, "", ["v1"], "pods", Namespaced, Kubernetes;
    Secret, "", ["v1"], "secrets", Namespaced, Kubernetes;
    Service, "", ["v1"], "services", Namespaced, Kubernetes;
    Ingress, "networking.k8s.io", ["v1"], "ingresses", Namespaced, Kubernetes;
    IngressClass, "networking.k8s.io", ["v1"], "ingressclasses", Cluster, Kubernetes;
    MutatingWebhookConfiguration, "admissionregistration.k8s.io", ["v1"], "mutatingwebhookconfigurations", Cluster, Kubernetes;
    GatewayClass, "gateway.networking.k8s.io", ["v1", "v1beta1", "v1alpha2"], "gatewayclasses", Cluster, GatewayApi;
    KubernetesGateway, "gateway.networking.k8s.io", ["v1", "v1beta1", "v1alpha2"], "gateways", Namespaced, GatewayApi;
    HTTPRoute, "gateway.networking.k8s.io", ["v1", "v1beta1", "v1alpha2"], "httproutes", Namespaced, GatewayApi;
    GRPCRoute, "gateway.networking.k8s.io", ["v1", "v1alpha2"], "grpcroutes", Namespaced, GatewayApi;
    TCPRoute, "gateway.networking.k8s.io", ["v1", "v1alpha2"], "tcproutes", Namespaced, GatewayApi;
    TLSRoute, "gateway.networking.k8s.io", ["v1", "v1alpha3", "v1alpha2"], "tlsroutes", Namespaced, GatewayApi;
    ReferenceGrant, "gateway.networking.k8s.io", ["v1beta1", "v1", "v1alpha2"], "referencegrants", Namespaced, GatewayApi;
    ListenerSet, "gateway.networking.k8s.io", ["v1"], "listenersets", Namespaced, GatewayApi;
    BackendTLSPolicy, "gateway.networking.k8s.io", ["v1", "v1alpha3"], "backendtlspolicies", Namespaced, GatewayApi;
    XBackend, "gateway.networking.x-k8s.io", ["v1alpha1"], "xbackends", Namespaced, GatewayApi;
    XBackendTrafficPolicy, "gateway.networking.x-k8s.io", ["v1alpha1"], "xbackendtrafficpolicies", Namespaced, GatewayApi;
    InferencePool, "inference.networking.k8s.io", ["v1"], "inferencepools", Namespaced, GatewayApi;
    BackendPolicy, "networking.x-k8s.io", ["v1alpha1"], "backendpolicies", Namespaced, GatewayApi;
    ServiceApisGatewayClass, "networking.x-k8s.io", ["v1alpha1"], "gatewayclasses", Cluster, GatewayApi;
    ServiceApisGateway, "networking.x-k8s.io", ["v1alpha1"], "gateways", Namespaced, GatewayApi;
    ServiceApisHTTPRoute, "networking.x-k8s.io", ["v1alpha1"], "httproutes", Namespaced, GatewayApi;
    ServiceApisTCPRoute, "networking.x-k8s.io", ["v1alpha1"], "tcproutes", Namespaced, GatewayApi;
    ServiceApisTLSRoute, "networking.x-k8s.io", ["v1alpha1"], "tlsroutes", Namespaced, GatewayApi;
    MeshPolicy, "authentication.istio.io", ["v1alpha1"], "meshpolicies", Cluster, Retired;
    Policy, "authentication.istio.io", ["v1alpha1"], "policies", Namespaced, Retired;
    HTTPAPISpec, "config.istio.io", ["v1alpha2"], "httpapispecs", Namespaced, Retired;
    HTTPAPISpecBinding, "config.istio.io", ["v1alpha2"], "httpapispecbindings", Namespaced, Retired;
    QuotaSpec, "config.istio.io", ["v1alpha2"], "quotaspecs", Namespaced, Retired;
    QuotaSpecBinding, "config.istio.io", ["v1alpha2"], "quotaspecbindings", Namespaced, Retired;
    ClusterRbacConfig, "rbac.istio.io", ["v1alpha1"], "clusterrbacconfigs", Cluster, Retired;
    RbacConfig, "rbac.istio.io", ["v1alpha1"], "rbacconfigs", Cluster, Retired;
    ServiceRole, "rbac.istio.io", ["v1alpha1"], "serviceroles", Namespaced, Retired;
    ServiceRoleBinding, "rbac.istio.io", ["v1alpha1"], "servicerolebindings", Namespaced, Retired;
}

impl Kind {
    /// The kind with this `apiVersion` and `kind`; `None` when it is not in the table.
    #[must_use]
    pub fn parse(api_version: &str, kind: &str) -> Option<Kind> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Kind::ALL.iter().copied().find(|k| k.as_str() == kind && k.group() == group && k.versions().contains(&version))
    }

    /// The reason an object of a known group has no known kind: the group lacks the version or the kind. `None` for other
    /// groups, and for Kubernetes' own groups, most of whose kinds are not read.
    #[must_use]
    pub fn unknown_of_known_group(api_version: &str, kind: &str) -> Option<String> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let of_group = || Kind::ALL.iter().filter(|k| k.group() == group);
        if let Some(known) = of_group().find(|k| k.as_str() == kind) {
            let versions = known.versions().join(", ");
            return Some(format!("not read: {kind} of {group} has no version {version:?}, but {versions}"));
        }
        if !of_group().any(|k| k.class() != KindClass::Kubernetes) {
            return None;
        }
        let plain = |name: &str| name.to_ascii_lowercase().trim_end_matches('s').to_string();
        let near = of_group().find(|k| plain(k.as_str()) == plain(kind) || k.plural().eq_ignore_ascii_case(kind));
        let hint = near.map(|k| format!("; {k} is")).unwrap_or_default();
        Some(format!("not read: {kind:?} of {group} is no kind that is known here{hint}"))
    }

    /// The effective namespace of an object with `written` as its namespace: as with `kubectl apply`, a namespaced object
    /// without one is in `default`. (Istio's file source leaves it empty, where neither a proxy nor a short host name finds
    /// it.)
    #[must_use]
    pub fn namespace(self, written: &str) -> &str {
        if self.namespaced() && written.is_empty() { "default" } else { written }
    }

    /// The `apiVersion` used for writing.
    #[must_use]
    pub fn api_version(self) -> String {
        let version = self.versions()[0];
        if self.group().is_empty() { version.to_string() } else { format!("{}/{version}", self.group()) }
    }

    /// Whether objects of this kind are read from remote clusters: those that define services and workloads, Secrets, and
    /// Gateways between networks. Configuration is read from the main cluster only.
    #[must_use]
    pub const fn is_read_of_remote_clusters(self) -> bool {
        let config =
            matches!(self, Kind::ConfigMap | Kind::Ingress | Kind::IngressClass | Kind::MutatingWebhookConfiguration);
        matches!(self, Kind::WorkloadEntry | Kind::KubernetesGateway)
            || (matches!(self.class(), KindClass::Kubernetes) && !config)
    }

    /// `group/version/Kind`, with `core` for the empty group: Istio's `GroupVersionKind.String()`.
    #[must_use]
    pub fn gvk(self) -> String {
        let group = if self.group().is_empty() { "core" } else { self.group() };
        format!("{group}/{}/{}", self.versions()[0], self.as_str())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_version_or_kind_of_a_known_group_is_named() {
        let unknown = |version, kind| Kind::unknown_of_known_group(version, kind).unwrap_or_default();
        let version = unknown("networking.istio.io/v1beta9", "VirtualService");
        assert!(version.contains("no version \"v1beta9\", but v1, v1alpha3, v1beta1"), "{version}");
        assert!(unknown("gateway.networking.k8s.io/v2", "Gateway").contains("no version \"v2\""));
        assert!(unknown("networking.istio.io/v1", "VirtualServices").ends_with("; VirtualService is"));
        assert!(unknown("security.istio.io/v1", "authorizationpolicies").ends_with("; AuthorizationPolicy is"));
        assert!(unknown("v2", "Service").contains("no version"));
        for (version, kind) in [("v1", "ServiceAccount"), ("apps/v1", "Deployment"), ("discovery.k8s.io/v1", "Other")] {
            assert_eq!(unknown(version, kind), "");
        }
    }
}
