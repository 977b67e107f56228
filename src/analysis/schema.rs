//! One object alone: warnings of its validation, deprecated kinds and fields, copies, kinds that do not exist.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    code::Code,
    message::Report,
    object::{Content, Object},
    world::World,
};
use crate::model::{Config, Kind, KindClass, validation};

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    let mut first: BTreeMap<(&str, &str, &str, &str, &str), &Object> = BTreeMap::new();
    for (index, object) in world.objects.iter().enumerate() {
        warnings(report, (index, object));
        let cluster = object.config().map_or("", |config| &*config.origin.cluster);
        let key = (&*object.group, &*object.kind, &*object.namespace, &*object.name, cluster);
        match first.get(&key) {
            Some(before) => {
                let text = format!("{} {} is hidden by the one at {}.", object.kind, object.full_name(), before.place);
                report.add(Code::Hidden, index, "metadata.name", text);
            }
            None => drop(first.insert(key, object)),
        }
        match &object.content {
            Content::Read(config) => deprecated(report, index, config),
            Content::Unread(document) => unread(report, index, document),
        }
    }
}

fn warnings(report: &mut Report, (index, object): (usize, &Object)) {
    let service = object.config().and_then(|config| config.virtual_service());
    let told: Vec<String> = service
        .map(|service| validation::unreachable(service).iter().filter_map(|u| u.warning()).collect())
        .unwrap_or_default();
    for warning in object.warnings.iter().filter(|warning| !told.contains(*warning)) {
        let text = format!("Schema validation warning: {warning}");
        report.add(Code::SchemaWarning, index, warning.as_str(), text);
    }
}

/// What stands in place of a retired kind.
fn replacement(kind: Kind) -> &'static str {
    match kind {
        Kind::MeshPolicy | Kind::Policy => "use PeerAuthentication and RequestAuthentication",
        Kind::ClusterRbacConfig | Kind::RbacConfig | Kind::ServiceRole | Kind::ServiceRoleBinding => {
            "use AuthorizationPolicy"
        }
        _ => "there is no replacement",
    }
}

fn deprecated(report: &mut Report, index: usize, config: &Config) {
    let kind = config.kind();
    if kind.class() == KindClass::Retired {
        let text =
            format!("Deprecated: Custom resource type {} {kind} is removed; {}", kind.group(), replacement(kind));
        report.add(Code::Deprecated, index, "kind", text);
    }
    if let Some(service) = config.virtual_service() {
        for (i, http) in service.http.iter().enumerate() {
            let delay = http.fault.as_ref().and_then(|fault| fault.delay.as_ref());
            #[allow(deprecated, reason = "the deprecated field is what is looked for")]
            if delay.is_some_and(|delay| delay.percent > 0) {
                let text =
                    "Deprecated: HTTPRoute.fault.delay.percent is deprecated; use HTTPRoute.fault.delay.percentage";
                report.add(Code::Deprecated, index, format!("spec.http[{i}].fault.delay.percent"), text);
            }
        }
    }
    let policy = config.sidecar().and_then(|sidecar| sidecar.outbound_traffic_policy.as_ref());
    if policy.is_some_and(|policy| policy.egress_proxy.is_some()) {
        let text = "Deprecated: OutboundTrafficPolicy.EgressProxy ignored";
        report.add(Code::Deprecated, index, "spec.outboundTrafficPolicy.egressProxy", text);
    }
}

fn unread(report: &mut Report, index: usize, document: &Value) {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    if Kind::parse(api_version, kind).is_none()
        && let Some(reason) = Kind::unknown_of_known_group(api_version, kind)
    {
        report.add(Code::UnknownKind, index, "kind", reason);
    }
    if kind == "CustomResourceDefinition" {
        let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
        let retired =
            Kind::ALL.iter().find(|k| k.class() == KindClass::Retired && k.group() == group && k.as_str() == kind);
        if let Some(retired) = retired {
            let text = format!("Deprecated: Custom resource type {group} {kind} is removed; {}", replacement(*retired));
            report.add(Code::Deprecated, index, "spec.names.kind", text);
        }
    }
}
