//! Patches of EnvoyFilters whose operation is ignored, or whose effect depends on the order of other patches.

use super::{code::Code, message::Report, world::World};
use crate::{
    model::Kind,
    proto::{
        networking::envoy_filter::{
            ApplyTo, EnvoyConfigObjectPatch, envoy_config_object_match::ObjectTypes, patch::Operation,
        },
        wkt,
    },
};

const RELATIVE: &str = "This EnvoyFilter does not have a priority and has a relative patch operation set which can cause the \
                        EnvoyFilter not to be applied. Using the INSERT_FIRST of ADD option or setting the priority may help \
                        in ensuring the EnvoyFilter is applied correctly.";
const RELATIVE_FOR_VERSION: &str = "This EnvoyFilter does not have a priority and has a relative patch operation \
                                    (NSTERT_BEFORE/AFTER, REPLACE, MERGE, DELETE) and proxyVersion set which can cause the \
                                    EnvoyFilter not to be applied during an upgrade. Using the INSERT_FIRST or ADD option or \
                                    setting the priority may help in ensuring the EnvoyFilter is applied correctly.";

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    // Names that patches for one version of the proxy change.
    let mut versioned: Vec<String> = Vec::new();
    for (index, config) in world.list(Kind::EnvoyFilter) {
        let Some(filter) = config.envoy_filter() else { continue };
        for (i, patch) in filter.config_patches.iter().enumerate() {
            let Some(change) = &patch.patch else { break };
            let name = name_of(patch);
            let is_route = matches!(patch.apply_to(), ApplyTo::RouteConfiguration | ApplyTo::HttpRoute);
            let is_replaced =
                matches!(patch.apply_to(), ApplyTo::NetworkFilter | ApplyTo::HttpFilter | ApplyTo::VirtualHost);
            let relative = || {
                let is_versioned = versioned.contains(&name);
                let (code, text) = if is_versioned {
                    (Code::EnvoyFilterUsesRelativeOperationWithProxyVersion, RELATIVE_FOR_VERSION)
                } else {
                    (Code::EnvoyFilterUsesRelativeOperation, RELATIVE)
                };
                (filter.priority == 0).then_some((code, text))
            };
            let ignored = |operation: &str| {
                format!(
                    "The {operation} operation will be ignored when applyTo is set to ROUTE_CONFIGURATION, or HTTP_ROUTE."
                )
            };
            let found: Option<(Code, String)> = match change.operation() {
                Operation::Add if is_route => Some((Code::EnvoyFilterUsesAddOperationIncorrectly, ignored("ADD"))),
                Operation::Remove if is_route => {
                    Some((Code::EnvoyFilterUsesRemoveOperationIncorrectly, ignored("REMOVE")))
                }
                Operation::Replace if !is_replaced => Some((
                    Code::EnvoyFilterUsesReplaceOperationIncorrectly,
                    "The REPLACE operation is only valid for HTTP_FILTER and NETWORK_FILTER.".to_string(),
                )),
                Operation::Remove | Operation::Replace | Operation::InsertBefore | Operation::InsertAfter => {
                    relative().map(|(code, text)| (code, text.to_string()))
                }
                _ => None,
            };
            if let Some((code, text)) = found {
                report.add(code, index, format!("spec.configPatches[{i}].patch"), text);
            }
            let version = patch.r#match.as_ref().and_then(|m| m.proxy.as_ref()).map(|proxy| &proxy.proxy_version);
            if version.is_some_and(|version| !version.is_empty()) {
                versioned.push(name);
            }
        }
    }
}

/// The name of the thing that a patch brings or, where it brings none, of the filter that it looks for.
fn name_of(patch: &EnvoyConfigObjectPatch) -> String {
    let value = patch.patch.as_ref().and_then(|change| change.value.as_ref());
    let Some(value) = value.filter(|value| !value.fields.is_empty()) else { return String::new() };
    if let Some(wkt::value::Kind::StringValue(name)) = value.fields.get("name").and_then(|name| name.kind.as_ref()) {
        return name.clone();
    }
    let of_match = || match patch.r#match.as_ref()?.object_types.as_ref()? {
        ObjectTypes::Listener(listener) => Some(listener.filter_chain.as_ref()?.filter.as_ref()?.name.clone()),
        _ => None,
    };
    of_match().unwrap_or_default()
}
