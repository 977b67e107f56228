//! Patches of network filters, and of the HTTP filters inside connection managers.

use std::sync::Arc;

use prost::{Message, Name};

use super::{Patching, lists, matching, merge};
use crate::{
    proto::{
        envoy::{
            config::listener::v3::{Filter, FilterChain, Listener, filter::ConfigType},
            extensions::filters::{
                http::router::v3::Router,
                network::http_connection_manager::v3::{
                    HttpConnectionManager, HttpFilter, http_filter::ConfigType as HttpConfigType,
                },
            },
        },
        networking::envoy_filter::{ApplyTo, patch::Operation},
        wkt,
    },
    push::envoy_filters::Patch,
};

const MANAGER: &str = "envoy.filters.network.http_connection_manager";

/// Network filters that answer connections themselves: Envoy wants them last.
const TERMINAL: [&str; 5] = [
    "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy",
    "envoy.extensions.filters.network.echo.v3.Echo",
    "envoy.extensions.filters.network.direct_response.v3.Config",
];

fn config(filter: &Filter) -> Option<&wkt::Any> {
    match filter.config_type.as_ref()? {
        ConfigType::TypedConfig(any) => Some(any),
        ConfigType::ConfigDiscovery(_) => None,
    }
}

fn http_config(filter: &HttpFilter) -> Option<&wkt::Any> {
    match filter.config_type.as_ref()? {
        HttpConfigType::TypedConfig(any) => Some(any),
        HttpConfigType::ConfigDiscovery(_) => None,
    }
}

fn manager(filter: &Filter) -> Option<HttpConnectionManager> {
    let packed = config(filter).filter(|any| any.type_url == HttpConnectionManager::type_url())?;
    HttpConnectionManager::decode(packed.value.as_slice()).ok()
}

/// Whether the last filters of a chain, and only those, answer connections and requests.
pub(super) fn terminal_last(chain: &FilterChain) -> Result<(), String> {
    let type_of = |any: &wkt::Any| any.type_url.rsplit('/').next().unwrap_or_default().to_string();
    let is_terminal = |filter: &Filter| config(filter).is_some_and(|any| TERMINAL.contains(&type_of(any).as_str()));
    let before_last = chain.filters.len().saturating_sub(1);
    if let Some(early) = chain.filters.iter().take(before_last).find(|filter| is_terminal(filter)) {
        return Err(format!("a filter stands behind {}, which Envoy wants last", early.name));
    }
    for manager in chain.filters.iter().filter_map(manager) {
        let is_router = |filter: &HttpFilter| http_config(filter).is_some_and(|any| any.type_url == Router::type_url());
        let before_last = manager.http_filters.len().saturating_sub(1);
        if let Some(early) = manager.http_filters.iter().take(before_last).find(|filter| is_router(filter)) {
            return Err(format!("an HTTP filter stands behind {}, which Envoy wants last", early.name));
        }
    }
    Ok(())
}

fn is_for(patch: &Patch, listener: &Listener, chain: &FilterChain) -> bool {
    matching::listener(patch, listener) && matching::filter_chain(patch, listener, chain)
}

/// Patches the network filters of a chain.
pub(super) fn network(patching: &Patching<'_>, listener: &Listener, chain: &mut FilterChain) {
    let mut filters = std::mem::take(&mut chain.filters);
    for patch in patching.patches(ApplyTo::NetworkFilter) {
        if patch.operation != Operation::Merge && is_for(patch, listener, chain) {
            let wanted = matching::network_filter(patch);
            let matches = |filter: &Filter| matching::is_named(wanted, &filter.name);
            lists::change(patching, patch, &mut filters, wanted.is_some(), matches);
        }
    }
    for filter in &mut filters {
        for patch in patching.patches(ApplyTo::NetworkFilter).filter(|patch| patch.operation == Operation::Merge) {
            if is_for(patch, listener, chain) && matching::is_named(matching::network_filter(patch), &filter.name) {
                let name = format!("filter {} of listener {}", filter.name, listener.name);
                if let Some(result) = merge_filter(filter, patch) {
                    patching.done(patch, &name, result);
                }
            }
        }
        if filter.name == MANAGER {
            http(patching, listener, chain, filter);
        }
    }
    chain.filters = filters;
}

/// `None` for a filter without configuration, which is left as it is.
fn merge_filter(filter: &mut Filter, patch: &Patch) -> Option<Result<(), String>> {
    let given: Filter = patch.value.as_ref()?.decoded();
    let merged = match config(&given) {
        Some(from) => Some(merge::any(config(filter)?, from)),
        None => config(filter).map(|own| Ok(own.clone())),
    }?;
    Some(merged.map(|merged| {
        filter.config_type = Some(ConfigType::TypedConfig(merged));
        if !given.name.is_empty() {
            filter.name = given.name;
        }
    }))
}

fn merge_http_filter(filter: &mut HttpFilter, patch: &Patch) -> Option<Result<(), String>> {
    let given: HttpFilter = patch.value.as_ref()?.decoded();
    let merged = match http_config(&given) {
        Some(from) => Some(merge::any(http_config(filter)?, from)),
        None => http_config(filter).map(|own| Ok(own.clone())),
    }?;
    Some(merged.map(|merged| {
        filter.config_type = Some(HttpConfigType::TypedConfig(merged));
        if !given.name.is_empty() {
            filter.name = given.name;
        }
    }))
}

/// Patches the HTTP filters of a connection manager, which stays as it is packed where nothing changes.
fn http(patching: &Patching<'_>, listener: &Listener, chain: &FilterChain, filter: &mut Filter) {
    let is_for = |patch: &Arc<Patch>| {
        is_for(patch, listener, chain) && matching::is_named(matching::network_filter(patch), &filter.name)
    };
    let patches: Vec<&Arc<Patch>> = patching.patches(ApplyTo::HttpFilter).filter(|patch| is_for(patch)).collect();
    if patches.is_empty() {
        return;
    }
    let Some(mut manager) = manager(filter) else { return };
    let before = manager.http_filters.clone();
    let wanted_of = |patch: &Patch| matching::http_filter(patch).map(str::to_string);
    for patch in patches.iter().filter(|patch| patch.operation != Operation::Merge) {
        let wanted = wanted_of(patch);
        let matches = |filter: &HttpFilter| matching::is_named(wanted.as_deref(), &filter.name);
        lists::change(patching, patch, &mut manager.http_filters, wanted.is_some(), matches);
    }
    for filter in &mut manager.http_filters {
        for patch in patches.iter().filter(|patch| patch.operation == Operation::Merge) {
            if matching::is_named(matching::http_filter(patch), &filter.name) {
                let name = format!("HTTP filter {} of listener {}", filter.name, listener.name);
                if let Some(result) = merge_http_filter(filter, patch) {
                    patching.done(patch, &name, result);
                }
            }
        }
    }
    if manager.http_filters != before {
        let packed = wkt::Any { type_url: HttpConnectionManager::type_url(), value: manager.encode_to_vec() };
        filter.config_type = Some(ConfigType::TypedConfig(packed));
    }
}
