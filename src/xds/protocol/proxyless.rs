//! A model of a proxyless client, which subscribes by name only, and random traces of changes: its routes always have clusters
//! and endpoints, and in the end it holds the content in force.
//!
//! The client is as gRPC is: new routes are used once all of their clusters have endpoints, until then the ones before are
//! used, and only then their clusters are no longer named. A cluster that is missing from a response is gone for it. It may
//! leave at any moment without reading responses under way (gRPC-Java does), and come again on the same stream.
//! `PILOTHOUSE_XDS_TRACES` says how many traces are run (see [`super::model`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use proptest::prelude::*;
use prost::Message;

use super::model::{Names, Truth, Wire, names, traces};
use crate::{
    proto::envoy::service::discovery::v3::DiscoveryRequest,
    xds::{
        names::Scope,
        resource_type::{ResourceType, TypeSet},
        views::update::Protocol,
    },
};
use ResourceType::{Cluster, Endpoint, Listener, Route};

/// A load assignment without endpoints.
const NOWHERE: &str = "nowhere";

#[derive(Debug, Clone)]
enum Step {
    /// Clusters and the routes to some of them, by mask, and a version of all clusters.
    Change(u8, u8, u8),
    Serve,
    Hear,
    Read,
    Leave,
    Enter,
    /// The stream breaks. The control plane may have changed meanwhile. The order in which types are asked for again varies.
    Reconnect(Option<(u8, u8)>, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0u8..32, 0u8..32, 0u8..2).prop_map(|(clusters, routed, version)| Step::Change(clusters, routed, version)),
        8 => Just(Step::Serve),
        16 => Just(Step::Hear),
        16 => Just(Step::Read),
        1 => Just(Step::Leave),
        3 => Just(Step::Enter),
        2 => (prop::option::of((0u8..32, 0u8..32)), any::<bool>()).prop_map(|(change, order)| Step::Reconnect(change, order)),
    ];
    prop::collection::vec(step, 0..80)
}

/// The client's state of a cluster.
#[derive(Debug, Clone, Default)]
struct Known {
    /// Whether it exists, once that was told.
    exists: Option<bool>,
    /// Whether it has endpoints, once that was told.
    leads: Option<bool>,
}

impl Known {
    fn is_good(&self) -> bool {
        self.exists == Some(true) && self.leads == Some(true)
    }

    fn is_resolved(&self) -> bool {
        self.exists == Some(false) || (self.exists == Some(true) && self.leads.is_some())
    }
}

struct World {
    wire: Wire,
    now: Instant,
    truth: Truth,
    nonces: BTreeMap<ResourceType, String>,
    asked: BTreeMap<ResourceType, Names>,
    /// The last routes, and those in use.
    routes: Option<Names>,
    in_use: Names,
    known: BTreeMap<String, Known>,
    /// Since the stream broke no routes were taken into use: a cluster that is gone cannot be told again by a new process.
    returns: bool,
    /// A change came while another was under way: a state-of-the-world client cannot tell then which request a response
    /// answers, so only its last resources are compared, until all is at rest again.
    crossing: bool,
    /// The last routes are of this stream.
    fresh: bool,
}

fn content(truth: &Truth, kind: ResourceType, scope: &Scope) -> Vec<(String, Vec<u8>)> {
    assert!(!scope.wildcard, "{kind:?}: a client that names things is never sent everything");
    let texts: Vec<(String, String)> = match kind {
        Cluster => truth.clusters.iter().map(|n| (n.clone(), format!("{n}{}", truth.version))).collect(),
        Endpoint => {
            let leads = |n: &str| if truth.clusters.contains(n) { "somewhere" } else { NOWHERE };
            scope.names.names().iter().map(|n| (n.to_string(), format!("{n}{}", leads(n)))).collect()
        }
        Route => vec![("r".into(), truth.routed.iter().cloned().collect())],
        _ => vec![("l".into(), "l".into())],
    };
    texts.into_iter().map(|(name, text)| (name, text.into_bytes())).collect()
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let mut world = Self {
            wire: Wire::new(Protocol::Sotw, now),
            now,
            truth: Truth::new(),
            nonces: BTreeMap::new(),
            asked: BTreeMap::new(),
            routes: None,
            in_use: Names::new(),
            known: BTreeMap::new(),
            returns: false,
            fresh: true,
            crossing: false,
        };
        world.enter();
        world.settle();
        assert_eq!(world.in_use, names(1));
        world
    }

    fn serve(&mut self) {
        let truth = &self.truth;
        self.wire.serve(|kind, scope| content(truth, kind, scope));
    }

    fn request(&mut self, kind: ResourceType, version: &str) {
        let message = DiscoveryRequest {
            version_info: version.into(),
            resource_names: self.asked.entry(kind).or_default().iter().cloned().collect(),
            response_nonce: self.nonces.get(&kind).cloned().unwrap_or_default(),
            ..Default::default()
        };
        self.wire.to_server.push_back((kind, message.encode_to_vec()));
    }

    /// Asks for these names, if they are others than before. A type of which nothing is asked any more is forgotten.
    fn ask(&mut self, kind: ResourceType, names: Names) {
        if self.asked.get(&kind).cloned().unwrap_or_default() == names {
            return;
        }
        let ends = names.is_empty();
        self.asked.insert(kind, names);
        self.request(kind, "");
        if ends {
            self.nonces.remove(&kind);
        }
    }

    fn enter(&mut self) {
        self.ask(Listener, Names::from(["l".to_string()]));
    }

    fn leave(&mut self) {
        [Route, Endpoint, Cluster, Listener].into_iter().for_each(|kind| self.ask(kind, Names::new()));
        (self.routes, self.in_use, self.returns) = (None, Names::new(), false);
        self.known.clear();
    }

    /// Names the clusters that are used or are to be, and asks for the endpoints of those that exist.
    fn follow(&mut self) {
        let wanted: Names = self.in_use.union(self.routes.as_ref().unwrap_or(&self.in_use)).cloned().collect();
        self.known.retain(|name, _| wanted.contains(name));
        for name in &wanted {
            self.known.entry(name.clone()).or_default();
        }
        self.ask(Cluster, wanted);
        let exist = self.known.iter().filter(|(_, known)| known.exists == Some(true));
        self.ask(Endpoint, exist.map(|(name, _)| name.clone()).collect());
    }

    /// Takes the last routes into use when all of their clusters are resolved.
    fn adopt(&mut self) {
        let Some(routes) = self.routes.clone() else { return };
        if routes.iter().all(|name| self.known.get(name).is_some_and(Known::is_resolved)) {
            let broken: Vec<_> = routes.iter().filter(|name| !self.known[*name].is_good()).collect();
            assert!(broken.is_empty() || self.crossing, "routes to {broken:?} of {:?}", self.known);
            self.in_use = routes;
            self.returns &= !self.fresh;
            self.follow();
        }
    }

    fn read(&mut self) {
        let Some((kind, heard)) = self.wire.read() else { return };
        if self.asked.get(&kind).is_none_or(BTreeSet::is_empty) {
            return;
        }
        self.nonces.insert(kind, heard.nonce);
        self.request(kind, "some");
        let texts = heard.resources.into_iter().map(|(_, value, _)| String::from_utf8(value).unwrap());
        let texts: Vec<String> = texts.collect();
        match kind {
            Listener => self.ask(Route, Names::from(["r".to_string()])),
            Route => {
                self.fresh = true;
                self.routes = texts.first().map(|text| text.chars().map(String::from).collect());
            }
            Cluster => {
                let told: Names = texts.iter().map(|text| text[..1].to_string()).collect();
                for (name, known) in &mut self.known {
                    match told.contains(name) {
                        true => known.exists = Some(true),
                        // One that was never told may be on its way.
                        false if known.exists.is_some() => *known = Known { exists: Some(false), leads: None },
                        false => {}
                    }
                }
            }
            _ => {
                for text in &texts {
                    let asked = self.asked.get(&Endpoint).is_some_and(|names| names.contains(&text[..1]));
                    if let Some(known) = self.known.get_mut(&text[..1]).filter(|_| asked) {
                        known.leads = Some(&text[1..] != NOWHERE);
                    }
                }
            }
        }
        if self.asked.get(&Listener).is_some_and(|l| !l.is_empty()) {
            self.follow();
            self.adopt();
        }
        if !self.returns && !self.crossing {
            let broken: Vec<_> = self.in_use.iter().filter(|name| !self.known[*name].is_good()).collect();
            assert!(broken.is_empty(), "{kind:?}: in use are {broken:?}, and known is {:?}", self.known);
        }
    }

    fn is_at_rest(&self) -> bool {
        self.wire.is_quiet() && self.wire.session.next().is_none()
    }

    fn reconnect(&mut self, other_order: bool) {
        self.wire.reconnect(self.now);
        self.nonces.clear();
        let mut kinds = [Listener, Route, Cluster, Endpoint];
        if other_order {
            kinds.reverse();
        }
        for kind in kinds {
            if self.asked.get(&kind).is_some_and(|names| !names.is_empty()) {
                self.request(kind, "some");
            }
        }
        (self.returns, self.fresh) = (true, false);
        // Its first requests after a reconnect come in one flight.
        (0..4).for_each(|_| self.wire.hear());
    }

    fn change(&mut self, clusters: u8, routed: u8, version: u8) {
        self.truth.change(clusters, routed, version);
        self.wire.session.mark(TypeSet::from_iter([Cluster, Endpoint, Route]));
    }

    fn settle(&mut self) {
        for _ in 0..200 {
            self.serve();
            self.read();
            self.wire.hear();
        }
        assert!(self.wire.is_quiet(), "it never comes to rest");
    }

    fn step(&mut self, step: &Step) {
        let rests = self.is_at_rest();
        if matches!(step, Step::Change(..) | Step::Reconnect(..) | Step::Leave | Step::Enter) {
            self.crossing = !rests;
        }
        match step {
            Step::Change(clusters, routed, version) => self.change(*clusters, *routed, *version),
            Step::Serve => self.serve(),
            Step::Hear => self.wire.hear(),
            Step::Read => self.read(),
            Step::Leave => self.leave(),
            Step::Enter => self.enter(),
            Step::Reconnect(change, order) => {
                if let Some((clusters, routed)) = change {
                    self.change(*clusters, *routed, self.truth.version);
                }
                self.reconnect(*order);
                // A change in the very moment of a return is not promised to be in order.
                self.settle();
            }
        }
    }
}

fn run(steps: &[Step]) {
    let mut world = World::new();
    steps.iter().for_each(|step| world.step(step));
    world.enter();
    world.settle();
    // Nothing hangs on a wait that only time ends.
    assert_eq!((&world.in_use, world.routes.as_ref()), (&world.truth.routed, Some(&world.truth.routed)));
    world.now += Duration::from_secs(120);
    world.wire.session.tick(world.now);
    world.settle();
    assert_eq!(world.in_use, world.truth.routed);
    assert_eq!(world.known.keys().cloned().collect::<Names>(), world.truth.routed);
    assert_eq!(world.wire.session.wake_at(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(traces()))]

    #[test]
    fn destinations_of_routes_have_endpoints(steps in steps()) {
        run(&steps);
    }
}
