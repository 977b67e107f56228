//! Wasm modules: where a proxy fetches one, its configuration, and the clusters of the servers that Envoy asks itself.

use std::{collections::BTreeMap, hash::Hash, net::IpAddr};

use xxhash_rust::xxh3::Xxh3Default;

use crate::{
    generate::{check::Refusal, cluster::Capabilities, dns_cache, names, sds, secret::pull_secret},
    model::Identity,
    proto::{
        envoy::{
            config::{
                cluster::v3::{
                    Cluster,
                    cluster::{ClusterDiscoveryType, DiscoveryType},
                },
                core::v3::{
                    AsyncDataSource, DataSource, HttpUri, RemoteDataSource, TransportSocket, async_data_source,
                    data_source::Specifier, http_uri::HttpUpstreamType, transport_socket,
                },
                endpoint::v3::{
                    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
                },
            },
            extensions::{
                transport_sockets::tls::v3::{
                    CertificateValidationContext, CommonTlsContext, SubjectAltNameMatcher, TlsParameters,
                    UpstreamTlsContext, common_tls_context::ValidationContextType, subject_alt_name_matcher::SanType,
                    tls_parameters::TlsProtocol,
                },
                wasm::v3::{EnvironmentVariables, FailurePolicy, PluginConfig, VmConfig, plugin_config::Vm},
            },
            r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
        },
        istio::extensions::v1alpha1::{EnvValueSource, FailStrategy, PullPolicy, WasmConfig},
        seconds, struct_to_json, to_any,
    },
    push::{
        ProxyView, PushContext,
        extensions::{Extension, Program},
    },
};

/// The engine that runs modules.
const RUNTIME: &str = "envoy.wasm.runtime.v8";
/// Variables by which Istio's agent is told how to fetch a module; it takes them out again.
const PULL_SECRET: &str = "ISTIO_META_WASM_IMAGE_PULL_SECRET";
const PULL_POLICY: &str = "ISTIO_META_WASM_IMAGE_PULL_POLICY";
const RESOURCE_VERSION: &str = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION";
/// The cluster of modules that an agent fetches: it writes another one.
const AGENT_CLUSTER: &str = "_";
/// The longest time of one fetch, in seconds: by an agent as istiod says it, and by Envoy, which fetches twice while the listener
/// waits.
const AGENT_SECONDS: i64 = 30;
const ENVOY_SECONDS: i64 = 15;

/// Whether requests pass where the module cannot be loaded.
pub(super) fn fails_open(wasm: &WasmConfig) -> bool {
    wasm.fail_strategy() == FailStrategy::FailOpen
}

/// The place of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// A file of the proxy's machine.
    File(String),
    /// Istio's agent fetches it.
    Agent { uri: String, sha256: String },
    /// Envoy fetches it.
    Server { server: Server, uri: String, sha256: String },
}

/// A server of modules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Server {
    tls: bool,
    host: String,
    port: u16,
}

impl Source {
    /// The place that the settings say, or the reason why this proxy cannot fetch from it.
    pub(super) fn of(wasm: &WasmConfig, istio_proxy: bool) -> Result<Self, String> {
        let url = &wasm.url;
        if let Some(path) = url.strip_prefix("file://") {
            return Ok(Self::File(path.to_string()));
        }
        // Without a scheme it is an image.
        let uri = if url.contains("://") { url.clone() } else { format!("oci://{url}") };
        let sha256 = wasm.sha256.clone();
        if istio_proxy {
            return Ok(Self::Agent { uri, sha256 });
        }
        let parsed: http::Uri = uri.parse().map_err(|error| format!("url {uri:?}: {error}"))?;
        let tls = match parsed.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => {
                let text = "a stock Envoy fetches no images: url has to be https:// or http:// with sha256, or file://";
                return Err(text.to_string());
            }
        };
        if sha256.is_empty() {
            return Err("Envoy fetches no module without sha256".to_string());
        }
        let host = parsed.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
        let port = parsed.port_u16().unwrap_or(if tls { 443 } else { 80 });
        // The parser passes over a port that is no number of 16 bits.
        let says_port = parsed.authority().is_some_and(|a| !a.as_str().ends_with(a.host()));
        if host.is_empty() || port == 0 || says_port && parsed.port_u16().is_none() {
            return Err(format!("url {uri:?} names no server"));
        }
        Ok(Self::Server { server: Server { tls, host, port }, uri, sha256 })
    }

    fn code(&self) -> AsyncDataSource {
        let remote = |uri: &String, cluster: String, sha256: &String, longest: i64| {
            let http_uri = HttpUri {
                uri: uri.clone(),
                timeout: Some(seconds(longest)),
                http_upstream_type: Some(HttpUpstreamType::Cluster(cluster)),
            };
            let source = RemoteDataSource { http_uri: Some(http_uri), sha256: sha256.clone(), ..Default::default() };
            async_data_source::Specifier::Remote(source)
        };
        let specifier = match self {
            Self::File(path) => {
                let specifier = Some(Specifier::Filename(path.clone()));
                async_data_source::Specifier::Local(DataSource { specifier, ..Default::default() })
            }
            Self::Agent { uri, sha256 } => remote(uri, AGENT_CLUSTER.to_string(), sha256, AGENT_SECONDS),
            Self::Server { server, uri, sha256 } => remote(uri, server.cluster_name(), sha256, ENVOY_SECONDS),
        };
        AsyncDataSource { specifier: Some(specifier) }
    }
}

impl Server {
    fn cluster_name(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("extension-modules:{scheme}://{}", names::host_port(&self.host, u32::from(self.port)))
    }

    fn cluster(&self, context: &PushContext, view: &ProxyView) -> Cluster {
        let name = self.cluster_name();
        let is_address = self.host.parse::<IpAddr>().is_ok();
        let kind = if is_address { DiscoveryType::Static } else { DiscoveryType::LogicalDns };
        let endpoint = LbEndpoint {
            host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
                address: Some(names::address(&self.host, u32::from(self.port))),
                ..Endpoint::default()
            })),
            ..LbEndpoint::default()
        };
        let group = LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..LocalityLbEndpoints::default() };
        let mut cluster = Cluster {
            alt_stat_name: format!("{name};"),
            cluster_discovery_type: Some(ClusterDiscoveryType::Type(kind.into())),
            connect_timeout: context.mesh().config.connect_timeout,
            load_assignment: Some(ClusterLoadAssignment {
                cluster_name: name.clone(),
                endpoints: vec![group],
                ..ClusterLoadAssignment::default()
            }),
            transport_socket: self.tls.then(|| self.transport_socket(&Capabilities::of(context, view).system_ca_file)),
            name,
            ..Cluster::default()
        };
        if !is_address {
            cluster.dns_lookup_family = dns_cache::lookup_family(context.features(), view).into();
        }
        cluster
    }

    /// TLS by the system's certificates. Without their file Envoy refuses the cluster, which is better than to trust everybody.
    fn transport_socket(&self, roots: &str) -> TransportSocket {
        let is_address = self.host.parse::<IpAddr>().is_ok();
        let san_type = if is_address { SanType::IpAddress } else { SanType::Dns };
        let exact =
            StringMatcher { match_pattern: Some(MatchPattern::Exact(self.host.clone())), ..StringMatcher::default() };
        let name = SubjectAltNameMatcher { san_type: san_type.into(), matcher: Some(exact), ..Default::default() };
        let validation = CertificateValidationContext {
            trusted_ca: Some(sds::file(roots)),
            match_typed_subject_alt_names: vec![name],
            ..CertificateValidationContext::default()
        };
        let context = UpstreamTlsContext {
            common_tls_context: Some(CommonTlsContext {
                tls_params: Some(TlsParameters {
                    tls_minimum_protocol_version: TlsProtocol::TlSv12.into(),
                    tls_maximum_protocol_version: TlsProtocol::TlSv13.into(),
                    ..TlsParameters::default()
                }),
                validation_context_type: Some(ValidationContextType::ValidationContext(validation)),
                ..CommonTlsContext::default()
            }),
            sni: if is_address { String::new() } else { self.host.clone() },
            ..UpstreamTlsContext::default()
        };
        TransportSocket {
            name: "envoy.transport_sockets.tls".to_string(),
            config_type: Some(transport_socket::ConfigType::TypedConfig(to_any(&context))),
        }
    }
}

/// The clusters through which a proxy fetches the modules of its extensions.
#[must_use]
pub fn clusters(context: &PushContext, view: &ProxyView) -> Vec<Cluster> {
    let mut servers: Vec<Server> = modules(context, view)
        .filter_map(|(_, source)| match source {
            Ok(Source::Server { server, .. }) => Some(server),
            _ => None,
        })
        .collect();
    servers.sort();
    servers.dedup();
    servers.iter().map(|server| server.cluster(context, view)).collect()
}

/// The extensions of a proxy whose modules it cannot fetch.
#[must_use]
pub fn not_loaded(context: &PushContext, view: &ProxyView) -> Vec<Refusal> {
    let refused = |(extension, source): (std::sync::Arc<Extension>, Result<Source, String>)| {
        let reason = source.err()?;
        let Program::Wasm(wasm) = &extension.program else { return None };
        let fate = if fails_open(wasm) { "its traffic passes without it" } else { "its traffic is refused" };
        let message = format!("the module is not loaded, and {fate} (failStrategy): {reason}");
        Some(Refusal::new(Some(extension.config.key()), message))
    };
    modules(context, view).filter_map(refused).collect()
}

fn modules(
    context: &PushContext,
    view: &ProxyView,
) -> impl Iterator<Item = (std::sync::Arc<Extension>, Result<Source, String>)> {
    let istio_proxy = view.is_istio_proxy();
    context.extensions.of(view).into_iter().filter_map(move |extension| {
        let source = match &extension.program {
            Program::Wasm(wasm) => Source::of(wasm, istio_proxy),
            Program::Lua(_) => return None,
        };
        Some((extension, source))
    })
}

/// A proxy whose agent fetches modules, for the hints that it is sent.
pub(super) struct Agent<'a> {
    pub(super) context: &'a PushContext,
    pub(super) view: &'a ProxyView,
    pub(super) identity: Option<&'a Identity>,
}

/// Tells modules with other environment variables apart: Envoy runs equal code in one virtual machine, with the variables of
/// the first.
fn environment_id(variables: &BTreeMap<String, String>, of_host: &[String]) -> String {
    if variables.is_empty() && of_host.is_empty() {
        return String::new();
    }
    let mut hasher = Xxh3Default::new();
    (variables, of_host).hash(&mut hasher);
    format!("-{:032x}", hasher.digest128())
}

/// The configuration of a module.
pub(super) fn plugin(extension: &Extension, wasm: &WasmConfig, source: &Source, agent: Option<&Agent>) -> PluginConfig {
    let meta = &extension.config.meta;
    let mut variables: BTreeMap<String, String> = BTreeMap::new();
    if let Some(Agent { context, view, identity }) = agent {
        if !wasm.image_pull_secret.is_empty() {
            let content = pull_secret(context, view, &meta.namespace, &wasm.image_pull_secret, *identity);
            let content = content.unwrap_or_else(|reason| {
                let (extension, secret) = (meta.name.as_ref(), wasm.image_pull_secret.as_str());
                tracing::debug!(extension, secret, reason, "the module is fetched without its secret");
                String::new()
            });
            variables.insert(PULL_SECRET.to_string(), content);
        }
        if wasm.image_pull_policy() != PullPolicy::UnspecifiedPolicy {
            variables.insert(PULL_POLICY.to_string(), wasm.image_pull_policy().as_str_name().to_string());
        }
        variables.insert(RESOURCE_VERSION.to_string(), meta.resource_version.to_string());
    }
    let mut of_host = Vec::new();
    for variable in wasm.vm_config.iter().flat_map(|vm| &vm.env) {
        match variable.value_from() {
            EnvValueSource::Inline => drop(variables.insert(variable.name.clone(), variable.value.clone())),
            EnvValueSource::Host => of_host.push(variable.name.clone()),
        }
    }
    let settings = wasm.plugin_config.as_ref().filter(|settings| !settings.fields.is_empty());
    let policy = match wasm.fail_strategy() {
        FailStrategy::FailClose => FailurePolicy::FailClosed,
        FailStrategy::FailOpen => FailurePolicy::FailOpen,
        FailStrategy::FailReload => FailurePolicy::FailReload,
    };
    let vm_id = match source {
        // Envoy keeps running the module of before where only its server's answer differs.
        Source::Server { sha256, .. } => format!("{sha256}{}", environment_id(&variables, &of_host)),
        Source::File(_) if agent.is_none() => environment_id(&variables, &of_host),
        Source::File(_) | Source::Agent { .. } => String::new(),
    };
    let vm = VmConfig {
        vm_id,
        runtime: RUNTIME.to_string(),
        code: Some(source.code()),
        environment_variables: Some(EnvironmentVariables {
            host_env_keys: of_host,
            key_values: variables.into_iter().collect(),
        }),
        ..VmConfig::default()
    };
    PluginConfig {
        name: format!("{}.{}", meta.namespace, extension.name),
        root_id: wasm.plugin_name.clone(),
        configuration: settings.map(|settings| to_any(&struct_to_json(settings).to_string())),
        failure_policy: policy.into(),
        vm: Some(Vm::VmConfig(vm)),
        ..PluginConfig::default()
    }
}
