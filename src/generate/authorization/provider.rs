//! External authorizers: the extension providers of the mesh settings that CUSTOM policies name.
//!
//! Invariant: a provider whose settings are not usable is an error, on which the requests of its policies are refused.

use std::collections::BTreeMap;

use super::{TCP, matcher};
use crate::{
    generate::{
        check,
        names::{self, Direction},
    },
    proto::{
        envoy::{
            config::core::v3::{
                ApiVersion, GrpcService, HeaderValue, HttpUri, grpc_service, grpc_service::TargetSpecifier, http_uri,
            },
            extensions::filters::{
                http::ext_authz::v3::{
                    AuthorizationRequest, AuthorizationResponse, BufferSettings, ExtAuthz, HttpService,
                    ext_authz::Services,
                },
                network::ext_authz::v3::ExtAuthz as NetworkExtAuthz,
            },
            r#type::{
                matcher::v3::{ListStringMatcher, MetadataMatcher, StringMatcher},
                v3::{HttpStatus, StatusCode},
            },
        },
        mesh::mesh_config::extension_provider::{
            EnvoyExternalAuthorizationGrpcProvider as Grpc, EnvoyExternalAuthorizationHttpProvider as Http,
            EnvoyExternalAuthorizationRequestBody as Body, Provider as Written,
        },
        seconds, wkt,
    },
    push::PushContext,
};

/// Names are part of names of policies and of metadata.
const LONGEST_NAME: usize = 63;
/// Time to answer, without a setting.
const TIMEOUT: i64 = 600;

/// The providers of the mesh settings by name.
#[derive(Debug)]
pub(super) struct Providers<'a> {
    context: &'a PushContext,
    by_name: BTreeMap<&'a str, Vec<&'a Written>>,
}

/// A provider that can be asked.
#[derive(Debug)]
pub(super) struct Provider<'a> {
    settings: Settings<'a>,
    host: String,
    cluster: String,
    status_on_error: Option<HttpStatus>,
}

#[derive(Debug)]
enum Settings<'a> {
    Http(&'a Http),
    Grpc(&'a Grpc),
}

impl Settings<'_> {
    const fn body(&self) -> Option<&Body> {
        match self {
            Self::Http(http) => http.include_request_body_in_check.as_ref(),
            Self::Grpc(grpc) => grpc.include_request_body_in_check.as_ref(),
        }
    }
}

impl<'a> Providers<'a> {
    pub(super) fn of(context: &'a PushContext) -> Self {
        let mut by_name: BTreeMap<&str, Vec<&Written>> = BTreeMap::new();
        for provider in &context.mesh().config.extension_providers {
            if let Some(written @ (Written::EnvoyExtAuthzHttp(_) | Written::EnvoyExtAuthzGrpc(_))) = &provider.provider
            {
                by_name.entry(&provider.name).or_default().push(written);
            }
        }
        Self { context, by_name }
    }

    /// The provider of this name, or the reason it cannot be asked.
    pub(super) fn get(&self, name: &str) -> Result<Provider<'a>, String> {
        let written = match self.by_name.get(name).map(Vec::as_slice) {
            None => return Err(format!("the mesh settings have no external authorizer {name:?}")),
            Some([one]) => *one,
            Some(_) => return Err(format!("the mesh settings have several external authorizers {name:?}")),
        };
        check_name(name)?;
        let (settings, service, port, status) = match written {
            Written::EnvoyExtAuthzHttp(p) => (Settings::Http(p), &p.service, p.port, &p.status_on_error),
            Written::EnvoyExtAuthzGrpc(p) => (Settings::Grpc(p), &p.service, p.port, &p.status_on_error),
            _ => return Err(format!("{name:?} is no external authorizer")),
        };
        if let Settings::Http(http) = &settings {
            check_http(http)?;
        }
        if !(1..=65535).contains(&port) {
            return Err(format!("external authorizer {name:?}: {port} is not a port"));
        }
        // Envoy refuses a listener with a buffer of no size.
        if settings.body().is_some_and(|body| body.max_request_bytes == 0) {
            return Err(format!("external authorizer {name:?}: maxRequestBytes must be set"));
        }
        let status_on_error = status_on_error(status)?;
        let found = self.context.services.of_provider(service).ok_or_else(|| {
            format!("external authorizer {name:?}: {service:?} is no service of the registry, or of several namespaces")
        })?;
        let cluster = names::subset_key(Direction::Outbound, "", &found.hostname, port);
        let provider = Provider { settings, host: found.hostname.to_string(), cluster, status_on_error };
        // The rest is for Envoy to refuse: names of headers, a negative time.
        check::encoded(&ExtAuthz { filter_enabled_metadata: None, ..provider.http(MetadataMatcher::default()) })
            .map_err(|found| format!("external authorizer {name:?}: {}", check::reasons(&found)))?;
        Ok(provider)
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name.chars().all(known)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if good { Ok(()) } else { Err(format!("the name {name:?} of an external authorizer is no DNS label")) }
}

fn check_http(http: &Http) -> Result<(), String> {
    if !http.path_prefix.is_empty() && !http.path_prefix.starts_with('/') {
        return Err(format!("pathPrefix {:?} must begin with /", http.path_prefix));
    }
    let lists = [
        &http.include_request_headers_in_check,
        #[allow(deprecated, reason = "Istio reads it where its successor is not set")]
        &http.include_headers_in_check,
        &http.headers_to_downstream_on_deny,
        &http.headers_to_downstream_on_allow,
        &http.headers_to_upstream_on_allow,
    ];
    if lists.into_iter().flatten().any(|name| name == "*") {
        return Err("a header name `*` is not supported; write a prefix or a suffix".to_string());
    }
    Ok(())
}

fn status_on_error(text: &str) -> Result<Option<HttpStatus>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let code = text.parse::<i32>().ok().and_then(|code| StatusCode::try_from(code).ok());
    match code {
        Some(code) if code != StatusCode::Empty => Ok(Some(HttpStatus { code: code.into() })),
        _ => Err(format!("statusOnError {text:?} is no status that Envoy has")),
    }
}

impl Provider<'_> {
    /// The HTTP filter that asks where `enabled` is set.
    pub(super) fn http(&self, enabled: MetadataMatcher) -> ExtAuthz {
        let (service, fail_open, allowed_headers) = match &self.settings {
            Settings::Http(http) => {
                (Services::HttpService(self.http_service(http)), http.fail_open, allowed_headers(http))
            }
            Settings::Grpc(grpc) => (Services::GrpcService(self.grpc_service(grpc)), grpc.fail_open, None),
        };
        ExtAuthz {
            services: Some(service),
            status_on_error: self.status_on_error,
            failure_mode_allow: fail_open,
            transport_api_version: ApiVersion::V3.into(),
            filter_enabled_metadata: Some(enabled),
            with_request_body: self.settings.body().map(buffered),
            allowed_headers,
            ..ExtAuthz::default()
        }
    }

    /// The network filter that asks where `enabled` is set; only gRPC can be asked about a connection.
    pub(super) fn tcp(&self, enabled: MetadataMatcher) -> Option<NetworkExtAuthz> {
        let Settings::Grpc(grpc) = &self.settings else { return None };
        Some(NetworkExtAuthz {
            stat_prefix: TCP.to_string(),
            failure_mode_allow: grpc.fail_open,
            transport_api_version: ApiVersion::V3.into(),
            grpc_service: Some(self.grpc_service(grpc)),
            filter_enabled_metadata: Some(enabled),
            ..NetworkExtAuthz::default()
        })
    }

    fn grpc_service(&self, grpc: &Grpc) -> GrpcService {
        let target = grpc_service::EnvoyGrpc {
            cluster_name: self.cluster.clone(),
            authority: self.host.clone(),
            ..Default::default()
        };
        GrpcService {
            target_specifier: Some(TargetSpecifier::EnvoyGrpc(target)),
            timeout: Some(timeout(grpc.timeout)),
            ..GrpcService::default()
        }
    }

    fn http_service(&self, http: &Http) -> HttpService {
        let header = |(key, value): (&String, &String)| HeaderValue {
            key: key.clone(),
            value: value.clone(),
            ..HeaderValue::default()
        };
        let headers_to_add: Vec<_> = http.include_additional_headers_in_check.iter().map(header).collect();
        let response = AuthorizationResponse {
            allowed_upstream_headers: headers(&http.headers_to_upstream_on_allow),
            allowed_client_headers: headers(&http.headers_to_downstream_on_deny),
            allowed_client_headers_on_success: headers(&http.headers_to_downstream_on_allow),
            ..AuthorizationResponse::default()
        };
        HttpService {
            path_prefix: http.path_prefix.clone(),
            server_uri: Some(HttpUri {
                timeout: Some(timeout(http.timeout)),
                // Demanded, and not used by the filter.
                uri: format!("http://{}", self.host),
                http_upstream_type: Some(http_uri::HttpUpstreamType::Cluster(self.cluster.clone())),
            }),
            authorization_request: (!headers_to_add.is_empty())
                .then(|| AuthorizationRequest { headers_to_add, ..AuthorizationRequest::default() }),
            authorization_response: (response != AuthorizationResponse::default()).then_some(response),
            ..HttpService::default()
        }
    }
}

#[allow(deprecated, reason = "Istio reads the older list where its successor is not set")]
fn allowed_headers(http: &Http) -> Option<ListStringMatcher> {
    headers(&http.include_request_headers_in_check).or_else(|| headers(&http.include_headers_in_check))
}

fn headers(names: &[String]) -> Option<ListStringMatcher> {
    let pattern = |name: &String| StringMatcher { ignore_case: true, ..matcher::pattern(name) };
    (!names.is_empty()).then(|| ListStringMatcher { patterns: names.iter().map(pattern).collect() })
}

fn timeout(given: Option<wkt::Duration>) -> wkt::Duration {
    given.unwrap_or_else(|| seconds(TIMEOUT))
}

const fn buffered(body: &Body) -> BufferSettings {
    BufferSettings {
        max_request_bytes: body.max_request_bytes,
        allow_partial_message: body.allow_partial_message,
        pack_as_bytes: body.pack_as_bytes,
    }
}
