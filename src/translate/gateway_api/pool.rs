//! InferencePools: the service that represents a pool, its endpoint picker, and the status of a pool.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    class,
    conditions::{Condition, Conditions, Problem},
    input::{Input, Object},
    parent::RouteContext,
    types::{
        policy::InferencePoolSpec,
        route::{BackendReference, HttpRule, RouteSpec},
    },
};
use crate::{
    model::Kind,
    proto::networking::{Destination, PortSelector},
    translate::draft::{Output, PoolRule},
};

const SERVICE: &str = "istio.io/inferencepool-extension-service";
const PORT: &str = "istio.io/inferencepool-extension-port";
const FAILURE_MODE: &str = "istio.io/inferencepool-extension-failure-mode";

/// Name of the service that represents a pool: within Kubernetes' length limit, unique by pool.
fn service_name(pool: &str) -> String {
    const LONGEST: usize = 63;
    let digest = Sha256::digest(pool.as_bytes());
    let hash: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let room = LONGEST - "-ip-".len() - hash.len();
    let base: String = if pool.len() > room { pool.chars().take(room).collect() } else { pool.to_string() };
    format!("{base}-ip-{hash}")
}

/// Resolves a reference to an InferencePool: the destination and its endpoint picker, or why this backend cannot be used.
///
/// # Errors
/// The problem that makes the whole rule invalid.
pub fn resolve(
    context: &RouteContext<'_>,
    to: &BackendReference,
    namespace: &str,
) -> Result<Result<(Destination, PoolRule), Problem>, Problem> {
    let input = context.input;
    let unusable = |reason, message: String| Ok(Err(Problem::new(reason, message)));
    let invalid = |message: &str| Err(Problem::new("InvalidDestination", message));
    if !input.objects.features().enable_gateway_api_inference_extension {
        let message =
            "InferencePool is not enabled. To enable, set ENABLE_GATEWAY_API_INFERENCE_EXTENSION to true in istiod";
        return unusable("InvalidKind", message.to_string());
    }
    if to.name.contains('.') {
        return invalid("InferencePool.Name invalid; the name of the InferencePool must be used, not the hostname.");
    }
    if !input.pools.iter().any(|p| p.namespace() == namespace && p.name() == to.name) {
        return unusable("BackendNotFound", format!("backend({}) not found", to.name));
    }
    let host = format!("{}.{namespace}.svc.{}", service_name(&to.name), input.domain());
    let Some(service) = input.service(&host, namespace) else {
        return unusable("BackendNotFound", format!("backend({host}) not found"));
    };
    let label = |name: &str| service.labels.get(name).filter(|v| !v.is_empty());
    let (Some(picker), Some(port), Some(mode)) = (label(SERVICE), label(PORT), label(FAILURE_MODE)) else {
        return invalid("InferencePool service invalid, extensionRef labels not found");
    };
    let rule = PoolRule {
        fqdn: format!("{picker}.{namespace}.svc.{}", input.domain()),
        port: port.clone(),
        failure_mode_allow: mode == "FailOpen",
    };
    let number = service.ports.first().map_or(0, |p| p.port);
    let destination = Destination { host, port: Some(PortSelector { number }), ..Destination::default() };
    Ok(Ok((destination, rule)))
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct ParentStatus {
    parent_ref: Value,
    #[serde(skip_serializing_if = "String::is_empty")]
    controller_name: String,
    conditions: Vec<Condition>,
}

/// Gateways by namespace and name.
type Gateways = BTreeSet<(String, String)>;

/// Writes the status of every pool: one entry for each Gateway whose accepted routes use it.
pub fn report(input: &Input<'_>, output: &mut Output) {
    for pool in &input.pools {
        let gateways = gateways(input, pool);
        let read = pool.config.status.get("parents").map(|p| Vec::<ParentStatus>::deserialize(p).unwrap_or_default());
        let old = read.unwrap_or_default();
        let text = |parent: &ParentStatus, key: &str| {
            parent.parent_ref.get(key).and_then(Value::as_str).unwrap_or_default().to_string()
        };
        let mut parents: Vec<ParentStatus> = Vec::new();
        for parent in &old {
            let (name, namespace) = (text(parent, "name"), text(parent, "namespace"));
            let namespace = if namespace.is_empty() { pool.namespace().to_string() } else { namespace };
            let class = input.gateway(&namespace, &name).map(|g| g.spec.gateway_class_name.as_str());
            let ours = class.is_some_and(|c| class::is_built_in(c, input.objects.features()));
            let is_default = text(parent, "kind") == "Status" && name == "default";
            if !gateways.contains(&(namespace, name)) && !ours && !is_default {
                parents.push(parent.clone());
            }
        }
        for (namespace, name) in &gateways {
            let before = old.iter().find(|p| text(p, "name") == *name && text(p, "namespace") == *namespace);
            let kept = before.into_iter().flat_map(|p| p.conditions.iter().cloned());
            let kept = kept.filter(|c| matches!(c.r#type.as_str(), "Accepted" | "ResolvedRefs")).collect();
            let conditions = conditions(input, pool, namespace, name).over(kept, pool.generation());
            let parent_ref =
                json!({"group": Kind::Gateway.group(), "kind": "Gateway", "namespace": namespace, "name": name});
            parents.push(ParentStatus { parent_ref, conditions, ..ParentStatus::default() });
        }
        let status = if parents.is_empty() { json!({}) } else { json!({"parents": parents}) };
        output.status(pool.config.key(), status);
    }
}

fn uses(route: &Object<RouteSpec<HttpRule>>, pool: &Object<InferencePoolSpec>) -> bool {
    route.spec.rules.iter().flat_map(|r| &r.backend_refs).any(|b| {
        let namespace = b.namespace.as_deref().filter(|n| !n.is_empty()).unwrap_or(route.namespace());
        b.group.as_deref() == Some(Kind::InferencePool.group())
            && b.kind.as_deref() == Some(Kind::InferencePool.as_str())
            && b.name == pool.name()
            && namespace == pool.namespace()
    })
}

/// Entries of Istio's controllers in the status of a route: Gateway and conditions.
fn own_parents<'a>(
    input: &'a Input<'_>,
    route: &'a Object<RouteSpec<HttpRule>>,
) -> impl Iterator<Item = ((String, String), &'a Value)> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_string();
    let parents = route.config.status.get("parents").and_then(Value::as_array).into_iter().flatten();
    parents
        .filter(move |p| class::Controller::parse(&text(p, "controllerName"), input.objects.features()).is_some())
        .map(move |p| {
            let reference = p.get("parentRef").unwrap_or(&Value::Null);
            let namespace = Some(text(reference, "namespace")).filter(|n| !n.is_empty());
            ((namespace.unwrap_or_else(|| route.namespace().to_string()), text(reference, "name")), p)
        })
}

fn gateways(input: &Input<'_>, pool: &Object<InferencePoolSpec>) -> Gateways {
    let routes = input.http_routes.iter().filter(|route| uses(route, pool));
    routes.flat_map(|route| own_parents(input, route).map(|(gateway, _)| gateway)).collect()
}

fn conditions(input: &Input<'_>, pool: &Object<InferencePoolSpec>, namespace: &str, name: &str) -> Conditions {
    let mut conditions = Conditions::default();
    let (status, reason, message) = accepted(input, pool, namespace, name);
    conditions.set("Accepted", status, reason, &message);
    let picker = &pool.spec.endpoint_picker_ref;
    let kind = if picker.kind.is_empty() { "Service" } else { &picker.kind };
    let problem = if kind != "Service" {
        Some(format!("Unsupported ExtensionRef kind {kind}"))
    } else if picker.name.is_empty() {
        Some("ExtensionRef not defined".to_string())
    } else if input.objects.get(Kind::Service, pool.namespace(), &picker.name).is_none() {
        Some(format!("Referenced ExtensionRef not found {}", picker.name))
    } else {
        None
    };
    match problem {
        Some(message) => conditions.set("ResolvedRefs", "False", "InvalidExtensionRef", &message),
        None => {
            let message = "Referenced ExtensionRef resolved successfully";
            conditions.set("ResolvedRefs", "True", "ResolvedRefs", message);
        }
    }
    conditions
}

fn accepted(
    input: &Input<'_>,
    pool: &Object<InferencePoolSpec>,
    namespace: &str,
    name: &str,
) -> (&'static str, &'static str, String) {
    for route in input.http_routes.iter().filter(|route| uses(route, pool)) {
        let own = own_parents(input, route).find(|((ns, n), _)| ns == namespace && n == name);
        let Some((_, parent)) = own else { continue };
        let all = super::conditions::existing(parent);
        return match all.iter().find(|c| c.r#type == "Accepted") {
            Some(c) if c.status == "True" => {
                ("True", "Accepted", "Referenced by an HTTPRoute accepted by the parentRef Gateway".to_string())
            }
            Some(c) => {
                let message = format!(
                    "Referenced HTTPRoute {}/{} not accepted by Gateway {namespace}/{name}: {}",
                    route.namespace(),
                    route.name(),
                    c.message
                );
                ("False", "HTTPRouteNotAccepted", message)
            }
            None => ("Unknown", "Accepted", "Referenced by an HTTPRoute unknown parentRef Gateway status".to_string()),
        };
    }
    let message =
        format!("No HTTPRoute found referencing this InferencePool with Gateway {namespace}/{name} as parent");
    ("False", "HTTPRouteNotAccepted", message)
}
