//! The names of the extension configurations that listeners refer to: the names that their proxy will subscribe to over ECDS.

use std::collections::BTreeSet;

use prost::{Message, Name};

use crate::proto::envoy::{
    config::listener::v3::{
        Filter, Listener, ListenerFilter, filter::ConfigType, listener_filter::ConfigType as ListenerConfigType,
    },
    extensions::filters::network::http_connection_manager::v3::{
        HttpConnectionManager, HttpFilter, http_filter::ConfigType as HttpConfigType,
    },
};

/// The names, sorted.
#[must_use]
pub fn extension_names(listeners: &[Listener]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for listener in listeners {
        names.extend(listener.listener_filters.iter().filter_map(of_listener_filter));
        let chains = listener.filter_chains.iter().chain(&listener.default_filter_chain);
        for filter in chains.flat_map(|chain| &chain.filters) {
            match &filter.config_type {
                Some(ConfigType::ConfigDiscovery(_)) => drop(names.insert(filter.name.clone())),
                _ => names.extend(http_filters(filter).iter().filter_map(of_http_filter)),
            }
        }
    }
    names.into_iter().collect()
}

fn http_filters(filter: &Filter) -> Vec<HttpFilter> {
    let Some(ConfigType::TypedConfig(any)) = &filter.config_type else { return Vec::new() };
    if any.type_url != HttpConnectionManager::type_url() {
        return Vec::new();
    }
    HttpConnectionManager::decode(any.value.as_slice()).map(|manager| manager.http_filters).unwrap_or_default()
}

fn of_http_filter(filter: &HttpFilter) -> Option<String> {
    matches!(filter.config_type, Some(HttpConfigType::ConfigDiscovery(_))).then(|| filter.name.clone())
}

fn of_listener_filter(filter: &ListenerFilter) -> Option<String> {
    matches!(filter.config_type, Some(ListenerConfigType::ConfigDiscovery(_))).then(|| filter.name.clone())
}
