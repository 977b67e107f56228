//! Host names of gateways between networks: the names are read from the context in force, and their addresses are an input
//! of the next context.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};

use super::Inputs;
use crate::{
    discovery::{XdsServerHandle, XdsState},
    model::{PushRequest, Reason, XdsUpdater},
    settings::NameSettings,
    sources::{
        names::{Dns, NameRules, NameSource},
        polled::Demand,
    },
};

/// The time that the start waits for name servers and key servers that do not answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// The source of these addresses.
pub(super) fn source(
    settings: &NameSettings,
    state: &XdsState,
    inputs: &Arc<Inputs>,
    xds: &XdsServerHandle,
) -> Arc<NameSource> {
    let (published, inputs, xds) = (state.clone(), inputs.clone(), xds.clone());
    let read = move || {
        let published = published.current();
        let names = published.iter().flat_map(|p| p.context.network_gateways.names.iter());
        names.map(|name| (name.clone(), ())).collect()
    };
    let demand = Demand { level: state.publications(), read: Box::new(read) };
    Arc::new(NameSource::new(NameRules::new(settings), demand, Dns::new(settings), move |names| {
        inputs.set_names(names);
        xds.config_update(PushRequest::everything(Reason::Networks));
    }))
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
