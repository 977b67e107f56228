//! The steps that stored entries lead to, as functions, for tests that store anything: those that are private to this room.
//!
//! Built for tests only. Nothing here decides anything.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    EntryKey,
    cleanup::{Lost, Verdict, Viewer},
    entry::{self, Wish},
    plan::{self, Claim, HealthReport, Step},
};
use crate::{
    discovery::RegistrationRefusal,
    model::{Config, Features, Identity, Node},
    proto::ProtoError,
};

/// The name of this process in entries.
const ME: &str = "me";

/// Carries out the steps for a stored entry, for a proxy that is connected (`present`) or gone, until no step is left or
/// `most` are made. Gives the entry (or nothing, where there is none), and whether it came to rest.
#[must_use]
pub fn settled(mut stored: Option<Value>, present: bool, health: Option<&str>, most: usize) -> (Option<Value>, bool) {
    let at = Timestamp::from_second(1_700_000_000).unwrap_or_default();
    let report = health.map(|message| HealthReport { healthy: message.is_empty(), message: message.to_string(), at });
    let claim = Claim { auto: true, connected_at: at, gone_at: (!present).then_some(at), report };
    for _ in 0..most {
        match plan::next(&claim, stored.as_ref(), ME) {
            Step::Done | Step::Leave => return (stored, true),
            Step::Create => stored = Some(json!({"metadata": {"annotations": plan::connected(ME, at)}})),
            Step::Annotate(change) => {
                let mut entry = stored.unwrap_or_default();
                merge(&mut entry, json!({"metadata": {"annotations": change}}));
                stored = Some(entry);
            }
            Step::SetStatus(status) => {
                let mut entry = stored.unwrap_or_default();
                merge(&mut entry, json!({ "status": status }));
                stored = Some(entry);
            }
        }
    }
    (stored, false)
}

/// A merge patch (RFC 7386).
fn merge(into: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *into = patch;
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    let Some(fields) = into.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            fields.remove(&key);
        } else {
            merge(fields.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Whether a stored entry is cleaned up now, and the changes to it.
#[must_use]
pub fn cleaned_up(stored: &Value, now: i64, orphaned: bool) -> (bool, Option<Value>) {
    let gone = BTreeSet::from(["dead".to_string()]);
    let viewer = Viewer { me: ME, grace: Duration::from_secs(10), gone: &gone };
    match viewer.verdict(
        stored,
        Timestamp::from_second(now).unwrap_or_default(),
        Lost { group: orphaned, connection: true },
    ) {
        Verdict::Keep | Verdict::Wait(_) => (false, None),
        Verdict::LetGo(annotations) => (false, Some(annotations)),
        Verdict::End(_) => (true, None),
    }
}

/// The entry that a node asks for: namespace, name and group.
///
/// # Errors
/// Why it is refused.
pub fn wished(node: &Node, features: &Features) -> Result<Option<(EntryKey, String)>, RegistrationRefusal> {
    Ok(entry::wish(node, features)?.map(|Wish { key, group }| (key, group)))
}

/// The document of an entry that a node asks for.
///
/// # Errors
/// When the template of its group cannot be written.
pub fn document(key: &EntryKey, node: &Node, group: &Config) -> Result<Value, ProtoError> {
    entry::document(key, node, group)
}

/// Whether an identity may control an entry.
#[must_use]
pub fn may_control(identity: Option<&Identity>, entry: &Value) -> bool {
    entry::may_control(identity, entry).is_ok()
}
