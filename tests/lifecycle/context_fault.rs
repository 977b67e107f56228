//! Building a push context panics, and so does the actor that decides when one is built.

use std::fs;

use crate::{
    proxy::Proxies,
    stage::{end, entry, restarted, start, until},
};

#[actix::test]
async fn the_context_in_force_stays_until_the_next_one_is_built() {
    let dir = tempfile::tempdir().unwrap();
    let write =
        |name: &str| fs::write(dir.path().join(format!("{name}.yaml")), entry(name, &format!("{name}.example")));
    write("a").unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| !c.inputs.registry.services.is_empty()).await;
    let mut proxies = Proxies::connect(running.addresses.grpc).await;
    proxies.until("a.example").await;
    for (times, fault) in [(1, "xds-server, apart"), (2, "xds-server")] {
        let before = running.state.current().unwrap().context.clone();
        running.wards.faults().order(fault, 1);
        write(&format!("b{times}")).unwrap();
        restarted(&running, "xds-server", times).await;
        let now = running.state.current().unwrap().context.clone();
        assert!(now.inputs.registry.services.len() >= before.inputs.registry.services.len());
        proxies.until(&format!("b{times}.example")).await;
    }
    end(running).await;
}

#[actix::test]
async fn a_first_context_that_fails_is_built_again_before_the_process_is_ready() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let running = start(&[dir.path()], None).await;
    running.wards.faults().order("xds-server, apart", 1);
    until(&running, |c| c.inputs.registry.services.len() == 1 && running.readiness.is_ready()).await;
    end(running).await;
}
