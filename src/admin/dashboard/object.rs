//! One object: its text with what is wrong at its line, the resources that it made, the clients that hold them.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use regex::bytes::Regex;
use serde_json::{Value, json};

use super::{
    analysis::about,
    fleet::kind_of,
    listing::{Query, text},
    object_text::ObjectText,
    refusal::{Refusal, missing},
};
use crate::{
    admin::{AdminState, describe::workload::policies, standing::standing},
    discovery::Connection,
    model::{Config, Kind},
    sources::Refused,
    xds::{Block, ResourceType},
};

/// Resources and clients that are shown.
const MOST: usize = 50;
/// Resources of all clients that are searched; equal lists of several clients count once.
const MOST_SEARCHED: usize = 200_000;

/// The page.
pub(super) async fn object(query: &Query, state: &AdminState) -> Result<Value, Refusal> {
    let [kind, name, namespace] = ["kind", "name", "namespace"].map(|field| text(query, field));
    let group = query.get("group").map(String::as_str);
    let refused = refused(state, kind, namespace, name);
    let Some(config) = found(state, kind, group, namespace, name) else {
        if refused.is_empty() {
            return Err(missing(&format!("no object {kind} {name}.{namespace}")));
        }
        let text = refused.iter().find_map(|r| ObjectText::of_refused(&r.file, r.line));
        return Ok(json!({
            "kind": kind, "namespace": namespace, "name": name, "inForce": false,
            "place": refused.first().map(|r| format!("{}:{}", r.file, r.line)),
            "text": text.map(|text| text.shown()), "problems": refused.iter().map(of_refused).collect::<Vec<_>>(),
        }));
    };
    let written = ObjectText::of(&config);
    let mut problems: Vec<Value> = refused.iter().map(of_refused).collect();
    problems.extend(warned(state, &config));
    for mut message in about(state, &config).await {
        let path = message["path"].as_str().unwrap_or_default().to_string();
        message["line"] = json!(written.line_of(&path).unwrap_or(written.first));
        problems.push(message);
    }
    problems.extend(left_out(state, &config));
    let statuses = state.status.statuses().await;
    let status = statuses.into_iter().find(|row| is_of(row, &config));
    let (made, holders) = made_and_held(state, &config);
    Ok(json!({
        "kind": config.kind().as_str(), "group": config.kind().group(), "namespace": &*config.meta.namespace,
        "name": &*config.meta.name, "inForce": true, "source": &*config.origin.source, "place": config.origin.place(),
        "text": written.shown(), "problems": problems, "status": status, "made": made, "holders": holders,
    }))
}

fn is_of(row: &Value, config: &Config) -> bool {
    row["kind"] == config.kind().as_str()
        && row["name"] == *config.meta.name
        && row["namespace"].as_str().unwrap_or_default() == &*config.meta.namespace
}

/// The object of the store, or one that a translation made.
fn found(state: &AdminState, kind: &str, group: Option<&str>, namespace: &str, name: &str) -> Option<Arc<Config>> {
    let kinds = Kind::ALL.iter().filter(|of| of.as_str() == kind && group.is_none_or(|group| of.group() == group));
    let (stored, context) = (state.store.snapshot(), state.context());
    let is_it = |config: &&Arc<Config>| *config.meta.name == *name && *config.meta.namespace == *namespace;
    let of_kind = |kind: &Kind| {
        let made = context.as_ref().and_then(|context| context.inputs.configs.list(*kind).iter().find(is_it).cloned());
        stored.list(*kind).iter().find(is_it).cloned().or(made)
    };
    kinds.into_iter().find_map(of_kind)
}

/// The refused documents of this identity.
fn refused(state: &AdminState, kind: &str, namespace: &str, name: &str) -> Vec<Refused> {
    let mut found = Vec::new();
    for source in state.sources.all().iter() {
        let findings = source.board.read().findings;
        let is_it = |r: &&Refused| {
            let same = r.namespace == namespace || (r.namespace.is_empty() && namespace == "default");
            r.kind == kind && r.name == name && same
        };
        found.extend(findings.refused.iter().filter(is_it).take(MOST).cloned());
    }
    found
}

fn of_refused(refused: &Refused) -> Value {
    json!({"level": "Refused", "line": refused.line, "column": refused.column, "file": refused.file, "message": refused.reason})
}

/// Warnings of its source about it.
fn warned(state: &AdminState, config: &Config) -> Vec<Value> {
    let mut found = Vec::new();
    for source in state.sources.all().iter().filter(|source| *source.id() == *config.origin.source) {
        let findings = source.board.read().findings;
        let is_about = |w: &&crate::sources::Warned| {
            w.kind == config.kind().as_str() && w.name == *config.meta.name && w.namespace == *config.meta.namespace
        };
        let shown = findings.warned.iter().filter(is_about).take(MOST);
        found.extend(shown.map(
            |w| json!({"level": "Warning", "line": w.line, "column": w.column, "file": w.file, "message": w.warning}),
        ));
    }
    found
}

/// Parts that clients are not sent, or refuse.
fn left_out(state: &AdminState, config: &Config) -> Vec<Value> {
    let key = config.key();
    let all = state.xds.omissions().into_iter().chain(state.xds.refused_by_clients());
    let of_it = all.filter(|omission| omission.object.as_ref() == Some(&key)).take(MOST);
    of_it
        .map(|omission| {
            json!({"level": "Error", "line": config.origin.line, "message": format!("{}: {}", omission.resource, omission.message)})
        })
        .collect()
}

/// The resources that an object made, by type, and the clients that hold them or that it applies to.
fn made_and_held(state: &AdminState, config: &Config) -> (Value, Value) {
    let trace = Trace::of(config);
    let mut searched: BTreeMap<usize, Vec<(ResourceType, Arc<str>)>> = BTreeMap::new();
    let (mut budget, mut unsearched) = (MOST_SEARCHED, 0);
    let mut made: BTreeMap<&'static str, BTreeMap<Arc<str>, usize>> = BTreeMap::new();
    let mut holders: Vec<(Arc<Connection>, &'static str)> = Vec::new();
    for connection in state.xds.connections() {
        let mut holds = false;
        for kind in connection.served().iter() {
            let Some(sent) = connection.status(kind).sent else { continue };
            for block in sent.blocks() {
                let address = Arc::as_ptr(block) as usize;
                let found = match searched.entry(address) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(_) if block.resources().len() > budget => {
                        unsearched += 1;
                        continue;
                    }
                    Entry::Vacant(place) => {
                        budget -= block.resources().len();
                        place.insert(trace.names(kind, block, &connection, state))
                    }
                };
                for (kind, name) in found.iter() {
                    holds = true;
                    *made.entry(kind.short()).or_default().entry(name.clone()).or_default() += 1;
                }
            }
        }
        if holds {
            holders.push((connection, "holds resources of it"));
        } else if applies(state, &connection, config) {
            holders.push((connection, "it applies to this workload"));
        }
    }
    let resources = made.iter().flat_map(|(kind, names)| {
        names.iter().map(move |(name, clients)| json!({"type": kind, "name": &**name, "clients": clients}))
    });
    let resources: Vec<Value> = resources.collect();
    let rows: Vec<Value> = holders
        .iter()
        .take(MOST)
        .map(|(c, why)| json!({"id": c.id, "kind": kind_of(c), "standing": standing(c).word(), "why": why}))
        .collect();
    (
        json!({"total": resources.len(), "rows": resources.into_iter().take(MOST).collect::<Vec<_>>(), "unsearched": unsearched}),
        json!({"total": holders.len(), "rows": rows}),
    )
}

/// Whether a policy or a Sidecar is in force for a workload.
fn applies(state: &AdminState, connection: &Connection, config: &Config) -> bool {
    let Some(context) = state.context() else { return false };
    match config.kind() {
        Kind::Sidecar => {
            let view = context.view_of(&connection.node);
            context.sidecars.sidecar_of(&view).is_some_and(|sidecar| sidecar.key() == config.key())
        }
        Kind::AuthorizationPolicy | Kind::PeerAuthentication | Kind::RequestAuthentication => {
            let shown = policies(&context, &context.view_of(&connection.node));
            let name = format!("{}.{}", config.meta.name, config.meta.namespace);
            let lists = [
                &shown["authorizationPolicies"],
                &shown["requestAuthentications"],
                &shown["mutualTls"]["peerAuthentications"],
            ];
            let mut all = lists.into_iter().filter_map(Value::as_array).flatten();
            all.any(|policy| policy["kind"] == config.kind().as_str() && policy["name"] == name)
        }
        _ => false,
    }
}

/// The mark that an object leaves in its resources.
enum Trace<'a> {
    /// A text in the encoded resource.
    Text(Regex),
    /// The host at the end of a cluster's name.
    Hosts(Vec<String>),
    /// The generator knows the origin of these types.
    Origin(&'a Config),
    /// None.
    Nothing,
}

impl<'a> Trace<'a> {
    fn of(config: &'a Config) -> Self {
        let (name, namespace) = (&config.meta.name, &config.meta.namespace);
        let literal = |text: String| Regex::new(&regex::escape(&text)).map_or(Self::Nothing, Self::Text);
        match config.kind() {
            Kind::VirtualService => of_path("virtual-service", config),
            Kind::DestinationRule => of_path("destination-rule", config),
            Kind::AuthorizationPolicy => literal(format!("ns[{namespace}]-policy[{name}]-rule[")),
            Kind::ServiceEntry => {
                let hosts = config.service_entry().map(|entry| entry.hosts).unwrap_or_default();
                Self::Hosts(hosts.iter().map(|host| format!("|{host}")).collect())
            }
            Kind::Service => Self::Hosts(vec![format!("|{name}.{namespace}.svc.")]),
            Kind::Gateway | Kind::EnvoyFilter => Self::Origin(config),
            _ => Self::Nothing,
        }
    }

    fn names(
        &self,
        kind: ResourceType,
        block: &Block,
        connection: &Connection,
        state: &AdminState,
    ) -> Vec<(ResourceType, Arc<str>)> {
        let by_name = matches!(kind, ResourceType::Cluster | ResourceType::Endpoint);
        let fits = |resource: &crate::xds::Resource| match self {
            Self::Text(text) => text.is_match(resource.any()),
            Self::Hosts(hosts) => by_name && hosts.iter().any(|host| ends_with_host(resource.name(), host)),
            Self::Origin(config) => {
                kind == ResourceType::Listener
                    && state.xds.origin_of(connection, kind, resource.name()).is_some_and(|key| key == config.key())
            }
            Self::Nothing => false,
        };
        let found = block.resources().iter().filter(|resource| fits(resource));
        found.map(|resource| (kind, resource.name().clone())).collect()
    }
}

/// A resource's metadata names the object by a path of the API, in any of the group's versions.
fn of_path<'a>(kebab: &str, config: &Config) -> Trace<'a> {
    let [group, namespace, name] =
        [config.kind().group(), &config.meta.namespace, &config.meta.name].map(regex::escape);
    // The path is the end of a string value: the next byte is the tag of another field, or there is none.
    let path = format!(r"/apis/{group}/[a-z0-9]+/namespaces/{namespace}/{kebab}/{name}([^-.a-z0-9]|$)");
    Regex::new(&path).map_or(Trace::Nothing, Trace::Text)
}

/// Whether a cluster's name ends with the host; the domain of a Kubernetes service is any.
fn ends_with_host(name: &str, host: &str) -> bool {
    if host.ends_with(".svc.") { name.contains(host) } else { name.ends_with(host) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Origin, decode};

    #[test]
    fn a_path_is_that_of_one_object() {
        let document = json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"hosts": ["a"]}});
        let config = decode::from_value(&document, Origin::default()).unwrap();
        let Trace::Text(text) = Trace::of(&config) else { panic!("it leaves a path") };
        assert!(text.is_match(b"\x0a/apis/networking.istio.io/v1/namespaces/shop/virtual-service/web\x12"));
        assert!(text.is_match(b"/apis/networking.istio.io/v1alpha3/namespaces/shop/virtual-service/web"));
        assert!(!text.is_match(b"/apis/networking.istio.io/v1/namespaces/shop/virtual-service/web-2"));
        assert!(!text.is_match(b"/apis/networking.istio.io/v1/namespaces/shop/destination-rule/web"));
        assert!(
            ends_with_host("outbound|80|v1|a.example", "|a.example")
                && !ends_with_host("outbound|80||ba.example", "|a.example")
        );
    }
}
