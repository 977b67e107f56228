//! Building a push context panics, and so does the actor that decides when one is built.

use std::fs;

use crate::stage::{Served, end, entry, restarted, start, until};

#[actix::test]
async fn the_context_in_force_stays_until_the_next_one_is_built() {
    let mut served = Served::start().await;
    for (times, fault) in [(1, "xds-server, apart"), (2, "xds-server")] {
        let before = served.running.state.current().unwrap().context.clone();
        served.running.supervision.faults().order(fault, 1);
        served.add(&format!("b{times}"));
        restarted(&served.running, "xds-server", times).await;
        let now = served.running.state.current().unwrap().context.clone();
        assert!(now.inputs.registry.services.len() >= before.inputs.registry.services.len());
        served.proxies.until(&format!("b{times}.example")).await;
    }
    end(served.running).await;
}

#[actix::test]
async fn a_first_context_that_fails_is_built_again_before_the_process_is_ready() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let running = start(&[dir.path()], None).await;
    running.supervision.faults().order("xds-server, apart", 1);
    until(&running, |c| c.inputs.registry.services.len() == 1 && running.readiness.is_ready()).await;
    end(running).await;
}
