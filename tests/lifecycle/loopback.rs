//! Clients on the loopback interface prove nothing. They have the identity that their node claims where all sources are folders,
//! which they could read themselves; where another control plane is read they have none, unless a flag gives it to them.

use std::fs;

use pilothouse::{
    app::{self, Running},
    proto::{
        envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
        json_to_struct,
    },
    runtime::Shutdown,
    testing::{AdsClient, ClientError},
};
use serde_json::{Value, json};

use crate::{
    identity::{clusters, node},
    stage::{end, entry, hosts, settings, start, until},
};

/// The resources of a type that a client of the root namespace is sent.
async fn sent(server: &Running, type_url: &str, metadata: Value) -> Result<usize, ClientError> {
    let node = Node { metadata: json_to_struct(&metadata), ..node("istio-system") };
    let client = AdsClient::connect(server.addresses.grpc, "10.0.0.9").await.unwrap().with_node(node);
    let mut stream = client.sotw(None).await?;
    let _ = stream.send(DiscoveryRequest { type_url: type_url.into(), ..DiscoveryRequest::default() }).await;
    Ok(stream.next().await?.resources.len())
}

/// The number of objects over `GENERATOR: api`, and of pages over xDS, that such a client reads.
async fn read(server: &Running) -> [Result<usize, ClientError>; 2] {
    let objects = sent(server, "networking.istio.io/v1/ServiceEntry", json!({"GENERATOR": "api"})).await;
    [objects, sent(server, "istio.io/debug/syncz", json!({})).await]
}

#[actix::test]
async fn a_node_is_trusted_where_all_sources_are_folders_or_where_a_flag_says_so() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let of_folders = start(&[dir.path()], None).await;
    until(&of_folders, |context| hosts(context) == ["a.example"]).await;
    let answers = read(&of_folders).await;
    assert!(matches!(answers, [Ok(1), Ok(_)]), "{answers:?}");

    for (flag, is_trusted) in [(None, false), (Some(true), true)] {
        let mut settings = settings(&[], None);
        settings.sources.upstream.addresses = vec![of_folders.addresses.grpc.to_string()];
        settings.xds.trust_loopback = flag;
        let server = app::build(settings, Shutdown::default()).await.unwrap();
        until(&server, |context| hosts(context) == ["a.example"]).await;
        let anonymous = AdsClient::connect(server.addresses.grpc, "10.0.0.9").await.unwrap().with_node(node("shop"));
        assert!(clusters(&anonymous).await.is_ok(), "clusters need no identity");
        let answers = read(&server).await;
        assert_eq!(answers.map(|answer| answer.is_ok()), [is_trusted; 2], "{flag:?}");
        end(server).await;
    }
    end(of_folders).await;
}
