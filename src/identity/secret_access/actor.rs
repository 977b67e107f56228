//! The actor that asks the clusters and publishes the answers.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Supervised, Supervisor, WrapFuture};
use futures::future::join_all;

use super::{AT_ONCE, AccessPublisher, AccessReviewer, Answers};
use crate::{
    identity::holders::{Holders, SecretReaderHold},
    model::{SecretAccess, SecretReader},
    runtime::{ActorHealth, Supervision},
};

/// The pause between two looks for due questions.
const PAUSE: Duration = Duration::from_secs(1);

/// Asks, and publishes the answers.
pub struct SecretAccessActor {
    reviewer: Arc<dyn AccessReviewer>,
    holders: Arc<Holders<SecretReader>>,
    answers: Answers,
    publish: AccessPublisher,
    published: Arc<SecretAccess>,
    /// The last failure, told once.
    failed: String,
    actor_health: ActorHealth,
}

/// The clients that ask for Secrets.
#[derive(Clone)]
pub struct SecretAccessHandle {
    holders: Arc<Holders<SecretReader>>,
    /// The actor lives as long as its handles.
    _address: Addr<SecretAccessActor>,
}

impl std::fmt::Debug for SecretAccessHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretAccessHandle").finish_non_exhaustive()
    }
}

impl SecretAccessHandle {
    /// Has the workload's cluster asked about it, for as long as it is held.
    #[must_use]
    pub fn hold(&self, reader: &SecretReader) -> SecretReaderHold {
        self.holders.hold(reader)
    }
}

impl SecretAccessActor {
    /// Starts the actor. No workload may read Secrets before an answer.
    pub fn start(
        supervision: &Supervision,
        reviewer: Arc<dyn AccessReviewer>,
        publish: AccessPublisher,
    ) -> SecretAccessHandle {
        let holders = Arc::<Holders<SecretReader>>::default();
        let (shared, actor_health) = (holders.clone(), supervision.admit("secret-access"));
        let published = Arc::new(Answers::default().in_force());
        publish(published.clone());
        let address = Supervisor::start(move |_| Self {
            reviewer,
            holders: shared,
            answers: Answers::default(),
            publish,
            published,
            failed: String::new(),
            actor_health,
        });
        SecretAccessHandle { holders, _address: address }
    }

    /// Asks the due questions, publishes, and looks again after a pause or when a workload is new.
    fn look(&mut self, context: &mut Context<Self>) {
        let due = self.answers.due(&self.holders.current(SystemTime::now()), SystemTime::now());
        let is_full = due.len() == AT_ONCE;
        let questions = due.into_iter().map(|reader| {
            let question = self.reviewer.may_list_secrets(&reader);
            async move { (reader, question.await) }
        });
        let asked = join_all(questions.collect::<Vec<_>>());
        context.spawn(asked.into_actor(self).map(move |answers, actor, context| {
            actor.take(answers, context);
            actor.wait(context, is_full);
        }));
    }

    fn wait(&self, context: &mut Context<Self>, is_full: bool) {
        let holders = self.holders.clone();
        let next = async move {
            if !is_full {
                let _ = tokio::time::timeout(PAUSE, holders.wanted.notified()).await;
            }
        };
        context.spawn(next.into_actor(self).map(|(), actor, context| actor.look(context)));
    }

    fn take(&mut self, answers: Vec<(SecretReader, Result<bool, String>)>, context: &mut Context<Self>) {
        let now = SystemTime::now();
        let mut failed = None;
        for (reader, answer) in answers {
            if let Err(error) = &answer {
                failed = Some(error.clone());
            } else {
                self.failed.clear();
            }
            self.answers.note(reader, answer.ok(), now);
        }
        if let Some(error) = failed.filter(|error| *error != self.failed) {
            tracing::warn!(
                error,
                "a cluster does not tell the service accounts that may read Secrets; its last answers stay"
            );
            self.failed = error;
        }
        let in_force = self.answers.in_force();
        if in_force != *self.published {
            self.published = Arc::new(in_force);
            let (publish, published) = (self.publish.clone(), self.published.clone());
            self.actor_health.guard(context, || publish(published));
        }
    }
}

impl Actor for SecretAccessActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.actor_health.started(context, |actor: &mut Self, _| {
            actor.actor_health.up();
            actor.actor_health.recovered();
        });
        self.look(context);
    }
}

impl Supervised for SecretAccessActor {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.actor_health.restarting();
    }
}
