//! Listeners as rows: one for each filter chain, with its match and its destination.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::Value;

use super::{
    super::table,
    objects::{NONE, object_of},
    routes::path_match,
};

/// The types of listeners.
pub(super) const TYPES: [&str; 4] = ["HTTP", "TCP", "HTTP+TCP", "UNKNOWN"];

const HTTP: &str = "envoy.filters.network.http_connection_manager";
const TCP: &str = "envoy.filters.network.tcp_proxy";
const BLACK_HOLE: &str = "BlackHoleCluster";

/// Application protocols that have a name of their own in istioctl's tables.
const ALPNS: [(&str, &[&str]); 4] = [
    ("App: HTTP TLS", &["http/1.0", "http/1.1", "h2c", "istio-http/1.0", "istio-http/1.1", "istio-h2"]),
    ("App: Istio HTTP Plain", &["istio", "istio-http/1.0", "istio-http/1.1", "istio-h2"]),
    ("App: TCP TLS", &["istio-peer-exchange", "istio"]),
    ("App: HTTP", &["http/1.0", "http/1.1", "h2c"]),
];

/// The listeners that are shown: those that fit all of these.
#[derive(Debug, Clone, Default, Args)]
pub struct ListenerFilter {
    /// Address that the listener is bound to, without its port; one of several is enough.
    #[arg(long, env = "PILOTHOUSE_ADDRESS", value_name = "ADDRESS")]
    pub address: Option<String>,
    /// Port that the listener is bound to.
    // Kubernetes sets PILOTHOUSE_PORT in Pods beside a Service of that name.
    #[arg(long, env = "PILOTHOUSE_FILTER_PORT", value_name = "PORT")]
    pub port: Option<u16>,
    /// Type of the listener: HTTP, TCP, HTTP+TCP or UNKNOWN.
    #[arg(long, env = "PILOTHOUSE_TYPE", value_name = "TYPE", ignore_case = true, value_parser = TYPES)]
    pub r#type: Option<String>,
}

impl ListenerFilter {
    /// The listeners that fit, by port, address and type.
    pub(super) fn kept(&self, mut listeners: Vec<Value>) -> Vec<Value> {
        listeners.retain(|listener| self.fits(listener));
        listeners.sort_by_cached_key(|listener| (port(listener), addresses(listener), kind(listener)));
        listeners
    }

    fn fits(&self, listener: &Value) -> bool {
        self.address.as_ref().is_none_or(|wanted| addresses(listener).iter().any(|a| a.eq_ignore_ascii_case(wanted)))
            && self.port.is_none_or(|wanted| port(listener) == u64::from(wanted))
            && self.r#type.as_ref().is_none_or(|wanted| kind(listener).eq_ignore_ascii_case(wanted))
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn addresses(listener: &Value) -> Vec<String> {
    let one = |address: &Value| {
        let address = address["socketAddress"]["address"].as_str().or_else(|| address["pipe"]["path"].as_str());
        address.map(String::from)
    };
    let more = list(&listener["additionalAddresses"]).iter().map(|more| &more["address"]);
    std::iter::once(&listener["address"]).chain(more).filter_map(one).collect()
}

fn port(listener: &Value) -> u64 {
    listener["address"]["socketAddress"]["portValue"].as_u64().unwrap_or_default()
}

fn chains(listener: &Value) -> impl Iterator<Item = &Value> {
    list(&listener["filterChains"]).iter().chain(listener.get("defaultFilterChain"))
}

/// The filter of a chain that ends it: HTTP, or TCP to a cluster with endpoints.
fn last_filter(chain: &Value) -> Option<&Value> {
    let is_one = |filter: &&Value| match filter["name"].as_str() {
        Some(HTTP) => true,
        Some(TCP) => !filter["typedConfig"].to_string().contains(BLACK_HOLE),
        _ => false,
    };
    list(&chain["filters"]).iter().find(is_one)
}

fn kind(listener: &Value) -> &'static str {
    let filters: Vec<&Value> = chains(listener).filter_map(last_filter).collect();
    let has = |name: &str| filters.iter().any(|filter| filter["name"] == name);
    match (has(HTTP), has(TCP)) {
        (true, true) => "HTTP+TCP",
        (true, false) => "HTTP",
        (false, true) => "TCP",
        (false, false) => "UNKNOWN",
    }
}

/// istioctl's columns, and the object that a filter chain was made from; else that of the listener in `origins`. The routes of
/// HTTP name their own.
pub(super) fn table(listeners: &[Value], origins: &BTreeMap<String, String>) -> String {
    let mut rows = vec![["ADDRESSES", "PORT", "MATCH", "DESTINATION", "OBJECT"].map(String::from)];
    for listener in listeners {
        let (addresses, port) = (addresses(listener).join(","), port(listener).to_string());
        let shown = |chain: &Value| {
            let destination = destination(chain);
            let object = object_of(&chain["metadata"]).or_else(|| object_of(&listener["metadata"]));
            let whole = || listener["name"].as_str().and_then(|name| origins.get(name)).cloned();
            let object = object.or_else(|| gateway_of(&destination)).or_else(whole);
            let object = object.unwrap_or_else(|| NONE.to_string());
            [matches(&chain["filterChainMatch"]), destination, object]
        };
        let mut shown: Vec<[String; 3]> = chains(listener).map(shown).collect();
        shown.sort_by(|a, b| b[1].cmp(&a[1]));
        for [matches, destination, object] in shown {
            rows.push([addresses.clone(), port.clone(), matches, destination, object]);
        }
    }
    table::aligned(&rows)
}

/// The Gateway in the name of an HTTPS server's routes: `https.PORT.NAME-OF-PORT.GATEWAY.NAMESPACE`.
fn gateway_of(destination: &str) -> Option<String> {
    let mut parts = destination.strip_prefix("Route: https.")?.splitn(3, '.');
    parts.next()?.parse::<u16>().ok()?;
    let (gateway, namespace) = parts.nth(1)?.rsplit_once('.')?;
    // An address that the server is bound to stands at the end.
    if namespace.contains(':') || namespace.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(format!("Gateway/{gateway}.{namespace}"))
}

fn texts(value: &Value) -> Vec<&str> {
    list(value).iter().filter_map(Value::as_str).collect()
}

fn matches(of: &Value) -> String {
    let mut parts = Vec::new();
    let names = texts(&of["serverNames"]);
    if !names.is_empty() {
        parts.push(format!("SNI: {}", names.join(",")));
    }
    if let Some(transport) = of["transportProtocol"].as_str().filter(|t| !t.is_empty()) {
        parts.push(format!("Trans: {transport}"));
    }
    let protocols = texts(&of["applicationProtocols"]);
    if !protocols.is_empty() {
        let known = ALPNS.iter().find(|(_, of)| **of == protocols[..]).map(|(name, _)| (*name).to_string());
        parts.push(known.unwrap_or_else(|| format!("App: {}", protocols.join(","))));
    }
    let port = of["destinationPort"].as_u64().map(|port| format!(":{port}")).unwrap_or_default();
    let range = |range: &Value| {
        let (address, length) = (range["addressPrefix"].as_str().unwrap_or_default(), &range["prefixLen"]);
        format!("{address}/{}", length.as_u64().unwrap_or_default())
    };
    let ranges: Vec<String> = list(&of["prefixRanges"]).iter().map(range).collect();
    if !ranges.is_empty() {
        parts.push(format!("Addr: {}{port}", ranges.join(",")));
    } else if !port.is_empty() {
        parts.push(format!("Addr: *{port}"));
    }
    if parts.is_empty() { "ALL".to_string() } else { parts.join("; ") }
}

fn destination(chain: &Value) -> String {
    let Some(filter) = last_filter(chain) else { return "Non-HTTP/Non-TCP".to_string() };
    let config = &filter["typedConfig"];
    if filter["name"] == TCP {
        return cluster(config["cluster"].as_str().unwrap_or_default());
    }
    if config["routeConfig"].is_object() {
        return inline_route(&config["routeConfig"]);
    }
    match config["rds"]["routeConfigName"].as_str() {
        Some(name) if !name.is_empty() => format!("Route: {name}"),
        _ => "HTTP".to_string(),
    }
}

/// Clusters that mean no service (`PassthroughCluster`) say so in their names.
fn cluster(name: &str) -> String {
    if name.contains("Cluster") { name.to_string() } else { format!("Cluster: {name}") }
}

/// The cluster of a route that takes everything, otherwise the routes.
fn inline_route(route: &Value) -> String {
    let hosts = list(&route["virtualHosts"]);
    let is_any = |host: &Value| texts(&host["domains"]) == ["*"];
    if let [host] = hosts
        && let [only] = list(&host["routes"])
        && let Some(name) = only["route"]["cluster"].as_str()
        && is_any(host)
        && only["match"]["prefix"] == "/"
    {
        return cluster(name);
    }
    let host = |host: &Value| {
        let routes: Vec<String> = list(&host["routes"]).iter().map(|route| path_match(&route["match"])).collect();
        let domains = if is_any(host) { String::new() } else { texts(&host["domains"]).join("/") };
        format!("{domains} {}", routes.join(", ")).trim().to_string()
    };
    format!("Inline Route: {}", hosts.iter().map(host).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listeners() -> Vec<Value> {
        let http = |more: Value| json!({"name": HTTP, "typedConfig": more});
        let tcp = |cluster: &str| json!({"name": TCP, "typedConfig": {"cluster": cluster}});
        let route = json!({"virtualHosts": [{"domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "inbound|80||"}}]}]});
        let path = "/apis/networking.istio.io/v1/namespaces/shop/virtual-service/db";
        let address = |ip: &str, port: u16| json!({"socketAddress": {"address": ip, "portValue": port}});
        vec![
            json!({"name": "db", "address": address("10.0.0.1", 5432), "filterChains": [
                {"filters": [tcp("outbound|5432||db.example")], "metadata": {"filterMetadata": {"istio": {"config": path}}},
                 "filterChainMatch": {"prefixRanges": [{"addressPrefix": "10.0.0.0", "prefixLen": 8}], "destinationPort": 5432}}]}),
            json!({"address": address("0.0.0.0", 15006), "additionalAddresses": [{"address": address("::", 15006)}], "filterChains": [
                {"filters": [http(json!({"routeConfig": route}))],
                 "filterChainMatch": {"transportProtocol": "tls", "applicationProtocols": ALPNS[0].1, "serverNames": ["a", "b"]}},
                {"filters": [tcp(BLACK_HOLE)]}], "defaultFilterChain": {"filters": [tcp("InboundPassthroughCluster")]}}),
            json!({"name": "0.0.0.0_80", "address": address("0.0.0.0", 80), "filterChains": [{"filters": [http(json!({"rds": {"routeConfigName": "80"}}))]}]}),
            json!({"address": {"pipe": {"path": "/run/x"}}}),
        ]
    }

    #[test]
    fn a_row_for_each_chain() {
        let origins = ["0.0.0.0_80", "db"].map(|name| (name.to_string(), "Gateway/front.shop".to_string())).into();
        let text = table(&ListenerFilter::default().kept(listeners()), &origins);
        let rows: Vec<Vec<&str>> =
            text.lines().skip(1).map(|l| l.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect()).collect();
        assert_eq!(rows[0], ["0.0.0.0", "80", "ALL", "Route: 80", "Gateway/front.shop"]);
        assert_eq!(
            rows[1],
            [
                "10.0.0.1",
                "5432",
                "Addr: 10.0.0.0/8:5432",
                "Cluster: outbound|5432||db.example",
                "VirtualService/db.shop"
            ]
        );
        assert_eq!(rows[2], ["0.0.0.0,::", "15006", "ALL", "Non-HTTP/Non-TCP", "-"]);
        assert_eq!(rows[3], ["0.0.0.0,::", "15006", "ALL", "InboundPassthroughCluster", "-"]);
        assert_eq!(
            rows[4],
            ["0.0.0.0,::", "15006", "SNI: a,b; Trans: tls; App: HTTP TLS", "Cluster: inbound|80||", "-"]
        );
    }

    #[test]
    fn routes_of_https_name_their_gateway() {
        assert_eq!(gateway_of("Route: https.443.https.edge.v1.shop").as_deref(), Some("Gateway/edge.v1.shop"));
        for other in [
            "Route: http.80",
            "Route: https.x.https.edge.shop",
            "Route: https.443.https.edge.shop.10.0.0.1",
            "Route: https.443.https.edge",
            "Route: 80",
            "HTTP",
        ] {
            assert_eq!(gateway_of(other), None, "{other}");
        }
    }

    #[test]
    fn filters() {
        let kept = |filter: ListenerFilter| filter.kept(listeners()).len();
        let text = |text: &str| Some(text.to_string());
        assert_eq!(kept(ListenerFilter { address: text("::"), ..Default::default() }), 1);
        assert_eq!(kept(ListenerFilter { address: text("0.0.0.0"), ..Default::default() }), 2);
        assert_eq!(kept(ListenerFilter { port: Some(80), ..Default::default() }), 1);
        assert_eq!(kept(ListenerFilter { r#type: text("http+tcp"), ..Default::default() }), 1);
        assert_eq!(kept(ListenerFilter { r#type: text("TCP"), ..Default::default() }), 1);
        assert_eq!(kept(ListenerFilter { r#type: text("UNKNOWN"), ..Default::default() }), 1);
    }
}
