//! Deprecated filter names and their current names.

/// The current name of a deprecated filter; `None` for other names.
pub(super) fn current(name: &str) -> Option<String> {
    const HTTP: [&str; 14] = [
        "buffer",
        "cors",
        "csrf",
        "ext_authz",
        "fault",
        "grpc_http1_bridge",
        "grpc_json_transcoder",
        "grpc_web",
        "gzip",
        "health_check",
        "ip_tagging",
        "lua",
        "router",
        "squash",
    ];
    const NETWORK: [&str; 6] =
        ["client_ssl_auth", "http_connection_manager", "mongo_proxy", "ratelimit", "redis_proxy", "tcp_proxy"];
    const LISTENER: [&str; 5] = ["http_inspector", "original_dst", "original_src", "proxy_protocol", "tls_inspector"];
    let short = name.strip_prefix("envoy.")?;
    if let Some(listener) = short.strip_prefix("listener.").filter(|l| LISTENER.contains(l)) {
        return Some(format!("envoy.filters.listener.{listener}"));
    }
    match short {
        "http_dynamo_filter" => Some("envoy.filters.http.dynamo".to_string()),
        "rate_limit" => Some("envoy.filters.http.ratelimit".to_string()),
        _ if HTTP.contains(&short) => Some(format!("envoy.filters.http.{short}")),
        _ if NETWORK.contains(&short) => Some(format!("envoy.filters.network.{short}")),
        _ => None,
    }
}
