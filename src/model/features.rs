//! Istio's feature flags (`PILOT_…` and others) that pilothouse supports, with Istio's defaults.
//!
//! The flags are read once from the environment; tests and `render` may set other values. Durations are in Istio's form
//! (`100ms`, `10s`) or, in recorded data, in nanoseconds.

mod without_effect;

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

macro_rules! features {
    ($($field:ident: $type:ty = $default:expr, $env:literal;)+) => {
        /// The values of the feature flags. A field is named after its variable.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs, reason = "the variable of that name, documented by Istio")]
        pub struct Features { $(pub $field: $type),+ }

        impl Default for Features {
            fn default() -> Self { Self { $($field: $default),+ } }
        }

        impl Features {
            /// Names of all environment variables.
            pub const NAMES: &'static [&'static str] = &[$($env),+];

            /// Sets one flag by the name of its variable. Unknown names are ignored and return `false`.
            ///
            /// # Errors
            /// [`FlagError`] when the value does not fit the flag; the flag stays as it was.
            pub fn set(&mut self, name: &str, value: &str) -> Result<bool, FlagError> {
                match name {
                    $($env => self.$field = FromFlag::from_flag(value).ok_or_else(|| FlagError::new(name, value, <$type as FromFlag>::FORM))?,)+
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }
    };
}

features! {
    enable_100_continue_headers: bool = true, "ENABLE_100_CONTINUE_HEADERS";
    enable_enhanced_destinationrule_merge: bool = true, "ENABLE_ENHANCED_DESTINATIONRULE_MERGE";
    enable_locality_weighted_lb_config: bool = false, "ENABLE_LOCALITY_WEIGHTED_LB_CONFIG";
    enable_tls_on_sidecar_ingress: bool = false, "ENABLE_TLS_ON_SIDECAR_INGRESS";
    enable_hcm_internal_networks: bool = false, "ENABLE_HCM_INTERNAL_NETWORKS";
    disable_track_remaining_cb_metrics: bool = true, "DISABLE_TRACK_REMAINING_CB_METRICS";
    disable_shadow_host_suffix: bool = true, "DISABLE_SHADOW_HOST_SUFFIX";
    enable_multicluster_headless: bool = true, "ENABLE_MULTICLUSTER_HEADLESS";
    k8s_ingress_ns: String = "istio-system".to_string(), "K8S_INGRESS_NS";
    istio_dual_stack: bool = false, "ISTIO_DUAL_STACK";
    istio_enable_ipv4_outbound_listener_for_ipv6_clusters: bool = false, "ISTIO_ENABLE_IPV4_OUTBOUND_LISTENER_FOR_IPV6_CLUSTERS";
    max_connections_per_socket_event_loop: u32 = 1, "MAX_CONNECTIONS_PER_SOCKET_EVENT_LOOP";
    allow_any_dynamic_dns_max_hosts: u32 = 1024, "PILOT_ALLOW_ANY_DYNAMIC_DNS_MAX_HOSTS";
    allow_sidecar_service_inbound_listener_merge: bool = false, "PILOT_ALLOW_SIDECAR_SERVICE_INBOUND_LISTENER_MERGE";
    disable_mx_alpn: bool = false, "PILOT_DISABLE_MX_ALPN";
    dns_cares_udp_max_queries: u32 = 100, "PILOT_DNS_CARES_UDP_MAX_QUERIES";
    dns_jitter_duration: Duration = Duration::from_nanos(100000000), "PILOT_DNS_JITTER_DURATION";
    draining_label: String = "istio.io/draining".to_string(), "PILOT_DRAINING_LABEL";
    enable_absolute_fqdn_vhost_domain: bool = true, "PILOT_ENABLE_ABSOLUTE_FQDN_VHOST_DOMAIN";
    enable_alpn_filter: bool = true, "PILOT_ENABLE_ALPN_FILTER";
    enable_eds_debounce: bool = true, "PILOT_ENABLE_EDS_DEBOUNCE";
    enable_eds_for_headless_services: bool = false, "PILOT_ENABLE_EDS_FOR_HEADLESS_SERVICES";
    enable_envoy_filter_metrics: bool = false, "PILOT_ENVOY_FILTER_STATS";
    enable_headless_filter_chain_listener: bool = false, "PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER";
    enable_ip_autoallocate: bool = true, "PILOT_ENABLE_IP_AUTOALLOCATE";
    ip_autoallocate_ipv4_prefix: Prefix<Ipv4Net> = Prefix(Ipv4Net::new_assert(Ipv4Addr::new(240, 240, 0, 0), 16)), "PILOT_IP_AUTOALLOCATE_IPV4_PREFIX";
    ip_autoallocate_ipv6_prefix: Prefix<Ipv6Net> = Prefix(Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48)), "PILOT_IP_AUTOALLOCATE_IPV6_PREFIX";
    jwt_enable_remote_jwks: JwksFetchMode = JwksFetchMode::Istiod, "PILOT_JWT_ENABLE_REMOTE_JWKS";
    jwt_pub_key_refresh_interval: Duration = Duration::from_secs(20 * 60), "PILOT_JWT_PUB_KEY_REFRESH_INTERVAL";
    blocked_cidrs_in_jwks_uris: Networks = Networks::default(), "BLOCKED_CIDRS_IN_JWKS_URIS";
    enable_k8s_select_workload_entries: bool = true, "PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES";
    enable_metadata_exchange: bool = true, "PILOT_ENABLE_METADATA_EXCHANGE";
    mx_additional_labels: Labels = Labels::default(), "PILOT_MX_ADDITIONAL_LABELS";
    enable_mongo_filter: bool = true, "PILOT_ENABLE_MONGO_FILTER";
    enable_mysql_filter: bool = false, "PILOT_ENABLE_MYSQL_FILTER";
    enable_redis_filter: bool = false, "PILOT_ENABLE_REDIS_FILTER";
    enable_persistent_session_filter: bool = false, "PILOT_ENABLE_PERSISTENT_SESSION_FILTER";
    persistent_session_label: String = "istio.io/persistent-session".to_string(), "PILOT_PERSISTENT_SESSION_LABEL";
    persistent_session_header_label: String = "istio.io/persistent-session-header".to_string(), "PILOT_PERSISTENT_SESSION_HEADER_LABEL";
    enable_quic_listeners: bool = false, "PILOT_ENABLE_QUIC_LISTENERS";
    enable_route_collapse_optimization: bool = true, "PILOT_ENABLE_ROUTE_COLLAPSE_OPTIMIZATION";
    enable_serviceentry_select_pods: bool = true, "PILOT_ENABLE_SERVICEENTRY_SELECT_PODS";
    enable_multiple_custom_authz_providers: bool = false, "PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS";
    enable_selector_based_k8s_gateway_policy: bool = true, "ENABLE_SELECTOR_BASED_K8S_GATEWAY_POLICY";
    enable_strict_gateway_merging: bool = true, "PILOT_ENABLE_STRICT_GATEWAY_MERGING";
    enable_status: bool = false, "PILOT_ENABLE_STATUS";
    enable_analysis: bool = false, "PILOT_ENABLE_ANALYSIS";
    enable_gateway_api_status: bool = true, "PILOT_ENABLE_GATEWAY_API_STATUS";
    enable_telemetry_label: bool = true, "PILOT_ENABLE_TELEMETRY_LABEL";
    endpoint_telemetry_label: bool = true, "PILOT_ENDPOINT_TELEMETRY_LABEL";
    enable_workload_entry_autoregistration: bool = true, "PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION";
    workload_entry_grace_period: Duration = Duration::from_secs(10), "PILOT_WORKLOAD_ENTRY_GRACE_PERIOD";
    workload_entry_validate_identity: bool = true, "ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY";
    enable_workload_entry_healthchecks: bool = true, "PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS";
    filter_gateway_cluster_config: bool = false, "PILOT_FILTER_GATEWAY_CLUSTER_CONFIG";
    gateway_transport_socket_connect_timeout: Duration = Duration::from_nanos(15000000000), "PILOT_GATEWAY_TRANSPORT_SOCKET_CONNECT_TIMEOUT";
    http10: bool = false, "PILOT_HTTP10";
    scope_gateway_to_namespace: bool = false, "PILOT_SCOPE_GATEWAY_TO_NAMESPACE";
    send_unhealthy_endpoints: bool = false, "PILOT_SEND_UNHEALTHY_ENDPOINTS";
    auto_send_unhealthy_endpoints: bool = true, "PILOT_AUTO_SEND_UNHEALTHY_ENDPOINTS";
    sidecar_pick_best_service_namespace: bool = true, "PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE";
    sidecar_use_remote_address: bool = false, "PILOT_SIDECAR_USE_REMOTE_ADDRESS";
    skip_validate_trust_domain: bool = false, "PILOT_SKIP_VALIDATE_TRUST_DOMAIN";
    prefer_destinationrule_tls_for_external_services: bool = true, "PREFER_DESTINATIONRULE_TLS_FOR_EXTERNAL_SERVICES";
    resolve_hostname_gateways: bool = true, "RESOLVE_HOSTNAME_GATEWAYS";
    debounce_after: Duration = Duration::from_nanos(100000000), "PILOT_DEBOUNCE_AFTER";
    debounce_max: Duration = Duration::from_nanos(10000000000), "PILOT_DEBOUNCE_MAX";
    push_throttle: u32 = 0, "PILOT_PUSH_THROTTLE";
    max_requests_per_second: f64 = 0.0, "PILOT_MAX_REQUESTS_PER_SECOND";
    max_concurrent_streams: u32 = 100_000, "ISTIO_GPRC_MAXSTREAMS";
    max_recv_msg_size: u32 = 4 << 20, "ISTIO_GPRC_MAXRECVMSGSIZE";
    enable_xds_identity_check: bool = true, "PILOT_ENABLE_XDS_IDENTITY_CHECK";
    enable_ca_server: bool = true, "ENABLE_CA_SERVER";
    enable_ca_crl: bool = true, "PILOT_ENABLE_CA_CRL";
    multiroot_mesh: bool = false, "ISTIO_MULTIROOT_MESH";
    compliance_policy: CompliancePolicy = CompliancePolicy::None, "COMPLIANCE_POLICY";
    token_audiences: String = "istio-ca".to_string(), "TOKEN_AUDIENCES";
    jwt_rule: String = String::new(), "JWT_RULE";
    trusted_gateway_cidr: Networks = Networks::default(), "TRUSTED_GATEWAY_CIDR";
    xds_auth: bool = true, "XDS_AUTH";
    xds_auth_plaintext: bool = false, "XDS_AUTH_PLAINTEXT";
    enable_debug_on_http: bool = true, "ENABLE_DEBUG_ON_HTTP";
    enable_debug_endpoint_auth: bool = true, "ENABLE_DEBUG_ENDPOINT_AUTH";
    debug_endpoint_auth_allowed_namespaces: String = String::new(), "DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES";
    default_workload_cert_ttl: Duration = Duration::from_secs(24 * 3600), "DEFAULT_WORKLOAD_CERT_TTL";
    max_workload_cert_ttl: Duration = Duration::from_secs(90 * 24 * 3600), "MAX_WORKLOAD_CERT_TTL";
    self_signed_root_ttl: Duration = Duration::from_secs(3650 * 24 * 3600), "CITADEL_SELF_SIGNED_CA_CERT_TTL";
    istiod_custom_host: String = String::new(), "ISTIOD_CUSTOM_HOST";
    enable_xds_api_generator_auth: bool = true, "ENABLE_XDS_API_GENERATOR_AUTH";
    label_canonical_services_for_mesh_external_service_entries: bool = false, "LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES";
    trace_sampling: f64 = 1.0, "PILOT_TRACE_SAMPLING";
    unified_sidecar_scope: bool = true, "PILOT_UNIFIED_SIDECAR_SCOPE";
    enable_gateway_api_inference_extension: bool = false, "ENABLE_GATEWAY_API_INFERENCE_EXTENSION";
    enable_ambient: bool = false, "PILOT_ENABLE_AMBIENT";
    enable_alpha_gateway_api: bool = false, "PILOT_ENABLE_ALPHA_GATEWAY_API";
    enable_ambient_waypoints: bool = false, "PILOT_ENABLE_AMBIENT_WAYPOINTS";
    enable_ambient_multi_network: bool = false, "AMBIENT_ENABLE_MULTI_NETWORK";
    enable_mcs_host: bool = false, "ENABLE_MCS_HOST";
    mcs_api_group: String = "multicluster.x-k8s.io".to_string(), "MCS_API_GROUP";
    multi_network_gateway_api: bool = true, "PILOT_MULTI_NETWORK_DISCOVER_GATEWAY_API";
    enable_gateway_api_manual_deployment: bool = true, "ENABLE_GATEWAY_API_MANUAL_DEPLOYMENT";
    gateway_api_default_gatewayclass: String = "istio".to_string(), "PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME";
    revision: String = String::new(), "REVISION";
    workload_entry_cross_cluster: bool = true, "PILOT_ENABLE_CROSS_CLUSTER_WORKLOAD_ENTRY";
    remote_cluster_timeout: Duration = Duration::from_secs(30), "PILOT_REMOTE_CLUSTER_TIMEOUT";
    insecure_kubeconfig_options: String = String::new(), "PILOT_INSECURE_MULTICLUSTER_KUBECONFIG_OPTIONS";
    multicluster_kubeconfig_path: String = String::new(), "PILOT_MULTICLUSTER_KUBECONFIG_PATH";
    local_cluster_secret_watcher: bool = false, "LOCAL_CLUSTER_SECRET_WATCHER";
    external_istiod: bool = false, "EXTERNAL_ISTIOD";
    ignore_resources: String = String::new(), "PILOT_IGNORE_RESOURCES";
    include_resources: String = String::new(), "PILOT_INCLUDE_RESOURCES";
    enable_gateway_api: bool = true, "PILOT_ENABLE_GATEWAY_API";
    informer_watch_namespace: String = String::new(), "ISTIO_WATCH_NAMESPACE";
    shared_mesh_config: String = String::new(), "SHARED_MESH_CONFIG";
    enable_leader_election: bool = true, "ENABLE_LEADER_ELECTION";
    system_ca_file: String = "/etc/ssl/certs/ca-certificates.crt".to_string(), "PILOTHOUSE_SYSTEM_CA_FILE";
    gateway_api_controller_name: String = "istio.io/gateway-controller".to_string(), "PILOT_GATEWAY_API_CONTROLLER_NAME";
}

impl Features {
    /// The defaults overlaid with the process environment. A value that does not fit keeps the default and is returned as a
    /// text.
    #[must_use]
    pub fn from_env() -> (Self, Vec<FlagError>) {
        Self::from_values(|name| std::env::var(name).ok())
    }

    fn from_values(value_of: impl Fn(&str) -> Option<String>) -> (Self, Vec<FlagError>) {
        let mut features = Self::default();
        let mut errors = Vec::new();
        for name in Self::NAMES {
            let Some(value) = value_of(name) else { continue };
            if let Err(error) = features.set(name, &value) {
                errors.push(error);
            } else if !(0.0..=100.0).contains(&features.trace_sampling) {
                // Istio looks at the range where it reads the environment, too: other readers take any range.
                features.trace_sampling = Self::default().trace_sampling;
                errors.push(FlagError::new(name, &value, "a percentage from 0 to 100"));
            }
        }
        (features, errors)
    }

    /// Flags of Istio that ask for something in the process environment and change nothing here, each with the reason, as texts.
    #[must_use]
    pub fn without_effect() -> Vec<String> {
        without_effect::without_effect(|name| std::env::var(name).ok())
    }
}

/// A flag whose value does not fit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {value:?} is not {form}")]
pub struct FlagError {
    name: String,
    value: String,
    form: &'static str,
}

impl FlagError {
    fn new(name: &str, value: &str, form: &'static str) -> Self {
        Self { name: name.to_string(), value: value.to_string(), form }
    }

    /// Whether the default must not stand in: its effect outlasts the process, or is less safe than the asked one.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.name.starts_with("PILOT_IP_AUTOALLOCATE_") || self.name == "COMPLIANCE_POLICY"
    }
}

/// A prefix with room for an address behind its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix<T>(pub T);

trait FromFlag: Sized {
    /// The form of a value, after "is not".
    const FORM: &'static str;

    fn from_flag(text: &str) -> Option<Self>;
}

impl FromFlag for Prefix<Ipv4Net> {
    const FORM: &'static str = "an IPv4 prefix with more than one address, such as 240.240.0.0/16";

    fn from_flag(text: &str) -> Option<Self> {
        text.parse::<Ipv4Net>().ok().filter(|net| net.addr() < net.broadcast()).map(Self)
    }
}

impl FromFlag for Prefix<Ipv6Net> {
    const FORM: &'static str = "an IPv6 prefix with more than one address, such as 2001:2::/48";

    fn from_flag(text: &str) -> Option<Self> {
        text.parse::<Ipv6Net>().ok().filter(|net| net.addr() < net.broadcast()).map(Self)
    }
}

/// Fetches the key sets that RequestAuthentications refer to by URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JwksFetchMode {
    /// The control plane, which puts them into listeners.
    #[default]
    Istiod,
    /// Envoy where the URI's host is a service of the registry, the control plane for others.
    Hybrid,
    /// Envoy, for every URI.
    Envoy,
}

impl FromFlag for JwksFetchMode {
    const FORM: &'static str = "istiod, hybrid or envoy";

    fn from_flag(text: &str) -> Option<Self> {
        Some(match text {
            "istiod" | "false" => Self::Istiod,
            "hybrid" | "true" => Self::Hybrid,
            "envoy" => Self::Envoy,
            _ => return None,
        })
    }
}

/// Restrictions over all TLS settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CompliancePolicy {
    /// No restriction: the TLS settings are those of the objects.
    #[default]
    None,
    /// TLS 1.2 with AES-GCM and P-256.
    Fips140_2,
    /// TLS 1.2 and 1.3 with AES-GCM, P-256 and P-384.
    Fips140_3,
    /// TLS 1.3 with AES-GCM and X25519MLKEM768.
    Pqc,
}

impl FromFlag for CompliancePolicy {
    const FORM: &'static str = "fips-140-2, fips-140-3 or pqc";

    fn from_flag(text: &str) -> Option<Self> {
        Some(match text {
            "" => Self::None,
            "fips-140-2" => Self::Fips140_2,
            "fips-140-3" => Self::Fips140_3,
            "pqc" => Self::Pqc,
            _ => return None,
        })
    }
}

/// Networks, as a flag lists them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Networks(pub Vec<IpNet>);

impl FromFlag for Networks {
    const FORM: &'static str = "a list of networks such as 10.0.0.0/8,fd00::/8";

    fn from_flag(text: &str) -> Option<Self> {
        let networks = text.split(',').map(str::trim).filter(|network| !network.is_empty());
        networks.map(|network| network.parse().ok()).collect::<Option<_>>().map(Self)
    }
}

/// Names of labels, sorted, each once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Labels(pub Vec<String>);

impl FromFlag for Labels {
    const FORM: &'static str = "a list of labels such as app,version";

    fn from_flag(text: &str) -> Option<Self> {
        let names: BTreeSet<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        Some(Self(names.into_iter().map(String::from).collect()))
    }
}

impl FromFlag for bool {
    const FORM: &'static str = "a truth value (true or false)";

    fn from_flag(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "t" => Some(true),
            "false" | "0" | "f" => Some(false),
            _ => None,
        }
    }
}

impl FromFlag for u32 {
    const FORM: &'static str = "a whole number";

    fn from_flag(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl FromFlag for f64 {
    const FORM: &'static str = "a number";

    fn from_flag(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl FromFlag for String {
    const FORM: &'static str = "a text";

    fn from_flag(text: &str) -> Option<Self> {
        Some(text.to_string())
    }
}

impl FromFlag for Duration {
    const FORM: &'static str = "a duration such as 10s or 1m30s";

    fn from_flag(text: &str) -> Option<Self> {
        if let Ok(nanos) = text.parse() {
            return Some(Self::from_nanos(nanos));
        }
        crate::proto::go_duration(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_does_not_fit_is_refused_and_changes_nothing() {
        let mut features = Features::default();
        for (name, value) in [
            ("PILOT_HTTP10", "maybe"),
            ("PILOT_DEBOUNCE_AFTER", "soon"),
            ("PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", "10.0.0.0"),
            ("PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", "10.0.0.1/32"),
            ("PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", "fd00::/64"),
            ("PILOT_IP_AUTOALLOCATE_IPV6_PREFIX", "10.0.0.0/8"),
        ] {
            let error = features.set(name, value).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
        assert_eq!(features, Features::default());
    }

    #[test]
    fn a_sampling_rate_out_of_range_is_told_and_the_default_stays() {
        for (value, fits) in [("0", true), ("100", true), ("150", false), ("-1", false), ("NaN", false), ("x", false)] {
            let of = |name: &str| (name == "PILOT_TRACE_SAMPLING").then(|| value.to_string());
            let (features, errors) = Features::from_values(of);
            assert_eq!(errors.is_empty(), fits, "{value}: {errors:?}");
            assert!(fits || features == Features::default(), "{value}");
        }
    }

    #[test]
    fn values_are_read_as_istio_writes_them() {
        let mut features = Features::default();
        for (name, value) in [
            ("PILOT_TRACE_SAMPLING", "100"),
            ("PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", "10.9.0.0/24"),
            ("PILOT_IP_AUTOALLOCATE_IPV6_PREFIX", "fd00:1::/64"),
        ] {
            assert_eq!(features.set(name, value), Ok(true), "{name}");
        }
        assert_eq!(features.set("PILOT_SOMETHING_ELSE", "x"), Ok(false));
        assert!((features.trace_sampling - 100.0).abs() < f64::EPSILON);
    }
}
