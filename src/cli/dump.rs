//! The configuration of one proxy in the form of Envoy's `/config_dump`: that a running server sent, that an Envoy holds, or
//! that a file keeps.
//!
//! Envoy writes fields in snake case, the server in camel case; both come out as canonical protobuf JSON. Private keys are
//! blanked on reading, so no command can show one.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args;
use prost_reflect::SerializeOptions;
use serde_json::{Map, Value};

use super::{
    Refusal,
    http::{self, ServerArgs, quoted},
    redact::redact,
};
use crate::proto;

/// The proxy, and the place that its configuration is read from.
#[derive(Debug, Clone, Args)]
pub struct DumpArgs {
    /// The proxy, as `proxy-status` names it, of the server at --http-addr; NAME alone where one proxy has it. A connection's
    /// id picks one of several connections.
    #[arg(
        value_name = "NAME[.NAMESPACE]",
        required_unless_present_any = ["envoy_admin", "file"],
        conflicts_with_all = ["envoy_admin", "file"]
    )]
    pub proxy: Option<String>,
    /// An Envoy's admin address, to read the configuration that it holds.
    #[arg(long, env = "PILOTHOUSE_ENVOY_ADMIN", value_name = "HOST:PORT", value_parser = http::address, conflicts_with = "file")]
    pub envoy_admin: Option<String>,
    /// File of a config dump (/config_dump?include_eds of an Envoy, /debug/config_dump of the server); `-` is standard input.
    #[arg(short, long, env = "PILOTHOUSE_FILE", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The server.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// The document that the arguments name: a config dump, or for a file any page of Envoy's admin interface.
#[derive(Debug, Clone)]
pub(super) struct Document {
    /// The place that it came from, for messages.
    pub(super) place: String,
    /// Its content.
    pub(super) value: Value,
}

impl DumpArgs {
    /// Fetches or reads the document.
    ///
    /// # Errors
    /// A place that does not answer; [`Refusal`] for a proxy or a file that does not exist, or that is no JSON.
    pub(super) fn document(&self) -> anyhow::Result<Document> {
        if let Some(file) = &self.file {
            return of_file(file);
        }
        if let Some(address) = &self.envoy_admin {
            return of_admin(address);
        }
        of_server(&self.server, self.proxy.as_deref().unwrap_or_default())
    }
}

/// The document of a file.
pub(super) fn of_file(file: &Path) -> anyhow::Result<Document> {
    let place = format!("--file {}", file.display());
    let mut text = Vec::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().lock().read_to_end(&mut text),
        _ => std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut text)),
    };
    read.map_err(|error| Refusal(format!("{place}: {error}")))?;
    let value = serde_json::from_slice(&text).map_err(|error| Refusal(format!("{place}: not JSON: {error}")))?;
    Ok(Document { place, value })
}

/// The config dump of an Envoy.
pub(super) fn of_admin(address: &str) -> anyhow::Result<Document> {
    let value = http::fetch(address, "/config_dump?include_eds").context("--envoy-admin")?;
    Ok(Document { place: format!("--envoy-admin {address}"), value })
}

/// The config dump of a server about one proxy.
pub(super) fn of_server(server: &ServerArgs, proxy: &str) -> anyhow::Result<Document> {
    let id = found(&server.fetch("/debug/syncz")?, proxy)?;
    let value = server.fetch(&format!("/debug/config_dump?proxyID={}", quoted(&id)))?;
    Ok(Document { place: format!("the server at {}", server.http_addr), value })
}

/// The id for `config_dump` of the proxy that a user names. A whole node id, as a bootstrap has it, is taken as it is.
fn found(proxies: &Value, asked: &str) -> Result<String, Refusal> {
    let rows = proxies.as_array().map_or(&[][..], Vec::as_slice);
    let named: Vec<&Value> = rows.iter().filter(|proxy| is_named(proxy, asked)).collect();
    let name = bare(asked);
    if named.iter().any(|proxy| proxy["proxy"] == name || proxy["connection_id"] == name) {
        return Ok(name.to_string());
    }
    let mut ids: Vec<&str> = named.iter().filter_map(|proxy| proxy["proxy"].as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    match ids[..] {
        [] => Err(not_connected(asked)),
        [one] => Ok(one.to_string()),
        _ => Err(Refusal(format!("proxy {asked:?} is any of {}; name one with its namespace", ids.join(", ")))),
    }
}

/// The id of the connection of the proxy that a user names, if the server has it.
pub(super) fn connection(server: &ServerArgs, asked: &str) -> Option<String> {
    let proxies = server.fetch("/debug/syncz").ok()?;
    let proxy = proxies.as_array()?.iter().find(|proxy| is_named(proxy, asked))?;
    proxy["connection_id"].as_str().map(String::from)
}

/// The name without istioctl's prefix of a kind; of a node id `TYPE~IP~NAME.NAMESPACE~DOMAIN` the name in it.
fn bare(asked: &str) -> &str {
    match asked.split('~').collect::<Vec<_>>()[..] {
        [_, _, name, _] => name,
        _ => asked.strip_prefix("pod/").unwrap_or(asked),
    }
}

/// Whether a row of `/debug/syncz` is about the proxy that a user names.
pub(super) fn is_named(proxy: &Value, asked: &str) -> bool {
    let name = bare(asked);
    let is_short = |id: &str| id.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    proxy["proxy"] == name || proxy["connection_id"] == name || proxy["proxy"].as_str().is_some_and(is_short)
}

pub(super) fn not_connected(asked: &str) -> Refusal {
    Refusal(format!("proxy {asked:?} is not connected to this server; `pilothouse proxy-status` lists those that are"))
}

/// A config dump: its sections, readable.
#[derive(Debug, Clone)]
pub(super) struct Dump {
    sections: Vec<Value>,
}

/// A list in a section: the section's message, the list's field in both spellings, the path of a resource in an entry.
struct List(&'static str, [&'static str; 2], &'static [[&'static str; 2]]);

const CLUSTER: [&str; 2] = ["cluster", "cluster"];
const LISTENER: [&str; 2] = ["listener", "listener"];
const ROUTE: [&str; 2] = ["routeConfig", "route_config"];
const ENDPOINT: [&str; 2] = ["endpointConfig", "endpoint_config"];

/// The types of resources of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Active clusters.
    Clusters,
    /// Active listeners.
    Listeners,
    /// Routes that are configured on their own.
    Routes,
    /// Endpoints.
    Endpoints,
    /// Extensions that came over ECDS.
    Extensions,
}

impl Part {
    const fn dynamic(self) -> List {
        match self {
            Self::Clusters => {
                List("ClustersConfigDump", ["dynamicActiveClusters", "dynamic_active_clusters"], &[CLUSTER])
            }
            Self::Listeners => List(
                "ListenersConfigDump",
                ["dynamicListeners", "dynamic_listeners"],
                &[["activeState", "active_state"], LISTENER],
            ),
            Self::Routes => List("RoutesConfigDump", ["dynamicRouteConfigs", "dynamic_route_configs"], &[ROUTE]),
            Self::Endpoints => {
                List("EndpointsConfigDump", ["dynamicEndpointConfigs", "dynamic_endpoint_configs"], &[ENDPOINT])
            }
            Self::Extensions => {
                List("EcdsConfigDump", ["ecdsFilters", "ecds_filters"], &[["ecdsFilter", "ecds_filter"]])
            }
        }
    }

    const fn fixed(self) -> Option<List> {
        Some(match self {
            Self::Clusters => List("ClustersConfigDump", ["staticClusters", "static_clusters"], &[CLUSTER]),
            Self::Listeners => List("ListenersConfigDump", ["staticListeners", "static_listeners"], &[LISTENER]),
            Self::Routes => List("RoutesConfigDump", ["staticRouteConfigs", "static_route_configs"], &[ROUTE]),
            Self::Endpoints => {
                List("EndpointsConfigDump", ["staticEndpointConfigs", "static_endpoint_configs"], &[ENDPOINT])
            }
            Self::Extensions => return None,
        })
    }
}

impl Dump {
    /// Reads a document.
    ///
    /// # Errors
    /// [`Refusal`] where it is no config dump.
    pub(super) fn of(document: Document) -> Result<Self, Refusal> {
        let Document { place, mut value } = document;
        redact(&mut value);
        match value.get_mut("configs").map(Value::take) {
            Some(Value::Array(sections)) => Ok(Self { sections }),
            _ => Err(Refusal(format!("{place}: no config dump of Envoy: it has no list \"configs\""))),
        }
    }

    /// A section by its message's name, as it was written.
    pub(super) fn section(&self, message: &str) -> Option<&Value> {
        let is_it = |s: &&Value| s["@type"].as_str().is_some_and(|url| url.rsplit('.').next() == Some(message));
        self.sections.iter().find(is_it)
    }

    fn entries(&self, section: &str, list: [&str; 2]) -> impl Iterator<Item = &Value> {
        let section = self.section(section);
        let list = list.into_iter().find_map(|key| section?.get(key)?.as_array());
        list.into_iter().flatten()
    }

    fn listed(&self, List(section, list, path): &List) -> Vec<Value> {
        let resource = |entry| path.iter().try_fold(entry, |at: &Value, keys| of_either(at, *keys));
        self.entries(section, *list).filter_map(resource).map(canonical).collect()
    }

    /// The resources that a control plane sent, in canonical form.
    pub(super) fn dynamic(&self, part: Part) -> Vec<Value> {
        self.listed(&part.dynamic())
    }

    /// All resources, also those of the bootstrap, in canonical form.
    pub(super) fn all(&self, part: Part) -> Vec<Value> {
        let mut all = self.dynamic(part);
        all.extend(part.fixed().iter().flat_map(|list| self.listed(list)));
        all
    }

    /// Secrets, each with its state: `ACTIVE`, `WARMING` or `STATIC`.
    pub(super) fn secrets(&self) -> Vec<(&'static str, Value)> {
        let lists = [
            ("ACTIVE", ["dynamicActiveSecrets", "dynamic_active_secrets"]),
            ("WARMING", ["dynamicWarmingSecrets", "dynamic_warming_secrets"]),
            ("STATIC", ["staticSecrets", "static_secrets"]),
        ];
        let of = |(state, list)| {
            self.entries("SecretsConfigDump", list).filter_map(move |e| Some((state, canonical(e.get("secret")?))))
        };
        lists.into_iter().flat_map(of).collect()
    }

    /// The bootstrap; `None` where the dump has none, as that of a server.
    pub(super) fn bootstrap(&self) -> Option<Value> {
        let bootstrap = self.section("BootstrapConfigDump")?.get("bootstrap")?;
        let mut typed = bootstrap.clone();
        let url = "type.googleapis.com/envoy.config.bootstrap.v3.Bootstrap";
        typed.as_object_mut()?.insert("@type".to_string(), Value::from(url));
        let mut bootstrap = canonical(&typed);
        bootstrap.as_object_mut()?.remove("@type");
        Some(bootstrap)
    }

    /// The whole dump, as it was written, without keys.
    pub(super) fn whole(&self) -> Value {
        serde_json::json!({ "configs": self.sections })
    }
}

/// A field in the first of two spellings that is there.
pub(super) fn of_either<'a>(value: &'a Value, keys: [&str; 2]) -> Option<&'a Value> {
    keys.into_iter().find_map(|key| value.get(key))
}

/// A resource in canonical protobuf JSON, without the fields that have their defaults. One of a type that is not known here has
/// its fields in camel case.
pub(super) fn canonical(resource: &Value) -> Value {
    let known = || {
        let url = resource["@type"].as_str()?;
        let descriptor = proto::pool().get_message_by_name(url.rsplit('/').next()?)?;
        let mut fields = resource.as_object()?.clone();
        fields.remove("@type");
        let message = proto::dynamic_from_json(descriptor, &Value::Object(fields), false).ok()?;
        let value = message.serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new()).ok()?;
        let mut typed = Map::from_iter([("@type".to_string(), Value::from(url))]);
        typed.extend(value.as_object()?.clone());
        Some(Value::Object(typed))
    };
    known().unwrap_or_else(|| camel(resource))
}

/// The same with keys in camel case, apart from those of metadata, which are data.
fn camel(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let spelt = |(key, value): (&String, &Value)| match key.as_str() {
                "filter_metadata" | "filterMetadata" => ("filterMetadata".to_string(), value.clone()),
                "typed_per_filter_config" | "typedPerFilterConfig" => {
                    ("typedPerFilterConfig".to_string(), value.clone())
                }
                key => (camel_key(key), camel(value)),
            };
            Value::Object(fields.iter().map(spelt).collect())
        }
        Value::Array(list) => list.iter().map(camel).collect(),
        plain => plain.clone(),
    }
}

fn camel_key(key: &str) -> String {
    let mut parts = key.split('_');
    let mut spelt = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let mut letters = part.chars();
        spelt.extend(letters.next().map(|c| c.to_ascii_uppercase()));
        spelt.push_str(letters.as_str());
    }
    spelt
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dump(configs: Value) -> Dump {
        Dump::of(Document { place: "here".to_string(), value: json!({ "configs": configs }) }).unwrap()
    }

    #[test]
    fn both_spellings_come_out_as_one() {
        let of_envoy = dump(json!([{
            "@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump", "version_info": "7",
            "dynamic_active_clusters": [{"version_info": "7", "cluster": {
                "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "type": "EDS",
                "connect_timeout": "10s", "metadata": {"filter_metadata": {"istio": {"default_original_port": 1}}}}}],
            "static_clusters": [{"cluster": {"@type": "type.googleapis.com/no.such.Thing", "name": "b", "some_field": {"x_y": 1}}}],
        }]));
        let of_server = dump(json!([{
            "@type": "type.googleapis.com/envoy.admin.v3.ClustersConfigDump",
            "dynamicActiveClusters": [{"versionInfo": "2026", "cluster": {
                "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "connectTimeout": "10s",
                "metadata": {"filterMetadata": {"istio": {"default_original_port": 1}}}, "type": "EDS", "lbPolicy": "ROUND_ROBIN"}}],
        }]));
        assert_eq!(of_envoy.dynamic(Part::Clusters), of_server.dynamic(Part::Clusters));
        let all = of_envoy.all(Part::Clusters);
        assert_eq!(all[1]["someField"], json!({"xY": 1}), "a type that is not known");
        assert_eq!(all[0]["metadata"]["filterMetadata"]["istio"]["default_original_port"], 1.0);
        assert!(of_server.bootstrap().is_none() && of_server.all(Part::Listeners).is_empty());
    }

    #[test]
    fn keys_are_not_in_a_dump() {
        let dump = dump(json!([{"@type": "x/envoy.admin.v3.SecretsConfigDump", "dynamic_active_secrets": [{"secret": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "name": "s",
            "tls_certificate": {"private_key": {"inline_bytes": "aHVzaA=="}}}}]}]));
        assert!(!dump.whole().to_string().contains("aHVzaA"));
        assert_eq!(dump.secrets()[0].1["name"], "s");
    }

    #[test]
    fn a_proxy_is_found_by_its_name() {
        let proxies = json!([
            {"proxy": "web.shop", "connection_id": "web.shop-1"}, {"proxy": "web.shop", "connection_id": "web.shop-2"},
            {"proxy": "db.shop", "connection_id": "db.shop-3"}, {"proxy": "db.test", "connection_id": "db.test-4"},
        ]);
        for (asked, id) in [
            ("web", "web.shop"),
            ("pod/web.shop", "web.shop"),
            ("web.shop-2", "web.shop-2"),
            ("sidecar~10.0.0.1~db.test~test.svc", "db.test"),
        ] {
            assert_eq!(found(&proxies, asked).unwrap(), id);
        }
        assert!(found(&proxies, "db").unwrap_err().0.contains("db.shop, db.test"));
        assert!(found(&proxies, "we").unwrap_err().0.contains("not connected"));
    }

    #[test]
    fn other_documents_are_refused_by_their_place() {
        let document = Document { place: "--file x".to_string(), value: json!([1]) };
        assert!(Dump::of(document).unwrap_err().0.starts_with("--file x: no config dump"));
        assert_eq!(http::address("http://127.0.0.1:15000/").unwrap(), "127.0.0.1:15000");
        assert!(http::address("15000").is_err());
    }
}
