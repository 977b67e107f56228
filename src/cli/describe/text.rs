//! Descriptions as text for people.

use std::fmt::Write;

use serde_json::Value;

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), String::from)
}

fn joined(value: &Value) -> String {
    list(value).iter().map(text).collect::<Vec<_>>().join(", ")
}

/// ` at FILE:LINE`, where the place is known.
fn place(object: &Value) -> String {
    object["place"].as_str().filter(|place| !place.is_empty()).map(|place| format!(" ({place})")).unwrap_or_default()
}

/// A service.
pub(super) fn service(of: &Value) -> String {
    let mut out = format!("{}: {}\n   Host: {}\n", text(&of["kind"]), text(&of["service"]), text(&of["host"]));
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    if of["meshExternal"] == true {
        line("   Outside of the mesh".to_string());
    }
    for port in list(&of["ports"]) {
        let (number, name, protocol) = (&port["port"], text(&port["name"]), text(&port["protocol"]));
        line(format!("   Port: {name} {number}/{protocol}, clients send {}", text(&port["clients"])));
    }
    line(format!("   Endpoints: {} of {} healthy", of["endpoints"]["healthy"], of["endpoints"]["all"]));
    for rule in list(&of["destinationRules"]) {
        line(format!("DestinationRule: {} for {}", text(&rule["name"]), text(&rule["host"])));
        if list(&rule["from"]).len() > 1 {
            line(format!("   Merged from: {}", joined(&rule["from"])));
        }
        if !list(&rule["subsets"]).is_empty() {
            line(format!("   Subsets: {}", joined(&rule["subsets"])));
        }
        if !rule["workloadSelector"].is_null() {
            line(format!("   For workloads: {}", rule["workloadSelector"]));
        }
        line(format!("   Traffic policy: {}", if rule["hasTrafficPolicy"] == true { "yes" } else { "no" }));
    }
    for route in list(&of["virtualServices"]) {
        line(format!("{}: {}{}", text(&route["kind"]), text(&route["name"]), place(route)));
        line(format!("   Routes to: {}", joined(&route["destinations"])));
    }
    for gateway in list(&of["gateways"]) {
        let missing = if gateway["exists"] == true { "" } else { " (does not exist)" };
        line(format!(
            "Gateway: {}{missing}, by VirtualService {}",
            text(&gateway["gateway"]),
            text(&gateway["virtualService"])
        ));
        for server in list(&gateway["servers"]) {
            line(format!(
                "   Server: {} {} for {}",
                text(&server["protocol"]),
                server["port"],
                joined(&server["hosts"])
            ));
        }
    }
    for workload in list(&of["workloads"]) {
        line(format!("Workload: {}", text(&workload["workload"])));
        for port in list(&workload["ports"]) {
            line(format!("   Port: {}, mutual TLS {}", port["port"], text(&port["mutualTls"])));
        }
        line(policies(&workload["policies"]));
    }
    for warning in list(&of["warnings"]) {
        line(format!("Warning: {}", text(warning)));
    }
    out
}

/// A workload or a proxy.
pub(super) fn workload(of: &Value) -> String {
    let state = if of["connected"] == true { "connected" } else { "without a connected proxy" };
    let mut out = format!("Workload: {} ({}, {state})\n", text(&of["workload"]), text(&of["type"]));
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line(format!("   Addresses: {}", joined(&of["addresses"])));
    for service in list(&of["services"]) {
        line(format!(
            "   Service: {} ({}), port {}/{} to {}, mutual TLS {}",
            text(&service["service"]),
            text(&service["host"]),
            service["port"],
            text(&service["protocol"]),
            service["targetPort"],
            text(&service["mutualTls"])
        ));
    }
    if !of["sidecar"].is_null() {
        line(format!("Sidecar: {}{}", text(&of["sidecar"]["name"]), place(&of["sidecar"])));
    }
    for gateway in list(&of["gateways"]) {
        line(format!("Gateway: {}", text(gateway)));
    }
    line(policies(&of["policies"]));
    out
}

fn policies(of: &Value) -> String {
    let mutual = &of["mutualTls"];
    let mut lines = vec![format!("   Mutual TLS: {}", text(&mutual["mode"]))];
    let ports = mutual["ports"].as_object().into_iter().flatten();
    lines.extend(ports.map(|(port, mode)| format!("   Mutual TLS on port {port}: {}", text(mode))));
    for (title, policies) in [
        ("PeerAuthentication", &mutual["peerAuthentications"]),
        ("RequestAuthentication", &of["requestAuthentications"]),
        ("AuthorizationPolicy", &of["authorizationPolicies"]),
    ] {
        lines.extend(list(policies).iter().map(|policy| {
            let action = policy["action"].as_str().map(|action| format!(" {action}")).unwrap_or_default();
            format!("   {title}: {}{action}{}", text(&policy["name"]), place(policy))
        }));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_in_words() {
        let text = service(&json!({
            "service": "web.shop", "kind": "Service", "host": "web.shop.svc.cluster.local", "meshExternal": false,
            "ports": [{"port": 80, "name": "http", "protocol": "HTTP", "clients": "plain text"}],
            "endpoints": {"all": 3, "healthy": 2},
            "destinationRules": [{"name": "web.shop", "host": "web", "from": ["web.shop", "b.shop"], "subsets": ["v1", "v2"],
                                  "workloadSelector": null, "hasTrafficPolicy": true}],
            "virtualServices": [{"kind": "VirtualService", "name": "web.shop", "place": "a.yaml:3", "destinations": ["web"]}],
            "gateways": [{"gateway": "edge.shop", "exists": true, "virtualService": "web.shop",
                          "servers": [{"port": 80, "protocol": "HTTP", "hosts": ["*"]}]}],
            "workloads": [{"workload": "web-v1.shop", "ports": [{"port": 8080, "mutualTls": "STRICT"}], "policies": {
                "mutualTls": {"mode": "STRICT", "ports": {"9": "DISABLE"}, "peerAuthentications": [{"name": "default.shop"}]},
                "authorizationPolicies": [{"name": "deny.shop", "action": "DENY", "place": "b.yaml:1"}],
                "requestAuthentications": []}}],
            "warnings": ["port 80: x"],
        }));
        for line in [
            "Service: web.shop",
            "   Port: http 80/HTTP, clients send plain text",
            "   Endpoints: 2 of 3 healthy",
            "   Merged from: web.shop, b.shop",
            "VirtualService: web.shop (a.yaml:3)",
            "Gateway: edge.shop, by VirtualService web.shop",
            "   Server: HTTP 80 for *",
            "   Mutual TLS on port 9: DISABLE",
            "   PeerAuthentication: default.shop",
            "   AuthorizationPolicy: deny.shop DENY (b.yaml:1)",
            "Warning: port 80: x",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} in\n{text}");
        }
    }
}
