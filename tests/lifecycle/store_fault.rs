//! The aggregate cache panics while it takes a batch in.

use std::fs;

use crate::{
    proxy::Proxies,
    stage::{end, entry, restarted, start, until},
};

#[actix::test]
async fn the_batch_comes_again_and_no_proxy_loses_anything() {
    let dir = tempfile::tempdir().unwrap();
    let write =
        |name: &str| fs::write(dir.path().join(format!("{name}.yaml")), entry(name, &format!("{name}.example")));
    write("a").unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| !c.inputs.registry.services.is_empty()).await;
    let mut proxies = Proxies::connect(running.addresses.grpc).await;
    proxies.until("a.example").await;
    // The store's handle from before the faults is used to the end: its address lives on.
    let objects = || running.store.snapshot().by_kind.values().map(|list| list.len()).sum::<usize>();
    for (times, name) in [(1, "b"), (2, "c")] {
        let before = objects();
        running.wards.faults().order("aggregate-cache", 1);
        write(name).unwrap();
        restarted(&running, "aggregate-cache", times).await;
        assert!(objects() >= before);
        proxies.until(&format!("{name}.example")).await;
    }
    assert_eq!(objects(), 3);
    assert!(running.store.shadowed().await.is_empty());
    end(running).await;
}

#[actix::test]
async fn a_deletion_that_the_fault_swallowed_is_made_good() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    fs::write(&path, entry("a", "a.example") + &entry("b", "b.example") + &entry("c", "c.example")).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| c.inputs.registry.services.len() == 3).await;
    running.wards.faults().order("aggregate-cache", 1);
    fs::write(&path, entry("a", "a.example") + &entry("b", "b.example")).unwrap();
    restarted(&running, "aggregate-cache", 1).await;
    until(&running, |c| c.inputs.registry.services.len() == 2).await;
    end(running).await;
}
