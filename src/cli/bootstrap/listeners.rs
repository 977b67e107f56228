//! The listeners of the bootstrap: readiness (15021) and statistics for Prometheus (15090). Both lead to pages of Envoy's admin
//! interface, of which nothing else is reachable.

use serde_json::{Value, json};

use super::proxy::{ADMIN_CLUSTER, Proxy, address};

/// Statistics are compressed with these, by the client's choice: library and its message.
const COMPRESSORS: &[(&str, &str)] = &[
    ("brotli", "envoy.extensions.compression.brotli.compressor.v3.Brotli"),
    ("zstd", "envoy.extensions.compression.zstd.compressor.v3.Zstd"),
    ("gzip", "envoy.extensions.compression.gzip.compressor.v3.Gzip"),
];

/// Those of the proxy; a port 0 in its metadata leaves one out.
pub(super) fn of(proxy: &Proxy<'_>) -> Vec<Value> {
    let settings = proxy.settings;
    let local = settings.proxy_metadata.get("METRICS_LOCALHOST_ACCESS_ONLY").is_some_and(|value| value == "true");
    let metadata = &proxy.node.metadata;
    let mut filters = Vec::new();
    if settings.stats_compression != Some(false) {
        filters.extend(COMPRESSORS.iter().map(compressor));
    }
    let host = if local { proxy.localhost() } else { proxy.wildcard() };
    let metrics = json!({"match": {"prefix": "/stats/prometheus"}, "route": {"cluster": ADMIN_CLUSTER}});
    let ready = json!({
        "match": {"path": "/healthz/ready"},
        "route": {"cluster": ADMIN_CLUSTER, "prefix_rewrite": "/ready"},
    });
    [
        (metadata.envoy_prometheus_port, host, "stats", metrics, filters),
        (metadata.envoy_status_port, proxy.wildcard(), "agent", ready, Vec::new()),
    ]
    .into_iter()
    .filter(|(port, ..)| *port != 0)
    .map(|(port, host, prefix, route, filters)| listener(host, port, prefix, &route, filters))
    .collect()
}

fn listener(host: &str, port: u32, prefix: &str, route: &Value, mut filters: Vec<Value>) -> Value {
    filters.push(json!({"name": "envoy.filters.http.router", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
    }}));
    json!({
        "name": format!("{host}_{port}"),
        "address": address(host, port),
        // A proxy that has no room for more connections still says how it is.
        "ignore_global_conn_limit": true,
        "bypass_overload_manager": true,
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "codec_type": "AUTO",
                "stat_prefix": prefix,
                "route_config": {"virtual_hosts": [{"name": "backend", "domains": ["*"], "routes": [route]}]},
                "http_filters": filters,
            },
        }]}],
    })
}

fn compressor((name, message): &(&str, &str)) -> Value {
    json!({"name": format!("envoy.filters.http.compressor.{name}"), "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.compressor.v3.Compressor",
        "compressor_library": {
            "name": format!("stats_{name}"),
            "typed_config": {"@type": format!("type.googleapis.com/{message}")},
        },
    }})
}
