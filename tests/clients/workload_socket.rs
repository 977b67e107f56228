//! Envoys that take the workload's certificate from an SDS server at a socket of their machine, as a SPIRE agent is one.

use std::{
    convert::Infallible,
    ffi::OsStr,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    thread,
};

use futures::future::BoxFuture;
use pilothouse::proto::{
    envoy::{
        config::core::v3::{DataSource, TypedExtensionConfig, data_source::Specifier},
        extensions::transport_sockets::tls::v3::{CertificateValidationContext, Secret, TlsCertificate, secret::Type},
        service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
    },
    to_any, wkt,
};
use prost::Message;
use rcgen::{ExtendedKeyUsagePurpose, KeyUsagePurpose, SanType};
use serde_json::json;
use tokio::{
    net::UnixListener,
    sync::{mpsc, watch},
};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming};

use crate::{
    config::object,
    envoy::{Envoy, Launch},
    http::{Echo, get},
    joined::{Mesh, Settings, plug_in},
    mesh::ControlPlane,
    mutual_tls::{CLIENT, HANDSHAKES, SERVER, mesh_of, metadata},
    network::Machine,
    process::{free_port, scratch, wait_for, wait_until},
    strangers::{ask, certificate_with},
};

/// The secrets of a workload, by name, and their version.
#[derive(Clone, Default)]
struct Given {
    version: u64,
    secrets: Vec<Secret>,
}

/// The server. It has one workload, to which it tells `default` and `ROOTCA`, and each change of them; other names end the
/// stream, and there is no delta protocol, as with SPIRE.
struct Agent {
    socket: PathBuf,
    given: watch::Sender<Given>,
    /// The validation of peers is that of SPIFFE, which SPIRE sends unless it is told otherwise.
    spiffe: bool,
    _folder: tempfile::TempDir,
}

impl Agent {
    fn start(spiffe: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (socket, given) = (folder.path().join("api.sock"), watch::Sender::new(Given::default()));
        let (path, service) = (socket.clone(), Secrets { given: given.clone() });
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let incoming = UnixListenerStream::new(UnixListener::bind(path).unwrap());
                tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await.unwrap();
            });
        });
        wait_for("the socket", || socket.exists().then_some(()));
        Self { socket, given, spiffe, _folder: folder }
    }

    /// Tells a certificate, with its key, and the roots of its peers.
    fn give(&self, [chain, key]: &[PathBuf; 2], roots: &str) {
        let own = TlsCertificate {
            certificate_chain: Some(inline(&fs::read_to_string(chain).unwrap())),
            private_key: Some(inline(&fs::read_to_string(key).unwrap())),
            ..TlsCertificate::default()
        };
        let trusted = if self.spiffe { of_spiffe(roots) } else { of_roots(roots) };
        let secret = |name: &str, content| Secret { name: name.to_string(), r#type: Some(content) };
        let secrets =
            vec![secret("default", Type::TlsCertificate(own)), secret("ROOTCA", Type::ValidationContext(trusted))];
        self.given.send_modify(|given| *given = Given { version: given.version + 1, secrets });
    }

    fn arguments(&self) -> [&OsStr; 2] {
        ["--workload-socket".as_ref(), self.socket.as_os_str()]
    }
}

fn inline(text: &str) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineBytes(text.to_string().into())), ..DataSource::default() }
}

fn of_roots(roots: &str) -> CertificateValidationContext {
    CertificateValidationContext { trusted_ca: Some(inline(roots)), ..CertificateValidationContext::default() }
}

/// `SPIFFECertValidatorConfig`.
#[derive(Clone, PartialEq, Message)]
struct Spiffe {
    #[prost(message, repeated, tag = "1")]
    trust_domains: Vec<TrustDomain>,
}

#[derive(Clone, PartialEq, Message)]
struct TrustDomain {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    trust_bundle: Option<DataSource>,
}

fn of_spiffe(roots: &str) -> CertificateValidationContext {
    let domain = TrustDomain { name: "cluster.local".to_string(), trust_bundle: Some(inline(roots)) };
    let config = wkt::Any {
        type_url: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.SPIFFECertValidatorConfig".to_string(),
        value: Spiffe { trust_domains: vec![domain] }.encode_to_vec(),
    };
    CertificateValidationContext {
        custom_validator_config: Some(TypedExtensionConfig {
            name: "envoy.tls.cert_validator.spiffe".to_string(),
            typed_config: Some(config),
        }),
        ..CertificateValidationContext::default()
    }
}

/// `envoy.service.secret.v3.SecretDiscoveryService`.
#[derive(Clone)]
struct Secrets {
    given: watch::Sender<Given>,
}

/// The answer to a request for these names.
fn answer(given: &Given, names: &[String]) -> Result<DiscoveryResponse, Status> {
    let secret = |name: &String| {
        let found = given.secrets.iter().find(|secret| secret.name == *name).map(to_any);
        found.ok_or_else(|| Status::invalid_argument(format!("workload is not authorized for {name}")))
    };
    let resources = names.iter().map(secret).collect::<Result<_, _>>()?;
    let version = given.version.to_string();
    let type_url = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret".to_string();
    Ok(DiscoveryResponse { version_info: version.clone(), nonce: version, resources, type_url, ..Default::default() })
}

impl tonic::server::StreamingService<DiscoveryRequest> for Secrets {
    type Response = DiscoveryResponse;
    type ResponseStream = ReceiverStream<Result<DiscoveryResponse, Status>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Streaming<DiscoveryRequest>>) -> Self::Future {
        let (mut given, mut requests) = (self.given.subscribe(), request.into_inner());
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let Ok(Some(first)) = requests.message().await else { return };
            loop {
                let answer = answer(&given.borrow_and_update(), &first.resource_names);
                let ends = answer.is_err();
                if sender.send(answer).await.is_err() || ends {
                    return;
                }
                loop {
                    tokio::select! {
                        message = requests.message() => if !matches!(message, Ok(Some(_))) { return },
                        changed = given.changed() => if changed.is_err() { return } else { break },
                    }
                }
            }
        });
        std::future::ready(Ok(Response::new(ReceiverStream::new(receiver))))
    }
}

impl tonic::server::NamedService for Secrets {
    const NAME: &'static str = "envoy.service.secret.v3.SecretDiscoveryService";
}

impl tower::Service<http::Request<tonic::body::Body>> for Secrets {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move {
            if request.uri().path().ends_with("/StreamSecrets") {
                let codec = tonic_prost::ProstCodec::default();
                return Ok(tonic::server::Grpc::new(codec).streaming(service, request).await);
            }
            Ok(Status::unimplemented("Method is not implemented").into_http())
        })
    }
}

/// A certificate of a service account in `shop`, with the uses that SPIFFE demands and SPIRE writes.
fn certificate(authority: &Path, account: &str) -> [PathBuf; 2] {
    certificate_with(authority, &format!("spiffe://cluster.local/ns/shop/sa/{account}"), &|params| {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyAgreement];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    })
}

/// Server and client, each with an agent of its own, under STRICT; two authorities, of which the first is in force.
struct Pair {
    authorities: [PathBuf; 2],
    roots: [String; 2],
    agents: [Agent; 2],
    envoys: [Envoy; 2],
    inbound: u16,
    egress: u16,
}

const ACCOUNTS: [&str; 2] = ["server", "client"];

impl Pair {
    /// Of agents with this validation; `launch` starts an Envoy with these arguments.
    fn start(
        spiffe: bool,
        (authorities, roots): ([PathBuf; 2], [String; 2]),
        [inbound, egress]: [u16; 2],
        launch: impl Fn(&str, &str, &[&OsStr]) -> Envoy,
    ) -> Self {
        let agents = [Agent::start(spiffe), Agent::start(spiffe)];
        for (agent, account) in agents.iter().zip(ACCOUNTS) {
            agent.give(&certificate(&authorities[0], account), &roots[0]);
        }
        let envoys = [(SERVER, 0), (CLIENT, 1)].map(|(node, at)| launch(node, ACCOUNTS[at], &agents[at].arguments()));
        Self { authorities, roots, agents, envoys, inbound, egress }
    }

    /// The identity of the client as the server is told it, with the hash of its certificate.
    fn peer(&self) -> Result<String, String> {
        match get(self.egress, "web.example", "/", &[]) {
            Ok(answer) if answer.status == 200 => Ok(answer.seen("x-forwarded-client-cert")),
            other => Err(format!("{other:?}\n{}", self.envoys[0].process.tail())),
        }
    }

    /// A request to the server itself with a new certificate of one of the authorities, which has to be the server's too.
    fn ask(&self, at: usize) -> Result<String, String> {
        let own = certificate(&self.authorities[at], "client");
        ask(self.inbound, &self.authorities[at].join("root-cert.pem"), Some(&own), "1.2")
    }

    /// Two Envoys prove themselves by certificates of their agents, and follow each step of a change of authority.
    fn works_and_follows(&self) {
        let first = wait_until("the call over mutual TLS", || self.peer());
        assert!(first.contains("URI=spiffe://cluster.local/ns/shop/sa/client"), "{first}");
        assert!(self.envoys[1].stat(HANDSHAKES) > 0, "the client's connection is TLS");
        assert!(get(self.inbound, "web.example", "/", &[]).is_err(), "plain text is refused");
        self.ask(0).expect("a certificate of the first authority is taken");
        self.ask(1).expect_err("the other authority is not trusted");

        let both = self.roots.concat();
        let steps = [(0, &both), (1, &both), (1, &self.roots[1])];
        for (step, (issuer, roots)) in steps.into_iter().enumerate() {
            let before = self.peer().expect("a request fails between the steps");
            let taken = self.updates();
            for (agent, account) in self.agents.iter().zip(ACCOUNTS) {
                agent.give(&certificate(&self.authorities[issuer], account), roots);
            }
            // Each connection has one request: the next one shows the new certificate.
            wait_until(&format!("step {step}"), || {
                let now = self.peer().expect("a request fails while certificates change");
                let (updates, taken) = (self.updates(), taken.map(|n| n + 1));
                if now != before && updates >= taken { Ok(()) } else { Err(format!("{now} {updates:?} {taken:?}")) }
            });
        }
        wait_until("the second authority has taken the place of the first", || self.ask(1));
        self.ask(0).expect_err("the first authority is not trusted any more");
        self.envoys.iter().for_each(Envoy::assert_no_nacks);
    }

    /// Roots and certificates that both Envoys took so far.
    fn updates(&self) -> [u64; 4] {
        let of = |envoy: &Envoy, name: &str| envoy.stat(&format!("sds.{name}.update_success"));
        let [server, client] = &self.envoys;
        [of(server, "default"), of(server, "ROOTCA"), of(client, "default"), of(client, "ROOTCA")]
    }
}

/// Folders of two authorities, and their roots.
fn authorities() -> ([PathBuf; 2], [String; 2]) {
    let folders = [scratch(), scratch()];
    let roots = [0, 1].map(|at| plug_in(&folders[at], ["first", "second"][at]));
    (folders, roots)
}

/// The objects: each connection of the client has one request.
fn objects(echo: u16, [inbound, egress]: [u16; 2], mode: &str) -> String {
    let pool = json!({"http": {"maxRequestsPerConnection": 1}});
    let rule = json!({"host": "web.example", "trafficPolicy": {"connectionPool": pool}});
    mesh_of(echo, inbound, egress, mode) + &object("DestinationRule", "web", &rule)
}

#[test]
fn envoys_take_their_certificates_from_the_socket_of_an_agent() {
    let (echo, ports) = (Echo::start("server"), [free_port(), free_port()]);
    let plane = ControlPlane::start(&[("mesh.yaml", objects(echo.port, ports, "STRICT"))]);
    let pair = Pair::start(false, authorities(), ports, |node, app, arguments| {
        Launch { arguments, ..Launch::new(&[plane.grpc_port], node, &metadata(app)) }.start()
    });
    pair.works_and_follows();
}

/// The certificate of the agent is the proof of the control plane's client too, and its validation is SPIFFE's.
#[test]
fn envoys_prove_themselves_to_the_control_plane_by_the_certificate_of_an_agent() {
    let (echo, ports) = (Echo::start("server"), [free_port(), free_port()]);
    let (authorities, roots) = authorities();
    let own = certificate_with(&authorities[0], "spiffe://cluster.local/ns/istio-system/sa/istiod", &|params| {
        params.subject_alt_names.push(SanType::DnsName("istiod.istio-system.svc".try_into().unwrap()));
    });
    let both = scratch().join("roots.pem");
    fs::write(&both, roots.concat()).unwrap();
    let [chain, key] = own.each_ref().map(|path| path.to_str().unwrap());
    let environment = [
        ("PILOTHOUSE_TLS_CERT_FILE", chain),
        ("PILOTHOUSE_TLS_KEY_FILE", key),
        ("PILOTHOUSE_CA_CERT_FILE", both.to_str().unwrap()),
    ];
    let settings = Settings { environment: &environment, ..Settings::default() };
    let text = objects(echo.port, ports, "STRICT");
    let mesh = Mesh::start_on(&Machine::default(), Ipv4Addr::LOCALHOST.into(), text, settings);
    let root = authorities[0].join("root-cert.pem");
    let pair = Pair::start(true, (authorities, roots), ports, |node, app, arguments| {
        let arguments = [&["--root-cert".as_ref(), root.as_os_str()], arguments].concat();
        Launch { arguments: &arguments, ..Launch::new(&[mesh.secure.port()], node, &metadata(app)) }.start()
    });
    pair.works_and_follows();
    let page = mesh.plane.debug("/debug/push_status");
    assert_eq!(page, json!({}), "a client refused config");
}

#[test]
fn a_socket_without_a_server_does_not_hold_up_plain_text() {
    let (echo, ports) = (Echo::start("server"), [free_port(), free_port()]);
    let plane = ControlPlane::start(&[("mesh.yaml", objects(echo.port, ports, "PERMISSIVE"))]);
    let arguments = ["--workload-socket".as_ref(), "/nowhere/api.sock".as_ref()];
    let envoy =
        Launch { arguments: &arguments, ..Launch::new(&[plane.grpc_port], SERVER, &metadata("server")) }.start();
    wait_until("plain text is answered", || match get(ports[0], "web.example", "/", &[]) {
        Ok(answer) if answer.status == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    envoy.assert_no_nacks();
}
