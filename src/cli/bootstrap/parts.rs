//! The parts of Envoy's bootstrap that settings of the mesh decide, with the names and ports of Istio's bootstrap.

use serde_json::{Value, json};

use super::{
    listeners,
    proxy::{ADMIN_CLUSTER, Proxy, address},
    secrets::Secrets,
    services, stats,
};
use crate::{generate::endpoint::LOCAL_CLUSTER, proto::mesh::ProxyConfig};

/// The limit of connections as a runtime value, which older settings have.
const RUNTIME_LIMIT: &str = "overload.global_downstream_max_connections";
/// The limit of connections in a proxy's metadata.
const METADATA_LIMIT: &str = "ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS";
/// Adds them all. The texts are about settings without effect.
///
/// # Errors
/// A setting with which Envoy would not start, or not report as it is told.
pub(super) fn add(bootstrap: &mut Value, proxy: &Proxy<'_>, secrets: &mut Secrets) -> Result<Vec<String>, String> {
    let settings = proxy.settings;
    bootstrap["admin"] = json!({"address": address(proxy.localhost(), settings.proxy_admin_port)});
    runtime(&mut bootstrap["layered_runtime"]["layers"][0]["static_layer"], settings);
    bootstrap["overload_manager"] = json!({"resource_monitors": [{
        "name": "envoy.resource_monitors.global_downstream_max_connections",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
            "max_active_downstream_connections": connection_limit(settings),
        },
    }]});
    bootstrap["deferred_stat_options"] = json!({"enable_deferred_creation_stats": true});
    let server = &mut bootstrap["static_resources"]["clusters"][0];
    server["alt_stat_name"] = format!("{};", server["name"].as_str().unwrap_or_default()).into();
    let mut clusters = vec![json!({
        "name": ADMIN_CLUSTER,
        "alt_stat_name": format!("{ADMIN_CLUSTER};"),
        "type": "STATIC",
        "connect_timeout": "0.250s",
        "load_assignment": {"cluster_name": ADMIN_CLUSTER, "endpoints": [{"lb_endpoints": [{
            "endpoint": {"address": address(proxy.localhost(), settings.proxy_admin_port)},
        }]}]},
    })];
    if proxy.node.metadata.finds_itself() {
        clusters.push(local_cluster());
        bootstrap["cluster_manager"] = json!({"local_cluster_name": LOCAL_CLUSTER});
    }
    if let Some(list) = bootstrap["static_resources"]["clusters"].as_array_mut() {
        list.extend(clusters);
    }
    let mut notes = services::add(bootstrap, proxy, secrets)?;
    if proxy.node.metadata.finds_itself() && proxy.node.locality.zone.is_empty() {
        notes.push(
            "ISTIO_META_ENABLE_SELF_DISCOVERY has no effect: Envoy knows no zone of its own (--locality)".to_string(),
        );
    }
    notes.extend(stats::add(bootstrap, settings, proxy.node)?);
    let listeners = listeners::of(proxy);
    if !listeners.is_empty() {
        bootstrap["static_resources"]["listeners"] = listeners.into();
    }
    for (name, given) in [
        ("customConfigFile", &settings.custom_config_file),
        ("proxyBootstrapTemplatePath", &settings.proxy_bootstrap_template_path),
    ] {
        if !given.is_empty() {
            notes.push(format!("{name} has no effect: the bootstrap is not made from a template"));
        }
    }
    Ok(notes)
}

/// Runtime values over ours; an empty one removes the value, and the words of truth are values of that type, as in Istio.
fn runtime(layer: &mut Value, settings: &ProxyConfig) {
    let Some(layer) = layer.as_object_mut() else { return };
    for (key, value) in &settings.runtime_values {
        let value = match value.as_str() {
            "" => {
                layer.remove(key);
                continue;
            }
            "true" => true.into(),
            "false" => false.into(),
            text => text.into(),
        };
        // Envoy takes the limit from one place alone: the monitor of connections has it.
        if key != RUNTIME_LIMIT {
            layer.insert(key.clone(), value);
        }
    }
}

/// The limit of connections of all listeners together: the setting, else the metadata, else the runtime value, else none.
fn connection_limit(settings: &ProxyConfig) -> i64 {
    let own = settings.connection_settings.as_ref().and_then(|s| s.global_downstream_connection_limit);
    let number = |text: Option<&String>| text.and_then(|text| text.parse().ok()).filter(|limit| *limit > 0);
    own.map(i64::from)
        .filter(|limit| *limit > 0)
        .or_else(|| number(settings.proxy_metadata.get(METADATA_LIMIT)))
        .or_else(|| number(settings.runtime_values.get(RUNTIME_LIMIT)))
        .unwrap_or_else(|| i32::MAX.into())
}

/// The endpoints of the workload's own service, from the server.
fn local_cluster() -> Value {
    json!({
        "name": LOCAL_CLUSTER,
        "alt_stat_name": format!("{LOCAL_CLUSTER};"),
        "type": "EDS",
        "connect_timeout": "1s",
        "load_balancing_policy": {"policies": [{"typed_extension_config": {
            "name": "envoy.load_balancing_policies.least_request",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
                "locality_lb_config": {"zone_aware_lb_config": {"min_cluster_size": 1}},
            },
        }}]},
        "eds_cluster_config": {
            "eds_config": {"ads": {}, "resource_api_version": "V3"},
            "service_name": LOCAL_CLUSTER,
        },
    })
}
