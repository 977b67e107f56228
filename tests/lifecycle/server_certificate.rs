//! The secure listener with a certificate of files (`--tls-cert-file`, `--tls-key-file`, `--ca-cert-file`): they are followed, and
//! damaged ones take nothing away; and sessions that are resumed.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use pilothouse::{
    identity::{
        Authority,
        authority::{Material, new_root},
    },
    model::Identity as Spiffe,
    testing::AdsClient,
};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tempfile::TempDir;
use tokio_rustls::rustls::{self, ClientConfig, ClientConnection, HandshakeKind, RootCertStore, Stream};
use tonic::transport::Identity;

use crate::{
    binary::Binary,
    identity::{World, channel, clusters, eventually, node, served},
    stage::DEADLINE,
};

const HOUR: Duration = Duration::from_secs(3600);

/// An authority of this name since some days.
fn authority(name: &str) -> (Material, Authority) {
    let now = SystemTime::now();
    let material = new_root(name, now - 72 * HOUR, 240 * HOUR).unwrap();
    let authority = Authority::new(&material, now).unwrap();
    (material, authority)
}

/// A certificate of a client by this authority, issued at this time for an hour.
fn client_of(authority: &Authority, id: &str, at: SystemTime) -> Identity {
    let issued = authority.issue(&Spiffe::parse(id).unwrap(), HOUR, at).unwrap();
    Identity::from_pem(issued.certificate.chain, issued.key)
}

/// The files of the listener.
struct Files(TempDir);

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn replace(&self, name: &str, text: &str) {
        fs::write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path(name)).unwrap();
    }

    /// A certificate of the listener; gives the root above it.
    fn put(&self, name: &str) -> String {
        let (material, authority) = authority(name);
        let issued = authority.issue_server(&["istiod.istio-system.svc".into()], HOUR, SystemTime::now()).unwrap();
        self.replace("cert.pem", &issued.certificate.chain);
        self.replace("key.pem", &issued.key);
        material.roots
    }

    fn flags(&self) -> Vec<String> {
        ["tls-cert-file=cert.pem", "tls-key-file=key.pem", "ca-cert-file=clients.pem"]
            .map(|flag| flag.split_once('=').unwrap())
            .map(|(flag, name)| format!("--{flag}={}", self.path(name).display()))
            .to_vec()
    }
}

#[tokio::test]
async fn a_certificate_and_the_roots_of_clients_in_files_are_followed() {
    let (world, files) = (World::new(), Files(tempfile::tempdir().unwrap()));
    let (first, (clients, of_clients)) = (files.put("first"), authority("clients"));
    files.replace("clients.pem", &clients.roots);
    let flags = files.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (mut server, secure) = world.serve(&flags);
    let token = world.token(&["-n", "shop", "-s", "cart"]);
    served(&AdsClient::over(channel(secure, &first, None).await.unwrap(), node("shop")).with_token(&token)).await;
    assert!(channel(secure, &world.root(), None).await.is_err(), "the certificate is that of the files");

    // Clients below the root of the file are believed as long as their certificates hold, those of another root are not.
    let (_, stranger) = authority("clients");
    let (now, cart) = (SystemTime::now(), "spiffe://cluster.local/ns/shop/sa/cart");
    for (why, identity, is_believed) in [
        ("below the file's root", client_of(&of_clients, cart, now), true),
        ("expired", client_of(&of_clients, cart, now - 48 * HOUR), false),
        ("of another trust domain", client_of(&of_clients, "spiffe://elsewhere/ns/shop/sa/cart", now), false),
        ("of another namespace", client_of(&of_clients, "spiffe://cluster.local/ns/bank/sa/cart", now), false),
        ("below another root", client_of(&stranger, cart, now), false),
    ] {
        // With TLS 1.3 a client learns of a refused certificate with its first bytes.
        let count = match channel(secure, &first, Some(identity)).await {
            Ok(channel) => clusters(&AdsClient::over(channel, node("shop"))).await.map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(count.is_ok(), is_believed, "{why}: {count:?}");
    }

    // A stream outlives the change of the files.
    let client = AdsClient::over(channel(secure, &first, None).await.unwrap(), node("shop")).with_token(&token);
    let second = files.put("second");
    eventually("the new certificate", || async { channel(secure, &second, None).await.is_ok() }).await;
    assert!(channel(secure, &first, None).await.is_err(), "new connections get the new certificate only");
    assert!(clusters(&client).await.unwrap() > 0);
    for (name, damaged) in
        [("key.pem", "damaged"), ("clients.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")]
    {
        let kept = fs::read_to_string(files.path(name)).unwrap();
        files.replace(name, damaged);
        server.until("line of the damaged file", |line| line.contains("stays the last good one").then_some(()));
        assert!(channel(secure, &second, None).await.is_ok(), "{name}");
        files.replace(name, &kept);
    }
    let third = files.put("third");
    eventually("whole files are taken again", || async { channel(secure, &third, None).await.is_ok() }).await;
}

/// One connection that reads until the server's settings have come, and with them its tickets.
fn handshake(address: SocketAddr, config: &Arc<ClientConfig>) -> HandshakeKind {
    let name = ServerName::try_from("istiod.istio-system.svc").unwrap();
    let mut tls = ClientConnection::new(config.clone(), name).unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut stream = Stream::new(&mut tls, &mut socket);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    assert!(stream.read(&mut [0; 64]).unwrap() > 0);
    tls.handshake_kind().unwrap()
}

#[test]
fn a_client_that_comes_back_resumes_its_session() {
    let world = World::new();
    let (_server, secure) = world.serve(&[]);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(world.root().as_bytes()).unwrap()).unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        let mut config = config.with_root_certificates(roots.clone()).with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let config = Arc::new(config);
        assert_eq!(handshake(secure, &config), HandshakeKind::Full);
        assert_eq!(handshake(secure, &config), HandshakeKind::Resumed, "{version:?}");
    }
}

#[test]
fn a_listener_whose_first_files_do_not_fit_does_not_start() {
    let (world, files) = (World::new(), Files(tempfile::tempdir().unwrap()));
    files.put("one");
    let key = fs::read_to_string(files.path("key.pem")).unwrap();
    files.put("two");
    files.replace("key.pem", &key);
    files.replace("clients.pem", "");
    let refused = |change: &dyn Fn(&Path), reason: &str| {
        change(files.0.path());
        let (flags, state) = (files.flags(), world.state.path().to_str().unwrap());
        let own = ["--secure-grpc-addr", "127.0.0.1:0", "--state-dir", state];
        let flags: Vec<&str> = own.into_iter().chain(flags.iter().map(String::as_str)).collect();
        let mut server = Binary::serve(world.config.path(), &flags, &[]);
        server.until(reason, |line| line.contains(reason).then_some(()));
        assert!(!server.ends_within(DEADLINE).success(), "{reason}");
    };
    refused(&|_| (), "keys may not be consistent");
    refused(&|folder| fs::remove_file(folder.join("key.pem")).unwrap(), "key.pem");
}
