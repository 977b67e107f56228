//! `pilothouse certificate` as a process: its files, its proofs, and their state after failures.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use rustls_pki_types::{CertificateDer, pem::PemObject};

use crate::{binary::Binary, identity::World, ports::free_port, stage::DEADLINE};

/// A workload that knows the root and has a token.
struct Workload {
    folder: tempfile::TempDir,
    server: SocketAddr,
}

impl Workload {
    fn new(world: &World, server: SocketAddr, token: &str) -> Self {
        let workload = Self { folder: tempfile::tempdir().unwrap(), server };
        fs::write(workload.path("root.pem"), world.root()).unwrap();
        fs::write(workload.path("token"), token).unwrap();
        workload
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn certs(&self, name: &str) -> PathBuf {
        self.path("certs").join(name)
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(["certificate", "--xds-address", &self.server.to_string()]);
        command.arg("--certs-dir").arg(self.path("certs")).args(more);
        command
    }

    /// With the root, and the token or without it.
    fn run(&self, has_token: bool, more: &[&str]) -> Output {
        self.with_files(self.command(more), has_token).output().unwrap()
    }

    fn with_files(&self, mut command: Command, has_token: bool) -> Command {
        command.arg("--root-cert").arg(self.path("root.pem"));
        if has_token {
            command.arg("--token-file").arg(self.path("token"));
        }
        command
    }

    /// The three files.
    fn held(&self) -> Vec<String> {
        ["cert-chain.pem", "key.pem", "root-cert.pem"]
            .iter()
            .map(|name| fs::read_to_string(self.certs(name)).unwrap())
            .collect()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The SPIFFE id of a certificate.
fn identity(chain: &Path) -> String {
    let leaf = CertificateDer::from_pem_file(chain).unwrap();
    pilothouse::identity::tls::identity_of(&leaf).unwrap().to_string()
}

#[test]
fn a_workload_without_an_agent_gets_its_certificate_in_files() {
    let world = World::new();
    let (server, secure) = world.serve(&[]);
    let token = world.token(&["-n", "shop", "-s", "cart"]);
    let workload = Workload::new(&world, secure, &token);

    let refused = workload.run(false, &[]);
    assert!(!refused.status.success() && said(&refused).contains("--token-file is required"), "{}", said(&refused));
    let output = workload.run(true, &["--ttl", "1h"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("certificate of spiffe://cluster.local/ns/shop/sa/cart"), "{}", said(&output));
    assert_eq!(identity(&workload.certs("cert-chain.pem")), "spiffe://cluster.local/ns/shop/sa/cart");
    assert_eq!(fs::read_to_string(workload.certs("root-cert.pem")).unwrap().trim(), world.root().trim());
    assert_eq!(fs::metadata(workload.certs("key.pem")).unwrap().permissions().mode() & 0o777, 0o600);

    // The certificate proves the workload where there is no token, or it has expired.
    let first = workload.held();
    let output = workload.run(false, &["--ttl", "1h"]);
    assert!(output.status.success(), "{}", said(&output));
    let second = workload.held();
    assert!(first[0] != second[0] && first[1] != second[1] && first[2] == second[2]);

    // Failures leave the last good files, each with its reason.
    let fails = |workload: &Workload, has_token: bool, more: &[&str], reason: &str| {
        let output = workload.run(has_token, more);
        assert!(!output.status.success() && said(&output).contains(reason), "{reason}: {}", said(&output));
    };
    fails(&workload, true, &["--ttl", "876000h"], "InvalidArgument");
    world.revoke(&token);
    fails(&workload, true, &[], "Unauthenticated");
    fs::write(workload.path("token"), "made-up").unwrap();
    fails(&workload, true, &[], "Unauthenticated");
    fs::remove_file(workload.path("token")).unwrap();
    fails(&workload, true, &[], "--token-file");
    let root = fs::read(workload.path("root.pem")).unwrap();
    fs::write(workload.path("root.pem"), other_root()).unwrap();
    fails(&workload, false, &[], "UnknownIssuer");
    fs::write(workload.path("root.pem"), root).unwrap();
    fails(&workload, false, &["--xds-name", "another.example"], "not valid for");
    server.kill();
    fails(&workload, false, &[], "connecting to");
    assert_eq!(workload.held(), second);

    let usage = workload.command(&[]).output().unwrap();
    assert_eq!(usage.status.code(), Some(64));
    assert!(said(&usage).contains("--root-cert is required"), "{}", said(&usage));
}

fn other_root() -> String {
    let (now, day) = (std::time::SystemTime::now(), std::time::Duration::from_secs(86_400));
    pilothouse::identity::authority::new_root("other", now, day).unwrap().roots
}

#[test]
fn certificates_are_renewed_beyond_the_life_of_the_token_and_through_an_outage() {
    let world = World::new();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let serve = || {
        let state = world.state.path().to_str().unwrap();
        let arguments = ["--secure-grpc-addr", &address.to_string(), "--state-dir", state];
        let mut server = Binary::serve(world.config.path(), &arguments, &[]);
        server.addresses();
        server
    };
    let server = serve();
    let token = |ttl: &str| world.token(&["-n", "shop", "-s", "cart", "--ttl", ttl]);
    let workload = Workload::new(&world, address, &token("1h"));
    let watch = ["--watch", "--ttl", "20s"];
    let mut watcher = Binary::spawn(workload.with_files(workload.command(&watch), true));
    let renewed =
        |watcher: &mut Binary| watcher.until("a certificate", |line| line.contains("/sa/cart in").then_some(()));
    renewed(&mut watcher);
    let first = workload.held();
    // It has expired when the certificate is renewed, 8 s after it was issued at the earliest.
    fs::write(workload.path("token"), token("1s")).unwrap();
    renewed(&mut watcher);
    let second = workload.held();
    assert_ne!(first[1], second[1]);

    server.kill();
    watcher.until("the failure", |line| line.contains("tried again in 2 s").then_some(()));
    assert_eq!(workload.held(), second, "the last good files stay");
    fs::write(workload.path("token"), token("1h")).unwrap();
    let _server = serve();
    renewed(&mut watcher);
    assert_ne!(workload.held()[1], second[1]);
    watcher.terminate();
    assert!(watcher.ends_within(DEADLINE).success());
}
