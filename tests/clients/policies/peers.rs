//! The oracle of peers: identities, addresses, ports and server names, on a port of HTTP and one of TCP. Random policies, random
//! connections with mutual TLS and without, the same answers of a real Envoy and of an interpreter written from the documentation
//! alone. `PILOTHOUSE_PEER_POLICIES` sets the number of rounds, `PILOTHOUSE_POLICY_SEED` the seed.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use pilothouse::testing::client_of_any_server;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use tokio_rustls::rustls::{ClientConnection, StreamOwned};

use super::{
    authorization,
    meaning::Subject,
    patterns::{is_in, is_like},
    policy,
    random::{Random, field, setting},
};
use crate::{
    config::object,
    http::{Echo, call, tcp_echo},
    joined::{Mesh, Settings, plug_in},
    mutual_tls::{SERVER, metadata},
    network::Machine,
    process::{free_port, scratch, wait_until},
    strangers::certificate,
};

const DOMAINS: [&str; 2] = ["cluster.local", "old.local"];
/// Trust domain, namespace and service account.
const IDENTITIES: [(&str, &str, &str); 5] = [
    ("cluster.local", "shop", "web"),
    ("cluster.local", "shop", "api"),
    ("cluster.local", "pay", "web"),
    ("old.local", "pay", "api"),
    ("old.local", "shop", "web"),
];
const PRINCIPALS: [&str; 7] = [
    "cluster.local/ns/shop/sa/web",
    "old.local/ns/pay/sa/api",
    "cluster.local/ns/pay/sa/*",
    "*/sa/web",
    "*/ns/shop/sa/api",
    "*",
    "other.local/ns/shop/sa/web",
];
const NAMESPACES: [&str; 5] = ["shop", "pay", "sh*", "*ay", "*"];
const ACCOUNTS: [&str; 4] = ["web", "shop/api", "pay/web", "pay/api"];
const BLOCKS: [&str; 5] = ["127.0.0.0/8", "127.0.0.1", "10.1.0.0/16", "10.1.2.3", "0.0.0.0/0"];
const FORWARDED: [&str; 4] = ["", "10.1.2.3", "10.1.9.9", "192.0.2.1, 10.9.9.9"];
const NAMES: [&str; 4] = ["", "web.example", "api.example", "web.other"];
const NAME_PATTERNS: [&str; 5] = ["web.example", "*.example", "web.*", "*", "other"];
const METHODS: [&str; 2] = ["GET", "POST"];
/// Long enough to be distinguished from the begin of a TLS handshake.
const MESSAGE: &[u8] = b"a message in plain text";

type Identity = (&'static str, &'static str, &'static str);

/// A connection to the workload, and its one request where the port speaks HTTP.
#[derive(Debug)]
struct Connection {
    /// None in plain text.
    peer: Option<Identity>,
    /// The server name of the handshake.
    name: &'static str,
    is_http: bool,
    port: u16,
    method: &'static str,
    forwarded: &'static str,
}

impl Connection {
    fn random(random: &mut Random, ports: [u16; 2]) -> Self {
        let peer = random.chance(75).then(|| IDENTITIES[random.below(IDENTITIES.len())]);
        let is_http = random.chance(60);
        Self {
            name: if peer.is_some() { random.of(&NAMES) } else { "" },
            peer,
            is_http,
            port: ports[usize::from(!is_http)],
            method: random.of(&METHODS),
            forwarded: random.of(&FORWARDED),
        }
    }

    /// The address of the client, as the last proxy before this one tells it.
    fn remote(&self) -> &str {
        match self.forwarded.rsplit(", ").next() {
            Some(last) if self.is_http && !last.is_empty() => last,
            _ => "127.0.0.1",
        }
    }

    /// A principal of one trust domain of the mesh stands for those of its aliases.
    fn is_peer_like(&self, pattern: &str) -> bool {
        let Some((domain, namespace, account)) = self.peer else { return false };
        let principal = format!("{domain}/ns/{namespace}/sa/{account}");
        let rest = DOMAINS.iter().find_map(|domain| pattern.strip_prefix(&format!("{domain}/")));
        let patterns: Vec<String> = match rest {
            Some(rest) => DOMAINS.iter().map(|domain| format!("{domain}/{rest}")).collect(),
            None => vec![pattern.to_string()],
        };
        patterns.iter().any(|pattern| is_like(&principal, pattern))
    }
}

impl Subject for Connection {
    fn has(&self, name: &str, value: &str) -> bool {
        match name {
            "principals" | "source.principal" => self.is_peer_like(value),
            "namespaces" | "source.namespace" => self.peer.is_some_and(|(_, namespace, _)| is_like(namespace, value)),
            "serviceAccounts" | "source.serviceAccount" => self.peer.is_some_and(|(_, namespace, account)| {
                // Without a namespace it is of that of the policy.
                let (wanted, name) = value.split_once('/').unwrap_or(("shop", value));
                namespace == wanted && account == name
            }),
            "ipBlocks" | "source.ip" => is_in("127.0.0.1", value),
            "remoteIpBlocks" | "remote.ip" => is_in(self.remote(), value),
            "ports" | "destination.port" => value == self.port.to_string(),
            "destination.ip" => is_in("127.0.0.1", value),
            "connection.sni" => is_like(self.name, value),
            "methods" => is_like(self.method, value),
            other => panic!("{other}"),
        }
    }

    fn is_request(&self) -> bool {
        self.is_http
    }
}

fn source(random: &mut Random) -> Value {
    let mut source = json!({});
    match random.below(5) {
        0 => field(random, &mut source, "principals", &PRINCIPALS),
        1 => field(random, &mut source, "namespaces", &NAMESPACES),
        2 => field(random, &mut source, "serviceAccounts", &ACCOUNTS),
        3 => field(random, &mut source, "remoteIpBlocks", &BLOCKS),
        _ => {
            field(random, &mut source, "ipBlocks", &BLOCKS);
            field(random, &mut source, "principals", &PRINCIPALS);
            field(random, &mut source, "namespaces", &NAMESPACES);
        }
    }
    json!({ "source": source })
}

fn operation(random: &mut Random, ports: &[&str]) -> Value {
    let mut operation = json!({});
    if random.chance(75) {
        field(random, &mut operation, "ports", ports);
    }
    if random.chance(25) || operation == json!({}) {
        field(random, &mut operation, "methods", &METHODS);
    }
    json!({ "operation": operation })
}

fn condition(random: &mut Random, ports: &[&str]) -> Value {
    let (key, values): (&str, &[&str]) = match random.below(8) {
        0 => ("source.principal", &PRINCIPALS),
        1 => ("source.namespace", &NAMESPACES),
        2 => ("source.serviceAccount", &ACCOUNTS),
        3 => ("source.ip", &BLOCKS),
        4 => ("remote.ip", &BLOCKS),
        5 => ("destination.ip", &BLOCKS),
        6 => ("destination.port", ports),
        _ => ("connection.sni", &NAME_PATTERNS),
    };
    let mut condition = json!({ "key": key });
    field(random, &mut condition, "values", values);
    condition
}

fn policies(random: &mut Random, ports: &[&str]) -> Vec<Value> {
    let rule = |random: &mut Random| {
        let mut rule = json!({});
        let mut list = |random: &mut Random, name: &str, percent, make: &dyn Fn(&mut Random) -> Value| {
            if random.chance(percent) {
                rule[name] = (0..=random.below(2)).map(|_| make(random)).collect();
            }
        };
        list(random, "from", 70, &source);
        list(random, "to", 40, &|random| operation(random, ports));
        list(random, "when", 40, &|random| condition(random, ports));
        rule
    };
    let one = |random: &mut Random| {
        let action = random.of(&["ALLOW", "ALLOW", "DENY"]);
        json!({"action": action, "rules": (0..=random.below(2)).map(|_| rule(random)).collect::<Vec<_>>()})
    };
    (0..=random.below(3)).map(|_| one(random)).collect()
}

/// The client's certificate and key for each identity.
struct Peers(Vec<(CertificateDer<'static>, PrivateKeyDer<'static>)>);

impl Peers {
    fn new(authority: &std::path::Path) -> Self {
        let read = |(domain, namespace, account): &Identity| {
            let identity = format!("spiffe://{domain}/ns/{namespace}/sa/{account}");
            let [certificate, key]: [PathBuf; 2] = certificate(authority, &identity, false);
            (CertificateDer::from_pem_file(certificate).unwrap(), PrivateKeyDer::from_pem_file(key).unwrap())
        };
        Self(IDENTITIES.iter().map(read).collect())
    }

    /// The connection, with TLS where it has an identity.
    fn connect(&self, connection: &Connection) -> std::io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, connection.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let Some(index) = IDENTITIES.iter().position(|identity| Some(*identity) == connection.peer) else {
            return Ok(Box::new(stream));
        };
        let (certificate, key) = &self.0[index];
        let mut config = client_of_any_server(Some((vec![certificate.clone()], key.clone_key()))).unwrap();
        config.enable_sni = !connection.name.is_empty();
        let protocols: [&[u8]; 2] =
            if connection.is_http { [b"istio-http/1.1", b"istio"] } else { [b"istio-peer-exchange", b"istio"] };
        config.alpn_protocols = protocols.map(<[u8]>::to_vec).to_vec();
        let name = if connection.name.is_empty() { "none.example" } else { connection.name };
        let tls = ClientConnection::new(Arc::new(config), ServerName::try_from(name).unwrap()).unwrap();
        Ok(Box::new(StreamOwned::new(tls, stream)))
    }

    /// Whether the workload answers.
    fn is_answered(&self, connection: &Connection) -> std::io::Result<bool> {
        let mut stream = self.connect(connection)?;
        if connection.is_http {
            let headers: &[(&str, &str)] = &[("x-forwarded-for", connection.forwarded)];
            let headers = if connection.forwarded.is_empty() { &[] } else { headers };
            return match call(&mut stream, connection.method, "web.example", "/", headers)?.status {
                200 => Ok(true),
                403 => Ok(false),
                status => Err(std::io::Error::other(format!("status {status}"))),
            };
        }
        // A connection that is refused ends during the handshake or with the first bytes of its client; the server's greeting
        // may have come before these.
        if stream.write_all(MESSAGE).is_err() {
            return Ok(false);
        }
        let mut seen = Vec::new();
        let mut buffer = [0; 64];
        while !seen.ends_with(MESSAGE) {
            match stream.read(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Err(error),
                Ok(0) | Err(_) => return Ok(false),
                Ok(length) => seen.extend_from_slice(&buffer[..length]),
            }
        }
        Ok(true)
    }
}

trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

#[test]
fn random_policies_about_peers_have_their_documented_meaning() {
    let mine = scratch();
    plug_in(&mine, "mine");
    let (echo, upstream, ports) = (Echo::start("server"), tcp_echo("tcp-echo "), [free_port(), free_port()]);
    let ingress = |port: u16, protocol: &str, upstream: u16| {
        json!({"port": {"number": port, "protocol": protocol, "name": protocol.to_lowercase()}, "bind": "127.0.0.1",
            "captureMode": "NONE", "defaultEndpoint": format!("127.0.0.1:{upstream}")})
    };
    let sidecar = json!({"workloadSelector": {"labels": {"app": "server"}}, "egress": [{"hosts": ["~/*"]}],
        "ingress": [ingress(ports[0], "HTTP", echo.port), ingress(ports[1], "TCP", upstream)]});
    let base = object("Sidecar", "server", &sidecar)
        + &policy("PeerAuthentication", "default", &json!({"mtls": {"mode": "PERMISSIVE"}}));
    let config = json!({"trustDomain": DOMAINS[0], "trustDomainAliases": [DOMAINS[1]]});
    let settings = Settings { mesh: Some(&config), authority: Some(&mine), ..Settings::default() };
    let mesh = Mesh::start_on(&Machine::default(), Ipv4Addr::LOCALHOST.into(), base.clone(), settings);
    let server = mesh.join(SERVER, "server", &metadata("server"));
    let peers = Peers::new(&mine);
    let texts = [ports[0].to_string(), ports[1].to_string(), "1".to_string()];
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut random = Random(setting("PILOTHOUSE_POLICY_SEED", 1));
    let (mut asked, mut allowed) = (0, 0);
    for number in 0..setting("PILOTHOUSE_PEER_POLICIES", 25) {
        let policies = policies(&mut random, &texts);
        // Envoy holds the policies of this round when it holds their name.
        let name = |index: usize| format!("round-{number}-{index}");
        let text: String = policies.iter().enumerate().map(|(i, spec)| authorization(&name(i), spec)).collect();
        mesh.write(&(base.clone() + &text));
        wait_until("Envoy holds the policies", || {
            if server.holds(&format!("policy[{}]", name(0))) { Ok(()) } else { Err(text.clone()) }
        });
        for _ in 0..30 {
            let connection = Connection::random(&mut random, ports);
            let wanted = connection.is_allowed(&policies);
            wait_until("Envoy answers as the documentation says", || match peers.is_answered(&connection) {
                Ok(answered) if answered == wanted => Ok(()),
                other => Err(format!("{connection:?}: allowed {wanted} is right, not {other:?}\n{text}")),
            });
            asked += 1;
            allowed += usize::from(wanted);
        }
    }
    println!("oracle of peers: {asked} connections agree, {allowed} of them allowed");
    assert!(allowed > asked / 10 && allowed < asked * 9 / 10, "{allowed} of {asked} allowed");
    server.assert_no_nacks();
}
