//! Header operations of a route or a destination (Istio's `TranslateHeadersOperations`).

use std::collections::BTreeMap;

use crate::proto::{
    envoy::config::core::v3::{HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction},
    networking::Headers,
};

/// Operations on headers, and on the authority, which Envoy rewrites elsewhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeaderOperations {
    /// On the request; `set` before `add`, each by name.
    pub request_add: Vec<HeaderValueOption>,
    /// On the request.
    pub request_remove: Vec<String>,
    /// On the response; `set` before `add`, each by name.
    pub response_add: Vec<HeaderValueOption>,
    /// On the response.
    pub response_remove: Vec<String>,
    /// New authority; empty when it stays.
    pub authority: String,
}

impl HeaderOperations {
    /// Translates them. `host` and `:…` cannot be changed as headers: the first sets the authority, others are dropped.
    #[must_use]
    pub fn of(headers: &Headers) -> Self {
        let empty = crate::proto::networking::headers::HeaderOperations::default();
        let request = headers.request.as_ref().unwrap_or(&empty);
        let response = headers.response.as_ref().unwrap_or(&empty);
        let authority = authority(&request.set).or_else(|| authority(&request.add)).unwrap_or_default();
        Self {
            request_add: additions(&request.set, &request.add),
            request_remove: removals(&request.remove),
            response_add: additions(&response.set, &response.add),
            response_remove: removals(&response.remove),
            authority: authority.to_string(),
        }
    }
}

/// One header that is added or overwritten.
#[must_use]
pub fn option(key: &str, value: &str, action: HeaderAppendAction) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue { key: key.to_string(), value: value.to_string(), ..Default::default() }),
        append_action: action.into(),
        ..Default::default()
    }
}

fn additions(set: &BTreeMap<String, String>, add: &BTreeMap<String, String>) -> Vec<HeaderValueOption> {
    let set = set.iter().map(|pair| (pair, HeaderAppendAction::OverwriteIfExistsOrAdd));
    let add = add.iter().map(|pair| (pair, HeaderAppendAction::AppendIfExistsOrAdd));
    set.chain(add)
        .filter(|((key, _), _)| !is_internal(key))
        .map(|((key, value), action)| option(key, value, action))
        .collect()
}

fn removals(names: &[String]) -> Vec<String> {
    names.iter().filter(|n| !is_internal(n)).cloned().collect()
}

fn authority(headers: &BTreeMap<String, String>) -> Option<&str> {
    let is_authority = |key: &str| key.eq_ignore_ascii_case(":authority") || key.eq_ignore_ascii_case("host");
    headers.iter().filter(|(key, value)| is_authority(key) && !value.is_empty()).map(|(_, v)| v.as_str()).next_back()
}

fn is_internal(key: &str) -> bool {
    key.starts_with(':') || key.eq_ignore_ascii_case("host")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::networking::headers;

    #[test]
    fn host_becomes_the_authority_and_set_wins_over_add() {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
        let request = headers::HeaderOperations {
            set: map(&[("Host", "set.example"), ("b", "1"), ("a", "2")]),
            add: map(&[(":authority", "add.example"), ("c", "3"), (":path", "/x")]),
            remove: vec!["host".into(), "d".into()],
        };
        let operations = HeaderOperations::of(&Headers { request: Some(request), response: None });
        assert_eq!(operations.authority, "set.example");
        let keys: Vec<_> = operations.request_add.iter().map(|o| o.header.as_ref().unwrap().key.as_str()).collect();
        assert_eq!(keys, ["a", "b", "c"]);
        assert_eq!(operations.request_remove, ["d"]);
    }
}
