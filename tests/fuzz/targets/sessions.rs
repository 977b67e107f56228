//! One stream of discovery: any requests, any content, any time.
//!
//! The laws: the session comes to rest, sends nothing that was not asked for, and sends no unchanged resource again
//! unless the client asked, refused or waited.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use pilothouse::{
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
        google::rpc::Status,
    },
    xds::{
        Backoff, Block, Protocol, Resource, ResourceType, Session, Snapshot, TypeSet, Updates, wire::request::Request,
    },
};
use prost::Message;

use super::world::Choices;

const NAMES: [&str; 6] = ["a", "b", "c", "*", "", "d"];

/// Responses of one step: every type, once for each request that may be open, with room to spare.
const MOST_RESPONSES: usize = 64;

/// State of the world.
pub fn sotw_session(data: &[u8]) {
    run(Protocol::Sotw, data);
}

/// Delta.
pub fn delta_session(data: &[u8]) {
    run(Protocol::Delta, data);
}

fn run(protocol: Protocol, data: &[u8]) {
    let mut choices = Choices::of(data);
    let mut now = Instant::now();
    let mut session = Session::new(protocol, 7, Backoff::default(), now);
    if choices.chance(8) {
        session = session.alone();
    }
    let updates = Updates::default();
    let mut nonces: Vec<String> = vec![String::new()];
    let mut version = 0u8;
    let mut content = [0b0000_0111u8; ResourceType::COUNT];
    for _ in 0..200 {
        if choices.is_empty() {
            break;
        }
        let kind = ResourceType::ALL[choices.below(ResourceType::ALL.len())];
        match choices.below(5) {
            0 | 1 => {
                let message = request(protocol, kind, &mut choices, &nonces);
                let walked = match protocol {
                    Protocol::Sotw => Request::sotw(&message),
                    Protocol::Delta => Request::delta(&message),
                };
                let Ok(walked) = walked else { return };
                if session.receive(kind, &walked).is_err() {
                    return;
                }
            }
            2 => {
                content[kind.index()] = choices.byte();
                version = version.wrapping_add(u8::from(choices.chance(2)));
                session.mark(TypeSet::from_iter([kind]));
            }
            3 => {
                now += Duration::from_millis(u64::from(choices.byte()) * 200);
                session.tick(now);
            }
            _ => session.mark(TypeSet::from_iter([kind])),
        }
        serve(&mut session, &updates, &content, version, &mut nonces);
        if let Some(wake) = session.wake_at() {
            assert!(wake > now, "it asks to be woken in the past");
        }
    }
}

fn request(protocol: Protocol, kind: ResourceType, choices: &mut Choices<'_>, nonces: &[String]) -> Vec<u8> {
    if choices.chance(16) {
        return choices.rest(32).to_vec();
    }
    let names = |choices: &mut Choices<'_>| {
        (0..choices.below(4)).map(|_| NAMES[choices.below(NAMES.len())].to_string()).collect::<Vec<_>>()
    };
    let nonce = if choices.chance(2) { nonces.last() } else { nonces.get(choices.below(nonces.len())) };
    let nonce = nonce.cloned().unwrap_or_default();
    let refused = Status { code: 3, message: "no".into(), details: vec![] };
    let error_detail = Some(refused).filter(|_| choices.chance(6));
    let type_url = kind.url().to_string();
    match protocol {
        Protocol::Sotw => DiscoveryRequest {
            type_url,
            resource_names: names(choices),
            response_nonce: nonce,
            version_info: if choices.chance(2) { "1".into() } else { String::new() },
            error_detail,
            ..Default::default()
        }
        .encode_to_vec(),
        Protocol::Delta => DeltaDiscoveryRequest {
            type_url,
            resource_names_subscribe: names(choices),
            resource_names_unsubscribe: names(choices),
            initial_resource_versions: names(choices).into_iter().map(|n| (n, "1".to_string())).collect(),
            response_nonce: nonce,
            error_detail,
            ..Default::default()
        }
        .encode_to_vec(),
    }
}

fn serve(
    session: &mut Session,
    updates: &Updates,
    content: &[u8; ResourceType::COUNT],
    version: u8,
    nonces: &mut Vec<String>,
) {
    let mut offers = 0;
    while let Some((kind, scope)) = session.next() {
        offers += 1;
        assert!(offers <= MOST_RESPONSES, "it never rests");
        let scope = scope.clone();
        let present = (0..6usize).filter(|bit| content[kind.index()] >> bit & 1 == 1);
        let present = present.map(|bit| NAMES[bit]).filter(|name| scope.contains(name));
        let resources = present.map(|name| Arc::new(Resource::of_parts(name, "t", &[version])));
        let target = Snapshot::new(vec![Block::build(resources, None)], scope.clone());
        let Some(response) = session.offer(kind, &target, updates) else { continue };
        assert_eq!(response.kind, kind);
        assert!(!nonces.contains(&response.nonce), "a nonce is used twice");
        let (head, rest) = response.frames();
        let length = head.len() + rest.map_or(0, |r| r.len());
        let announced = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        assert_eq!(length, announced + 5, "the frame says another length than it has");
        nonces.push(response.nonce);
    }
}
