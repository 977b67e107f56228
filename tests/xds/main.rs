//! The xDS server over the wire, in both protocols: the scenarios of the public xDS conformance harness, and hostile or
//! broken clients.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod debug;
mod delta;
mod faults;
mod load_reports;
mod races;
mod services;
mod sotw;
mod views;

use std::{collections::BTreeMap, time::Duration};

use pilothouse::{
    testing::{AdsClient, Content, FakeGenerator, FakeServer, SotwStream},
    xds::{Backoff, ResourceType, XdsOptions},
};

/// The types that the scenarios run on.
const TYPES: [ResourceType; 4] =
    [ResourceType::Cluster, ResourceType::Listener, ResourceType::Route, ResourceType::Endpoint];

/// A server that holds these names of a type at version 1.
async fn server(kind: ResourceType, names: &[&str]) -> FakeServer {
    server_that_sends_again(kind, names, Duration::from_secs(3600)).await
}

/// The same, and it sends refused content again after this pause. The others never do within a test.
async fn server_that_sends_again(kind: ResourceType, names: &[&str], pause: Duration) -> FakeServer {
    let refused_again = Backoff { first: pause, longest: pause };
    let options = XdsOptions { refused_again, ..XdsOptions::default() };
    let server = FakeServer::start(options).await.expect("a free port");
    set(&server, kind, names, "1");
    server
}

/// A state-of-the-world stream that has asked for all clusters.
async fn watch_clusters(server: &FakeServer) -> SotwStream {
    let client = AdsClient::connect(server.address, "10.0.0.1").await.expect("a connection");
    let mut stream = client.sotw(None).await.expect("a stream");
    stream.subscribe(ResourceType::Cluster, &[], "").await.expect("an open stream");
    stream
}

/// Sets these names of a type to a version, as one change.
fn set(server: &FakeServer, kind: ResourceType, names: &[&str], version: &str) {
    let changes: Vec<_> = names.iter().map(|name| (kind, *name, Some(version))).collect();
    server.set(&changes);
}

/// These names at a version.
fn content(names: &[&str], version: &str) -> Content {
    names.iter().map(|name| ((*name).to_string(), version.to_string())).collect()
}

fn sotw_content(response: &pilothouse::proto::envoy::service::discovery::v3::DiscoveryResponse) -> Content {
    let content: BTreeMap<_, _> = response.resources.iter().map(FakeGenerator::read).collect();
    assert_eq!(content.len(), response.resources.len(), "no name twice");
    content
}

fn delta_content(response: &pilothouse::proto::envoy::service::discovery::v3::DeltaDiscoveryResponse) -> Content {
    let read = |r: &pilothouse::proto::envoy::service::discovery::v3::Resource| {
        let (name, text) = FakeGenerator::read(r.resource.as_ref().expect("a resource"));
        assert_eq!(name, r.name);
        assert!(!r.version.is_empty());
        (name, text)
    };
    response.resources.iter().map(read).collect()
}
