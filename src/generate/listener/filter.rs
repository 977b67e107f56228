//! Filters of a connection and of a request, with a typed configuration.

use prost::Name;
use serde_json::{Value, json};

use crate::{
    model::Features,
    proto::{
        envoy::{
            config::listener::v3::{Filter, filter::ConfigType as NetworkConfig},
            extensions::filters::network::http_connection_manager::v3::{HttpFilter, http_filter::ConfigType},
        },
        to_any,
        udpa::r#type::v1::TypedStruct,
        wkt,
    },
};

/// Name of Istio's peer metadata filters, HTTP and TCP.
pub const METADATA_EXCHANGE: &str = "istio.metadata_exchange";

/// An HTTP filter with a typed configuration.
#[must_use]
pub fn http_filter<M: Name>(name: &str, config: &M) -> HttpFilter {
    http_filter_of_any(name, to_any(config))
}

/// An HTTP filter with a packed configuration.
#[must_use]
pub fn http_filter_of_any(name: &str, config: wkt::Any) -> HttpFilter {
    HttpFilter { name: name.to_string(), config_type: Some(ConfigType::TypedConfig(config)), ..Default::default() }
}

/// A `TypedStruct` of the given type, as Istio sends configurations of its own filters.
#[must_use]
pub fn typed_struct(type_name: &str, value: &Value) -> wkt::Any {
    let value = crate::proto::json_to_struct(value);
    to_any(&TypedStruct { type_url: format!("type.googleapis.com/{type_name}"), value })
}

/// The configuration of a peer metadata filter; the mesh may have it exchange further labels.
#[must_use]
pub fn peer_metadata(type_name: &str, features: &Features, mut config: Value) -> wkt::Any {
    let labels = &features.mx_additional_labels.0;
    if !labels.is_empty() {
        config["additional_labels"] = json!(labels);
    }
    typed_struct(type_name, &config)
}

/// A network filter with a typed configuration.
#[must_use]
pub fn network_filter<M: Name>(name: &str, config: &M) -> Filter {
    network_filter_of_any(name, to_any(config))
}

/// A network filter with a packed configuration.
#[must_use]
pub fn network_filter_of_any(name: &str, config: wkt::Any) -> Filter {
    Filter { name: name.to_string(), config_type: Some(NetworkConfig::TypedConfig(config)) }
}
