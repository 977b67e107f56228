//! Entries without a connection, of this process, of others and of ended ones.

use serde_json::json;

use super::*;
use crate::model::{Origin, decode};

const LEFT: &str = "2023-11-14T22:13:20Z";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn verdict(annotations: &Value, status: &Value, gone: &[&str], second: i64, abandoned: bool) -> Verdict {
    let gone: BTreeSet<String> = gone.iter().map(ToString::to_string).collect();
    let viewer = Viewer { me: "me", grace: Duration::from_secs(10), gone: &gone };
    let stored = json!({"metadata": {"annotations": annotations}, "status": status});
    viewer.verdict(&stored, at(second), Lost { group: false, connection: abandoned })
}

#[test]
fn an_entry_goes_when_its_time_is_over_and_never_while_it_is_connected() {
    let healthy = json!({"conditions": [{"type": "Healthy", "status": "True"}]});
    let after = |annotations: Value, status: &Value| match verdict(&annotations, status, &[], 0, true) {
        Verdict::Wait(at) => Some(at.as_second() - 1_700_000_000),
        Verdict::Keep => None,
        other => panic!("{other:?}"),
    };
    let own = json!({GROUP: "g", CONTROLLER: "me", DISCONNECTED_AT: LEFT});
    assert_eq!(after(own.clone(), &Value::Null), Some(10));
    assert_eq!(verdict(&own, &Value::Null, &[], 10, true), Verdict::End(Fate::Delete));
    let others = json!({GROUP: "g", CONTROLLER: "other", DISCONNECTED_AT: LEFT});
    assert_eq!(after(others, &Value::Null), Some(100));
    let connected = json!({GROUP: "g", CONTROLLER: "other", CONNECTED_AT: LEFT});
    assert_eq!(after(connected, &Value::Null), None);
    let written = json!({CONTROLLER: "me", DISCONNECTED_AT: LEFT});
    assert_eq!(verdict(&written, &healthy, &[], 10, true), Verdict::End(Fate::ForgetHealth));
    assert_eq!(after(written, &Value::Null), None);
    assert_eq!(after(json!({DISCONNECTED_AT: LEFT}), &healthy), None, "no controller");
}

#[test]
fn entries_of_an_ended_process_are_released_and_given_their_grace() {
    let connected = json!({GROUP: "g", CONTROLLER: "dead", CONNECTED_AT: LEFT});
    let let_go = |at: Timestamp| Verdict::LetGo(json!({CONNECTED_AT: null, DISCONNECTED_AT: at.to_string()}));
    assert_eq!(verdict(&connected, &Value::Null, &["dead"], 60, false), let_go(at(60)));
    assert_eq!(verdict(&connected, &Value::Null, &["another"], 1_000_000, true), Verdict::Keep);
    let released = json!({GROUP: "g", CONTROLLER: "dead", DISCONNECTED_AT: at(60).to_string()});
    assert_eq!(verdict(&released, &Value::Null, &["dead"], 69, true), Verdict::Wait(at(70)));
    assert_eq!(verdict(&released, &Value::Null, &["dead"], 70, true), Verdict::End(Fate::Delete));
    assert_eq!(
        verdict(&released, &Value::Null, &[], 70, true),
        Verdict::Wait(at(160)),
        "a process that does not know waits longer"
    );
    let of_a_user = json!({CONTROLLER: "dead", CONNECTED_AT: LEFT});
    assert_eq!(verdict(&of_a_user, &Value::Null, &["dead"], 60, true), Verdict::Keep, "nothing to forget");
    let mine = json!({GROUP: "g", CONTROLLER: "me", CONNECTED_AT: LEFT});
    assert_eq!(verdict(&mine, &Value::Null, &[], 60, true), let_go(at(60)));
    assert_eq!(verdict(&mine, &Value::Null, &[], 60, false), Verdict::Keep);
}

fn entry(controller: &str, since: i64) -> Arc<Config> {
    let annotations = json!({GROUP: "g", CONTROLLER: controller, CONNECTED_AT: at(since).to_string()});
    let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "spec": {"address": "10.0.0.1"},
        "metadata": {"name": "a", "namespace": "shop", "annotations": annotations}});
    Arc::new(decode::from_value(&document, Origin::default()).unwrap())
}

#[test]
fn a_process_that_takes_an_entry_back_is_alive() {
    let key = EntryKey { namespace: "shop".into(), name: "a".into() };
    let told: Gone = Arc::new(["b".to_string(), "c".to_string()].into());
    let mut departures = Departures::default();
    departures.take(&told);
    assert!(!departures.is_left(&key, &entry("a", 0)));
    assert!(departures.is_left(&key, &entry("b", 0)));
    assert!(departures.is_left(&key, &entry("b", 0)), "the watch has not told yet that it was let go");
    assert!(!departures.is_left(&key, &entry("b", 9)), "written by b after it was let go");
    assert!(!departures.is_left(&key, &entry("b", 10)) && !departures.gone().contains("b"));
    assert!(departures.is_left(&key, &entry("c", 11)));
    departures.take(&Arc::default());
    departures.take(&told);
    assert!(departures.is_left(&key, &entry("b", 12)), "it renewed its lease and ended after that");
}

#[test]
fn an_entry_that_names_a_process_keeps_it_known() {
    let configs = ConfigSnapshot::of([entry("b", 0)]);
    assert!(stands_for(&configs, "b") && !stands_for(&configs, "a"));
}
