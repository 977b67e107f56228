//! The aggregate cache panics while it takes a batch in.

use std::fs;

use crate::stage::{Served, end, entry, restarted, start, until};

#[actix::test]
async fn the_batch_comes_again_and_no_proxy_loses_anything() {
    let mut served = Served::start().await;
    // The store's handle from before the faults is used to the end: its address lives on.
    let objects = || served.running.store.snapshot().by_kind.values().map(|list| list.len()).sum::<usize>();
    for (times, name) in [(1, "b"), (2, "c")] {
        let before = objects();
        served.running.supervision.faults().order("aggregate-cache", 1);
        served.add(name);
        restarted(&served.running, "aggregate-cache", times).await;
        assert!(objects() >= before);
        served.proxies.until(&format!("{name}.example")).await;
    }
    assert_eq!(objects(), 3);
    assert!(served.running.store.shadowed().await.is_empty());
    end(served.running).await;
}

#[actix::test]
async fn a_deletion_that_the_fault_swallowed_is_made_good() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    fs::write(&path, entry("a", "a.example") + &entry("b", "b.example") + &entry("c", "c.example")).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| c.inputs.registry.services.len() == 3).await;
    running.supervision.faults().order("aggregate-cache", 1);
    fs::write(&path, entry("a", "a.example") + &entry("b", "b.example")).unwrap();
    restarted(&running, "aggregate-cache", 1).await;
    until(&running, |c| c.inputs.registry.services.len() == 2).await;
    end(running).await;
}
