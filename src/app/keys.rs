//! Keys of RequestAuthentications: their locations are read from the context in force, and the keys are an input of the
//! next context. Keys of the issuer of clients' tokens: their location is given once, and tokens are judged by them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::watch;

use super::Inputs;
use crate::{
    discovery::XdsServerHandle,
    generate::request_authentication,
    identity::IssuedTokens,
    model::{PushRequest, Reason, XdsUpdater},
    sources::{
        keys::{HttpFetch, IssuerKeyRules, IssuerKeySource, KeyRules, KeySource},
        polled::Demand,
    },
};

/// The time that a fetch of the issuer's keys may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The source of the keys of clients' tokens; `None` where the rule holds them.
pub(super) fn of_issuer(tokens: &IssuedTokens, inputs: &Inputs) -> Option<Arc<IssuerKeySource>> {
    let wanted = BTreeMap::from([(tokens.rule().location()?.clone(), PATIENCE)]);
    let (unchanged, level) = watch::channel(0);
    let read = move || {
        // The level is followed for as long as its sender lives.
        let _ = &unchanged;
        wanted.clone()
    };
    let demand = Demand { level, read: Box::new(read) };
    let rules = IssuerKeyRules(KeyRules::new(inputs.features.jwt_pub_key_refresh_interval));
    let fetch = HttpFetch::new(&inputs.features.blocked_cidrs_in_jwks_uris.0);
    let (taken, hasten) = (tokens.clone(), tokens.refetch());
    let take = move |keys: Arc<BTreeMap<_, Arc<str>>>| taken.set_keys(keys.values().next().map(|text| &**text));
    Some(Arc::new(IssuerKeySource::hastened(rules, demand, fetch, take, hasten)))
}

/// The source of the keys of RequestAuthentications.
pub(super) fn source(inputs: &Arc<Inputs>, xds: &XdsServerHandle) -> Arc<KeySource> {
    let (published, inputs, xds) = (xds.state().clone(), inputs.clone(), xds.clone());
    let level = published.publications();
    let read = move || published.current().map(|p| request_authentication::wanted_keys(&p.context)).unwrap_or_default();
    let demand = Demand { level, read: Box::new(read) };
    let rules = KeyRules::new(inputs.features.jwt_pub_key_refresh_interval);
    let fetch = HttpFetch::new(&inputs.features.blocked_cidrs_in_jwks_uris.0);
    Arc::new(KeySource::new(rules, demand, fetch, move |keys| {
        inputs.set_keys(keys);
        xds.config_update(PushRequest::everything(Reason::Unknown));
    }))
}
