//! Mutual TLS of the mesh between two stock Envoys with certificate files: the client's identity arrives, plain text and other
//! identities do not.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use serde_json::{Map, Value, json};

use crate::{
    config::object,
    http::{Echo, get},
    mesh::{ControlPlane, Envoy},
    process::{free_port, scratch, wait_for, wait_until},
};

const HOST: &str = "web.example";
const SERVER: &str = "spiffe://cluster.local/ns/shop/sa/server";
const CLIENT: &str = "spiffe://cluster.local/ns/shop/sa/client";

pub type Authority = CertifiedIssuer<'static, KeyPair>;

pub fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "the mesh");
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Metadata of a proxy labelled `app`, with the files of this identity.
pub fn metadata(authority: &Authority, app: &str, identity: &str) -> Value {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.subject_alt_names.push(SanType::URI(identity.try_into().unwrap()));
    let key = KeyPair::generate().unwrap();
    let made = params.signed_by(&key, authority).unwrap();
    let folder = scratch();
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let files = [
        ("CERT_CHAIN", file("chain.pem", &made.pem())),
        ("KEY", file("key.pem", &key.serialize_pem())),
        ("ROOT_CERT", file("root.pem", &authority.pem())),
    ];
    let mut metadata = Map::new();
    metadata.insert("INTERCEPTION_MODE".into(), "NONE".into());
    metadata.insert("LABELS".into(), json!({"app": app}));
    for (name, path) in &files {
        for side in ["CLIENT", "SERVER"] {
            metadata.insert(format!("TLS_{side}_{name}"), path.to_string_lossy().into());
        }
    }
    metadata.into()
}

/// A service whose only endpoint is the inbound port of the server's proxy. Its own servers are `app`.
fn mesh(inbound: u16, outbound: u16, app: u16, identity: &str) -> String {
    let service = json!({"hosts": [HOST], "location": "MESH_INTERNAL", "resolution": "STATIC",
        "ports": [{"number": outbound, "name": "http", "protocol": "HTTP"}],
        "endpoints": [{"address": "127.0.0.1", "ports": {"http": inbound}, "labels": {"app": "server"}}]});
    let ingress = json!({"workloadSelector": {"labels": {"app": "server"}}, "ingress": [{
        "port": {"number": inbound, "protocol": "HTTP", "name": "http"}, "bind": "127.0.0.1",
        "defaultEndpoint": format!("127.0.0.1:{app}")}], "egress": [{"hosts": ["~/*"]}]});
    let egress = json!({"workloadSelector": {"labels": {"app": "client"}}, "egress": [{
        "port": {"number": outbound, "protocol": "HTTP", "name": "egress"}, "bind": "127.0.0.1",
        "captureMode": "NONE", "hosts": ["./*"]}]});
    let tls = json!({"host": HOST, "trafficPolicy": {"tls": {"mode": "ISTIO_MUTUAL", "subjectAltNames": [identity]}}});
    let strict = json!({"apiVersion": "security.istio.io/v1", "kind": "PeerAuthentication",
        "metadata": {"name": "server", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "server"}}, "mtls": {"mode": "STRICT"}}});
    object("ServiceEntry", "web", &service)
        + &object("Sidecar", "server", &ingress)
        + &object("Sidecar", "client", &egress)
        + &object("DestinationRule", "web", &tls)
        + &format!("---\n{strict}\n")
}

fn two_proxies(delta: bool) {
    let (authority, echo, inbound, outbound) = (authority(), Echo::start("server"), free_port(), free_port());
    let plane = ControlPlane::start(&[("mesh.yaml", mesh(inbound, outbound, echo.port, SERVER))]);
    let start = |ip: &str, app: &str, identity: &str| {
        let node = format!("sidecar~{ip}~{app}.shop~shop.svc.cluster.local");
        Envoy::start(&plane, &node, &metadata(&authority, app, identity), delta)
    };
    let (server, client) = (start("127.0.0.1", "server", SERVER), start("10.0.0.1", "client", CLIENT));
    let through = || get(outbound, HOST, "/", &[]).ok();
    let answer = wait_until("the client is answered", || match through() {
        Some(answer) if answer.status == 200 => Ok(answer),
        other => Err(format!("{other:?}\n{}\n{}", client.process.tail(), server.process.tail())),
    });
    assert_eq!(answer.seen("name"), "server");
    let peer = answer.seen("x-forwarded-client-cert");
    assert!(peer.contains(&format!("URI={CLIENT}")), "the server is told of the client: {peer:?}");
    assert!(get(inbound, HOST, "/", &[]).is_err(), "plain text is refused");

    // A server that proves another identity than the demanded one gets no request.
    let seen = echo.paths().len();
    plane.write("mesh.yaml", &mesh(inbound, outbound, echo.port, "spiffe://cluster.local/ns/shop/sa/other"));
    wait_for("the identity of the server is checked", || through().filter(|a| a.status == 503));
    let before = echo.paths().len();
    assert!((0..20).all(|_| through().is_some_and(|a| a.status == 503)));
    assert!(echo.paths().len() == before && before >= seen, "a request reached a server of another identity");
    for envoy in [&server, &client] {
        envoy.assert_no_nacks();
    }
}

#[test]
fn two_proxies_prove_their_identities_over_sotw() {
    two_proxies(false);
}

#[test]
fn two_proxies_prove_their_identities_over_delta() {
    two_proxies(true);
}
