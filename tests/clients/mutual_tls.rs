//! Mutual TLS between stock Envoys whose certificates the control plane issues: no agent, no files of certificates.

use serde_json::{Value, json};

use crate::{
    config::{document_in, gateway, object},
    http::{Echo, get},
    joined::Mesh,
    mesh::Envoy,
    policies::authorization,
    process::{free_port, wait_for, wait_until},
};

pub const SERVER: &str = "sidecar~127.0.0.1~server.shop~shop.svc.cluster.local";
/// TLS connections to the service.
pub const HANDSHAKES: &str = "cluster.outbound.*web.example.*ssl.handshake";
/// Connections to the service that were closed, by either end.
const CLOSED: &str = "cluster.outbound.*web.example.*upstream_cx_destroy";
pub const CLIENT: &str = "sidecar~10.0.0.1~client.shop~shop.svc.cluster.local";

/// A server behind its own Envoy on `inbound`, called by another Envoy on `egress`.
pub fn mesh_of(echo: u16, inbound: u16, egress: u16, mode: &str) -> String {
    workloads(echo, inbound, egress) + &peers("shop", "default", &json!({"mtls": {"mode": mode}}))
}

/// A PeerAuthentication.
fn peers(namespace: &str, name: &str, spec: &Value) -> String {
    document_in(namespace, "security.istio.io/v1", "PeerAuthentication", name, spec)
}

/// As [`mesh_of`], without settings of mutual TLS.
fn workloads(echo: u16, inbound: u16, egress: u16) -> String {
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

    // Through two renewals of each certificate no request fails and no connection is closed.
    let issued = |envoy: &Envoy| envoy.stat("sds.default.update_success");
    let (before, closed) = ((issued(&server), issued(&client)), client.stat(CLOSED));
    wait_for("two renewals", || {
        assert_eq!(answer().as_deref(), Some("server"), "a request fails while certificates are renewed");
        (issued(&server) >= before.0 + 2 && issued(&client) >= before.1 + 2).then_some(())
    });
    assert_eq!(client.stat(CLOSED), closed);
    server.assert_no_nacks();
    client.assert_no_nacks();
}

#[test]
fn the_narrowest_peer_authentication_decides() {
    let (echo, inbound, egress) = (Echo::start("server"), free_port(), free_port());
    let base = workloads(echo.port, inbound, egress);
    let of_mesh = |mode: &str| peers("istio-system", "default", &json!({"mtls": {"mode": mode}}));
    let of_workload = |mode: &str, port: Option<&str>| {
        let mut spec = json!({"selector": {"matchLabels": {"app": "server"}}, "mtls": {"mode": mode}});
        if let Some(port) = port {
            spec["portLevelMtls"] = json!({inbound.to_string(): {"mode": port}});
        }
        peers("shop", "server", &spec)
    };
    let mesh = Mesh::start(base.clone() + &of_mesh("STRICT"), &[]);
    let server = mesh.join(SERVER, "server", &metadata("server"));
    let client = mesh.join(CLIENT, "client", &metadata("client"));
    let in_mesh = || get(egress, "web.example", "/", &[]).is_ok_and(|answer| answer.status == 200);
    let in_plain = || get(inbound, "web.example", "/", &[]).is_ok_and(|answer| answer.status == 200);
    wait_for("the call over mutual TLS", || in_mesh().then_some(()));
    for (objects, takes_plain) in [
        (of_mesh("STRICT"), false),
        (of_mesh("STRICT") + &of_workload("PERMISSIVE", None), true),
        (of_mesh("PERMISSIVE") + &of_workload("STRICT", None), false),
        (of_mesh("STRICT") + &of_workload("STRICT", Some("PERMISSIVE")), true),
        (of_mesh("PERMISSIVE") + &of_workload("PERMISSIVE", Some("STRICT")), false),
        (of_mesh("STRICT") + &of_workload("UNSET", Some("PERMISSIVE")), true),
        (of_mesh("STRICT") + &of_workload("UNSET", None), false),
    ] {
        mesh.write(&(base.clone() + &objects));
        let wanted = |is_open: bool| if is_open == takes_plain { Ok(()) } else { Err(objects.clone()) };
        wait_until("the mode is in force", || wanted(in_plain()));
        assert!(in_mesh(), "mutual TLS is taken in every mode: {objects}");
    }
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
    allow_from(&json!({"principals": [format!("cluster.local/ns/shop/sa/{account}")]}))
}

fn allow_from(source: &Value) -> String {
    let spec = json!({"selector": {"matchLabels": {"app": "server"}}, "rules": [{"from": [{"source": source}]}]});
    authorization("callers", &spec)
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
    for (source, wanted) in [
        (json!({"namespaces": ["shop"]}), 200),
        (json!({"namespaces": ["bank"]}), 403),
        (json!({"serviceAccounts": ["shop/client"]}), 200),
        (json!({"notNamespaces": ["shop"]}), 403),
        (json!({"namespaces": ["sh*"], "notPrincipals": ["*/sa/other"]}), 200),
    ] {
        mesh.write(&(text.clone() + &allow_from(&source)));
        wait_until("the policy is in force", || match status() {
            Some(status) if status == wanted => Ok(()),
            other => Err(format!("{source}: {other:?}")),
        });
    }
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
