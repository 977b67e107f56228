//! A handler that panics restarts under the same address and receives the unprocessed events again.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::sync::Notify;

use super::*;
use crate::{
    handlers::Decision,
    model::{Config, Interrupted, Origin, PushKey, PushRequest, Reason, decode::from_value, push_request::PushKind},
    runtime::{RestartBudget, Shutdown},
    sources::{Change, ConfigSink, SourceBatch},
    store::{AggregateCacheActor, StoreHandle},
};

/// Panics a set number of times, then requests a push of every object.
struct Panicky {
    panics: Arc<AtomicU32>,
}

impl Decide for Panicky {
    const NAME: &'static str = "panicky";

    fn wants(_: Kind) -> bool {
        true
    }

    fn decide(&self, events: &[ConfigEvent]) -> Decision {
        let left = self.panics.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        assert!(left.is_err(), "as the test wants");
        let mut push: Option<PushRequest> = None;
        for event in events {
            let meta = &event.current.meta;
            let kind = PushKind::Config(event.current.kind());
            let key = PushKey { kind, name: meta.name.clone(), namespace: meta.namespace.clone() };
            let request = PushRequest::of(key, Reason::Config);
            match &mut push {
                Some(all) => all.merge(request),
                None => push = Some(request),
            }
        }
        Decision { registry: true, push }
    }
}

#[derive(Default)]
struct Recorder {
    operations: Mutex<Vec<usize>>,
    pushed: Mutex<Vec<PushRequest>>,
    came: Notify,
}

impl RegistryPort for Recorder {
    fn operate(&self, events: Arc<[ConfigEvent]>) -> BoxFuture<'static, Result<(), Interrupted>> {
        self.operations.lock().unwrap().push(events.len());
        async { Ok(()) }.boxed()
    }
}

impl XdsUpdater for Recorder {
    fn config_update(&self, request: PushRequest) {
        self.pushed.lock().unwrap().push(request);
        self.came.notify_one();
    }
}

fn entry(name: &str) -> Arc<Config> {
    let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": name, "namespace": "shop"}, "spec": {"hosts": [name]}});
    Arc::new(from_value(&document, Origin::default()).unwrap())
}

fn start(panics: u32) -> (StoreHandle, Arc<Recorder>, Supervision) {
    let budget = RestartBudget::new(100, Shutdown::default());
    let supervision = Supervision::new(budget, Duration::from_millis(1), Duration::from_millis(5));
    let recorder = Arc::new(Recorder::default());
    let panicky = Panicky { panics: Arc::new(AtomicU32::new(panics)) };
    let port = HandlerActor::start(&supervision, panicky, recorder.clone(), recorder.clone());
    let store = AggregateCacheActor::start(
        &supervision,
        vec!["test".into()],
        tokio::sync::watch::Sender::default(),
        vec![Arc::new(port)],
        Arc::new(|| {}),
    );
    (store, recorder, supervision)
}

#[actix::test]
async fn events_lost_in_a_panic_are_told_again() {
    let (store, recorder, supervision) = start(2);
    let batch = SourceBatch { source: "test".into(), change: Change::Full(vec![entry("a"), entry("b")]) };
    assert_eq!(store.apply(batch).await.unwrap().changes, 2);
    tokio::time::timeout(Duration::from_secs(30), recorder.came.notified()).await.unwrap();
    let pushed = recorder.pushed.lock().unwrap();
    assert_eq!((pushed.len(), pushed[0].keys.len()), (1, 2));
    assert_eq!(*recorder.operations.lock().unwrap(), [2]);
    let report = supervision.reports().into_iter().find(|r| &*r.actor == "panicky").unwrap();
    assert_eq!(report.restarts, 2);
    assert!(report.last_error.contains("as the test wants"));
}

#[actix::test]
async fn the_registry_has_the_events_before_a_push_is_asked_for() {
    let (store, recorder, _) = start(0);
    let batch = SourceBatch { source: "test".into(), change: Change::Full(vec![entry("a")]) };
    store.apply(batch).await.unwrap();
    assert_eq!(*recorder.operations.lock().unwrap(), [1]);
    assert_eq!(recorder.pushed.lock().unwrap().len(), 1);
}
