//! The debug pages as answers over xDS (`istio.io/debug`), for `istioctl` and other debug clients.

use std::{collections::BTreeMap, sync::Arc, time::SystemTime};

use futures::{FutureExt, future::BoxFuture};
use prost::Message;
use serde_json::Value;

use super::{AdminState, envoy_dump, pages};
use crate::{
    discovery::{Connection, DebugPages, DebugQuestion, debug},
    proto::{
        self,
        envoy::{
            admin::v3::UpdateFailureState,
            config::core::v3::Node,
            service::status::v3::{ClientConfig, ConfigStatus, client_config::GenericXdsConfig},
        },
        to_any, wkt,
    },
    xds::ResourceType,
};

/// Answers from the state that the admin pages read.
pub struct PagesOverXds {
    /// The state of this process.
    pub state: AdminState,
    /// The name of this process.
    pub instance: String,
}

impl DebugPages for PagesOverXds {
    fn answer(&self, question: DebugQuestion) -> BoxFuture<'static, Vec<(String, wkt::Any)>> {
        let state = self.state.clone();
        let building = state.building.over_xds.clone();
        let answer = async move {
            match question.type_url.as_str() {
                debug::SYNCZ => states(&state, question.namespace.as_deref()),
                debug::CONFIG_DUMP => sections(&state, &question),
                _ => page(&state, &question).await.into_iter().collect(),
            }
        };
        async move { building.build_in_turn(answer).await.unwrap_or_default() }.boxed()
    }

    /// The control plane's identifier in the form that `istioctl` reads.
    fn control_plane(&self) -> String {
        let info = serde_json::json!({"version": env!("CARGO_PKG_VERSION")});
        serde_json::json!({"Component": "pilothouse", "ID": self.instance, "Info": info}).to_string()
    }
}

fn may_see(connection: &Connection, namespace: Option<&str>) -> bool {
    namespace.is_none_or(|n| n == &*connection.node.namespace)
}

async fn page(state: &AdminState, question: &DebugQuestion) -> Option<(String, wkt::Any)> {
    let (path, query) = question.name.split_once('?').unwrap_or((&question.name, ""));
    let query: BTreeMap<String, String> =
        query.split('&').filter_map(|p| p.split_once('=')).map(|(k, v)| (k.to_string(), v.to_string())).collect();
    if question.namespace.is_some() {
        let connection = state.xds.connection(query.get("proxyID")?)?;
        may_see(&connection, question.namespace.as_deref()).then_some(())?;
    }
    let text = match pages::page_of(path, &query, question.namespace.as_deref(), state).await {
        Ok(value) => value.to_string(),
        Err((_, text)) => text,
    };
    let any = wkt::Any { type_url: debug::PAGE.to_string(), value: text.into_bytes() };
    Some((question.name.clone(), any))
}

/// The resources that each proxy was sent and has accepted, in the terms of Envoy's client status.
fn states(state: &AdminState, namespace: Option<&str>) -> Vec<(String, wkt::Any)> {
    let seen = |c: &&Arc<Connection>| c.is_proxy() && may_see(c, namespace);
    let connections = state.xds.connections();
    let of = |c: &Arc<Connection>| (c.node.id.to_string(), to_any(&client_config(c)));
    connections.iter().filter(seen).map(of).collect()
}

fn client_config(connection: &Connection) -> ClientConfig {
    let types = ResourceType::ALL.into_iter().map(|kind| (kind, connection.status(kind)));
    let generic = types.filter(|(_, status)| status.watched).map(|(kind, status)| {
        let at = status.sent_at.map(timestamp);
        let state = match () {
            () if !status.last_error.is_empty() => ConfigStatus::Error,
            () if status.sent_nonce.is_empty() => ConfigStatus::NotSent,
            () if status.sent_nonce == status.acked_nonce => ConfigStatus::Synced,
            () => ConfigStatus::Stale,
        };
        let failure = (!status.last_error.is_empty()).then(|| UpdateFailureState {
            last_update_attempt: at,
            details: status.last_error.clone(),
            ..Default::default()
        });
        GenericXdsConfig {
            type_url: kind.url().to_string(),
            last_updated: at,
            config_status: state.into(),
            error_state: failure,
            ..Default::default()
        }
    });
    let mut generic_xds_configs: Vec<GenericXdsConfig> = generic.collect();
    generic_xds_configs.sort_by(|a, b| a.type_url.cmp(&b.type_url));
    let node = &connection.node;
    let metadata = serde_json::json!({
        "CLUSTER_ID": node.cluster_id.to_string(), "NAMESPACE": node.namespace.to_string(),
        "ISTIO_VERSION": node.metadata.istio_version.to_string(),
    });
    let node = Node { id: node.id.to_string(), metadata: proto::json_to_struct(&metadata), ..Default::default() };
    ClientConfig { node: Some(node), generic_xds_configs, ..Default::default() }
}

fn timestamp(at: SystemTime) -> wkt::Timestamp {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    wkt::Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() as i32 }
}

/// The sections of a config dump, each in its own message.
fn sections(state: &AdminState, question: &DebugQuestion) -> Vec<(String, wkt::Any)> {
    let connection = state.xds.connection(&question.name).filter(|c| may_see(c, question.namespace.as_deref()));
    let dump = connection.map(|c| envoy_dump::dump(&c, &[], None)).unwrap_or_default();
    let configs = dump["configs"].as_array().cloned().unwrap_or_default();
    configs.iter().filter_map(|section| Some((String::new(), packed(section)?))).collect()
}

/// A section, which says its type in `@type`, as that message.
fn packed(section: &Value) -> Option<wkt::Any> {
    let type_url = section["@type"].as_str()?.to_string();
    let descriptor = proto::pool().get_message_by_name(type_url.rsplit('/').next()?)?;
    let mut fields = section.clone();
    fields.as_object_mut()?.remove("@type");
    let message = proto::dynamic_from_json(descriptor, &fields, false).ok()?;
    Some(wkt::Any { type_url, value: message.encode_to_vec() })
}
