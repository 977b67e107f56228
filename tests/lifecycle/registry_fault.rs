//! The registry panics while it takes events in, and once more while it is built anew.

use crate::stage::{Served, end, restarted};

#[actix::test]
async fn it_is_built_anew_from_the_store_and_no_proxy_loses_anything() {
    let mut served = Served::start().await;
    for (times, name) in [(1, "b"), (2, "c")] {
        served.running.supervision.faults().order("service-entry-store", 1);
        served.add(name);
        restarted(&served.running, "service-entry-store", times).await;
        assert!(served.running.registry.snapshot().services.len() >= times as usize);
        served.proxies.until(&format!("{name}.example")).await;
    }
    served.add("d");
    served.proxies.until("d.example").await;
    assert_eq!(served.running.registry.snapshot().services.len(), 4);
    end(served.running).await;
}
