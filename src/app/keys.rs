//! Keys of RequestAuthentications: their locations are read from the context in force, and the keys are an input of the
//! next context.

use std::sync::Arc;

use super::Inputs;
use crate::{
    discovery::{XdsServerHandle, XdsState},
    generate::request_authentication,
    model::{PushRequest, Reason, XdsUpdater},
    sources::{
        keys::{HttpFetch, KeyRules, KeySource},
        polled::Demand,
    },
};

/// The source of these keys.
pub(super) fn source(state: &XdsState, inputs: &Arc<Inputs>, xds: &XdsServerHandle) -> Arc<KeySource> {
    let (published, inputs, xds) = (state.clone(), inputs.clone(), xds.clone());
    let read = move || published.current().map(|p| request_authentication::wanted_keys(&p.context)).unwrap_or_default();
    let demand = Demand { level: state.publications(), read: Box::new(read) };
    let rules = KeyRules::new(inputs.features.jwt_pub_key_refresh_interval);
    let fetch = HttpFetch::new(&inputs.features.blocked_cidrs_in_jwks_uris.0);
    Arc::new(KeySource::new(rules, demand, fetch, move |keys| {
        inputs.set_keys(keys);
        xds.config_update(PushRequest::everything(Reason::Unknown));
    }))
}
