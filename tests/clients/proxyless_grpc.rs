//! The guide's "Proxyless gRPC in four languages", walked as it is printed: its programs are built and make their calls. Go and Java
//! are left out where their toolchains are missing.

use crate::{
    network::{Interception, Network},
    tools::{self, TOOLS},
    walk::{Host, walk},
};

#[test]
fn the_guides_programs_work_as_they_are_printed() {
    let Some(network) = Network::start(&[Interception::None]) else { return };
    let [machine] = network.machines();
    let host = Host::new("here", &machine);
    host.put("python3", &format!("exec {} \"$@\"", TOOLS.python.display()));
    // The network has no way out: packages are those that are installed for the tests.
    let modules = TOOLS.node.join("node_modules");
    host.put("npm", &format!("ln -s {} \"$4/node_modules\"", modules.display()));
    let path = std::env::var("PATH").unwrap_or_default();
    host.put("go", &format!("PATH={path} GOPROXY=off GOSUMDB=off GOFLAGS=-mod=mod exec go \"$@\""));
    host.put("mvn", &format!("PATH={path} exec mvn -o \"$@\""));
    let toolchains = [("Go", tools::go("1.85.0").is_none()), ("Java", tools::java("1.85.1").is_none())];
    let missing = toolchains.iter().filter(|(_, is_missing)| *is_missing).map(|(name, _)| *name);
    let without: Vec<String> =
        missing.flat_map(|name| ["", ": rules", ": mutual TLS"].map(|part| format!("{name}{part}"))).collect();
    let compared = walk("proxyless_grpc.md", &[&host], &without);
    assert!(compared + without.len() >= 20, "{compared} outputs");
}
