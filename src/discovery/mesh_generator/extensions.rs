//! Extension configurations, which filters of listeners ask for by name.

use std::sync::Arc;

use super::super::{
    generator::Slot,
    omission::{NOT_LOADED, Omission},
};
use crate::{
    generate::{check::Refusal, extension},
    model::ConfigKey,
    proto::networking::envoy_filter::ApplyTo,
    push::{ProxyView, PushContext, envoy_filters::Patch},
    xds::Resource,
};

/// The configurations of these names. A name without one gets no answer: the proxy keeps what it has.
pub(super) fn named(context: &PushContext, slot: &Slot, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
    let identity = slot.identity.as_ref();
    let made = names.iter().filter_map(|name| extension::configuration(context, &slot.view, name, identity));
    made.map(|config| Arc::new(Resource::encode(config.name.as_str(), &config))).collect()
}

/// The object that says the configuration of this name: an EnvoyFilter that adds it, or an extension.
pub(super) fn object_of(context: &PushContext, view: &ProxyView, name: &str) -> Option<ConfigKey> {
    let adds = |patch: &&Arc<Patch>| patch.value.as_ref().is_some_and(|value| value.name == name);
    let patch = view.patches.of(ApplyTo::ExtensionConfig).iter().find(adds);
    patch.map(|patch| patch.filter.clone()).or_else(|| extension::object_of(context, view, name))
}

/// Extensions that the proxy cannot load.
pub(super) fn omissions(context: &PushContext, view: &ProxyView) -> Vec<Omission> {
    let of = |Refusal { object, message }: Refusal| {
        let resource = object.as_ref().map(ToString::to_string).unwrap_or_default();
        Omission { metric: NOT_LOADED, resource, message, object }
    };
    extension::not_loaded(context, view).into_iter().map(of).collect()
}
