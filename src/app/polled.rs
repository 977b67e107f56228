//! Polled sources: they read the context in force (host names of gateways between networks, locations of key sets and of
//! trust bundles), and feed the next one.

use tokio::sync::watch;

use super::{keys, names, process::Process, trust_bundles};
use crate::{
    discovery::XdsServerHandle,
    identity::IssuedTokens,
    settings::Settings,
    sources::{SourceHandle, SourceStarter},
};

/// The last publication whose demand each polled source has answered.
pub(super) struct Answered {
    pub(super) names: watch::Receiver<u64>,
    pub(super) keys: watch::Receiver<u64>,
}

/// The polled sources that were started.
pub(super) struct Polled {
    pub(super) handles: Vec<SourceHandle>,
    pub(super) answered: Answered,
}

/// Starts the polled sources; `issued` tells of the issuer whose keys are fetched.
pub(super) fn start(
    process: &Process,
    settings: &Settings,
    xds: &XdsServerHandle,
    starter: &SourceStarter,
    issued: Option<&IssuedTokens>,
) -> Polled {
    let (names, keys) =
        (names::source(&settings.sources.names, &process.inputs, xds), keys::source(&process.inputs, xds));
    let issuer_keys = issued.and_then(|issued| keys::of_issuer(issued, &process.inputs));
    let bundles = trust_bundles::source(&process.inputs, xds);
    let answered = Answered { names: names.answered(), keys: keys.answered() };
    let stop = || process.shutdown.child();
    let mut handles = vec![starter.start(names, stop()), starter.start(keys, stop())];
    handles.extend(issuer_keys.map(|keys| starter.start(keys, stop())));
    handles.push(starter.start(bundles, stop()));
    Polled { handles, answered }
}
