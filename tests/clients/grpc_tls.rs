//! Mutual TLS between proxyless gRPC programs with certificate files, in each language: a strict server takes clients of the
//! mesh, and refuses plain text and certificates of another root; policies decide by the client's identity and by the method; a
//! client refuses a server of another identity.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    certificate_files::{authority, metadata},
    config::{object, service},
    grpc::{Client, GO, Grpc, HOST, JAVA, OLDER_GO, OLDER_JAVA, bootstrap_from, bootstrap_with, serve},
    grpc_destinations::{at, resolved},
    joined::Mesh,
    mesh::ControlPlane,
    policies::{authorization, policy},
    process::{free_port, wait_until},
};

const SERVER: &str = "spiffe://cluster.local/ns/shop/sa/server";
const CLIENT: &str = "spiffe://cluster.local/ns/shop/sa/client";

/// A strict service whose server proves this identity.
fn strict(port: u16, of_server: &str) -> String {
    let tls = json!({"mode": "ISTIO_MUTUAL", "subjectAltNames": [of_server]});
    service(HOST, 9000, "GRPC", &[(port, "v1", "")])
        + &object("DestinationRule", "echo", &json!({"host": HOST, "trafficPolicy": {"tls": tls}}))
        + &policy("PeerAuthentication", "default", &json!({"mtls": {"mode": "STRICT"}}))
}

/// Rules of policies for the server, and whether a call of the client gets through.
fn policies() -> [(&'static str, Value, bool); 6] {
    let to = |path: &str| json!([{"operation": {"paths": [path]}}]);
    let from = |account: &str| json!([{"source": {"principals": [format!("cluster.local/ns/shop/sa/{account}")]}}]);
    [
        ("DENY", json!({"to": to("/test.Echo/Who")}), false),
        ("DENY", json!({"to": to("/test.Echo/Other")}), true),
        ("ALLOW", json!({"from": from("other")}), false),
        ("ALLOW", json!({"from": from("client"), "to": to("/test.Echo/*")}), true),
        ("ALLOW", json!({"from": from("client"), "to": to("/test.Other/*")}), false),
        ("DENY", json!({"from": from("other")}), true),
    ]
}

/// A client of one language and a server of another, or of the same.
fn proves_itself_to_a_strict_server(grpc: Grpc, of_server: Grpc) {
    let Some(server) = of_server.server() else { return };
    let (mine, foreign, port) = (authority(), authority(), free_port());
    let plane = ControlPlane::start(&[("echo.yaml", strict(port, SERVER))]);
    let bootstrap = bootstrap_with(&plane, "server", "127.0.0.1", &metadata(&mine, "server", SERVER));
    let _server = serve(server, "v1", port, Some(&bootstrap));
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

    // Go writes the code in its own way.
    let refused = |answer: &str| answer.to_uppercase().contains("UNAVAILABLE");
    let mut plain = Client::start(command(None), &of_client);
    until("plain text is refused", &mut plain, &refused);
    // It knows the mesh's root, and no certificate below it.
    let (known, mut unknown) = (metadata(&mine, "client", CLIENT), metadata(&foreign, "client", CLIENT));
    unknown["TLS_CLIENT_ROOT_CERT"] = known["TLS_CLIENT_ROOT_CERT"].clone();
    let of_stranger = bootstrap_with(&plane, "stranger", "10.9.9.7", &unknown);
    let mut stranger = Client::start(command(Some("tls")), &of_stranger);
    until("a certificate of another root is refused", &mut stranger, &refused);
    assert_eq!(client.attempt(), "v1");

    for (action, rule, is_let_in) in policies() {
        let spec = json!({"selector": {"matchLabels": {"app": "server"}}, "action": action, "rules": [rule]});
        plane.write("echo.yaml", &(strict(port, SERVER) + &authorization("calls", &spec)));
        until(&format!("{action} {rule} is in force"), &mut client, &|answer: &str| {
            let is_refused = answer.to_uppercase().replace('_', "").contains("PERMISSIONDENIED");
            if is_let_in { answer == "v1" } else { is_refused }
        });
    }

    plane.write("echo.yaml", &strict(port, "spiffe://cluster.local/ns/shop/sa/other"));
    wait_until("a new client refuses a server of another identity", || {
        // Connections that there are stay.
        let answer = Client::start(command(Some("tls")), &of_client).attempt();
        if refused(&answer) { Ok(()) } else { Err(answer) }
    });
    assert_eq!(plane.debug("/debug/push_status"), json!({}), "a client refused config");
}

#[test]
fn python_proves_itself_to_a_strict_server() {
    proves_itself_to_a_strict_server(Grpc::Python, Grpc::Python);
}

#[test]
fn javascript_proves_itself_to_a_strict_server() {
    proves_itself_to_a_strict_server(Grpc::JavaScript, Grpc::Python);
}

#[test]
fn go_proves_itself_to_a_strict_server() {
    proves_itself_to_a_strict_server(GO, GO);
    proves_itself_to_a_strict_server(OLDER_GO, OLDER_GO);
}

#[test]
fn java_proves_itself_to_a_strict_server() {
    proves_itself_to_a_strict_server(JAVA, JAVA);
    proves_itself_to_a_strict_server(OLDER_JAVA, OLDER_JAVA);
}

/// A server that is found by DNS proves the same, as one in EDS does.
fn proves_itself_to_a_server_by_name(grpc: Grpc) {
    const NAMED: &str = "named.shop.svc.cluster.local";
    let Some(server) = grpc.server() else { return };
    let (mine, port) = (authority(), free_port());
    let by_name = |of_server: &str| {
        let tls = json!({"mode": "ISTIO_MUTUAL", "subjectAltNames": [of_server]});
        let rule = json!({"host": NAMED, "trafficPolicy": {"tls": tls}});
        strict(port, SERVER)
            + &resolved(NAMED, 9000, "DNS", &json!([at("localhost", port, "v1")]))
            + &object("DestinationRule", "named", &rule)
    };
    let plane = ControlPlane::start(&[("echo.yaml", by_name(SERVER))]);
    let bootstrap = bootstrap_with(&plane, "server", "127.0.0.1", &metadata(&mine, "server", SERVER));
    let _server = serve(server, "v1", port, Some(&bootstrap));
    let of_client = bootstrap_with(&plane, "client", "10.9.9.9", &metadata(&mine, "client", CLIENT));
    let start = || {
        let mut command = grpc.client(&format!("xds:///{NAMED}:9000")).unwrap();
        command.arg("tls");
        Client::start(command, &of_client)
    };
    let mut client = start();
    wait_until("a client of the mesh is let in", || {
        let answer = client.attempt();
        if answer == "v1" { Ok(()) } else { Err(answer) }
    });
    plane.write("echo.yaml", &by_name("spiffe://cluster.local/ns/shop/sa/other"));
    wait_until("a new client refuses a server of another identity", || {
        let answer = start().attempt();
        if answer.to_uppercase().contains("UNAVAILABLE") { Ok(()) } else { Err(answer) }
    });
    assert_eq!(plane.debug("/debug/push_status"), json!({}), "a client refused config");
}

#[test]
fn a_server_by_name_proves_itself() {
    for grpc in [Grpc::Python, GO, JAVA] {
        proves_itself_to_a_server_by_name(grpc);
    }
}

/// Without an agent: `pilothouse certificate` writes and renews the files, which both programs follow.
#[test]
fn programs_prove_themselves_with_certificates_that_the_command_keeps() {
    const LIFE: Duration = Duration::from_secs(15);
    let port = free_port();
    // gRPC looks for the host that it dials in the certificate of the control plane.
    let mesh = Mesh::start(strict(port, SERVER), &[("PILOTHOUSE_SERVER_NAME", "127.0.0.1")]);
    let started = Instant::now();
    let [(_renewal_of_server, server), (_renewal_of_client, client)] =
        ["server", "client"].map(|account| mesh.keep_certificate(account, "15s"));
    // The certificate is the proof of the control plane's client too: there is no token.
    let bootstrap = |app: &str, ip: &str, folder: &Path| {
        let root = folder.join("root-cert.pem");
        let arguments = ["--certs-dir".as_ref(), folder.as_os_str(), "--root-cert".as_ref(), root.as_os_str()];
        let metadata = json!({"LABELS": {"app": app}, "SERVICE_ACCOUNT": app});
        let path = bootstrap_from(&mesh.secure.to_string(), (app, ip), &metadata, &arguments);
        let text: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let refresh = &text["certificate_providers"]["default"]["config"]["refresh_interval"];
        assert_eq!(*refresh, "1s", "certificates of so short a life are read again in time");
        path
    };
    let _server = serve(Grpc::Python.server().unwrap(), "v1", port, Some(&bootstrap("server", "127.0.0.1", &server)));
    let of_client = bootstrap("client", "10.9.9.9", &client);
    let call = |security: Option<&str>| {
        let mut command = Grpc::Python.client(&format!("xds:///{HOST}:9000")).unwrap();
        command.args(security);
        Client::start(command, &of_client).attempt()
    };
    let until = |what: &str, wanted: &dyn Fn(&str) -> bool| {
        wait_until(what, || {
            let answer = call(Some("tls"));
            if wanted(&answer) { Ok(()) } else { Err(answer) }
        });
    };
    until("the client is let in", &|answer| answer == "v1");
    assert!(call(None).contains("UNAVAILABLE"), "plain text is refused");
    let first = fs::read_to_string(server.join("cert-chain.pem")).unwrap();
    wait_until("the first certificates are expired", || {
        if started.elapsed() > LIFE + Duration::from_secs(2) { Ok(()) } else { Err(String::new()) }
    });
    assert_ne!(first, fs::read_to_string(server.join("cert-chain.pem")).unwrap());
    until("a new connection is let in with renewed certificates", &|answer| answer == "v1");
    assert_eq!(mesh.plane.debug("/debug/push_status"), json!({}), "a client refused config");
}
