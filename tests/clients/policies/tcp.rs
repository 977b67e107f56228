//! Connections: rules about addresses and ports decide, rules about requests allow nothing and deny everything.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::json;

use super::{NODE, authorization};
use crate::{
    config::object,
    http::tcp_echo,
    mesh::{ControlPlane, Envoy},
    process::{free_port, wait_until},
};

/// Whether the server behind the port sends back the bytes that it is sent.
fn answers(port: u16) -> bool {
    let exchange = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.write_all(b"ping")?;
        let mut seen = Vec::new();
        let mut buffer = [0; 64];
        while !seen.ends_with(b"ping") {
            match stream.read(&mut buffer)? {
                0 => return Ok(false),
                length => seen.extend_from_slice(&buffer[..length]),
            }
        }
        Ok(true)
    };
    exchange().unwrap_or(false)
}

#[test]
fn connections_are_decided_by_addresses_and_ports() {
    let (port, upstream) = (free_port(), tcp_echo("tcp-echo "));
    let ingress = json!({
        "port": {"number": port, "protocol": "TCP", "name": "tcp"}, "bind": "127.0.0.1", "captureMode": "NONE",
        "defaultEndpoint": format!("127.0.0.1:{upstream}"),
    });
    let sidecar = object("Sidecar", "web", &json!({"ingress": [ingress], "egress": [{"hosts": ["./*"]}]}));
    let plane = ControlPlane::start(&[("sidecar.yaml", sidecar), ("policies.yaml", String::new())]);
    let metadata = json!({"INTERCEPTION_MODE": "NONE", "LABELS": {"app": "web"}});
    let envoy = Envoy::start(&plane, NODE, &metadata, true);
    let until = |wanted: bool, why: &str| {
        wait_until(why, || if answers(port) == wanted { Ok(()) } else { Err(format!("not {wanted}")) });
    };
    until(true, "nothing is denied without a policy");
    let put = |action: &str, rule: serde_json::Value| {
        plane.write("policies.yaml", &authorization("p", &json!({"action": action, "rules": [rule]})));
    };
    let from = |block: &str| json!({"from": [{"source": {"ipBlocks": [block]}}]});
    let paths = json!({"to": [{"operation": {"paths": ["/a"]}}]});
    put("ALLOW", paths.clone());
    until(false, "a rule about requests allows no connection");
    put("ALLOW", from("127.0.0.0/8"));
    until(true, "the address is allowed");
    put("DENY", from("127.0.0.0/8"));
    until(false, "the address is denied");
    put("DENY", from("10.0.0.0/8"));
    until(true, "another address is denied");
    put("DENY", paths);
    until(false, "a rule about requests denies every connection");
    put("ALLOW", json!({"to": [{"operation": {"ports": [port.to_string()]}}]}));
    until(true, "the port is allowed");
    put("ALLOW", json!({"to": [{"operation": {"notPorts": [port.to_string()]}}]}));
    until(false, "every other port is allowed");
    envoy.assert_no_nacks();
}
