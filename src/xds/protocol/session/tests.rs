//! Traces of single clients, in virtual time: the responses to each, and their times.

use prost::Message;

use super::*;
use crate::{
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
        google::rpc::Status,
    },
    xds::views::resource::{Block, Resource},
};
use ResourceType::{Cluster, Endpoint, Listener, Route, Secret};

/// Names and texts.
type Content = BTreeMap<&'static str, &'static str>;

/// A stream and the content in force.
struct Trace {
    session: Session,
    updates: Updates,
    truth: BTreeMap<ResourceType, Content>,
    /// Names that each type is asked for, and the last nonce, as a client of state of the world keeps them.
    asked: BTreeMap<ResourceType, Vec<&'static str>>,
    nonces: BTreeMap<ResourceType, String>,
}

/// A response: its type, `name=text` of each resource, names that are gone.
type Sent = (ResourceType, Vec<String>, Vec<String>);

fn sent(kind: ResourceType, resources: &[&str]) -> Sent {
    (kind, resources.iter().map(ToString::to_string).collect(), vec![])
}

impl Trace {
    fn new(protocol: Protocol, truth: &[(ResourceType, &[(&'static str, &'static str)])]) -> Self {
        Self {
            session: Session::new(protocol, 7, Backoff::default(), Instant::now()),
            updates: Updates::default(),
            truth: truth.iter().map(|(kind, content)| (*kind, content.iter().copied().collect())).collect(),
            asked: BTreeMap::new(),
            nonces: BTreeMap::new(),
        }
    }

    /// A proxyless client at rest, whose route names this cluster.
    fn grpc(cluster: &'static str) -> Self {
        let truth: &[(ResourceType, &[_])] = &[
            (Listener, &[("l", "1")]),
            (Route, &[("r", cluster)]),
            (Cluster, &[(cluster, "1")]),
            (Endpoint, &[(cluster, "1")]),
        ];
        let mut trace = Self::new(Protocol::Sotw, truth);
        for (kind, name) in [(Listener, "l"), (Route, "r"), (Cluster, cluster), (Endpoint, cluster)] {
            trace.ask(kind, &[name]);
            assert_eq!(trace.serve().len(), 1, "{kind:?}");
            trace.accept(kind);
        }
        assert_eq!(trace.serve(), []);
        trace
    }

    fn receive(&mut self, kind: ResourceType, request: &DiscoveryRequest) -> Received {
        let bytes = request.encode_to_vec();
        self.session.receive(kind, &Request::sotw(&bytes).unwrap()).unwrap()
    }

    fn request(&mut self, kind: ResourceType) -> DiscoveryRequest {
        DiscoveryRequest {
            resource_names: self.asked.entry(kind).or_default().iter().map(ToString::to_string).collect(),
            response_nonce: self.nonces.entry(kind).or_default().clone(),
            ..Default::default()
        }
    }

    /// Asks for these names, with the nonce of the last response.
    fn ask(&mut self, kind: ResourceType, names: &[&'static str]) -> Received {
        self.asked.insert(kind, names.to_vec());
        let request = self.request(kind);
        self.receive(kind, &request)
    }

    fn accept(&mut self, kind: ResourceType) -> Received {
        let request = self.request(kind);
        self.receive(kind, &request)
    }

    fn refuse(&mut self, kind: ResourceType) {
        let error_detail = Some(Status { code: 3, message: "no such file".into(), details: vec![] });
        let request = DiscoveryRequest { error_detail, ..self.request(kind) };
        self.receive(kind, &request);
    }

    fn delta(&mut self, kind: ResourceType, add: &[&str], remove: &[&str], nonce: &str) {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let request = DeltaDiscoveryRequest {
            resource_names_subscribe: list(add),
            resource_names_unsubscribe: list(remove),
            response_nonce: nonce.into(),
            ..Default::default()
        };
        let bytes = request.encode_to_vec();
        self.session.receive(kind, &Request::delta(&bytes).unwrap()).unwrap();
    }

    fn set(&mut self, kind: ResourceType, content: &[(&'static str, &'static str)]) {
        self.truth.insert(kind, content.iter().copied().collect());
        self.session.mark(TypeSet::from_iter([kind]));
    }

    fn wait(&mut self, time: Duration) {
        let now = self.session.now + time;
        self.session.tick(now);
    }

    /// All that goes out now. Nonces are kept as the client gets them.
    fn serve(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        for _ in 0..100 {
            let Some((kind, scope)) = self.session.next() else { return all };
            let scope = scope.clone();
            // As the generator does: an unknown cluster gets an empty load assignment.
            let mut content = self.truth.get(&kind).cloned().unwrap_or_default();
            if kind == Endpoint {
                for name in self.asked.get(&kind).into_iter().flatten() {
                    content.entry(name).or_insert("none");
                }
            }
            let content = content.iter().filter(|(name, _)| scope.contains(name));
            let resources = content.map(|(n, v)| Arc::new(Resource::of_parts(*n, "t", format!("{n}={v}").as_bytes())));
            let target = Snapshot::new(vec![Block::build(resources, None)], scope);
            let Some(response) = self.session.offer(kind, &target, &self.updates) else { continue };
            let value = |r: &Arc<Resource>| String::from_utf8_lossy(&r.any()[5..]).into_owned();
            let changed = response.update.difference.changed.iter();
            let changed = match self.session.protocol() {
                Protocol::Sotw if kind.is_whole() => {
                    self.session.subscription(kind).unwrap().sent().unwrap().iter().map(value).collect()
                }
                _ => changed.map(value).collect(),
            };
            let gone = match self.session.protocol() {
                Protocol::Sotw => vec![],
                Protocol::Delta => response.update.difference.gone.iter().map(ToString::to_string).collect(),
            };
            all.push((kind, changed, gone));
            self.nonces.insert(kind, response.nonce);
        }
        panic!("it never rests: {all:?}");
    }
}

#[test]
fn a_client_that_drops_its_clusters_while_a_response_crosses_is_not_waited_for() {
    let mut client = Trace::grpc("a");
    let before = client.nonces.clone();
    client.set(Cluster, &[("a", "2")]);
    assert_eq!(client.serve()[0], sent(Cluster, &["a=2"]));
    // gRPC-Java does not read types that it watches no longer, and remembers the nonce that it answered last.
    client.nonces.clone_from(&before);
    assert_eq!(client.ask(Cluster, &[]), Received::Ended);
    client.ask(Endpoint, &[]);
    client.set(Cluster, &[]);
    client.set(Listener, &[("l", "2")]);
    client.set(Route, &[("r", "none")]);
    assert_eq!(client.serve(), [sent(Listener, &["l=2"]), sent(Route, &["r=none"])]);
}

#[test]
fn an_empty_list_of_a_client_that_has_named_something_never_asks_for_everything() {
    for nonce in ["", "stale"] {
        let mut client = Trace::new(Protocol::Sotw, &[(Cluster, &[("a", "1"), ("b", "1")])]);
        client.ask(Cluster, &["a"]);
        client.nonces.insert(Cluster, nonce.into());
        assert_eq!(client.ask(Cluster, &[]), Received::Ended);
        assert_eq!(client.ask(Cluster, &[]), Received::Ended);
        assert_eq!(client.serve(), []);
        client.nonces.clear();
        assert_eq!(client.ask(Cluster, &["b"]), Received::Started);
        assert_eq!(client.serve(), [sent(Cluster, &["b=1"])]);
    }
}

#[test]
fn secrets_come_after_none_and_a_missing_one() {
    let mut client = Trace::new(Protocol::Sotw, &[(Secret, &[("a", "1"), ("b", "1")])]);
    client.ask(Secret, &["a"]);
    assert_eq!(client.serve(), [sent(Secret, &["a=1"])]);
    client.accept(Secret);
    client.ask(Secret, &[]);
    client.ask(Secret, &["missing"]);
    assert_eq!(client.serve(), []);
    client.ask(Secret, &["b"]);
    assert_eq!(client.serve(), [sent(Secret, &["b=1"])]);
    client.accept(Secret);
    client.set(Secret, &[("b", "2")]);
    assert_eq!(client.serve(), [sent(Secret, &["b=2"])]);
}

#[test]
fn a_name_that_is_given_up_under_a_wildcard_is_answered() {
    let mut client = Trace::new(Protocol::Delta, &[(Cluster, &[("a", "1"), ("b", "1")])]);
    client.delta(Cluster, &["*", "a", "gone"], &[], "");
    assert_eq!(client.serve(), [(Cluster, vec!["a=1".into(), "b=1".into()], vec!["gone".into()])]);
    let nonce = client.nonces[&Cluster].clone();
    client.delta(Cluster, &[], &[], &nonce);
    client.delta(Cluster, &[], &["a", "gone"], "");
    assert_eq!(client.serve(), [(Cluster, vec!["a=1".into()], vec!["gone".into()])]);
    let nonce = client.nonces[&Cluster].clone();
    client.delta(Cluster, &["b"], &["*"], &nonce);
    client.delta(Cluster, &[], &["b"], "");
    client.serve();
    let nonce = client.nonces[&Cluster].clone();
    client.delta(Cluster, &[], &[], &nonce);
    assert_eq!(client.serve(), [], "without a wildcard nothing is owed");
}

#[test]
fn a_client_that_names_its_clusters_keeps_one_until_it_drops_the_name() {
    let mut client = Trace::grpc("old");
    // A subset is renamed: one change of clusters, endpoints and routes.
    client.set(Cluster, &[("new", "1")]);
    client.set(Endpoint, &[("new", "1")]);
    client.set(Route, &[("r", "new")]);
    assert_eq!(client.serve(), [sent(Route, &["r=new"])], "the client is left with the old cluster and its endpoints");
    client.accept(Route);
    assert_eq!(client.serve(), []);
    client.ask(Cluster, &["new", "old"]);
    assert_eq!(client.serve(), [sent(Cluster, &["old=1", "new=1"])]);
    client.accept(Cluster);
    client.ask(Endpoint, &["new", "old"]);
    assert_eq!(client.serve(), [sent(Endpoint, &["new=1"])]);
    client.accept(Endpoint);
    client.set(Cluster, &[("new", "2")]);
    assert_eq!(client.serve()[0], sent(Cluster, &["old=1", "new=2"]), "also when others change");
    client.accept(Cluster);
    client.accept(Endpoint);
    client.ask(Cluster, &["new"]);
    client.ask(Endpoint, &["new"]);
    assert_eq!(client.serve(), []);
    client.set(Cluster, &[("new", "3")]);
    assert_eq!(client.serve()[0], sent(Cluster, &["new=3"]));
}

#[test]
fn a_cluster_that_is_gone_is_kept_for_a_time_at_most() {
    let mut client = Trace::grpc("old");
    client.set(Cluster, &[]);
    client.set(Endpoint, &[]);
    assert_eq!(client.serve(), []);
    client.wait(LINGER - Duration::from_millis(1));
    assert_eq!(client.serve(), []);
    assert!(client.session.wake_at().is_some());
    client.wait(Duration::from_millis(1));
    assert_eq!(client.serve()[0], sent(Cluster, &[]), "the route names it, and it does not exist");
    client.accept(Cluster);
    client.accept(Endpoint);
    client.serve();
    assert_eq!(client.session.wake_at(), None);
}

/// The requests of a client that comes back with a cluster which was renamed meanwhile, in this order of types.
fn comes_back(order: [ResourceType; 4]) -> Trace {
    let truth: &[(ResourceType, &[_])] =
        &[(Listener, &[("l", "1")]), (Route, &[("r", "new")]), (Cluster, &[("new", "1")]), (Endpoint, &[("new", "1")])];
    let mut client = Trace::new(Protocol::Sotw, truth);
    let names = BTreeMap::from([(Listener, "l"), (Route, "r"), (Cluster, "old"), (Endpoint, "old")]);
    for kind in order {
        client.asked.insert(kind, vec![names[&kind]]);
        let request = DiscoveryRequest { version_info: "before".into(), ..client.request(kind) };
        assert_eq!(client.receive(kind, &request), Received::Started);
    }
    client
}

#[test]
fn a_client_that_comes_back_with_a_cluster_is_told_that_it_is_gone_after_the_routes() {
    for order in [
        [Cluster, Endpoint, Listener, Route],
        [Endpoint, Route, Listener, Cluster],
        [Listener, Route, Endpoint, Cluster],
    ] {
        let mut client = comes_back(order);
        assert_eq!(client.serve(), [sent(Listener, &["l=1"]), sent(Route, &["r=new"])], "{order:?}");
        client.accept(Listener);
        assert_eq!(client.serve(), []);
        client.ask(Cluster, &["new", "old"]);
        client.accept(Route);
        assert_eq!(client.serve(), [sent(Cluster, &["new=1"])]);
        client.accept(Cluster);
        client.ask(Endpoint, &["new"]);
        assert_eq!(
            client.serve(),
            [sent(Endpoint, &["new=1"])],
            "{order:?}: nothing is said of the old one's endpoints"
        );
    }
}

/// Envoy acknowledges clusters when those that are new to it have their endpoints.
#[test]
fn endpoints_of_new_clusters_do_not_wait_for_the_acknowledgement_that_waits_for_them() {
    let truth: &[(ResourceType, &[_])] = &[(Cluster, &[("new", "1")]), (Endpoint, &[("new", "1")])];
    let mut client = Trace::new(Protocol::Delta, truth);
    for (kind, names) in [(Cluster, vec![]), (Endpoint, vec!["old".to_string()])] {
        let request = DeltaDiscoveryRequest {
            resource_names_subscribe: names,
            initial_resource_versions: [("old".to_string(), "before".to_string())].into(),
            ..Default::default()
        };
        client.session.receive(kind, &Request::delta(&request.encode_to_vec()).unwrap()).unwrap();
    }
    assert_eq!(client.serve(), [sent(Cluster, &["new=1"])]);
    client.session.mark(TypeSet::from_iter([Cluster, Endpoint]));
    client.delta(Endpoint, &["new"], &[], "");
    assert_eq!(client.serve(), [sent(Endpoint, &["new=1"])]);

    let mut client = Trace::new(Protocol::Sotw, truth);
    for (kind, names) in [(Cluster, vec![]), (Endpoint, vec!["old"])] {
        client.asked.insert(kind, names);
        let request = DiscoveryRequest { version_info: "before".into(), ..client.request(kind) };
        client.receive(kind, &request);
    }
    assert_eq!(client.serve(), [sent(Cluster, &["new=1"]), sent(Endpoint, &["old=none"])]);
    client.session.mark(TypeSet::from_iter([Cluster, Endpoint]));
    client.ask(Endpoint, &["new", "old"]);
    assert_eq!(client.serve(), [sent(Endpoint, &["new=1"])]);
}

#[test]
fn endpoints_that_are_asked_for_ahead_of_their_clusters_wait_for_a_moment() {
    let mut client = Trace::new(Protocol::Sotw, &[(Endpoint, &[("a", "1")])]);
    client.asked.insert(Endpoint, vec!["a"]);
    let request = DiscoveryRequest { version_info: "before".into(), ..client.request(Endpoint) };
    client.receive(Endpoint, &request);
    assert_eq!(client.serve(), []);
    client.wait(FLIGHT);
    assert_eq!(client.serve(), [sent(Endpoint, &["a=1"])]);
}

#[test]
fn a_client_that_comes_back_and_asks_for_no_routes_is_answered_in_time() {
    let mut client = Trace::new(Protocol::Sotw, &[(Cluster, &[("a", "1")])]);
    client.asked.insert(Cluster, vec!["a", "old"]);
    let request = DiscoveryRequest { version_info: "before".into(), ..client.request(Cluster) };
    client.receive(Cluster, &request);
    assert_eq!(client.serve(), []);
    client.wait(PATIENCE);
    assert_eq!(client.serve(), [sent(Cluster, &["a=1"])]);
}

#[test]
fn nothing_waits_for_ever_for_an_answer() {
    let mut client = Trace::grpc("a");
    client.set(Cluster, &[("a", "2")]);
    assert_eq!(client.serve()[0], sent(Cluster, &["a=2"]));
    client.set(Cluster, &[("a", "3")]);
    client.set(Listener, &[("l", "2")]);
    assert_eq!(client.serve(), [], "the first response is not answered");
    client.wait(PATIENCE);
    assert_eq!(client.serve(), [sent(Listener, &["l=2"])]);
    client.wait(UNANSWERED - PATIENCE);
    assert_eq!(client.serve()[0], sent(Cluster, &["a=3"]));
    client.wait(UNANSWERED * 10);
    assert_eq!(client.serve().iter().filter(|(kind, ..)| *kind == Cluster).count(), 0, "nothing is newer");
}

#[test]
fn an_unanswered_response_is_sent_again_with_newer_content() {
    let mut client = Trace::new(Protocol::Delta, &[(Endpoint, &[("a", "1"), ("b", "1")])]);
    client.delta(Endpoint, &["a", "b"], &[], "");
    client.serve();
    let nonce = client.nonces[&Endpoint].clone();
    client.delta(Endpoint, &[], &[], &nonce);
    client.set(Endpoint, &[("a", "2"), ("b", "1")]);
    assert_eq!(client.serve(), [sent(Endpoint, &["a=2"])]);
    client.set(Endpoint, &[("a", "1"), ("b", "1")]);
    client.wait(UNANSWERED);
    assert_eq!(
        client.serve(),
        [sent(Endpoint, &["a=1"])],
        "the client may have applied the response that it did not answer"
    );
}

#[test]
fn refused_content_is_sent_again_after_growing_pauses() {
    for protocol in [Protocol::Sotw, Protocol::Delta] {
        let mut client = Trace::new(protocol, &[(Listener, &[("a", "file")])]);
        match protocol {
            Protocol::Sotw => drop(client.ask(Listener, &[])),
            Protocol::Delta => client.delta(Listener, &["*"], &[], ""),
        }
        let mut pauses = Vec::new();
        for _ in 0..7 {
            assert_eq!(client.serve(), [sent(Listener, &["a=file"])]);
            let refusal = DeltaDiscoveryRequest {
                response_nonce: client.nonces[&Listener].clone(),
                error_detail: Some(Status { code: 3, message: "no such file".into(), details: vec![] }),
                ..Default::default()
            };
            match protocol {
                Protocol::Sotw => client.refuse(Listener),
                Protocol::Delta => {
                    let bytes = refusal.encode_to_vec();
                    client.session.receive(Listener, &Request::delta(&bytes).unwrap()).unwrap();
                }
            }
            assert_eq!(client.serve(), []);
            let pause = client.session.wake_at().unwrap() - client.session.now;
            client.wait(pause - Duration::from_millis(1));
            assert_eq!(client.serve(), []);
            client.wait(Duration::from_millis(1));
            pauses.push(pause);
        }
        assert!(pauses.is_sorted() && pauses[0] >= Duration::from_millis(700) && pauses[1] > pauses[0], "{pauses:?}");
        assert!(pauses.iter().all(|p| *p <= Backoff::default().longest), "{pauses:?}");
        assert_eq!(client.serve(), [sent(Listener, &["a=file"])]);
        let nonce = client.nonces[&Listener].clone();
        match protocol {
            Protocol::Sotw => drop(client.accept(Listener)),
            Protocol::Delta => client.delta(Listener, &[], &[], &nonce),
        }
        assert_eq!((client.serve(), client.session.wake_at()), (vec![], None), "the file is there");
    }
}

#[test]
fn refused_content_goes_along_with_later_changes() {
    let mut client = Trace::new(Protocol::Delta, &[(Listener, &[("a", "file"), ("b", "1")])]);
    client.delta(Listener, &["*"], &[], "");
    client.serve();
    let refusal = DeltaDiscoveryRequest {
        response_nonce: client.nonces[&Listener].clone(),
        error_detail: Some(Status { code: 3, message: "no such file".into(), details: vec![] }),
        ..Default::default()
    };
    let bytes = refusal.encode_to_vec();
    client.session.receive(Listener, &Request::delta(&bytes).unwrap()).unwrap();
    for _ in 0..6 {
        // Well into the longest pause.
        client.session.tick(client.session.wake_at().unwrap());
        client.serve();
        let bytes = DeltaDiscoveryRequest {
            response_nonce: client.nonces[&Listener].clone(),
            error_detail: Some(Status { code: 3, message: "no such file".into(), details: vec![] }),
            ..Default::default()
        }
        .encode_to_vec();
        client.session.receive(Listener, &Request::delta(&bytes).unwrap()).unwrap();
    }
    client.wait(Backoff::default().first);
    client.set(Listener, &[("a", "file"), ("b", "1"), ("c", "1")]);
    assert_eq!(client.serve(), [sent(Listener, &["a=file", "b=1", "c=1"])]);
}
