//! The actor that owns the authority: it reads the files again and again, and publishes the authority in force.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Supervised, Supervisor, WrapFuture};
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;

use super::{
    authority::{Authority, IssueError, Lifetimes},
    client_certificate::ClientRoots,
    cluster_root::ClusterRoot,
    holders::{Holders, IdentityHold},
    reading::{self, Memory},
    root_config_maps::{Readers, RootConfigMaps, RootConfigMapsActor},
    trust::{Trust, TrustError, TrustSettings},
    workloads::Workloads,
};
use crate::{
    model::{ConfigSnapshot, Identity, Mesh, WorkloadCertificates},
    runtime::{ActorHealth, Supervision},
};

/// The pause between two looks at the files.
const PAUSE: Duration = Duration::from_secs(5);

/// Puts the certificates of connected workloads in force.
pub type CertificatePublisher = Arc<dyn Fn(Arc<WorkloadCertificates>) + Send + Sync>;

/// The inputs of the authority, and its readers.
pub struct AuthoritySetup {
    /// The files and rules of the authority and of the secure listener.
    pub settings: TrustSettings,
    /// The Secrets of the cluster, where there is one.
    pub cluster: Option<ClusterRoot>,
    /// The lifetimes of certificates that it signs.
    pub lifetimes: Lifetimes,
    /// Puts the certificates of connected workloads in force.
    pub publish: CertificatePublisher,
    /// The roots of client certificates are published here.
    pub roots: ClientRoots,
}

/// The inputs of the ConfigMaps that tell each namespace the roots.
#[derive(Debug, Clone)]
pub struct NamespaceReaders {
    /// The objects in force, whose namespaces are told.
    pub configs: watch::Receiver<Arc<ConfigSnapshot>>,
    /// The mesh settings in force.
    pub mesh: watch::Receiver<Arc<Mesh>>,
}

/// Owns the authority.
pub struct AuthorityActor {
    settings: Arc<TrustSettings>,
    cluster: Option<ClusterRoot>,
    memory: Memory,
    published: watch::Sender<Arc<Trust>>,
    server: watch::Sender<Arc<ServerConfig>>,
    roots: ClientRoots,
    holders: Arc<Holders>,
    workloads: Workloads,
    lifetime: Duration,
    publish: CertificatePublisher,
    /// The last failure, told once.
    failed: String,
    actor_health: ActorHealth,
}

/// Handles of the authority for other rooms.
#[derive(Clone)]
pub struct AuthorityHandle {
    trust: watch::Receiver<Arc<Trust>>,
    server: watch::Receiver<Arc<ServerConfig>>,
    lifetimes: Lifetimes,
    holders: Arc<Holders>,
    /// The actors live as long as the handles.
    _address: Addr<AuthorityActor>,
    _config_maps: Option<Addr<RootConfigMapsActor>>,
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

    /// Tells the namespaces of a cluster the roots, by a ConfigMap in each.
    #[must_use]
    pub fn telling_namespaces(
        mut self,
        supervision: &Supervision,
        maps: Arc<dyn RootConfigMaps>,
        NamespaceReaders { configs, mesh }: NamespaceReaders,
    ) -> Self {
        let readers = Readers { configs, mesh, trust: self.trust.clone() };
        self._config_maps = Some(RootConfigMapsActor::start(supervision, maps, readers));
        self
    }

    /// TLS of the secure listener, to follow.
    #[must_use]
    pub fn server(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.server.clone()
    }

    /// Has a certificate issued for this identity, and renewed for as long as it is held.
    #[must_use]
    pub fn hold(&self, identity: &Identity) -> IdentityHold {
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
    /// Starts the actor with the present content of the files.
    ///
    /// # Errors
    /// [`TrustError`] when there is nothing that could be in force.
    pub async fn start(supervision: &Supervision, setup: AuthoritySetup) -> Result<AuthorityHandle, TrustError> {
        let AuthoritySetup { settings, cluster, lifetimes, publish, roots } = setup;
        let settings = Arc::new(settings);
        let (first, memory) = reading::first(&settings, cluster.as_ref()).await?;
        let root_valid_for = authority_end(&first);
        let (server, server_reader) = watch::channel(first.server.clone());
        tracing::info!(origin = ?first.origin, root_valid_for, "the certificate authority is in force");
        tell_roots_without_list(&first);
        roots.publish(first.clients.clone());
        let (published, trust) = watch::channel(first);
        let actor_health = supervision.admit("certificate-authority");
        let holders = Arc::<Holders>::default();
        let shared = holders.clone();
        let address = Supervisor::start(move |_| Self {
            settings,
            cluster,
            memory,
            published,
            server,
            roots,
            holders: shared,
            workloads: Workloads::default(),
            lifetime: lifetimes.default,
            publish,
            failed: String::new(),
            actor_health,
        });
        Ok(AuthorityHandle { trust, server: server_reader, lifetimes, holders, _address: address, _config_maps: None })
    }

    fn look(&mut self, context: &mut Context<Self>) {
        let last = self.published.borrow().clone();
        let (settings, cluster) = (self.settings.clone(), self.cluster.clone());
        let memory = std::mem::take(&mut self.memory);
        let look = async move {
            let loaded = reading::next(settings, cluster, memory, Some(last)).await;
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
                tell_roots_without_list(&trust);
                self.server.send_replace(trust.server.clone());
                self.roots.publish(trust.clients.clone());
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

fn tell_roots_without_list(trust: &Trust) {
    let roots = trust.authority.roots_without_list();
    if !roots.is_empty() {
        tracing::warn!(?roots, "ca-crl.pem has no list of these roots: proxies refuse every peer below them");
    }
}

fn authority_end(trust: &Trust) -> u64 {
    let end = trust.authority.not_after();
    let since_1970 = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    metrics::gauge!("citadel_server_root_cert_expiry_timestamp").set(since_1970 as f64);
    end.duration_since(SystemTime::now()).unwrap_or_default().as_secs()
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
