//! The next step for one entry, from the connections of this process and the stored entry. Pure.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::entry::{CONNECTED_AT, CONTROLLER, DISCONNECTED_AT};

/// Type of the condition on a workload's health.
pub const HEALTHY: &str = "Healthy";
/// Bytes of a health message that are kept.
const LONGEST_MESSAGE: usize = 1024;

/// A health report of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthReport {
    /// Whether the workload can serve.
    pub healthy: bool,
    /// Reason of the unhealthy state.
    pub message: String,
    /// Time of the report.
    pub at: Timestamp,
}

/// The claim of this process on an entry for one proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Whether the entry may be made from a group.
    pub auto: bool,
    /// Time of the last connection.
    pub connected_at: Timestamp,
    /// Time at which its last connection ended; `None` while it is connected.
    pub gone_at: Option<Timestamp>,
    /// The last health report.
    pub report: Option<HealthReport>,
}

/// The next operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The stored entry matches the claim.
    Done,
    /// Create the missing entry.
    Create,
    /// No entry is stored, or it belongs to another process.
    Leave,
    /// Annotations to change.
    Annotate(Value),
    /// The status to write.
    SetStatus(Value),
}

/// The value of an annotation; empty when there is none.
pub fn annotation<'a>(stored: &'a Value, name: &str) -> &'a str {
    stored["metadata"]["annotations"][name].as_str().unwrap_or_default()
}

/// The time in an annotation.
pub fn time(stored: &Value, name: &str) -> Option<Timestamp> {
    annotation(stored, name).parse().ok()
}

/// The annotations of an entry whose proxy is connected to `me`.
pub fn connected(me: &str, at: Timestamp) -> Value {
    json!({CONTROLLER: me, CONNECTED_AT: at.to_string(), DISCONNECTED_AT: null})
}

/// The annotations of an entry whose proxy disconnected at `at`, and had been connected `since`.
pub fn disconnected(at: Timestamp, since: Option<Timestamp>) -> Value {
    json!({CONNECTED_AT: null, DISCONNECTED_AT: later(Some(at), since).to_string()})
}

/// The next step for a claim of this process (`me`).
#[must_use]
pub fn next(claim: &Claim, stored: Option<&Value>, me: &str) -> Step {
    let Some(stored) = stored else {
        return if claim.auto && claim.gone_at.is_none() { Step::Create } else { Step::Leave };
    };
    let ours = annotation(stored, CONTROLLER) == me;
    let (since, until) = (time(stored, CONNECTED_AT), time(stored, DISCONNECTED_AT));
    match claim.gone_at {
        None => present(claim, stored, me, ours, since, until),
        Some(_) if !ours => Step::Leave,
        Some(_) if since.is_none() => Step::Done,
        Some(gone) => Step::Annotate(disconnected(gone, since)),
    }
}

fn present(
    claim: &Claim,
    stored: &Value,
    me: &str,
    ours: bool,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
) -> Step {
    if since.is_some_and(|at| at > claim.connected_at) && !ours && until.is_none() {
        return Step::Leave;
    }
    if !ours || until.is_some() || since.is_none_or(|at| at < claim.connected_at) {
        // Another clock may be ahead of ours: the last write must carry the latest time.
        return Step::Annotate(connected(me, later(Some(claim.connected_at), until)));
    }
    match &claim.report {
        Some(report) => condition(report, stored),
        None => Step::Done,
    }
}

/// The first of two times, or a little after the second if that is not later already.
fn later(at: Option<Timestamp>, than: Option<Timestamp>) -> Timestamp {
    let at = at.unwrap_or_default();
    let bound = than.and_then(|than| than.checked_add(SignedDuration::from_micros(1)).ok());
    bound.map_or(at, |bound| at.max(bound))
}

fn condition(report: &HealthReport, stored: &Value) -> Step {
    let known = stored["status"]["conditions"].as_array().into_iter().flatten();
    let (before, mut others): (Vec<Value>, Vec<Value>) = known.cloned().partition(|c| c["type"] == HEALTHY);
    let message: String = report.message.chars().take(LONGEST_MESSAGE).collect();
    let status = if report.healthy { "True" } else { "False" };
    if let Some(before) = before.first() {
        let probed: Option<Timestamp> = before["lastProbeTime"].as_str().and_then(|t| t.parse().ok());
        let same = before["status"] == status && before["message"].as_str().unwrap_or_default() == message;
        if same || probed.is_some_and(|at| at > report.at) {
            return Step::Done;
        }
    }
    let at = report.at.to_string();
    let mut now = json!({"type": HEALTHY, "status": status, "lastProbeTime": at, "lastTransitionTime": at});
    if !message.is_empty() {
        now["message"] = message.into();
    }
    others.push(now);
    Step::SetStatus(with_conditions(stored, others))
}

/// The status of an entry with these conditions.
pub fn with_conditions(stored: &Value, conditions: Vec<Value>) -> Value {
    let mut status = if stored["status"].is_object() { stored["status"].clone() } else { json!({}) };
    status["conditions"] = Value::Array(conditions);
    status
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn claim(connected_at: i64, gone_at: Option<i64>) -> Claim {
        Claim { auto: true, connected_at: at(connected_at), gone_at: gone_at.map(at), report: None }
    }

    /// Applies a step as a store does.
    fn apply(step: &Step, stored: &mut Option<Value>, me: &str, connected_at: Timestamp) {
        let merge = |target: &mut Value, patch: &Value| {
            for (name, value) in patch.as_object().unwrap() {
                target[name] = value.clone();
            }
        };
        match (step, stored) {
            (Step::Create, stored) => {
                *stored = Some(json!({"metadata": {"annotations": connected(me, connected_at)}}));
            }
            (Step::Annotate(patch), Some(stored)) => merge(&mut stored["metadata"]["annotations"], patch),
            (Step::SetStatus(status), Some(stored)) => stored["status"] = status.clone(),
            _ => {}
        }
    }

    fn settle(claim: &Claim, stored: &mut Option<Value>, me: &str) -> usize {
        for writes in 0..5 {
            let step = next(claim, stored.as_ref(), me);
            if matches!(step, Step::Done | Step::Leave) {
                return writes;
            }
            apply(&step, stored, me, claim.connected_at);
        }
        panic!("it does not settle: {claim:?} {stored:?}");
    }

    #[test]
    fn a_proxy_comes_goes_and_moves_to_another_process() {
        let mut stored = None;
        assert_eq!(settle(&claim(1, None), &mut stored, "a"), 1);
        assert_eq!(settle(&claim(1, None), &mut stored, "a"), 0);
        assert_eq!(settle(&claim(5, None), &mut stored, "b"), 1, "it is connected to b now");
        assert_eq!(settle(&claim(1, None), &mut stored, "a"), 0, "a may not take it back");
        assert_eq!(settle(&claim(1, Some(6)), &mut stored, "a"), 0, "nor end it");
        assert_eq!(settle(&claim(5, Some(7)), &mut stored, "b"), 1);
        let ended = stored.clone().unwrap();
        assert!(time(&ended, CONNECTED_AT).is_none() && time(&ended, DISCONNECTED_AT) == Some(at(7)));
        assert_eq!(settle(&claim(1, None), &mut stored, "a"), 1, "a has a connection still");
        assert!(time(stored.as_ref().unwrap(), CONNECTED_AT).unwrap() > at(7), "whatever the clocks say");
        assert_eq!(settle(&claim(1, None), &mut None, "a"), 1);
        assert_eq!(settle(&claim(1, Some(2)), &mut None, "a"), 0);
    }

    #[test]
    fn health_is_written_when_it_turns_and_others_conditions_stay() {
        let mut stored = Some(json!({"metadata": {"annotations": connected("a", at(1))},
            "status": {"conditions": [{"type": "Reconciled", "status": "True"}], "x": 1}}));
        let says = |healthy, message: &str, second| Claim {
            report: Some(HealthReport { healthy, message: message.to_string(), at: at(second) }),
            ..claim(1, None)
        };
        assert_eq!(settle(&says(false, "no", 2), &mut stored, "a"), 1);
        assert_eq!(settle(&says(false, "no", 9), &mut stored, "a"), 0, "the same again");
        assert_eq!(settle(&says(true, "", 1), &mut stored, "a"), 0, "older than the stored one");
        let Some(entry) = &stored else { unreachable!() };
        let conditions = entry["status"]["conditions"].as_array().unwrap();
        assert_eq!((conditions[0]["type"].clone(), entry["status"]["x"].clone()), (json!("Reconciled"), json!(1)));
        assert_eq!((&conditions[1]["status"], &conditions[1]["message"]), (&json!("False"), &json!("no")));
        assert_eq!(settle(&says(true, "", 10), &mut stored, "a"), 1);
        let of_before = Claim { connected_at: at(0), ..says(true, "", 11) };
        assert_eq!(settle(&of_before, &mut stored, "b"), 0, "only its owner reports for it");
    }

    proptest! {
        /// In any order of looks the last one wins: an entry with a live connection is connected, and processes never fight
        /// over it.
        #[test]
        fn a_connected_process_has_the_entry(
            moves in proptest::collection::vec((0usize..3, 0i64..4), 1..12),
            looks in proptest::collection::vec(0usize..3, 0..20),
        ) {
            let names = ["a", "b", "c"];
            let mut claims: [Option<Claim>; 3] = Default::default();
            let (mut stored, mut now) = (None, 10);
            for (to, skew) in moves {
                now += 10;
                for (who, claim) in claims.iter_mut().enumerate() {
                    if who != to && let Some(claim) = claim {
                        claim.gone_at = claim.gone_at.or(Some(at(now)));
                    }
                }
                claims[to] = Some(claim(now - skew * 20, None));
                settle(claims[to].as_ref().unwrap(), &mut stored, names[to]);
            }
            for who in looks.into_iter().chain(0..3).chain(0..3) {
                if let Some(claim) = &claims[who] {
                    settle(claim, &mut stored, names[who]);
                }
            }
            let entry = stored.unwrap();
            prop_assert!(time(&entry, CONNECTED_AT).is_some() && time(&entry, DISCONNECTED_AT).is_none());
            for (who, claim) in claims.iter().enumerate() {
                let step = claim.as_ref().map_or(Step::Done, |c| next(c, Some(&entry), names[who]));
                prop_assert!(matches!(step, Step::Done | Step::Leave), "{step:?}");
            }
        }
    }
}
