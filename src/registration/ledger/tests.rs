//! Connections and tasks of one entry, in the order in which they happen.

use serde_json::{Value, json};

use super::*;
use crate::model::{Origin, decode};

const GRACE: Duration = Duration::from_secs(10);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn key() -> EntryKey {
    EntryKey { namespace: "shop".into(), name: "vms-10.0.0.1".into() }
}

fn guest(id: u64, second: i64) -> Guest {
    let node = crate::model::Node::from_parts("sidecar~10.0.0.1~a.shop~d", Value::Null, Default::default()).unwrap();
    Guest {
        id,
        key: key(),
        group: "vms".into(),
        node: Arc::new(node),
        identity: None,
        peer: None,
        at: at(second),
        health: Arc::default(),
    }
}

/// The one task that begins now, as a short text.
fn task(ledger: &mut Ledger, second: i64) -> String {
    let tasks = ledger.due(at(second));
    assert!(tasks.len() <= 1, "{tasks:?}");
    match tasks.into_iter().next() {
        None => String::new(),
        Some((_, Task::Clean { abandoned })) => format!("clean {abandoned}"),
        Some((_, Task::Settle { claim, arrival, .. })) => match (arrival, claim.gone_at) {
            (Some(id), _) => format!("arrival {id}"),
            (None, Some(_)) => "leave".to_string(),
            (None, None) => "settle".to_string(),
        },
    }
}

fn done(ledger: &mut Ledger, outcome: TaskOutcome, second: i64) -> Option<bool> {
    ledger.done(&key(), outcome, GRACE, at(second)).map(|(_, guest)| guest.is_some())
}

fn arrived(ledger: &mut Ledger, id: u64, second: i64) {
    ledger.arrive(guest(id, second)).unwrap();
    assert_eq!(task(ledger, second), format!("arrival {id}"));
    assert_eq!(done(ledger, TaskOutcome::Settled, second), Some(true));
}

#[test]
fn a_proxy_comes_goes_and_is_cleaned_up_after_the_grace_period() {
    let mut ledger = Ledger::default();
    arrived(&mut ledger, 1, 0);
    assert_eq!(task(&mut ledger, 1), "");
    ledger.leave(&key(), 1, at(2));
    assert_eq!(task(&mut ledger, 2), "leave");
    assert_eq!(done(&mut ledger, TaskOutcome::Settled, 2), None);
    assert_eq!(task(&mut ledger, 11), "");
    assert_eq!(task(&mut ledger, 12), "clean true");
    done(&mut ledger, TaskOutcome::Left, 12);
    assert_eq!((task(&mut ledger, 99), ledger.lanes.len()), (String::new(), 0));
}

#[test]
fn a_proxy_that_comes_back_is_not_cleaned_up_and_two_connections_count_as_one_proxy() {
    let mut ledger = Ledger::default();
    arrived(&mut ledger, 1, 0);
    arrived(&mut ledger, 2, 1);
    ledger.leave(&key(), 1, at(2));
    assert_eq!(task(&mut ledger, 2), "");
    ledger.leave(&key(), 2, at(3));
    assert_eq!(task(&mut ledger, 3), "leave");
    ledger.arrive(guest(3, 4)).unwrap();
    assert_eq!(task(&mut ledger, 4), "", "one task at a time");
    done(&mut ledger, TaskOutcome::Settled, 4);
    assert_eq!(task(&mut ledger, 4), "arrival 3");
    done(&mut ledger, TaskOutcome::Settled, 4);
    assert_eq!(task(&mut ledger, 99), "");
}

#[test]
fn a_failed_task_is_tried_again_slower_and_the_proxy_is_served_meanwhile() {
    let mut ledger = Ledger::default();
    ledger.arrive(guest(1, 0)).unwrap();
    task(&mut ledger, 0);
    assert_eq!(done(&mut ledger, TaskOutcome::Failed, 0), Some(true));
    assert_eq!((task(&mut ledger, 0), task(&mut ledger, 1)), (String::new(), "settle".to_string()));
    done(&mut ledger, TaskOutcome::Failed, 1);
    assert_eq!((task(&mut ledger, 2), task(&mut ledger, 3)), (String::new(), "settle".to_string()));
    done(&mut ledger, TaskOutcome::Settled, 3);
    assert_eq!(task(&mut ledger, 99), "");
    ledger.arrive(guest(2, 100)).unwrap();
    task(&mut ledger, 100);
    assert_eq!(done(&mut ledger, TaskOutcome::Refused, 100), Some(false));
    ledger.leave(&key(), 1, at(101));
    assert_eq!(task(&mut ledger, 101), "leave", "a refused proxy holds nothing");
}

#[test]
fn an_unreachable_store_is_tried_again_soon_and_health_reports_outlive_the_ledger() {
    let mut ledger = Ledger::default();
    arrived(&mut ledger, 1, 0);
    let said = |healthy| Said { healthy, message: String::new(), at: at(1) };
    ledger.say(&key(), said(false));
    let mut second = 0;
    for _ in 0..20 {
        assert_eq!(task(&mut ledger, second), "settle");
        done(&mut ledger, TaskOutcome::Unreached, second);
        assert_eq!(task(&mut ledger, second), "");
        second += 8;
    }
    let machine = guest(2, 0);
    assert!(machine.health.say(said(false)) && !machine.health.say(said(true)), "one message is enough");
    let mut again = Ledger::of([machine.clone()]);
    let Some((_, Task::Settle { claim, .. })) = again.due(at(0)).pop() else { panic!("nothing is settled") };
    assert_eq!(claim.said, Some(said(true)));
    assert!(machine.health.say(said(false)), "it was taken");
}

fn stored(annotations: Value) -> ConfigSnapshot {
    let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "spec": {"address": "10.0.0.1"},
        "metadata": {"name": "vms-10.0.0.1", "namespace": "shop", "annotations": annotations}});
    ConfigSnapshot::of([Arc::new(decode::from_value(&document, Origin::default()).unwrap())])
}

#[test]
fn entries_in_force_are_compared() {
    let compare = |ledger: &mut Ledger, configs: &ConfigSnapshot, orphaned: bool| {
        ledger.compare(configs, "me", GRACE, at(20), |_: &Config| orphaned);
        task(ledger, 20)
    };
    let group = "istio.io/autoRegistrationGroup";
    let left = json!({group: "vms", CONTROLLER: "me", "istio.io/disconnectedAt": at(5).to_string()});
    let here = json!({group: "vms", CONTROLLER: "me", CONNECTED_AT: at(5).to_string()});
    let other = json!({group: "vms", CONTROLLER: "other", CONNECTED_AT: at(5).to_string()});

    assert_eq!(compare(&mut Ledger::default(), &stored(left.clone()), false), "clean true");
    assert_eq!(compare(&mut Ledger::default(), &stored(here.clone()), false), "clean true", "its proxy left unseen");
    assert_eq!(compare(&mut Ledger::default(), &stored(other.clone()), false), "");
    assert_eq!(compare(&mut Ledger::default(), &stored(other), true), "clean true");

    let live = || Ledger::of([guest(1, 0)]);
    assert_eq!(compare(&mut live(), &ConfigSnapshot::default(), false), "settle", "it is missing");
    assert_eq!(compare(&mut live(), &stored(left), false), "settle", "another let it go");
    assert_eq!(compare(&mut live(), &stored(here.clone()), false), "");
    assert_eq!(compare(&mut live(), &stored(here.clone()), true), "clean false");

    // Created and deleted before it was seen in force.
    let mut ledger = live();
    assert_eq!(compare(&mut ledger, &ConfigSnapshot::default(), false), "settle");
    let mut miss = |outcome, configs: &ConfigSnapshot| {
        done(&mut ledger, outcome, 20);
        ledger.miss(configs);
        task(&mut ledger, 20)
    };
    assert_eq!(miss(TaskOutcome::Settled, &ConfigSnapshot::default()), "settle");
    assert_eq!(miss(TaskOutcome::Settled, &stored(here)), "");
    ledger.say(&key(), Said { healthy: true, message: String::new(), at: at(20) });
    assert_eq!(task(&mut ledger, 20), "settle");
    done(&mut ledger, TaskOutcome::Refused, 20);
    ledger.miss(&ConfigSnapshot::default());
    assert_eq!(task(&mut ledger, 20), "", "a refused claim is not tried again and again");
}

#[test]
fn groups_and_peers_have_bounds_and_those_that_leave_make_room() {
    let mut ledger = Ledger::default().within(Limits { per_group: 2, per_peer: 3 });
    let of = |id: u64, ip: &str, entry: &str| {
        let key = EntryKey { name: entry.into(), ..key() };
        Guest { key, peer: ip.parse().ok(), ..guest(id, 0) }
    };
    let arrive = |ledger: &mut Ledger, guest: Guest| {
        let key = guest.key.clone();
        ledger.arrive(guest)?;
        ledger.due(at(0));
        ledger.done(&key, TaskOutcome::Settled, GRACE, at(0));
        Ok::<_, RegistrationRefusal>(())
    };
    for (id, entry) in [(1, "a"), (2, "b"), (3, "b")] {
        arrive(&mut ledger, of(id, "10.0.0.1", entry)).unwrap();
    }
    let full = arrive(&mut ledger, of(4, "10.0.0.2", "c")).unwrap_err().to_string();
    assert!(full.contains("WorkloadGroup shop/vms") && full.contains("--max-registrations-per-group"), "{full}");
    let full = arrive(&mut ledger, of(5, "10.0.0.1", "b")).unwrap_err().to_string();
    assert!(full.contains("10.0.0.1") && full.contains("--max-registrations-per-peer"), "{full}");
    arrive(&mut ledger, of(6, "10.0.0.2", "b")).unwrap();
    let other = Guest { group: "".into(), ..of(7, "10.0.0.1", "known") };
    arrive(&mut ledger, other).unwrap();

    let gone = EntryKey { name: "a".into(), ..key() };
    ledger.leave(&gone, 1, at(1));
    arrive(&mut ledger, of(8, "10.0.0.1", "b")).unwrap();
    assert!(arrive(&mut ledger, of(9, "10.0.0.2", "c")).is_err(), "the entry has its grace period");
    for (second, outcome) in [(1, TaskOutcome::Settled), (11, TaskOutcome::Left)] {
        ledger.due(at(second));
        ledger.done(&gone, outcome, GRACE, at(second));
    }
    arrive(&mut ledger, of(10, "10.0.0.2", "c")).unwrap();
}
