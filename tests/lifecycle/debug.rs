//! Debug pages over xDS, as `istioctl` asks for them.

use pilothouse::{
    discovery::debug,
    proto::{
        envoy::{
            config::core::v3::Node,
            service::{
                discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
                status::v3::{ClientConfig, ConfigStatus},
            },
        },
        json_to_struct,
    },
    testing::AdsClient,
    xds::ResourceType,
};
use prost::Message;

use crate::{
    confirm::{aside, ask},
    stage::{DEADLINE, Served, end},
};

#[actix::test]
async fn pages_states_and_dumps_are_answered() {
    let served = Served::start().await;
    let running = &served.running;
    let client = AdsClient::connect(running.addresses.grpc, "10.0.0.3").await.unwrap();
    let operator = client.with_node(Node {
        id: "sidecar~10.0.0.3~ctl.istio-system~istio-system.svc.cluster.local".into(),
        metadata: json_to_struct(&serde_json::json!({"GENERATOR": "event", "NAMESPACE": "istio-system"})),
        ..Node::default()
    });
    let ask = |kind: &str, names: &[&str]| DiscoveryRequest {
        type_url: kind.to_string(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        // `istioctl` writes the time into every request.
        response_nonce: "2026-11-22 08:00:00 +0000 UTC m=+0.07".into(),
        ..DiscoveryRequest::default()
    };
    let mut stream = operator.sotw(None).await.unwrap();
    stream.send(ask(debug::PAGE, &["registryz"])).await.unwrap();
    let page = stream.next().await.unwrap();
    assert!(String::from_utf8_lossy(&page.resources[0].value).contains("a.example"));
    let identifier = page.control_plane.unwrap().identifier;
    let instance: serde_json::Value = serde_json::from_str(&identifier).unwrap();
    assert!(instance["ID"].as_str().is_some_and(|id| !id.is_empty()), "{identifier}");

    let synced = async {
        loop {
            stream.send(ask(debug::SYNCZ, &[])).await.unwrap();
            let states = stream.next().await.unwrap().resources;
            let states = states.iter().map(|any| ClientConfig::decode(any.value.as_slice()).unwrap());
            let states: Vec<_> = states.collect();
            let own = states.iter().filter(|s| s.node.as_ref().is_some_and(|n| n.id.contains("ctl.istio-system")));
            assert_eq!(own.count(), 0, "the client of the pages is no proxy");
            let types: Vec<_> = states.into_iter().flat_map(|state| state.generic_xds_configs).collect();
            let clusters = types.iter().filter(|c| c.type_url == ResourceType::Cluster.url());
            if clusters.filter(|c| c.config_status() == ConfigStatus::Synced).count() == 2 {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, synced).await.unwrap();

    let proxy = running.state.connections().iter().find(|c| &*c.node.namespace == "test").unwrap().id.clone();
    let mut delta = operator.delta(None).await.unwrap();
    let request = DeltaDiscoveryRequest {
        type_url: debug::CONFIG_DUMP.to_string(),
        resource_names_subscribe: vec![proxy],
        ..DeltaDiscoveryRequest::default()
    };
    delta.send(request).await.unwrap();
    let sections = delta.next().await.unwrap().resources;
    let clusters =
        sections.iter().filter_map(|r| r.resource.as_ref()).find(|a| a.type_url.ends_with("ClustersConfigDump"));
    assert!(clusters.is_some_and(|any| any.value.windows(9).any(|w| w == b"a.example")));

    let mut other = client.sotw(None).await.unwrap();
    other.send(ask(debug::PAGE, &["configz"])).await.unwrap();
    assert!(other.next().await.is_err(), "configz is for the root namespace");
    end(served.running).await;
}

/// The push that the page asks for is built from the inputs as they stand, by the actor that builds all others: a context that
/// the page itself had read could be older than the one that it replaces.
#[actix::test]
async fn a_push_that_a_page_asks_for_is_built_anew() {
    let served = Served::start().await;
    let (state, http) = (served.running.state.clone(), served.running.addresses.http);
    let before = state.current().unwrap();
    let answer = aside(move || ask(http, "POST /debug/adsz?push=true HTTP/1.0")).await;
    assert!(answer.contains("Pushed to"), "{answer}");
    let pushed = async {
        while !state.events().iter().any(|e| e.version > before.version && e.reasons.iter().any(|(r, _)| *r == "debug"))
        {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, pushed).await.unwrap();
    assert!(!std::sync::Arc::ptr_eq(&state.current().unwrap().context, &before.context));
    end(served.running).await;
}
