//! The source's task: keeps a connection, lets the client decide, hands over what changed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use metrics::counter;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::{
    client::{Client, Protocol},
    link::{Event, Link},
    target::Target,
};
use crate::{
    model::Kind,
    runtime::Backoff,
    settings::UpstreamSettings,
    sources::{Change, Source, SourceBatch, SourceId, SourcePort, SourceState, Teller},
};

/// Longest pause between attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A connection that lasted so long was a good one: the next pause is the shortest again.
const GOOD: Duration = Duration::from_secs(30);
/// Pause before a full snapshot is tried again when nobody asks for it.
const RETRY: Duration = Duration::from_secs(1);
/// A stream that is open for so long without an answer has nothing to tell: the upstream was told what we hold.
const QUIET: Duration = Duration::from_secs(2);
/// How often there is a sign of life.
const BEAT: Duration = Duration::from_secs(5);

/// An upstream as a source.
#[derive(Debug)]
pub struct UpstreamSource {
    id: SourceId,
    target: Arc<Target>,
    first_pause: Duration,
    last_answer: Duration,
    /// What is known of the upstream; a restart goes on with it.
    client: Arc<Mutex<Client>>,
}

impl UpstreamSource {
    /// An upstream as a source. Mass deletions are held for `hold`.
    #[must_use]
    pub fn new(target: Target, settings: &UpstreamSettings, hold: Duration) -> Self {
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
                teller: Teller::new(id.clone()),
                id,
                target,
                delivered: client.is_settled(),
                full: client.is_settled(),
                client: Some(client),
                backoff,
                link: None,
                connect_at: Instant::now(),
                opened: None,
                connected: None,
                answered: None,
                last_answer,
                trouble: String::new(),
                port,
            };
            run.run().await
        })
    }
}

struct Run {
    id: SourceId,
    target: Arc<Target>,
    /// Taken out while a blocking thread works on it.
    client: Option<OwnedMutexGuard<Client>>,
    backoff: Backoff,
    link: Option<Link>,
    /// When to connect, while there is no connection.
    connect_at: Instant,
    /// Since when there is a stream.
    opened: Option<Instant>,
    /// Since when there is a connection that answers, or has nothing to tell.
    connected: Option<Instant>,
    /// When the last answer of this stream came.
    answered: Option<Instant>,
    /// After its last answer an upstream has this long to answer the other types, which it may not know at all.
    last_answer: Duration,
    trouble: String,
    teller: Teller,
    /// The store has had everything once.
    delivered: bool,
    /// The next batch must be a full snapshot.
    full: bool,
    port: SourcePort,
}

/// Why the task wakes.
enum Wake {
    Stop,
    Resync,
    Confirm,
    Connect,
    Link(Event),
    Time,
}

impl Run {
    async fn run(mut self) -> anyhow::Result<()> {
        loop {
            self.hand_over().await?;
            self.report();
            match self.wait().await {
                Wake::Stop => return Ok(()),
                Wake::Resync => self.full = true,
                Wake::Confirm => self.client()?.confirm(),
                Wake::Connect => self.connect()?,
                Wake::Link(Event::Opened) => self.opened = Some(Instant::now()),
                Wake::Link(Event::Answer(answer)) => self.take(answer).await?,
                Wake::Link(Event::Ended(reason)) => self.lose(reason),
                Wake::Time => self.look_at_quiet()?,
            }
        }
    }

    fn client(&mut self) -> anyhow::Result<&mut Client> {
        let client = self.client.as_mut().ok_or_else(|| anyhow::anyhow!("the client was lost in a fault"))?;
        Ok(&mut *client)
    }

    async fn wait(&mut self) -> Wake {
        let now = Instant::now();
        let retry = (self.full && self.delivered).then(|| now + RETRY);
        let grace = self.answered.filter(|_| !self.delivered).map(|at| at + self.last_answer);
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
            () = self.port.stop.cancelled() => Wake::Stop,
            () = self.port.resync.notified() => Wake::Resync,
            () = self.port.confirm.notified() => Wake::Confirm,
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

    /// An upstream that knows what we hold may have nothing to add.
    fn look_at_quiet(&mut self) -> anyhow::Result<()> {
        let open = self.opened.is_some_and(|at| at.elapsed() >= QUIET);
        let client = self.client()?;
        if open && client.protocol() == Protocol::Delta && client.is_settled() {
            client.calm();
            self.trouble.clear();
            self.connected.get_or_insert_with(Instant::now);
        }
        Ok(())
    }

    /// Takes an answer in, off the async threads: it may hold a hundred thousand objects.
    async fn take(&mut self, answer: super::Answer) -> anyhow::Result<()> {
        let mut client = self.client.take().ok_or_else(|| anyhow::anyhow!("the client was lost in a fault"))?;
        let before = client.unanswered().count();
        let (client, reply) = tokio::task::spawn_blocking(move || {
            let reply = client.receive(answer);
            (client, reply)
        })
        .await?;
        if self.delivered && client.unanswered().count() < before {
            // What stood in for the kind until now goes with a whole snapshot only.
            self.full = true;
        }
        self.teller.tell(client.findings());
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

    /// The connection is gone: what it brought stays.
    fn lose(&mut self, reason: String) {
        // What a stream left out is no answer.
        (self.link, self.opened, self.answered) = (None, None, None);
        if self.connected.take().is_some_and(|since| since.elapsed() >= GOOD) {
            self.backoff.reset();
        }
        let pause = self.backoff.next_pause();
        self.connect_at = Instant::now() + pause;
        counter!("pilothouse_upstream_disconnects", "source" => self.id.to_string()).increment(1);
        if self.trouble != reason {
            tracing::warn!(source = &*self.id, reason, "no connection to the upstream; its last content stays");
        }
        self.trouble = reason;
    }

    /// Hands over what changed. Nothing is handed over before everything is known once.
    async fn hand_over(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let rest_is_unknown = self.answered.is_some_and(|at| now >= at + self.last_answer);
        let delivered = self.delivered;
        let client = self.client()?;
        let change = client.commit(now);
        let ready = delivered || client.is_complete() || rest_is_unknown;
        if !ready {
            return Ok(());
        }
        let full = !delivered || self.full;
        let change = if full { Change::Full(self.client()?.in_force()) } else { change };
        if change.is_empty() {
            return Ok(());
        }
        let unanswered: Vec<String> = self.client()?.unanswered().map(Kind::gvk).collect();
        self.port.board.write(|report| report.unanswered = unanswered);
        match self.port.sink.apply(SourceBatch { source: self.id.clone(), change }).await {
            Ok(_) => {
                self.delivered = true;
                self.full = false;
                self.client()?.settle();
            }
            Err(interrupted) => {
                tracing::warn!(source = &*self.id, error = %interrupted, "batch not taken, a full snapshot follows");
                self.delivered = true;
                self.full = true;
            }
        }
        Ok(())
    }

    fn report(&mut self) {
        let Some(client) = &self.client else { return };
        let (held, kept) = (client.held(), client.kept());
        let unanswered = client.unanswered().count();
        let delivered = self.delivered && !self.full;
        let trouble = match () {
            () if !self.trouble.is_empty() => self.trouble.clone(),
            () if self.connected.is_some() && unanswered > 0 => format!("{unanswered} types are not answered"),
            () => String::new(),
        };
        self.port.board.write(|report| {
            // Before the first delivery whoever else put content in force says how the source is.
            if delivered {
                report.state = match () {
                    () if !held.is_empty() => SourceState::Holding,
                    () if self.connected.is_none() => SourceState::Stale,
                    () => SourceState::Synced,
                };
            }
            if report.held_deletions.is_empty() && !held.is_empty() {
                tracing::warn!(source = &*self.id, objects = held.len(), "mass deletion held back");
            }
            report.last_error = trouble;
            if delivered || report.saved_at.is_none() {
                report.objects = client.len();
            }
            report.held_deletions = held.iter().map(ToString::to_string).collect();
            report.kept = kept.iter().map(ToString::to_string).collect();
            report.findings = self.teller.told().clone();
        });
        self.port.board.beat();
    }
}
