//! The guide's "Gateway API", walked as it is printed: each kind of route through a real Envoy, with what each object says.

use crate::{
    network::{Interception, Network},
    tools::TOOLS,
    walk::{Host, walk},
};

#[test]
fn the_guides_gateway_works_as_it_is_printed() {
    let Some(network) = Network::start(&[Interception::None]) else { return };
    let [machine] = network.machines();
    let host = Host::new("here", &machine);
    // The Python with grpcio.
    host.put("python3", &format!("exec {} \"$@\"", TOOLS.python.display()));
    let compared = walk("gateway_api.md", &[&host], &[]);
    assert!(compared >= 14, "{compared} outputs");
}
