//! Faults of lists: the content in force stays until a whole list has come, and one bad object affects no other.

use std::time::Duration;

use pilothouse::sources::{
    SourceState,
    kube::{FeedState, Group},
};
use serde_json::json;

use crate::{
    fake::{Ending, Fake, Fault, When},
    stage::Stage,
};

const KINDS: &[Group] = &[Group::Ingress, Group::Discovery];

fn ingress(class: &str) -> serde_json::Value {
    json!({"spec": {"ingressClassName": class}})
}

async fn fake(names: &[&str]) -> Fake {
    let fake = Fake::start().await;
    names.iter().for_each(|name| fake.put("ingresses", "shop", name, ingress("v1")));
    fake
}

/// The final content is that of a run that begins now.
async fn settles(stage: &Stage, fake: &Fake) {
    stage.until_like_a_cold_run(&Stage::set(&fake.url, KINDS, |_| {})).await;
}

#[tokio::test]
async fn a_list_that_never_comes_is_asked_for_again() {
    let fake = fake(&["a"]).await;
    fake.fail(When::List("ingresses"), Fault::Silence, 2);
    let stage = Stage::set(&fake.url, KINDS, |s| s.list_timeout = Duration::from_millis(200));
    stage.until("trouble", |s| s.feed("ingresses.networking.k8s.io").attempt > 0).await;
    stage.until_names(&["Ingress/shop/a"]).await;
    settles(&stage, &fake).await;
}

#[tokio::test]
async fn a_list_that_trickles_for_ever_is_given_up_and_a_slow_one_is_not() {
    let fake = fake(&["a"]).await;
    let drops = |count: usize| vec![(Duration::from_millis(20), " ".to_string()); count];
    let mut slow = drops(15);
    let item = r#"{"metadata":{"name":"b","namespace":"shop","resourceVersion":"101"},"spec":{}}"#;
    slow.push((Duration::from_millis(20), format!(r#"{{"metadata":{{"resourceVersion":"101"}},"items":[{item}]}}"#)));
    fake.fail(When::List("ingresses"), Fault::Pieces(drops(1_000), Ending::Never), 1);
    fake.fail(When::List("ingresses"), Fault::Pieces(slow, Ending::Clean), 1);
    let stage = Stage::set(&fake.url, KINDS, |s| s.list_timeout = Duration::from_secs(6));
    stage
        .until("the first to be given up", |s| s.feed("ingresses.networking.k8s.io").last_error.contains("no page"))
        .await;
    stage.until_names(&["Ingress/shop/b"]).await;
    assert_eq!(fake.times("list", "ingresses").len(), 2, "a list that is only slow is waited for");
}

#[tokio::test]
async fn a_server_that_asks_to_wait_is_left_alone_that_long_and_no_longer_than_a_minute() {
    let fake = fake(&["a"]).await;
    fake.fail(When::List("ingresses"), Fault::Status(429, "slow down", vec![("Retry-After", "1")]), 2);
    let stage = Stage::set(&fake.url, KINDS, |_| {});
    stage.until_names(&["Ingress/shop/a"]).await;
    let lists = fake.times("list", "ingresses");
    assert_eq!(lists.len(), 3);
    assert!(lists.windows(2).all(|w| w[1] - w[0] >= Duration::from_secs(1)), "{lists:?}");
    settles(&stage, &fake).await;
}

#[tokio::test]
async fn a_right_that_is_taken_away_stops_one_kind_and_empties_none() {
    let fake = fake(&["a"]).await;
    fake.put_raw(
        "ingressclasses",
        "c",
        |version| json!({"metadata": {"name": "c", "resourceVersion": version.to_string()}, "spec": {}}),
    );
    let no = || Fault::Status(403, r#"{"kind":"Status","message":"no","reason":"Forbidden","code":403}"#, Vec::new());
    let stage = Stage::set(&fake.url, KINDS, |_| {});
    let forbidden = |s: &Stage| s.feed("ingressclasses.networking.k8s.io").state == FeedState::Forbidden;
    stage.until_names(&["Ingress/shop/a", "IngressClass//c"]).await;
    fake.fail(When::List("ingressclasses"), no(), usize::MAX);
    fake.fail(When::Watch("ingressclasses"), no(), usize::MAX);
    fake.compact();
    fake.restore(fake.backup(), 200);
    stage.until("forbidden", forbidden).await;
    stage.until("a stale source", |s| s.reports().iter().any(|r| r.state == SourceState::Stale)).await;
    fake.put("ingresses", "shop", "b", ingress("v1"));
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/b", "IngressClass//c"]).await;
    stage.until("another try", |_| fake.times("list", "ingressclasses").len() >= 3).await;
    let refused = fake.times("list", "ingressclasses");
    let last: Vec<_> = refused.iter().rev().take(2).collect();
    assert!(*last[0] - *last[1] >= Duration::from_millis(250), "a kind that we may not read is asked for too often");
    fake.heal();
    settles(&stage, &fake).await;
    assert_eq!(stage.deleted(), 0);
}

#[tokio::test]
async fn a_bad_object_is_refused_by_name_and_its_last_good_version_stays() {
    let fake = fake(&["a"]).await;
    let bad = |labels: serde_json::Value| {
        move |version: u64| {
            json!({"metadata": {"name": "b", "namespace": "shop", "resourceVersion": version.to_string(), "labels": labels},
                "spec": {"rules": 7}})
        }
    };
    fake.put_raw("ingresses", "shop/b", bad(json!("wrong")));
    let stage = Stage::set(&fake.url, KINDS, |_| {});
    stage.until_names(&["Ingress/shop/a"]).await;
    let refused = |s: &Stage| s.reports().into_iter().flat_map(|r| r.findings.refused.clone()).collect::<Vec<_>>();
    stage.until("a refusal", |s| refused(s).len() == 1).await;
    let first = refused(&stage).remove(0);
    assert_eq!((first.kind.as_str(), first.namespace.as_str(), first.name.as_str()), ("Ingress", "shop", "b"));
    fake.put("ingresses", "shop", "b", ingress("v1"));
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/b"]).await;
    stage.until("no refusal", |s| refused(s).is_empty()).await;
    let good = stage.content();
    fake.put_raw("ingresses", "shop/b", bad(json!({})));
    stage.until("a refusal by watch", |s| refused(s).len() == 1).await;
    fake.put("ingresses", "shop", "c", ingress("v1"));
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/b", "Ingress/shop/c"]).await;
    assert!(good.iter().all(|(key, stamp)| stage.content().get(key) == Some(stamp)));
    // A new process finds the last good version on disk.
    let stage = Stage::after(stage, &fake.url, KINDS);
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/b", "Ingress/shop/c"]).await;
    stage.until("a refusal in the first list", |s| refused(s).len() == 1).await;
    assert!(good.iter().all(|(key, stamp)| stage.content().get(key) == Some(stamp)));
    fake.delete("ingresses", "shop/b");
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/c"]).await;
    settles(&stage, &fake).await;
}

#[tokio::test]
async fn an_answer_that_is_no_list_changes_nothing() {
    let fake = fake(&["a", "b"]).await;
    let stage = Stage::set(&fake.url, KINDS, |_| {});
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/b"]).await;
    for text in ["<html>sign in</html>", "{}", "[]", r#"{"items":7}"#, ""] {
        fake.fail(When::List("ingresses"), Fault::Status(200, text, Vec::new()), 1);
    }
    fake.delete("ingresses", "shop/a");
    fake.compact();
    fake.restore(fake.backup(), 300);
    stage.until_names(&["Ingress/shop/b"]).await;
    assert_eq!(stage.deleted(), 1);
    settles(&stage, &fake).await;
}

#[tokio::test]
async fn a_second_page_that_expired_begins_the_list_again() {
    let fake = Fake::start().await;
    (0..1200).for_each(|i| fake.put("ingresses", "shop", &format!("i{i:04}"), ingress("v1")));
    let expired =
        r#"{"kind":"Status","message":"The provided continue parameter is too old","reason":"Expired","code":410}"#;
    fake.fail(When::NextPage("ingresses"), Fault::Status(410, expired, Vec::new()), 2);
    let stage = Stage::set(&fake.url, KINDS, |_| {});
    stage.until("all of them", |s| s.names().len() == 1200).await;
    assert_eq!(fake.times("list", "ingresses").len(), 3);
}

#[tokio::test]
async fn a_list_that_lacks_most_is_held_back_until_it_is_confirmed_or_healed() {
    let names: Vec<String> = (0..20).map(|i| format!("i{i:02}")).collect();
    let fake = fake(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let stage = Stage::set(&fake.url, KINDS, |s| s.deletion_hold = Duration::from_secs(600));
    stage.until("all of them", |s| s.names().len() == 20).await;
    let backup = fake.backup();
    let empty = backup.keys().map(|k| (k.clone(), std::collections::BTreeMap::new())).collect();
    fake.restore(empty, 50);
    stage.until("held", |s| s.reports().iter().any(|r| r.held_deletions.len() == 20)).await;
    assert_eq!((stage.names().len(), stage.deleted()), (20, 0));
    fake.restore(backup, 60);
    stage.until("not held", |s| s.reports().iter().all(|r| r.held_deletions.is_empty())).await;
    assert_eq!((stage.names().len(), stage.deleted()), (20, 0));
}
