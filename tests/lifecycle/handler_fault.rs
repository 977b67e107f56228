//! Each of the five handlers panics while it decides on events: it is told them again.

use std::fs;

use pilothouse::{
    handlers::{
        ConfigHandler, Decide, ServiceEntryHandler, ServiceHandler, WorkloadEntryHandler, WorkloadInstanceHandler,
    },
    model::Kind,
};

use crate::{
    proxy::Proxies,
    stage::{end, entry, restarted, start, until},
};

/// One object for every handler; the ServiceEntry's host is `NAME.example`.
fn objects(name: &str) -> String {
    let object = |api: &str, kind: &str, rest: &str| {
        format!(
            "---\napiVersion: {api}\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop, labels: {{app: {name}}}}}\n{rest}\n"
        )
    };
    entry(name, &format!("{name}.example"))
        + &object("v1", "Service", "spec: {clusterIP: None, ports: [{name: http, port: 80}], selector: {app: none}}")
        + &object("v1", "Pod", "spec: {containers: []}\nstatus: {phase: Running, podIP: 10.1.0.1}")
        + &object("networking.istio.io/v1", "WorkloadEntry", "spec: {address: 10.2.0.1}")
        + &object("networking.istio.io/v1", "DestinationRule", &format!("spec: {{host: {name}.example}}"))
}

#[actix::test]
async fn missed_events_are_sent_to_a_handler_again() {
    let handlers = [
        ServiceHandler::NAME,
        WorkloadInstanceHandler::NAME,
        WorkloadEntryHandler::NAME,
        ServiceEntryHandler::NAME,
        ConfigHandler::NAME,
    ];
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str| fs::write(dir.path().join(format!("{name}.yaml")), objects(name));
    write("first").unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| !c.inputs.registry.services.is_empty()).await;
    let mut proxies = Proxies::connect(running.addresses.grpc).await;
    proxies.until("first.example").await;
    for (number, handler) in handlers.into_iter().enumerate() {
        let name = format!("object-{number}");
        running.supervision.faults().order(handler, 1);
        write(&name).unwrap();
        restarted(&running, handler, 1).await;
        proxies.until(&format!("{name}.example")).await;
        proxies.until(&format!("{name}.shop.svc.cluster.local")).await;
    }
    let context = until(&running, |c| c.inputs.registry.services.len() == 12).await;
    assert_eq!(context.inputs.configs.by_kind[&Kind::DestinationRule].len(), 6);
    assert!(running.supervision.faults().are_done());
    end(running).await;
}
