//! `/debug/analysisz`: the analysis of the objects in force.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::AdminState;
use crate::analysis::{self, Object, Subject};

/// The messages, in the form of `pilothouse analyze -o json`; the place is that of the object. An analysis runs beside the other
/// work, since it looks at all objects.
pub(super) async fn messages(state: &AdminState) -> Value {
    let Some(context) = state.context() else { return json!([]) };
    let snapshot = state.store.snapshot();
    let run = move || {
        let objects = Object::all_of(&snapshot);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let found = analysis::analyze(&objects, &context, i64::try_from(now).unwrap_or(i64::MAX));
        let shown = found.iter().map(|message| {
            let object = match message.subject {
                Subject::Object(index) => objects.get(index),
                Subject::MeshConfig | Subject::MeshNetworks => None,
            };
            json!({
                "code": message.code.code(),
                "level": message.code.level().as_str(),
                "origin": object.map_or_else(|| "mesh".to_string(), |o| format!("{} {}", o.kind, o.full_name())),
                "reference": object.map(|object| object.place.as_str()).unwrap_or_default(),
                "path": message.path,
                "message": message.text,
                "wayOut": message.code.way_out(),
            })
        });
        shown.collect::<Value>()
    };
    tokio::task::spawn_blocking(run).await.unwrap_or_else(|error| json!({"error": error.to_string()}))
}
