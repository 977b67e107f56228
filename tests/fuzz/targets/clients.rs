//! Messages of network clients: frames, requests, nodes, load reports, questions for debug pages.

use bytes::Bytes;
use pilothouse::{
    discovery::readers,
    model::{Identity, Locality, Node},
    xds::{
        Protocol, readers as framing,
        wire::{WrittenLists, request::Request},
    },
};
use serde_json::Value;
use tonic::Status;

use super::world;

/// Bytes of the reason for which a stream ends: it goes out in a header.
const LONGEST_REASON: usize = 1024;

/// Requests of at most this size are cut out of a body.
const LARGEST: usize = 1 << 16;

fn check_reason(status: &Status) {
    let told = framing::told(status);
    assert!(told.message().len() <= LONGEST_REASON && status.message().starts_with(told.message()));
    assert_eq!(told.code(), status.code());
}

/// A body cut into pieces of the size of its first byte: the messages do not depend on where frames end.
pub fn grpc_frames(data: &[u8]) {
    let Some((size, body)) = data.split_first() else { return };
    let body = Bytes::copy_from_slice(body);
    let size = usize::from(*size).max(1);
    let pieces = (0..body.len()).step_by(size).map(|at| body.slice(at..body.len().min(at + size))).collect();
    let (cut, ended) = framing::messages(pieces, LARGEST);
    let (whole, also_ended) = framing::messages(vec![body.clone()], LARGEST);
    assert_eq!(cut, whole);
    assert_eq!(ended.as_ref().map(|s| s.code()), also_ended.map(|s| s.code()));
    assert!(cut.iter().map(|m| m.len() + 5).sum::<usize>() <= body.len());
    assert!(cut.iter().all(|m| m.len() <= LARGEST));
    ended.iter().for_each(check_reason);
}

fn walk(request: Request<'_>, length: usize) {
    if let Ok(names) = request.names.parse() {
        assert_eq!(names.len(), request.names.count);
        let (star, set) = request.names.parse_set(&WrittenLists::default()).unwrap();
        assert_eq!(star, names.iter().any(|n| &**n == "*"));
        assert!(names.iter().filter(|n| &***n != "*").all(|n| set.contains(n)));
        assert!(set.names().windows(2).all(|pair| pair[0] < pair[1]), "a set is sorted");
    }
    let _ = request.unsubscribe.parse_set(&WrittenLists::default());
    if let Ok(claimed) = framing::claimed(&request) {
        assert!(claimed.len() <= length && claimed.windows(2).all(|pair| pair[0] < pair[1]));
    }
    if let Some(error) = &request.error {
        assert!(error.message.len() <= 3 * 2048);
    }
    assert!(request.names.count + request.unsubscribe.count <= length);
    match readers::node(&request) {
        Ok(node) => assert!(!node.ips.is_empty()),
        Err(status) => check_reason(&status),
    }
}

/// A `DiscoveryRequest`.
pub fn sotw_request(data: &[u8]) {
    match Request::sotw(data) {
        Ok(request) => walk(request, data.len()),
        Err(error) => assert!(error.to_string().len() <= LONGEST_REASON),
    }
}

/// A `DeltaDiscoveryRequest`.
pub fn delta_request(data: &[u8]) {
    match Request::delta(data) {
        Ok(request) => walk(request, data.len()),
        Err(error) => assert!(error.to_string().len() <= LONGEST_REASON),
    }
}

/// An encoded `core.v3.Node`: its resources are generated.
pub fn node(data: &[u8]) {
    let mut message = vec![0x12];
    let mut length = data.len();
    while length >= 0x80 {
        message.push((length as u8 & 0x7f) | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.extend_from_slice(data);
    let Ok(request) = Request::sotw(&message) else { return };
    match readers::node(&request) {
        Ok(node) => world::fixed().serve(&node),
        Err(status) => check_reason(&status),
    }
}

/// A node's id on the first line, its metadata as JSON on the others.
pub fn node_metadata(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (id, metadata) = text.split_once('\n').unwrap_or((&text, "{}"));
    let Ok(metadata @ Value::Object(_)) = serde_json::from_str(metadata) else { return };
    match Node::from_parts(id, metadata, Locality::default()) {
        Ok(node) => world::fixed().serve(&node),
        Err(error) => check_reason(&Status::invalid_argument(error.to_string())),
    }
}

/// Load reports, each behind a byte with its length.
pub fn load_report(data: &[u8]) {
    let Ok(loads) = readers::loads(super::world::pieces(data)) else { return };
    assert!(loads.clusters.len() <= 4096 && loads.clusters.keys().all(|name| name.len() <= 512));
    assert!(serde_json::to_string(&loads).is_ok());
}

/// Requests for debug pages on one stream, each behind a byte with its length.
pub fn debug_question(data: &[u8]) {
    let Some((flags, data)) = data.split_first() else { return };
    let protocol = if flags & 1 == 0 { Protocol::Sotw } else { Protocol::Delta };
    let namespace = if flags & 2 == 0 { "shop" } else { "istio-system" };
    let identity = Identity {
        trust_domain: "cluster.local".into(),
        namespace: namespace.into(),
        service_account: "default".into(),
    };
    let identity = Some(identity).filter(|_| flags & 4 == 0);
    let (questions, ended) = readers::questions(protocol, world::pieces(data), identity.as_ref());
    assert!(questions.len() <= 16, "questions that wait are bounded");
    assert!(identity.is_some() || questions.is_empty(), "a client without a proof gets no answer");
    for question in &questions {
        assert_eq!(question.namespace.is_none(), namespace == "istio-system", "{question:?}");
    }
    ended.iter().for_each(check_reason);
}
