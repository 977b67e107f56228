//! The names of the route configurations that listeners refer to: the names that their proxy will subscribe to.

use std::collections::BTreeSet;

use prost::{Message, Name};

use crate::proto::envoy::{
    config::listener::v3::{Filter, Listener, filter::ConfigType},
    extensions::filters::network::http_connection_manager::v3::{
        HttpConnectionManager, http_connection_manager::RouteSpecifier,
    },
};

/// The names, sorted. Default filter chains count too: a listener that its application calls directly ends in one with routes
/// where the protocol is guessed.
#[must_use]
pub fn route_names(listeners: &[Listener]) -> Vec<String> {
    let chains = listeners.iter().flat_map(|l| l.filter_chains.iter().chain(&l.default_filter_chain));
    let filters = chains.flat_map(|c| &c.filters);
    filters.filter_map(of_filter).collect::<BTreeSet<_>>().into_iter().collect()
}

fn of_filter(filter: &Filter) -> Option<String> {
    let Some(ConfigType::TypedConfig(any)) = &filter.config_type else { return None };
    (any.type_url == HttpConnectionManager::type_url()).then_some(())?;
    match HttpConnectionManager::decode(any.value.as_slice()).ok()?.route_specifier? {
        RouteSpecifier::Rds(rds) => Some(rds.route_config_name),
        _ => None,
    }
}
