//! The source's task: keeps a connection, lets the client decide, delivers the change.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use futures::future::BoxFuture;
use metrics::counter;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    client::{Client, Protocol},
    link::{Event, Link},
    target::UpstreamTarget,
};
use crate::{
    model::{ConfigKey, Kind},
    runtime::Backoff,
    settings::UpstreamSettings,
    sources::{
        FindingsLog, Source, SourceId, SourcePort,
        delivery::{Delivery, Request, Status},
    },
};

/// Longest pause between attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// After a connection that lasted this long the next pause is the shortest again.
const GOOD: Duration = Duration::from_secs(30);
/// A stream that is open for this long without an answer is in sync: the upstream was told the versions that we hold.
const QUIET: Duration = Duration::from_secs(2);
/// The interval of signs of life.
const BEAT: Duration = Duration::from_secs(5);
/// The state of a source that has had an answer, and has not had the first one of every type.
const FIRST_ANSWERS: &str = "the first answer of each type is waited for";
/// The error of a run whose client was dropped by a panic.
const LOST: &str = "the client was lost in a fault";

/// An upstream as a source.
#[derive(Debug)]
pub struct UpstreamSource {
    id: SourceId,
    target: Arc<UpstreamTarget>,
    first_pause: Duration,
    last_answer: Duration,
    /// The upstream's content; a restart goes on with it.
    client: Arc<Mutex<Client>>,
}

impl UpstreamSource {
    /// An upstream as a source. Mass deletions are held for `hold`.
    #[must_use]
    pub fn new(target: UpstreamTarget, settings: &UpstreamSettings, hold: Duration) -> Self {
        let id: SourceId = format!("xds:{}", target.address()).into();
        let protocol = if settings.delta { Protocol::Delta } else { Protocol::Sotw };
        let client = Client::new(id.clone(), protocol, hold, settings.max_objects, &settings.api_version);
        let (target, client) = (Arc::new(target), Arc::new(Mutex::new(client)));
        Self { id, target, first_pause: settings.first_pause, last_answer: settings.last_answer, client }
    }
}

impl Source for UpstreamSource {
    fn id(&self) -> SourceId {
        self.id.clone()
    }

    fn run(&self, port: SourcePort) -> BoxFuture<'static, anyhow::Result<()>> {
        let (id, target, client) = (self.id.clone(), self.target.clone(), self.client.clone());
        let backoff = Backoff::new(self.first_pause, LONGEST_PAUSE);
        let last_answer = self.last_answer;
        Box::pin(async move {
            let client = client.lock_owned().await;
            let run = Run {
                log: FindingsLog::new(id.clone()),
                delivery: Delivery::new(id.clone(), port, client.is_settled()),
                is_ready: client.is_settled(),
                id,
                target,
                client: Some(client),
                backoff,
                link: None,
                connect_at: Instant::now(),
                opened: None,
                connected: None,
                answered: None,
                last_answer,
                trouble: String::new(),
            };
            run.run().await
        })
    }
}

struct Run {
    id: SourceId,
    target: Arc<UpstreamTarget>,
    /// Taken out while a blocking thread works on it.
    client: Option<OwnedMutexGuard<Client>>,
    backoff: Backoff,
    link: Option<Link>,
    /// The time of the next attempt to connect.
    connect_at: Instant,
    /// The time at which the stream was opened.
    opened: Option<Instant>,
    /// The time since which the connection is in sync: it has answered, or has nothing to add.
    connected: Option<Instant>,
    /// The time of the last answer of this stream.
    answered: Option<Instant>,
    /// After its last answer an upstream has this long to answer the other types, which it may not know at all.
    last_answer: Duration,
    trouble: String,
    log: FindingsLog,
    /// Every type was answered once, or will not be: the content can be delivered.
    is_ready: bool,
    delivery: Delivery,
}

/// The reason why the task wakes.
enum Wake {
    Asked(Request),
    Connect,
    Link(Event),
    Time,
}

impl Run {
    async fn run(mut self) -> anyhow::Result<()> {
        loop {
            self.deliver().await?;
            self.report();
            match self.wait().await {
                Wake::Asked(Request::Stop) => return Ok(()),
                Wake::Asked(Request::Resync) => self.delivery.owe_full(),
                Wake::Asked(Request::Confirm) => self.client()?.confirm(),
                Wake::Connect => self.connect()?,
                Wake::Link(Event::Opened) => self.opened = Some(Instant::now()),
                Wake::Link(Event::Answer(answer)) => self.take(answer).await?,
                Wake::Link(Event::Ended(reason)) => self.lose(reason),
                Wake::Time => self.look_at_quiet()?,
            }
        }
    }

    fn client(&mut self) -> anyhow::Result<&mut Client> {
        let client = self.client.as_mut().context(LOST)?;
        Ok(&mut *client)
    }

    async fn wait(&mut self) -> Wake {
        let now = Instant::now();
        let retry = self.delivery.retry_at(now).filter(|_| self.is_ready);
        let grace = self.answered.filter(|_| !self.is_ready).map(|at| at + self.last_answer);
        let held = self.client.as_ref().and_then(|c| c.held_until());
        let quiet = self.opened.filter(|_| self.connected.is_none()).map(|at| at + QUIET);
        let at =
            [retry, grace, held, quiet.filter(|at| *at > now)].into_iter().flatten().fold(now + BEAT, Instant::min);
        let (link, connect_at) = (&mut self.link, self.connect_at);
        let connection = async {
            match link {
                Some(link) => Wake::Link(link.next().await),
                None => {
                    tokio::time::sleep_until(connect_at.into()).await;
                    Wake::Connect
                }
            }
        };
        tokio::select! {
            biased;
            request = self.delivery.request() => Wake::Asked(request),
            wake = connection => wake,
            () = tokio::time::sleep_until(at.into()) => Wake::Time,
        }
    }

    fn connect(&mut self) -> anyhow::Result<()> {
        let client = self.client()?;
        let (protocol, first) = (client.protocol(), client.open());
        self.link = Some(Link::open(self.target.clone(), protocol, first));
        Ok(())
    }

    /// An upstream that knows the versions that we hold may have nothing to add.
    fn look_at_quiet(&mut self) -> anyhow::Result<()> {
        let open = self.opened.is_some_and(|at| at.elapsed() >= QUIET);
        let client = self.client()?;
        if open && client.protocol() == Protocol::Delta && client.is_settled() {
            client.mark_answered();
            self.trouble.clear();
            self.connected.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Takes an answer in, off the async threads: it may hold a hundred thousand objects.
    async fn take(&mut self, answer: super::Answer) -> anyhow::Result<()> {
        let mut client = self.client.take().context(LOST)?;
        let before = client.unanswered().count();
        let (client, reply) = tokio::task::spawn_blocking(move || {
            let reply = client.receive(answer);
            (client, reply)
        })
        .await?;
        if client.unanswered().count() < before {
            // Saved content that stood in for the kind is replaced by a full snapshot only.
            self.delivery.owe_full();
        }
        self.log.log(client.findings());
        self.client = Some(client);
        let now = Instant::now();
        self.answered = Some(now);
        self.connected.get_or_insert(now);
        self.trouble.clear();
        let read = reply.is_none_or(|reply| self.link.as_ref().is_some_and(|link| link.reply(reply)));
        if !read {
            self.lose("the upstream does not read replies".to_string());
        }
        Ok(())
    }

    /// The connection has ended: the content stays.
    fn lose(&mut self, reason: String) {
        // A type that a stream left out was not answered.
        (self.link, self.opened, self.answered) = (None, None, None);
        if self.connected.take().is_some_and(|since| since.elapsed() >= GOOD) {
            self.backoff.reset();
        }
        let pause = self.backoff.next_pause();
        self.connect_at = Instant::now() + pause;
        counter!("pilothouse_upstream_disconnects", "source" => self.id.to_string()).increment(1);
        self.trouble = reason;
    }

    /// Delivers the changes; none before every type was answered once, or will not be.
    async fn deliver(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let rest_is_unknown = self.answered.is_some_and(|at| now >= at + self.last_answer);
        let Some(client) = &mut self.client else { bail!(LOST) };
        let forgotten: HashSet<ConfigKey> = client.take_forgotten().into_iter().collect();
        if !forgotten.is_empty() {
            let saved = self.delivery.saved().await.into_iter();
            client.recall(saved.filter(|config| forgotten.contains(&config.key())));
        }
        let change = client.commit(now);
        self.is_ready |= client.is_complete() || rest_is_unknown;
        if !self.is_ready {
            return Ok(());
        }
        // The store's keeper of saved content completes a full snapshot with saved objects of these.
        let unanswered: Vec<String> = client.unanswered().map(Kind::gvk).collect();
        self.delivery.board().write(|report| report.unanswered = unanswered);
        if self.delivery.send(change, || client.in_force()).await {
            client.settle();
        }
        Ok(())
    }

    fn report(&self) {
        let Some(client) = &self.client else { return };
        let unanswered = client.unanswered().count();
        let is_connected = self.connected.is_some();
        let trouble = match () {
            () if !self.trouble.is_empty() => self.trouble.clone(),
            () if is_connected && unanswered > 0 && self.is_ready => format!("{unanswered} types are not answered"),
            () if is_connected && unanswered > 0 => FIRST_ANSWERS.to_string(),
            () => String::new(),
        };
        let status = Status {
            objects: client.len(),
            is_stale: !is_connected,
            trouble: trouble.clone(),
            held: client.held().iter().map(ToString::to_string).collect(),
            kept: client.kept().iter().map(ToString::to_string).collect(),
            findings: Some(self.log.last().clone()),
        };
        if self.delivery.report(status, |_| {}) && trouble != FIRST_ANSWERS {
            tracing::warn!(source = &*self.id, error = trouble, "upstream not in sync; its last content stays");
        }
    }
}
