//! The kinds of messages: Istio's codes and own ones, each with its level, its meaning and a way out.

use std::{fmt, str::FromStr};

/// The weight of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Something to know.
    Info,
    /// A probable mistake.
    Warning,
    /// Configuration that does not work as written.
    Error,
}

impl Level {
    /// The name as Istio writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "Info",
            Self::Warning => "Warning",
            Self::Error => "Error",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Info, Self::Warning, Self::Error];
        let found = all.into_iter().find(|level| level.as_str().eq_ignore_ascii_case(text));
        found.ok_or_else(|| format!("{text:?} is none of Info, Warning, Error"))
    }
}

macro_rules! codes {
    ($($name:ident = $code:literal, $level:ident, $meaning:literal, $way_out:literal;)+) => {
        /// The kind of a message.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $(#[doc = concat!($code, ": ", $meaning, ".")] $name),+ }

        impl Code {
            /// All codes, in order.
            pub const ALL: &'static [Code] = &[$(Code::$name),+];

            /// The code as written: `IST0101`.
            #[must_use]
            pub const fn code(self) -> &'static str { match self { $(Code::$name => $code),+ } }

            /// The name of the kind.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Code::$name => stringify!($name)),+ } }

            /// The level.
            #[must_use]
            pub const fn level(self) -> Level { match self { $(Code::$name => Level::$level),+ } }

            /// The meaning, in a line.
            #[must_use]
            pub const fn meaning(self) -> &'static str { match self { $(Code::$name => $meaning),+ } }

            /// The way out, in a line.
            #[must_use]
            pub const fn way_out(self) -> &'static str { match self { $(Code::$name => $way_out),+ } }
        }
    };
}

codes! {
    Deprecated = "IST0002", Warning, "the object uses something deprecated or removed", "use the replacement that the message names";
    ReferencedResourceNotFound = "IST0101", Error, "an object that is referred to does not exist", "correct the name, or add the object to the input";
    SchemaValidationError = "IST0106", Error, "the object is refused", "correct the field that the message names";
    MisplacedAnnotation = "IST0107", Warning, "an annotation stands on the wrong kind of object", "move the annotation to an object of the kind that the message names, often the pod template";
    UnknownAnnotation = "IST0108", Warning, "Istio knows no such annotation", "correct the spelling, or remove the annotation";
    ConflictingMeshGatewayVirtualServiceHosts = "IST0109", Error, "several VirtualServices of the mesh have the same host", "merge them into one VirtualService, or delegate from one of them";
    ConflictingSidecarWorkloadSelectors = "IST0110", Error, "several Sidecars select the same workload", "narrow the selectors, or merge the Sidecars";
    MultipleSidecarsWithoutWorkloadSelectors = "IST0111", Error, "a namespace has several Sidecars without a selector", "keep one of them, and give the others a workloadSelector";
    VirtualServiceDestinationPortSelectorRequired = "IST0112", Error, "a destination with several ports is named without a port", "set port.number in the destination";
    DeploymentAssociatedToMultipleServices = "IST0116", Warning, "several Services expose a port of a workload with different protocols", "give the Services the same protocol at that port";
    PortNameIsNotUnderNamingConvention = "IST0118", Info, "the protocol of a port is not declared", "name the port PROTOCOL or PROTOCOL-SUFFIX (http-web), or set appProtocol";
    NamespaceMultipleInjectionLabels = "IST0123", Warning, "a namespace has several labels of injection", "keep one of the labels";
    InvalidAnnotation = "IST0125", Warning, "the value of an annotation is not valid", "correct the value";
    UnknownMeshNetworksServiceRegistry = "IST0126", Error, "a network names an unknown registry", "name the id of a cluster of the mesh in fromRegistry";
    NoMatchingWorkloadsFound = "IST0127", Warning, "an object selects no workload", "correct the selector, or the namespace of the object";
    NoServerCertificateVerificationDestinationLevel = "IST0128", Warning, "TLS to a host without a CA to verify its certificate", "set caCertificates (or credentialName with a workloadSelector)";
    NoServerCertificateVerificationPortLevel = "IST0129", Warning, "TLS to a port without a CA to verify its certificate", "set caCertificates (or credentialName with a workloadSelector)";
    VirtualServiceUnreachableRule = "IST0130", Warning, "no request reaches a rule", "move the rule before the one that takes its requests, or remove it";
    VirtualServiceIneffectiveMatch = "IST0131", Info, "an earlier rule takes the requests of a match", "order the rules from the narrow to the wide, or remove the match";
    VirtualServiceHostNotFoundInGateway = "IST0132", Warning, "a gateway serves none of the hosts of a VirtualService", "add a host to a server of the Gateway, or correct that of the VirtualService";
    SchemaWarning = "IST0133", Warning, "a setting is valid and probably a mistake", "correct or remove the field that the message names";
    ServiceEntryAddressesRequired = "IST0134", Warning, "a TCP port of a ServiceEntry without addresses", "set addresses, or let addresses be allocated and captured by DNS (proxyMetadata)";
    DeprecatedAnnotation = "IST0135", Info, "an annotation is deprecated", "use its replacement, or remove it";
    AlphaAnnotation = "IST0136", Info, "an annotation belongs to a feature in development", "expect changes when Istio is upgraded";
    DeploymentConflictingPorts = "IST0137", Warning, "several Services expose one port of a workload under different numbers", "expose the target port under one number";
    GatewayDuplicateCertificate = "IST0138", Warning, "several Gateways of one workload have the same certificate", "serve the hosts of one certificate by one Gateway server, or use separate certificates";
    IngressRouteRulesNotAffected = "IST0140", Warning, "the subset of a mesh route has no effect on a gateway's requests", "name the subset in the destination of the gateway's VirtualService too";
    InvalidApplicationUid = "IST0144", Warning, "an application runs as the user of the proxy", "run the application as another user than 1337";
    ConflictingGateways = "IST0145", Error, "several Gateways serve the same host on the same port of a workload", "merge the servers into one Gateway, or give each its hosts";
    JwtClaimBasedRoutingWithoutRequestAuthN = "IST0149", Error, "routing by JWT claims at a gateway that verifies no JWT", "add a RequestAuthentication that selects the gateway's workload";
    ExternalNameServiceTypeInvalidPortName = "IST0150", Warning, "an ExternalName Service with a TCP port", "declare another protocol in the port's name, or remove the ports";
    EnvoyFilterUsesRelativeOperation = "IST0151", Warning, "a relative patch without a priority", "set spec.priority, or use INSERT_FIRST or ADD";
    EnvoyFilterUsesReplaceOperationIncorrectly = "IST0152", Error, "REPLACE of something that cannot be replaced", "use MERGE, or REMOVE and ADD";
    EnvoyFilterUsesAddOperationIncorrectly = "IST0153", Error, "ADD where it is ignored", "use MERGE, or INSERT_FIRST for routes";
    EnvoyFilterUsesRemoveOperationIncorrectly = "IST0154", Error, "REMOVE where it is ignored", "remove the route from its VirtualService instead";
    EnvoyFilterUsesRelativeOperationWithProxyVersion = "IST0155", Warning, "a relative patch to something that another patch adds for one version only", "set spec.priority, or use INSERT_FIRST or ADD";
    InvalidTelemetryProvider = "IST0157", Warning, "access logging without a provider", "name a provider, or set defaultProviders.accessLogging in the mesh config";
    ConflictingTelemetryWorkloadSelectors = "IST0159", Error, "several Telemetries select the same workload", "narrow the selectors, or merge the Telemetries";
    MultipleTelemetriesWithoutWorkloadSelectors = "IST0160", Error, "a namespace has several Telemetries without a selector", "keep one of them, and give the others a selector";
    InvalidGatewayCredential = "IST0161", Error, "the credential of a Gateway is not usable", "put a certificate that is valid and its key into the Secret (tls.crt and tls.key)";
    GatewayPortNotDefinedOnService = "IST0162", Warning, "no Service of a gateway exposes a port that it listens on", "add the port to the Service, or use one of its target ports";
    ReferencedInternalGateway = "IST0165", Warning, "a VirtualService names a Gateway that a translation makes", "use a route of the Gateway API for that Gateway";
    IneffectiveSelector = "IST0166", Warning, "a policy selects the workload of a Gateway API Gateway", "name the Gateway in targetRefs";
    IneffectivePolicy = "IST0167", Warning, "a policy has no effect", "remove the policy";
    MultiClusterInconsistentService = "IST0170", Warning, "a service is not the same in all clusters", "give the Services of one name the same type and ports in all clusters";
    NegativeConditionStatus = "IST0171", Warning, "a condition of the status is negative", "correct the field or the object that the message names";
    DestinationRuleSubsetNotSelectPods = "IST0173", Error, "a subset selects no workload", "correct the labels of the subset, or those of the workload";
    UnknownDestinationRuleHost = "IST0174", Warning, "the host of a DestinationRule is no service", "correct the host: the name of a Service of its namespace, or a full name";
    JwksUriFetchUnrestricted = "IST0175", Warning, "istiod fetches keys from any address", "set BLOCKED_CIDRS_IN_JWKS_URIS";
    ConflictingServiceEntryProtocol = "IST0177", Warning, "several ServiceEntries give a port different protocols", "give the port the same protocol in all of them";
    MatchNeverTrue = "PH0101", Warning, "no request fulfils a match", "remove the match, or correct the part that the message names";
    MatchShadowed = "PH0102", Warning, "an earlier rule takes all requests of a match", "put the narrow rule before the wide one";
    WeightIntoNothing = "PH0103", Warning, "a share of the requests goes to a destination without endpoints", "correct the destination, or take its weight away";
    DestinationWithoutShare = "PH0104", Info, "a destination has no share of the requests", "give the destination a weight, or remove it";
    SubsetUnused = "PH0105", Info, "no route names a subset", "remove the subset, or route to it";
    CredentialNotUsable = "PH0106", Error, "the credential of a DestinationRule is missing or not usable", "add the Secret to the namespace of the selected workloads";
    PolicyReadsPlainText = "PH0107", Warning, "a policy reads identities of peers where plain text is accepted (ISTIO-SECURITY-2021-004)", "require mutual TLS: a PeerAuthentication with mode STRICT for these workloads";
    RoutesOfOthers = "PH0108", Warning, "a VirtualService takes the traffic of another namespace's service (ISTIO-SECURITY-2026-002)", "limit it with exportTo: [\".\"]";
    NoEffect = "PH0109", Warning, "a kind or setting has no effect here", "keep it for other control planes, or remove it";
    Hidden = "PH0110", Warning, "an object is hidden by another one of the same name", "remove one of the two";
    UnknownKind = "PH0111", Warning, "a group that is read has no such kind or version", "correct kind and apiVersion";
    PassedOver = "PH0112", Warning, "a file or folder is not read", "rename the file, or name the folder that holds the configuration";
    RefusedByEnvoy = "PH0113", Warning, "Envoy would refuse a part of an object, which is left out", "correct the part that the message names";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl Code {
    /// The page of Istio's documentation about the code, for Istio's codes.
    #[must_use]
    pub fn documentation(self) -> Option<String> {
        let code = self.code();
        let page = || format!("https://istio.io/latest/docs/reference/config/analysis/{}/", code.to_ascii_lowercase());
        code.starts_with("IST").then(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_in_order() {
        let codes: Vec<&str> = Code::ALL.iter().map(|code| code.code()).collect();
        assert!(codes.windows(2).all(|pair| pair[0] < pair[1]), "{codes:?}");
        assert_eq!(Code::SubsetUnused.documentation(), None);
        assert!(Code::Deprecated.documentation().is_some_and(|page| page.ends_with("/ist0002/")));
    }
}
