//! The guide's "A first mesh in five minutes", walked as it is printed, on a machine of its own. `curl` alone is a client of the tests.

use std::net::SocketAddr;

use crate::{
    http::get_at,
    network::{Interception, Network},
    process::wait_until,
    two_machines::Shell,
};

const GUIDE: &str = include_str!("../../src/guide/first_mesh.md");

#[test]
fn the_guides_first_mesh_works_as_it_is_printed() {
    let Some(network) = Network::start(&[Interception::None]) else { return };
    let [machine] = network.machines();
    let blocks: Vec<&str> = GUIDE.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let [services, gateway, change] = blocks.try_into().expect("three blocks");
    let shell = Shell::new(&machine);
    let _services = shell.run(services);
    let pages = SocketAddr::from(([127, 0, 0, 1], 8080));
    wait_until("the control plane is ready", || match machine.within(|| get_at(pages, "localhost", "/ready", &[])) {
        Ok(answer) if answer.status == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let running = shell.run(gateway);
    let front = SocketAddr::from(([127, 0, 0, 1], 10000));
    let answers = |version: &str| {
        wait_until(version, || match machine.within(|| get_at(front, "web.example", "/", &[])) {
            Ok(answer) if answer.status == 200 && answer.body.trim() == version => Ok(()),
            other => Err(format!("{other:?}\n{}", running[0].tail())),
        });
    };
    answers("version 1");
    let _ = shell.run(change);
    answers("version 2");
}
