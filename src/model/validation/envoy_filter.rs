//! EnvoyFilter: each patch needs a target, a match and an operation that fit, and a value that fits the patched message.

mod names;
mod value;

use super::{check::Check, header, names as selectors};
use crate::proto::networking::{
    EnvoyFilter,
    envoy_filter::{
        ApplyTo, EnvoyConfigObjectPatch, ListenerMatch, PatchContext, envoy_config_object_match::ObjectTypes,
        patch::Operation,
    },
};

/// Maximum length of a version expression; Istio ignores longer ones.
const LONGEST_VERSION: usize = 1024;
const MANAGER: [&str; 2] = ["envoy.filters.network.http_connection_manager", "envoy.http_connection_manager"];

pub(super) fn validate(c: &mut Check, filter: &EnvoyFilter) {
    c.warn("EnvoyFilter reaches into details that may change with every version; prefer another API where one does it");
    selectors::selector(c, "workloadSelector", filter.workload_selector.as_ref().map(|s| &s.labels));
    c.each("configPatches", &filter.config_patches, patch);
}

fn patch(c: &mut Check, patch: &EnvoyConfigObjectPatch) {
    let condition = patch.r#match.as_ref();
    if condition.is_some_and(|m| m.context() == PatchContext::Waypoint) {
        return;
    }
    let apply_to = patch.apply_to();
    if apply_to == ApplyTo::Invalid {
        return c.error("applyTo must be set");
    }
    let Some(change) = &patch.patch else { return c.error("patch must be set") };
    match (change.operation(), &change.value) {
        (Operation::Invalid, _) => return c.error("patch.operation must be set"),
        (Operation::Remove, _) | (_, Some(_)) => {}
        (_, None) => return c.error("patch.value must be set for every operation but REMOVE"),
    }
    let version = condition.and_then(|m| m.proxy.as_ref()).map_or("", |p| p.proxy_version.as_str());
    if version.len() > LONGEST_VERSION {
        c.warn("match.proxy.proxyVersion is longer than 1024 characters and is ignored");
    } else if let Err(error) = header::regex(version) {
        return c.error(format_args!("match.proxy.proxyVersion: {error}"));
    }
    if let Some(object) = condition.and_then(|m| m.object_types.as_ref())
        && !object_match(c, apply_to, object)
    {
        return;
    }
    if let Some(given) = &change.value {
        c.at("patch.value", |c| value::validate(c, apply_to, given));
    }
}

/// Whether the match fits `applyTo`; `false` ends the validation of the patch.
fn object_match(c: &mut Check, apply_to: ApplyTo, object: &ObjectTypes) -> bool {
    match (apply_to, object) {
        (
            ApplyTo::Listener | ApplyTo::FilterChain | ApplyTo::NetworkFilter | ApplyTo::HttpFilter,
            ObjectTypes::Listener(listener),
        ) => return listener_match(c, apply_to, listener),
        (ApplyTo::Listener | ApplyTo::FilterChain | ApplyTo::NetworkFilter | ApplyTo::HttpFilter, _) => {
            c.error("applyTo is of listeners: match.listener is the only match that fits");
            return false;
        }
        (ApplyTo::RouteConfiguration | ApplyTo::VirtualHost | ApplyTo::HttpRoute, object) => c.need(
            matches!(object, ObjectTypes::RouteConfiguration(_)),
            "applyTo is of routes: match.routeConfiguration is the only match that fits",
        ),
        (ApplyTo::Cluster, object) => c.need(
            matches!(object, ObjectTypes::Cluster(_)),
            "applyTo is of clusters: match.cluster is the only match that fits",
        ),
        _ => {}
    }
    true
}

fn listener_match(c: &mut Check, apply_to: ApplyTo, listener: &ListenerMatch) -> bool {
    let Some(filter) = listener.filter_chain.as_ref().and_then(|chain| chain.filter.as_ref()) else { return true };
    if matches!(apply_to, ApplyTo::Listener | ApplyTo::FilterChain) {
        c.warn(format_args!("a match on a filter has no effect with applyTo {}", apply_to.as_str_name()));
    }
    let refusal = match &filter.sub_filter {
        _ if filter.name.is_empty() => Some("match.listener.filterChain.filter needs a name"),
        Some(_) if apply_to != ApplyTo::HttpFilter => Some("subFilter is for applyTo HTTP_FILTER only"),
        Some(_) if !MANAGER.contains(&filter.name.as_str()) => {
            Some("subFilter needs a match on envoy.filters.network.http_connection_manager")
        }
        Some(sub_filter) if sub_filter.name.is_empty() => Some("subFilter needs a name"),
        _ => None,
    };
    if let Some(text) = refusal {
        c.error(text);
        return false;
    }
    let sub_filter = filter.sub_filter.as_ref().map_or("", |s| s.name.as_str());
    for name in [filter.name.as_str(), sub_filter] {
        if let Some(current) = names::current(name) {
            c.warn(format_args!("filter name {name:?} is deprecated; use {current:?}"));
        }
    }
    true
}
