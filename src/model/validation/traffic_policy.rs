//! Traffic policies: connection pools, outlier detection, load balancing, client TLS, tunnels.

#![allow(deprecated, reason = "deprecated fields are validated as long as Istio reads them")]

use std::collections::BTreeSet;

use super::{address, check::Check, locality, names, range};
use crate::proto::networking::{
    ClientTlsSettings, ConnectionPoolSettings, LoadBalancerSettings, OutlierDetection, TrafficPolicy,
    client_tls_settings::TlSmode,
    connection_pool_settings::{HttpSettings, TcpSettings, http_settings::H2UpgradePolicy},
    load_balancer_settings::{
        ConsistentHashLb, LbPolicy,
        consistent_hash_lb::{HashAlgorithm, HashKey},
    },
    traffic_policy::{PortTrafficPolicy, TunnelSettings},
};

const CONFIG_MAP: &str = "configmap://";
const MAGLEV_MAX: u64 = 5_000_011;

pub(super) fn validate(c: &mut Check, namespace: &str, policy: Option<&TrafficPolicy>) {
    let Some(policy) = policy else { return };
    c.at("trafficPolicy", |c| {
        let set = policy.outlier_detection.is_some()
            || policy.connection_pool.is_some()
            || policy.load_balancer.is_some()
            || policy.tls.is_some()
            || !policy.port_level_settings.is_empty()
            || policy.tunnel.is_some()
            || policy.proxy_protocol.is_some()
            || policy.retry_budget.is_some();
        if !set {
            return c.error("at least one field is required; remove the policy otherwise");
        }
        if policy.tunnel.is_some() && policy.proxy_protocol.is_some() {
            return c.error("only one of tunnel and proxyProtocol may be set");
        }
        outlier(c, policy.outlier_detection.as_ref());
        connection_pool(c, "connectionPool", policy.connection_pool.as_ref());
        load_balancer(c, policy.load_balancer.as_ref(), policy.outlier_detection.as_ref());
        client_tls(c, "tls", namespace, policy.tls.as_ref());
        c.errors_only(|c| c.each("portLevelSettings", &policy.port_level_settings, |c, p| port(c, namespace, p)));
        tunnel(c, policy.tunnel.as_ref());
        if let Some(proxy) = &policy.proxy_protocol {
            c.need(matches!(proxy.version, 0 | 1), "proxyProtocol.version must be V1 or V2");
        }
    });
}

fn port(c: &mut Check, namespace: &str, policy: &PortTrafficPolicy) {
    c.need(policy.port.is_some(), "port is required");
    let set = policy.outlier_detection.is_some()
        || policy.connection_pool.is_some()
        || policy.load_balancer.is_some()
        || policy.tls.is_some();
    c.need(set, "at least one setting is required besides the port");
    outlier(c, policy.outlier_detection.as_ref());
    connection_pool(c, "connectionPool", policy.connection_pool.as_ref());
    load_balancer(c, policy.load_balancer.as_ref(), policy.outlier_detection.as_ref());
    client_tls(c, "tls", namespace, policy.tls.as_ref());
}

fn tunnel(c: &mut Check, tunnel: Option<&TunnelSettings>) {
    let Some(tunnel) = tunnel else { return };
    c.at("tunnel", |c| {
        c.need(matches!(tunnel.protocol.as_str(), "" | "CONNECT" | "POST"), "protocol must be CONNECT or POST");
        c.need(
            address::is_ip(&tunnel.target_host) || names::fqdn(&tunnel.target_host).is_ok(),
            format_args!("targetHost {:?} must be a full DNS name or an IP address", tunnel.target_host),
        );
        c.field("targetPort", range::port(tunnel.target_port));
    });
}

pub(super) fn outlier(c: &mut Check, outlier: Option<&OutlierDetection>) {
    let Some(outlier) = outlier else { return };
    c.at("outlierDetection", |c| {
        c.field("baseEjectionTime", range::optional_duration(outlier.base_ejection_time.as_ref()));
        c.field("interval", range::optional_duration(outlier.interval.as_ref()));
        if outlier.consecutive_errors != 0 {
            c.warn("consecutiveErrors is deprecated; use consecutiveGatewayErrors or consecutive5xxErrors");
        }
        c.need(
            outlier.split_external_local_origin_errors || outlier.consecutive_local_origin_failures.unwrap_or(0) == 0,
            "consecutiveLocalOriginFailures needs splitExternalLocalOriginErrors: true",
        );
        c.field("maxEjectionPercent", range::percent(outlier.max_ejection_percent));
        c.field("minHealthPercent", range::percent(outlier.min_health_percent));
    });
}

pub(super) fn connection_pool(c: &mut Check, field: &str, pool: Option<&ConnectionPoolSettings>) {
    let Some(pool) = pool else { return };
    c.at(field, |c| {
        c.need(pool.http.is_some() || pool.tcp.is_some(), "one of http and tcp is required");
        if let Some(http) = &pool.http {
            c.at("http", |c| http_pool(c, http));
        }
        if let Some(tcp) = &pool.tcp {
            c.at("tcp", |c| tcp_pool(c, tcp));
        }
    });
}

fn http_pool(c: &mut Check, http: &HttpSettings) {
    for (name, value) in [
        ("http1MaxPendingRequests", http.http1_max_pending_requests),
        ("http2MaxRequests", http.http2_max_requests),
        ("maxRequestsPerConnection", http.max_requests_per_connection),
        ("maxRetries", http.max_retries),
        ("maxConcurrentStreams", http.max_concurrent_streams),
    ] {
        c.field(name, range::natural(value));
    }
    c.field("idleTimeout", range::optional_duration(http.idle_timeout.as_ref()));
    c.need(
        http.h2_upgrade_policy() != H2UpgradePolicy::Upgrade || !http.use_client_protocol,
        "useClientProtocol cannot be true when h2UpgradePolicy is UPGRADE",
    );
    if let Some(keepalive) = &http.http2_keep_alive {
        for (name, value) in [("interval", &keepalive.interval), ("timeout", &keepalive.timeout)] {
            let answer = value.as_ref().map_or(Err("it is required".to_string()), range::duration);
            c.field(format_args!("http2KeepAlive.{name}"), answer);
        }
    }
}

fn tcp_pool(c: &mut Check, tcp: &TcpSettings) {
    c.field("maxConnections", range::natural(tcp.max_connections));
    c.field("connectTimeout", range::optional_duration(tcp.connect_timeout.as_ref()));
    c.field("maxConnectionDuration", range::optional_duration(tcp.max_connection_duration.as_ref()));
    // A timeout below a millisecond disables it.
    let idle = tcp.idle_timeout.as_ref().filter(|d| d.seconds != 0 || d.nanos.abs() >= 1_000_000);
    c.field("idleTimeout", range::optional_duration(idle));
    if let Some(keepalive) = &tcp.tcp_keepalive {
        c.field("tcpKeepalive.time", range::optional_duration(keepalive.time.as_ref()));
        c.field("tcpKeepalive.interval", range::optional_duration(keepalive.interval.as_ref()));
    }
}

pub(super) fn load_balancer(
    c: &mut Check,
    settings: Option<&LoadBalancerSettings>,
    outlier: Option<&OutlierDetection>,
) {
    let Some(settings) = settings else { return };
    c.at("loadBalancer", |c| {
        if let Some(LbPolicy::ConsistentHash(hash)) = &settings.lb_policy {
            c.at("consistentHash", |c| consistent_hash(c, hash));
        }
        if let Some(LbPolicy::BackendUtilization(_)) = &settings.lb_policy {
            c.warn("backendUtilization is not in force: the default load balancer is used, as by istiod");
        }
        c.need(
            settings.locality_lb_setting.is_none() || settings.zone_aware_lb_setting.is_none(),
            "only one of localityLbSetting and zoneAwareLbSetting may be set",
        );
        locality::locality(c, settings.locality_lb_setting.as_ref(), outlier.is_some());
        locality::zone_aware(c, settings.zone_aware_lb_setting.as_ref(), outlier.is_some());
        if let Some(warmup) = &settings.warmup {
            c.at("warmup", |c| {
                let duration = warmup.duration.as_ref().map_or(Err("it is required".to_string()), range::duration);
                c.field("duration", duration);
                c.need(warmup.minimum_percent.unwrap_or(0.0) <= 100.0, "minimumPercent must be at most 100");
                c.need(warmup.aggression.is_none_or(|a| a > 0.0), "aggression must be greater than 0");
            });
        }
    });
}

fn consistent_hash(c: &mut Check, hash: &ConsistentHashLb) {
    if let Some(HashKey::HttpCookie(cookie)) = &hash.hash_key {
        c.need(!cookie.name.is_empty(), "httpCookie.name is required");
        let mut seen = BTreeSet::new();
        for attribute in &cookie.attributes {
            c.need(!attribute.name.is_empty(), "httpCookie.attributes: a name is required");
            c.need(
                attribute.name.is_empty() || seen.insert(&attribute.name),
                format_args!("httpCookie.attributes: {:?} is given twice", attribute.name),
            );
        }
    }
    if hash.minimum_ring_size != 0 {
        c.warn("minimumRingSize is deprecated; use ringHash");
        c.need(hash.hash_algorithm.is_none(), "only one of minimumRingSize, ringHash and maglev may be set");
    }
    if let Some(HashAlgorithm::Maglev(maglev)) = &hash.hash_algorithm {
        c.need(
            maglev.table_size < MAGLEV_MAX && is_prime(maglev.table_size),
            format_args!("maglev.tableSize must be a prime number less than {MAGLEV_MAX}"),
        );
    }
}

/// The same test as Envoy's; the number is below [`MAGLEV_MAX`], so it is fast.
fn is_prime(number: u64) -> bool {
    match number {
        0 => false,
        1..=3 => true,
        n if n % 2 == 0 => false,
        n => (3..).step_by(2).take_while(|f| f * f <= n).all(|f| n % f != 0),
    }
}

pub(super) fn client_tls(c: &mut Check, field: &str, namespace: &str, tls: Option<&ClientTlsSettings>) {
    let Some(tls) = tls else { return };
    c.at(field, |c| {
        if let Some(name) = tls.credential_name.strip_prefix(CONFIG_MAP) {
            let own = match name.split_once('/') {
                Some((place, name)) => place == namespace && !name.is_empty(),
                None => !name.is_empty(),
            };
            c.need(own && !namespace.is_empty(), "credentialName: the config map must be of the own namespace");
        }
        let (simple, mutual) = (tls.mode() == TlSmode::Simple, tls.mode() == TlSmode::Mutual);
        let named = !tls.credential_name.is_empty();
        let checks = !tls.ca_certificates.is_empty() || !tls.subject_alt_names.is_empty();
        if tls.insecure_skip_verify == Some(true) {
            c.need(
                !((simple && (checks || named)) || (mutual && checks)),
                "insecureSkipVerify checks nothing; remove caCertificates, credentialName and subjectAltNames",
            );
        }
        if (simple || mutual) && named {
            let files = [&tls.client_certificate, &tls.ca_certificates, &tls.private_key, &tls.ca_crl];
            c.need(files.iter().all(|f| f.is_empty()), "credentialName holds the certificates; remove the files");
        } else if mutual {
            c.need(!tls.client_certificate.is_empty(), "clientCertificate is required for mode MUTUAL");
            c.need(!tls.private_key.is_empty(), "privateKey is required for mode MUTUAL");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes() {
        assert!([1, 2, 3, 5, 65537, 5_000_009 - 2].iter().filter(|n| is_prime(**n)).count() >= 5);
        assert!(![0, 4, 9, 15, 65536, 65537 * 3].iter().any(|n| is_prime(*n)));
    }
}
