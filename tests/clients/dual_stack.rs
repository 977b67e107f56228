//! Machines with an address of each version of IP (`ISTIO_DUAL_STACK`): both are taken to the sidecars, and both reach the program.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

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
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

#[test]
fn sidecars_with_two_addresses_take_and_make_calls_over_both() {
    let modes = [Interception::Redirect, Interception::Redirect, Interception::None];
    let Some(network) = Network::start(&modes) else { return };
    let [client, server, plain] = network.machines();
    let addresses: [IpAddr; 2] =
        [Ipv4Addr::new(10, 96, 0, 5).into(), Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 5).into()];
    let labels = json!({"app": "server", "security.istio.io/tlsMode": "istio"});
    let endpoint = |family| json!({"address": server.ip(family), "serviceAccount": "server", "labels": labels});
    let text = object(
        "ServiceEntry",
        "web",
        &json!({
            "hosts": [HOST], "addresses": addresses, "location": "MESH_INTERNAL", "resolution": "STATIC",
            "ports": [{"number": 80, "name": "http", "protocol": "HTTP", "targetPort": PORT}],
            "endpoints": FAMILIES.map(endpoint),
            "subjectAltNames": ["spiffe://cluster.local/ns/shop/sa/server"],
        }),
    ) + &policy("PeerAuthentication", "default", &json!({"mtls": {"mode": "STRICT"}}));
    let settings = Settings { environment: &[("ISTIO_DUAL_STACK", "true")], ..Settings::default() };
    let mesh = Mesh::start_on(&network.router, network.router.ip(Family::V4), text, settings);
    let at = |family| SocketAddr::new(server.ip(family), PORT);
    let _programs = server.within(|| FAMILIES.map(|family| Echo::start_at(&format!("{family:?}"), at(family))));
    let sidecar = |machine: &Machine, app: &str| {
        let ips = FAMILIES.map(|family| machine.ip(family).to_string()).join(",");
        let node = format!("sidecar~{}~{app}.shop~shop.svc.cluster.local", machine.ip(Family::V4));
        let metadata = json!({"INSTANCE_IPS": ips, "LABELS": {"app": app}, "SERVICE_ACCOUNT": app});
        mesh.join_on(machine, &node, app, &metadata)
    };
    let (of_client, of_server) = (sidecar(&client, "client"), sidecar(&server, "server"));
    // By each address of the service, each endpoint is reached.
    let both: BTreeSet<String> = FAMILIES.map(|family| format!("{family:?}")).into();
    for address in addresses {
        let mut seen = BTreeSet::new();
        wait_until(&format!("{address} leads to both endpoints"), || {
            match client.within(|| get_at((address, 80).into(), HOST, "/", &[])) {
                Ok(answer) if answer.status == 200 => {
                    let peer = answer.seen("x-forwarded-client-cert");
                    assert!(peer.contains("URI=spiffe://cluster.local/ns/shop/sa/client"), "{peer:?}");
                    seen.insert(answer.seen("name"));
                }
                other => return Err(format!("{other:?}")),
            }
            if seen == both { Ok(()) } else { Err(format!("{seen:?}")) }
        });
    }
    for family in FAMILIES {
        let refused = plain.within(|| get_at(at(family), HOST, "/", &[]));
        assert!(refused.is_err(), "plain text over {family:?}: {refused:?}");
    }
    of_client.assert_no_nacks();
    of_server.assert_no_nacks();
}
