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

fn session(id: u64, second: i64) -> ProxySession {
    let node = crate::model::Node::from_parts("sidecar~10.0.0.1~a.shop~d", Value::Null, Default::default()).unwrap();
    ProxySession {
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

/// The one task that begins now, as a short text. No deadline is left in the past.
fn task(registrations: &mut Registrations, second: i64) -> String {
    let tasks = registrations.due(at(second));
    assert!(registrations.next().is_none_or(|next| next > at(second)), "{:?}", registrations.next());
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

fn done(registrations: &mut Registrations, outcome: TaskOutcome, second: i64) -> Option<bool> {
    registrations.done(&key(), outcome, GRACE, at(second)).map(|(_, session)| session.is_some())
}

fn arrived(registrations: &mut Registrations, id: u64, second: i64) {
    registrations.arrive(session(id, second)).unwrap();
    assert_eq!(task(registrations, second), format!("arrival {id}"));
    assert_eq!(done(registrations, TaskOutcome::Settled, second), Some(true));
}

#[test]
fn a_proxy_comes_goes_and_is_cleaned_up_after_the_grace_period() {
    let mut registrations = Registrations::default();
    arrived(&mut registrations, 1, 0);
    assert_eq!(task(&mut registrations, 1), "");
    registrations.leave(&key(), 1, at(2));
    assert_eq!(task(&mut registrations, 2), "leave");
    assert_eq!(done(&mut registrations, TaskOutcome::Settled, 2), None);
    assert_eq!(task(&mut registrations, 11), "");
    assert_eq!(registrations.next(), Some(at(12)), "the end of the grace period");
    assert_eq!(task(&mut registrations, 12), "clean true");
    done(&mut registrations, TaskOutcome::Left, 12);
    assert_eq!(registrations.next(), None);
    assert_eq!((task(&mut registrations, 99), registrations.lanes.len()), (String::new(), 0));
}

#[test]
fn a_proxy_that_comes_back_is_not_cleaned_up_and_two_connections_count_as_one_proxy() {
    let mut registrations = Registrations::default();
    arrived(&mut registrations, 1, 0);
    arrived(&mut registrations, 2, 1);
    registrations.leave(&key(), 1, at(2));
    assert_eq!(task(&mut registrations, 2), "");
    registrations.leave(&key(), 2, at(3));
    assert_eq!(task(&mut registrations, 3), "leave");
    registrations.arrive(session(3, 4)).unwrap();
    assert_eq!(task(&mut registrations, 4), "", "one task at a time");
    done(&mut registrations, TaskOutcome::Settled, 4);
    assert_eq!(task(&mut registrations, 4), "arrival 3");
    done(&mut registrations, TaskOutcome::Settled, 4);
    assert_eq!(task(&mut registrations, 99), "");
}

#[test]
fn a_failed_task_is_tried_again_slower_and_the_proxy_is_served_meanwhile() {
    let mut registrations = Registrations::default();
    registrations.arrive(session(1, 0)).unwrap();
    task(&mut registrations, 0);
    assert_eq!(done(&mut registrations, TaskOutcome::Failed, 0), Some(true));
    assert_eq!((task(&mut registrations, 0), task(&mut registrations, 1)), (String::new(), "settle".to_string()));
    done(&mut registrations, TaskOutcome::Failed, 1);
    assert_eq!((task(&mut registrations, 2), task(&mut registrations, 3)), (String::new(), "settle".to_string()));
    done(&mut registrations, TaskOutcome::Settled, 3);
    assert_eq!(task(&mut registrations, 99), "");
    registrations.arrive(session(2, 100)).unwrap();
    task(&mut registrations, 100);
    assert_eq!(done(&mut registrations, TaskOutcome::Refused, 100), Some(false));
    registrations.leave(&key(), 1, at(101));
    assert_eq!(task(&mut registrations, 101), "leave", "a refused proxy holds nothing");
}

#[test]
fn an_unreachable_store_is_tried_again_soon_and_health_reports_outlive_the_registrations() {
    let mut registrations = Registrations::default();
    arrived(&mut registrations, 1, 0);
    let report = |healthy| HealthReport { healthy, message: String::new(), at: at(1) };
    registrations.say(&key(), report(false));
    let mut second = 0;
    for _ in 0..20 {
        assert_eq!(task(&mut registrations, second), "settle");
        done(&mut registrations, TaskOutcome::Unreached, second);
        assert_eq!(task(&mut registrations, second), "");
        second += 8;
    }
    let machine = session(2, 0);
    assert!(machine.health.say(report(false)) && !machine.health.say(report(true)), "one message is enough");
    let mut again = Registrations::of([machine.clone()]);
    let Some((_, Task::Settle { claim, .. })) = again.due(at(0)).pop() else { panic!("nothing is settled") };
    assert_eq!(claim.report, Some(report(true)));
    assert!(machine.health.say(report(false)), "it was taken");
}

fn stored(annotations: Value) -> ConfigSnapshot {
    let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry", "spec": {"address": "10.0.0.1"},
        "metadata": {"name": "vms-10.0.0.1", "namespace": "shop", "annotations": annotations}});
    ConfigSnapshot::of([Arc::new(decode::from_value(&document, Origin::default()).unwrap())])
}

#[test]
fn entries_in_force_are_compared() {
    let compare = |registrations: &mut Registrations, configs: &ConfigSnapshot, orphaned: bool| {
        registrations.compare(configs, "me", GRACE, at(20), |_: &Config| orphaned);
        task(registrations, 20)
    };
    let group = "istio.io/autoRegistrationGroup";
    let left = json!({group: "vms", CONTROLLER: "me", "istio.io/disconnectedAt": at(5).to_string()});
    let here = json!({group: "vms", CONTROLLER: "me", CONNECTED_AT: at(5).to_string()});
    let other = json!({group: "vms", CONTROLLER: "other", CONNECTED_AT: at(5).to_string()});

    assert_eq!(compare(&mut Registrations::default(), &stored(left.clone()), false), "clean true");
    assert_eq!(
        compare(&mut Registrations::default(), &stored(here.clone()), false),
        "clean true",
        "its proxy left unseen"
    );
    assert_eq!(compare(&mut Registrations::default(), &stored(other.clone()), false), "");
    assert_eq!(compare(&mut Registrations::default(), &stored(other), true), "clean true");

    let live = || Registrations::of([session(1, 0)]);
    assert_eq!(compare(&mut live(), &ConfigSnapshot::default(), false), "settle", "it is missing");
    assert_eq!(compare(&mut live(), &stored(left), false), "settle", "another let it go");
    assert_eq!(compare(&mut live(), &stored(here.clone()), false), "");
    assert_eq!(compare(&mut live(), &stored(here.clone()), true), "clean false");

    // Created and deleted before it was seen in force.
    let mut registrations = live();
    assert_eq!(compare(&mut registrations, &ConfigSnapshot::default(), false), "settle");
    let mut miss = |outcome, configs: &ConfigSnapshot| {
        done(&mut registrations, outcome, 20);
        registrations.miss(configs);
        task(&mut registrations, 20)
    };
    assert_eq!(miss(TaskOutcome::Settled, &ConfigSnapshot::default()), "settle");
    assert_eq!(miss(TaskOutcome::Settled, &stored(here)), "");
    registrations.say(&key(), HealthReport { healthy: true, message: String::new(), at: at(20) });
    assert_eq!(task(&mut registrations, 20), "settle");
    done(&mut registrations, TaskOutcome::Refused, 20);
    registrations.miss(&ConfigSnapshot::default());
    assert_eq!(task(&mut registrations, 20), "", "a refused claim is not tried again and again");
}

#[test]
fn groups_and_peers_have_bounds_and_those_that_leave_make_room() {
    let mut registrations = Registrations::default().within(Limits { per_group: 2, per_peer: 3 });
    let of = |id: u64, ip: &str, entry: &str| {
        let key = EntryKey { name: entry.into(), ..key() };
        ProxySession { key, peer: ip.parse().ok(), ..session(id, 0) }
    };
    let arrive = |registrations: &mut Registrations, session: ProxySession| {
        let key = session.key.clone();
        registrations.arrive(session)?;
        registrations.due(at(0));
        registrations.done(&key, TaskOutcome::Settled, GRACE, at(0));
        Ok::<_, RegistrationRefusal>(())
    };
    for (id, entry) in [(1, "a"), (2, "b"), (3, "b")] {
        arrive(&mut registrations, of(id, "10.0.0.1", entry)).unwrap();
    }
    let full = arrive(&mut registrations, of(4, "10.0.0.2", "c")).unwrap_err().to_string();
    assert!(full.contains("WorkloadGroup shop/vms") && full.contains("--max-registrations-per-group"), "{full}");
    let full = arrive(&mut registrations, of(5, "10.0.0.1", "b")).unwrap_err().to_string();
    assert!(full.contains("10.0.0.1") && full.contains("--max-registrations-per-peer"), "{full}");
    arrive(&mut registrations, of(6, "10.0.0.2", "b")).unwrap();
    let other = ProxySession { group: "".into(), ..of(7, "10.0.0.1", "known") };
    arrive(&mut registrations, other).unwrap();

    let gone = EntryKey { name: "a".into(), ..key() };
    registrations.leave(&gone, 1, at(1));
    arrive(&mut registrations, of(8, "10.0.0.1", "b")).unwrap();
    assert!(arrive(&mut registrations, of(9, "10.0.0.2", "c")).is_err(), "the entry has its grace period");
    for (second, outcome) in [(1, TaskOutcome::Settled), (11, TaskOutcome::Left)] {
        registrations.due(at(second));
        registrations.done(&gone, outcome, GRACE, at(second));
    }
    arrive(&mut registrations, of(10, "10.0.0.2", "c")).unwrap();
}
