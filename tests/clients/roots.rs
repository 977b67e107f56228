//! Whom a strict server trusts: roots of `caCertificates` beside its own, lists of revoked certificates, and the versions of
//! TLS that the mesh allows.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    certificate_files,
    config::object,
    http::{Answer, Echo, get},
    joined::{Mesh, Settings, plug_in, replace},
    mesh::{ControlPlane, Envoy, folder},
    mutual_tls::{CLIENT, SERVER, mesh_of, metadata},
    network::Machine,
    policies::{authorization, policy},
    process::{Process, free_port, scratch, wait_for, wait_until},
    strangers::{ask, ask_with, certificate_with, issuer},
    tls::Certificate,
    tools::{TOOLS, program},
};

/// A strict server below the authority `mine`.
struct Strict {
    mine: PathBuf,
    mesh: Mesh,
    server: Envoy,
    inbound: u16,
    /// The objects without policies of the test's own.
    text: String,
    _echo: Echo,
}

impl Strict {
    fn start(config: &Value, environment: &[(&str, &str)]) -> Self {
        let (echo, inbound, mine) = (Echo::start("server"), free_port(), scratch());
        plug_in(&mine, "mine");
        let settings = Settings { mesh: Some(config), authority: Some(&mine), environment, ..Settings::default() };
        let text = mesh_of(echo.port, inbound, free_port(), "STRICT");
        let mesh = Mesh::start_on(&Machine::default(), Ipv4Addr::LOCALHOST.into(), text.clone(), settings);
        let server = mesh.join(SERVER, "server", &metadata("server"));
        Self { mine, mesh, server, inbound, text, _echo: echo }
    }

    fn ask(&self, own: &[PathBuf; 2]) -> Result<String, String> {
        self.ask_in("1.2", own)
    }

    fn ask_in(&self, version: &str, own: &[PathBuf; 2]) -> Result<String, String> {
        ask(self.inbound, &self.mine.join("root-cert.pem"), Some(own), version)
    }

    fn until_taken(&self, why: &str, own: &[PathBuf; 2]) {
        wait_until(why, || self.ask(own));
    }

    fn until_refused(&self, why: &str, own: &[PathBuf; 2], alert: &str) {
        wait_until(why, || match self.ask(own) {
            Err(reason) if reason.contains(alert) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}

fn certificate(authority: &Path, identity: &str) -> [PathBuf; 2] {
    certificate_with(authority, identity, &|_| ())
}

const OURS: &str = "spiffe://cluster.local/ns/shop/sa/client";
const THEIRS: &str = "spiffe://their.example/ns/shop/sa/client";
const SEVERAL_ROOTS: (&str, &str) = ("ISTIO_MULTIROOT_MESH", "true");

#[test]
fn a_root_of_the_mesh_config_is_trusted_for_its_trust_domains_and_as_long_as_it_is_there() {
    let foreign = scratch();
    let root = plug_in(&foreign, "foreign");
    let with = |pem: &str| json!({"caCertificates": [{"pem": pem, "trustDomains": ["their.example"]}]});
    let strict = Strict::start(&json!({}), &[SEVERAL_ROOTS]);
    let (own, theirs) = (certificate(&strict.mine, OURS), certificate(&foreign, THEIRS));
    strict.until_taken("the mesh is let in", &own);
    strict.until_refused("a foreign root is not trusted", &theirs, "ALERT_UNKNOWN_CA");

    strict.mesh.configure(&with(&root));
    strict.until_taken("a root of the mesh config is trusted", &theirs);
    strict.until_taken("the mesh is let in as before", &own);
    let other = certificate(&foreign, "spiffe://other.example/ns/shop/sa/client");
    strict.until_refused("other trust domains are not", &other, "ALERT_CERTIFICATE_UNKNOWN");

    let broken: String = root.chars().take(root.len() / 2).collect();
    strict.mesh.configure(&with(&broken));
    wait_for("the fault is told", || strict.mesh.plane.process.tail().contains("caCertificates[0].pem").then_some(()));
    strict.ask(&theirs).expect("the last good mesh config stays");
    strict.mesh.configure(&json!({}));
    strict.until_refused("a root that is taken out is not trusted any more", &theirs, "ALERT_UNKNOWN_CA");
    strict.ask(&own).expect("the mesh is let in as before");
    strict.server.assert_no_nacks();
}

/// Two meshes, each below a root of its own, with one Envoy each that serves and calls.
struct Neighbours {
    meshes: [(Mesh, Envoy); 2],
    roots: [String; 2],
    /// The port of each service.
    ports: [u16; 2],
    _echoes: [Echo; 2],
}

impl Neighbours {
    const NAMES: [&'static str; 2] = ["ours", "theirs"];
    const TRUST_DOMAINS: [&'static str; 2] = ["cluster.local", "their.example"];

    fn start() -> Self {
        let echoes = Self::NAMES.map(Echo::start);
        let [ports, inbound] = [(); 2].map(|()| [(); 2].map(|()| free_port()));
        let text = (0..2)
            .fold(policy("PeerAuthentication", "default", &json!({"mtls": {"mode": "STRICT"}})), |all, at| {
                all + &Self::objects(at, echoes[at].port, inbound[at], ports)
            });
        let authorities = [(); 2].map(|()| scratch());
        let roots = [0, 1].map(|at| plug_in(&authorities[at], Self::NAMES[at]));
        let meshes = [0, 1].map(|at| {
            let config = Self::config(&roots, at, true);
            let settings = Settings {
                mesh: Some(&config),
                authority: Some(&authorities[at]),
                environment: &[SEVERAL_ROOTS],
                ..Settings::default()
            };
            let mesh = Mesh::start_on(&Machine::default(), Ipv4Addr::LOCALHOST.into(), text.clone(), settings);
            let name = Self::NAMES[at];
            let node = format!("sidecar~127.0.0.1~{name}.shop~shop.svc.cluster.local");
            let envoy = mesh.join(&node, name, &metadata(name));
            (mesh, envoy)
        });
        Self { meshes, roots, ports, _echoes: echoes }
    }

    fn identity(at: usize) -> String {
        format!("spiffe://{}/ns/shop/sa/{}", Self::TRUST_DOMAINS[at], Self::NAMES[at])
    }

    fn host(at: usize) -> String {
        format!("{}.example", Self::NAMES[at])
    }

    /// The service of a mesh, each request of which has a connection of its own, and its sidecar, which calls the other one.
    fn objects(at: usize, app: u16, inbound: u16, ports: [u16; 2]) -> String {
        let (name, host) = (Self::NAMES[at], Self::host(at));
        let labels = json!({"app": name, "security.istio.io/tlsMode": "istio"});
        let service = json!({"hosts": [host], "location": "MESH_INTERNAL", "resolution": "STATIC",
            "ports": [{"number": ports[at], "name": "http", "protocol": "HTTP", "targetPort": inbound}],
            "endpoints": [{"address": "127.0.0.1", "serviceAccount": name, "labels": labels}],
            "subjectAltNames": [Self::identity(at)]});
        let once =
            json!({"host": host, "trafficPolicy": {"connectionPool": {"http": {"maxRequestsPerConnection": 1}}}});
        let sidecar = json!({"workloadSelector": {"labels": {"app": name}},
            "ingress": [{"port": {"number": inbound, "protocol": "HTTP", "name": "http"}, "bind": "127.0.0.1",
                "captureMode": "NONE", "defaultEndpoint": format!("127.0.0.1:{app}")}],
            "egress": [{"port": {"number": ports[1 - at], "protocol": "HTTP", "name": "egress"}, "bind": "127.0.0.1",
                "captureMode": "NONE", "hosts": ["./*"]}]});
        object("ServiceEntry", name, &service)
            + &object("DestinationRule", name, &once)
            + &object("Sidecar", name, &sidecar)
    }

    /// The mesh config of a mesh that trusts the root of the other one too, or its own alone.
    fn config(roots: &[String; 2], at: usize, trusts: bool) -> Value {
        let entry = json!({"pem": roots[1 - at], "trustDomains": [Self::TRUST_DOMAINS[1 - at]]});
        let entries = if trusts { vec![entry] } else { Vec::new() };
        json!({"trustDomain": Self::TRUST_DOMAINS[at], "caCertificates": entries})
    }

    fn configure(&self, at: usize, trusts: bool) {
        self.meshes[at].0.configure(&Self::config(&self.roots, at, trusts));
    }

    /// Waits until calls both ways have this status; gives the answer of each service.
    fn until(&self, why: &str, status: u16) -> [Answer; 2] {
        [0, 1].map(|to| {
            wait_until(&format!("{why}, calls to {}", Self::NAMES[to]), || {
                match get(self.ports[to], &Self::host(to), "/", &[]) {
                    Ok(answer) if answer.status == status => Ok(answer),
                    other => Err(format!("{other:?}")),
                }
            })
        })
    }
}

#[test]
fn envoys_below_two_roots_call_each_other_while_each_mesh_trusts_both() {
    let neighbours = Neighbours::start();
    for at in [0, 1] {
        let answers = neighbours.until("each trusts both roots", 200);
        for (to, answer) in answers.iter().enumerate() {
            assert_eq!(answer.seen("name"), Neighbours::NAMES[to]);
            let peer = answer.seen("x-forwarded-client-cert");
            assert!(peer.contains(&format!("URI={}", Neighbours::identity(1 - to))), "{peer:?}");
        }
        // As a server and as a client: the mesh without the root refuses both ways.
        neighbours.configure(at, false);
        neighbours.until("one mesh trusts its own root alone", 503);
        neighbours.configure(at, true);
    }
    neighbours.until("each trusts both roots again", 200);
    neighbours.meshes.iter().for_each(|(_, envoy)| envoy.assert_no_nacks());
}

#[test]
fn without_the_flag_for_several_roots_the_mesh_config_adds_none() {
    let foreign = scratch();
    let root = plug_in(&foreign, "foreign");
    let config = json!({"caCertificates": [{"pem": root, "trustDomains": ["their.example"]}]});
    let strict = Strict::start(&config, &[]);
    strict.until_taken("the mesh is let in", &certificate(&strict.mine, OURS));
    strict.until_refused("a foreign root is not trusted", &certificate(&foreign, THEIRS), "ALERT_UNKNOWN_CA");
}

#[test]
fn a_spiffe_bundle_is_fetched_over_tls_and_its_last_good_roots_stay() {
    let (foreign, next, site, port) = (scratch(), scratch(), Certificate::of("localhost"), free_port());
    let bundle = scratch().join("bundle.json");
    let publish = |authority: &Path, name: &str| {
        let root = plug_in(authority, name);
        let key = root.lines().filter(|line| !line.starts_with('-')).collect::<String>();
        let keys = json!([{"use": "x509-svid", "kty": "EC", "x5c": [key]}]);
        fs::write(bundle.with_extension("new"), json!({"keys": keys, "spiffe_refresh_hint": 1}).to_string()).unwrap();
        fs::rename(bundle.with_extension("new"), &bundle).unwrap();
    };
    publish(&foreign, "foreign");
    let serve = || {
        let mut server = Command::new(&TOOLS.python);
        server.arg(program("file_server.py")).arg(port.to_string());
        Process::start("bundles", server.args([&site.chain_file, &site.key_file, &bundle]))
    };
    let server = serve();
    let url = format!("localhost:{port}/bundle");
    let config = json!({"caCertificates": [{"spiffeBundleUrl": url, "trustDomains": ["their.example"]}]});
    let trusted = site.chain_file.to_string_lossy();
    let strict = Strict::start(&config, &[SEVERAL_ROOTS, ("SSL_CERT_FILE", &trusted)]);
    let theirs = certificate(&foreign, THEIRS);
    strict.until_taken("a root of the bundle is trusted", &theirs);

    drop(server);
    let told = || strict.mesh.plane.process.tail().contains("a SPIFFE bundle of caCertificates cannot be fetched");
    wait_for("the failure is told", || told().then_some(()));
    strict.ask(&theirs).expect("the last good roots stay");
    publish(&next, "next");
    let _server = serve();
    strict.until_taken("a new root of the bundle is trusted", &certificate(&next, THEIRS));
    strict.until_refused("the old one is not", &theirs, "ALERT_UNKNOWN_CA");
    strict.server.assert_no_nacks();
}

/// A list of the certificates with these serial numbers, by the authority of this folder.
fn revoked(authority: &Path, serials: &[u64]) -> String {
    let certificate = |serial: &u64| rcgen::RevokedCertParams {
        serial_number: (*serial).into(),
        revocation_time: rcgen::date_time_ymd(2024, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let list = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2024, 1, 1),
        next_update: rcgen::date_time_ymd(2090, 1, 1),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(certificate).collect(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    list.signed_by(&issuer(authority)).unwrap().pem().unwrap()
}

#[test]
fn a_revoked_certificate_is_refused_by_workloads_and_by_the_control_plane() {
    let strict = Strict::start(&json!({}), &[]);
    let mine = &strict.mine;
    let with = |serial: u64| certificate_with(mine, OURS, &|params| params.serial_number = Some(serial.into()));
    let (bad, good) = (with(7), with(8));
    let (plane, root) = (strict.mesh.secure.port(), mine.join("root-cert.pem"));
    let at_plane = |own: &[PathBuf; 2]| ask_with((plane, &root), Some(own), &[("ALPN", "h2")]);
    strict.until_taken("it is not revoked", &bad);
    assert!(!at_plane(&bad).unwrap_err().contains("CERTIFICATE_REVOKED"));

    replace(mine, "ca-crl.pem", &revoked(mine, &[7]));
    strict.until_refused("a workload refuses it", &bad, "ALERT_CERTIFICATE_REVOKED");
    strict.ask(&good).expect("another certificate is taken");
    wait_until("the control plane refuses it", || match at_plane(&bad) {
        Err(reason) if reason.contains("CERTIFICATE_REVOKED") => Ok(()),
        other => Err(format!("{other:?}")),
    });

    let foreign = scratch();
    plug_in(&foreign, "foreign");
    replace(mine, "ca-crl.pem", &revoked(&foreign, &[8]));
    wait_for("a list of another authority is told", || {
        strict.mesh.plane.process.tail().contains("is not signed by a certificate of the authority").then_some(())
    });
    strict.until_refused("the last good list stays", &bad, "ALERT_CERTIFICATE_REVOKED");
    replace(mine, "ca-crl.pem", &revoked(mine, &[8]));
    strict.until_taken("a certificate that is not listed any more is taken", &bad);
    strict.until_refused("the next one is refused", &good, "ALERT_CERTIFICATE_REVOKED");
    strict.server.assert_no_nacks();
}

/// CVE-2026-39350: a dot of a name was a wildcard in the expressions made of it.
#[test]
fn cve_2026_39350_names_in_policies_match_themselves_alone() {
    let strict = Strict::start(&json!({}), &[]);
    let of = |account: &str| certificate(&strict.mine, &format!("spiffe://cluster.local/ns/shop/sa/{account}"));
    let (alike, itself) = (of("axb"), of("a.b"));
    strict.until_taken("nothing is denied", &alike);
    let from = |source: Value| {
        let rules = json!({"selector": {"matchLabels": {"app": "server"}}, "rules": [{"from": [{"source": source}]}]});
        strict.mesh.write(&(strict.text.clone() + &authorization("callers", &rules)));
    };
    for source in [
        json!({"serviceAccounts": ["shop/a.b"]}),
        json!({"principals": ["cluster.local/ns/shop/sa/a.b"]}),
        json!({"principals": ["*/a.b"]}),
        json!({"serviceAccounts": ["a.b"]}),
    ] {
        from(json!({"serviceAccounts": ["nobody"]}));
        strict.until_refused("no client is let in", &itself, "status 403");
        from(source.clone());
        strict.until_taken("the named one is let in", &itself);
        assert!(strict.ask(&alike).unwrap_err().contains("status 403"), "{source}");
    }
    for source in [json!({"namespaces": ["sh.p"]}), json!({"trustDomains": ["cluster-local"]})] {
        from(source);
        strict.until_refused("another name is not let in", &itself, "status 403");
    }
    strict.server.assert_no_nacks();
}

#[test]
fn the_lowest_version_of_the_mesh_holds_for_workloads() {
    let strict = Strict::start(&json!({"meshMTLS": {"minProtocolVersion": "TLSV1_3"}}), &[]);
    let own = certificate(&strict.mine, OURS);
    wait_until("version 1.3 is taken", || strict.ask_in("1.3", &own));
    strict.until_refused("version 1.2 is refused", &own, "ALERT_PROTOCOL_VERSION");
    strict.mesh.configure(&json!({}));
    strict.until_taken("version 1.2 is taken by default", &own);
    strict.server.assert_no_nacks();
}

#[test]
fn versions_and_ciphers_of_the_control_plane_are_those_of_its_flags_and_of_the_policy() {
    for (variable, value, taken, refused) in
        [("PILOTHOUSE_TLS_MIN_VERSION", "1.3", "1.3", "1.2"), ("COMPLIANCE_POLICY", "fips-140-2", "1.2", "1.3")]
    {
        // An Envoy joins, so it speaks a version that is taken.
        let strict = Strict::start(&json!({}), &[(variable, value)]);
        let (plane, root) = (strict.mesh.secure.port(), strict.mine.join("root-cert.pem"));
        let own = certificate(&strict.mine, OURS);
        let ask = |version: &str| {
            ask_with((plane, &root), Some(&own), &[("ALPN", "h2"), ("TLS_VERSION", version)]).unwrap_err()
        };
        assert!(ask(refused).contains("PROTOCOL_VERSION"), "{variable}: {}", ask(refused));
        // It is no HTTP/2 that follows.
        assert!(!ask(taken).contains("SSL"), "{variable}: {}", ask(taken));
        wait_for("an Envoy is connected", || (strict.server.stat("control_plane.connected_state") == 1).then_some(()));
        strict.server.assert_no_nacks();
    }
}

/// Two Envoys with certificate files that call each other under this policy; the versions of TLS that they speak.
fn spoken_under(policy: &str) -> String {
    let (authority, echo, inbound, egress) =
        (certificate_files::authority(), Echo::start("server"), free_port(), free_port());
    let rule = json!({"host": "web.example", "trafficPolicy": {"tls": {"mode": "ISTIO_MUTUAL"}}});
    let text = mesh_of(echo.port, inbound, egress, "STRICT") + &object("DestinationRule", "web", &rule);
    let configs = folder(&[("mesh.yaml", text)]);
    let environment = [("COMPLIANCE_POLICY", policy)];
    let plane = ControlPlane::launch_with(configs.clone(), &["--config-dir".into(), configs.into()], &environment);
    plane.wait_ready();
    let start = |node: &str, app: &str| {
        let identity = format!("spiffe://cluster.local/ns/shop/sa/{app}");
        Envoy::start(&plane, node, &certificate_files::metadata(&authority, app, &identity), true)
    };
    let (server, client) = (start(SERVER, "server"), start(CLIENT, "client"));
    wait_until("the call under the policy", || match get(egress, "web.example", "/", &[]) {
        Ok(answer) if answer.status == 200 => Ok(()),
        other => Err(format!("{other:?}\n{}", client.process.tail())),
    });
    server.assert_no_nacks();
    client.assert_no_nacks();
    client.admin("/stats?filter=web.example.*ssl.(versions|curves|ciphers)").unwrap().body
}

#[test]
fn compliance_policies_choose_versions_ciphers_and_curves() {
    for (policy, version, curve) in
        [("fips-140-2", "TLSv1.2", "P-256"), ("fips-140-3", "TLSv1.3", "P-"), ("pqc", "TLSv1.3", "X25519MLKEM768")]
    {
        let spoken = spoken_under(policy);
        assert!(spoken.contains(&format!("versions.{version}")), "{policy}: {spoken}");
        assert!(spoken.contains(&format!("curves.{curve}")), "{policy}: {spoken}");
        assert!(spoken.contains("GCM") && !spoken.contains("CHACHA20"), "{policy}: {spoken}");
    }
}
