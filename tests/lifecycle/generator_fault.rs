//! A generator that panics in the program as it runs, with its panic hook: the proxies of that view get nothing new, the
//! others are served, and the process goes on.

use std::{
    fs,
    time::{Duration, Instant},
};

use crate::{
    binary::Binary,
    stage::{DEADLINE, entry},
};
use pilothouse::{
    proto::{envoy::config::core::v3::Node, wkt::Any},
    testing::{AdsClient, ClientError, SotwStream},
    xds::ResourceType,
};

async fn watch(address: std::net::SocketAddr, namespace: &str) -> SotwStream {
    let id = format!("sidecar~10.0.0.1~a.{namespace}~{namespace}.svc.cluster.local");
    let client = AdsClient::connect(address, "10.0.0.1").await.unwrap();
    let mut stream = client.with_node(Node { id, ..Node::default() }).sotw(None).await.unwrap();
    // One that is refused at once may be closed already.
    let _ = stream.subscribe(ResourceType::Cluster, &[], "").await;
    stream
}

/// Takes responses until one has this host.
async fn until(stream: &mut SotwStream, host: &str) -> Result<(), ClientError> {
    let text = |any: &Any| String::from_utf8_lossy(&any.value).contains(host);
    let start = Instant::now();
    loop {
        match stream.next().await {
            Ok(response) => {
                stream.subscribe(ResourceType::Cluster, &[], &response.nonce).await?;
                if response.resources.iter().any(text) {
                    return Ok(());
                }
            }
            Err(ClientError::Silence) if start.elapsed() < DEADLINE => {}
            Err(other) => return Err(other),
        }
    }
}

// The log is waited for on the thread of the test.
#[tokio::test(flavor = "multi_thread")]
async fn a_generator_that_panics_costs_its_view_only_in_the_program_as_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let faults = [("PILOTHOUSE_TEST_FAULTS", "generator for broken=3")];
    let mut server = Binary::serve(dir.path(), &[], &faults);
    let (address, _) = server.addresses();
    let start = Instant::now();
    let mut well = watch(address, "well").await;
    // Streams are refused until the first push.
    while let Err(error) = until(&mut well, "a.example").await {
        assert!(start.elapsed() < DEADLINE, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        well = watch(address, "well").await;
    }
    let mut broken = watch(address, "broken").await;
    for _ in 0..3 {
        let panic = |line: &str| (line.contains("the generator failed") && line.contains("broken")).then_some(());
        server.until("fault of a generator", panic);
        drop(broken);
        broken = watch(address, "broken").await;
    }
    // The faults are over: the view gets the current resources.
    until(&mut broken, "a.example").await.unwrap();
    fs::write(dir.path().join("b.yaml"), entry("b", "b.example")).unwrap();
    until(&mut well, "b.example").await.unwrap();
    until(&mut broken, "b.example").await.unwrap();
    server.terminate();
    assert_eq!(server.ends_within(DEADLINE).code(), Some(0));
}
