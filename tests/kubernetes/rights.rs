//! The rights that the manifest grants are those that the table names, and the table names what is really asked for.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use pilothouse::sources::{
    kube::{
        Group,
        access::{Right, lease_rights, registration_rights, rights, status_rights},
    },
    yaml,
};
use serde_json::Value;

use crate::{fake::Fake, stage::Stage};

type Triple = (String, String, String);

fn table() -> BTreeSet<Triple> {
    triples(rights())
}

fn triples(rights: Vec<Right>) -> BTreeSet<Triple> {
    rights.into_iter().map(|r| (r.group, r.resource, r.verb.to_string())).collect()
}

/// What a role of the manifest grants.
fn granted(kind: &str, name: &str) -> BTreeSet<Triple> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/kubernetes/rbac.yaml");
    let text = fs::read_to_string(path).unwrap();
    let documents = yaml::documents(&text).into_iter().flat_map(|d| yaml::values(d.text).unwrap());
    let role = documents.into_iter().find(|d| d["kind"] == kind && d["metadata"]["name"] == name);
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
fn the_manifest_grants_what_the_table_names_and_no_more() {
    let roles = [
        ("ClusterRole", "pilothouse-reader", table()),
        ("ClusterRole", "pilothouse-status-writer", triples(status_rights())),
        ("ClusterRole", "pilothouse-registration", triples(registration_rights())),
        ("Role", "pilothouse-leader", triples(lease_rights())),
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
        .map(|seen| {
            let parts: Vec<&str> = seen.path.trim_start_matches('/').split('/').collect();
            let (group, rest) = if parts[0] == "api" { ("", &parts[2..]) } else { (parts[1], &parts[3..]) };
            (group.to_string(), rest[0].to_string(), seen.verb.to_string())
        })
        .collect();
    let table = table();
    assert_eq!(asked.difference(&table).collect::<Vec<_>>(), Vec::<&Triple>::new());
    assert!(asked.len() >= 2 * built_in.len());
}
