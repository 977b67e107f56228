//! HTTP/3 at a gateway (`PILOT_ENABLE_QUIC_LISTENERS`): an Envoy as the client speaks QUIC to it, and learns of it over TCP.

use serde_json::{Value, json};

use crate::{
    config::{object, service},
    http::{Echo, get},
    mesh::{ControlPlane, Envoy, folder},
    process::{free_port, wait_until},
    tls::Certificate,
};

const HOST: &str = "secure.example";
const NODE: &str = "router~127.0.0.1~edge.shop~shop.svc.cluster.local";

fn typed(kind: &str, mut config: Value) -> Value {
    config["@type"] = format!("type.googleapis.com/envoy.extensions.{kind}").into();
    config
}

/// A client that takes plain HTTP at the first port, and sends it over this version of HTTP and TLS to the gateway's.
fn client(port: u16, gateway: u16, roots: &str, over_quic: bool) -> (Value, Value) {
    let name = if over_quic { "quic" } else { "tcp" };
    let at = |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    let router = json!({"name": "router", "typed_config": typed("filters.http.router.v3.Router", json!({}))});
    let manager = json!({
        "stat_prefix": name, "http_filters": [router],
        "route_config": {"virtual_hosts": [
            {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": name}}]},
        ]},
    });
    let manager = typed("filters.network.http_connection_manager.v3.HttpConnectionManager", manager);
    let listener = json!({"name": name, "address": at(port), "filter_chains": [{"filters": [
        {"name": "manager", "typed_config": manager},
    ]}]});
    let tls = typed(
        "transport_sockets.tls.v3.UpstreamTlsContext",
        json!({"sni": HOST, "common_tls_context": {"validation_context": {"trusted_ca": {"filename": roots}}}}),
    );
    let quic =
        |tls: &Value| typed("transport_sockets.quic.v3.QuicUpstreamTransport", json!({"upstream_tls_context": tls}));
    let protocol = if over_quic { json!({"http3_protocol_options": {}}) } else { json!({"http_protocol_options": {}}) };
    let options = typed("upstreams.http.v3.HttpProtocolOptions", json!({"explicit_http_config": protocol}));
    let mut tls = tls;
    if over_quic {
        tls.as_object_mut().unwrap().shift_remove("@type");
    }
    let cluster = json!({
        "name": name, "type": "STATIC", "connect_timeout": "5s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": at(gateway)}}]}]},
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options},
        "transport_socket": {"name": format!("envoy.transport_sockets.{}", if over_quic { "quic" } else { "tls" }), "typed_config": if over_quic { quic(&tls) } else { tls }},
    });
    (listener, cluster)
}

#[test]
fn a_gateway_serves_http3_beside_https_and_advertises_it() {
    let (certificate, echo, port) = (Certificate::of(HOST), Echo::start("web"), free_port());
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "edge-cert", "namespace": "shop"},
        "stringData": {"tls.crt": certificate.chain, "tls.key": certificate.key}, "type": "kubernetes.io/tls",
    });
    let server = json!({"port": {"number": port, "name": "https", "protocol": "HTTPS"}, "hosts": [HOST],
        "tls": {"mode": "SIMPLE", "credentialName": "edge-cert"}});
    let routes = |path: &str| {
        let routes = json!([
            {"match": [{"uri": {"prefix": path}}], "directResponse": {"status": 418}},
            {"route": [{"destination": {"host": "web.example"}}]},
        ]);
        object("VirtualService", "web", &json!({"hosts": [HOST], "gateways": ["edge"], "http": routes}))
    };
    let text = service("web.example", 80, "HTTP", &[(echo.port, "v1", "")])
        // HTTP/3 is for routers whose service has the port for UDP too.
        + &object(
            "ServiceEntry",
            "edge",
            &json!({"hosts": ["edge.example"], "location": "MESH_INTERNAL", "resolution": "STATIC",
                "ports": [{"number": port, "name": "quic", "protocol": "UDP"}], "endpoints": [{"address": "127.0.0.1"}]}),
        )
        + &object("Gateway", "edge", &json!({"selector": {"app": "edge"}, "servers": [server]}))
        + &format!("---\n{secret}\n");
    let configs = folder(&[("edge.yaml", text), ("routes.yaml", routes("/tea"))]);
    let plane = ControlPlane::launch_with(
        configs.clone(),
        &["--config-dir".into(), configs.into()],
        &[("PILOT_ENABLE_QUIC_LISTENERS", "true")],
    );
    plane.wait_ready();
    let edge = Envoy::start(&plane, NODE, &json!({"LABELS": {"app": "edge"}}), true);

    let (over_quic, over_tcp, roots) = (free_port(), free_port(), certificate.chain_file.to_string_lossy());
    let (quic, tcp) = (client(over_quic, port, &roots, true), client(over_tcp, port, &roots, false));
    let client = Envoy::alone(&json!([quic.0, tcp.0]), &json!([quic.1, tcp.1]));
    let until = |port: u16, path: &str, status: u16| {
        wait_until("the gateway answers", || match get(port, HOST, path, &[]) {
            Ok(answer) if answer.status == status => Ok(answer),
            other => Err(format!("{other:?}\n{}", client.process.tail())),
        })
    };
    let answer = until(over_quic, "/x", 200);
    assert_eq!([answer.seen("name"), answer.seen("path")], ["web", "/x"].map(String::from));
    assert!(client.stat("cluster.quic.upstream_cx_http3_total") > 0);
    assert!(edge.stat("http.*downstream_cx_http3_total") > 0, "{}", edge.admin("/stats?filter=http3").unwrap().body);
    until(over_quic, "/tea", 418);
    let answer = until(over_tcp, "/x", 200);
    let advertised = answer.headers.get("alt-svc").cloned().unwrap_or_default();
    assert!(advertised.contains(&format!("h3=\":{port}\"")), "{answer:?}");
    // Routes of both change together.
    plane.write("routes.yaml", &routes("/coffee"));
    until(over_quic, "/coffee", 418);
    until(over_quic, "/tea", 200);
    until(over_tcp, "/coffee", 418);
    edge.assert_no_nacks();
}
