//! Valid objects that Envoy would refuse: found by generating the resources of a stock Envoy for them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::json;

use crate::{
    discovery::{Composer, Omission},
    generate::{
        authorization,
        check::{self, Refusal},
        listener, request_authentication, route,
    },
    model::{Config, ConfigKey, ConfigSnapshot, Features, Kind, Locality, Mesh, Node},
    push::{PushContext, context::PushInputs},
    registry::ServiceEntryStore,
    sources::Warned,
};

/// A warning for each object of which Envoy would refuse something.
pub(in crate::cli) fn warnings(context: &PushContext, configs: &[Arc<Config>]) -> Vec<Warned> {
    let mut refused: BTreeSet<Refusal> = BTreeSet::new();
    let of_kind = |kind: Kind| configs.iter().filter(move |c| c.kind() == kind);
    // Those among them that were translated from Gateway API and Ingress, too.
    // A delegate is no route by itself, and its roots are none without it: they are generated below, merged.
    let is_whole = |config: &&Arc<Config>| {
        let service = config.virtual_service();
        service.is_some_and(|s| !s.hosts.is_empty() && s.http.iter().all(|http| http.delegate.is_none()))
    };
    for config in context.inputs.configs.list(Kind::VirtualService).iter().filter(is_whole) {
        refused.extend(route::refusals(config, context.features()));
    }
    let generated_from =
        [Kind::VirtualService, Kind::DestinationRule, Kind::ServiceEntry, Kind::Sidecar, Kind::Service];
    let with_resources = configs.iter().filter(|c| generated_from.contains(&c.kind()));
    let namespaces: BTreeSet<&str> = with_resources.map(|c| &*c.meta.namespace).collect();
    let mut composers: Vec<Composer<'_>> = Vec::new();
    for namespace in namespaces {
        let Some(node) = node("sidecar", namespace, &json!({})) else { continue };
        let view = context.view_of(&node);
        let composer = composers.first().map(|first| first.beside(view.clone(), None));
        let composer = composer.unwrap_or_else(|| Composer::new(context, view, None));
        if let Err(error) = composer.all(&[]) {
            eprintln!("pilothouse: the resources of namespace {namespace} cannot be checked: {error}");
        }
        let left_out = composer.omissions().into_iter().filter(Omission::is_refused);
        refused.extend(left_out.map(|omission| Refusal { object: omission.object, message: omission.message }));
        composers.push(composer);
    }
    for config in of_kind(Kind::Gateway) {
        let selector = config.gateway().map(|gateway| json!(gateway.selector)).unwrap_or_default();
        let Some(node) = node("router", &config.meta.namespace, &json!({ "LABELS": selector })) else { continue };
        let built = listener::gateway(context, &context.view_of(&node));
        refused.extend(
            built.into_iter().flat_map(|mut listener| check::listener(&mut listener, |_| Some(config.key())).1),
        );
    }
    // One warning for each object: a fault shows at each port and for each proxy.
    let mut by_object: BTreeMap<ConfigKey, Vec<String>> = BTreeMap::new();
    for Refusal { object, message } in refused {
        if let Some(key) = object {
            by_object.entry(key).or_default().push(message);
        }
    }
    let find = |key: &ConfigKey| configs.iter().find(|c| c.key() == *key);
    let parts = by_object.iter().filter_map(|(key, messages)| {
        let message = format!("Envoy would refuse a part of it, which is left out: {}", messages.first()?);
        Some(warning(find(key)?, key, message))
    });
    parts.chain(policies(context, configs)).collect()
}

/// A warning for each policy of which Envoy would refuse the filter.
fn policies<'a>(context: &'a PushContext, configs: &'a [Arc<Config>]) -> impl Iterator<Item = Warned> + 'a {
    configs.iter().filter_map(|config| {
        let reason = match config.kind() {
            Kind::AuthorizationPolicy => authorization::filter_error(context, config),
            Kind::RequestAuthentication => request_authentication::filter_error(context, config),
            _ => None,
        }?;
        let message = format!("its workloads would refuse every request, since Envoy would refuse it: {reason}");
        Some(warning(config, &config.key(), message))
    })
}

/// The context that a server with these mesh settings and default features would have of these objects.
pub(in crate::cli) fn context(mesh: Mesh, configs: &[Arc<Config>]) -> PushContext {
    let (mesh, features) = (Arc::new(mesh), Arc::new(Features::default()));
    let configs = ConfigSnapshot::of(configs.iter().cloned());
    let registry = ServiceEntryStore::of(mesh.clone(), features.clone(), &configs).snapshot();
    PushContext::build(PushInputs { mesh, features, configs, registry, ..PushInputs::default() })
}

fn node(kind: &str, namespace: &str, metadata: &serde_json::Value) -> Option<Node> {
    let id = format!("{kind}~127.0.0.1~any.{namespace}~{namespace}.svc.cluster.local");
    Node::from_parts(&id, metadata.clone(), Locality::default()).ok()
}

fn warning(config: &Config, key: &ConfigKey, warning: String) -> Warned {
    Warned {
        file: config.origin.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default(),
        line: config.origin.line,
        column: 0,
        kind: key.kind.to_string(),
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        warning,
    }
}
