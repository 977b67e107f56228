//! The supervised actor that owns the set of remote clusters: the clusters that are named, in; sources started and stopped.
//!
//! A change is made in three steps: the set is changed, with the sources that come and go noted in it; the register of
//! sources is told; the sources are started. Each step may be repeated, so a change that a fault cut short is completed by
//! the next one. The set outlives a restart of the actor, since the sources in it do.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use actix::{
    Actor, ActorFuture, ActorFutureExt, AsyncContext, AtomicResponse, Context, Handler, Message, Supervised,
    Supervisor, WrapFuture, fut,
};
use futures::{
    FutureExt,
    future::{BoxFuture, join_all},
};
use tokio::sync::watch;

use super::{
    RemoteClusters,
    followed::FollowedCluster,
    set::{Announced, RemoteSetup, change, first, naming, start_sources},
};
use crate::{
    model::Interrupted,
    runtime::{ActorHealth, Mailbox, Supervision, catch_task},
    sources::{
        SourceHandle,
        kube::{RemoteClusterSink, Wanted},
    },
};

/// Pause before the first clusters are tried again when the register was interrupted.
const RETRY: Duration = Duration::from_secs(1);

/// The clusters that are named now; all others that were named are gone. The reply waits for the first ones, if it is asked.
#[derive(Message)]
#[rtype(result = "Result<Option<BoxFuture<'static, ()>>, Interrupted>")]
struct Follow(Wanted);

/// Owns the set of remote clusters.
pub struct RemoteClustersActor {
    setup: RemoteSetup,
    clusters: BTreeMap<String, FollowedCluster>,
    naming: Option<SourceHandle>,
    has_begun: bool,
    /// The clusters were named once.
    were_named: bool,
    published: watch::Sender<Arc<RemoteClusters>>,
    actor_health: ActorHealth,
}

/// The handle of the remote clusters: a mailbox for changes, and the list to read.
#[derive(Clone)]
pub struct RemoteClustersHandle {
    mailbox: Mailbox<RemoteClustersActor>,
    published: watch::Receiver<Arc<RemoteClusters>>,
}

impl RemoteClustersActor {
    /// Starts the actor on this thread of actix. It follows the clusters of the command line, and those of the last process
    /// until the Secrets or files that name others were read.
    #[must_use]
    pub fn start(supervision: &Supervision, setup: RemoteSetup) -> RemoteClustersHandle {
        let actor_health = supervision.admit("remote-clusters");
        let (queue, published) = (actor_health.queue(), watch::Sender::default());
        let reader = published.subscribe();
        let address = Supervisor::start(move |_| Self {
            setup,
            clusters: BTreeMap::new(),
            naming: None,
            has_begun: false,
            were_named: false,
            published,
            actor_health,
        });
        RemoteClustersHandle { mailbox: Mailbox::new(address, queue), published: reader }
    }

    /// Follows the first clusters, again until that is done.
    fn begin(&mut self, context: &mut Context<Self>) {
        let (setup, clusters) = (&self.setup, &mut self.clusters);
        let Some(announced) = self.actor_health.run(context, || first(setup, clusters)) else { return };
        let done = self.complete(announced).map(|done, actor, context| {
            if done.is_ok() {
                actor.follow_names(context);
            } else if !actor.actor_health.is_down() {
                context.run_later(RETRY, Self::begin);
            }
        });
        context.wait(done);
    }

    /// Starts the source that names clusters.
    fn follow_names(&mut self, context: &mut Context<Self>) {
        let main = self.setup.main.clone().filter(|main| main.cluster.settings().registry);
        if let (Some(main), None) = (main, &self.naming) {
            let handle = RemoteClustersHandle {
                mailbox: self.actor_health.mailbox(context),
                published: self.published.subscribe(),
            };
            let source = naming(&self.setup, &main.cluster, Arc::new(handle));
            self.naming = Some(self.setup.starter.start(source, self.setup.shutdown.child()));
        }
        self.has_begun = true;
        self.publish();
    }

    /// Tells the register of the sources that come and go, and starts those that come.
    fn complete(&self, announced: Announced) -> impl ActorFuture<Self, Output = Result<(), Interrupted>> + 'static {
        self.publish();
        let register = self.setup.register.clone();
        let told = async move {
            for source in announced.gone {
                register.remove(source).await?;
            }
            for source in announced.expected {
                register.expect(source).await?;
            }
            Ok::<(), Interrupted>(())
        };
        catch_task(told).into_actor(self).map(|told, actor, context| {
            match told {
                Ok(told) => told?,
                Err(panicked) => {
                    actor.actor_health.fault(context, &panicked);
                    return Err(Interrupted);
                }
            }
            let (setup, clusters) = (&actor.setup, &mut actor.clusters);
            let started = actor.actor_health.run(context, || start_sources(setup, clusters));
            actor.publish();
            started.ok_or(Interrupted)
        })
    }

    fn publish(&self) {
        let main = self.setup.main.as_ref().map(|main| (main.cluster.id().clone(), main.sources.clone()));
        self.published.send_replace(Arc::new(RemoteClusters {
            clusters: self.clusters.values().filter(|c| !c.is_leaving).cloned().collect(),
            main,
            naming: self.naming.clone(),
            patience: self.setup.settings.patience,
            has_begun: self.has_begun,
        }));
    }
}

impl Actor for RemoteClustersActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        if self.actor_health.is_down() {
            self.actor_health.started(context, |actor: &mut Self, context| {
                actor.actor_health.up();
                if !actor.has_begun {
                    actor.begin(context);
                }
            });
        } else {
            self.begin(context);
        }
    }
}

impl Supervised for RemoteClustersActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.actor_health.restarting();
    }
}

impl Handler<Follow> for RemoteClustersActor {
    type Result = AtomicResponse<Self, Result<Option<BoxFuture<'static, ()>>, Interrupted>>;

    fn handle(&mut self, Follow(wanted): Follow, context: &mut Self::Context) -> Self::Result {
        let (setup, clusters) = (&self.setup, &mut self.clusters);
        let Some(announced) = self.actor_health.guard(context, || change(setup, clusters, wanted)) else {
            return AtomicResponse::new(Box::pin(fut::ready(Err(Interrupted))));
        };
        AtomicResponse::new(Box::pin(self.complete(announced).map(|done, actor, _| {
            done?;
            actor.actor_health.recovered();
            if std::mem::replace(&mut actor.were_named, true) {
                return Ok(None);
            }
            let patience = actor.setup.settings.patience;
            let named = actor.clusters.values().filter(|cluster| !cluster.is_flagged).cloned();
            let waits: Vec<_> = named.map(|cluster| cluster.synced(patience)).collect();
            Ok(Some(join_all(waits).map(drop).boxed()))
        })))
    }
}

impl RemoteClustersHandle {
    /// The clusters that are followed, and their changes.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<Arc<RemoteClusters>> {
        self.published.clone()
    }

    /// Waits until the first clusters have delivered, or have taken too long about it.
    pub async fn synced(&self) {
        let mut published = self.published.clone();
        let first = published.wait_for(|remotes| remotes.has_begun).await.map(|remotes| remotes.clone());
        if let Ok(first) = first {
            first.synced().await;
        }
    }
}

impl RemoteClusterSink for RemoteClustersHandle {
    fn follow(&self, wanted: Wanted) -> BoxFuture<'static, Result<(), Interrupted>> {
        let mailbox = self.mailbox.clone();
        async move {
            if let Some(first) = mailbox.send(Follow(wanted)).await.map_err(|_| Interrupted)?? {
                first.await;
            }
            Ok(())
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
