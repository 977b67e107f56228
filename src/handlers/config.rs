//! The config handler: a changed object becomes a push request for it (Istio's `configHandler`).

use super::{Decide, Decision};
use crate::model::{
    Config, ConfigEvent, EventKind, Kind, PushKey, PushRequest, Reason, kind::KindClass, push_request::PushKind,
};

/// Turns changed objects into push requests.
#[derive(Debug, Default)]
pub struct ConfigHandler;

impl Decide for ConfigHandler {
    const NAME: &'static str = "config-handler";

    /// All kinds that proxies read and that have no handler of their own. As in Istio, the kinds of the ServiceEntry store and
    /// retired kinds are excluded. A change of a Gateway API or Ingress kind requests a new push context, because its Istio
    /// translation is pushed.
    fn wants(kind: Kind) -> bool {
        match kind.class() {
            KindClass::Istio => !matches!(kind, Kind::ServiceEntry | Kind::WorkloadEntry | Kind::WorkloadGroup),
            KindClass::Kubernetes => {
                let translated =
                    matches!(kind, Kind::Ingress | Kind::IngressClass | Kind::MutatingWebhookConfiguration);
                translated || matches!(kind, Kind::ConfigMap | Kind::Secret)
            }
            KindClass::GatewayApi => true,
            KindClass::Retired => false,
        }
    }

    fn decide(&self, events: &[ConfigEvent]) -> Decision {
        let mut push: Option<PushRequest> = None;
        for event in events.iter().filter(|e| needs_push(e)) {
            let request = PushRequest::of(key(&event.current), reason(event.current.kind()));
            match &mut push {
                Some(all) => all.merge(request),
                None => push = Some(request),
            }
        }
        // The `MeshConfig` of another cluster.
        let registry = events.iter().any(|e| e.current.kind() == Kind::ConfigMap && !e.current.is_of_main_cluster());
        Decision { registry, push }
    }
}

fn key(config: &Config) -> PushKey {
    PushKey {
        kind: PushKind::Config(config.kind()),
        name: config.meta.name.clone(),
        namespace: config.meta.namespace.clone(),
    }
}

const fn reason(kind: Kind) -> Reason {
    match kind {
        Kind::Secret => Reason::Secret,
        _ => Reason::Config,
    }
}

/// Whether a change can affect a proxy (Istio's `NeedsPush`). An update of an Istio object that changes neither its spec nor a
/// label or annotation of Istio is a change of status or other metadata only.
#[must_use]
pub fn needs_push(event: &ConfigEvent) -> bool {
    let (EventKind::Update, Some(old)) = (event.kind, &event.old) else { return true };
    let current = &event.current;
    if !current.kind().group().ends_with("istio.io") {
        return true;
    }
    let of_istio = |c: &Config| c.meta.labels.keys().chain(c.meta.annotations.keys()).any(|k| k.contains("istio.io"));
    of_istio(old) || of_istio(current) || old.spec != current.spec
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::model::{Origin, decode::from_value};

    fn rule(host: &str, extra: Value) -> Arc<Config> {
        let mut document = json!({"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
            "metadata": {"name": "a", "namespace": "ns"}, "spec": {"host": host}});
        for (key, value) in extra.as_object().unwrap() {
            document["metadata"][key] = value.clone();
        }
        document["status"] = extra["status"].clone();
        Arc::new(from_value(&document, Origin::default()).unwrap())
    }

    fn update(old: Arc<Config>, current: Arc<Config>) -> ConfigEvent {
        ConfigEvent { old: Some(old), current, kind: EventKind::Update }
    }

    #[test]
    fn only_a_changed_spec_or_istios_own_metadata_push() {
        let plain = || rule("a", json!({}));
        assert!(needs_push(&update(plain(), rule("b", json!({})))));
        assert!(!needs_push(&update(plain(), rule("a", json!({"status": {"x": 1}})))));
        assert!(!needs_push(&update(plain(), rule("a", json!({"labels": {"app": "x"}})))));
        assert!(needs_push(&update(plain(), rule("a", json!({"labels": {"istio.io/rev": "x"}})))));
        assert!(needs_push(&update(rule("a", json!({"annotations": {"istio.io/x": "y"}})), plain())));
        assert!(needs_push(&ConfigEvent { old: None, current: plain(), kind: EventKind::Add }));
    }

    #[test]
    fn requests_of_one_batch_are_merged() {
        let event = ConfigEvent { old: None, current: rule("a", json!({})), kind: EventKind::Delete };
        let push = ConfigHandler.decide(&[event.clone(), event]).push.unwrap();
        assert_eq!((push.keys.len(), push.reasons[&Reason::Config]), (1, 2));
        assert!(!push.forced);
        assert!(ConfigHandler.decide(&[]).push.is_none());
    }

    #[test]
    fn every_kind_has_one_handler_or_no_effect() {
        use super::super::{ServiceEntryHandler, ServiceHandler, WorkloadEntryHandler, WorkloadInstanceHandler};
        for kind in Kind::ALL {
            let handlers = [
                ConfigHandler::wants(*kind),
                ServiceHandler::wants(*kind),
                ServiceEntryHandler::wants(*kind),
                WorkloadEntryHandler::wants(*kind),
                WorkloadInstanceHandler::wants(*kind),
            ];
            let count = handlers.iter().filter(|h| **h).count();
            let silent = kind.class() == KindClass::Retired || *kind == Kind::WorkloadGroup;
            assert_eq!(count, usize::from(!silent), "{kind}");
        }
    }
}
