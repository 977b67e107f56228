//! The rights that the manifest grants are those that the table names, and the table names the requests that are really made. With
//! exactly these rights, applied to a real API server, everything that the process does works.

use std::{collections::BTreeSet, time::Duration};

use kube::{
    Api, Client, Config,
    api::{ListParams, ObjectList},
    config::{KubeConfigOptions, Kubeconfig},
};
use pilothouse::{
    discovery::registrar::HEALTH,
    model::{Features, Kind},
    proto::envoy::service::discovery::v3::DiscoveryRequest,
    sources::kube::{
        FeedState, Group,
        access::{Right, authority_rights, identity_rights, lease_rights, registration_rights, rights, status_rights},
    },
};
use serde_json::{Value, json};

use crate::{
    fake::Fake,
    gate::{Gate, Triple, install, manifest},
    real::{Admin, SCENARIO, documents, everything},
    registration::{annotation, entry, group, until_in_force, workload},
    running::end,
    stage::Stage,
    status::{addresses, condition, start_with, until},
};

fn table() -> BTreeSet<Triple> {
    triples(rights())
}

fn triples(rights: Vec<Right>) -> BTreeSet<Triple> {
    rights.into_iter().map(|r| (r.group, r.resource, r.verb.to_string())).collect()
}

/// The rights that a role of the manifest grants.
fn granted(kind: &str, name: &str) -> BTreeSet<Triple> {
    let role = manifest().into_iter().find(|d| d["kind"] == kind && d["metadata"]["name"] == name);
    let list = |rule: &Value, key: &str| -> Vec<String> {
        rule[key].as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_string()).collect()
    };
    let mut granted = BTreeSet::new();
    for rule in role.unwrap()["rules"].as_array().unwrap() {
        for group in list(rule, "apiGroups") {
            for resource in list(rule, "resources") {
                let verbs = list(rule, "verbs").into_iter();
                granted.extend(verbs.map(|verb| (group.clone(), resource.clone(), verb)));
            }
        }
    }
    granted
}

#[test]
fn the_manifest_grants_the_rights_of_the_table_and_no_more() {
    let roles = [
        ("ClusterRole", "pilothouse-reader", table()),
        ("ClusterRole", "pilothouse-status-writer", triples(status_rights())),
        ("ClusterRole", "pilothouse-registration", triples(registration_rights())),
        ("ClusterRole", "pilothouse-identity", triples(identity_rights())),
        ("Role", "pilothouse-leader", triples(lease_rights())),
        ("Role", "pilothouse-authority", triples(authority_rights())),
    ];
    for (kind, name, table) in roles {
        let granted = granted(kind, name);
        assert_eq!(table.difference(&granted).collect::<Vec<_>>(), Vec::<&Triple>::new(), "{name} does not grant");
        assert_eq!(granted.difference(&table).collect::<Vec<_>>(), Vec::<&Triple>::new(), "{name} need not grant");
        assert!(!granted.iter().any(|(g, r, v)| [g, r, v].iter().any(|part| part.as_str() == "*")));
    }
}

#[tokio::test]
async fn nothing_is_asked_for_that_the_table_does_not_name() {
    let fake = Fake::start().await;
    let all = [Group::Crd, Group::GatewayApi, Group::Ingress, Group::Registry, Group::Discovery];
    let stage = Stage::set(&fake.url, &all, |s| s.watch_timeout = Duration::from_secs(1));
    let built_in = ["services", "pods", "nodes", "secrets", "configmaps", "ingresses", "namespaces", "endpointslices"];
    stage.until("every watch", |_| built_in.iter().all(|plural| !fake.times("watch", plural).is_empty())).await;
    let asked: BTreeSet<Triple> = fake
        .seen()
        .into_iter()
        // Discovery needs no right.
        .filter(|seen| seen.verb != "discovery")
        .map(|seen| {
            let parts: Vec<&str> = seen.path.trim_start_matches('/').split('/').collect();
            let (group, rest) = if parts[0] == "api" { ("", &parts[2..]) } else { (parts[1], &parts[3..]) };
            let verb = if seen.verb == "probe" { "list" } else { seen.verb };
            (group.to_string(), rest[0].to_string(), verb.to_string())
        })
        .collect();
    let table = table();
    assert_eq!(asked.difference(&table).collect::<Vec<_>>(), Vec::<&Triple>::new());
    assert!(asked.len() >= 2 * built_in.len());
}

/// Groups of kinds that every cluster has.
const BUILT_IN: [&str; 4] = ["", "apiextensions.k8s.io", "discovery.k8s.io", "networking.k8s.io"];

/// A subject without a binding is refused.
async fn a_stranger_asks(gate: &Gate) {
    let dir = tempfile::tempdir().unwrap();
    let path = gate.kubeconfig(dir.path(), "sa:istio-system:stranger");
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let api: Api<k8s_openapi::api::core::v1::Service> = Api::all(Client::try_from(config).unwrap());
    let answer: kube::Result<ObjectList<_>> = api.list(&ListParams::default()).await;
    assert!(matches!(answer, Err(kube::Error::Api(status)) if status.code == 403));
}

/// Kinds of custom resources that the server has.
async fn installed(admin: &Admin) -> BTreeSet<(String, String)> {
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"});
    let all = admin.api(&definition).list(&ListParams::default()).await.unwrap();
    let name = |o: kube::api::DynamicObject| o.metadata.name.unwrap_or_default();
    let split = |name: String| name.split_once('.').map(|(plural, group)| (group.to_string(), plural.to_string()));
    all.items.into_iter().map(name).filter_map(split).collect()
}

/// Waits until each object has the status that is written for its kind.
async fn until_statuses(admin: &Admin, objects: &[Value]) {
    for object in objects {
        let group = object["apiVersion"].as_str().unwrap().split('/').next().unwrap();
        let (istio, kind) = (group.ends_with(".istio.io"), object["kind"].as_str().unwrap());
        let says = |o: &Value| match kind {
            "ServiceEntry" => addresses(o).len() == 2 && condition(o, "Reconciled")["status"] == "True",
            _ if istio => condition(o, "Reconciled")["status"] == "True",
            "GatewayClass" | "Gateway" => condition(o, "Accepted")["status"] == "True",
            "HTTPRoute" => !o["status"]["parents"].as_array().is_none_or(Vec::is_empty),
            "Ingress" => o["status"]["loadBalancer"]["ingress"][0]["ip"].is_string(),
            _ => true,
        };
        until(admin, object, says).await;
    }
}

#[actix::test]
async fn with_the_rights_of_the_manifest_everything_works_and_nothing_else_is_asked_for() {
    let Some((_server, admin)) = everything().await else { return };
    install(&admin).await;
    let gate = Gate::start(&admin).await;
    a_stranger_asks(&gate).await;
    let refused = gate.denied();
    assert_eq!(refused.len(), 1);

    let mut objects = documents(SCENARIO);
    objects.extend(documents(include_str!("statuses.yaml")));
    for object in objects.iter().chain([&group()]) {
        admin.apply_soon(object).await;
    }
    let ingress = objects.iter().find(|o| o["kind"] == "Service" && o["metadata"]["name"] == "istio-ingressgateway");
    admin.set_status(ingress.unwrap(), json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.10"}]}})).await;
    let dir = tempfile::tempdir().unwrap();
    let path = gate.kubeconfig(dir.path(), "sa:istio-system:pilothouse");
    let grace = Duration::from_secs(1);
    let features = Features { enable_status: true, workload_entry_grace_period: grace, ..Features::default() };
    let running = start_with(&path, features).await;
    until_statuses(&admin, &objects).await;
    let mut machine = workload(&running).await;
    until(&admin, &entry(), |o| annotation(o, "connectedAt").is_some()).await;
    let well = DiscoveryRequest { type_url: HEALTH.to_string(), ..DiscoveryRequest::default() };
    machine.send(well).await.unwrap();
    until(&admin, &entry(), |o| condition(o, "Healthy")["status"] == "True").await;
    drop(machine);
    until(&admin, &entry(), Value::is_null).await;
    // Until it knows that, it leaves its lease, by which other processes see that it ended.
    until_in_force(&running, |status| status.is_none()).await;
    for report in running.sources.iter().map(|source| source.board.read()) {
        let wrong = |state: FeedState| !matches!(state, FeedState::Watching | FeedState::Absent);
        assert!(!report.feeds.iter().any(|f| wrong(f.state)), "{report:#?}");
    }
    end(running).await;

    assert_eq!(gate.denied(), refused, "nothing that the process asked for was refused");
    let (used, known) = (gate.used(), installed(&admin).await);
    let there = |t: &&Triple| BUILT_IN.contains(&t.0.as_str()) || known.contains(&(t.0.clone(), t.1.clone()));
    let mut needed: BTreeSet<Triple> = table().iter().filter(there).cloned().collect();
    needed.extend(triples(lease_rights()).into_iter().chain(triples(registration_rights())));
    let of_statuses = |t: &&Triple| t.2 == "patch" && objects.iter().any(|o| is_status_of(o, t));
    needed.extend(triples(status_rights()).iter().filter(of_statuses).cloned());
    assert_eq!(needed.difference(&used).collect::<Vec<_>>(), Vec::<&Triple>::new(), "granted and never used");
}

fn is_status_of(object: &Value, (group, resource, _): &Triple) -> bool {
    let kind = Kind::parse(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    kind.is_some_and(|k| k.group() == group && *resource == format!("{}/status", k.plural()))
}
