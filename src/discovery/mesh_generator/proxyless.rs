//! Routes and listeners of proxyless gRPC. The parts of config that gRPC does not apply are told.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    super::{
        generator::Slot,
        omission::{NOT_ENFORCED, Omission},
        omissions::NewOmissions,
    },
    MeshGenerator, encoded,
    left_out::{NOT_APPLIED, others},
};
use crate::{
    generate::grpc,
    model::ConfigKey,
    push::PushContext,
    xds::{Resource, ResourceType},
};

impl MeshGenerator {
    /// Route configurations of proxyless gRPC; the fields that gRPC does not apply are told.
    pub(super) fn grpc_routes(&self, context: &PushContext, slot: &Slot, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let (mut made, mut not_applied) = (Vec::new(), BTreeSet::new());
        for name in names {
            let Some((route, messages)) = grpc::route_configuration(context, &slot.view, name) else { continue };
            made.push(Arc::new(Resource::encode(&**name, &route)));
            let omission =
                |message| Omission { metric: NOT_APPLIED, resource: name.to_string(), message, object: None };
            not_applied.extend(messages.into_iter().map(omission));
        }
        let told = self.omissions.set(slot, ResourceType::Route, Some(names), not_applied);
        if let Some(NewOmissions { line: Some(times), new }) = told {
            let (namespace, reason) = (&*slot.view.namespace, new.first().map(|o| &*o.message));
            tracing::warn!(namespace, times, reason, "fields of routes have no effect for gRPC");
        }
        made
    }

    /// Listeners of proxyless gRPC; policies of a server that it cannot enforce are told.
    pub(super) fn grpc_listeners(&self, context: &PushContext, slot: &Slot, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let view = &*slot.view;
        let omission = |(object, effect): (ConfigKey, &str)| Omission {
            metric: NOT_ENFORCED,
            resource: object.to_string(),
            message: effect.to_string(),
            object: Some(object),
        };
        let is_server = names.iter().any(|name| name.starts_with(grpc::SERVER_LISTENER_PREFIX));
        if is_server {
            let found = grpc::not_enforced(context, view).into_iter().map(omission).collect();
            let told = self.omissions.set(slot, ResourceType::Listener, None, found);
            if let Some(NewOmissions { line: Some(times), new }) = told {
                let (namespace, others) = (&*view.namespace, others(&new));
                let (policy, effect) = (new.first().map(|o| &*o.resource), new.first().map(|o| &*o.message));
                tracing::warn!(
                    policy,
                    effect,
                    namespace,
                    times,
                    ?others,
                    "policies are not enforced as they are written"
                );
            }
        }
        let texts: Vec<String> = names.iter().map(ToString::to_string).collect();
        encoded(grpc::listeners(context, view, &texts)).collect()
    }
}
