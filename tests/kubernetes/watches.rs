//! Faults of watches: no event is lost for good, nothing is deleted that is there, and no fault is answered with a storm.

use std::time::Duration;

use pilothouse::sources::{SourceState, kube::Group};
use serde_json::{Value, json};

use crate::{
    fake::{Ending, Fake, Fault, When, line, status_value},
    stage::Stage,
};

const KINDS: &[Group] = &[Group::Ingress, Group::Discovery];

fn ingress(class: &str) -> Value {
    json!({"spec": {"ingressClassName": class}})
}

/// A server with two objects and a stage that has them; the first watch meets the fault, if there is one.
async fn stage_with(fault: Option<Fault>) -> (Fake, Stage) {
    let fake = Fake::start().await;
    fake.put("ingresses", "shop", "a", ingress("v1"));
    fake.put("ingresses", "shop", "b", ingress("v1"));
    if let Some(fault) = fault {
        fake.fail(When::Watch("ingresses"), fault, 1);
    }
    let stage = Stage::set(&fake.url, KINDS, |s| s.watch_timeout = Duration::from_secs(1));
    stage.until("the first list", |s| s.names().len() == 2).await;
    (fake, stage)
}

/// One object goes, one changes, one comes: the stage has to end with the content of a cold run.
async fn follows(fake: &Fake, stage: &Stage) {
    fake.delete("ingresses", "shop/a");
    fake.put("ingresses", "shop", "b", ingress("v2"));
    fake.put("ingresses", "shop", "c", ingress("v1"));
    stage.until_names(&["Ingress/shop/b", "Ingress/shop/c"]).await;
    stage.until_like_a_cold_run(&Stage::set(&fake.url, KINDS, |_| {})).await;
    stage.until("health", |s| s.reports().iter().all(|r| r.state == SourceState::Synced)).await;
    assert_eq!(stage.deleted(), 1);
}

fn event(version: &str, class: &str) -> String {
    let object = json!({"metadata": {"name": "b", "namespace": "shop", "resourceVersion": version},
        "spec": {"ingressClassName": class}});
    line("MODIFIED", &object)
}

fn pieces(texts: &[&str], ending: Ending) -> Fault {
    Fault::Pieces(texts.iter().map(|t| (Duration::ZERO, (*t).to_string())).collect(), ending)
}

#[tokio::test]
async fn without_a_fault_changes_follow() {
    let (fake, stage) = stage_with(None).await;
    follows(&fake, &stage).await;
    assert_eq!(fake.times("list", "ingresses").len(), 2, "one list for each of the two runs");
}

#[tokio::test]
async fn half_a_line_is_read_again() {
    let whole = event("103", "v2");
    for ending in [Ending::Cut, Ending::Clean] {
        let (fake, stage) = stage_with(Some(pieces(&[&whole[..whole.len() / 2]], ending))).await;
        follows(&fake, &stage).await;
    }
}

#[tokio::test]
async fn a_line_that_is_not_json_or_no_object_is_made_up_for() {
    for text in ["what?\n", "{\"type\":\"ADDED\",\"object\":\n", "{\"type\":\"SPLIT\",\"object\":{}}\n", "[]\n"] {
        let (fake, stage) = stage_with(Some(pieces(&[text], Ending::Never))).await;
        follows(&fake, &stage).await;
    }
}

#[tokio::test]
async fn an_event_without_a_version_is_made_up_for() {
    let text = line("DELETED", &json!({"metadata": {"name": "b", "namespace": "shop"}}));
    let (fake, stage) = stage_with(Some(pieces(&[&text], Ending::Never))).await;
    follows(&fake, &stage).await;
}

#[tokio::test]
async fn a_silent_watch_is_given_up() {
    for fault in [pieces(&[], Ending::Never), Fault::Silence] {
        let (fake, stage) = stage_with(Some(fault)).await;
        follows(&fake, &stage).await;
    }
}

#[tokio::test]
async fn an_expired_version_leads_to_a_list_as_an_event_and_as_a_status() {
    let gone = status_value(410, "too old resource version");
    let as_event = pieces(&[&line("ERROR", &gone)], Ending::Clean);
    let as_status = Fault::Status(410, r#"{"kind":"Status","message":"too old","code":410}"#, Vec::new());
    for fault in [as_event, as_status] {
        let (fake, stage) = stage_with(Some(fault)).await;
        follows(&fake, &stage).await;
        assert!(fake.times("list", "ingresses").len() >= 3, "the fault leads to a list");
    }
}

#[tokio::test]
async fn another_error_event_is_survived() {
    let failed = status_value(500, "etcd has no leader");
    let (fake, stage) = stage_with(Some(pieces(&[&line("ERROR", &failed)], Ending::Never))).await;
    follows(&fake, &stage).await;
}

#[tokio::test]
async fn a_server_that_refuses_every_watch_is_not_listed_in_a_storm() {
    let fake = Fake::start().await;
    fake.put("ingresses", "shop", "a", ingress("v1"));
    let gone = Fault::Status(410, r#"{"kind":"Status","message":"too old","code":410}"#, Vec::new());
    fake.fail(When::Watch("ingresses"), gone, usize::MAX);
    let stage = Stage::set(&fake.url, KINDS, |s| s.longest_pause = Duration::from_secs(30));
    stage.until("some lists", |_| fake.times("list", "ingresses").len() >= 9).await;
    let lists = fake.times("list", "ingresses");
    let gap = |i: usize| lists[i + 1] - lists[i];
    assert!(gap(7) >= Duration::from_millis(300), "the pauses do not grow: {lists:?}");
    stage.until("trouble", |s| s.feed("ingresses.networking.k8s.io").attempt >= 7).await;
    fake.heal();
    follows_soon(&fake, &stage).await;
}

async fn follows_soon(fake: &Fake, stage: &Stage) {
    fake.put("ingresses", "shop", "z", ingress("v1"));
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/z"]).await;
    assert_eq!(stage.deleted(), 0);
}

#[tokio::test]
async fn versions_that_go_back_after_a_restore_are_noticed() {
    let (fake, stage) = stage_with(None).await;
    let backup = fake.backup();
    for i in 0..50 {
        fake.put("ingresses", "shop", "b", ingress(&format!("v{i}")));
    }
    fake.put("ingresses", "shop", "late", ingress("v1"));
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/b", "Ingress/shop/late"]).await;
    fake.restore(backup, 102);
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/b"]).await;
    fake.put("ingresses", "shop", "after", ingress("v1"));
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/after", "Ingress/shop/b"]).await;
    stage.until_like_a_cold_run(&Stage::set(&fake.url, KINDS, |_| {})).await;
}

#[tokio::test]
async fn a_backup_of_a_server_that_accepts_versions_of_the_future_is_listed_anew() {
    let fake = Fake::start().await;
    fake.accept_the_future();
    fake.put("ingresses", "shop", "a", ingress("v1"));
    fake.put("ingresses", "shop", "b", ingress("v1"));
    let backup = fake.backup();
    let stage = Stage::set(&fake.url, KINDS, |_| {});
    stage.until("the first list", |s| s.names().len() == 2).await;
    let old = stage.content();
    fake.put("ingresses", "shop", "late", ingress("v1"));
    fake.put("ingresses", "shop", "b", ingress("v2"));
    let newest = |s: &Stage| s.content()["Ingress/shop/b"] != old["Ingress/shop/b"];
    stage.until("the objects missing from the backup", |s| s.names().len() == 3 && newest(s)).await;
    fake.restore(backup, 102);
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/b"]).await;
    fake.put("ingresses", "shop", "after", ingress("v1"));
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/after", "Ingress/shop/b"]).await;
    stage.until_like_a_cold_run(&Stage::set(&fake.url, KINDS, |_| {})).await;
}

#[tokio::test]
async fn a_watch_that_goes_on_at_a_version_that_is_there_is_not_listed_anew() {
    let (fake, stage) = stage_with(None).await;
    // Watches end after a second each: three of them are more than two beginnings that are looked at.
    stage.until("three watches", |_| fake.times("watch", "ingresses").len() >= 3).await;
    fake.put("ingresses", "shop", "c", ingress("v1"));
    stage.until_names(&["Ingress/shop/a", "Ingress/shop/b", "Ingress/shop/c"]).await;
    assert_eq!(stage.feed("ingresses.networking.k8s.io").lists, 1);
}

#[tokio::test]
async fn an_outage_empties_nothing_and_later_changes_are_caught_up() {
    let (fake, stage) = stage_with(None).await;
    fake.stop();
    stage.until("stale", |s| s.reports().iter().any(|r| r.state == SourceState::Stale)).await;
    assert_eq!((stage.names().len(), stage.deleted()), (2, 0));
    fake.delete("ingresses", "shop/a");
    fake.put("ingresses", "shop", "c", ingress("v1"));
    fake.compact();
    fake.resume().await;
    stage.until_names(&["Ingress/shop/b", "Ingress/shop/c"]).await;
    stage.until_like_a_cold_run(&Stage::set(&fake.url, KINDS, |_| {})).await;
    stage.until("health", |s| s.reports().iter().all(|r| r.state == SourceState::Synced)).await;
}

#[tokio::test]
async fn an_outage_without_a_change_needs_no_list() {
    let (fake, stage) = stage_with(None).await;
    let lists = fake.times("list", "ingresses").len();
    fake.stop();
    stage.until("stale", |s| s.reports().iter().any(|r| r.state == SourceState::Stale)).await;
    fake.resume().await;
    stage.until("health", |s| s.reports().iter().all(|r| r.state == SourceState::Synced)).await;
    assert_eq!(fake.times("list", "ingresses").len(), lists);
}

#[tokio::test]
async fn a_restart_of_the_source_begins_with_its_former_content() {
    let (fake, mut stage) = stage_with(None).await;
    fake.stop();
    stage.restart();
    stage.resync();
    stage.until("trouble", |s| s.feed("ingresses.networking.k8s.io").attempt > 0).await;
    assert_eq!((stage.names().len(), stage.deleted()), (2, 0));
    fake.resume().await;
    follows(&fake, &stage).await;
}
