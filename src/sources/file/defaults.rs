//! Defaults that an API server would fill in.
//!
//! Gateway API's CRDs hold defaults, and Istio relies on them: an object that comes from a file gets
//! them here, so that it means the same as one that went through an API server. Only those are filled in whose absence would
//! mean something else.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::model::Kind;

/// The object with its defaults; as it was when nothing is missing.
#[must_use]
pub fn filled(document: &Value) -> Cow<'_, Value> {
    let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
    let Some(kind) = Kind::parse(text("apiVersion"), text("kind")) else { return Cow::Borrowed(document) };
    let missing = defaults(kind);
    if missing.is_empty() {
        return Cow::Borrowed(document);
    }
    let mut full = document.clone();
    for (path, value) in missing {
        fill(&mut full, path, &value);
    }
    Cow::Owned(full)
}

/// Places of a kind with their default values, outer places before inner ones. `name[]` is every element of a list.
fn defaults(kind: Kind) -> Vec<(&'static [&'static str], Value)> {
    const RULE: &[&str] = &["spec", "rules"];
    const MATCHES: &[&str] = &["spec", "rules[]", "matches"];
    const PATH: &[&str] = &["spec", "rules[]", "matches[]", "path"];
    const REDIRECT: &[&str] = &["spec", "rules[]", "filters[]", "requestRedirect", "statusCode"];
    const CORS: &[&str] = &["spec", "rules[]", "filters[]", "cors", "maxAge"];
    const TLS_MODE: &[&str] = &["spec", "listeners[]", "tls", "mode"];
    const BUDGET: &[&str] = &["spec", "retryConstraint", "budget"];
    const PERCENT: &[&str] = &["spec", "retryConstraint", "budget", "percent"];
    const RATE: &[&str] = &["spec", "retryConstraint", "minRetryRate"];
    match kind {
        Kind::HTTPRoute => {
            let path = json!({"type": "PathPrefix", "value": "/"});
            vec![(RULE, json!([{}])), (MATCHES, json!([{}])), (PATH, path), (REDIRECT, json!(302)), (CORS, json!(5))]
        }
        Kind::KubernetesGateway | Kind::ListenerSet => vec![(TLS_MODE, json!("Terminate"))],
        Kind::XBackendTrafficPolicy => vec![
            (BUDGET, json!({"interval": "10s", "percent": 20})),
            (PERCENT, json!(20)),
            (RATE, json!({"count": 10, "interval": "1s"})),
        ],
        _ => Vec::new(),
    }
}

fn fill(value: &mut Value, path: &[&str], default: &Value) {
    let Some((step, rest)) = path.split_first() else { return };
    let Some(fields) = value.as_object_mut() else { return };
    if rest.is_empty() {
        if fields.get(*step).is_none_or(Value::is_null) {
            fields.insert((*step).to_string(), default.clone());
        }
        return;
    }
    match step.strip_suffix("[]") {
        Some(list) => {
            let elements = fields.get_mut(list).and_then(Value::as_array_mut);
            elements.into_iter().flatten().for_each(|element| fill(element, rest, default));
        }
        None => fields.get_mut(*step).into_iter().for_each(|field| fill(field, rest, default)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_of_a_file_has_the_defaults_of_an_api_server() {
        let route =
            |spec: Value| json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "spec": spec});
        let got = filled(&route(json!({"rules": [
            {"matches": [{"method": "GET"}], "filters": [{"requestRedirect": {"scheme": "https"}}, {"cors": {"maxAge": 9}}]},
            {"filters": [{"requestRedirect": {"statusCode": 301}}, {"cors": {}}]},
        ]})))
        .into_owned();
        let root = json!({"type": "PathPrefix", "value": "/"});
        let rules = &got["spec"]["rules"];
        assert_eq!(rules[0]["matches"], json!([{"method": "GET", "path": root}]));
        assert_eq!(
            rules[0]["filters"],
            json!([{"requestRedirect": {"scheme": "https", "statusCode": 302}}, {"cors": {"maxAge": 9}}])
        );
        assert_eq!(
            rules[1],
            json!({"matches": [{"path": root}],
            "filters": [{"requestRedirect": {"statusCode": 301}}, {"cors": {"maxAge": 5}}]})
        );
        assert_eq!(filled(&route(json!({})))["spec"]["rules"], json!([{"matches": [{"path": root}]}]));
    }

    #[test]
    fn values_of_other_types_stay_as_they_are() {
        for odd in
            [json!({"spec": {"rules": 3}}), json!({"spec": {"rules": [1, {"filters": {"cors": {}}}]}}), json!([])]
        {
            let mut document = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute"});
            document["spec"] = odd["spec"].clone();
            assert!(filled(&document).get("kind").is_some());
        }
        assert!(matches!(filled(&json!({"kind": "Service", "apiVersion": "v1"})), Cow::Borrowed(_)));
    }
}
