//! Outlier detection (Istio's `applyOutlierDetection`).

use super::{draft::Draft, inputs::ClusterInputs};
use crate::{
    generate::endpoint::TrafficDistribution,
    proto::{
        envoy::{
            config::{
                cluster::v3::OutlierDetection as Envoy,
                common::matcher::v3::{
                    HttpHeadersMatch, MatchPredicate,
                    match_predicate::{MatchSet, Rule},
                },
                route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier},
            },
            extensions::upstreams::http::v3::http_protocol_options,
            r#type::{
                matcher::v3::{StringMatcher, string_matcher::MatchPattern},
                v3::Percent,
            },
        },
        networking::OutlierDetection,
    },
};

/// Applies the settings. The panic threshold is always set with them: Envoy's own default of half of the endpoints does not
/// fit services with few.
pub(super) fn apply(draft: &mut Draft, inputs: &ClusterInputs<'_>, settings: Option<&OutlierDetection>) {
    let Some(settings) = settings else {
        return;
    };
    let enforcing = |count: Option<u32>| count.map(|c| if c > 0 { 100 } else { 0 });
    let mut outlier = Envoy {
        enforcing_success_rate: Some(0),
        consecutive_5xx: settings.consecutive_5xx_errors,
        enforcing_consecutive_5xx: enforcing(settings.consecutive_5xx_errors),
        consecutive_gateway_failure: settings.consecutive_gateway_errors,
        enforcing_consecutive_gateway_failure: enforcing(settings.consecutive_gateway_errors),
        interval: settings.interval,
        base_ejection_time: settings.base_ejection_time,
        max_ejection_percent: u32::try_from(settings.max_ejection_percent).ok().filter(|p| *p > 0),
        ..Envoy::default()
    };
    if settings.split_external_local_origin_errors {
        outlier.split_external_local_origin_errors = true;
        if let Some(failures) = settings.consecutive_local_origin_failures.filter(|f| *f > 0) {
            outlier.consecutive_local_origin_failure = Some(failures);
            outlier.enforcing_consecutive_local_origin_failure = Some(100);
        }
        outlier.enforcing_local_origin_success_rate = Some(0);
    }
    draft.cluster.outlier_detection = Some(outlier);
    if settings.min_health_percent >= 0 {
        let percent = if forces_unhealthy(inputs) { 0 } else { settings.min_health_percent };
        draft.common_lb().healthy_panic_threshold = Some(Percent { value: f64::from(percent) });
    }
    error_codes(draft, &settings.outlier_detection_http_error_codes);
}

/// The service gets unhealthy endpoints regardless of the rule.
fn forces_unhealthy(inputs: &ClusterInputs<'_>) -> bool {
    inputs.capabilities.flags.send_unhealthy || TrafficDistribution::of(inputs.service) != TrafficDistribution::Any
}

/// The service gets endpoints that are not healthy, unless the rule sets a minimum of healthy ones.
pub(super) fn supports_unhealthy(inputs: &ClusterInputs<'_>) -> bool {
    inputs.capabilities.flags.auto_send_unhealthy || forces_unhealthy(inputs)
}

/// Counts exactly these status codes as failures, instead of all of 500 and above.
fn error_codes(draft: &mut Draft, codes: &[u32]) {
    if codes.is_empty() {
        return;
    }
    let mut rules: Vec<MatchPredicate> = codes.iter().map(|code| status_is(*code)).collect();
    let error_matcher = match rules.pop() {
        Some(only) if rules.is_empty() => only,
        last => {
            rules.extend(last);
            MatchPredicate { rule: Some(Rule::OrMatch(MatchSet { rules })) }
        }
    };
    draft.http().outlier_detection =
        Some(http_protocol_options::OutlierDetection { error_matcher: Some(error_matcher) });
}

fn status_is(code: u32) -> MatchPredicate {
    let exact =
        StringMatcher { match_pattern: Some(MatchPattern::Exact(code.to_string())), ..StringMatcher::default() };
    let header = HeaderMatcher {
        name: ":status".to_string(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(exact)),
        ..HeaderMatcher::default()
    };
    MatchPredicate { rule: Some(Rule::HttpResponseHeadersMatch(HttpHeadersMatch { headers: vec![header] })) }
}
