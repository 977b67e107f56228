//! Mesh config and mesh networks, validated as Istio's `ValidateMeshConfig` and `ValidateMeshNetworks` do.
//!
//! The rules see the merged settings, defaults included. A fault of an extension provider is a warning, as in Istio: only the
//! policies that name the provider are affected.

#![allow(deprecated, reason = "deprecated fields are validated as long as Istio reads them")]

pub(super) mod provider;
pub(super) mod proxy_config;

use std::collections::BTreeSet;

use super::{
    Validation, address,
    check::{Check, Checked},
    http_route, locality, names, range, traffic_policy,
};
use crate::proto::{
    mesh::{
        MeshConfig, MeshNetworks, Network,
        mesh_config::{DefaultTrafficPolicy, ServiceSettings},
        network::{istio_network_gateway::Gw, network_endpoints::Ne},
    },
    networking::HttpRetry,
    wkt,
};

/// The longest timeout for a connection.
const LONGEST_CONNECT: i64 = 3600;
/// Curves that Envoy's TLS library knows, by the names that Istio takes.
const CURVES: [&str; 7] = ["P-224", "P-256", "P-384", "P-521", "X25519", "X25519Kyber768Draft00", "X25519MLKEM768"];

/// Validates a mesh config. Every text begins with the path of the field.
#[must_use]
pub fn mesh_config(mesh: &MeshConfig) -> Validation {
    let mut check = Check::new("");
    let c = &mut check;
    c.field("proxyListenPort", range::signed_port(mesh.proxy_listen_port));
    c.field("connectTimeout", connect_timeout(mesh.connect_timeout.as_ref()));
    c.field("protocolDetectionTimeout", detection_timeout(mesh.protocol_detection_timeout.as_ref()));
    match &mesh.default_config {
        Some(config) => c.at("defaultConfig", |c| proxy_config::validate(c, config)),
        None => c.at("defaultConfig", |c| c.error("it is required")),
    }
    // Both may be set here: the zone-aware setting takes precedence.
    locality::locality(c, mesh.locality_lb_setting.as_ref(), true);
    locality::zone_aware(c, mesh.zone_aware_lb_setting.as_ref(), true);
    service_settings(c, &mesh.service_settings);
    c.field("trustDomain", trust_domain(&mesh.trust_domain));
    for (i, alias) in mesh.trust_domain_aliases.iter().enumerate() {
        c.field(format_args!("trustDomainAliases[{i}]"), trust_domain(alias));
    }
    provider::validate(c, &mesh.extension_providers);
    c.need(
        mesh.mesh_m_tls.as_ref().is_none_or(|tls| tls.ecdh_curves.is_empty()),
        "meshMTLS.ecdhCurves cannot be set; remove it",
    );
    curves(c, mesh);
    default_traffic_policy(c, mesh.default_traffic_policy.as_ref());
    inbound_retries(c, mesh.default_inbound_http_retry_policy.as_ref());
    relative(check.finish())
}

/// Validates mesh networks. Every text begins with the path of the field.
#[must_use]
pub fn mesh_networks(networks: &MeshNetworks) -> Validation {
    let mut check = Check::new("");
    for (name, settings) in &networks.networks {
        check.at(format_args!("networks.{name}"), |c| network(c, settings));
    }
    relative(check.finish())
}

/// Paths below the root of a document begin without a dot.
pub(super) fn relative(found: Validation) -> Validation {
    let bare = |list: Vec<String>| list.into_iter().map(|text| text.trim_start_matches(['.', ':', ' ']).to_string());
    Validation { errors: bare(found.errors).collect(), warnings: bare(found.warnings).collect() }
}

pub(super) fn connect_timeout(timeout: Option<&wkt::Duration>) -> Checked {
    let timeout = timeout.copied().unwrap_or_default();
    range::duration(&timeout)?;
    if timeout.seconds > LONGEST_CONNECT || (timeout.seconds == LONGEST_CONNECT && timeout.nanos > 0) {
        return Err("the duration must be at most 1h".to_string());
    }
    Ok(())
}

/// Zero switches the detection off; a negative time is not refused, as in Istio.
pub(super) fn detection_timeout(timeout: Option<&wkt::Duration>) -> Checked {
    let whole = timeout.is_none_or(|d| d.nanos % 1_000_000 == 0);
    if whole { Ok(()) } else { Err("the duration must be a whole number of milliseconds".to_string()) }
}

/// A trust domain: DNS labels, the last of which may be a number.
pub(super) fn trust_domain(domain: &str) -> Checked {
    let labels = domain.strip_suffix('.').unwrap_or(domain);
    if domain.is_empty() {
        return Err("a trust domain is missing".to_string());
    }
    if labels.split('.').all(names::is_dns_label) {
        return Ok(());
    }
    Err(format!("trust domain {domain:?} must consist of DNS labels: letters, digits and '-', separated by dots"))
}

pub(super) fn service_settings(c: &mut Check, settings: &[ServiceSettings]) {
    c.each("serviceSettings", settings, |c, settings| {
        for (i, host) in settings.hosts.iter().enumerate() {
            c.field(format_args!("hosts[{i}]"), names::wildcard_domain(host));
        }
    });
}

/// Curves that are not known are left out, so they are warnings.
fn curves(c: &mut Check, mesh: &MeshConfig) {
    let Some(defaults) = &mesh.tls_defaults else { return };
    let mut seen = BTreeSet::new();
    for (i, curve) in defaults.ecdh_curves.iter().enumerate() {
        let known = curve.is_empty() || CURVES.contains(&curve.as_str());
        c.at(format_args!("tlsDefaults.ecdhCurves[{i}]"), |c| {
            if !known {
                c.warn(format_args!("{curve:?} is not known"));
            } else if !seen.insert(curve) {
                c.warn(format_args!("{curve:?} is given twice"));
            }
        });
    }
}

pub(super) fn default_traffic_policy(c: &mut Check, policy: Option<&DefaultTrafficPolicy>) {
    let Some(policy) = policy else { return };
    c.at("defaultTrafficPolicy", |c| {
        traffic_policy::connection_pool(c, "connectionPool", policy.connection_pool.as_ref());
        traffic_policy::outlier(c, policy.outlier_detection.as_ref());
    });
}

pub(super) fn inbound_retries(c: &mut Check, retries: Option<&HttpRetry>) {
    let Some(retries) = retries else { return };
    c.at("defaultInboundHttpRetryPolicy", |c| {
        http_route::retries(c, retries);
        c.need(
            retries.attempts != 0 || retries.backoff.is_none(),
            "backoff: attempts: 0 switches retries off; remove it",
        );
        for (name, set) in [
            ("perTryTimeout", retries.per_try_timeout.is_some()),
            ("retryRemoteLocalities", retries.retry_remote_localities.is_some()),
            ("retryIgnorePreviousHosts", retries.retry_ignore_previous_hosts.is_some()),
        ] {
            if set {
                c.at(name, |c| c.warn("it has no effect on retries towards the local application"));
            }
        }
    });
}

fn network(c: &mut Check, network: &Network) {
    c.each("endpoints", &network.endpoints, |c, endpoints| match &endpoints.ne {
        Some(Ne::FromCidr(block)) => c.field("fromCidr", address::subnet(block)),
        Some(Ne::FromRegistry(name)) => c.need(
            names::is_dns_label(name),
            format_args!("fromRegistry: cluster {name:?} must be a DNS label: letters, digits and '-'"),
        ),
        None => {}
    });
    c.each("gateways", &network.gateways, |c, gateway| {
        match &gateway.gw {
            Some(Gw::RegistryServiceName(name)) => c.field("registryServiceName", names::fqdn(name)),
            Some(Gw::Address(text)) => c.need(
                address::is_ip(text) || names::fqdn(text).is_ok(),
                format_args!("address: {text:?} is neither an IP address nor a DNS name"),
            ),
            None => {}
        }
        c.field("port", range::port(gateway.port));
    });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::Mesh;

    fn validated(config: Value) -> Validation {
        mesh_config(&Mesh::from_values(&config, &Value::Null, "cluster.local", "Kubernetes").unwrap().config)
    }

    #[test]
    fn the_default_mesh_is_valid() {
        assert_eq!(validated(json!({})), Validation::default());
    }

    #[test]
    fn a_custom_tag_is_not_null() {
        let tagged = |tag: Value| {
            let config = json!({"defaultConfig": {"tracing": {"customTags": {"cluster": tag}}}});
            Mesh::validated(&config, &Value::Null, "cluster.local", "Kubernetes").is_ok()
        };
        assert!(tagged(json!({"literal": {"value": "a"}})));
        assert!(!tagged(Value::Null));
    }

    #[test]
    fn faults_name_their_fields() {
        let found = validated(json!({
            "connectTimeout": "2h",
            "trustDomain": "a_b",
            "defaultConfig": {"discoveryAddress": "nowhere", "drainDuration": "1.5s", "statusPort": 0},
            "serviceSettings": [{"hosts": ["a.*"]}],
            "extensionProviders": [{"name": "z", "zipkin": {"service": "a b", "port": 0}}, {"prometheus": {}}],
        }));
        let starts = |list: &[String], paths: &[&str]| {
            assert_eq!(list.len(), paths.len(), "{list:?}");
            for (text, path) in list.iter().zip(paths) {
                assert!(text.starts_with(&format!("{path}: ")), "{text}");
            }
        };
        starts(
            &found.errors,
            &[
                "connectTimeout",
                "defaultConfig.drainDuration",
                "defaultConfig.discoveryAddress",
                "defaultConfig.statusPort",
                "serviceSettings[0].hosts[0]",
                "trustDomain",
            ],
        );
        starts(
            &found.warnings,
            &["extensionProviders[z].zipkin.service", "extensionProviders[z].zipkin.port", "extensionProviders[]"],
        );
    }

    #[test]
    fn networks_name_clusters_blocks_and_gateways() {
        let found = |network: Value| {
            let networks = json!({"networks": {"n.1": network}});
            mesh_networks(&crate::proto::from_json(&networks, true).unwrap()).errors
        };
        let good = json!({"endpoints": [{"fromCidr": "10.0.0.0/8"}, {"fromRegistry": "c1"}],
            "gateways": [{"address": "gw.example.com", "port": 15443}, {"address": "2001:db8::1", "port": 1}]});
        assert_eq!(found(good), Vec::<String>::new());
        let bad = found(json!({"endpoints": [{"fromCidr": "10.0.0.0/99"}, {"fromRegistry": "a.b"}],
            "gateways": [{"address": "a@b", "port": 0}]}));
        assert_eq!(bad.len(), 4, "{bad:?}");
        assert!(bad.iter().all(|text| text.starts_with("networks.n.1.")), "{bad:?}");
    }
}
