//! Load reports over the wire.

use pilothouse::{
    proto::envoy::{
        config::{
            core::v3::Node,
            endpoint::v3::{ClusterStats, UpstreamLocalityStats},
        },
        service::load_stats::v3::LoadStatsRequest,
    },
    testing::AdsClient,
    xds::ResourceType::Cluster,
};
use tonic::Code;

use super::server;

#[tokio::test]
async fn reports_are_asked_for_and_counted() {
    let server = server(Cluster, &[]).await;
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let (reports, mut demands) = client.load_reports().await.expect("a stream");
    let node = Some(Node { id: "sidecar~10.0.0.1~a.b~b.svc.cluster.local".into(), ..Node::default() });
    reports.send(LoadStatsRequest { node, ..LoadStatsRequest::default() }).await.expect("an open stream");
    let demand = demands.message().await.expect("an open stream").expect("a demand");
    assert!(demand.send_all_clusters && demand.load_reporting_interval.is_some());

    let locality = UpstreamLocalityStats {
        total_issued_requests: 7,
        total_successful_requests: 4,
        total_error_requests: 2,
        ..UpstreamLocalityStats::default()
    };
    let stats = ClusterStats {
        cluster_name: "outbound|80||a.b".into(),
        upstream_locality_stats: vec![locality],
        total_dropped_requests: 3,
        ..ClusterStats::default()
    };
    reports
        .send(LoadStatsRequest { cluster_stats: vec![stats], ..LoadStatsRequest::default() })
        .await
        .expect("an open stream");
    drop(reports);
    assert!(demands.message().await.expect("a clean end").is_none(), "all reports are taken at the end");
    let loads = server.state.reported_loads();
    let load = &loads.clusters["outbound|80||a.b"];
    assert_eq!((load.issued, load.successful, load.failed, load.dropped, load.reports), (7, 4, 2, 3, 1));
}

#[tokio::test]
async fn a_report_without_a_node_is_refused() {
    let server = server(Cluster, &[]).await;
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let (reports, mut demands) = client.load_reports().await.expect("a stream");
    reports.send(LoadStatsRequest::default()).await.expect("an open stream");
    assert_eq!(demands.message().await.expect_err("a refusal").code(), Code::InvalidArgument);
}
