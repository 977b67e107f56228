//! A model of a client in use and random traces of changes: at no moment does it hold a route to a cluster that it lacks or that
//! has no endpoints, and in the end it holds the content in force.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use proptest::prelude::*;
use prost::Message;

use super::model::{Names, Truth, Wire, names, traces};
use crate::{
    proto::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    xds::{
        resource_type::{ResourceType, TypeSet},
        views::update::Protocol,
    },
};
use ResourceType::{Cluster, Endpoint, Route};

#[derive(Debug, Clone)]
enum Step {
    /// Clusters and the routes to them (some of these, by mask), and a version of all clusters.
    Change(u8, u8, u8),
    Serve,
    Hear,
    Read,
    /// The stream breaks, whatever is under way, and the client comes back; in delta with the versions that it holds. Nothing
    /// changes before it has come to rest.
    Reconnect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0u8..32, 0u8..32, 0u8..2).prop_map(|(clusters, routed, version)| Step::Change(clusters, routed, version)),
        4 => Just(Step::Serve),
        8 => Just(Step::Hear),
        8 => Just(Step::Read),
        1 => Just(Step::Reconnect),
    ];
    prop::collection::vec(step, 0..60)
}

struct World {
    protocol: Protocol,
    wire: Wire,
    truth: Truth,
    nonces: BTreeMap<usize, String>,
    /// Clusters that the client holds, and whether it was told their endpoints since it has them.
    held: BTreeMap<String, bool>,
    routes: Names,
    /// Versions of its resources, by type and name (delta).
    versions: BTreeMap<(usize, String), String>,
}

fn content(truth: &Truth, kind: ResourceType) -> Vec<(String, Vec<u8>)> {
    let text = |name: &String| [&[truth.version], name.as_bytes()].concat();
    match kind {
        Cluster => truth.clusters.iter().map(|n| (n.clone(), text(n))).collect(),
        Endpoint => truth.clusters.iter().map(|n| (n.clone(), n.clone().into_bytes())).collect(),
        _ => vec![("r".into(), truth.routed.iter().flat_map(|n| n.bytes()).collect())],
    }
}

impl World {
    fn new(protocol: Protocol) -> Self {
        let mut world = Self {
            protocol,
            wire: Wire::new(protocol, Instant::now()),
            truth: Truth::new(),
            nonces: BTreeMap::new(),
            held: BTreeMap::new(),
            routes: Names::new(),
            versions: BTreeMap::new(),
        };
        world.ask(Cluster, &[], &[]);
        world.settle();
        world.ask(Route, &["r".to_string()], &[]);
        world.settle();
        assert_eq!(world.routes, names(1));
        world
    }

    fn serve(&mut self) {
        let truth = &self.truth;
        self.wire.serve(|kind, _| content(truth, kind));
    }

    /// A request; with names to be added and removed it is one of its own, else an acknowledgement.
    fn ask(&mut self, kind: ResourceType, add: &[String], remove: &[String]) {
        let nonce = self.nonces.get(&kind.index()).cloned().unwrap_or_default();
        let message = match self.protocol {
            Protocol::Sotw => {
                let resource_names = match kind {
                    Cluster => vec![],
                    Endpoint => self.held.keys().cloned().collect(),
                    _ => vec!["r".to_string()],
                };
                DiscoveryRequest { resource_names, response_nonce: nonce, ..Default::default() }.encode_to_vec()
            }
            Protocol::Delta => DeltaDiscoveryRequest {
                response_nonce: if add.is_empty() && remove.is_empty() { nonce.clone() } else { String::new() },
                initial_resource_versions: if nonce.is_empty() { self.claims(kind) } else { BTreeMap::new() },
                resource_names_subscribe: add.to_vec(),
                resource_names_unsubscribe: remove.to_vec(),
                ..Default::default()
            }
            .encode_to_vec(),
        };
        self.wire.to_server.push_back((kind, message));
    }

    fn claims(&self, kind: ResourceType) -> BTreeMap<String, String> {
        let of_kind = self.versions.iter().filter(|((k, _), _)| *k == kind.index());
        of_kind.map(|((_, name), version)| (name.clone(), version.clone())).collect()
    }

    /// A client of state of the world sends no versions: removed resources are gone with the first response.
    fn reconnect(&mut self) {
        if self.protocol == Protocol::Sotw {
            return;
        }
        self.wire.reconnect(Instant::now());
        self.nonces.clear();
        self.ask(Cluster, &[], &[]);
        self.ask(Endpoint, &self.held.keys().cloned().collect::<Vec<_>>(), &[]);
        self.ask(Route, &["r".to_string()], &[]);
        // They come in one flight, and a change in the very moment of a return is not promised to be in order.
        self.settle();
    }

    fn read(&mut self) {
        let Some((kind, heard)) = self.wire.read() else { return };
        let whole = self.protocol == Protocol::Sotw && kind == Cluster;
        let (nonce, mut gone) = (heard.nonce, heard.removed);
        if self.protocol == Protocol::Delta {
            let versions = heard.resources.iter().map(|(name, _, v)| ((kind.index(), name.clone()), v.clone()));
            self.versions.extend(versions);
            gone.iter().for_each(|n| drop(self.versions.remove(&(kind.index(), n.clone()))));
        }
        let got: Vec<Vec<u8>> = heard.resources.into_iter().map(|(_, value, _)| value).collect();
        self.nonces.insert(kind.index(), nonce);
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        match kind {
            Cluster => {
                let names: BTreeSet<String> = got.iter().map(|v| text(&v[1..])).collect();
                if whole {
                    gone = self.held.keys().filter(|n| !names.contains(*n)).cloned().collect();
                }
                let added: Vec<String> = names.into_iter().filter(|n| !self.held.contains_key(n)).collect();
                self.held.extend(added.iter().map(|n| (n.clone(), false)));
                gone.retain(|n| self.held.remove(n).is_some());
                gone.iter().for_each(|n| drop(self.versions.remove(&(Endpoint.index(), n.clone()))));
                if !added.is_empty() || !gone.is_empty() {
                    self.ask(Endpoint, &added, &gone);
                }
            }
            Endpoint => {
                for name in got.iter().map(|v| text(v)) {
                    self.held.entry(name).and_modify(|warm| *warm = true);
                }
                self.held.iter_mut().filter(|(n, _)| gone.contains(n)).for_each(|(_, warm)| *warm = false);
            }
            _ => self.routes = got.iter().flat_map(|v| text(v).chars().map(String::from).collect::<Vec<_>>()).collect(),
        }
        self.ask(kind, &[], &[]);
        let broken: Vec<_> = self.routes.iter().filter(|n| self.held.get(*n) != Some(&true)).collect();
        assert!(broken.is_empty(), "{kind:?}: routes to {broken:?}, and of clusters there are {:?}", self.held);
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
        match step {
            Step::Change(clusters, routed, version) => {
                self.truth.change(*clusters, *routed, *version);
                self.wire.session.mark(TypeSet::from_iter([Cluster, Endpoint, Route]));
            }
            Step::Serve => self.serve(),
            Step::Hear => self.wire.hear(),
            Step::Read => self.read(),
            Step::Reconnect => self.reconnect(),
        }
    }
}

fn run(protocol: Protocol, steps: &[Step]) {
    let mut world = World::new(protocol);
    steps.iter().for_each(|step| world.step(step));
    world.settle();
    assert_eq!(world.routes, world.truth.routed);
    assert_eq!(world.held.keys().cloned().collect::<BTreeSet<_>>(), world.truth.clusters);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(traces()))]

    #[test]
    fn no_route_is_ever_without_its_cluster(steps in steps()) {
        run(Protocol::Sotw, &steps);
        run(Protocol::Delta, &steps);
    }
}

#[test]
fn additions_of_a_change_come_first_and_removals_last() {
    for protocol in [Protocol::Sotw, Protocol::Delta] {
        let mut world = World::new(protocol);
        world.step(&Step::Change(0b10, 0b10, 0));
        world.truth.clusters = names(0b10);
        world.truth.routed = names(0b10);
        world.serve();
        let sent = |world: &World| world.wire.to_client.iter().map(|(kind, _)| *kind).collect::<Vec<_>>();
        assert_eq!(sent(&world), [Cluster], "routes wait for the cluster, and the cluster that they leave stays");
        world.read();
        assert_eq!(world.held.keys().collect::<Vec<_>>(), ["a", "b"]);
        world.settle();
        assert_eq!(world.held.into_keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(world.routes, names(0b10));
    }
}
