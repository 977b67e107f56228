//! Routes and listeners of proxyless gRPC. The parts of config that gRPC does not apply are told.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    super::{
        generator::Slot,
        omission::{NOT_APPLIED, NOT_ENFORCED, Omission},
        omissions::NewOmissions,
    },
    MeshGenerator, encoded, is_grpc,
    left_out::others,
};
use crate::{
    generate::{
        endpoint::EndpointPlan,
        grpc::{self, NotApplied},
    },
    model::ConfigKey,
    push::PushContext,
    xds::{Resource, ResourceType},
};

fn omission(resource: &str, NotApplied { object, message }: NotApplied) -> Omission {
    Omission { metric: NOT_APPLIED, resource: resource.to_string(), message, object }
}

impl MeshGenerator {
    /// Route configurations of proxyless gRPC; the fields that gRPC does not apply are told, and ports
    /// that it cannot call.
    pub(super) fn grpc_routes(&self, context: &PushContext, slot: &Slot, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let (mut made, mut told) = (Vec::new(), BTreeSet::new());
        for name in names {
            let Some((route, not_applied)) = grpc::route_configuration(context, &slot.view, name) else { continue };
            made.push(Arc::new(Resource::encode(&**name, &route)));
            told.extend(not_applied.into_iter().map(|of| omission(name, of)));
        }
        self.tell(slot, ResourceType::Route, Some(names), told);
        made
    }

    /// Clusters of proxyless gRPC; the settings that gRPC does not apply are told.
    pub(super) fn grpc_clusters(&self, context: &PushContext, slot: &Slot, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let texts: Vec<String> = names.iter().map(ToString::to_string).collect();
        let (made, not_applied): (Vec<_>, Vec<_>) = grpc::clusters(context, &slot.view, &texts).into_iter().unzip();
        let told = made
            .iter()
            .zip(not_applied)
            .flat_map(|(cluster, all)| all.into_iter().map(|of| omission(&cluster.name, of)));
        self.tell(slot, ResourceType::Cluster, Some(names), told.collect());
        encoded(made).collect()
    }

    /// The weights of these clusters' endpoints that gRPC does not apply.
    pub(super) fn grpc_weights(slot: &Slot, plan: &EndpointPlan<'_>, names: &[Arc<str>]) -> Vec<Omission> {
        if !is_grpc(&slot.view) {
            return Vec::new();
        }
        let told = |name: &Arc<str>| Some(omission(name, plan.with(name, grpc::endpoint_weights)??));
        names.iter().filter_map(told).collect()
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
