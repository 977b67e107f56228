//! Execution of a batch of writes: a few at a time, each only while this process leads, conflicts retried on the fresh
//! object.

use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{
    leader::Leadership,
    plan::{Job, WriteOutcome},
    ports::{Fresh, StatusSink},
};
use crate::sources::WriteError;

/// The number of concurrent writes.
const TOGETHER: usize = 8;
/// The number of attempts on a fresh object when it keeps changing.
const ROUNDS: usize = 4;

/// Executes the writes, in any order.
pub async fn carry_out(sink: Arc<dyn StatusSink>, leadership: Leadership, jobs: Vec<Job>) -> Vec<(Job, WriteOutcome)> {
    let each = jobs.into_iter().map(|job| {
        let (sink, leadership) = (sink.clone(), leadership.clone());
        async move {
            let outcome = one(&*sink, &leadership, &job).await;
            (job, outcome)
        }
    });
    stream::iter(each).buffer_unordered(TOGETHER).collect().await
}

async fn one(sink: &dyn StatusSink, leadership: &Leadership, job: &Job) -> WriteOutcome {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let meta = &job.config.meta;
    let mut held = Fresh {
        status: Value::clone(&job.config.status),
        version: meta.resource_version.to_string(),
        generation: meta.generation,
    };
    for _ in 0..ROUNDS {
        let Some(body) = job.body(&held.status, &now) else { return WriteOutcome::Stored(held.status) };
        let Some(_permit) = leadership.permit() else {
            return WriteOutcome::Failed("another process leads".to_string());
        };
        match sink.apply(&job.config, &held.version, &body).await {
            Ok(stored) => return WriteOutcome::Stored(stored.status),
            Err(WriteError::Conflict) => {}
            Err(WriteError::Gone) => return WriteOutcome::Superseded,
            Err(error) => return WriteOutcome::Failed(error.to_string()),
        }
        held = match sink.fetch(&job.config).await {
            // The computed status is for a spec that is no longer in force; the watch brings the new one.
            Ok(fresh) if fresh.generation != meta.generation => return WriteOutcome::Superseded,
            // Another writer set addresses that we did not know of: ours may conflict with them.
            Ok(fresh) if fresh.status["addresses"] != held.status["addresses"] => return WriteOutcome::Superseded,
            Ok(fresh) => fresh,
            Err(WriteError::Gone) => return WriteOutcome::Superseded,
            Err(error) => return WriteOutcome::Failed(error.to_string()),
        };
    }
    WriteOutcome::Failed("the object keeps changing".to_string())
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::Mutex,
        time::{Duration, Instant},
    };

    use futures::{FutureExt, future::BoxFuture};
    use serde_json::{Value, json};
    use tokio_util::sync::CancellationToken;

    use super::{
        super::{
            election::{Record, Timing},
            leader::campaign,
            plan::Plan,
            ports::LeaseStore,
        },
        *,
    };
    use crate::model::{Config, Origin, decode};

    /// A server on which others change the status of an object just before the first writes.
    #[derive(Default)]
    struct Server {
        object: Mutex<Fresh>,
        meddle: Mutex<usize>,
        applied: Mutex<Vec<Value>>,
    }

    impl StatusSink for Arc<Server> {
        fn apply(&self, _: &Config, version: &str, status: &Value) -> BoxFuture<'static, Result<Fresh, WriteError>> {
            let mut object = self.object.lock().unwrap();
            let mut meddle = self.meddle.lock().unwrap();
            if *meddle > 0 {
                *meddle -= 1;
                object.version.push('+');
                object.status = json!({"conditions": [{"type": "Theirs", "status": *meddle}]});
            }
            let result = if object.version == version {
                object.version.push('*');
                object.status = status.clone();
                self.applied.lock().unwrap().push(status.clone());
                Ok(object.clone())
            } else {
                Err(WriteError::Conflict)
            };
            async move { result }.boxed()
        }

        fn fetch(&self, _: &Config) -> BoxFuture<'static, Result<Fresh, WriteError>> {
            let fresh = self.object.lock().unwrap().clone();
            async move { Ok(fresh) }.boxed()
        }
    }

    struct Free;

    impl LeaseStore for Free {
        fn read(&self) -> BoxFuture<'static, Result<Option<Record>, WriteError>> {
            async { Ok(None) }.boxed()
        }

        fn write(&self, _: Record) -> BoxFuture<'static, Result<(), WriteError>> {
            async { Ok(()) }.boxed()
        }
    }

    async fn leader() -> Leadership {
        let (leadership, minute) = (Leadership::default(), Duration::from_secs(60));
        let timing = Timing { lease: minute * 2, renew: minute, look: minute };
        let run = campaign(Arc::new(Free), "me".into(), timing, leadership.clone(), CancellationToken::new());
        tokio::spawn(run);
        while leadership.term().is_none() {
            tokio::task::yield_now().await;
        }
        leadership
    }

    fn job() -> Job {
        let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule", "metadata":
            {"name": "a", "namespace": "n", "resourceVersion": "1", "generation": 1}, "spec": {"host": "h"}});
        let config = Arc::new(decode::from_value(&document, Origin::default()).unwrap());
        let desired = json!({"conditions": [{"type": "Reconciled", "status": "True"}]});
        let (desired, objects) = (BTreeMap::from([(config.key(), desired)]), BTreeMap::from([(config.key(), config)]));
        Plan::default().due(Instant::now(), &desired, &objects, 1).remove(0)
    }

    fn server(meddle: usize, generation: i64) -> Arc<Server> {
        let object = Fresh { version: "1".into(), generation, ..Fresh::default() };
        Arc::new(Server { object: Mutex::new(object), meddle: Mutex::new(meddle), ..Server::default() })
    }

    #[tokio::test]
    async fn a_conflict_is_tried_again_on_the_fresh_object_and_loses_nothing() {
        let server = server(2, 1);
        let done = carry_out(Arc::new(server.clone()), leader().await, vec![job()]).await;
        assert!(matches!(done[0].1, WriteOutcome::Stored(_)), "{done:?}");
        let applied = server.applied.lock().unwrap();
        let types: Vec<_> = applied[0]["conditions"].as_array().unwrap().iter().map(|c| c["type"].clone()).collect();
        assert_eq!((applied.len(), types), (1, vec![json!("Theirs"), json!("Reconciled")]));
    }

    #[tokio::test]
    async fn another_generation_or_an_endless_fight_writes_nothing() {
        let done = carry_out(Arc::new(server(1, 2)), leader().await, vec![job()]).await;
        assert_eq!(done[0].1, WriteOutcome::Superseded);
        let done = carry_out(Arc::new(server(99, 1)), leader().await, vec![job()]).await;
        assert!(matches!(done[0].1, WriteOutcome::Failed(_)));
        let server = server(0, 1);
        let done = carry_out(Arc::new(server.clone()), Leadership::default(), vec![job()]).await;
        assert!(matches!(done[0].1, WriteOutcome::Failed(_)) && server.applied.lock().unwrap().is_empty(), "{done:?}");
    }
}
