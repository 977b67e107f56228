//! The status to write, from the desired one and the object's: transition times and others' entries are kept.

use serde_json::{Map, Value};

/// Fields that hold lists of entries, with the fields that identify an entry.
const LISTS: [(&str, &[&str]); 4] = [
    ("conditions", &["type"]),
    ("listeners", &["name"]),
    ("parents", &["parentRef", "controllerName"]),
    ("ancestors", &["ancestorRef", "controllerName"]),
];

/// Prefix of the controller names of Istio's translation; entries of other controllers are never dropped.
const OUR_CONTROLLERS: &str = "istio.io/";

/// The desired status in the form in which it is written. A condition whose status stays keeps its transition time, another
/// one gets `now`; conditions of other types and entries of other controllers stay where the whole list would be replaced.
#[must_use]
pub fn merged(desired: &Value, existing: &Value, now: &str) -> Value {
    let mut out = desired.clone();
    let (Some(fields), Some(old)) = (out.as_object_mut(), existing.as_object()) else {
        stamp_times(&mut out, now);
        return out;
    };
    merge_lists(fields, old, now);
    out
}

fn merge_lists(fields: &mut Map<String, Value>, old: &Map<String, Value>, now: &str) {
    for (name, identity) in LISTS {
        let Some(Value::Array(list)) = fields.get_mut(name) else { continue };
        let empty = Vec::new();
        let known = old.get(name).and_then(Value::as_array).unwrap_or(&empty);
        for entry in list.iter_mut() {
            let before = known.iter().find(|k| same_entry(k, entry, identity));
            if name == "conditions" {
                keep_time(entry, before, now);
            } else if let Some(entry) = entry.as_object_mut() {
                merge_lists(entry, before.and_then(Value::as_object).unwrap_or(&Map::new()), now);
            }
        }
        let foreign = known.iter().filter(|k| is_foreign(name, k));
        let missing: Vec<Value> =
            foreign.filter(|k| !list.iter().any(|e| same_entry(k, e, identity))).cloned().collect();
        list.extend(missing);
        if name == "conditions" {
            // The order of conditions has no meaning; keeping the existing one avoids a difference.
            let place = |entry: &Value| known.iter().position(|k| k["type"] == entry["type"]).unwrap_or(usize::MAX);
            list.sort_by_key(place);
        }
    }
}

/// Whether two entries have equal identities. A server fills in defaults: a field that only one of two references has does
/// not count.
fn same_entry(a: &Value, b: &Value, identity: &[&str]) -> bool {
    identity.iter().all(|field| match (&a[*field], &b[*field]) {
        (Value::Object(a), Value::Object(b)) => {
            a.get("name") == b.get("name") && a.iter().all(|(k, v)| b.get(k).is_none_or(|other| other == v))
        }
        (a, b) => a == b,
    })
}

fn is_foreign(list: &str, entry: &Value) -> bool {
    match list {
        "conditions" => true,
        "parents" | "ancestors" => entry["controllerName"].as_str().is_some_and(|c| !c.starts_with(OUR_CONTROLLERS)),
        _ => false,
    }
}

fn keep_time(entry: &mut Value, before: Option<&Value>, now: &str) {
    let time = before.filter(|b| b["status"] == entry["status"]).and_then(|b| b["lastTransitionTime"].as_str());
    if let Some(fields) = entry.as_object_mut() {
        fields.insert("lastTransitionTime".to_string(), time.unwrap_or(now).into());
    }
}

fn stamp_times(value: &mut Value, now: &str) {
    if let Some(fields) = value.as_object_mut() {
        merge_lists(fields, &Map::new(), now);
    }
}

/// Whether writing `merged` over `existing` would change nothing. Fields absent from `merged` belong to others where `whole`
/// is false.
#[must_use]
pub fn is_written(merged: &Value, existing: &Value, whole: bool) -> bool {
    let (Some(ours), Some(theirs)) = (merged.as_object(), existing.as_object()) else {
        return merged == existing || (existing.is_null() && merged.as_object().is_some_and(Map::is_empty));
    };
    ours.iter().all(|(key, value)| theirs.get(key).is_some_and(|t| covers(t, value)))
        && (!whole || theirs.keys().all(|key| ours.contains_key(key)))
}

/// Whether `theirs` contains all of `ours`; a server that filled in defaults has more.
fn covers(theirs: &Value, ours: &Value) -> bool {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            ours.iter().all(|(key, value)| theirs.get(key).is_some_and(|t| covers(t, value)))
        }
        (Value::Array(theirs), Value::Array(ours)) => {
            theirs.len() == ours.len() && theirs.iter().zip(ours).all(|(t, o)| covers(t, o))
        }
        (theirs, ours) => theirs == ours,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const THEN: &str = "2026-01-01T00:00:00Z";
    const NOW: &str = "2026-02-02T00:00:00Z";

    #[test]
    fn a_time_moves_with_the_status_only_and_others_conditions_stay() {
        let existing = json!({"conditions": [
            {"type": "Other", "status": "True", "lastTransitionTime": THEN},
            {"type": "Accepted", "status": "True", "message": "old", "lastTransitionTime": THEN},
        ]});
        let same = json!({"conditions": [{"type": "Accepted", "status": "True", "message": "new"}]});
        let out = merged(&same, &existing, NOW);
        assert_eq!(out["conditions"][0], existing["conditions"][0]);
        assert_eq!(out["conditions"][1]["lastTransitionTime"], THEN);
        assert_eq!(out["conditions"][1]["message"], "new");
        let turned = json!({"conditions": [{"type": "Accepted", "status": "False"}]});
        assert_eq!(merged(&turned, &existing, NOW)["conditions"][1]["lastTransitionTime"], NOW);
        assert_eq!(merged(&turned, &Value::Null, NOW)["conditions"][0]["lastTransitionTime"], NOW);
    }

    #[test]
    fn parents_of_other_controllers_stay_and_defaults_do_not_confuse() {
        let ours = json!({"parents": [{"parentRef": {"name": "gw"}, "controllerName": "istio.io/gateway-controller",
            "conditions": [{"type": "Accepted", "status": "True"}]}]});
        let existing = json!({"parents": [
            {"parentRef": {"name": "gw", "kind": "Gateway"}, "controllerName": "istio.io/gateway-controller",
             "conditions": [{"type": "Accepted", "status": "True", "lastTransitionTime": THEN}]},
            {"parentRef": {"name": "gone"}, "controllerName": "istio.io/gateway-controller", "conditions": []},
            {"parentRef": {"name": "gw"}, "controllerName": "example.com/x", "conditions": []},
        ]});
        let out = merged(&ours, &existing, NOW);
        let names: Vec<_> = out["parents"].as_array().unwrap().iter().map(|p| p["controllerName"].clone()).collect();
        assert_eq!(names, ["istio.io/gateway-controller", "example.com/x"]);
        assert_eq!(out["parents"][0]["conditions"][0]["lastTransitionTime"], THEN);
        assert!(!is_written(&out, &existing, true));
        let written = json!({"parents": [existing["parents"][0], existing["parents"][2]]});
        assert!(is_written(&merged(&ours, &written, NOW), &written, true));
    }

    #[test]
    fn a_written_status_is_equal_with_any_additions_of_the_server() {
        let desired = json!({"conditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}]});
        let first = merged(&desired, &Value::Null, THEN);
        assert!(!is_written(&first, &Value::Null, false));
        let mut stored = first.clone();
        stored["conditions"].as_array_mut().unwrap().reverse();
        stored["validationMessages"] = json!([]);
        let again = merged(&desired, &stored, NOW);
        assert!(is_written(&again, &stored, false));
        assert!(!is_written(&again, &stored, true), "a whole status has no field of others");
        assert!(is_written(&json!({}), &Value::Null, true));
    }
}
