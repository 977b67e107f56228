//! One kind, followed for ever: list, watch, and the reaction when either fails.
//!
//! The library lists and watches; pauses, time limits and the decision to begin anew are ours. A pause grows with each
//! failure in a row, and is the first again when there was none for as long as the longest pause: a server that lists well
//! and refuses every watch is not listed ten times a second.

use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt, stream::BoxStream};
use http::{Request, header::ACCEPT};
use kube::{
    Api, Client,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::IgnoredAny;

use super::{
    Cluster, FeedReport, FeedState,
    follower::{End, Follower, ObjectChange, WatchTarget},
    watch_error::{Reaction, is_too_new, judge},
};
use crate::{runtime::Backoff, sources::SourcePort};

/// The interval of heartbeats of a source.
pub(super) const BEAT: Duration = Duration::from_secs(5);
/// Events that are ready are passed on together, up to this many.
const TOGETHER: usize = 512;
/// Objects of one page of a list.
const PAGE: u32 = 500;
/// The time limit of the question whether a version is one of the future; the server itself waits three seconds.
const QUESTION: Duration = Duration::from_secs(10);
/// Objects without their content, where the server can.
const NAMES_ONLY: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json";

/// Pauses after failures.
struct Pace {
    backoff: Backoff,
    longest: Duration,
    last: Option<Instant>,
}

impl Pace {
    fn next(&mut self) -> Duration {
        if self.last.is_some_and(|at| at.elapsed() > self.longest * 2) {
            self.backoff.reset();
        }
        let pause = self.backoff.next_pause();
        self.last = Some(Instant::now() + pause);
        pause
    }
}

/// Runs a source that is one follower, until it is to stop, and shows meanwhile that it lives.
pub(super) async fn alone<F: Follower>(cluster: &Cluster, follower: &mut F, port: &SourcePort) {
    let beat = async {
        loop {
            tokio::time::sleep(BEAT).await;
            port.board.beat();
        }
    };
    tokio::select! {
        () = port.stop.cancelled() => {}
        () = drive(cluster, follower) => {}
        () = beat => {}
    }
}

/// Follows for ever.
pub(super) async fn drive<F: Follower>(cluster: &Cluster, follower: &mut F) {
    let settings = cluster.settings();
    let backoff = Backoff::new(settings.first_pause, settings.longest_pause);
    let mut pace = Pace { backoff, longest: settings.longest_pause, last: None };
    let mut refused: Option<Instant> = None;
    loop {
        let target = follower.target().await;
        #[cfg(any(test, feature = "testing"))]
        cluster.faults.trip(&format!("feed of {}", target.resource.plural));
        follower.report(&mut |r| r.version.clone_from(&target.resource.version));
        let began = Instant::now();
        let mut end = Watch::new(cluster, &target, &mut pace).run(follower).await;
        if !matches!(end, End::Forbidden(_)) || began.elapsed() > settings.list_timeout {
            refused = None;
        }
        if let End::Forbidden(error) = &end {
            // A server that has just begun refuses until it knows its roles.
            let passes = refused.get_or_insert_with(Instant::now).elapsed() < settings.refused_patience;
            if passes {
                end = End::Renew(error.clone());
            } else if follower.is_absent().await {
                end = End::Absent("there is no such kind, and we may not read it".to_string());
            }
        }
        let refused_pause = if follower.is_waited_for() { settings.longest_pause } else { settings.refused_pause };
        let (state, error, pause) = match end {
            End::Relist => continue,
            End::Renew(error) => (FeedState::Retrying, error, pace.next().max(cluster.asked_to_wait(&target))),
            End::Forbidden(error) => (FeedState::Forbidden, error, settings.refused_pause.min(refused_pause)),
            End::Absent(error) if follower.is_expected() => (FeedState::Retrying, error, pace.next()),
            End::Absent(error) => (FeedState::Absent, error, settings.refused_pause),
        };
        if state != FeedState::Absent {
            count_failure(cluster);
        }
        cluster.tell(follower, &mut |r| r.trouble(state, &error, pace.backoff.attempt(), pause));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = follower.shifted() => {}
        }
    }
}

/// One watcher of the library, from its list to its end.
struct Watch<'a> {
    cluster: &'a Cluster,
    target: &'a WatchTarget,
    path: String,
    pace: &'a mut Pace,
    relist: Instant,
    /// Watches that were accepted when the last failure happened; `None` while nothing is wrong.
    failed_at: Option<u64>,
    /// Watches up to this one were accepted, and each began where the server is.
    known: u64,
}

enum Wake<T> {
    Told(T),
    Accepted,
    Shifted,
    Relist,
    ListTooLate,
}

impl<'a> Watch<'a> {
    fn new(cluster: &'a Cluster, target: &'a WatchTarget, pace: &'a mut Pace) -> Self {
        let relist = Instant::now() + cluster.settings().relist;
        let path = cluster.path(target);
        cluster.answers().follow(&path);
        Self { cluster, target, path, pace, relist, failed_at: None, known: 0 }
    }

    async fn run<F: Follower>(mut self, follower: &mut F) -> End {
        let client = match self.cluster.client().await {
            Ok(client) => client,
            Err(error) => return End::Renew(error.to_string()),
        };
        let api: Api<F::Object> = match &self.target.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.target.resource),
            None => Api::all_with(client.clone(), &self.target.resource),
        };
        let mut config = watcher::Config::default().page_size(PAGE);
        config.timeout = Some(u32::try_from(self.cluster.settings().watch_timeout.as_secs()).unwrap_or(290).max(1));
        config.field_selector.clone_from(&self.target.fields);
        config.label_selector.clone_from(&self.target.labels);
        let mut stream = watcher(api, config).boxed();
        let mut list: Option<Vec<F::Item>> = Some(Vec::new());
        loop {
            let next = match self.wake(&mut stream, list.is_some(), follower).await {
                Wake::Told(Some(next)) => next,
                Wake::Told(None) => return End::Renew("the watch ended".to_string()),
                Wake::Accepted => match self.accepted(&client, follower).await {
                    Ok(()) => continue,
                    Err(end) => return end,
                },
                Wake::Shifted if follower.target().now_or_never().as_ref() == Some(self.target) => continue,
                Wake::Shifted => return End::Absent("the kind is gone or served in another version".to_string()),
                Wake::Relist => return End::Relist,
                Wake::ListTooLate => {
                    let limit = self.cluster.settings().list_timeout;
                    return End::Renew(format!("list: no page within {} s", limit.as_secs_f32()));
                }
            };
            let step = match next {
                Ok(Event::Init) => {
                    list = Some(Vec::new());
                    Ok(())
                }
                Ok(Event::InitApply(object)) => {
                    let item = follower.read(object, true);
                    list.get_or_insert_default().push(item);
                    Ok(())
                }
                Ok(Event::InitDone) => {
                    let done = follower.listed(list.take().unwrap_or_default()).await;
                    // The next watch begins where this list ended.
                    self.known = self.cluster.answers().watches(&self.path) + 1;
                    if done.is_ok() {
                        self.well(follower);
                    }
                    done
                }
                Ok(event) => {
                    let (changes, error) = together(event, &mut stream, follower);
                    let done = follower.told(changes).await;
                    match (done, error) {
                        (Ok(()), Some(error)) => self.failed(&error, follower).await,
                        (Ok(()), None) => {
                            self.well(follower);
                            Ok(())
                        }
                        (end, _) => end,
                    }
                }
                Err(error) => self.failed(&error, follower).await,
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn wake<F: Follower>(
        &self,
        stream: &mut BoxStream<'static, watcher::Result<Event<F::Object>>>,
        listing: bool,
        follower: &mut F,
    ) -> Wake<Option<watcher::Result<Event<F::Object>>>> {
        if listing {
            let limit = self.cluster.settings().list_timeout;
            return tokio::time::timeout(limit, stream.next()).await.map_or(Wake::ListTooLate, Wake::Told);
        }
        let accepted = async {
            let after = self.failed_at.map_or(self.known, |at| at.min(self.known));
            self.cluster.answers().watch_after(&self.path, after).await;
        };
        tokio::select! {
            biased;
            next = stream.next() => Wake::Told(next),
            () = accepted => Wake::Accepted,
            () = follower.shifted() => Wake::Shifted,
            () = tokio::time::sleep_until(self.relist.into()) => Wake::Relist,
        }
    }

    fn well<F: Follower>(&mut self, follower: &mut F) {
        self.failed_at = None;
        self.cluster.tell(follower, &mut FeedReport::well);
    }

    /// A watch was accepted. Servers accept one that goes on at a version of the future and stay silent until they are
    /// there: one that was restored from an older backup has other objects by then.
    async fn accepted<F: Follower>(&mut self, client: &Client, follower: &mut F) -> Result<(), End> {
        let watches = self.cluster.answers().watches(&self.path);
        if self.failed_at.is_some_and(|at| watches > at) {
            self.well(follower);
        }
        if watches > self.known {
            self.known = watches;
            let from = self.cluster.answers().began_at(&self.path);
            if !from.is_empty() && from != "0" && self.is_of_the_future(client, &from).await {
                return Err(End::Renew(format!("the server went back to before resource version {from}")));
            }
        }
        Ok(())
    }

    /// Asks for one object at this version or a later one.
    async fn is_of_the_future(&self, client: &Client, version: &str) -> bool {
        let query = format!("limit=1&resourceVersion={version}&resourceVersionMatch=NotOlderThan");
        let request = Request::get(format!("{}?{query}", self.path)).header(ACCEPT, NAMES_ONLY).body(Vec::new());
        let Ok(request) = request else { return false };
        let answer = tokio::time::timeout(QUESTION, client.request::<IgnoredAny>(request)).await;
        matches!(answer, Ok(Err(error)) if is_too_new(&error))
    }

    /// Pauses and goes on, or ends.
    async fn failed<F: Follower>(&mut self, error: &watcher::Error, follower: &mut F) -> Result<(), End> {
        match judge(error) {
            Reaction::GoOn(text) => {
                self.failed_at = Some(self.cluster.answers().watches(&self.path));
                let pause = self.pace.next().max(self.cluster.asked_to_wait(self.target));
                let attempt = self.pace.backoff.attempt();
                count_failure(self.cluster);
                self.cluster.tell(follower, &mut |r| r.trouble(FeedState::Retrying, &text, attempt, pause));
                tokio::time::sleep(pause).await;
                Ok(())
            }
            Reaction::Renew(text) => Err(End::Renew(text)),
            Reaction::Unauthorized(text) => {
                self.cluster.forget_client();
                Err(End::Renew(text))
            }
            Reaction::Forbidden(text) => Err(End::Forbidden(text)),
            Reaction::Absent(text) => Err(End::Absent(text)),
        }
    }
}

/// Counts a list or a watch that failed, under istiod's name.
fn count_failure(cluster: &Cluster) {
    metrics::counter!("controller_sync_errors_total", "cluster" => cluster.id().to_string()).increment(1);
}

/// The event and those that are ready after it, up to the first error or list.
fn together<F: Follower>(
    first: Event<F::Object>,
    stream: &mut BoxStream<'static, watcher::Result<Event<F::Object>>>,
    follower: &mut F,
) -> (Vec<ObjectChange<F::Item>>, Option<watcher::Error>) {
    let mut changes = Vec::new();
    let mut next = Some(first);
    while let Some(event) = next.take() {
        match event {
            Event::Apply(object) => changes.push(ObjectChange::Put(follower.read(object, false))),
            Event::Delete(object) => changes.push(ObjectChange::Gone(follower.read(object, false))),
            Event::Init | Event::InitApply(_) | Event::InitDone => {}
        }
        if changes.len() >= TOGETHER {
            break;
        }
        match stream.next().now_or_never() {
            Some(Some(Ok(event))) => next = Some(event),
            Some(Some(Err(error))) => return (changes, Some(error)),
            Some(None) | None => {}
        }
    }
    (changes, None)
}
