//! Messages of another control plane.

use std::time::{Duration, Instant};

use pilothouse::{
    model::{Config, Kind, Origin, document, mcp},
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse},
        istio::mcp::v1alpha1::Resource,
    },
    sources::xds::{Answer, Client, Protocol},
};
use prost::Message;

use super::world::{Choices, pieces};

/// Objects that may be held.
const MOST: usize = 64;

fn run(protocol: Protocol, data: &[u8], read: fn(&[u8]) -> Option<Answer>) {
    let mut client = Client::new("up".into(), protocol, Duration::from_secs(5), MOST, "v1");
    client.open();
    let mut now = Instant::now();
    for piece in pieces(data).take(32) {
        let Some(answer) = read(piece) else {
            now += Duration::from_secs(u64::from(piece.first().copied().unwrap_or_default()));
            client.commit(now);
            if piece.len() == 1 {
                client.open();
            }
            continue;
        };
        let (nonce, resources) = (answer.nonce.clone(), answer.resources.len());
        let reply = client.receive(answer);
        assert_eq!(reply.is_some(), !nonce.is_empty(), "an answer with a nonce is replied to");
        if let Some(reply) = reply {
            assert_eq!(reply.nonce, nonce);
            let refusal = reply.refusal.unwrap_or_default();
            assert!(refusal.len() <= 16 << 10, "a refusal of {} bytes for {resources} resources", refusal.len());
        }
        let change = client.commit(now);
        assert!(client.len() <= MOST, "more is held than is allowed");
        assert_eq!(client.len(), client.in_force().len());
        let _ = (change, client.findings(), client.held(), client.kept());
    }
}

/// Answers in state of the world, each behind a byte with its length.
pub fn upstream_sotw(data: &[u8]) {
    run(Protocol::Sotw, data, |piece| DiscoveryResponse::decode(piece).ok().map(Answer::from));
}

/// Delta answers.
pub fn upstream_delta(data: &[u8]) {
    run(Protocol::Delta, data, |piece| DeltaDiscoveryResponse::decode(piece).ok().map(Answer::from));
}

/// A resource of a kind that the first byte names. What is taken can be sent on, and is read the same.
pub fn mcp_resource(data: &[u8]) {
    let mut choices = Choices::of(data);
    let kind = Kind::ALL[choices.below(Kind::ALL.len())];
    let Ok(resource) = Resource::decode(choices.all()) else { return };
    let version = kind.api_version();
    let Ok(config) = mcp::from_resource(kind, &version, resource, Origin::default()) else { return };
    assert_eq!(config.kind(), kind);
    if !mcp::is_carried(kind) {
        return;
    }
    let Ok(sent) = mcp::to_resource(&config) else { return };
    let back = mcp::from_resource(kind, &config.meta.api_version, sent, Origin::default());
    let back = back.unwrap_or_else(|error| panic!("{}: {error}", config.key()));
    assert_eq!(back.key(), config.key());
    let spec = |config: &Config| document(config).map(|d| d["spec"].clone()).unwrap_or_default();
    assert_eq!(spec(&back), spec(&config), "{}", config.key());
}
