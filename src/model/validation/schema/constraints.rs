//! The limits of Istio's definitions that its messages do not have, by message and field.

use prost_reflect::MessageDescriptor;

use super::{
    Limit::{self, AnyText, Cel, Chars, Differ, Each, Form, Items, Range, Required},
    rules,
};
use crate::model::Kind;

/// No upper limit.
const ANY: usize = usize::MAX;
/// No upper limit of a number.
const UNBOUNDED: f64 = f64::INFINITY;

/// The kinds whose objects must have a `spec`.
pub(super) const SPEC_REQUIRED: [Kind; 5] =
    [Kind::ServiceEntry, Kind::TrafficExtension, Kind::WasmPlugin, Kind::WorkloadEntry, Kind::WorkloadGroup];

/// The name of a message with its group of Istio's API, without the version.
pub(super) fn short_name(message: &MessageDescriptor) -> String {
    let package = message.package_name();
    let group = package.trim_start_matches("istio.").split('.').next().unwrap_or_default();
    let name = message.full_name().strip_prefix(package).unwrap_or_default();
    format!("{group}{name}")
}

/// A second name of a field, beside the one in camel case.
pub(super) fn second_name<'n>(message: &str, field: &'n str) -> Option<&'n str> {
    matches!((message, field), ("networking.HTTPRoute", "mirror_percent") | ("security.JWTRule", "jwks_uri"))
        .then_some(field)
}

/// The limits of a field.
pub(super) fn of_field(message: &str, field: &str) -> &'static [Limit] {
    let found = FIELDS.iter().find(|(of, name, _)| *of == message && *name == field);
    found.map(|(_, _, limits)| *limits).unwrap_or_default()
}

/// The limits of a message as a whole.
pub(super) fn of_message(message: &str) -> &'static [Limit] {
    MESSAGES.iter().find(|(of, _)| *of == message).map(|(_, limits)| *limits).unwrap_or_default()
}

/// Limits of a `spec` that its message does not have in other places.
pub(super) fn of_kind(kind: Kind) -> &'static [Limit] {
    if kind == Kind::WorkloadEntry { &[Cel(rules::ADDRESS)] } else { &[] }
}

/// The messages and fields that have limits.
#[cfg(test)]
pub(super) fn keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    FIELDS.iter().map(|(message, field, _)| (*message, *field))
}

/// The messages of a package with their fields.
#[cfg(test)]
pub(super) fn names(package: &str) -> Vec<(String, String)> {
    let pool = crate::proto::pool();
    let messages = pool.all_messages().filter(|message| message.package_name() == package);
    let named = messages.flat_map(|message| {
        let name = short_name(&message);
        let fields =
            message.fields().flat_map(|f| [f.json_name().to_string(), f.name().to_string()]).collect::<Vec<_>>();
        fields.into_iter().map(move |field| (name.clone(), field))
    });
    named.collect()
}

const MESSAGES: &[(&str, &[Limit])] = &[
    ("extensions.EnvVar", &[Cel(rules::VALUE_INLINE)]),
    ("extensions.TrafficExtension", &[Cel(rules::ONE_TARGET), Cel(rules::WASM_OR_LUA)]),
    ("extensions.WasmPlugin", &[Cel(rules::ONE_TARGET)]),
    ("networking.EnvoyFilter", &[Cel(rules::ONE_WORKLOAD_TARGET)]),
    ("networking.EnvoyFilter.EnvoyConfigObjectMatch", &[Cel(rules::WAYPOINT_MATCH)]),
    (
        "networking.ServerTLSSettings",
        // The third rule of the definitions repeats the first.
        &[Cel(rules::ONE_OF_NAMES_AND_LIST), Cel(rules::ONE_OF_NAME_AND_NAMES), Cel(rules::ONE_OF_NAMES_AND_LIST)],
    ),
    (
        "networking.ServiceEntry",
        &[
            Cel(rules::SELECTOR_OR_ENDPOINTS),
            Cel(rules::NO_BLOCK_OVER_DNS),
            Cel(rules::NO_ENDPOINTS_WITHOUT_RESOLUTION),
            Cel(rules::ONE_ENDPOINT_IN_TURN),
        ],
    ),
    ("networking.WorkloadEntry", &[Cel(rules::NO_PORTS_OF_SOCKET)]),
    ("security.AuthorizationPolicy", &[Cel(rules::ONE_TARGET)]),
    ("security.JWTRule", &[Cel(rules::ONE_KEY_SET)]),
    ("security.PeerAuthentication", &[Cel(rules::PORTS_OF_SELECTED)]),
    ("security.RequestAuthentication", &[Cel(rules::ONE_TARGET)]),
    ("security.Source", &[Cel(rules::ACCOUNTS_ALONE)]),
    ("telemetry.MetricsOverrides.TagOverride", &[Cel(rules::TAG_VALUE), Cel(rules::NO_TAG_VALUE)]),
    ("telemetry.Telemetry", &[Cel(rules::ONE_TARGET)]),
];

const TEXT: &[Limit] = &[Chars(1, ANY)];
const NAMED: &[Limit] = &[Required, Chars(1, ANY)];
const NEEDED: &[Limit] = &[Required];
const TARGETS: &[Limit] = &[Items(0, 16)];
const LABELS: &[Limit] = &[Items(0, 256)];
const ACCOUNTS: &[Limit] = &[Items(0, 16), Each(&[Chars(0, 320)])];
const CERTIFICATES: &[Limit] = &[Items(1, 2)];
const IMAGE: &[Limit] = &[Required, Chars(1, ANY), Cel(rules::IMAGE_URL)];
const KEYS_URL: &[Limit] = &[Chars(1, 2048), Cel(rules::WEB_URL)];
const PORT: &[Limit] = &[Cel(rules::PORT)];
const NEEDED_PORT: &[Limit] = &[Required, Cel(rules::PORT)];
const NATURAL: &[Limit] = &[Range(0.0, UNBOUNDED)];
const PERCENT: &[Limit] = &[Range(0.0, 100.0)];
const LABEL: &[Limit] = &[Chars(0, 63), Cel(rules::NO_WILDCARD)];

const FIELDS: &[(&str, &str, &[Limit])] = &[
    // extensions
    ("extensions.EnvVar", "name", &[Required, Chars(1, 256)]),
    ("extensions.EnvVar", "value", &[Chars(0, 2048)]),
    ("extensions.LuaConfig", "inlineCode", &[Required, Chars(1, 65_536)]),
    ("extensions.TrafficExtension", "targetRefs", TARGETS),
    ("extensions.TrafficSelector", "ports", &[Differ("number")]),
    ("extensions.VmConfig", "env", &[Items(0, 256), Differ("name")]),
    ("extensions.WasmConfig", "imagePullSecret", &[Chars(1, 253)]),
    ("extensions.WasmConfig", "pluginName", &[Chars(1, 256)]),
    ("extensions.WasmConfig", "sha256", &[Form(rules::SHA256)]),
    ("extensions.WasmConfig", "url", IMAGE),
    ("extensions.WasmPlugin", "imagePullSecret", &[Chars(1, 253)]),
    ("extensions.WasmPlugin", "pluginName", &[Chars(1, 256)]),
    ("extensions.WasmPlugin", "sha256", &[Form(rules::SHA256)]),
    ("extensions.WasmPlugin", "targetRefs", TARGETS),
    ("extensions.WasmPlugin", "url", IMAGE),
    ("extensions.WasmPlugin.TrafficSelector", "ports", &[Differ("number")]),
    // networking
    ("networking.ConnectionPoolSettings.TCPSettings", "idleTimeout", &[AnyText]),
    ("networking.Destination", "host", NEEDED),
    ("networking.DestinationRule", "host", NEEDED),
    ("networking.EnvoyFilter", "targetRefs", TARGETS),
    ("networking.EnvoyFilter.WaypointMatch", "portNumber", PORT),
    ("networking.ExecHealthCheckConfig", "command", &[Required, Each(TEXT)]),
    ("networking.GrpcHealthCheckConfig", "port", PORT),
    ("networking.HTTPDirectResponse", "status", NEEDED),
    ("networking.HTTPHeader", "name", &[Form(rules::HEADER)]),
    ("networking.HTTPHealthCheckConfig", "port", NEEDED_PORT),
    ("networking.HTTPHealthCheckConfig", "scheme", &[Cel(rules::KNOWN_PROBE_SCHEME)]),
    ("networking.HTTPMirrorPolicy", "destination", NEEDED),
    ("networking.HTTPRouteDestination", "destination", NEEDED),
    ("networking.IstioEgressListener", "hosts", NEEDED),
    ("networking.IstioIngressListener", "port", NEEDED),
    ("networking.LoadBalancerSettings.BackendUtilizationLB", "weightExpirationPeriod", &[AnyText]),
    ("networking.LoadBalancerSettings.BackendUtilizationLB", "weightStabilizationPeriod", &[AnyText]),
    ("networking.LoadBalancerSettings.BackendUtilizationLB", "weightUpdatePeriod", &[AnyText]),
    ("networking.LoadBalancerSettings.ConsistentHashLB.HTTPCookie", "name", NEEDED),
    ("networking.LoadBalancerSettings.ConsistentHashLB.HTTPCookie", "ttl", &[AnyText]),
    ("networking.LoadBalancerSettings.ConsistentHashLB.HTTPCookie.Attribute", "name", NEEDED),
    ("networking.OutlierDetection", "outlierDetectionHttpErrorCodes", &[Each(&[Range(100.0, 599.0)])]),
    ("networking.Port", "name", NEEDED),
    ("networking.Port", "number", NEEDED),
    ("networking.Port", "protocol", NEEDED),
    ("networking.ProxyConfig", "concurrency", NATURAL),
    ("networking.ProxyConfig", "environmentVariables", &[Each(&[Chars(0, 2048)])]),
    ("networking.ReadinessProbe", "failureThreshold", NATURAL),
    ("networking.ReadinessProbe", "initialDelaySeconds", NATURAL),
    ("networking.ReadinessProbe", "periodSeconds", NATURAL),
    ("networking.ReadinessProbe", "successThreshold", NATURAL),
    ("networking.ReadinessProbe", "timeoutSeconds", NATURAL),
    ("networking.RouteDestination", "destination", NEEDED),
    ("networking.Server", "hosts", NEEDED),
    ("networking.Server", "port", NEEDED),
    ("networking.ServerTLSSettings", "credentialNames", CERTIFICATES),
    ("networking.ServerTLSSettings", "tlsCertificates", CERTIFICATES),
    ("networking.ServiceEntry", "addresses", &[Items(0, 256), Each(&[Chars(0, 64)])]),
    ("networking.ServiceEntry", "endpoints", &[Items(0, 4096), Each(&[Cel(rules::ADDRESS)])]),
    ("networking.ServiceEntry", "hosts", &[Required, Items(1, 256), Each(&[Cel(rules::NO_WILDCARD_HOST)])]),
    ("networking.ServiceEntry", "ports", &[Items(0, 256), Differ("name"), Cel(rules::NUMBERS_DIFFER)]),
    ("networking.ServicePort", "name", &[Required, Chars(0, 256)]),
    ("networking.ServicePort", "number", NEEDED_PORT),
    ("networking.ServicePort", "protocol", &[Chars(0, 256)]),
    ("networking.ServicePort", "targetPort", PORT),
    ("networking.Subset", "name", NEEDED),
    ("networking.TCPHealthCheckConfig", "port", NEEDED_PORT),
    ("networking.TLSMatchAttributes", "sniHosts", NEEDED),
    ("networking.TLSRoute", "match", NEEDED),
    ("networking.TrafficPolicy", "portLevelSettings", &[Items(0, 4096)]),
    ("networking.TrafficPolicy.RetryBudget", "budgetInterval", &[AnyText]),
    ("networking.TrafficPolicy.RetryBudget", "percent", PERCENT),
    ("networking.TrafficPolicy.TunnelSettings", "targetHost", NEEDED),
    ("networking.TrafficPolicy.TunnelSettings", "targetPort", NEEDED),
    ("networking.WarmupConfiguration", "aggression", NATURAL),
    ("networking.WarmupConfiguration", "duration", NEEDED),
    ("networking.WarmupConfiguration", "minimumPercent", PERCENT),
    ("networking.WorkloadEntry", "address", &[Chars(0, 256), Cel(rules::SOCKET_PATH), Cel(rules::NO_FOLDER)]),
    ("networking.WorkloadEntry", "labels", LABELS),
    ("networking.WorkloadEntry", "locality", &[Chars(0, 2048)]),
    ("networking.WorkloadEntry", "network", &[Chars(0, 2048)]),
    ("networking.WorkloadEntry", "ports", &[Items(0, 128), Cel(rules::PORT_NAMES), Each(PORT)]),
    ("networking.WorkloadEntry", "serviceAccount", &[Chars(0, 253)]),
    ("networking.WorkloadGroup", "template", NEEDED),
    ("networking.WorkloadGroup.ObjectMeta", "annotations", LABELS),
    ("networking.WorkloadGroup.ObjectMeta", "labels", LABELS),
    ("networking.WorkloadSelector", "labels", &[Items(0, 256), Each(LABEL)]),
    ("networking.ZoneAwareLoadBalancerSetting", "minClusterSize", &[Range(1.0, 4_294_967_295.0)]),
    // security
    ("security.AuthorizationPolicy", "rules", &[Items(0, 512)]),
    ("security.AuthorizationPolicy", "targetRefs", TARGETS),
    ("security.ClaimToHeader", "claim", NAMED),
    ("security.ClaimToHeader", "header", &[Required, Chars(1, ANY), Form(rules::HEADER)]),
    ("security.Condition", "key", NEEDED),
    ("security.JWTHeader", "name", NAMED),
    ("security.JWTRule", "audiences", &[Each(TEXT)]),
    ("security.JWTRule", "fromCookies", &[Each(TEXT)]),
    ("security.JWTRule", "fromParams", &[Each(TEXT)]),
    ("security.JWTRule", "issuer", TEXT),
    ("security.JWTRule", "jwksUri", KEYS_URL),
    ("security.JWTRule", "jwks_uri", KEYS_URL),
    ("security.JWTRule", "spaceDelimitedClaims", &[Items(0, 64), Each(TEXT)]),
    ("security.PeerAuthentication", "portLevelMtls", &[Items(1, ANY), Cel(rules::PORT_KEYS)]),
    ("security.RequestAuthentication", "jwtRules", &[Items(0, 4096)]),
    ("security.RequestAuthentication", "targetRefs", TARGETS),
    ("security.Rule", "from", &[Items(0, 512)]),
    ("security.Source", "notServiceAccounts", ACCOUNTS),
    ("security.Source", "serviceAccounts", ACCOUNTS),
    // telemetry
    ("telemetry.MetricSelector", "customMetric", TEXT),
    ("telemetry.ProviderRef", "name", NAMED),
    ("telemetry.Telemetry", "targetRefs", TARGETS),
    ("telemetry.Tracing", "randomSamplingPercentage", PERCENT),
    ("telemetry.Tracing.Environment", "name", NAMED),
    ("telemetry.Tracing.Formatter", "value", NAMED),
    ("telemetry.Tracing.Literal", "value", NAMED),
    ("telemetry.Tracing.RequestHeader", "name", NAMED),
    // type
    ("type.PolicyTargetReference", "group", &[Chars(0, 253), Form(rules::GROUP)]),
    ("type.PolicyTargetReference", "kind", &[Required, Chars(1, 63), Form(rules::KIND)]),
    ("type.PolicyTargetReference", "name", &[Required, Chars(1, 253)]),
    ("type.PolicyTargetReference", "namespace", &[Cel(rules::OWN_NAMESPACE)]),
    ("type.PortSelector", "number", &[Required, Range(1.0, 65_535.0)]),
    (
        "type.WorkloadSelector",
        "matchLabels",
        &[Items(0, 4096), Cel(rules::NO_WILDCARD_KEYS), Cel(rules::NO_EMPTY_KEYS), Each(LABEL)],
    ),
];
