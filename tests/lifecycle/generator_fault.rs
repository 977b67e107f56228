//! A generator, on a thread of the pool, and the task of a stream that panic in the program as it runs, with its panic hook: the
//! proxies of that view, or the one of that stream, get nothing new, the others are served, and the process goes on.

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

/// A client as [`watch`], which has the cluster of `a.example`: streams are refused until the first push.
async fn served(address: std::net::SocketAddr, namespace: &str) -> SotwStream {
    let start = Instant::now();
    let mut stream = watch(address, namespace).await;
    while let Err(error) = until(&mut stream, "a.example").await {
        assert!(start.elapsed() < DEADLINE, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        stream = watch(address, namespace).await;
    }
    stream
}

// The log is waited for on the thread of the test.
#[tokio::test(flavor = "multi_thread")]
async fn a_generator_that_panics_costs_its_view_only_in_the_program_as_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let faults = [("PILOTHOUSE_TEST_FAULTS", "generator for broken=3")];
    let mut server = Binary::serve(dir.path(), &[], &faults);
    let (address, _) = server.addresses();
    let mut well = served(address, "well").await;
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

#[tokio::test(flavor = "multi_thread")]
async fn the_task_of_a_stream_that_panics_ends_that_stream_only_in_the_program_as_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let faults = [("PILOTHOUSE_TEST_FAULTS", "stream of broken=3")];
    let mut server = Binary::serve(dir.path(), &[], &faults);
    let (address, _) = server.addresses();
    let mut well = served(address, "well").await;
    for _ in 0..3 {
        let mut broken = watch(address, "broken").await;
        let ended = until(&mut broken, "a.example").await;
        assert!(matches!(&ended, Err(ClientError::Status(s)) if s.code() == tonic::Code::Internal), "{ended:?}");
        let caught = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            let text = line["panic"].as_str()?;
            (text.contains("stream of broken") && line["guarded"] == true).then_some(())
        };
        server.until("panic that is survived", caught);
    }
    let mut broken = watch(address, "broken").await;
    until(&mut broken, "a.example").await.unwrap();
    fs::write(dir.path().join("b.yaml"), entry("b", "b.example")).unwrap();
    until(&mut well, "b.example").await.unwrap();
    until(&mut broken, "b.example").await.unwrap();
    server.terminate();
    assert_eq!(server.ends_within(DEADLINE).code(), Some(0));
    assert_eq!(server.lines_with("a stream ends by a fault"), 3);
}
