//! Istio's standard metrics of two stock Envoys: names, labels and values, with and without mutual TLS; headers from outside are
//! not believed.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::{Value, json};

use crate::{
    config::object,
    http::{Echo, get, tcp_echo},
    joined::{Mesh, Settings},
    mesh::Envoy,
    mutual_tls::{CLIENT, SERVER},
    policies::policy,
    process::{free_port, wait_until},
};

const PEER: &str = "x-pilothouse-peer";

/// A server and a client behind their Envoys.
pub(super) struct Pair {
    mesh: Mesh,
    pub(super) server: Envoy,
    pub(super) client: Envoy,
    inbound: u16,
    /// Where the client's Envoy takes requests, and connections.
    pub(super) egress: u16,
    pub(super) tcp: u16,
    objects: String,
}

fn telemetry(spec: &Value) -> String {
    super::telemetry("metrics", spec)
}

pub(super) fn mode(mode: &str) -> String {
    policy("PeerAuthentication", "default", &json!({"mtls": {"mode": mode}}))
}

impl Pair {
    pub(super) fn start(further: &str) -> Self {
        let (web, outside, raw) = (Echo::start("server"), Echo::start("outside"), tcp_echo("raw "));
        let [inbound, inbound_tcp, egress, tcp] = [(); 4].map(|()| free_port());
        let ingress = |port: u16, protocol: &str, to: u16| {
            json!({"port": {"number": port, "protocol": protocol, "name": protocol.to_lowercase()}, "bind": "127.0.0.1",
                "captureMode": "NONE", "defaultEndpoint": format!("127.0.0.1:{to}")})
        };
        let port = |number: u16, protocol: &str, target: u16| json!({"number": number, "name": protocol.to_lowercase(), "protocol": protocol, "targetPort": target});
        let out = |number: u16, protocol: &str| {
            json!({"port": {"number": number, "protocol": protocol, "name": format!("out-{number}")},
                "bind": "127.0.0.1", "captureMode": "NONE", "hosts": ["./*"]})
        };
        let entry = json!({
            "hosts": ["web.example"], "location": "MESH_INTERNAL", "resolution": "STATIC",
            "ports": [port(egress, "HTTP", inbound), port(tcp, "TCP", inbound_tcp)],
            "workloadSelector": {"labels": {"app": "server"}},
            "subjectAltNames": ["spiffe://cluster.local/ns/shop/sa/server"],
        });
        let labels = json!({"app": "server", "version": "v2", "security.istio.io/tlsMode": "istio"});
        let name = json!({"service.istio.io/workload-name": "server-deployment"});
        let workload = json!({
            "apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry",
            "metadata": {"name": "server-1", "namespace": "shop", "labels": name},
            "spec": {"address": "127.0.0.1", "serviceAccount": "server", "labels": labels},
        });
        let outer = json!({
            "hosts": ["out.example"], "location": "MESH_EXTERNAL", "resolution": "STATIC",
            "ports": [port(egress, "HTTP", outside.port)], "endpoints": [{"address": "127.0.0.1"}],
        });
        let of_server = json!({
            "workloadSelector": {"labels": {"app": "server"}}, "egress": [{"hosts": ["~/*"]}],
            "ingress": [ingress(inbound, "HTTP", web.port), ingress(inbound_tcp, "TCP", raw)],
        });
        let of_client = json!({"workloadSelector": {"labels": {"app": "client"}}, "egress": [out(egress, "HTTP"), out(tcp, "TCP")]});
        let objects = object("ServiceEntry", "web", &entry)
            + &format!("---\n{workload}\n")
            + &object("ServiceEntry", "out", &outer)
            + &object("Sidecar", "server", &of_server)
            + &object("Sidecar", "client", &of_client);
        let config = json!({"defaultProviders": {"metrics": ["prometheus"]}});
        let settings = Settings { mesh: Some(&config), ..Settings::default() };
        let at = std::net::Ipv4Addr::LOCALHOST.into();
        let mesh = Mesh::start_on(&crate::network::Machine::default(), at, objects.clone() + further, settings);
        let metadata = |app: &str, version: &str| {
            json!({"INTERCEPTION_MODE": "NONE", "LABELS": {"app": app, "version": version}, "SERVICE_ACCOUNT": app,
                "WORKLOAD_NAME": format!("{app}-deployment"), "CLUSTER_ID": "Kubernetes"})
        };
        let server = mesh.join(SERVER, "server", &metadata("server", "v2"));
        let client = mesh.join(CLIENT, "client", &metadata("client", "v1"));
        let pair = Self { mesh, server, client, inbound, egress, tcp, objects };
        wait_until("the server answers", || match get(egress, "web.example", "/", &[]) {
            Ok(answer) if answer.status == 200 => Ok(()),
            other => Err(format!("{other:?}")),
        });
        pair
    }

    fn write(&self, further: &str) {
        self.mesh.write(&(self.objects.clone() + further));
    }

    pub(super) fn assert_no_nacks(&self) {
        self.server.assert_no_nacks();
        self.client.assert_no_nacks();
    }
}

/// One series: its name, labels, value.
type Series = (String, BTreeMap<String, String>, f64);

/// The series of Istio as Prometheus gets them, under the names that its relabeling gives them.
fn series(envoy: &Envoy) -> Vec<Series> {
    let page = envoy.admin("/stats/prometheus").unwrap().body;
    let lines = page.lines().filter_map(|line| line.strip_prefix("envoy_")).filter(|line| line.starts_with("istio_"));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.trim_end_matches('}').split_once('{').unwrap();
            let labels = labels.split("\",").map(|label| label.split_once("=\"").unwrap());
            let labels = labels.map(|(k, v)| (k.to_string(), v.trim_end_matches('"').to_string())).collect();
            (name.to_string(), labels, value.parse().unwrap())
        })
        .collect()
}

/// The first series of a name with these labels, once there is one with at least this value.
fn until(envoy: &Envoy, name: &str, labels: &[(&str, &str)], least: f64) -> Series {
    wait_until(&format!("{name} {labels:?}"), || {
        let all = series(envoy);
        let fits =
            |s: &&Series| s.0 == name && labels.iter().all(|(k, v)| s.1.get(*k).map_or("", String::as_str) == *v);
        all.iter().find(fits).filter(|s| s.2 >= least).cloned().ok_or_else(|| format!("{all:#?}"))
    })
}

/// Labels of both sides.
const BOTH: [(&str, &str); 21] = [
    ("source_workload", "client-deployment"),
    ("source_workload_namespace", "shop"),
    ("source_principal", "spiffe://cluster.local/ns/shop/sa/client"),
    ("source_app", "client"),
    ("source_version", "v1"),
    ("source_canonical_service", "client"),
    ("source_canonical_revision", "v1"),
    ("source_cluster", "Kubernetes"),
    ("destination_workload", "server-deployment"),
    ("destination_workload_namespace", "shop"),
    ("destination_principal", "spiffe://cluster.local/ns/shop/sa/server"),
    ("destination_app", "server"),
    ("destination_version", "v2"),
    ("destination_canonical_service", "server"),
    ("destination_canonical_revision", "v2"),
    ("destination_cluster", "Kubernetes"),
    ("destination_service", "web.example"),
    ("destination_service_name", "web.example"),
    ("destination_service_namespace", "shop"),
    ("request_protocol", "http"),
    ("response_flags", "-"),
];

#[test]
fn both_sides_count_requests_with_istios_labels() {
    let pair = Pair::start(&mode("STRICT"));
    let answer = get(pair.egress, "web.example", "/status/404", &[(PEER, "forged;by;the;client;x;y;z")]).unwrap();
    assert_eq!((answer.status, answer.seen(PEER)), (404, String::new()), "the header goes no further than the Envoy");
    for (envoy, reporter, policy) in [(&pair.client, "source", "unknown"), (&pair.server, "destination", "mutual_tls")]
    {
        let mut labels = BOTH.to_vec();
        labels.extend([("reporter", reporter), ("response_code", "404"), ("connection_security_policy", policy)]);
        let found = until(envoy, "istio_requests_total", &labels, 1.0);
        assert_eq!(found.2, 1.0);
        let names: Vec<&str> = found.1.keys().map(String::as_str).collect();
        let istio: Vec<&str> = BOTH.iter().map(|(name, _)| *name).collect();
        let own = ["reporter", "response_code", "connection_security_policy", "grpc_response_status"];
        assert!(names.iter().all(|name| istio.contains(name) || own.contains(name)), "{names:?}");
        for histogram in ["istio_request_duration_milliseconds", "istio_request_bytes", "istio_response_bytes"] {
            assert_eq!(until(envoy, &format!("{histogram}_count"), &labels, 1.0).2, 1.0);
        }
        assert!(until(envoy, "istio_response_bytes_sum", &labels, 1.0).2 > 50.0);
    }
    pair.assert_no_nacks();
}

#[test]
fn a_header_from_outside_is_not_believed_and_none_goes_outside() {
    let pair = Pair::start(&mode("PERMISSIVE"));
    let forged = "evil;bank;evil;v9;evil;v9;far";
    let answer = get(pair.inbound, "web.example", "/plain", &[(PEER, forged)]).unwrap();
    assert_eq!((answer.status, answer.seen(PEER)), (200, String::new()));
    let plain = [("connection_security_policy", "none"), ("source_workload", "unknown"), ("source_principal", "")];
    let found = series_of(&pair.server, &plain);
    assert!(found.is_some() || series_of(&pair.server, &plain[..2]).is_some(), "{:#?}", series(&pair.server));
    let all = format!("{:?}", series(&pair.server));
    assert!(!all.contains("evil") && !all.contains("bank"), "{all}");
    // A service outside of the mesh gets no header, whatever the client sends.
    let answer = get(pair.egress, "out.example", "/", &[(PEER, forged)]).unwrap();
    assert_eq!((answer.seen("name"), answer.seen(PEER)), ("outside".to_string(), String::new()));
    let outer =
        [("destination_service", "out.example"), ("destination_service_namespace", "shop"), ("source_app", "client")];
    until(&pair.client, "istio_requests_total", &outer, 1.0);
    pair.assert_no_nacks();
}

fn series_of(envoy: &Envoy, labels: &[(&str, &str)]) -> Option<Series> {
    let fits = |s: &Series| labels.iter().all(|(k, v)| s.1.get(*k).map(String::as_str) == Some(*v));
    series(envoy).into_iter().find(fits)
}

#[test]
fn both_sides_count_connections() {
    let pair = Pair::start(&mode("STRICT"));
    let mut stream = TcpStream::connect(("127.0.0.1", pair.tcp)).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let mut text = [0; 4];
    stream.write_all(b"12345678").unwrap();
    stream.read_exact(&mut text).unwrap();
    let of_client = [
        ("reporter", "source"),
        ("request_protocol", "tcp"),
        ("destination_service", "web.example"),
        ("source_workload", "client-deployment"),
        ("destination_app", "server"),
    ];
    let of_server = [
        ("reporter", "destination"),
        ("request_protocol", "tcp"),
        ("source_workload_namespace", "shop"),
        ("source_principal", "spiffe://cluster.local/ns/shop/sa/client"),
        ("connection_security_policy", "mutual_tls"),
    ];
    until(&pair.client, "istio_tcp_connections_opened_total", &of_client, 1.0);
    let closed = |s: &Series| s.0 == "istio_tcp_connections_closed_total" && s.2 > 0.0;
    assert!(!series(&pair.client).iter().any(closed));
    let mut rest = Vec::new();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    stream.read_to_end(&mut rest).unwrap();
    drop(stream);
    for (envoy, labels) in [(&pair.client, &of_client), (&pair.server, &of_server)] {
        assert_eq!(until(envoy, "istio_tcp_connections_opened_total", labels, 1.0).2, 1.0);
        assert_eq!(until(envoy, "istio_tcp_connections_closed_total", labels, 1.0).2, 1.0);
        assert_eq!(until(envoy, "istio_tcp_received_bytes_total", labels, 1.0).2, 8.0);
        assert_eq!(until(envoy, "istio_tcp_sent_bytes_total", labels, 1.0).2, 12.0);
    }
    pair.assert_no_nacks();
}

#[test]
fn overrides_change_the_metrics_of_one_side() {
    let overrides = json!({"metrics": [{"overrides": [
        {"match": {"metric": "REQUEST_SIZE", "mode": "CLIENT"}, "disabled": true},
        {"match": {"metric": "REQUEST_COUNT"}, "tagOverrides": {
            "request_path": {"value": "request.path"}, "source_version": {"operation": "REMOVE"},
            "bad": {"value": "string(1)"},
        }},
    ]}]});
    let pair = Pair::start(&(mode("STRICT") + &telemetry(&overrides)));
    get(pair.egress, "web.example", "/told", &[]).unwrap();
    for envoy in [&pair.client, &pair.server] {
        let (_, labels, _) = until(envoy, "istio_requests_total", &[("request_path", "/told")], 1.0);
        assert!(!labels.contains_key("source_version") && !labels.contains_key("bad"), "{labels:?}");
        let duration = until(envoy, "istio_request_duration_milliseconds_count", &[("source_version", "v1")], 1.0);
        assert!(!duration.1.contains_key("request_path"));
    }
    let sizes = |envoy: &Envoy| series(envoy).iter().any(|s| s.0 == "istio_request_bytes_count");
    assert!(!sizes(&pair.client) && sizes(&pair.server));
    wait_until("the status tells the tag", || {
        let rows = pair.mesh.plane.debug("/debug/statusz").to_string();
        if rows.contains("\\\"bad\\\" of metrics is left out") { Ok(()) } else { Err(rows) }
    });
    // All off: the filters go too.
    pair.write(&(mode("STRICT") + &telemetry(&json!({"metrics": [{"overrides": [{"disabled": true}]}]}))));
    wait_until("nothing is counted any more", || {
        let holds = [&pair.client, &pair.server].iter().any(|e| e.holds("access_loggers.stats") || e.holds(PEER));
        if holds { Err(String::new()) } else { Ok(()) }
    });
    pair.assert_no_nacks();
}
