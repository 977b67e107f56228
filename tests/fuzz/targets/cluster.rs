//! Answers of an API server, and the Secrets and files that name other clusters.

use pilothouse::{
    model::{Features, Kind, Locality, Node},
    registration,
    settings::KubeAccess,
    sources::kube::{check_access, readers},
};
use serde_json::Value;

use super::world::{self, Choices, pieces};

/// An object of a kind that the first byte names.
pub fn kube_object(data: &[u8]) {
    let mut choices = Choices::of(data);
    let kind = Kind::ALL[choices.below(Kind::ALL.len())];
    let text = String::from_utf8_lossy(choices.all());
    for cluster in ["", "remote"] {
        match readers::object(kind, cluster, &text) {
            Some(Ok(config)) => {
                assert_eq!(config.kind(), kind);
                assert!(!config.meta.annotations.contains_key("kubectl.kubernetes.io/last-applied-configuration"));
            }
            Some(Err(reason)) => assert!(!reason.contains("failed inside pilothouse"), "{reason}"),
            None => {}
        }
    }
}

/// A list, and lines of a watch.
pub fn kube_list(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let objects = readers::list(&text).unwrap_or_default();
    assert!(objects.iter().map(String::len).sum::<usize>() <= text.len());
    for object in objects.iter().chain(text.lines().filter_map(readers::watch_event).collect::<Vec<_>>().iter()) {
        let kind = Kind::ALL[object.len() % Kind::ALL.len()];
        let _ = readers::object(kind, "", object);
    }
}

/// Secrets that name clusters, a line each. Nothing that is taken runs a program or reads a file.
pub fn remote_secret(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let secrets: Vec<&str> = text.lines().take(8).collect();
    let (wanted, refused) = readers::remote_secrets(&secrets);
    assert!(!wanted.contains_key("main"), "the main cluster is named");
    assert!(refused.iter().all(|r| r.reason.len() <= 2 * text.len() + 512));
    wanted.into_values().filter_map(|named| named.kubeconfig).for_each(|text| connect(KubeAccess::Text(text)));
}

/// A kubeconfig of a folder, and one that a Secret would hold.
pub fn kubeconfig(data: &[u8]) {
    let (wanted, refused) = readers::kubeconfigs(&[("east.yaml", data)]);
    assert!(wanted.len() + refused.len() >= 1, "a file that is neither taken nor refused");
    wanted.into_values().filter_map(|named| named.kubeconfig).for_each(|text| connect(KubeAccess::Text(text)));
}

fn connect(access: KubeAccess) {
    let KubeAccess::Text(text) = &access else { return };
    for option in ["exec:", "auth-provider:"] {
        let named = text.0.lines().any(|line| line.trim_start().starts_with(option));
        assert!(!named || !text.0.contains("command:"), "a kubeconfig that runs a program is taken:\n{}", text.0);
    }
    let _ = world::block_on(check_access(&access));
}

/// A ConfigMap with mesh settings.
pub fn mesh_config_map(data: &[u8]) {
    let Ok(object) = serde_json::from_slice::<Value>(data) else { return };
    let Ok((config, networks)) = readers::mesh_settings(&object) else { return };
    if let Ok(mesh) = pilothouse::model::Mesh::from_values(&config, &networks, "cluster.local", "Kubernetes") {
        world::serve_with(mesh);
    }
}

/// A stored WorkloadEntry (JSON), the state of its proxy, and a node that registers (the metadata on the second line).
pub fn registration_entry(data: &[u8]) {
    let mut choices = Choices::of(data);
    let (present, orphaned, health) = (choices.chance(2), choices.chance(4), choices.byte());
    let text = String::from_utf8_lossy(choices.all());
    let (entry, node) = text.split_once('\n').unwrap_or((&text, "{}"));
    let stored: Option<Value> = serde_json::from_str(entry).ok();
    let health = [None, Some(""), Some("it is full")][usize::from(health) % 3];
    let (_, rested) = registration::readers::settled(stored.clone(), present, health, 8);
    assert!(rested, "it is written without end: {entry}");
    if let Some(stored) = &stored {
        let (_, change) = registration::readers::cleaned_up(stored, 1_700_000_100, orphaned);
        assert!(change.is_none_or(|c| c.is_object()));
        let _ = registration::readers::may_control(None, stored);
    }
    let Ok(metadata) = serde_json::from_str::<Value>(node) else { return };
    let Ok(node) = Node::from_parts("sidecar~10.0.0.9~vm~shop.svc.cluster.local", metadata, Locality::default()) else {
        return;
    };
    if let Ok(Some((key, group))) = registration::readers::wished(&node, &Features::default()) {
        assert!(key.name.len() <= 253 && key.namespace.len() <= 63, "{key:?}");
        let path =
            |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b));
        assert!(path(&key.name) && path(&key.namespace), "a part of a path of the API server: {key:?} {group:?}");
        for config in world::fixed().context.inputs.configs.list(Kind::WorkloadGroup) {
            let document = registration::readers::document(&key, &node, config).unwrap();
            let name = document["metadata"]["name"].as_str();
            assert_eq!(name, Some(&*key.name));
            assert!(readers::object(Kind::WorkloadEntry, "", &document.to_string()).is_some());
        }
    }
    let _ = pieces(data).count();
}
