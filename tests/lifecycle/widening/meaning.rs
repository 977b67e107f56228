//! The meaning of an AuthorizationPolicy for a request, from its documentation alone.

use serde_json::Value;

use super::{
    Request,
    patterns::{is_in, is_like, is_like_path},
};

/// Whether the policy admits the request; `None` where the documentation does not say it.
pub fn admits(spec: &Value, namespace: &str, request: &Request) -> Option<bool> {
    let rules = list(&spec["rules"]);
    let subject = Subject { namespace, request };
    let mut hit = false;
    for rule in rules {
        hit |= subject.matches(rule)?;
    }
    // An enum of a protobuf message may be written as its number.
    match &spec["action"] {
        Value::Null => Some(hit),
        action if *action == "ALLOW" || *action == 0 => Some(hit),
        action if *action == "DENY" || *action == 1 => Some(!hit),
        action if *action == "AUDIT" || *action == 2 => Some(true),
        _ => None,
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

struct Subject<'a> {
    namespace: &'a str,
    request: &'a Request,
}

impl Subject<'_> {
    fn matches(&self, rule: &Value) -> Option<bool> {
        let one = |name: &str, inner: &str, keys: &[&str]| {
            let all = list(&rule[name]);
            let met: Option<Vec<bool>> = all.iter().map(|entry| self.meets(&entry[inner], keys)).collect();
            Some(all.is_empty() || met?.contains(&true))
        };
        let when: Option<Vec<bool>> = list(&rule["when"]).iter().map(|c| self.meets_condition(c)).collect();
        Some(one("from", "source", &SOURCE)? && one("to", "operation", &OPERATION)? && !when?.contains(&false))
    }

    /// All fields of a source or an operation; those that it does not have are ignored.
    fn meets(&self, fields: &Value, keys: &[&str]) -> Option<bool> {
        let mut all = true;
        for (name, values) in fields.as_object().into_iter().flatten() {
            let bare = name.strip_prefix("not").filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
            let bare = bare.map(|rest| format!("{}{}", rest[..1].to_lowercase(), &rest[1..]));
            let key = bare.as_deref().unwrap_or(name);
            if keys.contains(&key) && !list(values).is_empty() {
                all &= self.has_one(key, values)? != bare.is_some();
            }
        }
        Some(all)
    }

    fn meets_condition(&self, condition: &Value) -> Option<bool> {
        let key = condition["key"].as_str()?;
        let (values, not_values) = (&condition["values"], &condition["notValues"]);
        let is = list(values).is_empty() || self.has_one(key, values)?;
        Some(is && (list(not_values).is_empty() || !self.has_one(key, not_values)?))
    }

    fn has_one(&self, key: &str, values: &Value) -> Option<bool> {
        let met: Option<Vec<bool>> = list(values).iter().map(|value| self.has(key, value.as_str()?)).collect();
        Some(met?.contains(&true))
    }

    fn has(&self, key: &str, value: &str) -> Option<bool> {
        let request = self.request;
        Some(match key {
            // Segments behind `{**}` are not documented.
            "paths" if value.contains("{**}") && !value.ends_with("{**}") => return None,
            "paths" => is_like_path(request.path, value),
            "methods" => is_like(request.method, value),
            "hosts" => is_like(&request.host.to_lowercase(), &value.to_lowercase()),
            "ports" | "destination.port" => value.parse() == Ok(request.port),
            "ipBlocks" | "source.ip" | "remoteIpBlocks" | "remote.ip" => is_in(request.ip, value),
            "principals" | "source.principal" => is_like(request.principal, value),
            "namespaces" | "source.namespace" => {
                let namespace = request.principal.split('/').nth(2).unwrap_or_default();
                !request.principal.is_empty() && is_like(namespace, value)
            }
            "serviceAccounts" | "source.serviceAccount" => {
                let (namespace, account) = value.split_once('/').unwrap_or((self.namespace, value));
                request.principal.ends_with(&format!("/ns/{namespace}/sa/{account}"))
            }
            "requestPrincipals" | "request.auth.principal" => request.claims.as_ref().is_some_and(|claims| {
                let of = |claim: &str| claims[claim].as_str().unwrap_or_default();
                is_like(&format!("{}/{}", of("iss"), of("sub")), value)
            }),
            "request.headers[x-tenant]" => is_like(request.tenant, value),
            "request.auth.claims[groups]" => request.claims.as_ref().is_some_and(|claims| match &claims["groups"] {
                Value::String(group) => is_like(group, value),
                groups => list(groups).iter().any(|group| is_like(group.as_str().unwrap(), value)),
            }),
            _ => return None,
        })
    }
}

/// Fields of an operation, without their negations.
const OPERATION: [&str; 4] = ["paths", "methods", "hosts", "ports"];
/// Fields of a source, without their negations.
const SOURCE: [&str; 6] =
    ["ipBlocks", "remoteIpBlocks", "principals", "namespaces", "serviceAccounts", "requestPrincipals"];
