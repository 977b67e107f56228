//! One valid object that Envoy refuses takes nothing else along: a fault that is found before the object is sent fails alone
//! and is named; a resource that Envoy refuses all the same stays at its last version, while everything else goes on.

use std::{fs, path::Path, time::Instant};

use pilothouse::{
    testing::FakeServer,
    xds::{ResourceType::Cluster, XdsOptions},
};
use serde_json::{Value, json};

use crate::{
    config::{gateway, object, service, subsets, to},
    http::{Echo, get},
    mesh::{ControlPlane, Envoy},
    process::{free_port, scratch, wait_for},
    tls::https_get,
};

const NODE: &str = "router~127.0.0.1~edge.shop~shop.svc.cluster.local";
const HOST: &str = "web.example";

fn metadata() -> Value {
    json!({"LABELS": {"app": "edge"}})
}

fn routes(name: &str, http: &Value) -> String {
    object("VirtualService", name, &json!({"hosts": [format!("{name}.example")], "gateways": ["edge"], "http": http}))
}

/// Rules of which Envoy refuses the action: their requests get 500.
fn refused_actions() -> Vec<(String, Value)> {
    let route = || json!([to(HOST, "v1")]);
    let header = |value: &str| json!({"route": route(), "headers": {"response": {"set": {"x-a": value}}}});
    let heavy = || json!({"destination": {"host": HOST, "subset": "v1"}, "weight": 2_147_483_647});
    let all = [
        header("%NOPE%"),
        header("%REQ(a b)%"),
        json!({"route": route(), "rewrite": {"uri": "/a\nb"}}),
        json!({"route": route(), "rewrite": {"authority": "a\nb"}}),
        json!({"redirect": {"uri": "/a\nb"}}),
        json!({"redirect": {"authority": "a\nb"}}),
        // Valid in Istio, and no code that Envoy has.
        json!({"redirect": {"uri": "/a", "redirectCode": 304}}),
        json!({"directResponse": {"status": 600}}),
        json!({"route": route(), "fault": {"abort": {"httpStatus": 600, "percentage": {"value": 100}}}}),
        json!({"route": [heavy(), heavy(), heavy()]}),
    ];
    all.into_iter().enumerate().map(|(n, http)| (format!("action-{n}"), http)).collect()
}

/// Conditions that Envoy refuses: their routes are left out, and those for `/fine` beside them are not.
fn refused_conditions() -> Vec<(&'static str, Value)> {
    vec![("repeats", json!({"headers": {"x-a": {"regex": "a{1001}"}}}))]
}

/// DestinationRules, and whether Envoy refuses the cluster of the host; else its routes.
fn refused_policies() -> Vec<(&'static str, Value, bool)> {
    let hash = |of: Value| json!({"loadBalancer": {"consistentHash": of}});
    vec![
        ("sni", json!({"tls": {"mode": "SIMPLE", "sni": "a".repeat(400)}}), true),
        ("ring", hash(json!({"httpHeaderName": "x", "ringHash": {"minimumRingSize": 9_000_000}})), true),
        ("ttl", hash(json!({"httpCookie": {"name": "c", "ttl": "-1s"}})), false),
        ("line", hash(json!({"httpHeaderName": "x\ny"})), false),
        ("empty", hash(json!({"httpHeaderName": ""})), false),
    ]
}

fn one_value_takes_nothing_along(delta: bool) {
    let (v1, port) = (Echo::start("v1"), free_port());
    let endpoints = [(v1.port, "v1", "")];
    let rules = json!([
        {"match": [{"uri": {"regex": "^/api/items/[a-zA-Z0-9_-]{1,64}$"}}], "route": [to(HOST, "v1")]},
        {"match": [{"uri": {"prefix": "/good"}}], "route": [to(HOST, "v1")]},
    ]);
    let mut text = service(HOST, 80, "HTTP", &endpoints) + &subsets(HOST) + &gateway(port) + &routes("web", &rules);
    for (name, http) in refused_actions() {
        text += &routes(&name, &json!([http]));
    }
    for (name, condition) in refused_conditions() {
        let both = json!([condition, {"uri": {"prefix": "/fine"}}]);
        text += &routes(name, &json!([{"match": both, "route": [to(HOST, "v1")]}]));
    }
    for (name, policy, _) in refused_policies() {
        let host = format!("{name}.example");
        text += &service(&host, 80, "HTTP", &endpoints);
        text += &object("DestinationRule", name, &json!({"host": host, "trafficPolicy": policy}));
        text += &routes(name, &json!([{"route": [{"destination": {"host": host}}]}]));
    }
    let plane = ControlPlane::start(&[("shop.yaml", text)]);
    let envoy = Envoy::start(&plane, NODE, &metadata(), delta);
    for path in ["/api/items/a-1", "/good"] {
        let answer = wait_for("the gateway answers", || get(port, HOST, path, &[]).ok().filter(|a| a.status == 200));
        assert_eq!(answer.seen("name"), "v1");
    }
    let told = plane.debug("/debug/push_status").to_string();
    let status = |name: &str| get(port, &format!("{name}.example"), "/", &[]).unwrap().status;
    for (name, http) in refused_actions() {
        assert_eq!(status(&name), 500, "{http}");
        assert!(told.contains(&format!("VirtualService/shop/{name}")), "{name} is not told: {told}");
    }
    for (name, condition) in refused_conditions() {
        assert_eq!(status(name), 404, "{condition}");
        let fine = get(port, &format!("{name}.example"), "/fine", &[]).unwrap().status;
        assert_eq!(fine, 200, "{condition}");
        assert!(told.contains(&format!("VirtualService/shop/{name}")), "{name} is not told: {told}");
    }
    for (name, policy, cluster) in refused_policies() {
        assert_eq!(status(name), if cluster { 503 } else { 500 }, "{policy}");
        assert!(told.contains(&format!("{name}.example")), "{name} is not told: {told}");
    }
    envoy.assert_no_nacks();
}

#[test]
fn one_value_takes_nothing_along_over_sotw() {
    one_value_takes_nothing_along(false);
}

#[test]
fn one_value_takes_nothing_along_over_delta() {
    one_value_takes_nothing_along(true);
}

/// A service of which Envoy refuses the cluster until this file is there.
fn with_authority(host: &str, port: u16, authority: &Path) -> String {
    let tls = json!({"mode": "SIMPLE", "caCertificates": authority, "sni": host});
    service(host, 80, "HTTP", &[(port, "v1", "")])
        + &object("DestinationRule", host, &json!({"host": host, "trafficPolicy": {"tls": tls}}))
}

/// The resources that are held back from the proxy, as the page shows them.
fn held_back(plane: &ControlPlane) -> Vec<String> {
    let page = plane.debug("/debug/adsz");
    let refused = page["clients"][0]["refused"].as_array().cloned().unwrap_or_default();
    refused.iter().filter_map(|entry| Some(entry["resource"].as_str()?.to_string())).collect()
}

/// The gateway is counted so by the metric and by the dashboard.
fn is_counted_as(plane: &ControlPlane, state: &str, standing: &str) -> Option<()> {
    let metrics = get(plane.http_port, "localhost", "/metrics", &[]).unwrap().body;
    let counts = plane.debug("/dashboard/api/fleet")["counts"].clone();
    let metric = format!("pilothouse_proxies{{state=\"{state}\"}} 1");
    (metrics.contains(&metric) && counts[standing] == 1).then_some(())
}

/// The gateway's clusters are accepted, whatever it refuses of them.
fn clusters_are_accepted(plane: &ControlPlane) -> Option<()> {
    let page = plane.debug("/debug/syncz");
    let clusters = &page[0]["resources"]["cds"];
    (clusters["sent"].as_str().is_some_and(|sent| !sent.is_empty()) && clusters["sent"] == clusters["acked"])
        .then_some(())
}

fn a_file_that_comes_late_is_picked_up(delta: bool) {
    let (web, late, port) = (Echo::start("web"), Echo::start("late"), free_port());
    let (folder, https) = (scratch(), free_port());
    let (authority, key, certificate) = (folder.join("authority.pem"), folder.join("key.pem"), folder.join("cert.pem"));
    let route = |host: &str| json!([{"route": [{"destination": {"host": host}}]}]);
    let server = json!({"port": {"number": https, "name": "https", "protocol": "HTTPS"}, "hosts": ["*"],
        "tls": {"mode": "SIMPLE", "serverCertificate": certificate, "privateKey": key}});
    let shop = service(HOST, 80, "HTTP", &[(web.port, "v1", "")])
        + &gateway(port)
        + &routes("web", &route(HOST))
        + &routes("late", &route("late.example"))
        + &object(
            "VirtualService",
            "secure",
            &json!({"hosts": ["secure.example"], "gateways": ["tls"], "http": route(HOST)}),
        )
        + &with_authority("late.example", late.port, &authority)
        + &object("Gateway", "tls", &json!({"selector": {"app": "edge"}, "servers": [server]}));
    let plane = ControlPlane::start(&[("shop.yaml", shop)]);
    let envoy = Envoy::start(&plane, NODE, &metadata(), delta);
    wait_for("the gateway answers", || get(port, HOST, "/", &[]).ok().filter(|a| a.status == 200));
    let cluster = "outbound|80||late.example".to_string();
    let listener = format!("0.0.0.0_{https}");
    let both = [cluster.clone(), listener.clone()];
    wait_for("cluster and listener are held back", || (held_back(&plane) == both).then_some(()));
    wait_for("the other clusters are accepted", || clusters_are_accepted(&plane));
    // Its last answers accept all that is still sent, and yet something is refused.
    wait_for("both count a refusal", || is_counted_as(&plane, "refused", "refused"));
    let told = plane.debug("/debug/push_status")["pilot_xds_cds_reject"][&cluster].clone();
    assert_eq!(told["objects"][0], "DestinationRule/shop/late.example", "{told}");
    let told_of = |metric: &str, name: &str| plane.debug("/debug/push_status")[metric][name].clone();
    assert_eq!(told_of("pilot_xds_lds_reject", &listener)["objects"][0], "Gateway/shop/tls");
    assert!(told["message"].as_str().is_some_and(|m| m.contains("authority.pem")), "{told}");

    // Others get their changes meanwhile.
    let more = service("more.example", 80, "HTTP", &[(web.port, "v1", "")]) + &routes("more", &route("more.example"));
    plane.write("more.yaml", &more);
    wait_for("a new service is served", || get(port, "more.example", "/", &[]).ok().filter(|a| a.status == 200));
    assert_eq!(envoy.stat("cluster.outbound_80__late_example.membership_total"), 0);

    let made = rcgen::generate_simple_self_signed(vec!["secure.example".to_string()]).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    for file in [&authority, &certificate] {
        fs::write(file, made.cert.pem()).unwrap();
    }
    wait_for("both are accepted", || held_back(&plane).is_empty().then_some(()));
    wait_for("both count it in sync", || is_counted_as(&plane, "synced", "in sync"));
    let rejected = envoy.stat("cluster_manager.cds.update_rejected");
    // The upstream speaks no TLS: the cluster is there, and its connections fail.
    wait_for("the cluster is used", || {
        get(port, "late.example", "/", &[]).ok().filter(|a| a.status == 503 && !a.body.contains("no healthy"))
    });
    assert_eq!(envoy.stat("cluster_manager.cds.update_rejected"), rejected);
    wait_for("HTTPS is answered", || https_get(https, "secure.example", &certificate));
}

#[test]
fn a_file_that_comes_late_is_picked_up_over_sotw() {
    a_file_that_comes_late_is_picked_up(false);
}

#[test]
fn a_file_that_comes_late_is_picked_up_over_delta() {
    a_file_that_comes_late_is_picked_up(true);
}

#[test]
fn routes_that_envoy_refuses_stay_as_they_were() {
    let (web, port) = (Echo::start("web"), free_port());
    let route = |condition: Value| json!([{"match": [condition], "route": [{"destination": {"host": HOST}}]}]);
    let prefix = |prefix: &str| json!({"uri": {"prefix": prefix}});
    let base = service(HOST, 80, "HTTP", &[(web.port, "v1", "")]) + &gateway(port);
    let plane = ControlPlane::start(&[
        ("base.yaml", base),
        ("web.yaml", routes("web", &route(prefix("/")))),
        ("other.yaml", routes("other", &route(prefix("/a")))),
    ]);
    let envoy = Envoy::start(&plane, NODE, &metadata(), false);
    let status = |host: &str, path: &str| get(port, host, path, &[]).map(|a| a.status).ok();
    wait_for("the gateway answers", || (status(HOST, "/") == Some(200)).then_some(()));
    // No check here knows all names of Unicode classes.
    plane.write("other.yaml", &routes("other", &route(json!({"uri": {"regex": "/\\p{Letter}"}}))));
    wait_for("the routes are held back", || (held_back(&plane) == [format!("http.{port}")]).then_some(()));
    assert_eq!((status(HOST, "/"), status("other.example", "/a")), (Some(200), Some(200)), "the version before");
    let told = plane.debug("/debug/push_status")["pilot_xds_rds_reject"].to_string();
    assert!(told.contains(&format!("http.{port}")), "{told}");
    assert!(envoy.rejected().contains("rds"), "Envoy itself refused it");
    plane.write("other.yaml", &routes("other", &route(prefix("/b"))));
    wait_for("mended routes are served", || (status("other.example", "/b") == Some(200)).then_some(()));
    assert_eq!(held_back(&plane), Vec::<String>::new());
}

/// A cluster as JSON, with one endpoint.
fn cluster(name: &str) -> String {
    let address = json!({"socketAddress": {"address": "127.0.0.1", "portValue": 9}});
    let endpoints = json!([{"lbEndpoints": [{"endpoint": {"address": address}}]}]);
    let cluster = json!({"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": name, "type": "STATIC",
        "connectTimeout": "1s", "loadAssignment": {"clusterName": name, "endpoints": endpoints}});
    cluster.to_string()
}

/// Envoy cannot read one of many resources, and its complaint names none, or quotes the whole response: the response is halved
/// until the faulty one is found.
fn a_refusal_without_the_faulty_name_is_narrowed_down(delta: bool, faulty_content: &str) {
    const MANY: usize = 21;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(FakeServer::start(XdsOptions::default())).unwrap();
    let names: Vec<String> = (0..MANY).map(|n| format!("cluster-{n}")).collect();
    let good: Vec<String> = names.iter().map(|name| cluster(name)).collect();
    let all: Vec<_> = names.iter().zip(&good).map(|(n, g)| (Cluster, n.as_str(), Some(g.as_str()))).collect();
    server.set(&all);
    let faulty = names[13].as_str();
    server.set(&[(Cluster, faulty, Some(faulty_content))]);
    let envoy = Envoy::connect(server.address.port(), NODE, &metadata(), delta);
    let endpoints = |name: &str| envoy.stat(&format!("cluster.{name}.membership_total"));
    for name in names.iter().filter(|name| *name != faulty) {
        wait_for(&format!("{name} is accepted"), || (endpoints(name) == 1).then_some(()));
    }
    assert!(envoy.rejected().contains("cds"), "Envoy refused nothing");
    assert_eq!(endpoints(faulty), 0);
    server.set(&[(Cluster, faulty, Some(&cluster(faulty)))]);
    wait_for("the mended cluster is accepted", || (endpoints(faulty) == 1).then_some(()));
    assert!(names.iter().all(|name| endpoints(name) == 1));
}

/// A message of another type.
const OF_ANOTHER_TYPE: &str = r#"{"@type": "type.googleapis.com/envoy.config.listener.v3.Listener"}"#;
/// Bytes that are no message.
const UNREADABLE: &str = "raw b";

#[test]
fn a_refusal_that_quotes_the_response_is_narrowed_down_over_sotw() {
    a_refusal_without_the_faulty_name_is_narrowed_down(false, OF_ANOTHER_TYPE);
}

#[test]
fn a_refusal_that_quotes_the_response_is_narrowed_down_over_delta() {
    a_refusal_without_the_faulty_name_is_narrowed_down(true, OF_ANOTHER_TYPE);
}

#[test]
fn a_refusal_that_names_nothing_is_narrowed_down_over_sotw() {
    a_refusal_without_the_faulty_name_is_narrowed_down(false, UNREADABLE);
}

#[test]
fn a_refusal_that_names_nothing_is_narrowed_down_over_delta() {
    a_refusal_without_the_faulty_name_is_narrowed_down(true, UNREADABLE);
}

fn a_missing_certificate_delays_nothing(delta: bool) {
    let (web, port) = (Echo::start("web"), free_port());
    let text = service(HOST, 80, "HTTP", &[(web.port, "v1", "")])
        + &service("mutual.example", 80, "HTTP", &[(web.port, "v1", "")])
        + &object(
            "DestinationRule",
            "mutual",
            &json!({"host": "mutual.example", "trafficPolicy": {"tls": {"mode": "ISTIO_MUTUAL"}}}),
        )
        + &gateway(port)
        + &routes("web", &json!([{"route": [{"destination": {"host": HOST}}]}]));
    let plane = ControlPlane::start(&[("shop.yaml", text)]);
    let start = Instant::now();
    let envoy = Envoy::start(&plane, NODE, &metadata(), delta);
    println!("live after {:?}", start.elapsed());
    wait_for("the gateway answers", || get(port, HOST, "/", &[]).ok().filter(|a| a.status == 200));
    // Envoy's own limit for a first answer is 15 seconds, and it counts the answers that ran into it.
    for waited in ["cluster_manager.cds.init_fetch_timeout", "listener_manager.lds.init_fetch_timeout"] {
        assert_eq!(envoy.stat(waited), 0, "{waited}");
    }
    let left_out = plane.debug("/debug/adsz")["clients"][0]["leftOut"].to_string();
    assert!(left_out.contains("need a certificate of the mesh (ISTIO_MUTUAL): 1;"), "{left_out}");
    assert!(left_out.contains("TLS_CLIENT_CERT_CHAIN"), "{left_out}");
    let log = fs::read_to_string(&plane.process.log).unwrap();
    assert_eq!(log.matches("need a certificate of the mesh").count(), 1, "told once: {log}");
    envoy.assert_no_nacks();
}

#[test]
fn a_missing_certificate_delays_nothing_over_sotw() {
    a_missing_certificate_delays_nothing(false);
}

#[test]
fn a_missing_certificate_delays_nothing_over_delta() {
    a_missing_certificate_delays_nothing(true);
}
