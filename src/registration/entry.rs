//! The entry of a proxy: its name, and the document made from its group's template and the proxy's node.

use serde_json::{Value, json};

use super::EntryKey;
use crate::{
    discovery::RegistrationRefusal,
    model::{Config, Features, Identity, Kind, Node},
    proto::{ProtoError, to_json},
};

/// The group that an entry was made from.
pub const GROUP: &str = "istio.io/autoRegistrationGroup";
/// The process that its proxy is or was connected to.
pub const CONTROLLER: &str = "istio.io/workloadController";
/// Time of the connection.
pub const CONNECTED_AT: &str = "istio.io/connectedAt";
/// Time of the disconnection.
pub const DISCONNECTED_AT: &str = "istio.io/disconnectedAt";
/// Whether the workload's health counts.
pub const HEALTH_CHECKS: &str = "proxy.istio.io/health-checks-enabled";

const LOCALITY_LABEL: &str = "istio-locality";
const TUNNEL_LABEL: &str = "networking.istio.io/tunnel";
const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// A proxy's request to be represented by an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The entry of the proxy.
    pub key: EntryKey,
    /// The group to make it from; empty when the entry exists and only its health is reported.
    pub group: String,
}

/// The entry that represents a proxy, if it names a group or an entry.
///
/// # Errors
/// [`RegistrationRefusal::Invalid`] when no valid name results.
pub fn wish(node: &Node, features: &Features) -> Result<Option<Wish>, RegistrationRefusal> {
    let text = |key: &str| node.raw_metadata[key].as_str().unwrap_or_default();
    let (group, existing) = (text("AUTO_REGISTER_GROUP"), text("WORKLOAD_ENTRY"));
    let key = |name: &str| EntryKey { namespace: node.namespace.clone(), name: name.into() };
    let registers = features.enable_workload_entry_autoregistration && !group.is_empty();
    let speaks = features.enable_workload_entry_healthchecks && !existing.is_empty();
    // Both become parts of paths of the API server.
    if (registers || speaks) && !is_label(&node.namespace) {
        return Err(RegistrationRefusal::Invalid(format!("{:?} cannot be a namespace", shortened(&node.namespace))));
    }
    if registers {
        let name = name_of(node, group)?;
        return Ok(Some(Wish { key: key(&name), group: group.to_string() }));
    }
    if speaks {
        if !is_subdomain(existing) {
            return Err(RegistrationRefusal::Invalid(format!(
                "{:?} cannot be the name of a WorkloadEntry",
                shortened(existing)
            )));
        }
        return Ok(Some(Wish { key: key(existing), group: String::new() }));
    }
    Ok(None)
}

/// DNS-1123 label.
fn is_label(text: &str) -> bool {
    text.len() <= LONGEST_LABEL && !text.contains('.') && is_subdomain(text)
}

/// DNS-1123 subdomain.
fn is_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        part.bytes().all(|c| plain(c) || c == b'-')
            && part.bytes().next().is_some_and(plain)
            && part.bytes().last().is_some_and(plain)
    };
    text.len() <= LONGEST_NAME && text.split('.').all(part)
}

fn shortened(text: &str) -> String {
    text.chars().take(LONGEST_NAME).collect()
}

/// `group-ip[-network]`, cut at its beginning when it is too long (Istio's `autoregisteredWorkloadEntryName`).
fn name_of(node: &Node, group: &str) -> Result<String, RegistrationRefusal> {
    let ip = node
        .ips
        .first()
        .ok_or_else(|| RegistrationRefusal::Invalid("auto-registration needs an IP address".to_string()))?;
    if node.namespace.is_empty() {
        return Err(RegistrationRefusal::Invalid("auto-registration needs a namespace".to_string()));
    }
    let mut name = format!("{group}-{}", ip.replace(':', "-"));
    if !node.network.is_empty() {
        name = format!("{name}-{}", node.network);
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let edges = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !name.chars().all(allowed) || !name.ends_with(edges) {
        return Err(RegistrationRefusal::Invalid(format!("{name:?} cannot be the name of a WorkloadEntry")));
    }
    let end = name.split_off(name.len().saturating_sub(LONGEST_NAME));
    Ok(end.trim_start_matches(|c| !edges(c)).to_string())
}

/// A new entry of a proxy (Istio's `workloadEntryFromGroup`): labels of the node win over those of the group's metadata,
/// these over those of its template.
///
/// # Errors
/// When the template cannot be written as JSON.
pub fn document(key: &EntryKey, node: &Node, group: &Config) -> Result<Value, ProtoError> {
    let spec = group.workload_group().cloned().unwrap_or_default();
    let mut entry = spec.template.unwrap_or_default();
    let metadata = spec.metadata.unwrap_or_default();
    entry.address = node.ips.first().map(ToString::to_string).unwrap_or_default();
    entry.labels.extend(metadata.labels);
    entry.labels.extend(node.labels.clone());
    entry.labels.remove(LOCALITY_LABEL);
    if node.metadata.enable_hbone {
        entry.labels.entry(TUNNEL_LABEL.to_string()).or_insert_with(|| "http".to_string());
    }
    if !node.network.is_empty() {
        entry.network = node.network.to_string();
    }
    if !node.locality.is_empty() {
        entry.locality = node.locality.label();
    }
    let mut annotations = json!({ GROUP: &*group.meta.name });
    for (name, value) in metadata.annotations {
        annotations[name] = value.into();
    }
    let probe = &node.raw_metadata["PROXY_CONFIG"];
    if !probe["readinessProbe"].is_null() || !probe["readiness_probe"].is_null() {
        annotations[HEALTH_CHECKS] = "true".into();
    }
    let mut document = json!({
        "apiVersion": &*group.meta.api_version, "kind": Kind::WorkloadEntry.as_str(),
        "metadata": {"name": &*key.name, "namespace": &*key.namespace, "labels": entry.labels, "annotations": annotations},
        "spec": to_json(&entry)?,
    });
    if !group.meta.uid.is_empty() {
        document["metadata"]["ownerReferences"] = json!([{
            "apiVersion": &*group.meta.api_version, "kind": group.kind().as_str(), "name": &*group.meta.name,
            "uid": group.meta.uid, "controller": true,
        }]);
    }
    Ok(document)
}

/// Whether a proxy of this identity may use an entry (Istio's `ensureProxyCanControlEntry`).
///
/// # Errors
/// [`RegistrationRefusal::Denied`].
pub fn may_control(identity: Option<&Identity>, entry: &Value) -> Result<(), RegistrationRefusal> {
    let Some(identity) = identity else {
        let flag = "ISTIO_WORKLOAD_ENTRY_VALIDATE_IDENTITY=false lets proxies register that prove nothing";
        return Err(RegistrationRefusal::Denied(format!(
            "registration of WorkloadEntry requires a verified identity ({flag})"
        )));
    };
    let namespace = entry["metadata"]["namespace"].as_str().unwrap_or_default();
    if *identity.namespace != *namespace {
        let own = &identity.namespace;
        return Err(RegistrationRefusal::Denied(format!("WorkloadEntry namespace mismatch: {own:?} vs {namespace:?}")));
    }
    let account = entry["spec"]["serviceAccount"].as_str().unwrap_or_default();
    if !account.is_empty() && *identity.service_account != *account {
        let own = &identity.service_account;
        return Err(RegistrationRefusal::Denied(format!(
            "WorkloadEntry service account mismatch: {own:?} vs {account:?}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Locality, Origin, decode};

    fn node(ip: &str, metadata: Value) -> Node {
        let locality = Locality::parse("r/z");
        Node::from_parts(&format!("sidecar~{ip}~vm.shop~shop.svc.cluster.local"), metadata, locality).unwrap()
    }

    fn name(ip: &str, metadata: Value) -> Option<String> {
        let wish = wish(&node(ip, metadata), &Features::default()).ok()??;
        Some(wish.key.name.to_string())
    }

    #[test]
    fn names_are_istios() {
        let group = |group: &str, network: &str| json!({"AUTO_REGISTER_GROUP": group, "NETWORK": network});
        assert_eq!(name("10.0.0.1", group("vms", "")).as_deref(), Some("vms-10.0.0.1"));
        assert_eq!(name("10.0.0.1", group("vms", "nw1")).as_deref(), Some("vms-10.0.0.1-nw1"));
        assert_eq!(name("fd00::1", group("vms", "")).as_deref(), Some("vms-fd00--1"));
        assert_eq!(name("10.0.0.1", json!({})), None);
        assert_eq!(name("10.0.0.1", json!({"WORKLOAD_ENTRY": "known"})).as_deref(), Some("known"));
        let long = name("10.0.0.1", group(&"g".repeat(300), "")).unwrap();
        assert!(long.len() == 253 && long.ends_with("g-10.0.0.1"));
        let dashes = name("10.0.0.1", group(&format!("g{}", "-".repeat(300)), "")).unwrap();
        assert_eq!(dashes, "10.0.0.1", "no name begins with a dash");
        for network in ["A b", "a/../b", "nw-", "ü"] {
            assert!(wish(&node("10.0.0.1", group("vms", network)), &Features::default()).is_err(), "{network}");
        }
    }

    #[test]
    fn a_name_that_would_be_another_path_is_refused() {
        let asks = |namespace: &str, entry: &str| {
            let id = format!("sidecar~10.0.0.1~vm.{namespace}~{namespace}.svc.cluster.local");
            let metadata = json!({"WORKLOAD_ENTRY": entry, "NAMESPACE": namespace});
            let node = Node::from_parts(&id, metadata, Locality::default()).unwrap();
            wish(&node, &Features::default())
        };
        assert!(asks("shop", "vm-1.example").is_ok_and(|w| w.is_some()));
        let long = "a".repeat(254);
        for entry in
            ["../../pods/a", "a/b", "a?x=y", "a#", "A", "-a", "a-", "a..b", ".", "..", "%2e%2e", "ü", long.as_str()]
        {
            assert!(matches!(asks("shop", entry), Err(RegistrationRefusal::Invalid(_))), "{entry}");
        }
        for namespace in ["shop/x", "..", "a.b"] {
            assert!(matches!(asks(namespace, "vm"), Err(RegistrationRefusal::Invalid(_))), "{namespace}");
        }
    }

    #[test]
    fn an_entry_is_made_of_template_group_and_node_in_this_order() {
        let group = json!({"apiVersion": "networking.istio.io/v1", "kind": "WorkloadGroup",
            "metadata": {"name": "vms", "namespace": "shop", "uid": "u1"},
            "spec": {"metadata": {"labels": {"b": "group", "c": "group"}, "annotations": {"team": "x"}},
                "template": {"labels": {"a": "template", "b": "template"}, "ports": {"http": 8080}, "serviceAccount": "sa",
                    "network": "old", "locality": "old"}}});
        let group = decode::from_value(&group, Origin::default()).unwrap();
        let node = node(
            "10.0.0.1",
            json!({"AUTO_REGISTER_GROUP": "vms", "NETWORK": "nw", "LABELS": {"c": "node"},
            "PROXY_CONFIG": {"readinessProbe": {"httpGet": {"port": 1}}}}),
        );
        let key = wish(&node, &Features::default()).unwrap().unwrap().key;
        let entry = document(&key, &node, &group).unwrap();
        let labels = json!({"a": "template", "b": "group", "c": "node"});
        assert_eq!(
            entry["spec"],
            json!({"address": "10.0.0.1", "labels": labels, "ports": {"http": 8080},
            "serviceAccount": "sa", "network": "nw", "locality": "r/z"})
        );
        assert_eq!(entry["metadata"]["labels"], labels);
        assert_eq!(entry["metadata"]["annotations"], json!({GROUP: "vms", "team": "x", HEALTH_CHECKS: "true"}));
        assert_eq!(entry["metadata"]["ownerReferences"][0]["uid"], "u1");

        let who = |namespace: &str, account: &str| {
            Identity::parse(&format!("spiffe://d/ns/{namespace}/sa/{account}")).unwrap()
        };
        assert!(may_control(Some(&who("shop", "sa")), &entry).is_ok());
        for identity in [None, Some(who("other", "sa")), Some(who("shop", "thief"))] {
            assert!(
                matches!(may_control(identity.as_ref(), &entry), Err(RegistrationRefusal::Denied(_))),
                "{identity:?}"
            );
        }
    }
}
