//! Variables of istiod's container that have nothing to act on here, each with the reason.
//!
//! A variable that has the value which Istio's charts give it by default asks for nothing, so it is not named.

/// A variable, its value in Istio's charts or else Istio's default, and the reason why another value changes nothing.
type Row = (&'static str, &'static str, &'static str);

const AMBIENT: &str = "ambient mode is not served";
const AUTHORITY: &str = "certificates come from the authority of cacerts or istio-ca-secret, or from --tls-cert-file";
const HBONE: &str = "HBONE, the protocol of ambient mode, is not served";
const INJECTION: &str = "sidecars are not injected";
const MCS: &str = "ServiceExports and ServiceImports are not read";
const OWN: &str = "it tunes a part of istiod that is not here";
const ROTATION: &str = "the root's key and its renewal follow the authority's own rules";
const UNTAINT: &str = "nodes are not untainted";
const WAYPOINTS: &str = "waypoints are not served";
const MANAGED: &str = "Deployments of managed Gateways are not made";
const WEBHOOKS: &str = "there are no webhooks";

const ROWS: &[Row] = &[
    ("AMBIENT_SCOPED_ADDRESS_PUSHES", "true", AMBIENT),
    ("AUDIENCE", "", "the audiences of tokens are in TOKEN_AUDIENCES"),
    ("CA_TRUSTED_NODE_ACCOUNTS", "istio-system/ztunnel", AMBIENT),
    ("CERT_SIGNER_DOMAIN", "", AUTHORITY),
    ("CITADEL_ENABLE_JITTER_FOR_ROOT_CERT_ROTATOR", "true", ROTATION),
    ("CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE", "2048", ROTATION),
    ("CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL", "1h", ROTATION),
    ("CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE", "20", ROTATION),
    ("ENABLE_CLUSTER_TRUST_BUNDLE_API", "false", "roots are told by ConfigMaps"),
    ("ENABLE_LAYERED_WAYPOINT_AUTHORIZATION_POLICIES", "false", WAYPOINTS),
    ("ENABLE_LAZY_SIDECAR_EVALUATION", "true", OWN),
    ("ENABLE_MCS_AUTO_EXPORT", "false", MCS),
    ("ENABLE_MCS_CLUSTER_LOCAL", "false", MCS),
    ("ENABLE_MCS_SERVICE_DISCOVERY", "false", MCS),
    ("ENABLE_NATIVE_SIDECARS", "auto", INJECTION),
    ("ENABLE_PROXY_FIND_POD_BY_IP", "false", "the Pod of a proxy is found by its name alone, as by Istio's default"),
    ("ENABLE_VTPROTOBUF", "true", OWN),
    ("ENABLE_WILDCARD_HOST_SERVICE_ENTRIES_FOR_TLS", "false", WAYPOINTS),
    ("EXPOSE_GRPC_ADMIN", "false", "the pages at --http-addr tell the same"),
    ("EXTERNAL_CA", "", AUTHORITY),
    ("INJECTION_WEBHOOK_CONFIG_NAME", "istio-sidecar-injector", INJECTION),
    ("INJECT_ENABLED", "true", INJECTION),
    ("ISTIO_DELTA_XDS", "true", "each client chooses its protocol"),
    ("ISTIO_ENABLE_CONTROLLER_QUEUE_METRICS", "false", "queues have metrics and a debug page of their own"),
    ("ISTIO_KUBE_CLIENT_CONTENT_TYPE", "protobuf", OWN),
    ("JWKS_RESOLVER_INSECURE_SKIP_VERIFY", "false", "certificates of key servers are always verified"),
    ("K8S_SIGNER", "", AUTHORITY),
    ("MCS_API_VERSION", "v1alpha1", MCS),
    ("MUTEX_PROFILE_FRACTION", "1000", OWN),
    ("PILOT_ANALYSIS_INTERVAL", "10s", OWN),
    ("PILOT_CA_CERT_CONFIGMAP", "istio-ca-root-cert", "roots are told by the ConfigMap istio-ca-root-cert"),
    ("PILOT_CERT_PROVIDER", "istiod", AUTHORITY),
    ("PILOT_CONVERT_SIDECAR_SCOPE_CONCURRENCY", "1", OWN),
    ("PILOT_CRL_CONFIGMAP", "istio-ca-crl", "revoked certificates are told by the ConfigMap istio-ca-crl"),
    ("PILOT_ENABLE_AGENTGATEWAY", "false", "the resources of agentgateway are not served"),
    ("PILOT_ENABLE_CDS_CACHE", "true", OWN),
    ("PILOT_ENABLE_GATEWAY_API_COPY_LABELS_ANNOTATIONS", "true", MANAGED),
    ("PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER", "true", MANAGED),
    ("PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER", "true", "GatewayClasses are not made"),
    ("PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS", "false", UNTAINT),
    ("PILOT_ENABLE_RDS_CACHE", "true", OWN),
    ("PILOT_ENABLE_REMOTE_CREDENTIALS_CONTROLLER", "true", "Secrets of remote clusters are always read"),
    ("PILOT_ENABLE_SENDING_HBONE", "false", HBONE),
    ("PILOT_ENABLE_SIDECAR_LISTENING_HBONE", "false", HBONE),
    ("PILOT_ENABLE_XDS_CACHE", "true", OWN),
    ("PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME", "cni.istio.io/not-ready", UNTAINT),
    ("PILOT_PREFER_SENDING_HBONE", "false", HBONE),
    ("PILOT_STATUS_MAX_WORKERS", "100", OWN),
    ("PILOT_XDS_CACHE_INDEX_CLEAR_INTERVAL", "5s", OWN),
    ("PILOT_XDS_CACHE_SIZE", "60000", OWN),
    ("PILOT_XDS_CACHE_STATS", "false", OWN),
    ("TOKEN_ISSUER", "", "issuers of tokens are in JWT_RULE"),
    ("UNSAFE_ENABLE_ADMIN_ENDPOINTS", "false", OWN),
    ("UNSAFE_PILOT_ENABLE_RUNTIME_ASSERTIONS", "false", OWN),
    ("USE_CACERTS_FOR_SELF_SIGNED_CA", "false", "a root that is made is kept in istio-ca-secret"),
    ("USE_REMOTE_CERTS", "false", AUTHORITY),
    ("VALIDATION_WEBHOOK_CONFIG_NAME", "istio-istio-system", WEBHOOKS),
];

/// The variables with a value that asks for something and changes nothing, each with the reason, as texts.
pub(super) fn without_effect(value_of: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let asks = |(name, usual, _): &&Row| value_of(name).is_some_and(|value| value != *usual && !value.is_empty());
    ROWS.iter().filter(asks).map(|(name, _, why)| format!("{name} has no effect: {why}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Features;

    #[test]
    fn a_variable_is_named_where_its_value_asks_for_something() {
        let of = |pairs: &[(&str, &str)]| {
            let value = |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_string());
            without_effect(value)
        };
        assert_eq!(
            of(&[("PILOT_ENABLE_AGENTGATEWAY", "false"), ("PILOT_CERT_PROVIDER", "istiod"), ("K8S_SIGNER", "")]),
            [""; 0]
        );
        let named = of(&[("PILOT_ENABLE_AGENTGATEWAY", "true"), ("EXTERNAL_CA", "ISTIOD_RA_KUBERNETES_API")]);
        assert_eq!(named.len(), 2);
        assert!(named[0].starts_with("EXTERNAL_CA has no effect: ") && named[1].contains("agentgateway"), "{named:?}");
    }

    #[test]
    fn no_variable_both_has_an_effect_and_none() {
        let both: Vec<_> = ROWS.iter().map(|(name, ..)| name).filter(|name| Features::NAMES.contains(name)).collect();
        assert_eq!(both, Vec::<&&str>::new());
        assert!(ROWS.is_sorted_by(|a, b| a.0 < b.0), "each once");
    }
}
