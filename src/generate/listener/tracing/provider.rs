//! Tracing providers: Zipkin, Datadog, SkyWalking, OpenTelemetry over gRPC and HTTP (Istio's `configureFromProviderConfig`).

use crate::{
    generate::listener::{
        inputs::Inputs,
        telemetry::providers::{self, Target},
    },
    model::NodeType,
    proto::{
        envoy::{
            config::{
                core::v3::{
                    HeaderValue, HeaderValueOption, HttpService, HttpUri, TypedExtensionConfig,
                    header_value_option::HeaderAppendAction, http_uri::HttpUpstreamType,
                },
                trace::v3::{
                    ClientConfig, DatadogConfig, OpenTelemetryConfig, SkyWalkingConfig, ZipkinConfig,
                    client_config::BackendTokenSpecifier,
                    tracing,
                    zipkin_config::{CollectorEndpointVersion, TraceContextOption as Context},
                },
            },
            extensions::{
                filters::network::http_connection_manager::v3::http_connection_manager::Tracing,
                tracers::opentelemetry::{
                    resource_detectors::v3::{DynatraceResourceDetectorConfig, EnvironmentResourceDetectorConfig},
                    samplers::v3::DynatraceSamplerConfig,
                },
            },
        },
        mesh::mesh_config::{
            ExtensionProvider,
            extension_provider::{
                HttpHeader, OpenTelemetryTracingProvider, Provider, ServiceAttributeEnrichment,
                SkyWalkingTracingProvider, ZipkinTracingProvider,
                http_header::HeaderValue as GivenValue,
                open_telemetry_tracing_provider::{DynatraceSampler, Sampling},
                zipkin_tracing_provider::TraceContextOption,
            },
        },
        seconds, to_any, wkt,
    },
    push::PushContext,
};

/// The path of Zipkin's second API.
const ZIPKIN_PATH: &str = "/api/v2/spans";
/// The path that Dynatrace has for its sampler.
const DYNATRACE_PATH: &str = "api/v2/samplingConfiguration";
/// Seconds that a collector has to answer, where nothing is said. Envoy demands a time.
const TIMEOUT: i64 = 5;
/// The versions of Istio's proxy and of Envoy in which a Zipkin collector is an HTTP service with headers and a time of its own.
const HTTP_SERVICE: (u32, u32) = (1, 29);
/// The version of Istio's proxy in which Zipkin can send W3C headers beside its own.
const W3C: (u32, u32) = (1, 28);

/// Whether spans can be sent to a provider.
///
/// # Errors
/// The reason they cannot: it is of another kind, or its service is unknown.
pub fn usable(context: &PushContext, provider: &ExtensionProvider) -> Result<(), String> {
    match &provider.provider {
        Some(Provider::Zipkin(p)) => providers::target(context, &p.service, p.port).map(drop),
        Some(Provider::Datadog(p)) => providers::target(context, &p.service, p.port).map(drop),
        Some(Provider::Skywalking(p)) => providers::target(context, &p.service, p.port).map(drop),
        Some(Provider::Opentelemetry(p)) => {
            let target = providers::target(context, &p.service, p.port)?;
            open_telemetry(context, p, &target, String::new()).map(drop)
        }
        #[allow(deprecated, reason = "mesh settings may have it")]
        Some(Provider::Lightstep(_) | Provider::Opencensus(_)) => {
            Err("no Envoy has this tracer any more; OpenTelemetry takes its place".to_string())
        }
        _ => Err("it is none for tracing".to_string()),
    }
}

/// The settings of a connection manager for a provider, and whether the provider samples itself.
pub(super) fn tracing(inputs: &Inputs, provider: &ExtensionProvider) -> Result<(Tracing, bool), String> {
    let context = inputs.context;
    usable(context, provider)?;
    let mut samples = false;
    let names = &inputs.view.span_names;
    let mut child = inputs.view.node_type == NodeType::Router;
    let (name, config, most_path) = match &provider.provider {
        Some(Provider::Zipkin(p)) => {
            let target = served(inputs, providers::target(context, &p.service, p.port)?)?;
            ("envoy.tracers.zipkin", to_any(&zipkin(inputs, p, &target)), p.max_tag_length)
        }
        Some(Provider::Datadog(p)) => {
            let target = served(inputs, providers::target(context, &p.service, p.port)?)?;
            let config = DatadogConfig {
                collector_cluster: target.cluster,
                collector_hostname: target.host,
                service_name: names.cluster.to_string(),
                ..DatadogConfig::default()
            };
            ("envoy.tracers.datadog", to_any(&config), p.max_tag_length)
        }
        Some(Provider::Skywalking(p)) => {
            child = true;
            let target = providers::target(context, &p.service, p.port)?;
            ("envoy.tracers.skywalking", to_any(&skywalking(p, &target)), 0)
        }
        Some(Provider::Opentelemetry(p)) => {
            let target = providers::target(context, &p.service, p.port)?;
            samples = p.sampling.is_some();
            let service = if enriches(p) { &names.service } else { &names.cluster };
            let config = open_telemetry(context, p, &target, service.to_string())?;
            ("envoy.tracers.opentelemetry", to_any(&config), p.max_tag_length)
        }
        _ => return Err("it is none for tracing".to_string()),
    };
    let provider =
        tracing::Http { name: name.to_string(), config_type: Some(tracing::http::ConfigType::TypedConfig(config)) };
    let tracing = Tracing {
        provider: Some(provider),
        spawn_upstream_span: child.then_some(true),
        max_path_tag_length: Some(most_path).filter(|n| *n != 0),
        ..Tracing::default()
    };
    Ok((tracing, samples))
}

/// The service, if the proxy has its cluster: these tracers make Envoy refuse a listener whose collector it does not know.
fn served(inputs: &Inputs, target: Target) -> Result<Target, String> {
    let service = inputs.service(&target.host);
    let has =
        service.is_some_and(|s| *s.namespace == *target.namespace && s.ports.iter().any(|p| p.port == target.port));
    if has { Ok(target) } else { Err(format!("the proxy has no cluster of {}:{}", target.host, target.port)) }
}

fn zipkin(inputs: &Inputs, given: &ZipkinTracingProvider, target: &Target) -> ZipkinConfig {
    let path = if given.path.is_empty() { ZIPKIN_PATH } else { &given.path };
    let istio = inputs.is_istio_proxy();
    let new = inputs.is_at_least(HTTP_SERVICE, HTTP_SERVICE);
    let mut config = ZipkinConfig {
        collector_endpoint_version: CollectorEndpointVersion::HttpJson.into(),
        trace_id_128bit: !given.enable_64bit_trace_id,
        shared_span_context: Some(false),
        ..ZipkinConfig::default()
    };
    // An Envoy that does not tell its version gets both forms; the newer one counts where it is known.
    if !istio || !new {
        config.collector_cluster.clone_from(&target.cluster);
        config.collector_endpoint = path.to_string();
        config.collector_hostname.clone_from(&target.host);
    }
    if new {
        let slash = if path.starts_with('/') { "" } else { "/" };
        let uri = format!("http://{}{slash}{path}", target.host);
        config.collector_service = Some(http(target, uri, given.timeout, &given.headers));
    }
    if inputs.is_at_least(W3C, W3C) {
        let context = match given.trace_context_option() {
            TraceContextOption::UseB3 => Context::UseB3,
            TraceContextOption::UseB3WithW3cPropagation => Context::UseB3WithW3cPropagation,
        };
        config.trace_context_option = context.into();
    }
    config
}

fn skywalking(given: &SkyWalkingTracingProvider, target: &Target) -> SkyWalkingConfig {
    let token = Some(given.access_token.clone()).filter(|token| !token.is_empty());
    let client_config = token.map(|token| ClientConfig {
        backend_token_specifier: Some(BackendTokenSpecifier::BackendToken(token)),
        ..ClientConfig::default()
    });
    SkyWalkingConfig { grpc_service: Some(target.grpc()), client_config }
}

/// Whether services have the names of OpenTelemetry's semantic conventions.
fn enriches(given: &OpenTelemetryTracingProvider) -> bool {
    given.service_attribute_enrichment() == ServiceAttributeEnrichment::OtelSemanticConventions
}

fn open_telemetry(
    context: &PushContext,
    given: &OpenTelemetryTracingProvider,
    target: &Target,
    service_name: String,
) -> Result<OpenTelemetryConfig, String> {
    let mut config = OpenTelemetryConfig { service_name, ..OpenTelemetryConfig::default() };
    match &given.http {
        Some(over) => {
            config.http_service = Some(http(target, joined(&target.host, &over.path), over.timeout, &over.headers));
        }
        None => {
            let mut service = target.grpc();
            service.timeout = given.grpc.as_ref().and_then(|grpc| grpc.timeout);
            service.initial_metadata = given.grpc.iter().flat_map(|grpc| &grpc.initial_metadata).map(header).collect();
            config.grpc_service = Some(service);
        }
    }
    let detectors = given.resource_detectors.as_ref();
    let extension = |name: &str, config: wkt::Any| TypedExtensionConfig {
        name: format!("envoy.tracers.opentelemetry.resource_detectors.{name}"),
        typed_config: Some(config),
    };
    let environment = detectors.is_some_and(|d| d.environment.is_some());
    let of_environment = || extension("environment", to_any(&EnvironmentResourceDetectorConfig {}));
    config.resource_detectors.extend(environment.then(of_environment));
    let dynatrace = detectors.is_some_and(|d| d.dynatrace.is_some());
    let of_dynatrace = || extension("dynatrace", to_any(&DynatraceResourceDetectorConfig {}));
    config.resource_detectors.extend(dynatrace.then(of_dynatrace));
    config.resource_detectors.extend((enriches(given) && !environment).then(of_environment));
    if let Some(Sampling::DynatraceSampler(sampler)) = &given.sampling {
        config.sampler = Some(dynatrace_sampler(context, given, sampler, target)?);
    }
    Ok(config)
}

fn dynatrace_sampler(
    context: &PushContext,
    given: &OpenTelemetryTracingProvider,
    sampler: &DynatraceSampler,
    target: &Target,
) -> Result<TypedExtensionConfig, String> {
    let service = match (&sampler.http_service, &given.http) {
        (Some(own), _) => {
            let target = providers::target(context, &own.service, own.port).map_err(|e| format!("sampler: {e}"))?;
            let over = own.http.clone().unwrap_or_default();
            http(&target, joined(&target.host, &over.path), over.timeout, &over.headers)
        }
        // The service that gets the spans has the sampler too.
        (None, Some(over)) => http(target, joined(&target.host, DYNATRACE_PATH), over.timeout, &over.headers),
        (None, None) => return Err("sampler: httpService must be set where spans go over gRPC".to_string()),
    };
    let config = DynatraceSamplerConfig {
        tenant: sampler.tenant.clone(),
        cluster_id: sampler.cluster_id,
        http_service: Some(service),
        root_spans_per_minute: sampler.root_spans_per_minute,
    };
    Ok(TypedExtensionConfig {
        name: "envoy.tracers.opentelemetry.samplers.dynatrace".to_string(),
        typed_config: Some(to_any(&config)),
    })
}

fn http(target: &Target, uri: String, timeout: Option<wkt::Duration>, headers: &[HttpHeader]) -> HttpService {
    let option = |given: &HttpHeader| HeaderValueOption {
        header: Some(header(given)),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..HeaderValueOption::default()
    };
    HttpService {
        http_uri: Some(HttpUri {
            uri,
            timeout: Some(timeout.unwrap_or_else(|| seconds(TIMEOUT))),
            http_upstream_type: Some(HttpUpstreamType::Cluster(target.cluster.clone())),
        }),
        request_headers_to_add: headers.iter().map(option).collect(),
        ..HttpService::default()
    }
}

/// A header; its value may stand in the environment of this process, which does not change while it runs.
fn header(given: &HttpHeader) -> HeaderValue {
    let value = match &given.header_value {
        Some(GivenValue::Value(value)) => value.clone(),
        Some(GivenValue::EnvName(name)) => std::env::var(name).unwrap_or_default(),
        None => String::new(),
    };
    HeaderValue { key: given.name.clone(), value, ..HeaderValue::default() }
}

/// A host and a path without a slash at its end or double ones.
fn joined(host: &str, path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty());
    std::iter::once(host).chain(parts).collect::<Vec<_>>().join("/")
}
