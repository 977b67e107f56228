//! Two networks of one mesh: calls of a client into the other network go through that network's gateway, which passes mutual TLS
//! through by its server name.

use std::net::SocketAddr;

use serde_json::json;

use crate::{
    config::object,
    http::{Echo, get_at},
    joined::{Mesh, Settings},
    network::{Family, Interception, Machine, Network},
    policies::policy,
    process::wait_until,
};

const HOST: &str = "web.example";
const PORT: u16 = 8080;
const GATEWAY_PORT: u16 = 15443;
const ADDRESS: [u8; 4] = [10, 96, 0, 5];

/// A service of the network `west` alone, or also of the client's own, and the gateway of the network `west`.
fn objects(endpoints: &[(&Machine, &str)]) -> String {
    let endpoint = |(machine, network): &(&Machine, &str)| {
        let labels = json!({"app": "server", "security.istio.io/tlsMode": "istio"});
        json!({"address": machine.ip(Family::V4), "network": network, "serviceAccount": "server", "labels": labels})
    };
    object(
        "ServiceEntry",
        "web",
        &json!({
            "hosts": [HOST], "addresses": [std::net::Ipv4Addr::from(ADDRESS)], "location": "MESH_INTERNAL", "resolution": "STATIC",
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP", "targetPort": PORT}],
            "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
            "subjectAltNames": ["spiffe://cluster.local/ns/shop/sa/server"],
        }),
    ) + &object(
        "Gateway",
        "west",
        &json!({"selector": {"app": "gateway"}, "servers": [{
            "port": {"number": GATEWAY_PORT, "name": "tls", "protocol": "TLS"}, "hosts": ["*.example"],
            "tls": {"mode": "AUTO_PASSTHROUGH"},
        }]}),
    ) + &policy("PeerAuthentication", "default", &json!({"mtls": {"mode": "STRICT"}}))
        // Allows nothing, and concerns no connection that passes through.
        + &policy("AuthorizationPolicy", "nothing", &json!({"selector": {"matchLabels": {"app": "gateway"}}}))
}

#[test]
fn calls_into_another_network_pass_its_gateway_with_mutual_tls_from_end_to_end() {
    let modes = [Interception::Redirect, Interception::None, Interception::Redirect, Interception::Redirect];
    let Some(network) = Network::start(&modes) else { return };
    let [client, gateway, far, near] = network.machines();
    let of_gateway = json!({"address": gateway.ip(Family::V4), "port": GATEWAY_PORT});
    let networks = json!({"networks": {"west": {"endpoints": [], "gateways": [of_gateway]}}});
    let settings = Settings { networks: Some(&networks), ..Settings::default() };
    let text = objects(&[(&far, "west")]);
    let mesh = Mesh::start_on(&network.router, network.router.ip(Family::V4), text, settings);
    let proxy = |machine: &Machine, kind: &str, app: &str, network: &str| {
        let node = format!("{kind}~{}~{app}.shop~shop.svc.cluster.local", machine.ip(Family::V4));
        let metadata = json!({"NETWORK": network, "LABELS": {"app": app}, "SERVICE_ACCOUNT": app});
        mesh.join_on(machine, &node, app, &metadata)
    };
    let web = |machine: &Machine, name: &str| {
        machine.within(|| Echo::start_at(name, SocketAddr::new(machine.ip(Family::V4), PORT)))
    };
    let (_far, _near) = (web(&far, "far"), web(&near, "near"));
    let of_client = proxy(&client, "sidecar", "client", "east");
    let of_gateway = proxy(&gateway, "router", "gateway", "west");
    let of_far = proxy(&far, "sidecar", "server", "west");
    let ask = |from: &Machine| from.within(|| get_at((ADDRESS, 80).into(), HOST, "/", &[]));
    let answer = wait_until("the other network answers", || match ask(&client) {
        Ok(answer) if answer.status == 200 => Ok(answer),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(answer.seen("name"), "far");
    let peer = answer.seen("x-forwarded-client-cert");
    assert!(peer.contains("URI=spiffe://cluster.local/ns/shop/sa/client"), "{peer:?}");
    // The gateway saw a connection, and no request: it has no part in the TLS.
    let passed = || of_gateway.stat("cluster.outbound_.80_._.web.example.*upstream_cx_total");
    assert!(passed() > 0, "{}", of_gateway.admin("/stats?filter=cx_total").unwrap().body);
    // Plain text does not pass it.
    let plain = network.router.within(|| get_at(SocketAddr::new(gateway.ip(Family::V4), GATEWAY_PORT), HOST, "/", &[]));
    assert!(plain.is_err(), "{plain:?}");
    // Within the network nothing needs the gateway.
    let before = passed();
    let answer = wait_until("the server's own network answers", || match ask(&far) {
        Ok(answer) if answer.status == 200 => Ok(answer),
        other => Err(format!("{other:?}")),
    });
    assert_eq!((answer.seen("name").as_str(), passed()), ("far", before));
    // An endpoint of the client's own network is reached directly, beside that of the other.
    let of_near = proxy(&near, "sidecar", "server", "east");
    mesh.write(&objects(&[(&far, "west"), (&near, "east")]));
    for name in ["near", "far", "near", "far"] {
        wait_until(name, || match ask(&client) {
            Ok(answer) if answer.status == 200 && answer.seen("name") == name => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    mesh.write(&objects(&[(&near, "east")]));
    wait_until("the other network is left", || {
        let names: Vec<_> =
            (0..10).map(|_| ask(&client).map(|answer| answer.seen("name")).unwrap_or_default()).collect();
        if names.iter().all(|name| name == "near") { Ok(()) } else { Err(format!("{names:?}")) }
    });
    for envoy in [&of_client, &of_gateway, &of_far, &of_near] {
        envoy.assert_no_nacks();
    }
}
