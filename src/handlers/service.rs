//! The service handler: Kubernetes Services and their related objects go to the registry (Istio's `serviceHandler`), which
//! reports the services that have to be pushed. A changed Namespace requests a new push context as well, because Gateway API
//! listeners select routes by its labels.

use super::{Decide, Decision};
use crate::model::{ConfigEvent, Kind, PushKey, PushKind, PushRequest, Reason};

/// Sends Services, their endpoints, Namespaces and Nodes to the registry.
#[derive(Debug, Default)]
pub struct ServiceHandler;

impl Decide for ServiceHandler {
    const NAME: &'static str = "service-handler";

    fn wants(kind: Kind) -> bool {
        matches!(kind, Kind::Service | Kind::Endpoints | Kind::EndpointSlice | Kind::Namespace | Kind::Node)
    }

    fn decide(&self, events: &[ConfigEvent]) -> Decision {
        let namespaces = events.iter().filter(|e| e.current.kind() == Kind::Namespace);
        let requests = namespaces.map(|e| {
            let (kind, name) = (PushKind::Config(Kind::Namespace), e.current.meta.name.clone());
            PushRequest::of(PushKey { kind, name, namespace: "".into() }, Reason::Namespace)
        });
        let push = requests.reduce(|mut all, next| {
            all.merge(next);
            all
        });
        Decision { registry: !events.is_empty(), push }
    }
}
