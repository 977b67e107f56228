//! The client over scripts of answers: refusals, kept versions, claimed versions, and the same end of both protocols.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    model::decode::from_value,
    proto::{to_any, wkt::Any},
    sources::xds::Given,
};

const URL: &str = "networking.istio.io/v1/ServiceEntry";
const HOLD: Duration = Duration::from_secs(600);

fn client(protocol: Protocol) -> Client {
    Client::new("xds:up:1".into(), protocol, HOLD, 1000, "")
}

fn entry(name: &str, host: &str) -> Any {
    let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"hosts": [host], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"}});
    to_any(&mcp::to_resource(&from_value(&document, Origin::default()).unwrap()).unwrap())
}

/// A ServiceEntry without hosts does not pass validation.
fn bad(name: &str) -> Any {
    let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": name, "namespace": "shop"}, "spec": {"hosts": []}});
    to_any(&mcp::to_resource(&from_value(&document, Origin::default()).unwrap()).unwrap())
}

fn whole(version: &str, resources: Vec<Any>) -> Answer {
    let given = |any| Given { name: String::new(), version: String::new(), resource: Some(any) };
    let resources = resources.into_iter().map(given).collect();
    let (type_url, nonce) = (URL.to_string(), format!("n{version}"));
    Answer { type_url, version: version.to_string(), nonce, resources, removed: Vec::new(), whole: true }
}

fn delta(given: &[(&str, &str, Any)], removed: &[&str]) -> Answer {
    let given = given.iter().map(|(name, version, any)| Given {
        name: format!("shop/{name}"),
        version: (*version).to_string(),
        resource: Some(any.clone()),
    });
    let removed = removed.iter().map(|name| format!("shop/{name}")).collect();
    Answer { resources: given.collect(), removed, whole: false, ..whole("1", Vec::new()) }
}

fn hosts(client: &Client) -> Vec<String> {
    client.in_force().iter().map(|c| c.service_entry().unwrap().hosts[0].clone()).collect()
}

fn ask_of(asks: &[Ask]) -> &Ask {
    asks.iter().find(|a| a.type_url == URL).unwrap()
}

#[test]
fn a_bad_resource_is_refused_by_name_and_its_last_good_version_stays() {
    let mut client = client(Protocol::Sotw);
    client.open();
    let reply = client.receive(whole("1", vec![entry("a", "a1"), entry("b", "b1")])).unwrap();
    assert_eq!((reply.version.as_str(), reply.nonce.as_str(), reply.refusal), ("1", "n1", None));
    client.commit(Instant::now());
    let reply = client.receive(whole("2", vec![bad("a"), entry("b", "b2"), entry("c", "c2")])).unwrap();
    assert_eq!((reply.version.as_str(), reply.nonce.as_str()), ("1", "n2"), "a refusal names the version that is held");
    let refusal = reply.refusal.unwrap();
    assert!(refusal.starts_with("1 of 3 resources refused") && refusal.contains("shop/a"), "{refusal}");
    let Change::Delta { upserts, deletes } = client.commit(Instant::now()) else { panic!() };
    assert_eq!((upserts.len(), deletes.len()), (2, 0));
    assert_eq!(hosts(&client), ["a1", "b2", "c2"]);
    assert_eq!(client.kept().len(), 1);
    assert_eq!(client.findings().refused[0].name, "a");
    client.receive(whole("3", vec![entry("a", "a3"), entry("b", "b2"), entry("c", "c2")])).unwrap();
    assert!(client.findings().refused.is_empty() && client.kept().is_empty());
}

#[test]
fn an_unreadable_answer_deletes_nothing() {
    let mut client = client(Protocol::Sotw);
    client.open();
    client.receive(whole("1", vec![entry("a", "a"), entry("b", "b")]));
    client.commit(Instant::now());
    let junk = Any { type_url: "type.googleapis.com/istio.mcp.v1alpha1.Resource".into(), value: vec![0xff; 9] };
    let stranger = Any { type_url: "type.googleapis.com/some.Other".into(), value: Vec::new() };
    let reply = client.receive(whole("2", vec![entry("a", "a"), junk, stranger])).unwrap();
    assert!(reply.refusal.unwrap().starts_with("2 of 3"));
    client.commit(Instant::now());
    assert_eq!(hosts(&client), ["a", "b"], "one of the unreadable ones may be b");
    client.receive(whole("3", vec![entry("a", "a")]));
    client.commit(Instant::now());
    assert_eq!(hosts(&client), ["a"]);
}

#[test]
fn a_name_that_comes_twice_is_refused_and_the_rest_is_taken() {
    let mut client = client(Protocol::Sotw);
    client.open();
    client.receive(whole("1", vec![entry("a", "a1")]));
    let reply = client.receive(whole("2", vec![entry("a", "a2"), entry("b", "b"), entry("a", "a3")])).unwrap();
    assert!(reply.refusal.unwrap().contains("comes 2 times"));
    assert_eq!(hosts(&client), ["a1", "b"]);
}

#[test]
fn types_that_were_not_asked_for_are_refused() {
    let mut client = client(Protocol::Sotw);
    client.open();
    for n in 0..100 {
        let reply = client.receive(Answer { type_url: format!("a.io/v1/A{n}"), ..whole("1", Vec::new()) }).unwrap();
        assert!(reply.refusal.is_some());
    }
    assert_eq!(client.findings().refused.len(), MOST_UNREQUESTED);
    assert_eq!(client.receive(Answer { nonce: String::new(), ..whole("1", Vec::new()) }), None);
}

#[test]
fn more_objects_than_are_allowed_are_refused() {
    let mut client = Client::new("xds:up:1".into(), Protocol::Delta, HOLD, 2, "");
    client.open();
    let reply = client.receive(delta(&[("a", "1", entry("a", "a")), ("b", "1", entry("b", "b"))], &[])).unwrap();
    assert_eq!(reply.refusal, None);
    let more = [("a", "2", entry("a", "a2")), ("c", "1", entry("c", "c"))];
    assert!(client.receive(delta(&more, &[])).unwrap().refusal.unwrap().contains("more than 2 objects"));
    assert_eq!(hosts(&client), ["a2", "b"]);
}

#[test]
fn an_empty_answer_deletes_nothing_until_it_is_confirmed() {
    for protocol in [Protocol::Sotw, Protocol::Delta] {
        let mut client = client(protocol);
        let now = Instant::now();
        client.open();
        client.receive(delta(&[("a", "1", entry("a", "a"))], &[]));
        client.commit(now);
        client.open();
        let nothing = if protocol == Protocol::Sotw { whole("2", Vec::new()) } else { delta(&[], &["a"]) };
        assert_eq!(client.receive(nothing).unwrap().refusal, None);
        assert!(client.commit(now).is_empty() && client.held().len() == 1 && client.held_until().is_some());
        client.confirm();
        let Change::Delta { deletes, .. } = client.commit(now) else { panic!() };
        assert_eq!((deletes.len(), client.len(), client.held().len()), (1, 0, 0));
    }
}

#[test]
fn removals_by_name_go_at_once() {
    let mut client = client(Protocol::Delta);
    client.open();
    client.receive(delta(&[("a", "1", entry("a", "a"))], &[]));
    client.receive(delta(&[], &["a"]));
    let Change::Delta { deletes, .. } = client.commit(Instant::now()) else { panic!() };
    assert_eq!(deletes.len(), 1);
}

#[test]
fn a_mass_deletion_is_held_and_istios_way_holds_nothing() {
    let names: Vec<String> = (0..20).map(|n| format!("e{n}")).collect();
    let all = |n: usize| names.iter().take(n).map(|name| entry(name, name)).collect::<Vec<_>>();
    for (hold, left) in [(HOLD, 20), (Duration::ZERO, 5)] {
        let mut client = Client::new("xds:up:1".into(), Protocol::Sotw, hold, 1000, "");
        client.open();
        client.receive(whole("1", all(20)));
        client.commit(Instant::now());
        client.receive(whole("2", all(5)));
        client.commit(Instant::now());
        assert_eq!(client.len(), left);
    }
}

#[test]
fn a_new_stream_goes_on_from_the_held_versions() {
    let mut client = client(Protocol::Delta);
    let first = client.open();
    assert!(ask_of(&first).subscribe && ask_of(&first).held.is_empty());
    client
        .receive(delta(&[("a", "1", entry("a", "a")), ("b", "1", entry("b", "b")), ("c", "1", entry("c", "c"))], &[]));
    client.receive(delta(&[("a", "2", bad("a"))], &[]));
    let again = client.open();
    let held: Vec<_> = ask_of(&again).held.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(held, [("shop/a", "1"), ("shop/b", "1"), ("shop/c", "1")], "the refused version is asked for again");
    client.receive(delta(&[], &["a", "b", "c"]));
    client.commit(Instant::now());
    assert_eq!(client.held().len(), 3);
    assert!(ask_of(&client.open()).held.is_empty(), "a resource that may come back unseen is not claimed");

    let mut client = self::client(Protocol::Sotw);
    client.open();
    client.receive(whole("7", vec![entry("a", "a")]));
    assert_eq!(ask_of(&client.open()).version, "7");
}

#[test]
fn it_is_complete_when_every_type_was_answered() {
    let mut client = client(Protocol::Sotw);
    let asked = client.open();
    assert!(
        asked.iter().any(|a| a.type_url == "core/v1/Service") && asked.iter().all(|a| !a.type_url.contains("Secret"))
    );
    for ask in asked {
        assert!(!client.is_complete());
        client.receive(Answer { type_url: ask.type_url, ..whole("1", Vec::new()) });
    }
    assert!(client.is_complete());
}

#[test]
fn an_older_upstream_is_asked_for_the_versions_that_it_has() {
    let mut client = Client::new("xds:up:1".into(), Protocol::Sotw, HOLD, 1000, "v1alpha3");
    let urls: Vec<String> = client.open().into_iter().map(|a| a.type_url).collect();
    let has = |url: &str| urls.iter().any(|u| u == url);
    assert!(has("networking.istio.io/v1alpha3/ServiceEntry") && has("security.istio.io/v1/AuthorizationPolicy"));
    assert!(!has(URL) && has("core/v1/Pod"));
    let of_version = "networking.istio.io/v1alpha3/ServiceEntry".to_string();
    client.receive(Answer { type_url: of_version, ..whole("1", vec![entry("a", "a")]) });
    assert_eq!(&*client.in_force()[0].meta.api_version, "networking.istio.io/v1alpha3");
}

proptest! {
    #[test]
    fn both_protocols_end_in_the_last_content(
        steps in prop::collection::vec((prop::collection::btree_map(0..6u8, 0..3u8, 0..6), any::<bool>()), 1..10),
    ) {
        let no_hold = |protocol| Client::new("xds:up:1".into(), protocol, Duration::ZERO, 1000, "");
        let (mut sotw, mut incremental) = (no_hold(Protocol::Sotw), no_hold(Protocol::Delta));
        sotw.open();
        incremental.open();
        let mut before: BTreeMap<u8, u8> = BTreeMap::new();
        let mut told: BTreeMap<String, u64> = BTreeMap::new();
        for (content, reconnect) in steps {
            if reconnect {
                sotw.open();
                // A server goes on from the versions that the client claims.
                let asked = incremental.open();
                let claimed = &ask_of(&asked).held;
                let known = before.iter().filter(|(n, v)| claimed.get(&format!("shop/e{n}")) == Some(&v.to_string()));
                before = known.map(|(n, v)| (*n, *v)).collect();
            }
            let name = |n: &u8| format!("e{n}");
            let any = |n: &u8, v: &u8| entry(&name(n), &format!("h{v}.example"));
            sotw.receive(whole("1", content.iter().map(|(n, v)| any(n, v)).collect()));
            let news: Vec<(String, String, Any)> = content.iter().filter(|(n, v)| before.get(n) != Some(v))
                .map(|(n, v)| (name(n), v.to_string(), any(n, v))).collect();
            let news: Vec<(&str, &str, Any)> = news.iter().map(|(n, v, a)| (n.as_str(), v.as_str(), a.clone())).collect();
            let gone: Vec<String> = before.keys().filter(|n| !content.contains_key(n)).map(name).collect();
            incremental.receive(delta(&news, &gone.iter().map(String::as_str).collect::<Vec<_>>()));
            before = content;
            sotw.commit(Instant::now());
            let Change::Delta { upserts, deletes } = incremental.commit(Instant::now()) else { panic!() };
            let gone: BTreeSet<String> = deletes.iter().map(ToString::to_string).collect();
            told.retain(|key, _| !gone.contains(key));
            told.extend(upserts.iter().map(|c| (c.key().to_string(), c.stamp)));
        }
        let content = |client: &Client| -> BTreeMap<String, u64> {
            client.in_force().iter().map(|c| (c.key().to_string(), c.stamp)).collect()
        };
        prop_assert_eq!(content(&sotw), content(&incremental));
        prop_assert_eq!(told, content(&incremental));
        let want: Vec<String> = before.keys().map(|n| format!("ServiceEntry/shop/e{n}")).collect();
        prop_assert_eq!(content(&sotw).into_keys().collect::<Vec<_>>(), want);
    }
}
