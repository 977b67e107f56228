//! Random objects of Istio.

use serde_json::{Value, json};

use crate::{
    objects::{APPS, CERTIFICATES, HOSTS, NAMESPACES, address, export_to, host, labels, put},
    random::Random,
};

const PORTS: &[(u16, &str, &str)] = &[
    (80, "http", "HTTP"),
    (443, "https", "TLS"),
    (7070, "grpc", "GRPC"),
    (9000, "tcp", "TCP"),
    (3306, "mysql", "TCP"),
];

pub fn service_entry(random: &mut Random, _: &str) -> Value {
    let mut hosts = vec![*random.of(&HOSTS)];
    if random.chance(15) {
        hosts.push(*random.of(&HOSTS));
        hosts.dedup();
    }
    let mut ports = random.some(PORTS, 40);
    if ports.is_empty() {
        ports.push(&PORTS[0]);
    }
    if hosts.len() > 1 {
        ports = vec![&PORTS[0]];
    }
    let ports: Vec<Value> =
        ports.into_iter().map(|(n, name, p)| json!({"number": n, "name": name, "protocol": p})).collect();
    let resolution = *random.of(&["NONE", "STATIC", "STATIC", "STATIC", "DNS", "DNS", "DNS_ROUND_ROBIN"]);
    let mut spec = json!({
        "hosts": hosts, "ports": ports, "resolution": resolution,
        "location": random.of(&["MESH_INTERNAL", "MESH_EXTERNAL"]),
    });
    let selects = match resolution {
        "STATIC" => random.chance(50),
        "DNS" => random.chance(15),
        _ => false,
    };
    if selects {
        spec["workloadSelector"] = json!({"labels": {"app": random.of(&APPS)}});
    } else if resolution == "STATIC" {
        let endpoints: Vec<Value> = (0..random.below(4))
            .map(|_| {
                let mut endpoint = json!({"address": address(random), "labels": labels(random)});
                if random.chance(30) {
                    endpoint["locality"] = json!(random.of(&["east/z1", "west/z2"]));
                }
                if random.chance(30) {
                    endpoint["weight"] = json!(1 + random.below(3));
                }
                if random.chance(20) {
                    endpoint["serviceAccount"] = json!("special");
                }
                endpoint
            })
            .collect();
        spec["endpoints"] = json!(endpoints);
    } else if resolution != "NONE" && random.chance(70) {
        spec["endpoints"] = json!([{"address": "backend.example"}]);
    }
    if random.chance(30) {
        spec["addresses"] = json!([format!("10.97.0.{}", random.below(3))]);
    }
    if random.chance(10) && resolution == "STATIC" {
        spec["addresses"] = json!(["10.98.0.0/24"]);
    }
    if random.chance(15) {
        spec["subjectAltNames"] = json!(["spiffe://cluster.local/ns/shop/sa/special"]);
    }
    put(&mut spec, "exportTo", export_to(random));
    json!({"metadata": {}, "spec": spec})
}

pub fn workload_entry(random: &mut Random, _: &str) -> Value {
    let labels = labels(random);
    let mut spec = json!({"address": address(random), "labels": labels});
    if random.chance(30) {
        spec["serviceAccount"] = json!(random.of(&["default", "special"]));
    }
    if random.chance(30) {
        spec["locality"] = json!(random.of(&["east/z1", "west/z2"]));
    }
    if random.chance(20) {
        spec["ports"] = json!({"http": 8081});
    }
    if random.chance(20) {
        spec["weight"] = json!(2);
    }
    if random.chance(10) {
        spec["network"] = json!("net-2");
    }
    let mut value = json!({"metadata": {}, "spec": spec});
    if random.chance(30) {
        value["metadata"]["labels"] = labels;
    }
    value
}

pub fn workload_group(random: &mut Random, _: &str) -> Value {
    json!({"metadata": {}, "spec": {
        "metadata": {"labels": labels(random)}, "template": {"serviceAccount": random.of(&["default", "special"])},
    }})
}

fn destination(random: &mut Random) -> Value {
    let mut destination = json!({"host": host(random).replace('*', "api")});
    if random.chance(40) {
        destination["subset"] = json!(random.of(&["v1", "v2"]));
    }
    if random.chance(60) {
        destination["port"] = json!({"number": random.of(&[80, 9000, 443])});
    }
    destination
}

fn http(random: &mut Random, part: bool) -> Value {
    let mut route = json!({"name": format!("r{}", random.below(3))});
    if random.chance(60) {
        let path = random.of(&["/", "/a", "/b"]);
        route["match"] = match part {
            true => json!([{"uri": {"prefix": format!("/d{path}")}}]),
            false => json!([{"uri": {"prefix": path}}]),
        };
        if random.chance(20) {
            route["match"][0]["sourceLabels"] = json!({"app": random.of(&APPS)});
        }
        if random.chance(20) {
            route["match"][0]["headers"] = json!({"x": {"exact": random.of(&["1", "2"])}});
        }
    }
    match random.below(10) {
        0 => route["redirect"] = json!({"uri": "/else", "redirectCode": 302}),
        1 => route["directResponse"] = json!({"status": 503}),
        2 | 3 if !part => {
            route["delegate"] =
                json!({"name": random.of(&["part-0", "part-1"]), "namespace": random.of(&NAMESPACES[..3])});
            if random.chance(70) {
                route["match"] = json!([{"uri": {"prefix": "/d"}}]);
            }
        }
        4 => {
            route["route"] = json!([
                {"destination": destination(random), "weight": 30}, {"destination": destination(random), "weight": 70},
            ]);
        }
        _ => route["route"] = json!([{"destination": destination(random)}]),
    }
    if route["route"].is_array() {
        if random.chance(30) {
            route["timeout"] = json!(random.of(&["1s", "2s"]));
        }
        if random.chance(20) {
            route["retries"] = json!({"attempts": 1 + random.below(3), "perTryTimeout": "1s"});
        }
        if random.chance(10) {
            route["mirror"] = destination(random);
        }
        if random.chance(20) {
            route["headers"] = json!({"request": {"set": {"x-set": random.of(&["1", "2"])}}});
        }
    }
    route
}

pub fn virtual_service(random: &mut Random, name: &str) -> Value {
    let part = name.starts_with("part");
    let mut spec = json!({});
    if part {
        spec["http"] = json!((0..1 + random.below(2)).map(|_| http(random, true)).collect::<Vec<_>>());
        put(&mut spec, "exportTo", export_to(random));
        return json!({"metadata": {}, "spec": spec});
    }
    let mut hosts = vec![host(random)];
    if random.chance(30) {
        hosts.push(host(random));
        hosts.dedup();
    }
    spec["hosts"] = json!(hosts);
    match random.below(5) {
        0 => spec["gateways"] = json!([gateway_name(random)]),
        1 => spec["gateways"] = json!(["mesh", gateway_name(random)]),
        2 => spec["gateways"] = json!(["mesh"]),
        _ => {}
    }
    match random.below(6) {
        0 => {
            let port = random.of(&[9000, 3306]);
            spec["tcp"] = json!([{"match": [{"port": port}], "route": [{"destination": destination(random)}]}]);
        }
        1 => {
            let sni: Vec<String> = hosts.into_iter().take(1).collect();
            spec["tls"] = json!([
                {"match": [{"port": 443, "sniHosts": sni}], "route": [{"destination": destination(random)}]},
            ]);
        }
        _ => spec["http"] = json!((0..1 + random.below(3)).map(|_| http(random, false)).collect::<Vec<_>>()),
    }
    put(&mut spec, "exportTo", export_to(random));
    json!({"metadata": {}, "spec": spec})
}

fn gateway_name(random: &mut Random) -> String {
    format!("{}/g{}", random.of(&NAMESPACES), random.below(2))
}

fn policy(random: &mut Random) -> Value {
    let mut policy = json!({});
    match random.below(8) {
        0 => policy["tls"] = json!({"mode": "DISABLE"}),
        1 => policy["tls"] = json!({"mode": "SIMPLE", "sni": "sni.example"}),
        2 => policy["tls"] = json!({"mode": "ISTIO_MUTUAL"}),
        3 => policy["tls"] = json!({"mode": "MUTUAL", "credentialName": random.of(&CERTIFICATES)}),
        _ => {}
    }
    match random.below(5) {
        0 => policy["loadBalancer"] = json!({"simple": random.of(&["ROUND_ROBIN", "RANDOM", "LEAST_REQUEST"])}),
        1 => policy["loadBalancer"] = json!({"consistentHash": {"httpHeaderName": "x"}}),
        2 => {
            policy["loadBalancer"] = json!({"localityLbSetting": {"enabled": true, "failoverPriority": ["app"]}});
            policy["outlierDetection"] = json!({"consecutive5xxErrors": 3});
        }
        _ => {}
    }
    if random.chance(30) {
        policy["connectionPool"] = json!({"tcp": {"maxConnections": 1 + random.below(9)}});
    }
    if random.chance(15) {
        policy["portLevelSettings"] = json!([{"port": {"number": 80}, "tls": {"mode": "DISABLE"}}]);
    }
    policy
}

pub fn destination_rule(random: &mut Random, _: &str) -> Value {
    let mut spec = json!({"host": host(random)});
    if random.chance(70) {
        spec["trafficPolicy"] = policy(random);
    }
    let subsets: Vec<Value> = random
        .some(&["v1", "v2"], 60)
        .into_iter()
        .map(|version| {
            let mut subset = json!({"name": version, "labels": {"version": version}});
            if random.chance(30) {
                subset["trafficPolicy"] = policy(random);
            }
            subset
        })
        .collect();
    spec["subsets"] = json!(subsets);
    if random.chance(15) {
        spec["workloadSelector"] = json!({"matchLabels": {"app": random.of(&APPS)}});
    }
    put(&mut spec, "exportTo", export_to(random));
    json!({"metadata": {}, "spec": spec})
}

pub fn gateway(random: &mut Random, _: &str) -> Value {
    let mut hosts =
        vec![random.of(&["*", "one.example", "two.example", "*.wild.example", "shop/one.example"]).to_string()];
    if hosts[0] != "*" && random.chance(30) {
        hosts.push("three.example".to_string());
    }
    let servers: Vec<Value> = (0..1 + random.below(3))
        .map(|at| match random.below(5) {
            0 => json!({"port": {"number": 443, "name": format!("p{at}"), "protocol": "HTTPS"}, "hosts": hosts,
                "tls": {"mode": "SIMPLE", "credentialName": credential(random)}}),
            1 => json!({"port": {"number": 9443, "name": format!("p{at}"), "protocol": "TLS"}, "hosts": hosts,
                "tls": {"mode": random.of(&["PASSTHROUGH", "AUTO_PASSTHROUGH"])}}),
            2 => json!({"port": {"number": 9000, "name": format!("p{at}"), "protocol": "TCP"}, "hosts": ["*"]}),
            3 => json!({"port": {"number": 443, "name": format!("p{at}"), "protocol": "HTTPS"}, "hosts": hosts,
                "tls": {"mode": "MUTUAL", "credentialName": credential(random)}}),
            _ => json!({"port": {"number": random.of(&[80, 8080]), "name": format!("p{at}"), "protocol": "HTTP"},
                "hosts": hosts}),
        })
        .collect();
    let selector =
        if random.chance(90) { json!({"istio": "ingressgateway"}) } else { json!({"app": random.of(&APPS)}) };
    json!({"metadata": {}, "spec": {"selector": selector, "servers": servers}})
}

fn credential(random: &mut Random) -> String {
    let name = random.of(&CERTIFICATES);
    match random.below(4) {
        0 => format!("kubernetes-gateway://{}/{name}", random.of(&NAMESPACES)),
        _ => (*name).to_string(),
    }
}

pub fn sidecar(random: &mut Random, name: &str) -> Value {
    let mut spec = json!({});
    if name != "default" {
        spec["workloadSelector"] = json!({"labels": {"app": random.of(&APPS)}});
    }
    let namespace = |random: &mut Random| match random.below(3) {
        0 => "*".to_string(),
        1 => ".".to_string(),
        _ => (*random.of(&NAMESPACES)).to_string(),
    };
    let hosts = |random: &mut Random| -> Vec<String> {
        (0..1 + random.below(3))
            .map(|_| {
                let host = if random.chance(60) { "*".to_string() } else { host(random) };
                format!("{}/{host}", namespace(random))
            })
            .collect()
    };
    let mut egress = Vec::new();
    if random.chance(40) {
        let (number, name, protocol) = *random.of(&PORTS[..4]);
        let port = json!({"number": number, "name": name, "protocol": protocol});
        egress.push(json!({"port": port, "hosts": hosts(random)}));
    }
    if egress.is_empty() || random.chance(70) {
        egress.push(json!({"hosts": hosts(random)}));
    }
    spec["egress"] = json!(egress);
    if random.chance(25) {
        let port = json!({"number": 8080, "name": "http", "protocol": "HTTP"});
        spec["ingress"] = json!([{"port": port, "defaultEndpoint": "127.0.0.1:8081"}]);
    }
    if random.chance(30) {
        spec["outboundTrafficPolicy"] = json!({"mode": random.of(&["REGISTRY_ONLY", "ALLOW_ANY"])});
    }
    json!({"metadata": {}, "spec": spec})
}

pub fn peer_authentication(random: &mut Random, name: &str) -> Value {
    let mut spec = json!({"mtls": {"mode": random.of(&["STRICT", "PERMISSIVE", "DISABLE", "UNSET"])}});
    if name != "default" {
        spec["selector"] = json!({"matchLabels": {"app": random.of(&APPS)}});
        if random.chance(40) {
            spec["portLevelMtls"] = json!({"8080": {"mode": random.of(&["STRICT", "DISABLE"])}});
        }
    }
    json!({"metadata": {}, "spec": spec})
}

/// The workloads of a policy: all of the namespace, those with a label, or a Gateway of the Gateway API.
pub fn targets(random: &mut Random, name: &str) -> Value {
    match (name, random.below(3)) {
        ("default", _) => json!({}),
        (_, 0) => {
            json!({"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": random.of(&["k0", "k1"])}]})
        }
        (_, 1) => json!({"selector": {"matchLabels": {"istio": "ingressgateway"}}}),
        _ => json!({"selector": {"matchLabels": {"app": random.of(&APPS)}}}),
    }
}

pub fn authorization_policy(random: &mut Random, name: &str) -> Value {
    let mut spec = targets(random, name);
    let action = *random.of(&["ALLOW", "ALLOW", "DENY", "AUDIT", "CUSTOM"]);
    let paths = random.some(&["/a", "/b*", "*/c", "/d/{*}"], 50);
    let mut rule = json!({"to": [{"operation": {"ports": ["8080"]}}]});
    if !paths.is_empty() {
        rule["to"][0]["operation"]["paths"] = json!(paths);
    }
    if action != "CUSTOM" && random.chance(50) {
        let sources = [
            json!({"namespaces": [random.of(&NAMESPACES)]}),
            json!({"principals": [format!("cluster.local/ns/{}/sa/default", random.of(&NAMESPACES))]}),
            json!({"ipBlocks": ["10.0.0.0/8"], "requestPrincipals": ["a.test/*"]}),
        ];
        rule["from"] = json!([{ "source": random.of(&sources) }]);
    }
    spec["action"] = json!(action);
    spec["rules"] = json!([rule]);
    if action == "CUSTOM" {
        spec["provider"] = json!({"name": random.of(&["asks", "unknown"])});
    } else if action == "ALLOW" && random.chance(20) {
        spec["rules"] = json!([]);
    }
    let dry_run = matches!(action, "ALLOW" | "DENY") && random.chance(20);
    let annotations = if dry_run { json!({"istio.io/dry-run": "true"}) } else { json!({}) };
    json!({"metadata": {"annotations": annotations}, "spec": spec})
}

pub fn request_authentication(random: &mut Random, name: &str) -> Value {
    let mut spec = targets(random, name);
    let issuers = random.some(&["a.test", "b.test"], 60);
    let rule = |issuer: &&str| json!({"issuer": issuer, "jwks": "{\"keys\":[]}", "audiences": ["x"]});
    spec["jwtRules"] = issuers.into_iter().map(rule).collect();
    json!({"metadata": {}, "spec": spec})
}

pub fn telemetry(random: &mut Random, name: &str) -> Value {
    let mut spec = targets(random, name);
    let provider = |random: &mut Random, names: &[&str]| json!([{ "name": random.of(names) }]);
    let mode = *random.of(&["CLIENT_AND_SERVER", "CLIENT", "SERVER"]);
    if random.chance(60) {
        let mut log = json!({"match": {"mode": mode}, "disabled": random.chance(20)});
        if random.chance(80) {
            log["providers"] = provider(random, &["envoy", "als", "nobody"]);
        }
        if random.chance(40) {
            log["filter"] = json!({"expression": random.of(&["response.code >= 400", "nope(1)"])});
        }
        spec["accessLogging"] = json!([log]);
    }
    if random.chance(60) {
        let mut spans = json!({"match": {"mode": mode}, "randomSamplingPercentage": random.below(100)});
        if random.chance(80) {
            spans["providers"] = provider(random, &["zipkin", "otel", "envoy"]);
        }
        if random.chance(40) {
            spans["customTags"] = json!({"a": {"literal": {"value": "b"}}, "c": {"header": {"name": "x-c"}}});
        }
        spec["tracing"] = json!([spans]);
    }
    if random.chance(30) {
        let tags = json!({"request_host": {"value": "request.host"}});
        spec["metrics"] =
            json!([{"providers": provider(random, &["prometheus"]), "overrides": [{"tagOverrides": tags}]}]);
    }
    json!({"metadata": {}, "spec": spec})
}

pub fn proxy_config(random: &mut Random, name: &str) -> Value {
    let mut spec = json!({"concurrency": 1 + random.below(4)});
    if name != "default" {
        spec["selector"] = json!({"matchLabels": {"app": random.of(&APPS)}});
    }
    json!({"metadata": {}, "spec": spec})
}

/// Settings of the mesh, as its file says them.
pub fn mesh(random: &mut Random) -> Value {
    let mut mesh = json!({"ingressControllerMode": "STRICT"});
    let mode = *random.of(&["ALLOW_ANY", "ALLOW_ANY", "REGISTRY_ONLY"]);
    mesh["outboundTrafficPolicy"] = json!({"mode": mode});
    if random.chance(30) {
        mesh["enableAutoMtls"] = json!(random.chance(50));
    }
    if random.chance(30) {
        mesh["accessLogFile"] = json!("/dev/stdout");
    }
    if random.chance(20) {
        mesh["connectTimeout"] = json!("3s");
    }
    if random.chance(20) {
        mesh["defaultServiceExportTo"] = json!([random.of(&[".", "*"])]);
        mesh["defaultVirtualServiceExportTo"] = json!([random.of(&[".", "*"])]);
    }
    if random.chance(20) {
        mesh["trustDomainAliases"] = json!(["old.local"]);
    }
    if random.chance(50) {
        let mut target = || json!({"service": random.of(&HOSTS), "port": 7070});
        mesh["extensionProviders"] = json!([
            {"name": "asks", "envoyExtAuthzGrpc": target()},
            {"name": "als", "envoyHttpAls": target()},
            {"name": "zipkin", "zipkin": target()},
            {"name": "otel", "opentelemetry": target()},
        ]);
    }
    if random.chance(20) {
        mesh["localityLbSetting"] = json!({"enabled": random.chance(50)});
    }
    if random.chance(20) {
        mesh["defaultProviders"] = json!({"tracing": ["otel"], "accessLogging": ["als"], "metrics": ["prometheus"]});
    }
    mesh
}
