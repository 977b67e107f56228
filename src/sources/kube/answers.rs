//! Facts that the client library does not report: accepted watches, and the server's `Retry-After`.
//!
//! A layer around the client. It also limits the time to the head of an answer, for which the library waits for ever.

use std::{
    collections::BTreeMap,
    mem,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode, header::RETRY_AFTER};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tower::{BoxError, Layer, Service};

/// Longest wait that a server may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The last answers, by path: those of paths that are watched. Other paths name objects, which come without end.
#[derive(Debug, Default)]
pub(super) struct Answers {
    by_path: Mutex<BTreeMap<String, PathState>>,
    came: Notify,
}

#[derive(Debug, Default)]
struct PathState {
    watches: u64,
    /// Where the last of these watches began: a resource version.
    from: String,
    retry_after: Option<Duration>,
}

impl Answers {
    /// Answers of this path count from now on.
    pub(super) fn follow(&self, path: &str) {
        let mut by_path = self.lock();
        if !by_path.contains_key(path) {
            by_path.insert(path.to_string(), PathState::default());
        }
    }

    /// The resource version at which the last watch of this path that was accepted began.
    pub(super) fn began_at(&self, path: &str) -> String {
        self.lock().get(path).map_or_else(String::new, |a| a.from.clone())
    }

    /// The server's `Retry-After` for this path; given once.
    pub(super) fn take_retry_after(&self, path: &str) -> Option<Duration> {
        self.lock().get_mut(path).and_then(|a| a.retry_after.take())
    }

    /// The number of watches of this path that were accepted so far.
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

    /// Notes an answer; `watch` is where it begins if it is one to a watch.
    fn note(&self, path: &str, watch: Option<String>, status: StatusCode, headers: &HeaderMap) {
        let mut by_path = self.lock();
        let Some(answer) = by_path.get_mut(path) else { return };
        if status.is_success() {
            answer.watches += u64::from(watch.is_some());
            answer.from = watch.unwrap_or_else(|| mem::take(&mut answer.from));
            answer.retry_after = None;
        } else {
            let seconds = headers.get(RETRY_AFTER).and_then(|v| v.to_str().ok()).and_then(|v| v.trim().parse().ok());
            answer.retry_after = seconds.map(|s| Duration::from_secs(s).min(LONGEST_WAIT));
        }
        drop(by_path);
        self.came.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, PathState>> {
        self.by_path.lock()
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
        let watch = watch_of(request.uri().query().unwrap_or_default());
        let Observe { answers, limit, watch_limit } = self.observe.clone();
        let limit = if watch.is_some() { watch_limit } else { limit };
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

/// The resource version at which a watch begins, if the query is one of a watch.
fn watch_of(query: &str) -> Option<String> {
    let mut parameters = query.split('&');
    let watches = parameters.clone().any(|p| p == "watch=true" || p == "watch=1");
    watches.then(|| parameters.find_map(|p| p.strip_prefix("resourceVersion=")).unwrap_or_default().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_without_a_watch_are_not_kept() {
        let answers = Answers::default();
        answers.follow("/api/v1/pods");
        for n in 0..10_000 {
            let path = format!("/apis/networking.istio.io/v1/namespaces/n/virtualservices/v{n}/status");
            answers.note(&path, None, StatusCode::OK, &HeaderMap::new());
            answers.note(&path, None, StatusCode::CONFLICT, &HeaderMap::new());
        }
        answers.note("/api/v1/pods", watch_of("watch=true&resourceVersion=7"), StatusCode::OK, &HeaderMap::new());
        assert_eq!(answers.lock().len(), 1);
        assert_eq!((answers.watches("/api/v1/pods"), answers.began_at("/api/v1/pods").as_str()), (1, "7"));
    }
}
