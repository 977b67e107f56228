//! The actor that writes the ConfigMaps.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Supervised, Supervisor, WrapFuture};
use futures::future::join_all;
use tokio::{sync::watch, time::Instant};

use super::{NAME, RootConfigMaps, lacking};
use crate::{
    identity::trust::Trust,
    model::{ConfigSnapshot, Mesh},
    runtime::{ActorHealth, Supervision},
    sources::WriteError,
};

/// Writes under way.
const AT_ONCE: usize = 8;
/// The pause after a change of the inputs: more come with it.
const SETTLED: Duration = Duration::from_millis(200);
/// The pause after a failure in one namespace.
const AGAIN: Duration = Duration::from_secs(10);

/// The inputs: the objects, the mesh settings, the authority.
pub struct Readers {
    /// The objects.
    pub configs: watch::Receiver<Arc<ConfigSnapshot>>,
    /// The mesh settings.
    pub mesh: watch::Receiver<Arc<Mesh>>,
    /// The authority in force.
    pub trust: watch::Receiver<Arc<Trust>>,
}

/// Writes the ConfigMaps.
pub struct RootConfigMapsActor {
    maps: Arc<dyn RootConfigMaps>,
    readers: Readers,
    /// Namespaces that were written or refused, with the roots and the time until which nothing is tried again: the watch
    /// brings our own writes a moment later.
    tried: BTreeMap<Arc<str>, (Arc<str>, Instant)>,
    /// The last failure, told once.
    failed: String,
    actor_health: ActorHealth,
}

impl RootConfigMapsActor {
    /// Starts the actor.
    pub fn start(supervision: &Supervision, maps: Arc<dyn RootConfigMaps>, readers: Readers) -> Addr<Self> {
        let actor_health = supervision.admit("root-config-maps");
        Supervisor::start(move |_| Self { maps, readers, tried: BTreeMap::new(), failed: String::new(), actor_health })
    }

    fn look(&mut self, context: &mut Context<Self>) {
        let now = Instant::now();
        let roots: Arc<str> = self.readers.trust.borrow_and_update().authority.roots().into();
        let configs = self.readers.configs.borrow_and_update().clone();
        let mesh = self.readers.mesh.borrow_and_update().clone();
        let lacking = self.actor_health.guard(context, || lacking(&configs, &mesh, &roots)).unwrap_or_default();
        self.tried.retain(|namespace, (of, until)| *until > now && *of == roots && lacking.contains(namespace));
        let due: Vec<Arc<str>> =
            lacking.into_iter().filter(|namespace| !self.tried.contains_key(namespace)).take(AT_ONCE).collect();
        let is_full = due.len() == AT_ONCE;
        let writes = due.into_iter().map(|namespace| {
            let write = self.maps.write(&namespace, &roots);
            async move { (namespace, write.await) }
        });
        let written = join_all(writes.collect::<Vec<_>>());
        context.spawn(written.into_actor(self).map(move |written, actor, context| {
            actor.take(written, &roots);
            actor.wait(context, is_full);
        }));
    }

    fn take(&mut self, written: Vec<(Arc<str>, Result<(), WriteError>)>, roots: &Arc<str>) {
        for (namespace, written) in written {
            let error = match written {
                // The namespace is being deleted.
                Ok(()) | Err(WriteError::Gone) => String::new(),
                Err(error) => error.to_string(),
            };
            if !error.is_empty() && error != self.failed {
                tracing::warn!(namespace = &*namespace, error, "the roots are not told to a namespace ({NAME})");
            }
            self.failed = error;
            self.tried.insert(namespace, (roots.clone(), Instant::now() + AGAIN));
        }
    }

    fn wait(&self, context: &mut Context<Self>, is_full: bool) {
        let Readers { configs, mesh, trust } = &self.readers;
        let (mut configs, mut mesh, mut trust) = (configs.clone(), mesh.clone(), trust.clone());
        let next = async move {
            if is_full {
                return;
            }
            // The other rooms end after this one.
            tokio::select! {
                _ = configs.changed() => {}
                _ = mesh.changed() => {}
                _ = trust.changed() => {}
                () = tokio::time::sleep(AGAIN) => {}
            }
            tokio::time::sleep(SETTLED).await;
        };
        context.spawn(next.into_actor(self).map(|(), actor, context| actor.look(context)));
    }
}

impl Actor for RootConfigMapsActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.actor_health.started(context, |actor: &mut Self, _| {
            actor.actor_health.up();
            actor.actor_health.recovered();
        });
        self.look(context);
    }
}

impl Supervised for RootConfigMapsActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.actor_health.restarting();
    }
}
