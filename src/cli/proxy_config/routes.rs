//! Routes as rows: one for each route of each virtual host.

use clap::Args;
use serde_json::Value;

use super::{
    super::table,
    objects::{NONE, name_of},
};

const PASSTHROUGH: &str = "PassthroughCluster";

/// The routes that are shown.
#[derive(Debug, Clone, Default, Args)]
pub struct RouteFilter {
    /// Name of the route configuration.
    #[arg(long, env = "PILOTHOUSE_ROUTE_NAME", value_name = "NAME")]
    pub name: Option<String>,
}

impl RouteFilter {
    /// The route configurations that fit: by port, then by name.
    pub(super) fn kept(&self, mut routes: Vec<Value>) -> Vec<Value> {
        routes.retain(|route| self.name.as_ref().is_none_or(|name| route["name"] == name.as_str()));
        routes.sort_by_cached_key(|route| {
            let name = route["name"].as_str().unwrap_or_default().to_string();
            (name.parse::<u32>().unwrap_or(u32::MAX), name)
        });
        routes
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// istioctl's columns; the last one names the object of each route.
pub(super) fn table(routes: &[Value]) -> String {
    let mut rows = vec![["NAME", "VHOST NAME", "DOMAINS", "MATCH", "VIRTUAL SERVICE"].map(String::from)];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    for configuration in routes {
        for host in list(&configuration["virtualHosts"]) {
            let mut row = |matches: String, object: String| {
                rows.push([text(&configuration["name"]), text(&host["name"]), domains(host), matches, object]);
            };
            for route in list(&host["routes"]).iter().filter(|route| route["route"]["cluster"] != PASSTHROUGH) {
                row(path_match(&route["match"]), name_of(&route["metadata"]).unwrap_or_else(|| NONE.to_string()));
            }
            if list(&host["routes"]).is_empty() {
                row("/*".to_string(), "404".to_string());
            }
        }
    }
    table::aligned(&rows)
}

/// The path that a route matches; headers and parameters are left out, as istioctl does.
pub(super) fn path_match(of: &Value) -> String {
    let text = |key: &str| of[key].as_str().filter(|text| !text.is_empty());
    let parts = [
        text("prefix").map(|prefix| format!("{prefix}*")),
        text("pathSeparatedPrefix").map(|prefix| format!("PathPrefix:{prefix}")),
        text("path").map(String::from),
        of["safeRegex"]["regex"].as_str().map(|regex| format!("regex {regex}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Two domains without ports, and the number of the others. The longer names of a Kubernetes service are left out beside its
/// short ones.
fn domains(host: &Value) -> String {
    let all: Vec<&str> = list(&host["domains"]).iter().filter_map(Value::as_str).collect();
    if let [only] = all[..] {
        return only.to_string();
    }
    let has_port = |domain: &str| match domain.strip_prefix('[') {
        Some(_) => !domain.ends_with(']'),
        // An IPv6 address without brackets has colons of its own.
        None => domain.matches(':').count() == 1,
    };
    let plain: Vec<&str> = all.into_iter().filter(|domain| !has_port(domain)).collect();
    let is_longer = |domain: &str| {
        [".svc.cluster.local", ".svc"]
            .iter()
            .any(|suffix| domain.strip_suffix(suffix).is_some_and(|short| plain.contains(&short)))
    };
    let shown: Vec<&str> = plain.iter().copied().filter(|domain| !is_longer(domain)).collect();
    match shown[..] {
        [first, second, _, ..] => format!("{first}, {second} + {} more...", shown.len() - 2),
        _ => shown.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_for_each_route() {
        let path = "/apis/networking.istio.io/v1/namespaces/shop/virtual-service/web";
        let of_web = json!({"filterMetadata": {"istio": {"config": path}}});
        let routes = vec![
            json!({"name": "http.80", "virtualHosts": [{"name": "blackhole:80", "domains": ["*"]}]}),
            json!({"name": "8080", "virtualHosts": [
                {"name": "web:8080", "routes": [
                    {"match": {"prefix": "/api"}, "metadata": of_web}, {"match": {"safeRegex": {"regex": "a.*"}}},
                    {"match": {"path": "/x"}, "route": {"cluster": PASSTHROUGH}}],
                 "domains": ["web.shop.svc.cluster.local", "web", "web.shop.svc", "web.shop", "web.shop:8080", "10.0.0.1", "[::1]", "[::1]:80"]}]}),
        ];
        let text = table(&RouteFilter::default().kept(routes.clone()));
        let rows: Vec<Vec<&str>> =
            text.lines().skip(1).map(|l| l.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect()).collect();
        assert_eq!(rows[0], ["8080", "web:8080", "web, web.shop + 2 more...", "/api*", "web.shop"]);
        assert_eq!(rows[1][3..], ["regex a.*", "-"]);
        assert_eq!(rows[2], ["http.80", "blackhole:80", "*", "/*", "404"]);
        assert_eq!(rows.len(), 3);
        assert_eq!(RouteFilter { name: Some("8080".to_string()) }.kept(routes).len(), 1);
    }
}
