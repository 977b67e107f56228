//! Changes that once were lost, each by itself.

use serde_json::{Value, json};

use super::{
    World,
    documents::{document, entry, read, slice, with},
    merge,
};
use crate::model::{ConfigKey, PushRequest};

/// A world of these objects.
fn world(documents: &[Value]) -> World {
    let objects = documents.iter().map(read).map(|c| (c.key(), c));
    World::new(super::mesh(0), objects.collect())
}

impl World {
    fn put(&mut self, document: &Value) -> Option<PushRequest> {
        let new = read(document);
        self.change(&[(new.key(), Some(new))])
    }

    fn delete(&mut self, document: &Value) -> Option<PushRequest> {
        self.change(&[(read(document).key(), None::<std::sync::Arc<_>>)])
    }

    /// Publishes the request, and demands that clients that stayed are offered the same as by a fresh process.
    fn settles(&mut self, request: Option<PushRequest>) {
        let before = self.read();
        request.into_iter().for_each(|request| self.publish(&request));
        assert_eq!(self.differences(), Vec::<String>::new());
        assert_ne!(self.read(), before, "the change matters to a client");
    }

    /// Views that the last publication may have changed; a reader of config objects looks at every new list of them.
    fn looked(&self) -> u64 {
        self.state.events().first().map_or(0, |event| event.views)
    }

    fn holds(&mut self, client: &str, kind: &str, name: &str) -> bool {
        self.read().keys().any(|(c, k, n)| c == client && *k == kind && n == name)
    }
}

fn key(document: &Value) -> ConfigKey {
    read(document).key()
}

fn workload(address: &str) -> Value {
    document("WorkloadEntry", "shop/w1", json!({"address": address, "labels": {"app": "w"}, "serviceAccount": "w"}))
}

fn service(export_to: &str) -> Value {
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080}, {"name": "tcp", "port": 90}]);
    let service =
        document("Service", "shop/a", json!({"selector": {"app": "one"}, "clusterIP": "10.5.0.1", "ports": ports}));
    with(service, "annotations", json!({"networking.istio.io/exportTo": export_to}))
}

fn pod(labels: Value) -> Value {
    let mut pod = with(document("Pod", "shop/one", json!({"containers": [{"name": "c"}]})), "labels", labels);
    pod["status"] =
        json!({"phase": "Running", "podIP": "10.1.0.1", "conditions": [{"type": "Ready", "status": "True"}]});
    pod
}

/// Family 1: a WorkloadEntry comes to a connected proxy's address, leaves it, and is deleted.
#[test]
fn a_workload_entry_that_becomes_a_connected_proxy() {
    let selecting = entry("shop/w", "w.example", json!({"workloadSelector": {"labels": {"app": "w"}}}), &[]);
    let policy = document(
        "PeerAuthentication",
        "shop/strict",
        json!({"selector": {"matchLabels": {"app": "w"}}, "mtls": {"mode": "STRICT"}}),
    );
    let sidecar = document(
        "Sidecar",
        "shop/own",
        json!({"workloadSelector": {"labels": {"app": "w"}}, "egress": [{"hosts": ["~/*"]}]}),
    );
    let mut world = world(&[selecting, policy, sidecar, workload("10.9.0.7")]);
    for address in ["10.1.0.1", "10.1.0.2", "10.9.0.7", "10.1.0.1"] {
        let request = world.put(&workload(address));
        world.settles(request);
    }
    assert!(world.holds("one.shop", "CDS", "inbound|8080||") || world.holds("one.shop", "CDS", "inbound|80||"));
    let request = world.delete(&workload("10.1.0.1"));
    world.settles(request);
}

/// Family 1: an endpoint that a ServiceEntry writes out becomes a connected proxy's.
#[test]
fn a_written_endpoint_that_becomes_a_connected_proxy() {
    let at = |address: &str| entry("shop/e", "e.example", json!({}), &[(address, "v1", "s")]);
    let mut world = world(&[at("10.9.0.1")]);
    for address in ["10.1.0.1", "10.1.0.2", "10.9.0.1"] {
        let request = world.put(&at(address));
        world.settles(request);
    }
}

/// Family 1: the pod of a connected proxy that a ServiceEntry selects is deleted.
#[test]
fn a_selected_pod_that_goes() {
    let selecting = entry("shop/w", "w.example", json!({"workloadSelector": {"labels": {"app": "w"}}}), &[]);
    let mut world = world(&[selecting, pod(json!({"app": "w"}))]);
    let request = world.delete(&pod(json!({"app": "w"})));
    world.settles(request);
}

/// Family 2: a push for another host's endpoint reads a deletion that its keys do not name; the push of the deletion then
/// compares two contexts that both lack the object.
#[test]
fn a_change_that_an_earlier_push_has_read() {
    let b = |address: &str| entry("bank/n", "w.example", json!({}), &[(address, "v1", "n")]);
    let e = entry("shop/e", "e.example", json!({}), &[("10.9.0.1", "v1", "s")]);
    let route = document(
        "VirtualService",
        "shop/r",
        json!({"hosts": ["e.example"], "http": [{"route": [{"destination": {"host": "w.example"}}], "timeout": "3s"}]}),
    );
    let tcp = |host: &str| {
        document(
            "VirtualService",
            "shop/t",
            json!({"hosts": ["e.example"], "tcp": [{"match": [{"port": 90}], "route": [{"destination": {"host": host}}]}]}),
        )
    };
    let rule = document(
        "DestinationRule",
        "shop/d",
        json!({"host": "e.example", "trafficPolicy": {"connectionPool": {"tcp": {"connectTimeout": "3s"}}}}),
    );
    let sidecar = document("Sidecar", "shop/s", json!({"egress": [{"hosts": ["./*"]}]}));
    let all = [b("10.9.0.8"), e.clone(), route.clone(), tcp("w.example"), rule.clone(), sidecar.clone()];
    for (number, changed) in [e, route, rule, sidecar, tcp("e.example")].iter().enumerate() {
        let mut world = world(&all);
        let late = if number == 4 { world.put(changed) } else { world.change(&[(key(changed), None)]) };
        let early = world.put(&b("10.9.0.9")).expect("a push");
        let before = world.read();
        world.publish(&early);
        assert_eq!(world.differences(), Vec::<String>::new(), "change {number}");
        assert_ne!(world.read(), before);
        assert!(late.is_some(), "a push that finds nothing left to do");
    }
}

/// The same, the later push coming too.
#[test]
fn a_push_after_one_that_has_read_its_change_marks_nothing_twice() {
    let b = |address: &str| entry("bank/n", "w.example", json!({}), &[(address, "v1", "n")]);
    let e = entry("shop/e", "e.example", json!({}), &[("10.9.0.1", "v1", "s")]);
    let mut world = world(&[b("10.9.0.8"), e.clone()]);
    let late = world.delete(&e).expect("a push");
    let early = world.put(&b("10.9.0.9")).expect("a push");
    world.publish(&early);
    world.publish(&late);
    assert!(world.looked() <= 1, "the second push finds nothing that differs");
    assert_eq!(world.differences(), Vec::<String>::new());
}

/// Family 3: a ReferenceGrant for the Secret of a user's own Gateway comes, and goes.
#[test]
fn a_grant_that_comes_and_goes() {
    let gateway = document(
        "Gateway",
        "edge/gw",
        json!({"selector": {"istio": "gw"}, "servers": [{
        "port": {"number": 443, "name": "https", "protocol": "HTTPS"}, "hosts": ["*"],
        "tls": {"mode": "SIMPLE", "credentialName": "kubernetes-gateway://bank/far"}}]}),
    );
    let secret = super::objects::object(35, 1).1.expect("a Secret");
    let grant = document(
        "ReferenceGrant",
        "bank/grant",
        json!({
        "from": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "edge"}],
        "to": [{"group": "", "kind": "Secret"}]}),
    );
    let mut world = world(&[gateway]);
    let name = "kubernetes-gateway://bank/far";
    let request = world.change(&[(secret.key(), Some(secret))]);
    request.into_iter().for_each(|request| world.publish(&request));
    assert!(!world.holds("gw.edge", "SDS", name));
    let request = world.put(&grant);
    world.settles(request);
    assert!(world.holds("gw.edge", "SDS", name));
    let request = world.delete(&grant);
    world.settles(request);
    assert!(!world.holds("gw.edge", "SDS", name), "the key is withdrawn");
}

/// Family 5: a Service with an empty export comes, changes its endpoints, and goes.
#[test]
fn a_service_without_visibility_still_has_workloads() {
    let route = document(
        "VirtualService",
        "shop/r",
        json!({"hosts": ["e.example"], "http": [{"route": [{"destination": {"host": "a.shop.svc.cluster.local"}}]}]}),
    );
    let mut world = world(&[
        pod(json!({"app": "one"})),
        route,
        entry("shop/e", "e.example", json!({}), &[("10.9.0.1", "v1", "s")]),
    ]);
    for document in [
        service("~"),
        slice("shop/a-1", "a", &[("10.1.0.1", "one", true)]),
        slice("shop/a-1", "a", &[("10.9.0.1", "", true)]),
        service("*"),
        service("~"),
    ] {
        let request = world.put(&document);
        world.settles(request);
    }
    let request = world.delete(&service("~"));
    world.settles(request);
}

/// Family 6: a host in two namespaces under a Sidecar with a port listener and one for the rest.
#[test]
fn a_hidden_service_entry_under_two_listeners() {
    let sidecar = document("Sidecar", "edge/s", json!({}));
    let two = json!({"egress": [{"port": {"number": 80, "name": "p", "protocol": "HTTP"}, "hosts": ["*/*"]}, {"hosts": ["*/*"]}]});
    let root = document("Sidecar", "istio-system/root", two);
    let ports = json!({"ports": [{"number": 90, "name": "tcp", "protocol": "TCP"}]});
    let hidden = entry("bank/e", "e.example", ports, &[("10.9.0.3", "v1", "t")]);
    let shown = entry(
        "edge/e",
        "e.example",
        json!({"ports": [{"number": 80, "name": "http", "protocol": "HTTP"}]}),
        &[("10.9.0.4", "v1", "t")],
    );
    let shown = with(shown, "creationTimestamp", json!("2020-01-01T00:00:00Z"));
    let mut world = world(&[sidecar, root, shown.clone(), hidden.clone()]);
    for document in [&hidden, &shown] {
        let request = world.delete(document);
        world.settles(request);
        let request = world.put(document);
        world.settles(request);
    }
}

/// Family 7: service accounts stay trusted no longer than an endpoint has them.
#[test]
fn accounts_go_with_their_endpoints() {
    let of =
        |name: &str, address: &str, account: &str| entry(name, "e.example", json!({}), &[(address, "v1", account)]);
    let (one, two) = (of("shop/e", "10.9.0.1", "s1"), of("shop/e2", "10.9.0.2", "s2"));
    let account = |a: &str| with(pod(json!({"app": "one"})), "name", json!(a));
    let listed = slice("shop/a-1", "a", &[("10.1.0.1", "one", true)]);
    let mut world = world(&[one, two.clone(), service("*"), account("one"), listed.clone()]);
    for document in [two, listed] {
        let request = world.delete(&document);
        world.settles(request);
    }
}

/// An endpoint that is not ready is no target, but where the client dials it itself it tells whether all have a sidecar.
#[test]
fn an_unready_endpoint_without_a_sidecar() {
    let rule = document(
        "DestinationRule",
        "shop/d",
        json!({"host": "a.shop.svc.cluster.local", "trafficPolicy": {"loadBalancer": {"simple": "PASSTHROUGH"}}}),
    );
    let meshed = pod(json!({"app": "one", "security.istio.io/tlsMode": "istio"}));
    let mut world = world(&[rule, meshed, service("*"), slice("shop/a-1", "a", &[("10.1.0.1", "one", true)])]);
    let request = world.put(&slice("shop/a-1", "a", &[("10.1.0.1", "one", true), ("10.9.9.9", "", false)]));
    request.into_iter().for_each(|request| world.publish(&request));
    assert_eq!(world.differences(), Vec::<String>::new());
}

/// A change of age alone changes the winner.
#[test]
fn a_change_of_age() {
    let rule = |timeout: &str| json!({"host": "e.example", "trafficPolicy": {"connectionPool": {"tcp": {"connectTimeout": timeout}}}});
    let (one, two) =
        (document("DestinationRule", "shop/d1", rule("1s")), document("DestinationRule", "shop/d2", rule("2s")));
    let mut world = world(&[one, two.clone(), entry("shop/e", "e.example", json!({}), &[("10.9.0.1", "v1", "s1")])]);
    let request = world.put(&with(two, "creationTimestamp", json!("2020-01-01T00:00:00Z")));
    world.settles(request);
}

/// A change that is taken back between two publications is sent to no client.
#[test]
fn a_change_that_is_taken_back() {
    let e = |address: &str| entry("shop/e", "e.example", json!({}), &[(address, "v1", "s")]);
    let mut world = world(&[e("10.9.0.1")]);
    let mut request = world.put(&e("10.9.0.2"));
    merge(&mut request, world.put(&e("10.9.0.1")));
    world.publish(&request.expect("a push"));
    assert!(world.looked() <= 1);
}
