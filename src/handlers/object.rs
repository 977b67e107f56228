//! The object handler: changes that affect no proxy are still pushed to clients of config objects (MCP over xDS).

use super::{Decide, Decision, config::needs_push};
use crate::model::{ConfigEvent, Kind, PushKey, PushRequest, Reason, kind::KindClass, push_request::PushKind};

/// Requests a push of objects for which no other handler requests one.
#[derive(Debug, Default)]
pub struct ObjectHandler;

impl Decide for ObjectHandler {
    const NAME: &'static str = "object-handler";

    /// Kinds that users write. Pods and the like change all the time; their relevant changes are pushed with their service.
    fn wants(kind: Kind) -> bool {
        matches!(kind.class(), KindClass::Istio | KindClass::GatewayApi)
    }

    fn decide(&self, events: &[ConfigEvent]) -> Decision {
        let quiet = |kind: Kind| {
            kind.class() == KindClass::GatewayApi
                || matches!(kind, Kind::ServiceEntry | Kind::WorkloadEntry | Kind::WorkloadGroup)
        };
        let untold = events.iter().filter(|e| quiet(e.current.kind()) || !needs_push(e));
        let push = untold.map(request).reduce(|mut all, next| {
            all.merge(next);
            all
        });
        Decision { registry: false, push }
    }
}

fn request(event: &ConfigEvent) -> PushRequest {
    let (kind, meta) = (event.current.kind(), &event.current.meta);
    let key = PushKey { kind: PushKind::Object(kind), name: meta.name.clone(), namespace: meta.namespace.clone() };
    PushRequest::of(key, Reason::Config)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::model::{EventKind, Origin, decode::from_value};

    #[test]
    fn only_objects_that_no_other_handler_pushes_are_pushed() {
        let event = |kind: &str| {
            let document = json!({"apiVersion": "networking.istio.io/v1", "kind": kind,
                "metadata": {"name": "a", "namespace": "shop"}, "spec": {}});
            let config = Arc::new(from_value(&document, Origin::default()).unwrap());
            ConfigEvent { old: None, current: config, kind: EventKind::Add }
        };
        assert!(ObjectHandler.decide(&[event("DestinationRule")]).push.is_none());
        let push = ObjectHandler.decide(&[event("WorkloadGroup"), event("ServiceEntry")]).push.unwrap();
        assert_eq!((push.keys.len(), push.forced), (2, false));
    }
}
