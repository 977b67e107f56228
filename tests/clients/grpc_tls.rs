//! Mutual TLS between proxyless gRPC programs with certificate files: a strict server takes clients of the mesh, and refuses plain
//! text and certificates of another root; a client refuses a server of another identity.

use serde_json::json;

use crate::{
    certificate_files::{authority, metadata},
    config::{object, service},
    grpc::{Client, Grpc, HOST, bootstrap_with, serve},
    mesh::ControlPlane,
    policies::policy,
    process::{free_port, wait_until},
};

const SERVER: &str = "spiffe://cluster.local/ns/shop/sa/server";
const CLIENT: &str = "spiffe://cluster.local/ns/shop/sa/client";

fn proves_itself_to_a_strict_server(grpc: Grpc) {
    let (mine, foreign, port) = (authority(), authority(), free_port());
    let objects = |of_server: &str| {
        let tls = json!({"mode": "ISTIO_MUTUAL", "subjectAltNames": [of_server]});
        service(HOST, 9000, "GRPC", &[(port, "v1", "")])
            + &object("DestinationRule", "echo", &json!({"host": HOST, "trafficPolicy": {"tls": tls}}))
            + &policy("PeerAuthentication", "default", &json!({"mtls": {"mode": "STRICT"}}))
    };
    let plane = ControlPlane::start(&[("echo.yaml", objects(SERVER))]);
    let of_server = bootstrap_with(&plane, "server", "127.0.0.1", &metadata(&mine, "server", SERVER));
    let _server = serve(Grpc::Python.server().unwrap(), "v1", port, Some(&of_server));
    let command = |security: Option<&str>| {
        let mut command = grpc.client(&format!("xds:///{HOST}:9000")).unwrap();
        command.args(security);
        command
    };
    let of_client = bootstrap_with(&plane, "client", "10.9.9.9", &metadata(&mine, "client", CLIENT));
    let mut client = Client::start(command(Some("tls")), &of_client);
    let until = |what: &str, client: &mut Client, wanted: &dyn Fn(&str) -> bool| {
        wait_until(what, || {
            let answer = client.attempt();
            if wanted(&answer) { Ok(()) } else { Err(answer) }
        });
    };
    until("a client of the mesh is let in", &mut client, &|answer| answer == "v1");
    assert_eq!(client.call(20, "").into_iter().collect::<Vec<_>>(), [("v1".to_string(), 20)]);

    let refused = |answer: &str| answer.contains("UNAVAILABLE");
    let mut plain = Client::start(command(None), &of_client);
    until("plain text is refused", &mut plain, &refused);
    // It knows the mesh's root, and no certificate below it.
    let (known, mut unknown) = (metadata(&mine, "client", CLIENT), metadata(&foreign, "client", CLIENT));
    unknown["TLS_CLIENT_ROOT_CERT"] = known["TLS_CLIENT_ROOT_CERT"].clone();
    let of_stranger = bootstrap_with(&plane, "stranger", "10.9.9.7", &unknown);
    let mut stranger = Client::start(command(Some("tls")), &of_stranger);
    until("a certificate of another root is refused", &mut stranger, &refused);
    assert_eq!(client.attempt(), "v1");

    plane.write("echo.yaml", &objects("spiffe://cluster.local/ns/shop/sa/other"));
    wait_until("a new client refuses a server of another identity", || {
        // Connections that there are stay.
        let answer = Client::start(command(Some("tls")), &of_client).attempt();
        if refused(&answer) { Ok(()) } else { Err(answer) }
    });
    assert_eq!(plane.debug("/debug/push_status"), json!({}), "a client refused config");
}

#[test]
fn python_proves_itself_to_a_strict_server() {
    proves_itself_to_a_strict_server(Grpc::Python);
}

#[test]
fn javascript_proves_itself_to_a_strict_server() {
    proves_itself_to_a_strict_server(Grpc::JavaScript);
}
