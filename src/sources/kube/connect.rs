//! The client of a cluster: from a kubeconfig or from inside, built when it is first needed, built again when it may be the
//! credentials that are wrong.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};

use super::answers::{Answers, Observe};
use crate::settings::{KubeAccess, KubeSettings};

/// How long a connection may take to stand.
const CONNECT: Duration = Duration::from_secs(10);
/// A watch that the server does not end in its time is ended by us this much later.
const WATCH_MARGIN: Duration = Duration::from_secs(5);

/// Why there is no client.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(String);

/// Makes clients of one cluster.
pub(super) struct Connection {
    access: KubeAccess,
    observe: Observe,
    client: Mutex<Option<Client>>,
}

impl Connection {
    pub(super) fn new(settings: &KubeSettings) -> Self {
        let observe = Observe {
            answers: Arc::default(),
            limit: settings.list_timeout,
            watch_limit: settings.watch_timeout + WATCH_MARGIN,
        };
        Self { access: settings.access.clone(), observe, client: Mutex::default() }
    }

    /// What the server answered.
    pub(super) fn answers(&self) -> &Answers {
        &self.observe.answers
    }

    /// The client; files are read when there is none.
    pub(super) async fn client(&self) -> Result<Client, ConnectError> {
        if let Some(client) = self.lock().clone() {
            return Ok(client);
        }
        let mut config = config(&self.access).await?;
        // Retries inside the client would hide every failure, and its pauses; time limits of reads would end quiet watches.
        config.default_retry = false;
        config.read_timeout = None;
        config.connect_timeout = Some(CONNECT);
        let builder = ClientBuilder::try_from(config).map_err(|e| ConnectError(e.to_string()))?;
        let client = builder.with_layer(&self.observe).build();
        Ok(self.lock().get_or_insert(client).clone())
    }

    /// The next client is built from what the files say then.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn config(access: &KubeAccess) -> Result<Config, ConnectError> {
    match access {
        KubeAccess::InCluster => {
            let config = Config::incluster().map_err(|e| ConnectError(format!("in-cluster configuration: {e}")))?;
            Ok(config)
        }
        KubeAccess::Kubeconfig { path, context } => {
            let wrong = |e: &dyn std::fmt::Display| ConnectError(format!("kubeconfig {}: {e}", path.display()));
            let file: PathBuf = path.clone();
            let read = tokio::task::spawn_blocking(move || Kubeconfig::read_from(file)).await;
            let kubeconfig = read.map_err(|e| wrong(&e))?.map_err(|e| wrong(&e))?;
            let options = KubeConfigOptions { context: context.clone(), ..KubeConfigOptions::default() };
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|e| wrong(&e))
        }
    }
}
