//! Every version of some objects, as the server tells them to a watch of the test's own.

use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use kube::{
    Api,
    api::{DynamicObject, ListParams, WatchEvent, WatchParams},
};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::{real::Admin, stage::DEADLINE};

/// Follows the objects of one kind and namespace.
pub struct Versions {
    seen: Arc<Mutex<Vec<Value>>>,
    task: JoinHandle<()>,
}

impl Versions {
    /// Begins with the changes after now. `object` gives kind and namespace.
    pub async fn follow(admin: &Admin, object: &Value) -> Self {
        let api = admin.api(object);
        let from = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap_or_default();
        let seen = Arc::<Mutex<Vec<Value>>>::default();
        let task = tokio::spawn(run(api, from, seen.clone()));
        Self { seen, task }
    }

    /// Everything so far, in order.
    pub fn seen(&self) -> Vec<Value> {
        assert!(!self.task.is_finished(), "the watch of the test failed");
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The versions of one object, in order.
    pub fn of(&self, name: &str) -> Vec<Value> {
        self.seen().into_iter().filter(|o| o["metadata"]["name"] == name).collect()
    }

    /// Waits until a version of this object has come.
    pub async fn until(&self, object: &Value) {
        let wanted = &object["metadata"]["resourceVersion"];
        let name = object["metadata"]["name"].as_str().unwrap();
        let wait = async {
            while !self.of(name).iter().any(|o| o["metadata"]["resourceVersion"] == *wanted) {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(DEADLINE, wait).await.is_ok(), "{name} {wanted} does not come");
    }
}

impl Drop for Versions {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(api: Api<DynamicObject>, mut from: String, seen: Arc<Mutex<Vec<Value>>>) {
    loop {
        let mut events = api.watch(&WatchParams::default(), &from).await.unwrap().boxed();
        while let Some(event) = events.next().await {
            match event.unwrap() {
                WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                    from = object.metadata.resource_version.clone().unwrap_or_default();
                    let object = serde_json::to_value(object).unwrap();
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(object);
                }
                WatchEvent::Bookmark(mark) => from = mark.metadata.resource_version,
                WatchEvent::Error(error) => panic!("{error:?}"),
            }
        }
    }
}
