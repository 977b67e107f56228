//! The aggregate over interleavings, precedence and restarts.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::{Origin, Timestamp, decode};

fn entry(source: &str, name: &str, version: u8) -> Arc<Config> {
    let document = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"hosts": [format!("{name}-{version}.example")]},
    });
    let origin = Origin { source: source.into(), ..Origin::default() };
    Arc::new(decode::from_value(&document, origin).unwrap())
}

fn full(source: &str, configs: Vec<Arc<Config>>) -> SourceBatch {
    SourceBatch { source: source.into(), change: Change::Full(configs) }
}

fn order() -> [SourceId; 2] {
    ["first".into(), "second".into()]
}

fn three() -> [SourceId; 3] {
    ["first".into(), "second".into(), "third".into()]
}

fn content(aggregate: &Aggregate) -> Vec<(String, u64)> {
    let snapshot = aggregate.snapshot();
    snapshot.list(Kind::ServiceEntry).iter().map(|c| (format!("{}@{}", c.key(), c.origin.source), c.stamp)).collect()
}

#[test]
fn the_first_source_wins_and_the_other_is_reported() {
    let mut aggregate = Aggregate::new(&order());
    aggregate.apply(full("second", vec![entry("second", "a", 2)]));
    let events = aggregate.apply(full("first", vec![entry("first", "a", 1)]));
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].kind, &*events[0].current.origin.source), (EventKind::Update, "first"));
    let shadowed = &aggregate.shadowed()[0];
    assert_eq!((&*shadowed.winner_place, &*shadowed.loser, &*shadowed.loser_place), ("first", "second", "second"));
    let events = aggregate.apply(full("first", Vec::new()));
    assert_eq!((events[0].kind, &*events[0].current.origin.source), (EventKind::Update, "second"));
}

#[test]
fn a_source_may_come_later_and_go_with_its_objects() {
    let mut aggregate = Aggregate::new(&order());
    aggregate.apply(full("first", vec![entry("first", "a", 1)]));
    assert!(aggregate.apply(full("third", vec![entry("third", "b", 1)])).is_empty(), "an unknown source");
    aggregate.add_source("third".into());
    assert_eq!(aggregate.undelivered(), BTreeSet::from(["third".into()]));
    assert!(aggregate.seed("third".into(), vec![entry("third", "b", 1)]).is_some());
    assert!(aggregate.seed("third".into(), Vec::new()).is_none(), "it has delivered");
    aggregate.apply(full("third", vec![entry("third", "a", 3), entry("third", "b", 3)]));
    aggregate.add_source("third".into());
    let names = |a: &Aggregate| content(a).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(&aggregate), ["ServiceEntry/shop/a@first", "ServiceEntry/shop/b@third"]);
    let gone = aggregate.remove_source(&"third".into());
    assert_eq!((gone.len(), gone[0].kind), (1, EventKind::Delete));
    assert_eq!(names(&aggregate), ["ServiceEntry/shop/a@first"]);
    assert!(aggregate.undelivered().is_empty());
}

#[test]
fn equal_content_makes_no_event_and_keeps_the_list() {
    let mut aggregate = Aggregate::new(&order());
    aggregate.apply(full("first", vec![entry("first", "a", 1)]));
    let before = aggregate.snapshot();
    assert!(aggregate.apply(full("first", vec![entry("first", "a", 1)])).is_empty());
    let after = aggregate.snapshot();
    assert!(Arc::ptr_eq(&before.by_kind[&Kind::ServiceEntry], &after.by_kind[&Kind::ServiceEntry]));
}

#[test]
fn after_a_restart_nothing_is_deleted_until_all_sources_have_spoken() {
    let mut aggregate = Aggregate::new(&order());
    aggregate.apply(full("first", vec![entry("first", "a", 1)]));
    aggregate.apply(full("second", vec![entry("second", "b", 1), entry("second", "c", 1)]));
    let published = aggregate.snapshot();

    let mut again = Aggregate::recovering(&order(), &published);
    assert!(again.apply(full("first", vec![entry("first", "a", 1)])).is_empty());
    assert_eq!(content(&again), content(&aggregate));
    let events = again.apply(full("second", vec![entry("second", "b", 2)]));
    let told: Vec<_> = events.iter().map(|e| (e.kind, &*e.current.meta.name)).collect();
    assert_eq!(told, [(EventKind::Update, "b"), (EventKind::Delete, "c")]);
}

proptest! {
    #[test]
    fn the_end_depends_on_the_last_content_of_each_source_only(
        steps in prop::collection::vec((0..3usize, prop::collection::btree_map(0..4u8, 0..3u8, 0..4), any::<bool>()), 1..12)
    ) {
        let ids = three();
        let mut aggregate = Aggregate::new(&ids);
        let mut last: [BTreeMap<u8, u8>; 3] = Default::default();
        let mut told: BTreeMap<StoreKey, Arc<Config>> = BTreeMap::new();
        for (which, content, whole) in steps {
            let id = &ids[which];
            let configs = |m: &BTreeMap<u8, u8>| m.iter().map(|(n, v)| entry(id, &format!("n{n}"), *v)).collect::<Vec<_>>();
            let change = if whole {
                Change::Full(configs(&content))
            } else {
                let gone = last[which].keys().filter(|n| !content.contains_key(n));
                Change::Delta {
                    upserts: configs(&content),
                    deletes: gone.map(|n| entry(id, &format!("n{n}"), 0).key()).collect(),
                }
            };
            last[which] = content;
            for event in aggregate.apply(SourceBatch { source: id.clone(), change }) {
                let key = StoreKey::of(&event.current);
                match event.kind {
                    EventKind::Delete => { told.remove(&key); }
                    _ => { told.insert(key, event.current); }
                }
            }
        }
        let mut cold = Aggregate::new(&ids);
        for which in [2, 1, 0] {
            let configs = last[which].iter().map(|(n, v)| entry(&ids[which], &format!("n{n}"), *v)).collect();
            cold.apply(full(&ids[which], configs));
        }
        prop_assert_eq!(content(&aggregate), content(&cold));
        let mut from_events: Vec<_> = told.values().map(|c| (format!("{}@{}", c.key(), c.origin.source), c.stamp)).collect();
        let mut from_view = content(&cold);
        from_events.sort();
        from_view.sort();
        prop_assert_eq!(from_events, from_view);
    }
}

#[test]
fn a_late_event_says_the_present_state() {
    let mut aggregate = Aggregate::new(&order());
    let first = aggregate.apply(full("first", vec![entry("first", "a", 1)])).remove(0);
    aggregate.apply(full("first", vec![entry("first", "a", 2)]));
    let overtaken = aggregate.overtaken(&first);
    assert_eq!(overtaken.current.service_entry().unwrap().hosts, ["a-2.example"]);
    aggregate.apply(full("first", Vec::new()));
    assert_eq!(aggregate.overtaken(&first).kind, EventKind::Delete);
}

#[test]
fn a_namespace_moves_from_one_source_to_another_without_a_gap() {
    for (from, to) in [("first", "second"), ("second", "first")] {
        let mut aggregate = Aggregate::new(&order());
        let objects = |source| ["a", "b", "c"].map(|name| entry(source, name, 1)).to_vec();
        aggregate.apply(full(from, objects(from)));
        aggregate.apply(full(to, Vec::new()));
        let mut told = aggregate.apply(full(to, objects(to)));
        assert_eq!(aggregate.shadowed().len(), 3, "both hold it for a while");
        for at in 1..=3 {
            told.extend(aggregate.apply(full(from, objects(from).split_off(at))));
            assert_eq!(aggregate.snapshot().list(Kind::ServiceEntry).len(), 3);
        }
        assert!(told.iter().all(|e| e.kind == EventKind::Update), "{from} to {to}: {told:?}");
        assert!(aggregate.snapshot().list(Kind::ServiceEntry).iter().all(|c| &*c.origin.source == to));
        assert!(aggregate.shadowed().is_empty());
    }
}

#[test]
fn old_content_stands_in_for_a_source_until_it_delivers() {
    let mut aggregate = Aggregate::recovering(&order(), &ConfigSnapshot::default());
    aggregate.apply(full("first", vec![entry("first", "a", 1)]));
    assert!(content(&aggregate).is_empty(), "nothing before all sources have delivered");
    assert!(aggregate.seed("first".into(), vec![entry("first", "a", 9)]).is_none(), "it has delivered");
    let events = aggregate.seed("second".into(), vec![entry("second", "b", 1), entry("second", "c", 1)]).unwrap();
    assert_eq!(events.len(), 3);
    let events = aggregate.apply(full("second", vec![entry("second", "b", 1)]));
    let told: Vec<_> = events.iter().map(|e| (e.kind, &*e.current.meta.name)).collect();
    assert_eq!(told, [(EventKind::Delete, "c")]);
    assert!(aggregate.seed("second".into(), Vec::new()).is_none());
}

proptest! {
    #[test]
    fn a_list_after_changes_is_the_sorted_list_of_the_objects(
        batches in proptest::collection::vec(proptest::collection::vec((0..12_u8, 0..4_u8, any::<bool>()), 1..6), 1..12),
    ) {
        let mut aggregate = Aggregate::new(&order());
        aggregate.apply(full("first", Vec::new()));
        aggregate.apply(full("second", Vec::new()));
        for batch in batches {
            let (mut upserts, mut deletes) = (Vec::new(), Vec::new());
            for (name, version, is_there) in batch {
                let mut object = entry("first", &format!("e{name}"), version);
                Arc::get_mut(&mut object).unwrap().meta.creation = Timestamp(i64::from(version) % 2);
                if is_there { upserts.push(object) } else { deletes.push(object.key()) }
            }
            aggregate.apply(SourceBatch { source: "first".into(), change: Change::Delta { upserts, deletes } });
            let snapshot = aggregate.snapshot();
            let list = snapshot.list(Kind::ServiceEntry);
            prop_assert!(list.is_sorted_by(|a, b| list_order(a) < list_order(b)));
            let held: BTreeSet<_> = list.iter().map(|c| (c.key(), c.stamp, c.meta.creation)).collect();
            let wanted: BTreeSet<_> = aggregate.view.iter().map(|c| (c.key(), c.stamp, c.meta.creation)).collect();
            prop_assert_eq!(held, wanted);
        }
    }
}
