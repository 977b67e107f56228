//! One workload: the services that it is behind, and the policies in force for it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::object;
use crate::{
    model::{Config, Kind, Node, labels},
    push::{ProxyView, PushContext, authn::MtlsMode},
};

/// The description of a workload; `is_connected` when its proxy is.
pub(in crate::admin) fn describe(context: &PushContext, node: &Node, is_connected: bool) -> Value {
    let view = context.view_of(node);
    let peer = context.authn.policy(&view.namespace, &view.labels);
    let services = view.targets.iter().map(|target| {
        let service = &target.service;
        json!({
            "service": format!("{}.{}", service.object_name, service.namespace), "host": &*service.hostname,
            "port": target.port.port, "protocol": target.port.protocol.as_str(), "targetPort": target.target_port,
            "mutualTls": mode(peer.for_port(target.target_port)),
        })
    });
    let gateways = view.is_router().then(|| context.merged_gateway(&view)).flatten();
    let gateways: Vec<String> =
        gateways.iter().flat_map(|merged| &merged.gateway_names).map(|name| dotted(name)).collect();
    let sidecar = context.sidecars.sidecar_of(&view).filter(|_| !view.is_router());
    json!({
        "workload": &*node.id, "type": format!("{:?}", node.node_type).to_lowercase(), "connected": is_connected,
        "addresses": node.ips.iter().map(|ip| &**ip).collect::<Vec<_>>(), "labels": node.labels,
        "services": services.collect::<Vec<_>>(), "sidecar": sidecar.map(|config| object(config)),
        "gateways": gateways, "policies": policies(context, &view),
    })
}

/// The policies in force for a workload.
pub(in crate::admin) fn policies(context: &PushContext, view: &ProxyView) -> Value {
    let peer = context.authn.policy(&view.namespace, &view.labels);
    let ports: serde_json::Map<String, Value> =
        peer.ports.iter().map(|(port, of)| (port.to_string(), mode(*of).into())).collect();
    let of = context.policies.authorization(view);
    let lists = [("CUSTOM", &of.custom), ("DENY", &of.deny), ("ALLOW", &of.allow), ("AUDIT", &of.audit)];
    let access = lists.into_iter().flat_map(|(action, list)| {
        list.iter().map(move |config| {
            let mut shown = object(config);
            shown["action"] = action.into();
            shown
        })
    });
    json!({
        "mutualTls": {"mode": mode(peer.mode), "ports": ports, "peerAuthentications": peers(context, view)},
        "authorizationPolicies": access.collect::<Vec<_>>(),
        "requestAuthentications": context.policies.authentication(view).map(|c| object(c)).collect::<Vec<_>>(),
    })
}

/// The PeerAuthentications that the modes come from: of each level the oldest, the workload's first.
fn peers(context: &PushContext, view: &ProxyView) -> Vec<Value> {
    let root = context.mesh().config.root_namespace.as_str();
    let all = context.inputs.configs.list(Kind::PeerAuthentication);
    let selector = |config: &Config| {
        let policy = config.peer_authentication()?;
        policy.selector.as_ref().map(|s| &s.match_labels).filter(|labels| !labels.is_empty()).cloned()
    };
    let of_workload = |config: &&Arc<Config>| {
        let selected = selector(config).is_some_and(|selector| labels::matches(&selector, &view.labels));
        *config.meta.namespace == *view.namespace && *config.meta.namespace != *root && selected
    };
    let wide = |namespace: &str| all.iter().find(|c| *c.meta.namespace == *namespace && selector(c).is_none());
    let of_namespace = (*view.namespace != *root).then(|| wide(&view.namespace)).flatten();
    let levels = [all.iter().find(of_workload), of_namespace, wide(root)];
    levels.into_iter().flatten().map(|config| object(config)).collect()
}

/// Istio's word for a mode.
pub(in crate::admin) const fn mode(mode: MtlsMode) -> &'static str {
    match mode {
        MtlsMode::Unknown => "UNSET",
        MtlsMode::Disable => "DISABLE",
        MtlsMode::Permissive => "PERMISSIVE",
        MtlsMode::Strict => "STRICT",
    }
}

/// `NAMESPACE/NAME` as `NAME.NAMESPACE`.
pub(in crate::admin) fn dotted(name: &str) -> String {
    name.split_once('/').map_or_else(|| name.to_string(), |(namespace, name)| format!("{name}.{namespace}"))
}
