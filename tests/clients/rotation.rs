//! Certificates change while requests go on: of the root, and over an outage of the control plane.

use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    config::object,
    http::{Echo, get},
    joined::{Mesh, Settings, plug_in, replace},
    mesh::Envoy,
    mutual_tls::{CLIENT, HANDSHAKES, SERVER, mesh_of, metadata},
    network::Machine,
    process::{free_port, scratch, wait_for, wait_until},
    traffic::Traffic,
};

/// An Envoy that looks for its control plane every second; by default up to 30 s pass, of the short lives of these certificates.
fn comes_back_soon(bootstrap: &mut Value) {
    let service = &mut bootstrap["dynamic_resources"]["ads_config"]["grpc_services"][0]["envoy_grpc"];
    service["retry_policy"] = json!({"retry_back_off": {"base_interval": "0.5s", "max_interval": "1s"}});
}

/// Two Envoys with certificates of this lifetime, and requests without a pause, each over a TLS connection of its own.
struct Pair {
    mesh: Mesh,
    server: Envoy,
    client: Envoy,
    traffic: Traffic,
    started: Instant,
    _echo: Echo,
}

impl Pair {
    fn start(lifetime: &str, authority: Option<&Path>) -> Self {
        let (echo, inbound, egress) = (Echo::start("server"), free_port(), free_port());
        let once = json!({"host": "web.example", "trafficPolicy": {"connectionPool": {"http": {"maxRequestsPerConnection": 1}}}});
        let text = mesh_of(echo.port, inbound, egress, "STRICT") + &object("DestinationRule", "web", &once);
        let environment = [("DEFAULT_WORKLOAD_CERT_TTL", lifetime)];
        let settings = Settings { environment: &environment, authority, ..Settings::default() };
        let mesh = Mesh::start_on(&Machine::default(), Ipv4Addr::LOCALHOST.into(), text, settings);
        let join =
            |node: &str, app: &str| mesh.join_with(&Machine::default(), (node, app, &metadata(app)), &comes_back_soon);
        let (server, client) = (join(SERVER, "server"), join(CLIENT, "client"));
        let started = Instant::now();
        wait_for("a request", || get(egress, "web.example", "/", &[]).ok().filter(|a| a.status == 200));
        let traffic = Traffic::start(egress, "web.example");
        Self { mesh, server, client, traffic, started, _echo: echo }
    }

    /// The certificates that both Envoys hold.
    fn certificates(&self) -> [String; 2] {
        [&self.server, &self.client].map(|envoy| envoy.admin("/certs").map(|a| a.body).unwrap_or_default())
    }

    /// The number of times that each Envoy got this secret.
    fn updates(&self, secret: &str) -> [u64; 2] {
        [&self.server, &self.client].map(|envoy| envoy.stat(&format!("sds.{secret}.update_success")))
    }

    /// Waits until both got this secret again.
    fn until_updated(&self, secret: &str, since: [u64; 2]) {
        wait_until(&format!("both get {secret}"), || {
            let now = self.updates(secret);
            if now[0] > since[0] && now[1] > since[1] { Ok(()) } else { Err(format!("{since:?} {now:?}")) }
        });
    }

    /// Ends the traffic, of which no request may have failed, each with a handshake of its own.
    fn end(self) {
        let before = self.client.stat(HANDSHAKES);
        self.traffic.more(100);
        assert!(self.client.stat(HANDSHAKES) >= before + 90, "requests share TLS connections");
        self.traffic.end();
        self.server.assert_no_nacks();
        self.client.assert_no_nacks();
    }
}

#[test]
fn a_root_is_replaced_under_load() {
    let authority = scratch();
    let old = plug_in(&authority, "old");
    let pair = Pair::start("1h", Some(&authority));
    // Both roots, then certificates of the new one, then the new root alone.
    let next = scratch();
    let new = plug_in(&next, "new");
    let replace = |name: &str, text: &str| replace(&authority, name, text);
    let before = pair.updates("ROOTCA");
    replace("root-cert.pem", &(old.clone() + &new));
    pair.until_updated("ROOTCA", before);
    pair.traffic.more(100);

    let (before, held) = (pair.updates("default"), pair.certificates());
    for name in ["ca-key.pem", "ca-cert.pem"] {
        replace(name, &fs::read_to_string(next.join(name)).unwrap());
    }
    pair.until_updated("default", before);
    pair.traffic.more(100);
    assert!(held.iter().zip(pair.certificates()).all(|(old, new)| *old != new));

    let before = pair.updates("ROOTCA");
    replace("root-cert.pem", &new);
    pair.until_updated("ROOTCA", before);
    pair.end();
}

#[test]
fn an_envoy_follows_the_root_of_its_control_plane_without_a_restart() {
    let (authority, next) = (scratch(), scratch());
    plug_in(&authority, "old");
    plug_in(&next, "new");
    let (inbound, egress) = (free_port(), free_port());
    let text = mesh_of(1, inbound, egress, "STRICT");
    let settings = Settings { authority: Some(&authority), ..Settings::default() };
    let mut mesh = Mesh::start_on(&Machine::default(), Ipv4Addr::LOCALHOST.into(), text.clone(), settings);
    let join = |sds: Option<&Path>| {
        mesh.join_with(&Machine::default(), (CLIENT, "client", &metadata("client")), &|bootstrap| {
            comes_back_soon(bootstrap);
            if let Some(file) = sds {
                let tls = "/static_resources/clusters/0/transport_socket/typed_config/common_tls_context";
                let validation = bootstrap.pointer_mut(tls).unwrap();
                let config = &mut validation["combined_validation_context"]["validation_context_sds_secret_config"];
                fs::copy(authority.join("root-cert.pem.sds.json"), file).unwrap();
                config["sds_config"]["path_config_source"]["path"] = file.to_str().unwrap().into();
            }
        })
    };
    let envoys = [join(None), join(Some(&scratch().join("sds.json")))];
    let is_connected = |envoy: &Envoy| envoy.stat("control_plane.connected_state") == 1;
    wait_for("both are connected", || envoys.iter().all(is_connected).then_some(()));
    // The new root has nothing in common with the old one, and no connection of before is left.
    for name in ["ca-key.pem", "ca-cert.pem", "root-cert.pem"] {
        replace(&authority, name, &fs::read_to_string(next.join(name)).unwrap());
    }
    mesh.plane.crash_and_restart();
    let entry = json!({"hosts": ["late.example"], "resolution": "STATIC", "endpoints": [{"address": "127.0.0.1"}],
        "ports": [{"number": egress, "name": "http", "protocol": "HTTP"}]});
    mesh.write(&(text + &object("ServiceEntry", "late", &entry)));
    wait_until("both are connected again, and follow", || {
        let holds = |envoy: &Envoy| envoy.admin("/clusters").is_ok_and(|a| a.body.contains("late.example"));
        let seen: Vec<_> = envoys.iter().map(|envoy| (is_connected(envoy), holds(envoy))).collect();
        if seen.iter().all(|(connected, holds)| *connected && *holds) { Ok(()) } else { Err(format!("{seen:?}")) }
    });
    envoys.iter().for_each(Envoy::assert_no_nacks);
}

#[test]
fn an_outage_of_more_than_half_a_certificate_s_life_costs_no_request() {
    const LIFE: Duration = Duration::from_secs(45);
    let mut pair = Pair::start("45s", None);
    let first = pair.updates("default");
    pair.mesh.plane.process.kill();
    wait_for("certificates are past the time of their renewal", || {
        (pair.started.elapsed() > LIFE.mul_f64(0.62)).then_some(())
    });
    assert_eq!(pair.updates("default"), first, "no server renews them");
    pair.mesh.plane.restart();
    pair.until_updated("default", first);
    wait_for("the first certificates are expired", || (pair.started.elapsed() > LIFE).then_some(()));
    pair.end();
}
