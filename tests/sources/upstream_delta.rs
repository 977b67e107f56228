//! The incremental protocol of the upstream source, over mutual TLS with a token.

use std::{collections::BTreeSet, fs, sync::Arc, time::Duration};

use pilothouse::{
    model::{Kind, Mesh, mcp},
    proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource},
    settings::UpstreamSettings,
    sources::{
        SourcePort, SourceState,
        xds::{UpstreamSource, UpstreamTarget},
    },
    testing::{ScriptedStream, ScriptedUpstream},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::{
    DEADLINE,
    recorder::{Recorder, run},
    resources::{URL, bad, entry},
};

type Delta = ScriptedStream<DeltaDiscoveryRequest, DeltaDiscoveryResponse>;
type Upstream = ScriptedUpstream<DeltaDiscoveryRequest, DeltaDiscoveryResponse>;

fn response(type_url: &str, nonce: &str, given: &[(&str, &str, &str)], removed: &[&str]) -> DeltaDiscoveryResponse {
    let resource = |(name, version, host): &(&str, &str, &str)| Resource {
        name: format!("shop/{name}"),
        version: (*version).to_string(),
        resource: Some(if host.is_empty() { bad(name) } else { entry(name, host) }),
        ..Resource::default()
    };
    DeltaDiscoveryResponse {
        type_url: type_url.to_string(),
        nonce: nonce.to_string(),
        resources: given.iter().map(resource).collect(),
        removed_resources: removed.iter().map(|name| format!("shop/{name}")).collect(),
        ..DeltaDiscoveryResponse::default()
    }
}

/// Answers every type with nothing, ServiceEntries with this; gives the stream and the first request for ServiceEntries.
async fn answer(upstream: &mut Upstream, given: &[(&str, &str, &str)]) -> (Delta, DeltaDiscoveryRequest) {
    let mut stream = upstream.accept().await.unwrap();
    let mut left = Kind::ALL.iter().filter(|k| mcp::is_carried(**k)).count();
    let mut first = None;
    while left > 0 {
        let request = stream.next().await.unwrap();
        if !request.response_nonce.is_empty() {
            continue;
        }
        left -= 1;
        let given = if request.type_url == URL { given } else { &[] };
        stream.say(response(&request.type_url, "first", given, &[])).await;
        if request.type_url == URL {
            first = Some(request);
        }
    }
    (stream, first.unwrap())
}

fn start(upstream: &Upstream, settings: &UpstreamSettings) -> (SourcePort, Arc<Recorder>) {
    let target = UpstreamTarget::of_settings(&upstream.address.to_string(), settings, &Mesh::default()).unwrap();
    run(&UpstreamSource::new(target, settings, DEADLINE * 10))
}

fn settings() -> UpstreamSettings {
    UpstreamSettings { delta: true, first_pause: Duration::from_millis(20), ..UpstreamSettings::default() }
}

#[tokio::test]
async fn only_differences_come_and_a_new_stream_continues_from_the_held_versions() {
    let mut upstream = Upstream::start(None).await.unwrap();
    let (port, recorder) = start(&upstream, &settings());
    let (mut stream, first) = answer(&mut upstream, &[("a", "1", "a1"), ("b", "1", "b1"), ("c", "1", "c1")]).await;
    assert_eq!(first.resource_names_subscribe, ["*"]);
    assert!(first.initial_resource_versions.is_empty());
    recorder.until(|told| told.0 == ["a1", "b1", "c1"]).await;
    stream.say(response(URL, "2", &[("a", "2", ""), ("b", "2", "b2")], &["c"])).await;
    let said = loop {
        let request = stream.next().await.unwrap();
        if request.response_nonce == "2" {
            break request;
        }
    };
    assert!(said.error_detail.unwrap().message.contains("shop/a"));
    recorder.until(|told| *told == (vec!["a1".to_string(), "b2".to_string()], 1)).await;
    drop(stream);
    let (_stream, again) = answer(&mut upstream, &[("a", "3", "a3")]).await;
    let held: Vec<_> = again.initial_resource_versions.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(held, [("shop/a", "1"), ("shop/b", "2")], "the version that was refused is asked for again");
    recorder.until(|told| told.0 == ["a3", "b2"]).await;
    port.stop.cancel();
}

/// istiod gives its resources no versions, and reports the missing ones of the names in a request.
#[tokio::test]
async fn objects_deleted_while_disconnected_go_also_when_resources_have_no_versions() {
    let mut upstream = Upstream::start(None).await.unwrap();
    let (port, recorder) = start(&upstream, &settings());
    let (stream, _) = answer(&mut upstream, &[("a", "", "a1"), ("b", "", "b1"), ("c", "", "c1")]).await;
    recorder.until(|told| told.0 == ["a1", "b1", "c1"]).await;
    drop(stream);
    let mut stream = upstream.accept().await.unwrap();
    let request = loop {
        let request = stream.next().await.unwrap();
        if request.type_url == URL {
            break request;
        }
    };
    let names: BTreeSet<&str> = request.initial_resource_versions.keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["shop/a", "shop/b", "shop/c"]));
    // A server that compares versions has to find each of them to be another one.
    assert!(request.initial_resource_versions.values().all(|v| !v.is_empty()));
    let gone: Vec<&str> = names.iter().filter_map(|n| n.strip_prefix("shop/")).filter(|n| *n == "c").collect();
    stream.say(response(URL, "again", &[("a", "", "a2"), ("b", "", "b1")], &gone)).await;
    recorder.until(|told| *told == (vec!["a2".to_string(), "b1".to_string()], 1)).await;
    port.stop.cancel();
}

#[tokio::test]
async fn an_upstream_that_lost_everything_takes_nothing_along() {
    let mut upstream = Upstream::start(None).await.unwrap();
    let (port, recorder) = start(&upstream, &settings());
    let (stream, _) = answer(&mut upstream, &[("a", "1", "a1"), ("b", "1", "b1")]).await;
    recorder.until(|told| told.0.len() == 2).await;
    drop(stream);
    let mut stream = upstream.accept().await.unwrap();
    while stream.next().await.unwrap().type_url != URL {}
    stream.say(response(URL, "gone", &[], &["a", "b"])).await;
    tokio::time::timeout(DEADLINE, port.board.until(|r| r.state == SourceState::Holding)).await.unwrap();
    assert_eq!(recorder.told().1, 0);
    stream.say(response(URL, "back", &[("a", "1", "a1"), ("b", "1", "b1")], &[])).await;
    tokio::time::timeout(DEADLINE, port.board.until(|r| r.state == SourceState::Synced)).await.unwrap();
    assert_eq!(recorder.told().1, 0);
    port.stop.cancel();
}

/// A CA, and a certificate and key that it issued.
fn certificates(dir: &std::path::Path) -> [std::path::PathBuf; 3] {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["upstream.example".to_string()]).unwrap();
    let cert = params.signed_by(&key, &ca).unwrap();
    let written = |name: &str, text: String| {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    [written("ca.pem", ca.pem()), written("cert.pem", cert.pem()), written("key.pem", key.serialize_pem())]
}

#[tokio::test]
async fn both_sides_prove_their_identity_and_the_token_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let [ca, cert, key] = certificates(dir.path());
    let token = dir.path().join("token");
    fs::write(&token, "s3cr3t\n").unwrap();
    let read = |path| fs::read_to_string(path).unwrap();
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(read(&cert), read(&key)))
        .client_ca_root(Certificate::from_pem(read(&ca)));
    let mut upstream = Upstream::start(Some(tls)).await.unwrap();
    let trusted = UpstreamSettings {
        ca: Some(ca.clone()),
        cert: Some(cert),
        key: Some(key),
        server_name: Some("upstream.example".to_string()),
        token_file: Some(token),
        ..settings()
    };
    let (port, recorder) = start(&upstream, &trusted);
    let (stream, _) = answer(&mut upstream, &[("a", "1", "a1")]).await;
    assert_eq!(stream.metadata.get("authorization").unwrap(), "Bearer s3cr3t");
    recorder.until(|told| told.0 == ["a1"]).await;
    port.stop.cancel();

    let other_name = UpstreamSettings { server_name: Some("other.example".to_string()), ..trusted.clone() };
    let nobody = UpstreamSettings { cert: None, key: None, ..trusted };
    for wrong in [other_name, nobody] {
        let (port, recorder) = start(&upstream, &wrong);
        tokio::time::timeout(DEADLINE, port.board.until(|r| !r.last_error.is_empty())).await.unwrap();
        assert!(recorder.batches().is_empty() && port.board.read().state == SourceState::Starting);
        port.stop.cancel();
    }
}
