//! Policies that refuse more than they say, since a part that they need is missing: an external authorizer or keys; and
//! Telemetries and EnvoyFilters that do less than they say.

use std::sync::Arc;

use crate::{
    generate::{authorization, listener::telemetry, request_authentication},
    model::{Config, Kind},
    push::PushContext,
};

/// The policies, each with the reason in one word and in a sentence.
pub fn unmet_policies(context: &PushContext) -> impl Iterator<Item = (&Arc<Config>, &'static str, String)> {
    let custom = context.inputs.configs.list(Kind::AuthorizationPolicy).iter().filter_map(|config| {
        let error = authorization::provider_error(context, config)?;
        Some((config, "ProviderNotUsable", format!("the requests that it is for are refused: {error}")))
    });
    let tokens = context.inputs.configs.list(Kind::RequestAuthentication).iter().filter_map(|config| {
        let missing = request_authentication::missing_keys(context, config);
        let places = missing.iter().map(|at| at.as_str()).collect::<Vec<_>>().join(", ");
        (!missing.is_empty())
            .then(|| (config, "KeysMissing", format!("no token is valid, keys are not known yet: {places}")))
    });
    let telemetries = context.inputs.configs.list(Kind::Telemetry).iter();
    let telemetries =
        telemetries.filter_map(|config| Some((config, "NotWholeInForce", telemetry::unmet(context, config)?)));
    let patches = context.inputs.configs.list(Kind::EnvoyFilter).iter().filter_map(|config| {
        let faults = context.envoy_filters.faults_of(config);
        (!faults.is_empty()).then(|| (config, "PatchSkipped", faults.join("; ")))
    });
    custom.chain(tokens).chain(telemetries).chain(patches)
}
