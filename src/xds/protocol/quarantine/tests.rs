//! A client that refuses faulty resources, in each protocol: it comes to hold all others, and the faulty ones when they are
//! mended.

use std::time::Instant;

use proptest::prelude::*;

use super::{
    super::{refusals::Backoff, subscription::Subscription},
    *,
};
use crate::xds::{Protocol, ResourceType, Scope, Updates, wire::request::Complaint};
use ResourceType::{Cluster, Endpoint};

type Content = BTreeMap<String, String>;

/// A stream of one type, and its client. Values that begin with `bad` are refused.
struct Pair {
    subscription: Subscription,
    updates: Updates,
    now: Instant,
    kind: ResourceType,
    protocol: Protocol,
    holds: Content,
    /// The complaint names the faulty resources.
    names: bool,
    /// The complaint quotes the response, cut behind the first resources, as Envoy's does for a resource of another type.
    quotes: bool,
    /// The rest of a refused response is applied, as Envoy does it with clusters and listeners.
    partly: bool,
    hostile: bool,
    responses: u32,
    target: Arc<Snapshot>,
}

fn snapshot(kind: ResourceType, content: &Content) -> Arc<Snapshot> {
    let resources = content.iter().map(|(n, v)| Arc::new(Resource::of_parts(n.as_str(), "t", v.as_bytes())));
    Snapshot::new(vec![Block::build(resources, None)], scope(kind))
}

fn scope(kind: ResourceType) -> Scope {
    if kind.is_whole() {
        return Scope::all();
    }
    Scope { wildcard: false, names: NameSet::of((0..64).map(|i| Arc::from(format!("n{i}")))) }
}

fn value(resource: &Resource) -> String {
    // Behind the type's URL of one letter and two heads.
    String::from_utf8_lossy(&resource.any()[5..]).into_owned()
}

fn content(list: &[(usize, &str)]) -> Content {
    list.iter().map(|(i, v)| (format!("n{i}"), (*v).to_string())).collect()
}

impl Pair {
    fn new(kind: ResourceType, protocol: Protocol) -> Self {
        Self {
            subscription: Subscription::new(kind, protocol, scope(kind)),
            updates: Updates::default(),
            now: Instant::now(),
            kind,
            protocol,
            holds: Content::new(),
            names: true,
            quotes: false,
            partly: false,
            hostile: false,
            responses: 0,
            target: snapshot(kind, &Content::new()),
        }
    }

    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for (kind, protocol) in [
            (Cluster, Protocol::Sotw),
            (Cluster, Protocol::Delta),
            (Endpoint, Protocol::Sotw),
            (Endpoint, Protocol::Delta),
        ] {
            for (names, partly) in [(true, true), (true, false), (false, false)] {
                all.push(Self { names, partly, ..Self::new(kind, protocol) });
            }
            all.push(Self { names: false, quotes: true, ..Self::new(kind, protocol) });
        }
        all
    }

    fn set(&mut self, content: &Content) {
        self.target = snapshot(self.kind, content);
    }

    /// Sends and answers until there is nothing more to say.
    fn settle(&mut self) {
        for _ in 0..1000 {
            let nonce = || "n".to_string();
            let clock = (self.now, Backoff::default());
            let Some(sending) = self.subscription.next(&self.target, &self.updates, clock, nonce) else { return };
            self.responses += 1;
            let whole = self.protocol == Protocol::Sotw && self.kind.is_whole();
            let changed: Content = if whole {
                self.subscription.sent().unwrap().iter().map(|r| (r.name().to_string(), value(r))).collect()
            } else {
                sending.update.difference.changed.iter().map(|r| (r.name().to_string(), value(r))).collect()
            };
            let gone = &sending.update.difference.gone;
            let bad = |(_, v): &(&String, &String)| self.hostile || v.starts_with("bad");
            let faulty: Vec<String> = changed.iter().filter(bad).map(|(n, _)| n.clone()).collect();
            let quoted: Vec<String> = changed.keys().take(10).cloned().collect();
            let refused = !faulty.is_empty();
            if !refused || self.partly {
                if whole {
                    self.holds.retain(|name, _| changed.contains_key(name));
                }
                if self.protocol == Protocol::Delta {
                    self.holds.retain(|name, _| !gone.contains(name.as_str()));
                }
                self.holds.extend(changed.into_iter().filter(|(name, _)| !faulty.contains(name)));
            }
            let message = match (self.names, self.quotes) {
                (true, _) => faulty.join(": no, ") + ": no",
                (_, true) => format!("no: another type in DiscoveryResponse {}", quoted.join(" ")),
                _ => "no".to_string(),
            };
            let complaint = refused.then_some(Complaint { code: 13, message });
            self.subscription.settle(complaint, self.now);
        }
        panic!("no end");
    }

    fn held_back(&self) -> Vec<String> {
        self.subscription.held_back().map(|(name, _)| name.to_string()).collect()
    }

    /// Lets the longest pause end.
    fn pause(&mut self) {
        self.now += Backoff::default().longest;
        if self.subscription.retry_at(Backoff::default(), 0).is_some_and(|at| at <= self.now) {
            self.subscription.retry();
        }
        self.settle();
    }
}

#[test]
fn a_client_gets_all_but_the_resources_that_it_refuses() {
    for mut pair in Pair::all() {
        let case = (pair.kind, pair.protocol, pair.names, pair.partly);
        let good: Content = (0..40).map(|i| (format!("n{i}"), "1".to_string())).collect();
        pair.set(&good);
        pair.settle();
        assert_eq!((&pair.holds, pair.responses), (&good, 1), "{case:?}");
        let mut next: Content = (0..50).map(|i| (format!("n{i}"), "2".to_string())).collect();
        next.insert("n7".into(), "bad".into());
        next.insert("n45".into(), "bad".into());
        pair.set(&next);
        pair.settle();
        let mut wanted = next.clone();
        wanted.insert("n7".into(), "1".into());
        wanted.remove("n45");
        assert_eq!(pair.holds, wanted, "{case:?}: the last good version stays");
        assert_eq!(pair.held_back(), ["n45", "n7"], "{case:?}");
        assert!(pair.responses <= if case.2 { 3 } else { 24 }, "{case:?}: {} responses", pair.responses);

        // Refused again after the pause, by itself.
        let before = pair.responses;
        pair.pause();
        assert_eq!((&pair.holds, pair.held_back().len()), (&wanted, 2), "{case:?}");
        assert!((1..=3).contains(&(pair.responses - before)), "{case:?}: {} responses", pair.responses - before);

        // A mended resource is sent at once, also while the rest waits.
        next.insert("n45".into(), "3".into());
        pair.set(&next);
        pair.settle();
        wanted.insert("n45".into(), "3".into());
        assert_eq!((&pair.holds, pair.held_back()), (&wanted, vec!["n7".to_string()]), "{case:?}");
        next.insert("n7".into(), "3".into());
        pair.set(&next);
        pair.settle();
        assert_eq!((&pair.holds, pair.held_back()), (&next, vec![]), "{case:?}");
        assert_eq!(pair.subscription.retry_at(Backoff::default(), 0), None, "{case:?}");
    }
}

#[test]
fn the_first_pause_is_short() {
    for mut pair in Pair::all() {
        let all = content(&[(1, "1"), (2, "bad")]);
        pair.set(&all);
        pair.settle();
        assert_eq!(pair.holds, content(&[(1, "1")]));
        assert_eq!(pair.held_back(), ["n2"]);
        let until = pair.subscription.retry_at(Backoff::default(), 0).unwrap();
        assert_eq!(until, pair.now + Backoff::default().first);
    }
}

#[test]
fn a_client_that_refuses_everything_costs_a_bounded_number_of_responses() {
    for mut pair in Pair::all() {
        pair.hostile = true;
        let case = (pair.kind, pair.protocol, pair.names);
        pair.set(&(0..64).map(|i| (format!("n{i}"), "1".to_string())).collect());
        pair.settle();
        assert!(pair.responses <= TRIES + 1, "{case:?}: {} at first", pair.responses);
        assert!(pair.held_back().len() <= MOST);
        for _ in 0..5 {
            let before = pair.responses;
            pair.pause();
            assert!(pair.responses - before <= TRIES + 1, "{case:?}: {}", pair.responses - before);
        }
        let before = pair.responses;
        pair.pause();
        assert!(pair.responses - before <= 2, "{case:?}: {}", pair.responses - before);
        // It comes to its senses.
        pair.hostile = false;
        for _ in 0..3 {
            pair.pause();
        }
        assert_eq!((pair.holds.len(), pair.held_back().len()), (64, 0), "{case:?}");
    }
}

#[test]
fn nothing_is_taken_from_a_client_that_comes_back() {
    for names in [true, false] {
        let mut pair = Pair { names, ..Pair::new(Cluster, Protocol::Sotw) };
        pair.subscription.returns = true;
        pair.holds = content(&[(1, "1"), (2, "1")]);
        pair.set(&content(&[(1, "2"), (2, "bad")]));
        pair.settle();
        assert_eq!(pair.holds.get("n2").map(String::as_str), Some("1"), "a response without it would delete it");
        pair.set(&content(&[(1, "2"), (2, "2")]));
        pair.settle();
        assert_eq!(pair.holds, content(&[(1, "2"), (2, "2")]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// After any changes while clients refuse, each comes to hold the good resources, and of the rest the version before.
    #[test]
    fn any_order_of_changes_ends_well(steps in prop::collection::vec((0usize..8, 0u8..4, any::<bool>()), 1..30)) {
        for mut pair in Pair::all() {
            let mut truth = Content::new();
            for (version, (at, what, wait)) in steps.iter().enumerate() {
                let name = format!("n{at}");
                match what {
                    0 => drop(truth.remove(&name)),
                    1 => drop(truth.insert(name, format!("bad {version}"))),
                    _ => drop(truth.insert(name, version.to_string())),
                }
                pair.set(&truth);
                if *wait { pair.pause() } else { pair.settle() }
            }
            pair.pause();
            for (name, value) in &truth {
                let held = pair.holds.get(name);
                if value.starts_with("bad") {
                    prop_assert!(held.is_none_or(|v| !v.starts_with("bad")));
                    prop_assert!(pair.held_back().contains(name));
                } else {
                    prop_assert_eq!(held, Some(value), "{:?}", (pair.kind, pair.protocol, pair.names, pair.partly));
                }
            }
            for value in truth.values_mut() {
                *value = "mended".to_string();
            }
            pair.set(&truth);
            pair.settle();
            prop_assert_eq!(pair.held_back(), Vec::<String>::new());
            if pair.kind.is_whole() || pair.protocol == Protocol::Delta {
                prop_assert_eq!(&pair.holds, &truth);
            }
        }
    }
}

#[test]
fn a_complaint_names_whole_names() {
    let message =
        "Error adding/updating cluster(s) outbound|80||a.b: no, outbound|80|v1|c: 'x.y.' is wrong. See 0.0.0.0_80";
    for name in ["outbound|80||a.b", "outbound|80|v1|c", "x.y", "0.0.0.0_80"] {
        assert!(mentions(message, name), "{name}");
    }
    for name in ["outbound|80||a", "a.b", "outbound|80|v1|cc", "0.0.0.0_8", "", "80||a.b", "y"] {
        assert!(!mentions(message, name), "{name}");
    }
}

#[test]
fn the_version_of_before_may_be_accepted_again_while_the_new_one_is_held_back() {
    let made = |value: &str| Arc::new(Resource::of_parts("n1", "t", value.as_bytes()));
    let (before, refused) = (made("1"), made("bad"));
    let mut quarantine = Quarantine::default();
    assert_eq!(quarantine.blame(std::slice::from_ref(&refused), "n1 is wrong"), Verdict::Rest(Vec::new()));
    quarantine.accepted(std::slice::from_ref(&before));
    assert!(!quarantine.is_empty(), "it is still to be sent again");
    assert_eq!(quarantine.release(), [Arc::from("n1")]);
    quarantine.accepted(std::slice::from_ref(&refused));
    assert!(quarantine.is_empty());
}
