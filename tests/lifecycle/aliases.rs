//! Ids that proxies give for a cluster instead of its own (`--cluster-aliases`).

use std::fs;

use pilothouse::{
    app,
    proto::{envoy::config::core::v3::Node, json_to_struct},
    runtime::Shutdown,
    settings::ClusterAlias,
    testing::AdsClient,
    xds::ResourceType,
};
use serde_json::json;

use crate::stage::{DEADLINE, end, entry, hosts, settings, until};

#[actix::test]
async fn a_proxy_that_gives_an_alias_is_of_the_cluster_that_it_stands_for() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let mut aliased = settings(&[dir.path()], None);
    aliased.mesh.cluster_aliases = vec!["old=Kubernetes".parse::<ClusterAlias>().unwrap()];
    let running = app::build(aliased, Shutdown::default()).await.unwrap();
    until(&running, |c| hosts(c) == ["a.example"]).await;
    let mut seen = Vec::new();
    for cluster in ["old", "west"] {
        let node = Node {
            id: format!("sidecar~10.0.0.9~{cluster}.shop~shop.svc.cluster.local"),
            metadata: json_to_struct(&json!({"CLUSTER_ID": cluster, "NAMESPACE": "shop"})),
            ..Node::default()
        };
        let client = AdsClient::connect(running.addresses.grpc, "10.0.0.9").await.unwrap();
        let mut stream = client.with_node(node).sotw(None).await.unwrap();
        stream.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
        tokio::time::timeout(DEADLINE, stream.next()).await.unwrap().unwrap();
        let of = |name: &str| running.state.connections().into_iter().find(|c| c.node.id.contains(name));
        seen.push(of(&format!("{cluster}.")).unwrap().node.cluster_id.to_string());
    }
    assert_eq!(seen, ["Kubernetes", "west"]);
    end(running).await;
}
