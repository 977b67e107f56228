//! The objects of the random worlds: for each place an object that may be absent, and its possible contents.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::documents::{
    document, entry, exported, gateway, http_route, older, patches, peer, pod, ports, read, route, rule, secret,
    selecting, server, service, slice, to, with, workload,
};
use crate::model::{Config, ConfigKey, Mesh};

/// Hosts that clients ask for.
pub(super) const HOSTS: [&str; 8] = [
    "a.shop.svc.cluster.local",
    "b.shop.svc.cluster.local",
    "h.bank.svc.cluster.local",
    "alias.shop.svc.cluster.local",
    "e.example",
    "d.example",
    "w.example",
    "nobody.example",
];

/// The number of places.
pub(super) const SLOTS: usize = 52;

static TABLE: LazyLock<Vec<Vec<Arc<Config>>>> = LazyLock::new(|| {
    let table: Vec<Vec<Arc<Config>>> =
        table().into_iter().map(|variants| variants.iter().map(read).collect()).collect();
    assert_eq!(table.len(), SLOTS);
    for variants in &table {
        assert!(variants.iter().all(|v| v.key() == variants[0].key()), "{} has one key", variants[0].key());
    }
    table
});

/// The object at a place; none as variant 0.
pub(super) fn object(slot: usize, variant: u8) -> (ConfigKey, Option<Arc<Config>>) {
    let variants = &TABLE[slot % SLOTS];
    let chosen = usize::from(variant) % (variants.len() + 1);
    (variants[0].key(), chosen.checked_sub(1).map(|index| variants[index].clone()))
}

/// Mesh settings.
pub(super) fn mesh(variant: u8) -> Arc<Mesh> {
    let providers = json!([
        {"name": "als", "envoyHttpAls": {"service": "e.example", "port": 90}},
        {"name": "zipkin", "zipkin": {"service": HOSTS[1], "port": 90}},
        {"name": "otel", "opentelemetry": {"service": "bank/d.example", "port": 90}},
    ]);
    let settings = match variant {
        0 => json!({"extensionProviders": providers}),
        1 => json!({"outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}, "extensionProviders": providers,
            "defaultProviders": {"tracing": ["otel"], "accessLogging": ["als"]}}),
        2 => json!({"connectTimeout": "7s", "defaultServiceExportTo": ["."]}),
        _ => json!({"localityLbSetting": {"failoverPriority": ["app"]}, "defaultVirtualServiceExportTo": ["."]}),
    };
    Arc::new(Mesh::from_values(&settings, &json!({}), "cluster.local", "Kubernetes").expect("mesh settings"))
}

fn table() -> Vec<Vec<Value>> {
    let (a, b, h) = (HOSTS[0], HOSTS[1], HOSTS[2]);
    let of_a = || service("shop/a", json!({"selector": {"app": "one"}, "clusterIP": "10.5.0.1", "ports": ports()}));
    let headless = |selector: Value| json!({"selector": selector, "clusterIP": "None", "ports": ports()});
    let subsets = json!([{"name": "v1", "labels": {"version": "v1"}}, {"name": "v2", "labels": {"version": "v2"}}]);
    let passthrough = json!({"loadBalancer": {"simple": "PASSTHROUGH"}});
    let hash = json!({"loadBalancer": {"consistentHash": {"useSourceIp": true}}});
    let egress = |hosts: Value| json!({"egress": [{"hosts": hosts}]});
    let two = json!({"egress": [{"port": {"number": 80, "name": "p", "protocol": "HTTP"}, "hosts": ["*/*"]}, {"hosts": ["*/*"]}]});
    let ingress = json!({"ingress": [{"port": {"number": 7000, "name": "i", "protocol": "HTTP"}, "defaultEndpoint": "127.0.0.1:7001"}],
        "egress": [{"hosts": ["./*", "istio-system/*"]}], "outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}});
    let of_gateway = json!({"kind": "Gateway", "name": "kgw", "namespace": "edge"});
    let listener = |port: u32| json!({"name": format!("l{port}"), "port": port, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}});
    let labelled = json!({"name": "sel", "port": 8080, "protocol": "HTTP",
        "allowedRoutes": {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "red"}}}}});
    let https = json!({"name": "tls", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "far", "namespace": "bank"}]}});
    let kubernetes = |listeners: Value| {
        document(
            "KubernetesGateway",
            "edge/kgw",
            json!({"gatewayClassName": "istio", "listeners": listeners,
            "addresses": [{"type": "Hostname", "value": "gw.edge.svc.cluster.local"}]}),
        )
    };
    let http = |routes: Value| json!({"hosts": ["e.example"], "http": routes});
    vec![
        vec![
            of_a(),
            exported(of_a(), "~"),
            exported(of_a(), "."),
            service("shop/a", headless(json!({"app": "one"}))),
            service(
                "shop/a",
                json!({"selector": {"app": "two"}, "clusterIP": "10.5.0.1", "ports": ports(), "trafficDistribution": "PreferClose"}),
            ),
            service("shop/a", json!({"clusterIP": "10.5.0.1", "ports": [{"name": "http", "port": 80}]})),
        ],
        vec![
            slice("shop/a-1", "a", &[("10.1.0.1", "one", true)]),
            slice("shop/a-1", "a", &[("10.1.0.2", "", true)]),
            slice("shop/a-1", "a", &[("10.1.0.1", "one", true), ("10.1.0.5", "", true)]),
            slice("shop/a-1", "a", &[("10.9.9.9", "", false)]),
            slice("shop/a-1", "a", &[]),
        ],
        vec![
            service("shop/b", json!({"clusterIP": "10.5.0.2", "ports": ports()})),
            service(
                "shop/b",
                json!({"selector": {"app": "two"}, "clusterIP": "10.5.0.2", "ports": [{"name": "tcp", "port": 90}]}),
            ),
            exported(service("shop/b", json!({"clusterIP": "10.5.0.2", "ports": ports()})), "bank"),
        ],
        vec![
            slice("shop/b-1", "b", &[("10.1.0.2", "", true)]),
            slice("shop/b-1", "b", &[("10.1.0.3", "", true), ("10.1.0.9", "", false)]),
            slice("shop/b-1", "b", &[("10.1.0.9", "", true)]),
        ],
        vec![
            service("bank/h", headless(json!({"app": "one"}))),
            service("bank/h", headless(json!({}))),
            exported(service("bank/h", headless(json!({"app": "one"}))), "~"),
        ],
        vec![
            slice("bank/h-1", "h", &[("10.1.0.3", "three", true)]),
            slice("bank/h-1", "h", &[("10.1.0.6", "", true), ("10.1.0.9", "", true)]),
            slice("bank/h-1", "h", &[("10.1.0.9", "", false)]),
        ],
        vec![
            service("shop/alias", json!({"type": "ExternalName", "externalName": a})),
            service("shop/alias", json!({"type": "ExternalName", "externalName": "e.example"})),
        ],
        vec![
            pod("shop/one", "10.1.0.1", json!({"app": "one", "version": "v1"}), "x"),
            pod("shop/one", "10.1.0.1", json!({"app": "two", "version": "v2"}), "x"),
            pod("shop/one", "10.1.0.1", json!({"app": "one", "version": "v1"}), "y"),
            pod("shop/one", "10.1.0.8", json!({"app": "one"}), "x"),
        ],
        vec![
            pod("bank/three", "10.1.0.3", json!({"app": "one"}), "x"),
            pod("bank/three", "10.1.0.3", json!({"app": "w", "security.istio.io/tlsMode": "istio"}), "z"),
        ],
        vec![
            with(document("Namespace", "/shop", json!({})), "labels", json!({"team": "red"})),
            with(document("Namespace", "/shop", json!({})), "labels", json!({"team": "blue"})),
            with(
                document("Namespace", "/shop", json!({})),
                "annotations",
                json!({"networking.istio.io/traffic-distribution": "PreferClose"}),
            ),
        ],
        vec![
            entry("shop/e", "e.example", json!({}), &[("10.1.0.1", "v1", "s1"), ("10.9.0.1", "v2", "s2")]),
            entry("shop/e", "e.example", json!({}), &[("10.1.0.2", "v1", "s1")]),
            entry("shop/e", "e.example", json!({}), &[("10.9.0.1", "v2", "s1")]),
            entry("shop/e", "e.example", json!({"exportTo": ["~"]}), &[("10.1.0.5", "v1", "s1")]),
            entry("shop/e", "e.example", json!({"resolution": "NONE"}), &[]),
            entry(
                "shop/e",
                "e.example",
                json!({"resolution": "DNS", "location": "MESH_EXTERNAL"}),
                &[("x.test", "v1", "")],
            ),
        ],
        vec![
            entry("bank/e", "e.example", json!({}), &[("10.1.0.3", "v1", "t")]),
            older(entry("bank/e", "e.example", json!({"exportTo": ["*"]}), &[("10.9.0.3", "v1", "t")])),
            entry("bank/e", "e.example", json!({"exportTo": ["."]}), &[("10.9.0.3", "v1", "t")]),
        ],
        vec![
            entry("shop/e2", "e.example", json!({}), &[("10.9.0.4", "v1", "other")]),
            older(entry("shop/e2", "e.example", json!({"addresses": ["240.1.1.1"]}), &[("10.1.0.2", "v2", "other")])),
        ],
        vec![
            entry("shop/d", "d.example", json!({"resolution": "DNS"}), &[("a.test", "v1", "s"), ("b.test", "v2", "")]),
            entry("shop/d", "d.example", json!({"resolution": "DNS"}), &[("c.test", "v1", "")]),
            entry(
                "shop/d",
                "d.example",
                json!({"resolution": "DNS_ROUND_ROBIN", "location": "MESH_EXTERNAL"}),
                &[("c.test", "v1", "")],
            ),
        ],
        vec![
            entry("shop/w", "w.example", json!({"workloadSelector": {"labels": {"app": "w"}}}), &[]),
            entry("shop/w", "w.example", json!({"workloadSelector": {"labels": {"app": "one"}}}), &[]),
        ],
        vec![
            workload("shop/w1", "10.1.0.1", json!({"app": "w", "version": "v1"})),
            workload("shop/w1", "10.1.0.2", json!({"app": "w", "version": "v1"})),
            workload("shop/w1", "10.9.0.7", json!({"app": "w", "version": "v2"})),
            workload("shop/w1", "10.1.0.1", json!({"app": "one"})),
        ],
        vec![
            workload("bank/w2", "10.1.0.3", json!({"app": "w"})),
            workload("bank/w2", "10.1.0.6", json!({"app": "one"})),
        ],
        vec![
            route("shop/http", http(json!([{"route": to(a)}]))),
            route(
                "shop/http",
                http(
                    json!([{"route": [{"destination": {"host": a, "subset": "v1"}, "weight": 30}, {"destination": {"host": b}, "weight": 70}]}]),
                ),
            ),
            route(
                "shop/http",
                http(
                    json!([{"match": [{"sourceLabels": {"app": "two"}}], "route": to(h)}, {"route": to("w.example")}]),
                ),
            ),
            route(
                "shop/http",
                json!({"hosts": ["e.example", "d.example"], "gateways": ["mesh", "edge/gw"], "http": [{"route": to(b), "timeout": "3s"}]}),
            ),
            route(
                "shop/http",
                json!({"hosts": ["*.example"], "exportTo": ["."], "http": [{"route": to("nobody.example")}]}),
            ),
        ],
        vec![
            route("shop/tcp", json!({"hosts": [b], "tcp": [{"match": [{"port": 90}], "route": to("e.example")}]})),
            route("shop/tcp", json!({"hosts": [b], "tcp": [{"match": [{"port": 90}], "route": to(h)}]})),
            route("shop/tcp", json!({"hosts": [b], "http": [{"route": to("e.example")}]})),
        ],
        vec![
            route(
                "bank/tls",
                json!({"hosts": ["e.example"], "tls": [{"match": [{"port": 90, "sniHosts": ["e.example"]}], "route": to(a)}]}),
            ),
            route(
                "bank/tls",
                json!({"hosts": ["e.example"], "exportTo": ["shop"], "tls": [{"match": [{"port": 90, "sniHosts": ["e.example"]}], "route": to("d.example")}]}),
            ),
        ],
        vec![
            route(
                "shop/root",
                json!({"hosts": ["d.example"], "http": [{"match": [{"uri": {"prefix": "/x"}}], "delegate": {"name": "leaf", "namespace": "shop"}}, {"route": to(a)}]}),
            ),
            older(route(
                "shop/root",
                json!({"hosts": [a], "http": [{"delegate": {"name": "leaf", "namespace": "shop"}}]}),
            )),
        ],
        vec![
            route("shop/leaf", json!({"http": [{"route": to("e.example")}]})),
            route("shop/leaf", json!({"http": [{"match": [{"uri": {"prefix": "/x/y"}}], "route": to(b)}]})),
        ],
        vec![
            route(
                "edge/gw",
                json!({"hosts": ["*"], "gateways": ["gw"], "http": [{"route": to(a)}], "tcp": [{"match": [{"port": 90}], "route": to(b)}]}),
            ),
            route(
                "edge/gw",
                json!({"hosts": ["e.example"], "gateways": ["edge/gw", "bank/gw2"], "http": [{"route": to("e.example")}]}),
            ),
        ],
        vec![
            rule("shop/a", json!({"host": a, "subsets": subsets})),
            rule("shop/a", json!({"host": a, "trafficPolicy": passthrough})),
            rule("shop/a", json!({"host": a, "trafficPolicy": hash, "exportTo": ["."]})),
            rule(
                "shop/a",
                json!({"host": a, "workloadSelector": selecting("one"), "trafficPolicy": {"tls": {"mode": "SIMPLE"}}}),
            ),
            rule(
                "shop/a",
                json!({"host": a, "trafficPolicy": {"tls": {"mode": "ISTIO_MUTUAL"}, "connectionPool": {"tcp": {"connectTimeout": "3s", "idleTimeout": "9s"}}}}),
            ),
        ],
        vec![
            rule(
                "bank/e",
                json!({"host": "e.example", "subsets": subsets, "trafficPolicy": {"outlierDetection": {"consecutive5xxErrors": 3}}}),
            ),
            rule("bank/e", json!({"host": "e.example", "exportTo": ["."], "trafficPolicy": hash})),
        ],
        vec![
            rule(
                "istio-system/root",
                json!({"host": "*.example", "trafficPolicy": {"loadBalancer": {"localityLbSetting": {"enabled": true, "failoverPriority": ["version"]}}, "outlierDetection": {}}}),
            ),
            rule("istio-system/root", json!({"host": "*.local", "trafficPolicy": {"tls": {"mode": "DISABLE"}}})),
        ],
        vec![
            gateway("edge/gw", json!([server(80, "HTTP", "")])),
            gateway("edge/gw", json!([server(80, "HTTP", ""), server(443, "HTTPS", "own")])),
            gateway("edge/gw", json!([server(443, "HTTPS", "kubernetes-gateway://bank/far"), server(90, "TCP", "")])),
            gateway(
                "edge/gw",
                json!([{"port": {"number": 443, "name": "tls", "protocol": "TLS"}, "hosts": ["*.local"], "tls": {"mode": "AUTO_PASSTHROUGH"}}]),
            ),
        ],
        vec![
            gateway("bank/gw2", json!([server(80, "HTTP", "")])),
            older(gateway("bank/gw2", json!([server(80, "TCP", ""), server(8080, "HTTP", "")]))),
        ],
        vec![
            document("Sidecar", "shop/default", egress(json!(["./*"]))),
            document("Sidecar", "shop/default", two.clone()),
            document("Sidecar", "shop/default", ingress),
            document("Sidecar", "shop/default", egress(json!(["bank/e.example", "*/a.shop.svc.cluster.local"]))),
        ],
        vec![
            document(
                "Sidecar",
                "shop/chosen",
                json!({"workloadSelector": {"labels": {"app": "w"}}, "egress": [{"hosts": ["~/*"]}]}),
            ),
            document(
                "Sidecar",
                "shop/chosen",
                json!({"workloadSelector": {"labels": {"version": "v1"}}, "egress": [{"hosts": ["./*", "bank/*"]}]}),
            ),
        ],
        vec![
            document("Sidecar", "istio-system/root", two),
            document("Sidecar", "istio-system/root", egress(json!(["*/*", "~/d.example"]))),
        ],
        vec![
            peer("shop/policy", json!({"mtls": {"mode": "STRICT"}})),
            peer("shop/policy", json!({"mtls": {"mode": "DISABLE"}})),
            peer("shop/policy", json!({"selector": selecting("one"), "mtls": {"mode": "DISABLE"}})),
        ],
        vec![
            peer("istio-system/policy", json!({"mtls": {"mode": "STRICT"}})),
            peer("istio-system/policy", json!({"mtls": {"mode": "DISABLE"}})),
        ],
        vec![
            peer("bank/policy", json!({"selector": selecting("one"), "portLevelMtls": {"8080": {"mode": "DISABLE"}}})),
            older(peer("bank/policy", json!({"mtls": {"mode": "STRICT"}}))),
        ],
        vec![secret("edge/own", 0), secret("edge/own", 1)],
        vec![secret("bank/far", 0), secret("bank/far", 1)],
        vec![secret("shop/own", 0), secret("shop/own", 1)],
        vec![
            document(
                "ReferenceGrant",
                "bank/grant",
                json!({"from": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "edge"}], "to": [{"group": "", "kind": "Secret"}]}),
            ),
            document(
                "ReferenceGrant",
                "bank/grant",
                json!({"from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "shop"}], "to": [{"group": "", "kind": "Service"}]}),
            ),
        ],
        vec![
            kubernetes(json!([listener(8080)])),
            kubernetes(json!([labelled, https])),
            kubernetes(json!([listener(80)])),
        ],
        vec![
            http_route("shop/web", of_gateway.clone(), "a"),
            http_route("shop/web", of_gateway.clone(), "b"),
            http_route("shop/web", json!({"group": "", "kind": "Service", "name": "a"}), "b"),
        ],
        vec![http_route("bank/web", of_gateway.clone(), "h"), older(http_route("bank/web", of_gateway, "nothing"))],
        vec![
            document(
                "Telemetry",
                "shop/t",
                json!({"selector": selecting("one"), "tracing": [{"randomSamplingPercentage": 10}]}),
            ),
            document("Telemetry", "shop/t", json!({"accessLogging": [{"providers": [{"name": "envoy"}]}]})),
            document(
                "Telemetry",
                "shop/t",
                json!({"accessLogging": [{"providers": [{"name": "als"}]}], "tracing": [{"providers": [{"name": "zipkin"}]}]}),
            ),
        ],
        vec![
            document("AuthorizationPolicy", "shop/ap", json!({"selector": {"matchLabels": {"version": "v1"}}})),
            document("AuthorizationPolicy", "shop/ap", json!({"action": "DENY", "rules": [{}]})),
        ],
        vec![
            service(
                "edge/gw",
                json!({"selector": {"istio": "gw"}, "clusterIP": "10.5.0.9", "ports": [{"name": "http", "port": 80, "targetPort": 8080}, {"name": "https", "port": 443}, {"name": "web", "port": 8080}]}),
            ),
            service(
                "edge/gw",
                json!({"clusterIP": "10.5.0.9", "ports": [{"name": "http", "port": 80, "targetPort": 9080}]}),
            ),
        ],
        vec![slice("edge/gw-1", "gw", &[("10.1.0.4", "", true)])],
        vec![with(
            service(
                "istio-system/ew",
                json!({"type": "LoadBalancer", "clusterIP": "10.5.0.8", "externalIPs": ["192.0.2.9"], "ports": [{"name": "tls", "port": 15443}]}),
            ),
            "labels",
            json!({"topology.istio.io/network": "far"}),
        )],
        vec![
            entry("bank/n", "w.example", json!({}), &[("10.9.0.8", "v1", "n")]),
            entry("bank/n", "w.example", json!({"exportTo": ["shop"]}), &[("10.9.0.8", "v2", "n")]),
        ],
        vec![document("WorkloadGroup", "shop/g", json!({"template": {"serviceAccount": "g"}}))],
        vec![document(
            "EnvoyFilter",
            "shop/f",
            json!({"workloadSelector": {"labels": {"app": "two"}}, "configPatches": []}),
        )],
        vec![
            patches("istio-system/p", json!({"priority": 3}), "1s"),
            patches("istio-system/p", json!({}), "2s"),
            patches("istio-system/p", json!({"workloadSelector": {"labels": {"version": "v1"}}}), "2s"),
        ],
        vec![patches("shop/p", json!({"workloadSelector": {"labels": {"app": "one"}}}), "3s")],
        vec![
            document(
                "RequestAuthentication",
                "shop/ra",
                json!({"selector": selecting("one"), "jwtRules": [{"issuer": "a"}]}),
            ),
            document(
                "RequestAuthentication",
                "shop/ra",
                json!({"jwtRules": [{"issuer": "b", "jwks": "{\"keys\":[]}"}]}),
            ),
        ],
    ]
}
