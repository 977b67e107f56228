//! The actor that owns the authority: it looks at the files again and again, and publishes what is in force.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Supervised, Supervisor, WrapFuture};
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;

use super::{
    authority::{Authority, IssueError, Lifetimes, Material},
    trust::{Trust, TrustError, TrustSettings},
    workloads::{CertificateHold, Holders, Workloads},
};
use crate::{
    model::{Identity, WorkloadCertificates},
    runtime::{ActorHealth, Supervision},
};

/// The pause between two looks at the files.
const PAUSE: Duration = Duration::from_secs(5);

/// Puts the certificates of connected workloads in force.
pub type CertificatePublisher = Arc<dyn Fn(Arc<WorkloadCertificates>) + Send + Sync>;

/// Owns the authority.
pub struct AuthorityActor {
    settings: Arc<TrustSettings>,
    memory: Option<Material>,
    published: watch::Sender<Arc<Trust>>,
    server: watch::Sender<Arc<ServerConfig>>,
    holders: Arc<Holders>,
    workloads: Workloads,
    lifetime: Duration,
    publish: CertificatePublisher,
    /// The last failure, told once.
    failed: String,
    actor_health: ActorHealth,
}

/// What other rooms have of the authority.
#[derive(Clone)]
pub struct AuthorityHandle {
    trust: watch::Receiver<Arc<Trust>>,
    server: watch::Receiver<Arc<ServerConfig>>,
    lifetimes: Lifetimes,
    holders: Arc<Holders>,
    /// The actor lives as long as its handles.
    _address: Addr<AuthorityActor>,
}

impl std::fmt::Debug for AuthorityHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthorityHandle").field("lifetimes", &self.lifetimes).finish_non_exhaustive()
    }
}

impl AuthorityHandle {
    /// The authority in force.
    #[must_use]
    pub fn authority(&self) -> Arc<Authority> {
        self.trust.borrow().authority.clone()
    }

    /// TLS of the secure listener, to follow.
    #[must_use]
    pub fn server(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.server.clone()
    }

    /// Has a certificate issued for this identity, and renewed for as long as it is held.
    #[must_use]
    pub fn hold(&self, identity: &Identity) -> CertificateHold {
        self.holders.hold(identity)
    }

    /// Signs a request for a certificate of this identity; `seconds` is the lifetime that it asks for. The answer holds the
    /// certificate, the chain above it and the roots, each in PEM, as Istio's agent reads it. One audit line tells of it.
    ///
    /// # Errors
    /// [`IssueError`] when the request is refused.
    pub fn sign(&self, request: &str, identity: &Identity, seconds: i64) -> Result<Vec<String>, IssueError> {
        let now = SystemTime::now();
        let lifetime = self.lifetimes.of(seconds)?;
        let authority = self.authority();
        let issued = authority.sign(request, identity, lifetime, now)?;
        issued.audit(identity, now);
        Ok(vec![issued.chain, authority.roots().to_string()])
    }
}

impl AuthorityActor {
    /// Starts the actor with what the files hold now.
    ///
    /// # Errors
    /// [`TrustError`] when there is nothing that could be in force.
    pub async fn start(
        supervision: &Supervision,
        settings: TrustSettings,
        lifetimes: Lifetimes,
        publish: CertificatePublisher,
    ) -> Result<AuthorityHandle, TrustError> {
        let settings = Arc::new(settings);
        let (first, memory) = load(settings.clone(), None, None).await;
        let first = first?;
        let roots = authority_end(&first);
        let (server, server_reader) = watch::channel(first.server.clone());
        tracing::info!(origin = ?first.origin, root_valid_for = roots, "the certificate authority is in force");
        let (published, trust) = watch::channel(first);
        let actor_health = supervision.admit("certificate-authority");
        let holders = Arc::<Holders>::default();
        let shared = holders.clone();
        let address = Supervisor::start(move |_| Self {
            settings,
            memory,
            published,
            server,
            holders: shared,
            workloads: Workloads::default(),
            lifetime: lifetimes.default,
            publish,
            failed: String::new(),
            actor_health,
        });
        Ok(AuthorityHandle { trust, server: server_reader, lifetimes, holders, _address: address })
    }

    fn look(&mut self, context: &mut Context<Self>) {
        let last = self.published.borrow().clone();
        let (settings, memory) = (self.settings.clone(), self.memory.take());
        let look = async move {
            let loaded = load(settings, memory, Some(last)).await;
            tokio::time::sleep(PAUSE).await;
            loaded
        };
        context.spawn(look.into_actor(self).map(|(loaded, memory), actor, context| {
            actor.memory = memory;
            actor.take(loaded);
            actor.issue(context);
            actor.look(context);
        }));
    }

    /// Issues as soon as an identity is new.
    fn follow(&self, context: &mut Context<Self>) {
        let holders = self.holders.clone();
        let wanted = async move { holders.wanted.notified().await };
        context.spawn(wanted.into_actor(self).map(|(), actor, context| {
            actor.issue(context);
            actor.follow(context);
        }));
    }

    fn issue(&mut self, context: &mut Context<Self>) {
        let authority = self.published.borrow().authority.clone();
        let (workloads, holders, lifetime) = (&mut self.workloads, &self.holders, self.lifetime);
        let looked =
            self.actor_health.guard(context, || workloads.look(holders, &authority, lifetime, SystemTime::now()));
        let Some(looked) = looked else { return };
        if let Some(error) = looked.failed {
            tracing::error!(%error, "workload certificates are not issued");
        }
        if let Some(certificates) = looked.changed {
            (self.publish)(certificates);
        }
        if looked.more {
            self.holders.wanted.notify_one();
        }
    }

    fn take(&mut self, loaded: Result<Arc<Trust>, TrustError>) {
        match loaded {
            Ok(trust) => {
                if !std::mem::take(&mut self.failed).is_empty() {
                    tracing::info!("the files of the certificate authority are whole again");
                }
                if Arc::ptr_eq(&trust, &self.published.borrow()) {
                    return;
                }
                let root_valid_for = authority_end(&trust);
                tracing::info!(origin = ?trust.origin, root_valid_for, "a new certificate authority is in force");
                self.server.send_replace(trust.server.clone());
                self.published.send_replace(trust);
            }
            Err(error) => {
                let text = error.to_string();
                if text != self.failed {
                    tracing::error!(error = text, "the certificate authority stays the last good one");
                    self.failed = text;
                }
            }
        }
    }
}

fn authority_end(trust: &Trust) -> u64 {
    let end = trust.authority.not_after();
    let since_1970 = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    metrics::gauge!("citadel_server_root_cert_expiry_timestamp").set(since_1970 as f64);
    end.duration_since(SystemTime::now()).unwrap_or_default().as_secs()
}

/// Reads files on a thread of its own.
async fn load(
    settings: Arc<TrustSettings>,
    memory: Option<Material>,
    last: Option<Arc<Trust>>,
) -> (Result<Arc<Trust>, TrustError>, Option<Material>) {
    let kept = memory.clone();
    let read = tokio::task::spawn_blocking(move || {
        let mut memory = memory;
        let loaded = Trust::load(&settings, &mut memory, last.as_ref(), SystemTime::now());
        (loaded, memory)
    });
    read.await.unwrap_or_else(|error| {
        let error = std::io::Error::other(error.to_string());
        (Err(TrustError::File("certificate authority".into(), error)), kept)
    })
}

impl Actor for AuthorityActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.actor_health.started(context, |actor: &mut Self, _| {
            actor.actor_health.up();
            actor.actor_health.recovered();
        });
        self.look(context);
        self.follow(context);
    }
}

impl Supervised for AuthorityActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.actor_health.restarting();
        // Every certificate is issued anew: its key is nowhere else.
        self.workloads = Workloads::default();
    }
}
