//! Which entries outlived their proxies. Pure.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{
    entry::{CONNECTED_AT, CONTROLLER, DISCONNECTED_AT, GROUP},
    plan::HEALTHY,
};
use crate::model::{Config, Labels};

/// How many grace periods an entry is given that another process let go: it looks after its own (Istio's periodic sweep).
const OF_OTHERS: u32 = 10;

/// What becomes of an entry whose proxy did not come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was made for the proxy, and goes.
    Delete,
    /// It was there before, and what is known of its health goes.
    ForgetHealth,
}

/// What to do about an entry, and when; `None` while its proxy is connected, or when it is none of ours to clean up.
#[must_use]
pub fn fate(annotations: &Labels, status: &Value, me: &str, grace: Duration) -> Option<(Timestamp, Fate)> {
    let text = |name: &str| annotations.get(name).map_or("", String::as_str);
    let fate = if text(GROUP).is_empty() {
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let checked = !text(CONTROLLER).is_empty() && conditions.into_iter().any(|c| c["type"] == HEALTHY);
        checked.then_some(Fate::ForgetHealth)?
    } else {
        Fate::Delete
    };
    if !text(CONNECTED_AT).is_empty() || text(DISCONNECTED_AT).is_empty() {
        return None;
    }
    let since: Timestamp = text(DISCONNECTED_AT).parse().unwrap_or_default();
    let pause = if text(CONTROLLER) == me { grace } else { grace.saturating_mul(OF_OTHERS) };
    Some((since.checked_add(pause).unwrap_or(Timestamp::MAX), fate))
}

/// As [`fate`], of an object.
#[must_use]
pub fn fate_of(config: &Config, me: &str, grace: Duration) -> Option<(Timestamp, Fate)> {
    fate(&config.meta.annotations, &config.status, me, grace)
}

/// As [`fate`], of a document.
#[must_use]
pub fn fate_of_document(stored: &Value, me: &str, grace: Duration) -> Option<(Timestamp, Fate)> {
    let annotations = stored["metadata"]["annotations"].as_object().into_iter().flatten();
    let annotations = annotations.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_string()))).collect();
    fate(&annotations, &stored["status"], me, grace)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_goes_when_its_time_is_over_and_never_while_it_is_connected() {
        let grace = Duration::from_secs(10);
        let after = |annotations: Value, status: Value| {
            let document = json!({"metadata": {"annotations": annotations}, "status": status});
            let (at, fate) = fate_of_document(&document, "me", grace)?;
            Some((at.as_second() - 1_700_000_000, fate))
        };
        let left = "2023-11-14T22:13:20Z";
        let healthy = json!({"conditions": [{"type": "Healthy", "status": "True"}]});
        let own = json!({GROUP: "g", CONTROLLER: "me", DISCONNECTED_AT: left});
        assert_eq!(after(own.clone(), Value::Null), Some((10, Fate::Delete)));
        let others = json!({GROUP: "g", CONTROLLER: "other", DISCONNECTED_AT: left});
        assert_eq!(after(others, Value::Null), Some((100, Fate::Delete)));
        let back = json!({GROUP: "g", CONTROLLER: "me", DISCONNECTED_AT: left, CONNECTED_AT: left});
        assert_eq!(after(back, Value::Null), None);
        let written = json!({CONTROLLER: "me", DISCONNECTED_AT: left});
        assert_eq!(after(written.clone(), healthy.clone()), Some((10, Fate::ForgetHealth)));
        assert_eq!(after(written, Value::Null), None);
        assert_eq!(after(json!({DISCONNECTED_AT: left}), healthy), None, "nobody's");
    }
}
