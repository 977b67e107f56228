//! Settings of HTTP filters that a route carries: fault injection, CORS, and the endpoint picker of an inference pool.

use crate::{
    generate::names::{Direction, subset_key},
    model::{Config, grpc_status},
    proto::{
        envoy::{
            config::core::v3::{
                GrpcService, RuntimeFractionalPercent,
                grpc_service::{EnvoyGrpc, TargetSpecifier},
            },
            extensions::filters::{
                common::fault::v3::{FaultDelay, fault_delay::FaultDelaySecifier},
                http::{
                    cors::v3::CorsPolicy as EnvoyCors,
                    ext_proc::v3::{
                        ExtProcOverrides, ExtProcPerRoute, ProcessingMode,
                        ext_proc_per_route::Override,
                        processing_mode::{BodySendMode, HeaderSendMode},
                    },
                    fault::v3::{FaultAbort, HttpFault, fault_abort},
                },
            },
            r#type::{
                matcher::v3::{StringMatcher, string_matcher::MatchPattern},
                v3::{FractionalPercent, fractional_percent::DenominatorType},
            },
        },
        networking::{
            CorsPolicy, HttpFaultInjection, Percent,
            cors_policy::UnmatchedPreflights,
            http_fault_injection::{Abort, Delay, abort::ErrorType, delay::HttpDelayType},
        },
    },
    push::PushContext,
};

use super::matching::string_matcher;

/// Filter name of fault injection.
pub const FAULT: &str = "envoy.filters.http.fault";
/// Filter name of CORS.
pub const CORS: &str = "envoy.filters.http.cors";
/// Filter name of external processing.
pub const EXT_PROC: &str = "envoy.filters.http.ext_proc";

/// The service that picks an endpoint of an inference pool, for one http rule (Istio's `InferencePoolRouteRuleConfig`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InferencePool {
    /// Host of the picker.
    pub fqdn: String,
    /// Port of the picker.
    pub port: u32,
    /// Requests go on when the picker fails.
    pub failure_mode_allow: bool,
}

impl InferencePool {
    /// The picker that a rule of a translated VirtualService asks.
    #[must_use]
    pub fn of_rule(context: &PushContext, config: &Config, rule: &str) -> Option<Self> {
        if context.translation.pools.is_empty() {
            return None;
        }
        let pool = context.translation.pools.get(&config.key())?.get(rule)?;
        let port = pool.port.parse().ok()?;
        Some(Self { fqdn: pool.fqdn.clone(), port, failure_mode_allow: pool.failure_mode_allow })
    }
}

/// A percentage with four digits behind the point.
#[must_use]
pub fn percentage(percent: &Percent) -> FractionalPercent {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, as intended")]
    let numerator = (percent.value * 10_000.0) as u32;
    FractionalPercent { numerator, denominator: DenominatorType::Million.into() }
}

/// A whole percentage.
#[must_use]
pub fn whole_percentage(percent: u32) -> FractionalPercent {
    FractionalPercent { numerator: percent, denominator: DenominatorType::Hundred.into() }
}

/// A fraction of requests without a runtime key.
#[must_use]
pub fn fraction(percent: FractionalPercent) -> RuntimeFractionalPercent {
    RuntimeFractionalPercent { default_value: Some(percent), ..Default::default() }
}

/// Fault injection. Fields without a counterpart in Envoy (exponential delay, HTTP/2 errors) are left out.
#[must_use]
pub fn fault(fault: &HttpFaultInjection) -> HttpFault {
    HttpFault {
        delay: fault.delay.as_ref().and_then(delay),
        abort: fault.abort.as_ref().and_then(abort),
        ..Default::default()
    }
}

#[allow(deprecated, reason = "Istio still takes `percent`")]
fn delay(delay: &Delay) -> Option<FaultDelay> {
    let Some(HttpDelayType::FixedDelay(fixed)) = delay.http_delay_type else {
        return None;
    };
    let whole = || whole_percentage(u32::try_from(delay.percent).unwrap_or_default());
    Some(FaultDelay {
        percentage: Some(delay.percentage.as_ref().map_or_else(whole, percentage)),
        fault_delay_secifier: Some(FaultDelaySecifier::FixedDelay(fixed)),
    })
}

fn abort(abort: &Abort) -> Option<FaultAbort> {
    let error = match abort.error_type.as_ref()? {
        ErrorType::HttpStatus(status) => fault_abort::ErrorType::HttpStatus(u32::try_from(*status).unwrap_or_default()),
        ErrorType::GrpcStatus(name) => fault_abort::ErrorType::GrpcStatus(grpc_status::code(name).unwrap_or_default()),
        ErrorType::Http2Error(_) => return None,
    };
    Some(FaultAbort {
        percentage: abort.percentage.as_ref().map(percentage),
        error_type: Some(error),
        ..Default::default()
    })
}

/// CORS, always switched on. Preflights that match no origin go to the upstream unless the policy has `IGNORE`.
#[must_use]
#[allow(deprecated, reason = "Istio still takes `allowOrigin`")]
pub fn cors(policy: &CorsPolicy) -> EnvoyCors {
    let exact =
        |text: &String| StringMatcher { match_pattern: Some(MatchPattern::Exact(text.clone())), ignore_case: false };
    let origins = if policy.allow_origins.is_empty() {
        policy.allow_origin.iter().map(exact).collect()
    } else {
        policy.allow_origins.iter().filter_map(string_matcher).collect()
    };
    EnvoyCors {
        allow_origin_string_match: origins,
        allow_methods: policy.allow_methods.join(","),
        allow_headers: policy.allow_headers.join(","),
        expose_headers: policy.expose_headers.join(","),
        max_age: policy.max_age.map(|age| age.seconds.to_string()).unwrap_or_default(),
        allow_credentials: policy.allow_credentials,
        filter_enabled: Some(fraction(whole_percentage(100))),
        forward_not_matching_preflights: Some(policy.unmatched_preflights() != UnmatchedPreflights::Ignore),
        ..Default::default()
    }
}

/// Sends requests and responses of a route through the endpoint picker of its inference pool.
#[must_use]
pub fn endpoint_picker(pool: &InferencePool) -> ExtProcPerRoute {
    let (header, body) = (HeaderSendMode::Send.into(), BodySendMode::FullDuplexStreamed.into());
    let cluster =
        EnvoyGrpc { cluster_name: subset_key(Direction::Outbound, "", &pool.fqdn, pool.port), ..Default::default() };
    let overrides = ExtProcOverrides {
        failure_mode_allow: Some(pool.failure_mode_allow),
        grpc_service: Some(GrpcService {
            target_specifier: Some(TargetSpecifier::EnvoyGrpc(cluster)),
            ..Default::default()
        }),
        processing_mode: Some(ProcessingMode {
            request_header_mode: header,
            response_header_mode: header,
            request_body_mode: body,
            response_body_mode: body,
            request_trailer_mode: header,
            response_trailer_mode: header,
        }),
        ..Default::default()
    };
    ExtProcPerRoute { r#override: Some(Override::Overrides(overrides)) }
}
