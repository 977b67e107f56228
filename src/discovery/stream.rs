//! The task of one stream: waits for requests, publications and room on the wire, and lets the session decide.

mod opening;
mod secret_asking;

use std::{num::NonZeroU32, pin::Pin, sync::Arc, time::SystemTime};

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, Sleep},
};
use tonic::Status;

use secret_asking::SecretAsking;

use super::{
    connection::Connection,
    course::Sent,
    debug::{self, DebugPages, Questions},
    history::PushRecord,
    ports::Ports,
    published::Published,
    registrar::{HEALTH, Presence},
    state::XdsState,
    view::View,
};
use crate::{
    generate::api,
    identity::{IdentityHold, Presented},
    model::SecretReader,
    runtime::{Panicked, catch_task},
    telemetry::LogThrottle,
    xds::{
        Hold, NameHold, Outgoing, PerType, Protocol, Received, RequestRate, Requests, ResourceType, Session, Snapshot,
        Turn, UnknownTypes, cost_of_change,
    },
};

/// Messages that wait for the transport; types that are unacknowledged do not add to it.
pub(super) const QUEUED: usize = 4;

/// Secrets that one stream may ask for: each is looked for and, if it is refused, told by name.
const MAX_SECRETS: usize = 10_000;

/// The inputs of a stream.
pub(super) struct Start {
    pub(super) state: XdsState,
    pub(super) ports: Ports,
    pub(super) protocol: Protocol,
    /// The one type that a single-type service serves.
    pub(super) only: Option<ResourceType>,
    /// The stream in its connection.
    pub(super) turn: Turn,
    /// The proof of the client's identity.
    pub(super) presented: Presented,
}

/// Serves a stream until one side ends it, and tells the client why.
pub(super) async fn serve(start: Start, requests: Requests, outgoing: mpsc::Sender<Outgoing>) {
    let opened = catch_task(opening::open(start, requests, &outgoing)).await.unwrap_or_else(|p| Err(fault(&p)));
    let status = match opened {
        Ok(mut stream) => {
            let connection = stream.connection.clone();
            let ended = catch_task(stream.run()).await.unwrap_or_else(|p| Err(fault(&p)));
            drop(stream);
            if let Err(status) = &ended {
                tracing::debug!(connection = connection.id, %status, "the stream ends");
            }
            ended
        }
        Err(status) => Err(status),
    };
    let status = status.err().unwrap_or_else(|| Status::ok(""));
    // A client that reads nothing gets no reason: the body is dropped with the sender.
    let _ = outgoing.try_send(Outgoing::End(status));
}

/// The status for the client of a stream whose task panicked.
fn fault(panicked: &Panicked) -> Status {
    metrics::counter!("pilot_total_xds_internal_errors").increment(1);
    tracing::error!(error = %panicked, "a stream ends by a fault");
    Status::internal("a fault of the server ended the stream")
}

struct Stream {
    state: XdsState,
    connection: Arc<Connection>,
    session: Session,
    requests: Requests,
    outgoing: mpsc::Sender<Outgoing>,
    only: Option<ResourceType>,
    view: Arc<View>,
    ticks: watch::Receiver<u64>,
    /// Publications up to this one have been looked at.
    seen: u64,
    rate: RequestRate,
    /// Of the last request.
    cost: NonZeroU32,
    /// Runs while messages may be waiting for the client to read, with how many it had taken when it was started.
    stalled: Option<(Pin<Box<Sleep>>, u64)>,
    sent: u64,
    /// The push that the last response of each type belongs to.
    pushes: PerType<Option<Arc<Published>>>,
    unknown: UnknownTypes,
    debug: Option<Arc<dyn DebugPages>>,
    questions: Questions,
    /// The workload behind the proxy has registered itself.
    presence: Option<Box<dyn Presence>>,
    /// The certificate that is issued for its workload, for as long as it lasts.
    _certificate: Option<IdentityHold>,
    /// Asks whether its workload may read Secrets, from the first request for one on.
    secret_access: SecretAsking,
    /// Its place in the connection.
    turn: Turn,
    /// Runs until the connection is too old.
    old_age: Option<Pin<Box<Sleep>>>,
    /// Ends when the proof of the client's identity holds no more.
    lapse: Option<BoxFuture<'static, &'static str>>,
    refusals: LogThrottle,
    /// Subscribed names without a resource, by type, and all of them against the bounds.
    unknown_names: Hold,
    /// All subscribed names against the bounds.
    names: NameHold,
    /// Bytes of its node against the bounds, for as long as it lasts.
    _node_bytes: Hold,
    unknown_of: PerType<usize>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.presence = None;
        self.state.disconnect(&self.connection);
    }
}

impl Stream {
    async fn run(&mut self) -> Result<(), Status> {
        let connection = self.connection.clone();
        loop {
            self.tick();
            let wake_at = self.session.wake_at().map(Instant::from_std);
            let alarm = async {
                match wake_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let ready = self.session.next().is_some() || self.unknown.is_waiting() || self.questions.is_waiting();
            let stall = async {
                match self.stalled.as_mut() {
                    Some((sleep, _)) => sleep.await,
                    None => std::future::pending().await,
                }
            };
            let old_age = async {
                match self.old_age.as_mut() {
                    Some(sleep) => sleep.await,
                    None => std::future::pending().await,
                }
            };
            let lapse = async {
                match self.lapse.as_mut() {
                    Some(lapse) => lapse.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = old_age => return Err(Status::unavailable("the connection has reached its greatest age")),
                reason = lapse => return Err(Status::unauthenticated(reason)),
                () = connection.kill.cancelled() => return Err(self.drain().await),
                () = self.outgoing.closed() => return Ok(()),
                request = self.requests.next() => match request? {
                    None => return Ok(()),
                    Some(message) => {
                        self.tick();
                        self.cost = NonZeroU32::MIN;
                        self.receive(&message)?;
                        self.rate.spend(self.cost).await;
                        // Many requests may have come in one piece: others are not to wait for all of them.
                        tokio::task::yield_now().await;
                    }
                },
                permit = self.outgoing.clone().reserve_owned(), if ready => {
                    let permit = permit.map_err(|_| Status::ok(""))?;
                    self.tick();
                    self.send(permit).await?;
                }
                () = connection.moved.notified() => {
                    self.tick();
                    self.take_view();
                }
                changed = self.ticks.changed() => {
                    changed.map_err(|_| Status::internal("the view is gone"))?;
                    self.tick();
                    self.look(self.seen);
                }
                () = stall => self.check_stall()?,
                // The time is told above.
                () = alarm => {}
            }
        }
    }

    fn tick(&mut self) {
        self.session.tick(Instant::now().into_std());
    }

    /// Streams end one after another, so that clients do not all come back at once.
    async fn drain(&mut self) -> Status {
        if self.state.is_shutting_down() {
            let slots = 16;
            let wait = self.state.options().drain * (self.connection.number % slots) as u32 / slots as u32;
            tokio::time::sleep(wait).await;
            return Status::unavailable("the server is shutting down");
        }
        Status::unavailable("disconnected by the operator")
    }

    fn take_view(&mut self) {
        self.view = self.connection.current_view();
        self.ticks = self.view.subscribe();
        self.session.mark(self.view.served);
        // Not the number of the one in force: that may not have marked the view yet.
        self.seen = self.state.propagated_version();
    }

    /// Marks the types that publications after `version` may have changed.
    fn look(&mut self, version: u64) {
        let now = *self.ticks.borrow_and_update();
        self.session.mark(self.view.changed_since(version));
        self.seen = self.seen.max(now);
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), Status> {
        #[cfg(any(test, feature = "testing"))]
        self.state.builder().faults().trip(&format!("stream of {}", self.connection.node.namespace));
        let request = opening::parse(self.session.protocol(), message)?;
        if debug::is_debug(request.type_url) && self.only.is_none() {
            let audience = self.state.current().map(|p| debug::DebugAudience::of(&p.context)).unwrap_or_default();
            return self.questions.ask(&request, self.connection.identity.as_ref(), &audience);
        }
        if request.type_url == HEALTH {
            if let Some(presence) = &self.presence {
                presence.health(request.error.map_or(Ok(()), |complaint| Err(complaint.message)));
            }
            return Ok(());
        }
        let kind = match (ResourceType::of_url(request.type_url), self.only) {
            (kind, None) => kind,
            (None, only) if request.type_url.is_empty() => only,
            (kind, only) => kind.filter(|k| Some(*k) == only),
        };
        let Some(kind) = kind.filter(|k| self.view.served.contains(*k)) else {
            // A type that is not served must not end a stream that carries others.
            if self.serves_objects() {
                self.unknown.ask(request.type_url);
            }
            return Ok(());
        };
        let received = self.session.receive(kind, &request).map_err(opening::refuse)?;
        if !self.names.set(kind, self.session.subscription(kind).map(|s| &s.scope().names)) {
            return Err(Status::resource_exhausted("this connection, or all of them, ask for too many names"));
        }
        let secrets = self.session.subscription(ResourceType::Secret).map_or(0, |s| s.scope().names.names().len());
        if secrets > MAX_SECRETS {
            return Err(Status::resource_exhausted(format!("more than {MAX_SECRETS} secrets on one stream")));
        }
        if kind == ResourceType::Secret && self.connection.is_proven {
            let subscription = self.session.subscription(kind);
            let connection = &self.connection;
            self.secret_access.ask(subscription.map(|s| s.scope()), || {
                let identity = connection.identity.clone()?;
                Some(SecretReader { identity, cluster: connection.node.cluster_id.clone() })
            });
        }
        self.note(kind, received);
        Ok(())
    }

    fn serves_objects(&self) -> bool {
        &*self.connection.node.metadata.generator == api::GENERATOR
    }

    fn note(&mut self, kind: ResourceType, received: Received) {
        let subscription = self.session.subscription(kind);
        let nonce = subscription.map(|s| s.nonce().to_string()).unwrap_or_default();
        let push = self.pushes.known(kind).and_then(Clone::clone);
        let mut repeats = false;
        self.connection.update_status(kind, |status| {
            status.watched = subscription.is_some();
            status.wildcard = subscription.is_some_and(|s| s.scope().wildcard);
            status.names = subscription.map(|s| s.scope().names.clone());
            status.held_back.clear();
            status
                .held_back
                .extend(subscription.iter().flat_map(|s| s.held_back()).map(|(n, c)| (n.clone(), c.clone())));
            match &received {
                Received::Acked => {
                    status.held = status.held.max(status.offered);
                    status.acked_nonce.clone_from(&nonce);
                    status.answered_at = Some(SystemTime::now());
                    if status.held_back.is_empty() {
                        status.last_error.clear();
                    }
                }
                Received::Nacked(complaint) => {
                    status.rejects += 1;
                    repeats = status.last_error == complaint.message;
                    status.answered_at = Some(SystemTime::now());
                    status.last_error.clone_from(&complaint.message);
                }
                Received::Ended => (status.sent, status.held) = (None, 0),
                Received::Started | Received::Changed | Received::Expired => {}
            }
        });
        if matches!(received, Received::Started | Received::Changed) {
            self.cost = cost_of_change(subscription.map_or(0, |s| s.scope().names.names().len()));
        }
        let reached = |record: &PushRecord| record.reaches(self.connection.number);
        match received {
            Received::Acked => {
                if let Some(push) = push.as_ref().filter(|p| reached(&p.record)) {
                    push.record.acked(self.connection.number, kind);
                }
                self.state.wake_reader();
            }
            Received::Nacked(complaint) => {
                if let Some(push) = push.as_ref().filter(|p| reached(&p.record)) {
                    push.record.nacked(self.connection.number, kind, &complaint.message);
                }
                let message = complaint.message;
                metrics::counter!("pilot_total_xds_rejects", "type" => kind.label()).increment(1);
                if repeats {
                    tracing::debug!(
                        connection = self.connection.id,
                        r#type = kind.short(),
                        "a client refused it again"
                    );
                } else if let Some(times) = self.refusals.note(1) {
                    let held_back: Vec<&str> =
                        subscription.iter().flat_map(|s| s.held_back()).map(|(n, _)| &**n).collect();
                    tracing::warn!(
                        connection = self.connection.id,
                        r#type = kind.short(),
                        message,
                        times,
                        ?held_back,
                        "a client refused a response: the refused resources are sent again with growing pauses"
                    );
                }
            }
            Received::Expired => {
                metrics::counter!("pilot_xds_expired_nonce", "type" => kind.label()).increment(1);
            }
            Received::Started | Received::Changed | Received::Ended => {}
        }
    }

    /// Sends the next thing that is to be sent.
    async fn send(&mut self, permit: mpsc::OwnedPermit<Outgoing>) -> Result<(), Status> {
        if let Some(message) = self.unknown.answer() {
            self.hand_over(permit, message);
            return Ok(());
        }
        if let Some(question) = self.questions.next() {
            let type_url = question.type_url.clone();
            let (resources, control_plane) = match self.debug.clone() {
                Some(pages) => {
                    let control_plane = pages.control_plane();
                    (self.state.debug_throttle().answer(pages, question).await, control_plane)
                }
                None => Default::default(),
            };
            let message = self.questions.frames(self.session.protocol(), type_url, resources, control_plane);
            self.hand_over(permit, message);
            return Ok(());
        }
        let Some((kind, scope)) = self.session.next() else { return Ok(()) };
        let (scope, state) = (scope.clone(), self.state.clone());
        let Some(published) = state.current() else { return Ok(()) };
        if published.record.reaches(self.connection.number) {
            metrics::histogram!("pilot_proxy_queue_time").record(published.record.queued().as_secs_f64());
        }
        let current = || state.current().unwrap_or_else(|| published.clone());
        let offered = self.version_lower_bound();
        let Ok(target) = self.view.snapshot(kind, &scope, state.builder(), &current).await else {
            self.session.pass(kind);
            return Ok(());
        };
        self.hold_unknown(kind, &target)?;
        let sending = Instant::now();
        let response = self.session.offer(kind, &target, state.updates());
        let lacks = self.session.lacks(kind) || self.session.subscription(kind).is_some_and(|s| s.withholds());
        let Some(response) = response else {
            saved(kind, target.bytes());
            self.connection.update_status(kind, |status| {
                // The snapshot that it accepted last is the current one.
                if status.last_error.is_empty() && !lacks {
                    status.held = status.held.max(offered);
                }
            });
            self.state.wake_reader();
            return Ok(());
        };
        let (first, rest) = response.frames();
        let bytes = first.len() + rest.as_ref().map_or(0, Bytes::len);
        self.hand_over(permit, (first, rest));
        metrics::histogram!("pilot_xds_send_time").record(sending.elapsed().as_secs_f64());
        let (published, resources) = (current(), response.update.difference.changed.len());
        let reached = published.record.reaches(self.connection.number);
        if reached {
            let connection = (self.connection.number, &*self.connection.id);
            published.record.sent(Sent { connection, kind, bytes, resources });
            metrics::histogram!("pilot_proxy_convergence_time").record(published.record.age().as_secs_f64());
        }
        saved(kind, target.bytes().saturating_sub(bytes));
        metrics::counter!("pilot_xds_pushes", "type" => kind.label()).increment(1);
        metrics::histogram!("pilot_xds_config_size_bytes", "type" => kind.label()).record(bytes as f64);
        let sent = self.session.subscription(kind).and_then(|s| s.sent()).cloned();
        self.connection.update_status(kind, |status| {
            status.sent_nonce = response.nonce;
            status.sent_at = Some(SystemTime::now());
            status.sent = sent;
            if !lacks {
                status.offered = offered;
            }
            status.last_size = (resources, bytes);
        });
        if let Some(place) = self.pushes.get_mut(kind) {
            *place = Some(published);
        }
        Ok(())
    }

    /// Counts the unknown names of an answer: their memory is held for this client.
    fn hold_unknown(&mut self, kind: ResourceType, target: &Snapshot) -> Result<(), Status> {
        if let Some(count) = self.unknown_of.get_mut(kind) {
            *count = target.unknown();
        }
        if self.unknown_names.set(self.unknown_of.iter().sum()) {
            return Ok(());
        }
        Err(Status::resource_exhausted("too many names without a resource"))
    }

    /// A publication: the snapshots that are looked up now are at least as new.
    fn version_lower_bound(&self) -> u64 {
        // A publication does not move a connection that is not in the table yet.
        let in_table = self.connection.is_in_table();
        let propagated_version = self.state.propagated_version();
        // A view that was taken from the client is not kept current for it.
        let current = in_table && Arc::ptr_eq(&self.view, &self.connection.current_view());
        if current { propagated_version } else { 0 }
    }

    /// Gives a message to the transport.
    fn hand_over(&mut self, permit: mpsc::OwnedPermit<Outgoing>, (first, rest): (Bytes, Option<Bytes>)) {
        permit.send(Outgoing::message(first, rest.map(|rest| self.turn.lend(rest))));
        self.sent += 1;
        if self.stalled.is_none() {
            self.watch_stall();
        }
    }

    /// Messages that the transport has taken.
    fn taken(&self) -> u64 {
        self.sent.saturating_sub((QUEUED - self.outgoing.capacity().min(QUEUED)) as u64)
    }

    fn watch_stall(&mut self) {
        let sleep = Box::pin(tokio::time::sleep(self.state.options().send_stall));
        self.stalled = Some((sleep, self.taken()));
    }

    /// A client that leaves messages on our side for too long is cut off; one that reads and does not answer is not.
    fn check_stall(&mut self) -> Result<(), Status> {
        let taken_then = self.stalled.take().map_or(0, |(_, taken)| taken);
        let taken = self.taken();
        if taken == self.sent {
            return Ok(());
        }
        if taken > taken_then {
            self.watch_stall();
            return Ok(());
        }
        metrics::counter!("pilot_xds_write_timeout").increment(1);
        Err(Status::deadline_exceeded("the client does not read"))
    }
}

/// Counts bytes that a push did not send, since the client holds them.
fn saved(kind: ResourceType, bytes: usize) {
    metrics::counter!("pilothouse_xds_bytes_saved", "type" => kind.label()).increment(bytes as u64);
}
