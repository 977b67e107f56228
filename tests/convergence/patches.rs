//! Random EnvoyFilters: patches of clusters, listeners and routes, some of them on nothing, some that do not fit.

use serde_json::{Value, json};

use crate::{
    objects::{HOSTS, labels},
    random::Random,
};

const MANAGER: &str = "envoy.filters.network.http_connection_manager";

pub fn envoy_filter(random: &mut Random, name: &str) -> Value {
    let patches: Vec<Value> = (0..=random.below(3)).map(|_| patch(random)).collect();
    let mut spec = json!({"configPatches": patches, "priority": random.below(3)});
    if name != "default" {
        spec["workloadSelector"] = json!({"labels": labels(random)});
    }
    spec
}

fn patch(random: &mut Random) -> Value {
    let context = *random.of(&["ANY", "SIDECAR_INBOUND", "SIDECAR_OUTBOUND", "GATEWAY"]);
    let host = *random.of(&HOSTS);
    let number = random.below(3) + 1;
    let mut condition = json!({ "context": context });
    if random.chance(20) {
        condition["proxy"] = json!({"proxyVersion": random.of(&["^1\\.27.*", "^1\\.30.*"])});
    }
    let (target, operation, value) = match random.below(9) {
        0 | 1 => {
            if random.chance(70) {
                condition["cluster"] = json!({ "service": host });
            }
            // A timeout of 0 does not fit.
            ("CLUSTER", "MERGE", json!({"connect_timeout": format!("{}s", number - 1)}))
        }
        2 => ("CLUSTER", "ADD", json!({"name": format!("own-{number}"), "connect_timeout": "1s"})),
        3 => {
            condition["listener"] = json!({"filterChain": {"filter": {"name": MANAGER}}});
            let code = json!({"inline_string": format!("-- {number}")});
            let lua = json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua", "default_source_code": code});
            ("HTTP_FILTER", "INSERT_FIRST", json!({"name": format!("lua-{number}"), "typed_config": lua}))
        }
        4 => {
            condition["listener"] = json!({"portNumber": 80});
            ("LISTENER", "MERGE", json!({"per_connection_buffer_limit_bytes": number}))
        }
        5 => {
            condition["routeConfiguration"] = json!({"vhost": {"domainName": host}});
            ("VIRTUAL_HOST", "MERGE", json!({"response_headers_to_remove": [format!("x-{number}")]}))
        }
        6 => {
            condition["routeConfiguration"] = json!({"vhost": {"route": {"action": "ROUTE"}}});
            ("HTTP_ROUTE", "MERGE", json!({"route": {"timeout": format!("{number}s")}}))
        }
        7 => {
            let action = json!({"status": 204});
            let route = json!({"match": {"prefix": "/"}, "direct_response": action});
            (
                "VIRTUAL_HOST",
                "ADD",
                json!({"name": format!("own-{number}"), "domains": [format!("own-{number}.example")], "routes": [route]}),
            )
        }
        _ => {
            condition["cluster"] = json!({ "service": host });
            return json!({"applyTo": "CLUSTER", "match": condition, "patch": {"operation": "REMOVE"}});
        }
    };
    json!({"applyTo": target, "match": condition, "patch": {"operation": operation, "value": value}})
}
