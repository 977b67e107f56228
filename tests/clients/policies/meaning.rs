//! The meaning of AuthorizationPolicies for a request or a connection, from their documentation alone.

use serde_json::Value;

/// Fields of requests, which connections do not have.
const OF_REQUESTS: [&str; 1] = ["methods"];

/// A request or a connection that policies decide about.
pub trait Subject {
    /// Whether it has this value of a field, or of a condition's key.
    fn has(&self, name: &str, value: &str) -> bool;

    /// Whether it is a request, rather than a connection of which nothing more is known.
    fn is_request(&self) -> bool {
        true
    }

    fn has_one(&self, name: &str, values: &Value) -> bool {
        values.as_array().unwrap().iter().any(|value| self.has(name, value.as_str().unwrap()))
    }

    /// All fields of a source or an operation. Connections that are to be denied meet those of requests.
    fn meets(&self, fields: &Value) -> bool {
        fields.as_object().unwrap().iter().all(|(name, values)| {
            let negated = name.strip_prefix("not").map(|rest| format!("{}{}", rest[..1].to_lowercase(), &rest[1..]));
            let plain = negated.as_deref().unwrap_or(name);
            let is_passed_over = !self.is_request() && OF_REQUESTS.contains(&plain);
            is_passed_over || self.has_one(plain, values) != negated.is_some()
        })
    }

    fn meets_condition(&self, condition: &Value) -> bool {
        let key = condition["key"].as_str().unwrap();
        let is = condition.get("values").is_none_or(|values| self.has_one(key, values));
        is && condition.get("notValues").is_none_or(|values| !self.has_one(key, values))
    }

    fn matches(&self, rule: &Value, is_deny: bool) -> bool {
        let list = |name: &str| rule[name].as_array().cloned().unwrap_or_default();
        let one = |name: &str, inner: &str| {
            let all = list(name);
            all.is_empty() || all.iter().any(|entry| self.meets(&entry[inner]))
        };
        let of_requests =
            |entry: &Value| OF_REQUESTS.iter().any(|name| entry.to_string().to_lowercase().contains(name));
        if !self.is_request() && !is_deny && list("to").iter().any(of_requests) {
            // No connection is allowed by a rule about requests.
            return false;
        }
        one("from", "source") && one("to", "operation") && list("when").iter().all(|c| self.meets_condition(c))
    }

    fn is_allowed(&self, policies: &[Value]) -> bool {
        let of = |action: &str| policies.iter().filter(|p| p["action"] == action).collect::<Vec<_>>();
        let hit = |policy: &Value, is_deny| {
            policy["rules"].as_array().unwrap().iter().any(|rule| self.matches(rule, is_deny))
        };
        let allow = of("ALLOW");
        !of("DENY").iter().any(|policy| hit(policy, true))
            && (allow.is_empty() || allow.iter().any(|policy| hit(policy, false)))
    }
}
