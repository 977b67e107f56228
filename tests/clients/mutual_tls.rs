//! Mutual TLS between stock Envoys whose certificates the control plane issues: no agent, no files of certificates.

use serde_json::{Value, json};

use crate::{
    config::{gateway, object},
    http::{Echo, get},
    joined::Mesh,
    mesh::Envoy,
    process::{free_port, wait_for, wait_until},
};

pub const SERVER: &str = "sidecar~127.0.0.1~server.shop~shop.svc.cluster.local";
/// TLS connections to the service.
pub const HANDSHAKES: &str = "cluster.outbound.*web.example.*ssl.handshake";
pub const CLIENT: &str = "sidecar~10.0.0.1~client.shop~shop.svc.cluster.local";

/// A server behind its own Envoy on `inbound`, called by another Envoy on `egress`.
pub fn mesh_of(echo: u16, inbound: u16, egress: u16, mode: &str) -> String {
    object(
        "ServiceEntry",
        "web",
        &json!({
            "hosts": ["web.example"], "location": "MESH_INTERNAL", "resolution": "STATIC",
            "ports": [{"number": egress, "name": "http", "protocol": "HTTP", "targetPort": inbound}],
            "endpoints": [{"address": "127.0.0.1", "serviceAccount": "server", "labels": {"app": "server", "security.istio.io/tlsMode": "istio"}}],
            "subjectAltNames": ["spiffe://cluster.local/ns/shop/sa/server"],
        }),
    ) + &object(
        "Sidecar",
        "server",
        &json!({
            "workloadSelector": {"labels": {"app": "server"}},
            "ingress": [{
                "port": {"number": inbound, "protocol": "HTTP", "name": "http"}, "bind": "127.0.0.1",
                "captureMode": "NONE", "defaultEndpoint": format!("127.0.0.1:{echo}"),
            }],
            "egress": [{"hosts": ["~/*"]}],
        }),
    ) + &object(
        "Sidecar",
        "client",
        &json!({
            "workloadSelector": {"labels": {"app": "client"}},
            "egress": [{
                "port": {"number": egress, "protocol": "HTTP", "name": "egress"}, "bind": "127.0.0.1",
                "captureMode": "NONE", "hosts": ["./*"],
            }],
        }),
    ) + &format!(
        "---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {{name: default, namespace: shop}}\nspec: {{mtls: {{mode: {mode}}}}}\n"
    )
}

pub fn metadata(app: &str) -> Value {
    json!({"INTERCEPTION_MODE": "NONE", "LABELS": {"app": app}, "SERVICE_ACCOUNT": app})
}

#[test]
fn strict_mutual_tls_lets_the_mesh_in_and_plain_text_out() {
    let (echo, inbound, egress) = (Echo::start("server"), free_port(), free_port());
    let mesh = Mesh::start(mesh_of(echo.port, inbound, egress, "STRICT"), &[("DEFAULT_WORKLOAD_CERT_TTL", "20s")]);
    let server = mesh.join(SERVER, "server", &metadata("server"));
    let client = mesh.join(CLIENT, "client", &metadata("client"));
    let answer = || get(egress, "web.example", "/", &[]).ok().filter(|a| a.status == 200).map(|a| a.seen("name"));
    assert_eq!(wait_for("the call over mutual TLS", answer), "server");
    assert!(client.stat(HANDSHAKES) > 0, "the client's connection is TLS");
    assert!(get(inbound, "web.example", "/", &[]).is_err(), "plain text is refused");

    // Through two renewals of each certificate no request fails.
    let issued = |envoy: &Envoy| envoy.stat("sds.default.update_success");
    let before = (issued(&server), issued(&client));
    wait_for("two renewals", || {
        assert_eq!(answer().as_deref(), Some("server"), "a request fails while certificates are renewed");
        (issued(&server) >= before.0 + 2 && issued(&client) >= before.1 + 2).then_some(())
    });
    server.assert_no_nacks();
    client.assert_no_nacks();
}

#[test]
fn permissive_takes_both_and_a_proxy_without_a_proof_speaks_plain_text() {
    let (echo, inbound, egress) = (Echo::start("server"), free_port(), free_port());
    let mesh = Mesh::start(mesh_of(echo.port, inbound, egress, "PERMISSIVE"), &[]);
    let server = mesh.join(SERVER, "server", &metadata("server"));
    wait_for("plain text", || get(inbound, "web.example", "/", &[]).ok().filter(|a| a.status == 200));
    let client = Envoy::start(&mesh.plane, CLIENT, &metadata("client"), true);
    let answer = || get(egress, "web.example", "/", &[]).ok().filter(|a| a.status == 200);
    wait_for("the call in plain text", answer);
    assert_eq!(client.stat(HANDSHAKES), 0);
    drop(client);
    let client = mesh.join(CLIENT, "client", &metadata("client"));
    wait_for("the call over mutual TLS", answer);
    assert!(client.stat(HANDSHAKES) > 0);
    server.assert_no_nacks();
    client.assert_no_nacks();
}

/// A policy that lets callers of this service account in, and no others.
fn allow(account: &str) -> String {
    format!(
        "---\napiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: callers, namespace: shop}}\nspec:\n  selector: {{matchLabels: {{app: server}}}}\n  rules:\n  - from: [{{source: {{principals: [cluster.local/ns/shop/sa/{account}]}}}}]\n"
    )
}

#[test]
fn policies_decide_by_the_identities_of_issued_certificates() {
    let (echo, inbound, egress) = (Echo::start("server"), free_port(), free_port());
    let text = mesh_of(echo.port, inbound, egress, "STRICT");
    let mesh = Mesh::start(text.clone() + &allow("client"), &[]);
    let server = mesh.join(SERVER, "server", &metadata("server"));
    let client = mesh.join(CLIENT, "client", &metadata("client"));
    let status = || get(egress, "web.example", "/", &[]).ok().map(|answer| answer.status);
    wait_for("the client is let in", || status().filter(|status| *status == 200));
    mesh.write(&(text.clone() + &allow("other")));
    wait_for("the client is kept out", || status().filter(|status| *status == 403));
    mesh.write(&(text + &allow("client")));
    wait_for("the client is let in again", || status().filter(|status| *status == 200));
    server.assert_no_nacks();
    client.assert_no_nacks();
}

#[test]
fn a_gateway_calls_a_strict_sidecar_with_its_own_certificate() {
    let (echo, inbound, port) = (Echo::start("server"), free_port(), free_port());
    let routes = json!({"hosts": ["web.example"], "gateways": ["edge"],
        "http": [{"route": [{"destination": {"host": "web.example"}}]}]});
    let text = mesh_of(echo.port, inbound, free_port(), "STRICT")
        + &gateway(port)
        + &object("VirtualService", "web", &routes)
        + &allow("edge");
    let tls = |mode: &str| {
        object("DestinationRule", "web", &json!({"host": "web.example", "trafficPolicy": {"tls": {"mode": mode}}}))
    };
    let mesh = Mesh::start(text.clone() + &tls("ISTIO_MUTUAL"), &[]);
    let server = mesh.join(SERVER, "server", &metadata("server"));
    let edge = mesh.join("router~10.0.0.2~edge.shop~shop.svc.cluster.local", "edge", &metadata("edge"));
    let until = |why: &str, status: u16| {
        wait_until(why, || match get(port, "web.example", "/", &[]) {
            Ok(answer) if answer.status == status => Ok(answer),
            other => Err(format!("{other:?}")),
        })
    };
    let peer = until("the gateway is let in", 200).seen("x-forwarded-client-cert");
    assert!(peer.contains("URI=spiffe://cluster.local/ns/shop/sa/edge"), "{peer:?}");
    mesh.write(&(text.clone() + &tls("DISABLE")));
    until("plain text is refused", 503);
    mesh.write(&text);
    until("mutual TLS is found out", 200);
    server.assert_no_nacks();
    edge.assert_no_nacks();
}
