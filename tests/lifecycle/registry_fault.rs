//! The registry panics while it takes events in, and once more while it is built anew.

use std::fs;

use crate::{
    proxy::Proxies,
    stage::{end, entry, restarted, start, until},
};

#[actix::test]
async fn it_is_built_anew_from_the_store_and_no_proxy_loses_anything() {
    let dir = tempfile::tempdir().unwrap();
    let write =
        |name: &str| fs::write(dir.path().join(format!("{name}.yaml")), entry(name, &format!("{name}.example")));
    write("a").unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| !c.inputs.registry.services.is_empty()).await;
    let mut proxies = Proxies::connect(running.addresses.grpc).await;
    proxies.until("a.example").await;
    for (times, name) in [(1, "b"), (2, "c")] {
        running.wards.faults().order("service-entry-store", 1);
        write(name).unwrap();
        restarted(&running, "service-entry-store", times).await;
        assert!(running.registry.snapshot().services.len() >= times as usize);
        proxies.until(&format!("{name}.example")).await;
    }
    write("d").unwrap();
    proxies.until("d.example").await;
    assert_eq!(running.registry.snapshot().services.len(), 4);
    end(running).await;
}
