//! Sidecars whose machines take all TCP to them, by redirection and by TPROXY: requests of programs to services, to each other and
//! elsewhere goes through two stock Envoys with certificates that the control plane issues.

use std::{
    io::{self, BufRead, BufReader, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    config::object,
    http::{Answer, Echo, get_at, tcp_echo_at},
    joined::{Mesh, Settings},
    mesh::Envoy,
    network::{Family, Interception, Machine, Network, outside},
    policies::{authorization, policy},
    process::wait_until,
};

const WEB: &str = "web.example";
/// Ports of the server: of the services, and one that is of none.
const WEB_PORT: u16 = 8080;
const DB_PORT: u16 = 9000;
const OTHER_PORT: u16 = 7777;
/// Addresses of one version of IP that the tests use.
struct Addresses {
    /// Of the services; no machine has them.
    web: IpAddr,
    db: IpAddr,
    /// From which a sidecar speaks to its program.
    of_sidecar: &'static str,
}

fn addresses(family: Family) -> Addresses {
    match family {
        Family::V4 => Addresses {
            web: Ipv4Addr::new(10, 96, 0, 5).into(),
            db: Ipv4Addr::new(10, 96, 0, 6).into(),
            of_sidecar: "127.0.0.6",
        },
        Family::V6 => Addresses {
            web: Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 5).into(),
            db: Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 6).into(),
            of_sidecar: "::6",
        },
    }
}

/// A client and a server, each behind its sidecar, and a machine without one.
struct Shop {
    family: Family,
    mesh: Mesh,
    client: Machine,
    server: Machine,
    plain: Machine,
    of_client: Envoy,
    of_server: Envoy,
    /// The server's program.
    web: Echo,
    network: Network,
}

/// The services: HTTP with a version on each of two machines, of which one has no sidecar, and TCP.
fn services(family: Family, server: &Machine, plain: &Machine) -> String {
    let Addresses { web, db, .. } = addresses(family);
    let (server, plain) = (server.ip(family), plain.ip(family));
    let labels = |version: &str| json!({"app": "server", "version": version, "security.istio.io/tlsMode": "istio"});
    let account = "spiffe://cluster.local/ns/shop/sa/server";
    let subset = |name: &str| json!({"name": name, "labels": {"version": name}});
    let to = |subset: &str| json!([{"destination": {"host": WEB, "subset": subset}}]);
    object(
        "ServiceEntry",
        "web",
        &json!({
            "hosts": [WEB], "addresses": [web], "location": "MESH_INTERNAL", "resolution": "STATIC",
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP", "targetPort": WEB_PORT}],
            "endpoints": [
                {"address": server, "serviceAccount": "server", "labels": labels("v1")},
                {"address": plain, "labels": {"version": "v2"}},
            ],
            "subjectAltNames": [account],
        }),
    ) + &object(
        "ServiceEntry",
        "db",
        &json!({
            "hosts": ["db.example"], "addresses": [db], "location": "MESH_INTERNAL", "resolution": "STATIC",
            "ports": [{"number": DB_PORT, "name": "tcp", "protocol": "TCP"}],
            "endpoints": [{"address": server, "serviceAccount": "server", "labels": labels("v1")}],
            "subjectAltNames": [account],
        }),
    ) + &object("DestinationRule", "web", &json!({"host": WEB, "subsets": [subset("v1"), subset("v2")]}))
        + &object(
            "VirtualService",
            "web",
            &json!({"hosts": [WEB], "http": [
                {"match": [{"headers": {"x-version": {"exact": "v2"}}}], "route": to("v2")},
                {"match": [{"uri": {"prefix": "/old"}}], "rewrite": {"uri": "/new"}, "route": to("v1")},
                {"route": to("v1")},
            ]}),
        )
}

/// A PeerAuthentication of the namespace, or of the server alone where ports have modes of their own.
fn mode(mode: &str, ports: &Value) -> String {
    let mut spec = json!({"mtls": {"mode": mode}});
    if ports.is_object() {
        spec["selector"] = json!({"matchLabels": {"app": "server"}});
        spec["portLevelMtls"] = ports.clone();
    }
    policy("PeerAuthentication", "default", &spec)
}

/// Differences of the sidecars and the control plane.
struct Setup<'a> {
    settings: Settings<'a>,
    /// More metadata of the sidecars.
    metadata: Value,
}

impl Shop {
    /// With these objects beside the services.
    fn start(interception: Interception, family: Family, further: &str) -> Option<Self> {
        let setup = Setup { settings: Settings::default(), metadata: json!({}) };
        Self::start_with(interception, family, further, &setup)
    }

    fn start_with(interception: Interception, family: Family, further: &str, setup: &Setup<'_>) -> Option<Self> {
        let network = Network::start(&[interception, interception, Interception::None])?;
        let [client, server, plain] = network.machines();
        let objects = services(family, &server, &plain) + further;
        let mesh = Mesh::start_on(&network.router, network.router.ip(family), objects, setup.settings);
        let at = |machine: &Machine, port: u16| SocketAddr::new(machine.ip(family), port);
        let web = server.within(|| {
            tcp_echo_at("db ", at(&server, DB_PORT));
            Echo::start_at("other", at(&server, OTHER_PORT));
            Echo::start_at("v1", at(&server, WEB_PORT))
        });
        plain.within(|| Echo::start_at("v2", at(&plain, WEB_PORT)));
        network.router.within(|| Echo::start_at("outside", (outside(family), 80).into()));
        network.router.within(|| tcp_echo_at("outside ", (outside(family), 9999).into()));
        let sidecar = |machine: &Machine, app: &str| {
            let node = format!("sidecar~{}~{app}.shop~shop.svc.cluster.local", machine.ip(family));
            let mode = format!("{interception:?}").to_uppercase();
            let mut metadata = json!({"INTERCEPTION_MODE": mode, "LABELS": {"app": app}, "SERVICE_ACCOUNT": app});
            for (key, value) in setup.metadata.as_object().into_iter().flatten() {
                metadata[key] = value.clone();
            }
            mesh.join_on(machine, &node, app, &metadata)
        };
        let (of_client, of_server) = (sidecar(&client, "client"), sidecar(&server, "server"));
        Some(Self { family, mesh, client, server, plain, of_client, of_server, web, network })
    }

    fn write(&self, further: &str) {
        self.mesh.write(&(services(self.family, &self.server, &self.plain) + further));
    }

    /// An answer of the service to this machine.
    fn ask(&self, from: &Machine, path: &str, headers: &[(&str, &str)]) -> io::Result<Answer> {
        from.within(|| get_at((addresses(self.family).web, 80).into(), WEB, path, headers))
    }

    /// An answer of a port of the server to this machine, which asks it by its own address.
    fn ask_port(&self, from: &Machine, port: u16) -> io::Result<Answer> {
        from.within(|| get_at(self.at_server(port), WEB, "/", &[]))
    }

    /// A port of the server by the server's own address.
    fn at_server(&self, port: u16) -> SocketAddr {
        (self.server.ip(self.family), port).into()
    }

    /// The address of the TCP service.
    fn db(&self) -> SocketAddr {
        (addresses(self.family).db, DB_PORT).into()
    }

    /// An address outside of everything that is known.
    fn outside(&self, port: u16) -> SocketAddr {
        (outside(self.family), port).into()
    }

    /// TLS connections of the client's sidecar to the service.
    fn handshakes(&self) -> u64 {
        self.of_client.stat("cluster.outbound.80.v1.web.example.*ssl.handshake")
    }

    /// Waits until a client with a certificate and one without are answered, or are not.
    fn until(&self, what: &str, with_certificate: bool, without: bool) {
        wait_until(what, || {
            let (mesh, plain) = (self.ask(&self.client, "/", &[]), self.ask_port(&self.plain, WEB_PORT));
            let let_in = |answer: &io::Result<Answer>| answer.as_ref().is_ok_and(|answer| answer.status == 200);
            let found = (let_in(&mesh), let_in(&plain));
            if found == (with_certificate, without) { Ok(()) } else { Err(format!("{mesh:?}, {plain:?}")) }
        });
    }

    fn assert_no_nacks(&self) {
        self.of_client.assert_no_nacks();
        self.of_server.assert_no_nacks();
    }
}

/// The greeting of a TCP server that sends back all it gets, to a client that speaks first: Envoy lets what a server says before
/// its client through its filters.
fn hello(from: &Machine, address: SocketAddr) -> io::Result<String> {
    from.within(|| {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(20))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(b"over\n")?;
        let mut text = String::new();
        BufReader::new(stream).read_line(&mut text)?;
        Ok(text)
    })
}

/// Waits until a TCP server greets with this, or, for `None`, until no server answers.
fn until_hello(from: &Machine, address: SocketAddr, wanted: Option<&str>) {
    wait_until(&format!("{address} says {wanted:?}"), || match (hello(from, address), wanted) {
        (Ok(text), Some(wanted)) if text == format!("{wanted} over\n") => Ok(()),
        (Ok(text), None) if !text.contains("over") => Ok(()),
        (Err(error), None) if error.kind() != io::ErrorKind::WouldBlock => Ok(()),
        (other, _) => Err(format!("{other:?}")),
    });
}

fn redirected_requests_follow_routes(family: Family) {
    let Some(shop) = Shop::start(Interception::Redirect, family, &mode("STRICT", &Value::Null)) else { return };
    shop.until("a certificate is demanded", true, false);
    let answer = shop.ask(&shop.client, "/old/a", &[]).unwrap();
    assert_eq!(
        ["name", "path", "peer"].map(|key| answer.seen(key)),
        ["v1", "/new/a", addresses(family).of_sidecar].map(String::from)
    );
    let peer = answer.seen("x-forwarded-client-cert");
    assert!(peer.contains("URI=spiffe://cluster.local/ns/shop/sa/client"), "{peer:?}");
    assert!(shop.handshakes() > 0);
    // A version without a sidecar has plain text.
    let answer = shop.ask(&shop.client, "/", &[("x-version", "v2")]).unwrap();
    assert_eq!(answer.seen("name"), "v2");
    assert_eq!(shop.of_client.stat("cluster.outbound.80.v2.web.example.*ssl.handshake"), 0);
    // TCP by its address, over mutual TLS; without a certificate it is closed.
    until_hello(&shop.client, shop.db(), Some("db"));
    assert!(shop.of_client.stat("cluster.outbound.9000..db.example.*ssl.handshake") > 0);
    until_hello(&shop.plain, shop.at_server(DB_PORT), None);
    // The server is a client of its own service, through its sidecar twice.
    let answer = shop.ask(&shop.server, "/", &[]).unwrap();
    let peer = answer.seen("x-forwarded-client-cert");
    assert!(peer.contains("URI=spiffe://cluster.local/ns/shop/sa/server"), "{answer:?}");
    shop.assert_no_nacks();
}

#[test]
fn redirected_requests_follow_routes_over_mutual_tls() {
    redirected_requests_follow_routes(Family::V4);
}

#[test]
fn redirected_requests_follow_routes_where_all_addresses_are_ipv6() {
    redirected_requests_follow_routes(Family::V6);
}

#[test]
fn modes_of_mutual_tls_are_in_force_by_namespace_and_by_port() {
    let settings = Settings { mesh: Some(&json!({})), ..Settings::default() };
    let setup = Setup { settings, metadata: json!({}) };
    let permissive = mode("PERMISSIVE", &Value::Null);
    let Some(shop) = Shop::start_with(Interception::Redirect, Family::V4, &permissive, &setup) else { return };
    shop.until("both are let in", true, true);
    let proven = |answer: &Answer| !answer.seen("x-forwarded-client-cert").is_empty();
    assert!(proven(&shop.ask(&shop.client, "/", &[]).unwrap()), "a certificate is used where it is not demanded");
    assert!(!proven(&shop.ask_port(&shop.plain, WEB_PORT).unwrap()));

    shop.write(&mode("DISABLE", &Value::Null));
    wait_until("the sidecar speaks plain text", || match shop.ask(&shop.client, "/", &[]) {
        Ok(answer) if answer.status == 200 && !proven(&answer) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    shop.until("plain text is let in", true, true);

    shop.write(&mode("STRICT", &json!({WEB_PORT.to_string(): {"mode": "DISABLE"}})));
    shop.until("plain text is let in at the port", true, true);
    until_hello(&shop.plain, shop.at_server(DB_PORT), None);
    until_hello(&shop.client, shop.db(), Some("db"));

    shop.write(&mode("PERMISSIVE", &json!({WEB_PORT.to_string(): {"mode": "STRICT"}})));
    shop.until("a certificate is demanded at the port", true, false);
    until_hello(&shop.plain, shop.at_server(DB_PORT), Some("db"));
    until_hello(&shop.client, shop.db(), Some("db"));
    assert_eq!(shop.ask_port(&shop.plain, OTHER_PORT).unwrap().seen("name"), "other");

    // Envoy refuses a tag without a name, so all chains of HTTP close their connections: those of the strict port do not fall
    // to the permissive chain of TCP.
    let tags = json!({"": {"literal": {"value": "x"}}});
    let tracing = json!({"zipkin": {"address": "127.0.0.1:9411"}, "customTags": tags});
    shop.mesh.configure(&json!({"enableTracing": true, "defaultConfig": {"tracing": tracing}}));
    wait_until("HTTP is closed", || match shop.ask_port(&shop.plain, OTHER_PORT) {
        Err(_) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let before = shop.web.paths().len();
    for _ in 0..5 {
        assert!(shop.ask_port(&shop.plain, WEB_PORT).is_err(), "plain text is let in at the strict port");
    }
    assert_eq!(shop.web.paths().len(), before, "plain text reaches the program behind the strict port");
    assert_eq!(hello(&shop.plain, shop.at_server(DB_PORT)).unwrap(), "db over\n");
    let told = shop.network.router.within(|| shop.mesh.plane.debug("/debug/push_status")).to_string();
    assert!(told.contains("closes its connections"), "{told}");
    shop.mesh.configure(&json!({}));
    shop.until("the mesh is let in again", true, false);
    shop.assert_no_nacks();
}

#[test]
fn policies_by_principal_guard_redirected_traffic() {
    let strict = mode("STRICT", &Value::Null);
    let allow = |account: &str| {
        let from = json!([{"source": {"principals": [format!("cluster.local/ns/shop/sa/{account}")]}}]);
        let rules = json!({"selector": {"matchLabels": {"app": "server"}}, "rules": [{"from": from}]});
        strict.clone() + &authorization("callers", &rules)
    };
    let Some(shop) = Shop::start(Interception::Redirect, Family::V4, &allow("client")) else { return };
    let until = |wanted: u16| {
        wait_until(&format!("status {wanted}"), || match shop.ask(&shop.client, "/guarded", &[]) {
            Ok(answer) if answer.status == wanted => Ok(()),
            other => Err(format!("{other:?}")),
        });
    };
    until(200);
    until_hello(&shop.client, shop.db(), Some("db"));
    shop.write(&allow("other"));
    until(403);
    until_hello(&shop.client, shop.db(), None);
    let before = shop.web.paths().len();
    until(403);
    assert_eq!(shop.web.paths().len(), before, "a refused request does not reach the program");
    shop.write(&allow("client"));
    until(200);
    shop.assert_no_nacks();
}

fn unknown_destinations(family: Family) {
    let Some(shop) = Shop::start(Interception::Redirect, family, &mode("PERMISSIVE", &Value::Null)) else { return };
    shop.until("both are let in", true, true);
    // Of an address that is of nothing: HTTP at a port with services, TCP at one without.
    let ask_outside = || shop.client.within(|| get_at(shop.outside(80), "outside.example", "/", &[]));
    assert_eq!(ask_outside().unwrap().seen("name"), "outside");
    until_hello(&shop.client, shop.outside(9999), Some("outside"));
    assert!(shop.of_client.stat("cluster.PassthroughCluster.*upstream_cx_total") >= 2);
    // A port of the server that is of no service.
    let other = shop.ask_port(&shop.plain, OTHER_PORT).unwrap();
    assert_eq!(
        [other.seen("name"), other.seen("peer")],
        ["other", addresses(shop.family).of_sidecar].map(String::from)
    );
    assert!(shop.of_server.stat("http.InboundPassthroughCluster.*downstream_cx_total") > 0);

    let only = json!({"workloadSelector": {"labels": {"app": "client"}}, "outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"},
        "egress": [{"hosts": ["./*"]}]});
    shop.write(&(mode("STRICT", &Value::Null) + &object("Sidecar", "client", &only)));
    until_hello(&shop.client, shop.outside(9999), None);
    wait_until("HTTP goes nowhere", || match ask_outside() {
        Ok(answer) if answer.status == 502 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    wait_until("a certificate is demanded at every port", || match shop.ask_port(&shop.plain, OTHER_PORT) {
        Err(_) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    shop.until("services are reached", true, false);
    shop.assert_no_nacks();
}

#[test]
fn unknown_destinations_are_passed_through_or_go_nowhere() {
    unknown_destinations(Family::V4);
}

#[test]
fn unknown_destinations_of_ipv6_are_passed_through_or_go_nowhere() {
    unknown_destinations(Family::V6);
}

fn programs_behind_tproxy(family: Family) {
    let Some(shop) = Shop::start(Interception::Tproxy, family, &mode("PERMISSIVE", &Value::Null)) else { return };
    shop.until("both are let in", true, true);
    let peer = |answer: io::Result<Answer>| answer.unwrap().seen("peer");
    assert_eq!(peer(shop.ask(&shop.client, "/", &[])), shop.client.ip(shop.family).to_string());
    assert_eq!(peer(shop.ask_port(&shop.plain, WEB_PORT)), shop.plain.ip(shop.family).to_string());
    assert_eq!(peer(shop.ask_port(&shop.plain, OTHER_PORT)), shop.plain.ip(shop.family).to_string());
    // The server is a client of its own service, through its sidecar twice.
    assert_eq!(peer(shop.ask(&shop.server, "/", &[])), shop.server.ip(shop.family).to_string());
    assert!(shop.of_server.stat("cluster.outbound.80.v1.web.example.*ssl.handshake") > 0);
    assert!(shop.handshakes() > 0);
    shop.write(&mode("STRICT", &Value::Null));
    shop.until("a certificate is demanded", true, false);
    assert_eq!(peer(shop.ask(&shop.client, "/", &[])), shop.client.ip(shop.family).to_string());
    until_hello(&shop.client, shop.db(), Some("db"));
    until_hello(&shop.plain, shop.at_server(DB_PORT), None);
    shop.assert_no_nacks();
}

#[test]
fn programs_behind_tproxy_see_their_clients() {
    programs_behind_tproxy(Family::V4);
}

#[test]
fn programs_behind_tproxy_see_their_clients_of_ipv6() {
    programs_behind_tproxy(Family::V6);
}

/// Of the filters of an Istio proxy, a stock Envoy lacks three filters of Istio's build (`istio.metadata_exchange`, `istio.alpn`,
/// `istio.stats`), which Istio's own settings leave out, and the agent that holds certificates (`sds-grpc`), which nothing asks
/// for where mutual TLS is off. It takes all the rest.
#[test]
fn sidecars_of_an_istio_version_route_redirected_requests() {
    let settings = Settings {
        environment: &[("PILOT_ENABLE_METADATA_EXCHANGE", "false"), ("PILOT_ENABLE_ALPN_FILTER", "false")],
        mesh: Some(&json!({"defaultProviders": {"metrics": []}, "enableAutoMtls": false})),
        ..Settings::default()
    };
    let setup = Setup { settings, metadata: json!({"ISTIO_VERSION": "1.30.0"}) };
    let disabled = mode("DISABLE", &Value::Null);
    let Some(shop) = Shop::start_with(Interception::Redirect, Family::V4, &disabled, &setup) else { return };
    shop.until("both are let in", true, true);
    let answer = shop.ask(&shop.client, "/old/a", &[]).unwrap();
    assert_eq!(["name", "path", "peer"].map(|key| answer.seen(key)), ["v1", "/new/a", "127.0.0.6"].map(String::from));
    assert_eq!(shop.ask(&shop.client, "/", &[("x-version", "v2")]).unwrap().seen("name"), "v2");
    until_hello(&shop.client, shop.db(), Some("db"));
    until_hello(&shop.client, shop.outside(9999), Some("outside"));
    let secret = json!({"selector": {"matchLabels": {"app": "server"}}, "action": "DENY",
        "rules": [{"to": [{"operation": {"paths": ["/secret"]}}]}]});
    shop.write(&(disabled + &authorization("secret", &secret)));
    wait_until("a path is denied", || match shop.ask(&shop.client, "/secret", &[]) {
        Ok(answer) if answer.status == 403 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    shop.until("other paths are not", true, true);
    shop.assert_no_nacks();
}
