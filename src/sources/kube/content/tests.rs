//! After any sequence of events a feed holds the content of a fresh list, and no object goes without a deletion.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::{Kind, Origin, decode};

fn key(n: u8) -> ConfigKey {
    ConfigKey { kind: Kind::ServiceEntry, namespace: "ns".into(), name: format!("o{n}").into() }
}

fn sound(n: u8, version: u8) -> Item {
    let object = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": format!("o{n}"), "namespace": "ns"}, "spec": {"hosts": [format!("v{version}.example")]}});
    let config = Arc::new(decode::from_value(&object, Origin::default()).unwrap());
    Item { key: key(n), hash: u64::from(version), verdict: Verdict::Taken { config, warnings: Vec::new() } }
}

fn bad(n: u8) -> Item {
    let refused = Refused {
        file: String::new(),
        line: 0,
        column: 0,
        kind: String::new(),
        namespace: String::new(),
        name: format!("o{n}"),
        reason: "bad".to_string(),
    };
    Item { key: key(n), hash: 0, verdict: Verdict::Refused(Box::new(refused)) }
}

fn content(hold: Duration) -> Content {
    Content::new(hold, FeedReport::default())
}

fn hosts(content: &Content) -> Vec<String> {
    content.objects().map(|c| c.service_entry().unwrap().hosts[0].clone()).collect()
}

#[test]
fn a_bad_version_keeps_the_last_good_one_and_a_deletion_takes_both() {
    let mut content = content(Duration::ZERO);
    content.replace(vec![sound(1, 1), bad(2)], Instant::now());
    content.put(bad(1));
    assert_eq!((hosts(&content), content.refused().count()), (vec!["v1.example".to_string()], 2));
    content.replace(vec![bad(1)], Instant::now());
    assert_eq!((hosts(&content), content.refused().count()), (vec!["v1.example".to_string()], 1));
    content.remove(&key(1));
    assert_eq!((content.len(), content.refused().count()), (0, 0));
}

#[test]
fn a_list_that_lacks_most_is_held_and_a_watch_that_says_so_is_believed() {
    let now = Instant::now();
    let all = || (0..20).map(|n| sound(n, 1)).collect::<Vec<_>>();
    let mut content = content(Duration::from_secs(600));
    content.replace(all(), now);
    content.take_changes();
    content.replace(vec![sound(0, 1)], now);
    assert_eq!((content.len(), content.held().count(), content.take_changes().len()), (20, 19, 1));
    content.remove(&key(1));
    assert_eq!((content.len(), content.held().count()), (19, 18));
    content.replace(all(), now);
    assert_eq!((content.len(), content.held().count()), (20, 0));
    content.replace(Vec::new(), now);
    content.confirm(now);
    assert_eq!((content.len(), content.held_until()), (0, None));
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u8),
    Bad(u8),
    Remove(u8),
    Relist,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..6u8, 1..4u8).prop_map(|(n, v)| Step::Put(n, v)),
        (0..6u8).prop_map(Step::Bad),
        (0..6u8).prop_map(Step::Remove),
        Just(Step::Relist),
    ];
    proptest::collection::vec(step, 0..40)
}

proptest! {
    /// A follower of the changes holds the same objects as the content, and these are the server's at the end.
    #[test]
    fn changes_add_up(steps in steps()) {
        let mut content = content(Duration::ZERO);
        let mut good: BTreeMap<u8, u8> = BTreeMap::new();
        let mut told: BTreeMap<ConfigKey, Arc<Config>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(n, v) => {
                    content.put(sound(n, v));
                    good.insert(n, v);
                }
                Step::Bad(n) => content.put(bad(n)),
                Step::Remove(n) => {
                    content.remove(&key(n));
                    good.remove(&n);
                }
                Step::Relist => content.replace(good.iter().map(|(n, v)| sound(*n, *v)).collect(), Instant::now()),
            }
            for (key, now) in content.take_changes() {
                match now {
                    Some(config) => told.insert(key, config),
                    None => told.remove(&key),
                };
            }
        }
        let told: Vec<String> = told.values().map(|c| c.service_entry().unwrap().hosts[0].clone()).collect();
        let want: Vec<String> = good.values().map(|v| format!("v{v}.example")).collect();
        prop_assert_eq!(&told, &want);
        prop_assert_eq!(hosts(&content), want);
    }
}
