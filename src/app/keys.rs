//! Keys of RequestAuthentications: which ones there are is read from the context in force, and they are one of the inputs of
//! the next.

use std::sync::Arc;

use super::Inputs;
use crate::{
    discovery::{XdsServerHandle, XdsState},
    generate::request_authentication,
    model::{PushRequest, Reason, XdsUpdater, key_set::KeySets},
    sources::keys::{HttpFetch, KeySink, KeySource, WantedKeys},
};

struct InForce {
    inputs: Arc<Inputs>,
    xds: XdsServerHandle,
}

impl KeySink for InForce {
    fn apply(&self, keys: Arc<KeySets>) {
        self.inputs.set_keys(keys);
        self.xds.config_update(PushRequest::everything(Reason::Unknown));
    }
}

/// The source of these keys.
pub(super) fn source(state: &XdsState, inputs: &Arc<Inputs>, xds: &XdsServerHandle) -> Arc<KeySource> {
    let (published, features) = (state.clone(), &inputs.features);
    let read = move || published.current().map(|p| request_authentication::wanted_keys(&p.context)).unwrap_or_default();
    let wanted = WantedKeys { level: state.publications(), read: Arc::new(read) };
    let sink = Arc::new(InForce { inputs: inputs.clone(), xds: xds.clone() });
    let fetcher = Arc::new(HttpFetch::new(&features.blocked_cidrs_in_jwks_uris.0));
    Arc::new(KeySource::new(features.jwt_pub_key_refresh_interval, wanted, fetcher, sink))
}
