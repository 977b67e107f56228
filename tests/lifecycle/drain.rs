//! SIGTERM ends the program, whatever its clients do.

use std::{
    fmt::Write,
    fs,
    time::{Duration, Instant},
};

use crate::{
    binary::Binary,
    proxy::Proxies,
    stage::{DEADLINE, entry},
};
use pilothouse::{testing::AdsClient, xds::ResourceType};

#[tokio::test(flavor = "multi_thread")]
async fn it_drains_with_streams_open_and_one_that_never_reads() {
    let dir = tempfile::tempdir().unwrap();
    let mut text = entry("a", "a.example");
    for number in 0..400 {
        let _ = write!(text, "{}", entry(&format!("e{number}"), &format!("host-{number}.example")));
    }
    fs::write(dir.path().join("a.yaml"), text).unwrap();
    let mut server = Binary::serve(dir.path(), &[], &[]);
    let (grpc, _) = server.addresses();
    let mut proxies = connect_when_ready(grpc).await;
    proxies.until("a.example").await;
    // More than a window of HTTP/2 waits for these two for ever.
    let deaf = AdsClient::connect(grpc, "10.0.0.7").await.unwrap();
    let (mut sotw, mut delta) = (deaf.sotw(None).await.unwrap(), deaf.delta(None).await.unwrap());
    sotw.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    delta.change(ResourceType::Cluster, &["*"], &[]).await.unwrap();
    let idle = tokio::net::TcpStream::connect(grpc).await.unwrap();
    let began = Instant::now();
    server.terminate();
    let status = tokio::task::spawn_blocking(move || server.ends_within(DEADLINE)).await.unwrap();
    assert_eq!(status.code(), Some(0), "after {:?}", began.elapsed());
    proxies.ended().await;
    drop((sotw, delta, idle));
}

/// Before the first push streams are refused: a real proxy tries again.
pub async fn connect_when_ready(grpc: std::net::SocketAddr) -> Proxies {
    let start = Instant::now();
    loop {
        if let Ok(client) = AdsClient::connect(grpc, "10.0.0.6").await
            && let Ok(mut stream) = client.sotw(None).await
            && stream.subscribe(ResourceType::Cluster, &[], "").await.is_ok()
            && stream.next().await.is_ok()
        {
            return Proxies::connect(grpc).await;
        }
        assert!(start.elapsed() < DEADLINE, "not ready");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
