//! The exchange of peer metadata: a header that the client's Envoy sets on requests to the mesh, and the server's takes off.

use crate::{
    generate::{listener::filter::http_filter, proxy_config::ListenerClass},
    proto::envoy::{
        config::{
            common::mutation_rules::v3::{HeaderMutation as Mutation, header_mutation::Action},
            core::v3::{HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction},
        },
        extensions::filters::{
            http::{
                header_mutation::v3::{HeaderMutation, Mutations},
                header_to_metadata::v3::{
                    Config as HeaderToMetadata,
                    config::{KeyValuePair, Rule, ValueType},
                },
            },
            network::http_connection_manager::v3::HttpFilter,
        },
        r#type::matcher::v3::{RegexMatchAndSubstitute, RegexMatcher},
    },
    push::OwnPeer,
};

/// The fields of the client in the order of [`OwnPeer::FIELDS`], with semicolons between them.
const HEADER: &str = "x-pilothouse-peer";
const UNKNOWN: &str = "unknown";

/// The filters that set the header, or take it off. Behind mutual TLS (`is_proven`) it is believed.
#[must_use]
pub fn filters(own: &OwnPeer, class: ListenerClass, is_proven: bool) -> Vec<HttpFilter> {
    let mutation = |actions: Vec<Action>| {
        let request_mutations = actions.into_iter().map(|action| Mutation { action: Some(action) }).collect();
        let mutations = Some(Mutations { request_mutations, ..Mutations::default() });
        http_filter("envoy.filters.http.header_mutation", &HeaderMutation { mutations, ..HeaderMutation::default() })
    };
    let remove = || Action::Remove(HEADER.to_string());
    match class {
        ListenerClass::SidecarInbound => {
            let taken_off = (!is_proven).then(|| mutation(vec![remove()]));
            let read = http_filter("envoy.filters.http.header_to_metadata", &reading());
            taken_off.into_iter().chain([read]).collect()
        }
        ListenerClass::SidecarOutbound | ListenerClass::Gateway => vec![mutation(vec![remove(), setting(own)])],
    }
}

/// Each field of the header becomes a key; the last rule takes the header off.
fn reading() -> HeaderToMetadata {
    let pair = |key: &str| KeyValuePair {
        metadata_namespace: OwnPeer::METADATA.to_string(),
        key: key.to_string(),
        r#type: ValueType::String.into(),
        ..KeyValuePair::default()
    };
    let last = OwnPeer::FIELDS.len() - 1;
    let rule = |(at, field): (usize, &str)| {
        let regex = format!("^{}([^;]*)(;.*)?$", "[^;]*;".repeat(at));
        let rewrite = RegexMatchAndSubstitute {
            pattern: Some(RegexMatcher { regex, ..RegexMatcher::default() }),
            substitution: "\\1".to_string(),
        };
        Rule {
            header: HEADER.to_string(),
            on_header_present: Some(KeyValuePair { regex_value_rewrite: Some(rewrite), ..pair(field) }),
            on_header_missing: Some(KeyValuePair { value: UNKNOWN.to_string(), ..pair(field) }),
            remove: at == last,
            ..Rule::default()
        }
    };
    let request_rules = OwnPeer::FIELDS.into_iter().enumerate().map(rule).collect();
    HeaderToMetadata { request_rules, ..HeaderToMetadata::default() }
}

/// The header, on requests to clusters that have services of the mesh. The values have no character that CEL or a format
/// would read ([`OwnPeer`] sees to it).
fn setting(own: &OwnPeer) -> Action {
    let istio = "xds.cluster_metadata.filter_metadata.istio";
    let of_mesh =
        format!("has(xds.cluster_metadata) && has({istio}) && has({istio}.services) && !has({istio}.external)");
    let fields = OwnPeer::FIELDS.map(|field| own.value(field));
    let value = format!("%CEL({of_mesh} ? '{}' : '')%", fields.join(";"));
    Action::Append(HeaderValueOption {
        header: Some(HeaderValue { key: HEADER.to_string(), value, ..HeaderValue::default() }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..HeaderValueOption::default()
    })
}
