//! Retries: Istio's `HTTPRetry` as Envoy's retry policy, with Istio's defaults (`route/retry/retry.go`).

use http::StatusCode;

use crate::proto::{
    envoy::{
        config::route::v3::{
            RetryPolicy,
            retry_policy::{RetryBackOff, RetryHostPredicate, RetryPriority, retry_host_predicate, retry_priority},
        },
        extensions::retry::{
            host::previous_hosts::v3::PreviousHostsPredicate,
            priority::previous_priorities::v3::PreviousPrioritiesConfig,
        },
    },
    networking::HttpRetry,
    to_any,
};

const OUTBOUND_RETRY_ON: &str = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes";
/// Such a request has not reached the application, so that retrying it is safe for every method.
const INBOUND_RETRY_ON: &str = "reset-before-request";
const RETRIABLE_STATUS_CODES: &str = "retriable-status-codes";
const DEFAULT_ATTEMPTS: u32 = 2;

/// The policy of an outbound or gateway route. `None` asked gives the default, 0 attempts give none. With a consistent hash
/// the same host is tried again, since the hash chose it.
#[must_use]
pub fn outbound(asked: Option<&HttpRetry>, consistent_hash: bool) -> Option<RetryPolicy> {
    let mut policy = RetryPolicy {
        num_retries: Some(DEFAULT_ATTEMPTS),
        retry_on: OUTBOUND_RETRY_ON.to_string(),
        host_selection_retry_max_attempts: 5,
        retry_host_predicate: if consistent_hash { Vec::new() } else { vec![previous_hosts()] },
        ..Default::default()
    };
    let Some(asked) = asked else {
        return Some(policy);
    };
    policy.num_retries = Some(attempts(asked)?);
    apply_retry_on(&mut policy, &asked.retry_on);
    policy.per_try_timeout = asked.per_try_timeout;
    match asked.retry_ignore_previous_hosts {
        Some(true) => policy.retry_host_predicate = vec![previous_hosts()],
        Some(false) => policy.retry_host_predicate.clear(),
        None => {}
    }
    if asked.retry_remote_localities == Some(true) {
        policy.retry_priority = Some(previous_priorities());
    }
    policy.retry_back_off = back_off(asked);
    Some(policy)
}

/// The policy of an inbound route, which has one upstream host: only attempts, conditions and back-off count.
#[must_use]
pub fn inbound(asked: Option<&HttpRetry>) -> Option<RetryPolicy> {
    let mut policy = RetryPolicy {
        num_retries: Some(DEFAULT_ATTEMPTS),
        retry_on: INBOUND_RETRY_ON.to_string(),
        ..Default::default()
    };
    let Some(asked) = asked else {
        return Some(policy);
    };
    policy.num_retries = Some(attempts(asked)?);
    apply_retry_on(&mut policy, &asked.retry_on);
    policy.retry_back_off = back_off(asked);
    Some(policy)
}

fn attempts(asked: &HttpRetry) -> Option<u32> {
    u32::try_from(asked.attempts).ok().filter(|a| *a > 0)
}

/// Numbers in `retryOn` that are HTTP status codes go to the list of codes, everything else stays a condition.
fn apply_retry_on(policy: &mut RetryPolicy, retry_on: &str) {
    if retry_on.is_empty() {
        return;
    }
    let mut conditions = Vec::new();
    for part in retry_on.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        match part.parse().ok().filter(|code| is_known_status(*code)) {
            Some(code) => policy.retriable_status_codes.push(u32::from(code)),
            None => conditions.push(part),
        }
    }
    policy.retry_on = conditions.join(",");
    if !policy.retriable_status_codes.is_empty() && !policy.retry_on.contains(RETRIABLE_STATUS_CODES) {
        policy.retry_on.push(',');
        policy.retry_on.push_str(RETRIABLE_STATUS_CODES);
    }
}

fn is_known_status(code: u16) -> bool {
    StatusCode::from_u16(code).is_ok_and(|c| c.canonical_reason().is_some())
}

fn back_off(asked: &HttpRetry) -> Option<RetryBackOff> {
    asked.backoff.map(|base| RetryBackOff { base_interval: Some(base), ..Default::default() })
}

fn previous_hosts() -> RetryHostPredicate {
    RetryHostPredicate {
        name: "envoy.retry_host_predicates.previous_hosts".to_string(),
        config_type: Some(retry_host_predicate::ConfigType::TypedConfig(to_any(&PreviousHostsPredicate {}))),
    }
}

fn previous_priorities() -> RetryPriority {
    RetryPriority {
        name: "envoy.retry_priorities.previous_priorities".to_string(),
        config_type: Some(retry_priority::ConfigType::TypedConfig(to_any(&PreviousPrioritiesConfig {
            update_frequency: 2,
        }))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry(attempts: i32, retry_on: &str) -> HttpRetry {
        HttpRetry { attempts, retry_on: retry_on.to_string(), ..Default::default() }
    }

    #[test]
    fn status_codes_are_told_from_conditions() {
        let policy = outbound(Some(&retry(3, "5xx, 503,,999,gateway-error")), false).unwrap();
        assert_eq!(policy.retry_on, "5xx,999,gateway-error,retriable-status-codes");
        assert_eq!(policy.retriable_status_codes, [503]);
        assert_eq!(policy.num_retries, Some(3));
        let only_codes = outbound(Some(&retry(1, "503")), false).unwrap();
        assert_eq!(only_codes.retry_on, ",retriable-status-codes");
    }

    #[test]
    fn no_attempts_mean_no_policy() {
        assert_eq!(outbound(Some(&retry(0, "5xx")), false), None);
        assert_eq!(inbound(Some(&retry(-1, ""))), None);
        assert_eq!(inbound(None).unwrap().retry_on, "reset-before-request");
    }

    #[test]
    fn a_consistent_hash_may_try_the_same_host() {
        assert!(outbound(None, true).unwrap().retry_host_predicate.is_empty());
        let asked = HttpRetry { attempts: 1, retry_ignore_previous_hosts: Some(true), ..Default::default() };
        assert_eq!(outbound(Some(&asked), true).unwrap().retry_host_predicate.len(), 1);
    }
}
