//! What the client library does not tell: that a watch was accepted, and how long the server asks to wait.
//!
//! A layer around the client. It also limits how long the head of an answer may take: the library waits for ever.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode, header::RETRY_AFTER};
use tokio::sync::Notify;
use tower::{BoxError, Layer, Service};

/// Longest wait that a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The last answers, by path. Paths are those of kinds that we read, so there are few.
#[derive(Debug, Default)]
pub(super) struct Answers {
    by_path: Mutex<BTreeMap<String, Answer>>,
    came: Notify,
}

#[derive(Debug, Default, Clone, Copy)]
struct Answer {
    watches: u64,
    retry_after: Option<Duration>,
}

impl Answers {
    /// How long the server asked to wait with this path; asked once.
    pub(super) fn take_retry_after(&self, path: &str) -> Option<Duration> {
        self.lock().get_mut(path).and_then(|a| a.retry_after.take())
    }

    /// How many watches of this path were accepted so far.
    pub(super) fn watches(&self, path: &str) -> u64 {
        self.lock().get(path).map_or(0, |a| a.watches)
    }

    /// Waits until more watches than these were accepted.
    pub(super) async fn watch_after(&self, path: &str, watches: u64) {
        loop {
            let mut came = std::pin::pin!(self.came.notified());
            came.as_mut().enable();
            if self.watches(path) > watches {
                return;
            }
            came.await;
        }
    }

    fn note(&self, path: &str, watch: bool, status: StatusCode, headers: &HeaderMap) {
        let mut by_path = self.lock();
        let answer = by_path.entry(path.to_string()).or_default();
        if status.is_success() {
            answer.watches += u64::from(watch);
            answer.retry_after = None;
        } else {
            let seconds = headers.get(RETRY_AFTER).and_then(|v| v.to_str().ok()).and_then(|v| v.trim().parse().ok());
            answer.retry_after = seconds.map(|s| Duration::from_secs(s).min(LONGEST_WAIT));
        }
        drop(by_path);
        self.came.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Answer>> {
        self.by_path.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts a client under observation.
#[derive(Debug, Clone)]
pub(super) struct Observe {
    pub(super) answers: Arc<Answers>,
    /// For the head of an answer.
    pub(super) limit: Duration,
    /// For the head of a watch: a proxy may hold it back until something happens.
    pub(super) watch_limit: Duration,
}

impl<S> Layer<S> for Observe {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        Observed { inner, observe: self.clone() }
    }
}

/// A client under observation.
#[derive(Debug)]
pub(super) struct Observed<S> {
    inner: S,
    observe: Observe,
}

impl<S, A, B> Service<Request<A>> for Observed<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let path = request.uri().path().to_string();
        let watch = request.uri().query().is_some_and(|q| q.split('&').any(|p| p == "watch=true" || p == "watch=1"));
        let Observe { answers, limit, watch_limit } = self.observe.clone();
        let limit = if watch { watch_limit } else { limit };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = match tokio::time::timeout(limit, answer).await {
                Ok(answer) => answer.map_err(Into::into)?,
                Err(_) => return Err(format!("no answer within {limit:?}").into()),
            };
            answers.note(&path, watch, answer.status(), answer.headers());
            Ok(answer)
        })
    }
}
