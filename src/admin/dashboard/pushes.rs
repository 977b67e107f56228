//! The last pushes, each from its cause to its last acknowledgement, and percentiles over all of them.

use serde_json::{Value, json};

use crate::{admin::AdminState, discovery::PushEvent};

/// The pushes, last one first, and percentiles of the time until the last acknowledgement of those that were sent to somebody.
pub(super) fn pushes(state: &AdminState) -> Value {
    let events = state.xds.events();
    json!({"percentiles": percentiles(&events), "pushes": events, "remembered": events.len()})
}

fn percentiles(events: &[PushEvent]) -> Value {
    // The first push is the start; a forced one is sent to everybody: both are pushes like any other.
    let acked: Vec<&PushEvent> = events.iter().filter(|event| event.acked > 0).collect();
    let of = |value: &dyn Fn(&PushEvent) -> Option<f64>| {
        let mut values: Vec<f64> = acked.iter().filter_map(|event| value(event)).collect();
        values.sort_by(f64::total_cmp);
        let at = |percent: usize| values.get((values.len() * percent).div_ceil(100).saturating_sub(1)).copied();
        json!({"p50": at(50), "p90": at(90), "p99": at(99)})
    };
    json!({
        "pushes": acked.len(),
        "debounce": of(&|event| event.stages.map(|stages| stages.debounced_ms)),
        "build": of(&|event| event.stages.map(|stages| stages.build_ended_ms - stages.build_began_ms)),
        "published": of(&|event| Some(event.published_ms)),
        "lastAck": of(&|event| Some(event.last_ack_ms)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::StageTimes;

    fn event(acked: u64, last_ack_ms: f64) -> PushEvent {
        let stages = StageTimes { debounced_ms: 100.0, merged: 1, build_began_ms: 110.0, build_ended_ms: 115.0 };
        PushEvent {
            version: 1,
            at: 0.0,
            forced: false,
            changed: 1,
            keys: Vec::new(),
            reasons: Vec::new(),
            published_ms: 120.0,
            views: 1,
            connections: 1,
            responses: 1,
            bytes: 1,
            acked,
            nacked: 0,
            last_sent_ms: 0.0,
            last_ack_ms,
            ack_ms: None,
            stages: Some(stages),
        }
    }

    #[test]
    fn pushes_that_nobody_answered_do_not_count() {
        let mut events: Vec<PushEvent> = (1..=100).map(|n| event(1, f64::from(n))).collect();
        events.push(event(0, 0.0));
        let found = percentiles(&events);
        assert_eq!(found["pushes"], 100);
        assert_eq!(found["lastAck"], json!({"p50": 50.0, "p90": 90.0, "p99": 99.0}));
        assert_eq!(found["build"]["p99"], 5.0);
        assert_eq!(percentiles(&[])["lastAck"]["p50"], Value::Null);
    }
}
