//! A model client for both protocols and random traces of clients and operators: after each trace, a client that goes on
//! acknowledging holds its subscription in full.
//!
//! A trace holds changes, subscriptions and the opposite (by name, of everything, of all at once), refusals, answers that are
//! stale or never come, requests that start over, reconnects with the versions of before, and time that passes. `cargo test`
//! runs some thousand traces; `PILOTHOUSE_XDS_TRACES=25000 cargo test --release --lib xds::protocol` runs that many of each of
//! the four kinds, a hundred thousand in all; with `PROPTEST_RNG_SEED=$RANDOM` before it, other traces than those of CI.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use proptest::prelude::*;
use prost::Message;

use super::model::{NAMES, Names, Wire, names, traces};
use crate::{
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
        google::rpc::Status,
    },
    xds::{
        names::{NameSet, Scope},
        resource_type::{ResourceType, TypeSet},
        views::update::Protocol,
    },
};

type Content = BTreeMap<String, u8>;
/// A value that clients refuse.
const BAD: u8 = 0;

#[derive(Debug, Clone)]
enum Step {
    Set(usize, u8),
    Remove(usize),
    Subscribe(u8),
    Unsubscribe(u8),
    Star(bool),
    /// The client wants nothing any more. Whether it forgets the last nonce and does not read responses under way (as gRPC-Java).
    Leave(bool),
    Serve,
    Hear,
    Read,
    /// The client applies the next response and never answers it.
    ReadInSilence,
    /// The client answers a response of before.
    Stale,
    /// The client starts over on the same stream, as if it held nothing.
    Again,
    Reconnect,
    /// This many seconds pass.
    Wait(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..NAMES.len(), 0u8..4).prop_map(|(n, v)| Step::Set(n, v)),
        1 => (0..NAMES.len()).prop_map(Step::Remove),
        2 => (1u8..32).prop_map(Step::Subscribe),
        2 => (1u8..32).prop_map(Step::Unsubscribe),
        1 => any::<bool>().prop_map(Step::Star),
        6 => Just(Step::Serve),
        6 => Just(Step::Hear),
        6 => Just(Step::Read),
        1 => any::<bool>().prop_map(Step::Leave),
        1 => Just(Step::ReadInSilence),
        1 => Just(Step::Stale),
        1 => Just(Step::Again),
        1 => Just(Step::Reconnect),
        1 => (0u8..70).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..60)
}

struct World {
    kind: ResourceType,
    protocol: Protocol,
    truth: Content,
    wire: Wire,
    wildcard: bool,
    names: Names,
    started: bool,
    /// A client that has named something in a wildcard type has to say `*` to ask for everything.
    ever_named: bool,
    held: Content,
    versions: BTreeMap<String, String>,
    nonce: String,
    /// The nonce before that.
    stale: String,
    now: Instant,
}

impl World {
    fn new(kind: ResourceType, protocol: Protocol) -> Self {
        let now = Instant::now();
        Self {
            kind,
            protocol,
            truth: Content::new(),
            wire: Wire::new(protocol, now),
            stale: String::new(),
            now,
            wildcard: false,
            names: Names::new(),
            started: false,
            ever_named: false,
            held: Content::new(),
            versions: BTreeMap::new(),
            nonce: String::new(),
        }
    }

    fn serve(&mut self) {
        // The value, then the name, so that a state-of-the-world client can tell its content.
        let content = self.truth.iter().map(|(n, v)| (n.clone(), [&[*v], n.as_bytes()].concat()));
        let content: Vec<(String, Vec<u8>)> = content.collect();
        self.wire.serve(|_, _| content.clone());
    }

    fn asks(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    fn request(&mut self, nonce: String, error: bool, add: Vec<String>, remove: Vec<String>) {
        let error_detail = error.then(|| Status { code: 3, message: "bad".into(), details: vec![] });
        let type_url = self.kind.url().to_string();
        let message = match self.protocol {
            Protocol::Sotw => {
                let star = (self.wildcard && self.ever_named).then(|| "*".to_string());
                let resource_names = self.names.iter().cloned().chain(star).collect();
                DiscoveryRequest {
                    version_info: if self.held.is_empty() { String::new() } else { "some".into() },
                    type_url,
                    resource_names,
                    response_nonce: nonce,
                    error_detail,
                    ..Default::default()
                }
                .encode_to_vec()
            }
            Protocol::Delta => DeltaDiscoveryRequest {
                type_url,
                response_nonce: nonce,
                error_detail,
                resource_names_subscribe: add,
                resource_names_unsubscribe: remove,
                initial_resource_versions: if self.started { BTreeMap::new() } else { self.versions.clone() },
                ..Default::default()
            }
            .encode_to_vec(),
        };
        self.started = true;
        self.wire.to_server.push_back((self.kind, message));
    }

    fn start(&mut self) {
        let add = self.names.iter().cloned().chain(self.wildcard.then(|| "*".to_string())).collect();
        // Where an earlier subscription on this stream ended, a client may still name its last nonce.
        let nonce = if self.protocol == Protocol::Sotw { self.nonce.clone() } else { String::new() };
        self.request(nonce, false, add, vec![]);
    }

    fn changed(&mut self, add: Vec<String>, remove: Vec<String>) {
        if !self.started {
            if self.wildcard || !self.names.is_empty() {
                self.start();
            }
        } else {
            let nonce = if self.protocol == Protocol::Sotw { self.nonce.clone() } else { String::new() };
            self.request(nonce, false, add, remove);
            if self.protocol == Protocol::Sotw && !self.wildcard && self.names.is_empty() && !self.kind.is_wildcard() {
                self.started = false;
                self.nonce.clear();
                self.held.clear();
                while !self.wire.to_server.is_empty() {
                    self.wire.hear();
                }
                self.wire.to_client.clear();
            }
        }
    }

    fn quiet(&self) -> bool {
        self.wire.is_quiet()
    }

    fn wait(&mut self, seconds: u8) {
        self.now += Duration::from_secs(seconds.into());
        self.wire.session.tick(self.now);
    }

    /// The client wants nothing any more.
    fn leave(&mut self, forgets: bool) {
        if !self.started || self.protocol == Protocol::Delta || self.wildcard || self.names.is_empty() {
            return;
        }
        self.names.clear();
        self.request(self.nonce.clone(), false, vec![], vec![]);
        self.started = false;
        self.held.clear();
        if forgets {
            self.nonce.clear();
        }
        // A crossing request is not read, or answered with a list that is still empty.
        while !self.quiet() {
            self.wire.hear();
            match self.wire.read() {
                Some(_) if forgets => {}
                Some((_, heard)) => {
                    self.nonce.clone_from(&heard.nonce);
                    self.request(heard.nonce, false, vec![], vec![]);
                    self.started = false;
                }
                None => {}
            }
        }
    }

    fn read(&mut self, answers: bool) {
        let Some((_, heard)) = self.wire.read() else { return };
        let (nonce, gone) = (heard.nonce, heard.removed);
        let of_text = |value: &[u8]| String::from_utf8_lossy(&value[1..]).into_owned();
        let got = heard.resources.into_iter().map(|(_, value, version)| (of_text(&value), value[0], version));
        let got: Vec<(String, u8, String)> = got.collect();
        let distinct: BTreeSet<_> = got.iter().map(|(n, ..)| n).collect();
        assert_eq!(distinct.len(), got.len(), "no name twice");
        let refused = got.iter().any(|(_, value, _)| *value == BAD);
        let whole = self.protocol == Protocol::Sotw && self.kind.is_whole();
        if whole && !refused {
            self.held.clear();
        }
        // Of a refused delta response a client may have applied a part.
        for (name, value, version) in got.into_iter().filter(|(_, v, _)| *v != BAD && !(whole && refused)) {
            if self.asks(&name) {
                self.versions.insert(name.clone(), version);
                self.held.insert(name, value);
            }
        }
        if !refused {
            for name in gone {
                self.held.remove(&name);
                self.versions.remove(&name);
            }
        }
        self.stale = std::mem::replace(&mut self.nonce, nonce.clone());
        if answers || refused {
            self.request(nonce, refused, vec![], vec![]);
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Set(name, value) => {
                self.truth.insert(NAMES[name].into(), value);
                self.wire.session.mark(TypeSet::ALL);
            }
            Step::Remove(name) => {
                self.truth.remove(NAMES[name]);
                self.wire.session.mark(TypeSet::ALL);
            }
            Step::Subscribe(mask) => {
                let add: Vec<String> = names(mask).into_iter().filter(|n| !self.names.contains(n)).collect();
                self.ever_named |= !add.is_empty();
                self.names.extend(add.iter().cloned());
                self.changed(add, vec![]);
            }
            // A state-of-the-world client that gives a name up and takes it back while a response is on its way cannot tell
            // whether the server saw it: that is the protocol's, so the model waits.
            Step::Unsubscribe(mask) if self.protocol == Protocol::Delta || self.quiet() => {
                let remove: Vec<String> = names(mask).into_iter().filter(|n| self.names.remove(n)).collect();
                if !remove.is_empty() {
                    let asked: Vec<String> = self.held.keys().filter(|n| !self.asks(n)).cloned().collect();
                    for name in asked {
                        self.held.remove(&name);
                        self.versions.remove(&name);
                    }
                    self.changed(vec![], remove);
                }
            }
            Step::Star(_) if self.protocol == Protocol::Sotw && !self.kind.is_wildcard() => {}
            // An empty list from a client that never named anything still asks for everything.
            Step::Star(false) if self.protocol == Protocol::Sotw && !self.ever_named => {}
            Step::Star(on) if on != self.wildcard && (self.protocol == Protocol::Delta || self.quiet()) => {
                self.wildcard = on;
                if !on {
                    self.held.retain(|n, _| self.names.contains(n));
                    self.versions.retain(|n, _| self.names.contains(n));
                }
                let star = vec!["*".to_string()];
                if on { self.changed(star, vec![]) } else { self.changed(vec![], star) }
            }
            Step::Unsubscribe(_) | Step::Star(_) => {}
            Step::Serve => self.serve(),
            Step::Hear => self.wire.hear(),
            Step::Read => self.read(true),
            Step::ReadInSilence => self.read(false),
            Step::Leave(forgets) => self.leave(forgets),
            Step::Stale if self.started && !self.stale.is_empty() => {
                self.request(self.stale.clone(), false, vec![], vec![]);
            }
            Step::Again if self.started && self.quiet() => {
                self.held.clear();
                self.versions.clear();
                match self.protocol {
                    Protocol::Sotw => self.request(String::new(), false, vec![], vec![]),
                    Protocol::Delta => self.start(),
                }
            }
            Step::Stale | Step::Again => {}
            Step::Wait(seconds) => self.wait(seconds),
            Step::Reconnect => {
                self.wire.reconnect(self.now);
                self.stale.clear();
                self.nonce.clear();
                self.started = false;
                self.ever_named = !self.names.is_empty();
                if self.wildcard || !self.names.is_empty() {
                    self.start();
                }
            }
        }
    }

    fn settle(&mut self) {
        for value in self.truth.values_mut().filter(|v| **v == BAD) {
            *value = 9;
        }
        self.wire.session.mark(TypeSet::ALL);
        // The pauses after refusals, and the wait for answers that never come, end.
        for _ in 0..4 {
            for _ in 0..50 {
                self.wire.hear();
                self.serve();
                self.read(true);
            }
            self.wait(40);
        }
    }
}

fn check(mut world: World, steps: Vec<Step>) -> Result<(), TestCaseError> {
    for step in steps {
        world.step(step);
    }
    world.settle();
    prop_assert!(world.quiet(), "the two come to rest");
    let want: Content = world.truth.iter().filter(|(n, _)| world.asks(n)).map(|(n, v)| (n.clone(), *v)).collect();
    if world.protocol == Protocol::Sotw && !world.kind.is_whole() {
        // Removals of these types are not told in this protocol.
        world.held.retain(|n, _| want.contains_key(n));
    }
    prop_assert_eq!(&world.held, &want);
    world.wire.session.mark(TypeSet::ALL);
    world.serve();
    prop_assert!(world.quiet(), "nothing is sent when nothing changed");
    Ok(())
}

#[test]
fn sets_of_names_matter_not_their_order() {
    let names = |list: &[&str]| NameSet::of(list.iter().map(|n| Arc::from(*n)));
    assert_eq!(Scope::of(names(&["a", "b"])).key(), Scope::of(names(&["b", "a"])).key());
}

/// A client gives a name up, asks for everything, and reads a response with the name that the server waits for no longer.
#[test]
fn a_response_that_was_given_up_may_be_read_after_all() {
    let steps = vec![
        Step::Subscribe(16),
        Step::Set(4, 1),
        Step::Unsubscribe(16),
        Step::Hear,
        Step::Star(true),
        Step::Serve,
        Step::Set(0, 1),
        Step::Wait(30),
        Step::Remove(4),
    ];
    // The name is given up before the response is, or after.
    let before = vec![
        Step::Subscribe(8),
        Step::Subscribe(20),
        Step::Serve,
        Step::Set(2, 1),
        Step::Subscribe(12),
        Step::Serve,
        Step::Hear,
        Step::Read,
        Step::Hear,
        Step::Subscribe(1),
        Step::Subscribe(1),
        Step::Hear,
        Step::Unsubscribe(12),
        Step::Star(true),
        Step::Serve,
        Step::Hear,
        Step::Hear,
        Step::Hear,
        Step::Wait(30),
        Step::Remove(2),
    ];
    for (kind, steps) in
        [ResourceType::Listener, ResourceType::Endpoint].into_iter().flat_map(|kind| [(kind, &steps), (kind, &before)])
    {
        check(World::new(kind, Protocol::Delta), steps.clone()).unwrap();
    }
}

/// A removal that goes out beside a faulty resource is told again when that is refused.
#[test]
fn a_removal_beside_a_refused_resource_is_told_again() {
    let steps = vec![
        Step::Set(3, BAD),
        Step::Star(true),
        Step::Set(2, 1),
        Step::Hear,
        Step::Serve,
        Step::Read,
        Step::Hear,
        Step::Remove(2),
        Step::Wait(1),
        Step::Serve,
    ];
    for kind in [ResourceType::Listener, ResourceType::Endpoint] {
        check(World::new(kind, Protocol::Delta), steps.clone()).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(traces()))]

    #[test]
    fn sotw_whole(steps in steps()) {
        check(World::new(ResourceType::Cluster, Protocol::Sotw), steps)?;
    }

    #[test]
    fn sotw_by_name(steps in steps()) {
        check(World::new(ResourceType::Route, Protocol::Sotw), steps)?;
    }

    #[test]
    fn delta_whole(steps in steps()) {
        check(World::new(ResourceType::Listener, Protocol::Delta), steps)?;
    }

    #[test]
    fn delta_by_name(steps in steps()) {
        check(World::new(ResourceType::Endpoint, Protocol::Delta), steps)?;
    }
}
