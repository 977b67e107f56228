//! Debug pages over xDS that take long, asked for as fast as it goes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{answer, size};
use crate::{content, set};
use futures::future::BoxFuture;
use pilothouse::{
    discovery::{DebugPages, DebugQuestion, Ports, debug},
    proto::{
        envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
        wkt::Any,
    },
    testing::{AdsClient, FakeServer},
    xds::{ResourceType::Cluster, XdsOptions},
};

/// Pages that keep their thread busy.
#[derive(Default)]
struct Dear {
    now: AtomicUsize,
    most: AtomicUsize,
    answered: AtomicUsize,
}

/// The pages as the server holds them.
struct Shared(Arc<Dear>);

impl DebugPages for Shared {
    fn answer(&self, _: DebugQuestion) -> BoxFuture<'static, Vec<(String, Any)>> {
        let pages = self.0.clone();
        Box::pin(async move {
            let now = pages.now.fetch_add(1, Ordering::SeqCst) + 1;
            pages.most.fetch_max(now, Ordering::SeqCst);
            // Busy, not waiting: a page that is put together does not yield.
            std::thread::sleep(Duration::from_millis(20));
            pages.now.fetch_sub(1, Ordering::SeqCst);
            pages.answered.fetch_add(1, Ordering::SeqCst);
            Vec::new()
        })
    }

    fn control_plane(&self) -> String {
        String::new()
    }
}

#[tokio::test]
async fn pages_are_answered_one_at_a_time_beside_the_work() {
    let options = XdsOptions { trust_nodes: true, ..XdsOptions::default() };
    let pages = Arc::new(Dear::default());
    let ports = Ports { debug: Some(Arc::new(Shared(pages.clone()))), ..Ports::default() };
    let server = FakeServer::start_with(options, ports).await.expect("a free port");
    set(&server, Cluster, &["a"], "1");
    let id = "sidecar~10.0.0.7~ctl.istio-system~istio-system.svc.cluster.local".to_string();
    let mut asking = Vec::new();
    for _ in 0..size(8, 100) {
        let client = AdsClient::connect(server.address, "10.0.0.7").await.expect("a connection");
        let mut stream =
            client.with_node(Node { id: id.clone(), ..Node::default() }).sotw(None).await.expect("a stream");
        asking.push(tokio::spawn(async move {
            loop {
                let names = vec!["configz".to_string()];
                let request =
                    DiscoveryRequest { type_url: debug::PAGE.into(), resource_names: names, ..Default::default() };
                if stream.send(request).await.is_err() || stream.next().await.is_err() {
                    return;
                }
            }
        }));
    }
    // This test has one thread: blocking it blocks everything.
    for version in ["1", "2", "3"] {
        set(&server, Cluster, &["a"], version);
        assert_eq!(answer(&server, "10.0.0.9").await, content(&["a"], version));
    }
    while pages.answered.load(Ordering::SeqCst) < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(pages.most.load(Ordering::SeqCst), 1);
    asking.iter().for_each(tokio::task::JoinHandle::abort);
}
