//! A server under STRICT refuses clients without a certificate of the mesh: of another trust domain, below another root, expired,
//! or none at all. Certificates of the mesh and of an alias of its trust domain are taken, with the protocols that Istio's own
//! proxies offer and choose.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rcgen::{CertificateParams, DistinguishedName, Issuer, KeyPair, SanType, date_time_ymd};
use serde_json::json;

use crate::{
    config::object,
    http::{Echo, get},
    joined::{Mesh, Settings, plug_in},
    mutual_tls::{CLIENT, SERVER, mesh_of, metadata},
    network::Machine,
    policies::policy,
    process::{Process, free_port, scratch, wait_until},
    tools::{TOOLS, program},
};

/// The authority of this folder.
pub fn issuer(authority: &Path) -> Issuer<'static, KeyPair> {
    let read = |name: &str| fs::read_to_string(authority.join(name)).unwrap();
    Issuer::from_ca_cert_pem(&read("ca-cert.pem"), KeyPair::from_pem(&read("ca-key.pem")).unwrap()).unwrap()
}

/// Files of a certificate for this identity and its key, signed by the authority of this folder.
pub fn certificate(authority: &Path, identity: &str, is_expired: bool) -> [PathBuf; 2] {
    certificate_with(authority, identity, &|params| {
        if is_expired {
            params.not_after = date_time_ymd(2024, 1, 1);
        }
    })
}

/// As [`certificate`], with changes.
pub fn certificate_with(authority: &Path, identity: &str, change: &dyn Fn(&mut CertificateParams)) -> [PathBuf; 2] {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names.push(SanType::URI(identity.try_into().unwrap()));
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    let made = params.signed_by(&key, &issuer(authority)).unwrap();
    let folder = scratch();
    let files = [folder.join("cert.pem"), folder.join("key.pem")];
    fs::write(&files[0], made.pem()).unwrap();
    fs::write(&files[1], key.serialize_pem()).unwrap();
    files
}

/// A request to the server, with a certificate or without one; the answer, or the reason of a failure.
pub fn ask(port: u16, roots: &Path, own: Option<&[PathBuf; 2]>, version: &str) -> Result<String, String> {
    ask_with((port, roots), own, &[("TLS_VERSION", version)])
}

/// As [`ask`], with environment variables of the client.
pub fn ask_with(
    (port, roots): (u16, &Path),
    own: Option<&[PathBuf; 2]>,
    environment: &[(&str, &str)],
) -> Result<String, String> {
    let mut get = Command::new(&TOOLS.python);
    get.envs(environment.iter().copied()).arg(program("mesh_get.py")).arg(port.to_string()).arg(roots);
    get.args(own.into_iter().flatten().map(|file| -> &OsStr { file.as_ref() }));
    let output = get.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn strict_refuses_other_trust_domains_foreign_roots_expired_and_missing_certificates() {
    let (mine, foreign) = (scratch(), scratch());
    plug_in(&mine, "mine");
    plug_in(&foreign, "foreign");
    let (echo, inbound) = (Echo::start("server"), free_port());
    let config = json!({"trustDomain": "cluster.local", "trustDomainAliases": ["old.local"]});
    let settings = Settings { mesh: Some(&config), authority: Some(&mine), ..Settings::default() };
    let text = mesh_of(echo.port, inbound, free_port(), "STRICT");
    let mesh = Mesh::start_on(&Machine::default(), std::net::Ipv4Addr::LOCALHOST.into(), text, settings);
    let server = mesh.join(SERVER, "server", &metadata("server"));
    let ask = |own: Option<&[PathBuf; 2]>| ask(inbound, &mine.join("root-cert.pem"), own, "1.2");
    let identity = "spiffe://cluster.local/ns/shop/sa/client";
    let known = certificate(&mine, identity, false);
    let answer = wait_until("a certificate of the mesh is taken", || ask(Some(&known)));
    assert!(answer.contains(&format!("URI={identity}")), "{answer}");
    let alias = certificate(&mine, "spiffe://old.local/ns/shop/sa/client", false);
    ask(Some(&alias)).expect("a certificate of an alias is taken");

    let before = echo.paths().len();
    let refused = |own: Option<&[PathBuf; 2]>, alert: &str| {
        let reason = ask(own).expect_err(alert);
        assert!(reason.contains(alert), "{alert}: {reason}");
    };
    refused(None, "ALERT_HANDSHAKE_FAILURE");
    refused(Some(&certificate(&mine, "spiffe://other.local/ns/shop/sa/client", false)), "ALERT_CERTIFICATE_UNKNOWN");
    refused(Some(&certificate(&foreign, identity, false)), "ALERT_UNKNOWN_CA");
    refused(Some(&certificate(&mine, identity, true)), "ALERT_CERTIFICATE_EXPIRED");
    assert_eq!(echo.paths().len(), before, "a refused request does not reach the program");
    ask(Some(&known)).expect("the mesh is still let in");
    server.assert_no_nacks();
}

/// The ALPN of an Istio proxy's connections: to declared TCP, to HTTP of each version, and one that it passes on.
const OF_ISTIO: [&str; 4] =
    ["istio-peer-exchange,istio", "istio-http/1.1,istio,http/1.1", "istio-http/1.0,istio,http/1.0", "istio"];

#[test]
fn connections_of_istios_proxies_are_taken_on_ports_of_each_protocol() {
    let mine = scratch();
    plug_in(&mine, "mine");
    let (echo, ports) = (Echo::start("server"), [free_port(), free_port(), free_port()]);
    let protocols = [("http", "HTTP"), ("tcp", "TCP"), ("any", "")];
    let ingress = ports.iter().zip(protocols).map(|(port, (name, protocol))| {
        json!({"port": {"number": port, "protocol": protocol, "name": name}, "bind": "127.0.0.1",
            "captureMode": "NONE", "defaultEndpoint": format!("127.0.0.1:{}", echo.port)})
    });
    let sidecar = json!({"workloadSelector": {"labels": {"app": "server"}}, "ingress": ingress.collect::<Vec<_>>(),
        "egress": [{"hosts": ["~/*"]}]});
    let text = |mode: &str| {
        object("Sidecar", "server", &sidecar)
            + &policy("PeerAuthentication", "default", &json!({"mtls": {"mode": mode}}))
    };
    let settings = Settings { authority: Some(&mine), ..Settings::default() };
    let mesh = Mesh::start_on(&Machine::default(), std::net::Ipv4Addr::LOCALHOST.into(), text("STRICT"), settings);
    let server = mesh.join(SERVER, "server", &metadata("server"));
    let known = certificate(&mine, "spiffe://cluster.local/ns/shop/sa/client", false);
    let roots = mine.join("root-cert.pem");
    for (mode, takes_plain) in [("STRICT", false), ("PERMISSIVE", true)] {
        mesh.write(&text(mode));
        for (port, (_, protocol)) in ports.iter().zip(protocols) {
            wait_until("the mode is in force", || {
                let is_open = get(*port, "web.example", "/", &[]).is_ok_and(|answer| answer.status == 200);
                if is_open == takes_plain { Ok(()) } else { Err(format!("{mode} {protocol:?}")) }
            });
            for alpn in OF_ISTIO {
                let answer = ask_with((*port, &roots), Some(&known), &[("TLS_VERSION", "1.3"), ("ALPN", alpn)]);
                assert!(answer.is_ok_and(|answer| answer.contains("server")), "{mode} {protocol:?} {alpn}");
            }
        }
    }
    server.assert_no_nacks();
}

#[test]
fn a_stock_envoy_offers_istios_proxies_what_both_can_speak() {
    let mine = scratch();
    plug_in(&mine, "mine");
    let (port, egress) = (free_port(), free_port());
    let settings = Settings { authority: Some(&mine), ..Settings::default() };
    let text = mesh_of(1, port, egress, "STRICT");
    let mesh = Mesh::start_on(&Machine::default(), std::net::Ipv4Addr::LOCALHOST.into(), text, settings);
    let client = mesh.join(CLIENT, "client", &metadata("client"));
    // An Istio proxy chooses of these; what follows `istio-peer-exchange` is no HTTP.
    let files = certificate(&mine, "spiffe://cluster.local/ns/shop/sa/server", false);
    let serve = |alpn: &str| {
        let mut command = Command::new(&TOOLS.python);
        command.arg(program("tls_server.py")).arg(port.to_string()).args(&files).arg("server");
        Process::start("tls-server", command.arg(mine.join("root-cert.pem")).arg(alpn))
    };
    for (served, chosen) in [
        ("istio-peer-exchange,h2,http/1.1", "http/1.1"),
        ("istio-peer-exchange,istio-http/1.1,istio", "istio-http/1.1"),
        ("istio-peer-exchange,istio", "istio"),
    ] {
        let _server = serve(served);
        wait_until(served, || match get(egress, "web.example", "/", &[]) {
            Ok(answer) if answer.status == 200 && answer.seen("alpn") == chosen => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    client.assert_no_nacks();
}
