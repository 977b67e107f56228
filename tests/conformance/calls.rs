//! Family `calls`: where traffic goes in the generated configuration.

use std::collections::{BTreeMap, BTreeSet};

use pilothouse::{
    discovery::{Composer, Resources},
    proto::{
        envoy::config::{
            core::v3::{address::Address, socket_address::PortSpecifier},
            endpoint::v3::lb_endpoint::HostIdentifier,
            route::v3::{route::Action, route_action::ClusterSpecifier},
        },
        to_json,
    },
    simulate::{Call, CallProtocol, CallTls, Outcome, Proxy},
};
use serde_json::Value;

use crate::{
    data::{self, Case, Verdict},
    environment,
};

pub fn check(case: &Case) -> Verdict {
    let description = data::json(&case.folder.join("case.json"));
    let context = environment::context(&case.folder, &description, environment::Ages::Equal);
    let composer = Composer::new(&context, environment::view(&context, &description["proxy"]), None);
    let got = composer.all(&[]).unwrap();
    let proxy = Proxy {
        listeners: got.listeners.clone(),
        routes: got.routes.iter().map(|r| (r.name.clone(), r.clone())).collect(),
    };
    let mut lines = Vec::new();
    for call in description["calls"].as_array().into_iter().flatten() {
        lines.extend(check_call(&proxy, call));
    }
    if let Some(hosts) = description["expectedVirtualHosts"].as_object() {
        let name = description["routeName"].as_str().unwrap_or_default();
        let route = composer.route_configuration(name).unwrap().unwrap_or_default();
        for (domain, clusters) in hosts {
            let wanted = strings(clusters);
            let have = clusters_of_domain(&route, domain);
            if wanted != have {
                lines.push(format!("domain {domain}: expected {wanted:?} / got {have:?}"));
            }
        }
    }
    if let Some(clusters) = description["expectedInboundClusters"].as_object() {
        lines.extend(check_inbound(&got, clusters));
    }
    if let Some(clusters) = description["expectedInboundTelemetry"].as_object() {
        lines.extend(check_telemetry(&got, clusters));
    }
    Verdict::of(lines)
}

fn strings(value: &Value) -> BTreeSet<String> {
    value.as_array().into_iter().flatten().filter_map(|v| v.as_str().map(String::from)).collect()
}

fn check_call(proxy: &Proxy, call: &Value) -> Option<String> {
    let effective = &call["effectiveCall"];
    let text = |key: &str| effective[key].as_str().unwrap_or_default().to_string();
    let host = match text("hostHeader") {
        h if h.is_empty() => effective["headers"]["Host"][0].as_str().unwrap_or_default().to_string(),
        h => h,
    };
    let outcome = proxy.call(&Call {
        address: text("address"),
        port: effective["port"].as_u64().unwrap_or_default() as u32,
        path: text("path"),
        host,
        protocol: match text("protocol").as_str() {
            "http" => CallProtocol::Http,
            "http2" => CallProtocol::Http2,
            _ => CallProtocol::Tcp,
        },
        tls: match text("tls").as_str() {
            "tls" => CallTls::Tls,
            "mtls" => CallTls::Mtls,
            _ => CallTls::Plaintext,
        },
        alpn: text("alpn"),
        sni: text("sni"),
        inbound: text("callMode") == "inbound",
        mtls_secret: text("mtlsSecretConfigName"),
    });
    // `actual` is the whole outcome in Istio. The repository's own cases have `expect` alone.
    let (actual, expect) = (call["actual"].as_object(), call["expect"].as_object());
    let whole = actual.is_some() || call["expect"]["strictMatch"] == true;
    let checked = |key: &str| whole || key == "error" || expect.is_some_and(|expect| expect.contains_key(key));
    let wanted = |key: &str| actual.or(expect).and_then(|o| o.get(key)).and_then(Value::as_str).unwrap_or_default();
    fields(&outcome).into_iter().find_map(|(key, got)| {
        let want = wanted(key);
        (checked(key) && want != got)
            .then(|| format!("call {}: {key}: expected {want:?} / got {got:?} ({outcome:?})", call["name"]))
    })
}

fn fields(o: &Outcome) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("error", o.error.unwrap_or_default().to_string()),
        ("listener", o.listener.clone()),
        ("filterChain", o.filter_chain.clone()),
        ("routeConfig", o.route_config.clone()),
        ("virtualHost", o.virtual_host.clone()),
        ("route", o.route.clone()),
        ("cluster", o.cluster.clone()),
    ])
}

fn clusters_of_domain(
    route: &pilothouse::proto::envoy::config::route::v3::RouteConfiguration,
    domain: &str,
) -> BTreeSet<String> {
    let hosts = route.virtual_hosts.iter().filter(|v| v.domains.iter().any(|d| d == domain));
    hosts
        .flat_map(|v| &v.routes)
        .filter_map(|r| match &r.action {
            Some(Action::Route(a)) => match &a.cluster_specifier {
                Some(ClusterSpecifier::Cluster(c)) => Some(c.clone()),
                _ => None,
            },
            _ => None,
        })
        .collect()
}

fn check_inbound(got: &Resources, wanted: &serde_json::Map<String, Value>) -> Vec<String> {
    let have: BTreeMap<&str, BTreeSet<String>> = got
        .clusters
        .iter()
        .filter(|c| c.name.starts_with("inbound"))
        .map(|c| {
            let endpoints = c.load_assignment.iter().flat_map(|l| &l.endpoints).flat_map(|l| &l.lb_endpoints);
            let addresses = endpoints.filter_map(|e| match &e.host_identifier {
                Some(HostIdentifier::Endpoint(e)) => match e.address.as_ref()?.address.as_ref()? {
                    Address::SocketAddress(a) => match a.port_specifier {
                        Some(PortSpecifier::PortValue(p)) => Some(format!("{}:{p}", a.address)),
                        _ => None,
                    },
                    Address::Pipe(p) => Some(p.path.clone()),
                    _ => None,
                },
                _ => None,
            });
            (c.name.as_str(), addresses.collect())
        })
        .collect();
    let wanted: BTreeMap<&str, BTreeSet<String>> = wanted.iter().map(|(k, v)| (k.as_str(), strings(v))).collect();
    if wanted == have { Vec::new() } else { vec![format!("inbound clusters: expected {wanted:?} / got {have:?}")] }
}

/// The hosts that inbound clusters name for telemetry.
fn check_telemetry(got: &Resources, wanted: &serde_json::Map<String, Value>) -> Vec<String> {
    let hosts = |name: &str| -> BTreeSet<String> {
        let cluster = got.clusters.iter().find(|c| c.name == name).map(|c| to_json(c).unwrap()).unwrap_or_default();
        let services = &cluster["metadata"]["filterMetadata"]["istio"]["services"];
        services.as_array().into_iter().flatten().filter_map(|s| s["host"].as_str().map(String::from)).collect()
    };
    let compare = |(name, wanted): (&String, &Value)| {
        let (wanted, have) = (strings(wanted), hosts(name));
        (wanted != have).then(|| format!("telemetry of {name}: expected {wanted:?} / got {have:?}"))
    };
    wanted.iter().filter_map(compare).collect()
}
