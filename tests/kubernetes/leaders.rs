//! Three control planes on one cluster, each with a proxy, and the one that writes is killed under a stream of changes,
//! twice: no proxy loses anything, no status goes back, nothing is written twice, and the proxies that are left are counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    followers::{Follower, Kept},
    real::{Admin, documents, everything},
    replica::Replica,
    status::{addresses, condition, until},
    versions::Versions,
};

const ENVIRONMENT: [(&str, &str); 2] = [("PILOT_ENABLE_STATUS", "true"), ("PILOTHOUSE_LEASE_DURATION", "5s")];
const ROUNDS: usize = 60;
const ROUTES: usize = 4;
/// Of one entry: made, given addresses, and a count for each proxy that accepts it, of one writer and of the next.
const MOST_VERSIONS: usize = 12;

/// Which of the processes holds the lease.
async fn leader(admin: &Admin, processes: &BTreeMap<String, Replica>) -> String {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "pilothouse-leader", "namespace": "istio-system"}});
    let of = |lease: &Value| {
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        processes.keys().find(|name| holder.starts_with(&format!("{name}_"))).cloned()
    };
    of(&until(admin, &lease, |lease| of(lease).is_some()).await).unwrap()
}

fn entry(round: usize) -> Value {
    json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": {"name": format!("e{round}"), "namespace": "shop"}, "spec": {"hosts": [format!("e{round}.example")],
            "resolution": "DNS", "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}]}})
}

fn route(round: usize) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": format!("r{}", round % ROUTES), "namespace": "shop"}, "spec": {
            "parentRefs": [{"name": "edge", "sectionName": "http"}], "hostnames": ["web.example"],
            "rules": [{"matches": [{"path": {"value": format!("/{round}")}}], "backendRefs": [{"name": "web", "port": 8080}]}]}})
}

fn cluster(round: usize) -> String {
    format!("outbound|80||e{round}.example")
}

/// A proxy of each process. When that ends the proxy goes to the next, so that each that is left has one at any time.
fn followers(processes: &BTreeMap<String, Replica>, kept: &Kept) -> Vec<Follower> {
    let addresses: Vec<SocketAddr> = processes.values().map(|replica| replica.grpc).collect();
    let from = |first: usize| addresses.iter().cycle().skip(first).take(addresses.len()).copied().collect();
    (0..addresses.len()).map(|n| Follower::start(from(n), format!("10.7.0.{n}"), kept.clone())).collect()
}

/// A cluster that has reached every proxy of every process must not get lost when one of these ends.
async fn keep_settled_clusters(admin: &Admin, rounds: usize, kept: &Kept) {
    for round in 0..rounds {
        let object = admin.get(&entry(round)).await;
        kept.add(is_current(&object, &object, "Reconciled").then(|| cluster(round)));
    }
}

fn of_parent(route: &Value) -> Value {
    json!({"status": route["status"]["parents"][0]})
}

fn is_current(object: &Value, of: &Value, kind: &str) -> bool {
    let condition = condition(of, kind);
    condition["status"] == "True" && condition["observedGeneration"] == object["metadata"]["generation"]
}

/// A condition must be about ever newer generations, and once true of one stays as it is.
fn never_goes_back(name: &str, conditions: impl Iterator<Item = Value>) {
    let mut last = Value::Null;
    for condition in conditions.filter(|c| !c.is_null()) {
        let generation = |c: &Value| c["observedGeneration"].as_i64().unwrap_or_default();
        assert!(generation(&condition) >= generation(&last), "{name}: {last} then {condition}");
        if generation(&condition) == generation(&last) && last["status"] == "True" {
            assert_eq!(condition, last, "{name}");
        }
        last = condition;
    }
}

/// The number of versions without a difference in spec, status or labels.
fn idle_writes(versions: &[Value]) -> usize {
    let meant = |o: &Value| [o["spec"].clone(), o["status"].clone(), o["metadata"]["labels"].clone()];
    versions.windows(2).filter(|pair| meant(&pair[0]) == meant(&pair[1])).count()
}

#[tokio::test]
async fn the_writer_is_killed_under_a_stream_of_changes() {
    let Some((server, admin)) = everything().await else { return };
    for object in documents(include_str!("statuses.yaml")) {
        admin.apply_soon(&object).await;
    }
    let (entries, routes) = (Versions::follow(&admin, &entry(0)).await, Versions::follow(&admin, &route(0)).await);
    let mut processes = BTreeMap::new();
    for name in ["one", "two", "three"] {
        let replica = Replica::start(&server.kubeconfig, name, &ENVIRONMENT).await;
        processes.insert(name.to_string(), replica);
    }
    let kept = Kept::default();
    let proxies = followers(&processes, &kept);
    for proxy in &proxies {
        proxy.until(&["outbound|443||payments.example".to_string()].into()).await;
    }
    until(&admin, &documents(include_str!("statuses.yaml"))[4], |o| condition(o, "Accepted")["status"] == "True").await;
    let mut killed = Vec::new();
    for round in 0..ROUNDS {
        admin.apply(&entry(round)).await;
        admin.apply(&route(round)).await;
        if round == ROUNDS / 3 || round == ROUNDS * 2 / 3 {
            let name = leader(&admin, &processes).await;
            keep_settled_clusters(&admin, round, &kept).await;
            processes.remove(&name).unwrap().kill().await;
            killed.push(name.clone());
            let after = leader(&admin, &processes);
            let mut more = round * 1000;
            tokio::pin!(after);
            while tokio::time::timeout(Duration::from_millis(50), &mut after).await.is_err() {
                more += 1;
                admin.apply(&route(more)).await;
            }
        }
    }
    assert_eq!(killed.len(), 2);
    let all: BTreeSet<String> = (0..ROUNDS).map(cluster).collect();
    for proxy in &proxies {
        proxy.until(&all).await;
    }

    for round in 0..ROUNDS {
        let settled = |o: &Value| addresses(o).len() == 2 && is_current(o, o, "Reconciled");
        until(&admin, &entry(round), settled).await;
    }
    for number in 0..ROUTES {
        let settled =
            |o: &Value| is_current(o, &of_parent(o), "Accepted") && is_current(o, &of_parent(o), "ResolvedRefs");
        let last = until(&admin, &route(number), settled).await;
        routes.until(&last).await;
    }
    let mut given = BTreeMap::new();
    for round in 0..ROUNDS {
        let name = format!("e{round}");
        let last = admin.get(&entry(round)).await;
        entries.until(&last).await;
        let versions = entries.of(&name);
        never_goes_back(&name, versions.iter().map(|o| condition(o, "Reconciled").clone()));
        let mut sets: Vec<Vec<&str>> = versions.iter().map(addresses).filter(|a| !a.is_empty()).collect();
        sets.dedup();
        assert_eq!(sets.len(), 1, "{name}: its addresses never change: {sets:?}");
        for address in &sets[0] {
            assert_eq!(given.insert((*address).to_string(), name.clone()), None, "{address} of {name}");
        }
        assert_eq!(idle_writes(&versions), 0, "{name}: {versions:#?}");
        assert!(versions.len() <= MOST_VERSIONS, "{name} was written {} times: {versions:#?}", versions.len());
    }
    for number in 0..ROUTES {
        let (name, versions) = (format!("r{number}"), routes.of(&format!("r{number}")));
        for kind in ["Accepted", "ResolvedRefs"] {
            never_goes_back(&name, versions.iter().map(|o| condition(&of_parent(o), kind).clone()));
        }
        assert_eq!(idle_writes(&versions), 0, "{name}");
    }

    // Nothing more is written: something new is, and everything else stays as it is.
    let before = (entries.seen().len(), routes.seen().len());
    let mut mark = entry(0);
    mark["metadata"]["name"] = "mark".into();
    admin.apply(&mark).await;
    let counted = |o: &Value| condition(o, "Reconciled")["message"] == "3/3 proxies up to date.";
    let settled = |o: &Value| addresses(o).len() == 2 && is_current(o, o, "Reconciled");
    let last = until(&admin, &mark, |o| settled(o) && counted(o)).await;
    entries.until(&last).await;
    assert_eq!(entries.seen().len() - entries.of("mark").len(), before.0);
    assert_eq!(routes.seen().len(), before.1);
    assert_eq!(processes.len(), 1);
    let connections: usize = proxies.iter().map(Follower::connections).sum();
    assert!(connections >= 5, "each kill moved a proxy: {connections}");
}
