//! Host names of gateways between networks: which ones there are is read from the context in force, and their addresses are
//! one of the inputs of the next.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};

use super::Inputs;
use crate::{
    discovery::{XdsServerHandle, XdsState},
    model::{PushRequest, Reason, ResolvedNames, XdsUpdater},
    settings::NameSettings,
    sources::names::{Dns, NameSink, NameSource, WantedNames},
};

/// How long the start waits for name servers that do not answer.
const PATIENCE: Duration = Duration::from_secs(15);

struct InForce {
    inputs: Arc<Inputs>,
    xds: XdsServerHandle,
}

impl NameSink for InForce {
    fn apply(&self, names: Arc<ResolvedNames>) {
        self.inputs.set_names(names);
        self.xds.config_update(PushRequest::everything(Reason::Networks));
    }
}

/// The source of these addresses.
pub(super) fn source(
    settings: &NameSettings,
    state: &XdsState,
    inputs: &Arc<Inputs>,
    xds: &XdsServerHandle,
) -> Arc<NameSource> {
    let published = state.clone();
    let read = move || published.current().map(|p| p.context.network_gateways.names.clone()).unwrap_or_default();
    let wanted = WantedNames { level: state.publications(), read: Arc::new(read) };
    let sink = Arc::new(InForce { inputs: inputs.clone(), xds: xds.clone() });
    Arc::new(NameSource::new(settings, wanted, Arc::new(Dns::new(settings)), sink))
}

/// Waits until each name, and each key set, of the next publication has had an answer or a failure.
pub(super) async fn resolved(mut publications: watch::Receiver<u64>, [names, keys]: [watch::Receiver<u64>; 2]) {
    if publications.changed().await.is_err() {
        return;
    }
    let number = *publications.borrow();
    let in_time = |mut answered: watch::Receiver<u64>| async move {
        timeout(PATIENCE, answered.wait_for(|level| *level >= number)).await.is_ok()
    };
    let (names, keys) = tokio::join!(in_time(names), in_time(keys));
    if !names {
        tracing::warn!("ready although name servers have not answered for all gateways between networks");
    }
    if !keys {
        tracing::warn!("ready although servers have not answered for all keys of RequestAuthentications");
    }
}
