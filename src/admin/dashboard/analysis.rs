//! The analysis of the objects in force, made once for all pages, and so seldom that it costs little however often they change.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use serde_json::{Value, json};

use super::{
    fleet::millis,
    listing::{Query, has, page, text},
};
use crate::{
    admin::{AdminState, analysis as run, memory::Analysed},
    model::{Config, ConfigSnapshot},
};

/// After an analysis the next one waits for this many times its duration.
const PAUSE: u32 = 20;

impl Analysed {
    fn is_of(&self, objects: &Arc<ConfigSnapshot>, push: u64) -> bool {
        self.push == push && Arc::ptr_eq(&self.of, objects)
    }

    fn rests(&self) -> Duration {
        (self.took * PAUSE).saturating_sub(self.ended.elapsed())
    }
}

async fn current(state: &AdminState) -> (Analysed, Duration) {
    let (objects, push) = (state.store.snapshot(), state.xds.current().map_or(0, |published| published.version));
    let known = state.dashboard.shared().analysis.lock().clone();
    if let Some(known) = known {
        if known.is_of(&objects, push) {
            return (known, Duration::ZERO);
        }
        let rests = known.rests();
        if !rests.is_zero() {
            return (known, rests.max(Duration::from_secs(1)));
        }
    }
    let began = Instant::now();
    let messages = Arc::new(run::messages(state).await);
    let ended = Instant::now();
    let made = Analysed { of: objects, push, ended, took: ended - began, at: millis(SystemTime::now()), messages };
    *state.dashboard.shared().analysis.lock() = Some(made.clone());
    (made, Duration::ZERO)
}

/// The page; `againIn` is there where the objects have changed since and the next analysis waits.
pub(super) async fn analysis(query: &Query, state: &AdminState) -> Value {
    let (analysed, waits) = current(state).await;
    let messages = analysed.messages.as_array().map_or(&[][..], Vec::as_slice);
    let mut shown = list(messages, query);
    shown["asOf"] = analysed.at.into();
    shown["againIn"] = if waits.is_zero() { Value::Null } else { json!(waits.as_secs().max(1)) };
    shown
}

fn list(messages: &[Value], query: &Query) -> Value {
    let of = |message: &Value, field: &str| message[field].as_str().unwrap_or_default().to_string();
    let (level, searched) = (text(query, "level"), text(query, "q"));
    let fits = |message: &&Value| {
        let texts = ["code", "origin", "reference", "message"].map(|field| of(message, field));
        (level.is_empty() || of(message, "level") == level) && has(searched, &texts.each_ref().map(String::as_str))
    };
    let rank = |message: &Value| match of(message, "level").as_str() {
        "Error" => 0,
        "Warning" => 1,
        _ => 2,
    };
    let mut kept: Vec<&Value> = messages.iter().filter(fits).collect();
    kept.sort_by_key(|message| rank(message));
    let mut shown = page(&kept, query, |message| (*message).clone());
    let count = |level: &str| messages.iter().filter(|message| message["level"] == level).count();
    shown["counts"] = json!({"Error": count("Error"), "Warning": count("Warning"), "Info": count("Info")});
    shown
}

/// The messages about one object.
pub(super) async fn about(state: &AdminState, config: &Config) -> Vec<Value> {
    let (namespace, name) = (&config.meta.namespace, &config.meta.name);
    let slash = if namespace.is_empty() { "" } else { "/" };
    let origin = format!("{} {namespace}{slash}{name}", config.kind().as_str());
    let (analysed, _) = current(state).await;
    let all = analysed.messages.as_array().map_or(&[][..], Vec::as_slice);
    all.iter().filter(|message| message["origin"] == origin).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_first_and_levels_filter() {
        let of = |level: &str, code: &str| json!({"level": level, "code": code, "origin": "VirtualService b/a", "message": "m"});
        let messages = [of("Info", "I1"), of("Warning", "W1"), of("Error", "E1")];
        let shown = list(&messages, &Query::new());
        let codes: Vec<&str> = shown["rows"].as_array().unwrap().iter().filter_map(|m| m["code"].as_str()).collect();
        assert_eq!(codes, ["E1", "W1", "I1"]);
        let only = list(&messages, &Query::from([("level".to_string(), "Warning".to_string())]));
        assert_eq!((only["total"].as_u64(), only["counts"]["Error"].as_u64()), (Some(1), Some(1)));
    }
}
