//! Conditions of statuses: those that the translation of the Gateway API gives here, else those that an object brings along.

use serde_json::Value;

use super::{code::Code, message::Report, world::World};
use crate::model::{Config, Kind};

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    for (index, object) in world.objects.iter().enumerate() {
        let Some(config) = object.config().filter(|config| config.is_of_main_cluster()) else { continue };
        let made = world.context.translation.statuses.get(&config.key());
        let status: &Value = made.unwrap_or(&config.status);
        for (path, condition) in conditions(config, status, made.is_some()) {
            let text = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default();
            if made.is_some() && !is_judged(world, text("reason"), text("message")) {
                continue;
            }
            if is_negative(config.kind(), text("type"), text("status"), text("reason")) {
                let text = format!(
                    "A condition with a negative status is present: type={}, reason={}, message={}.",
                    text("type"),
                    text("reason"),
                    text("message")
                );
                report.add(Code::NegativeConditionStatus, index, path, text);
            }
        }
    }
}

/// Whether the inputs show what a reason says is missing.
fn is_judged(world: &World<'_>, reason: &str, message: &str) -> bool {
    match reason {
        // Addresses are those of running workloads; files seldom show any.
        "AddressNotAssigned" => world.workloads.iter().any(|workload| workload.is_running),
        "BackendNotFound" => world.has(Kind::Service),
        "NoMatchingParent" if message.starts_with("parent service") => world.has(Kind::Service),
        _ => true,
    }
}

fn is_negative(kind: Kind, condition: &str, status: &str, reason: &str) -> bool {
    let types: &[&str] = match kind {
        Kind::Service | Kind::ServiceEntry | Kind::WorkloadEntry => &["istio.io/WaypointBound"],
        Kind::AuthorizationPolicy => &["ZtunnelAccepted", "WaypointAccepted"],
        kind if kind.class() == crate::model::KindClass::GatewayApi => &["Accepted", "Programmed", "ResolvedRefs"],
        _ => return false,
    };
    let partly = kind == Kind::AuthorizationPolicy && condition == "WaypointAccepted" && reason == "PartiallyInvalid";
    (types.contains(&condition) && status == "False") || partly
}

/// The conditions of a status, each with the path of the field that it is about. A status of this program names the parts of a
/// Gateway as well.
fn conditions<'a>(config: &Config, status: &'a Value, is_own: bool) -> Vec<(String, &'a Value)> {
    let list = |value: &'a Value| value.get("conditions").and_then(Value::as_array).into_iter().flatten();
    let mut all: Vec<(String, &Value)> = list(status).map(|condition| ("spec".to_string(), condition)).collect();
    for (i, parent) in status.get("parents").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let wanted = parent.get("parentRef");
        let position = position_of(config, wanted).unwrap_or(i);
        all.extend(list(parent).map(|condition| {
            let is_about_refs = condition.get("type").and_then(Value::as_str) == Some("ResolvedRefs");
            let path = if is_about_refs { "spec.rules".to_string() } else { format!("spec.parentRefs[{position}]") };
            (path, condition)
        }));
    }
    let listeners = status.get("listeners").and_then(Value::as_array).filter(|_| is_own);
    for listener in listeners.into_iter().flatten() {
        let position = listener_of(config, listener.get("name")).unwrap_or_default();
        let refs = list(listener).filter(|c| c.get("type").and_then(Value::as_str) != Some("Programmed"));
        all.extend(refs.map(|condition| (format!("spec.listeners[{position}]"), condition)));
    }
    all
}

fn written<'a>(config: &'a Config, pointer: &str) -> Option<&'a Vec<Value>> {
    match &config.spec {
        crate::model::Spec::Raw(_, document) => document.pointer(pointer)?.as_array(),
        _ => None,
    }
}

/// The index of the reference to a parent in the route.
fn position_of(config: &Config, wanted: Option<&Value>) -> Option<usize> {
    let name = |value: &Value| (value.get("name").cloned(), value.get("sectionName").cloned());
    let wanted = name(wanted?);
    written(config, "/spec/parentRefs")?.iter().position(|parent| name(parent) == wanted)
}

/// The index of a listener.
fn listener_of(config: &Config, name: Option<&Value>) -> Option<usize> {
    let name = name?;
    written(config, "/spec/listeners")?.iter().position(|listener| listener.get("name") == Some(name))
}
