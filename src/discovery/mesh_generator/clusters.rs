//! Clusters: those of services, which views share, and those that are made one by one.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use prost::Name;

use super::{
    super::{
        generator::{Part, Slot},
        omission::Omission,
    },
    MeshGenerator, encoded,
    left_out::{omission, without_certificate},
};
use crate::{
    generate::{
        check,
        cluster::{self, ClusterInputs, OutboundPlan},
        envoy_filter::{self, Patching},
        extension, listener,
    },
    proto::{envoy::config::cluster::v3::Cluster, networking::envoy_filter::ApplyTo},
    push::PushContext,
    xds::{Resource, ResourceType},
};

impl MeshGenerator {
    /// The clusters of one part.
    pub(super) fn clusters(&self, context: &PushContext, slot: &Slot) -> Vec<Arc<Resource>> {
        let view = &*slot.view;
        let (mut list, mut left_out) = (Vec::new(), BTreeSet::new());
        if view.is_router() || slot.part == Part::Routing {
            self.planned_clusters(&OutboundPlan::of(context, view), &mut list, &mut left_out);
            let patched = envoy_filter::service_context(view);
            let unknown = cluster::unknown_destinations(context, view);
            list.extend(encoded(Self::patched_clusters(view, patched, unknown, &mut left_out)));
            if let Some(plan) = OutboundPlan::sni_dnat(context, view) {
                self.planned_clusters(&plan, &mut list, &mut left_out);
            }
            let added = Self::added_clusters(view, patched, &list, &mut left_out);
            list.extend(encoded(added));
            self.clusters.prune();
        }
        if slot.part != Part::Routing {
            let mut inbound = if view.is_router() { Vec::new() } else { cluster::inbound(context, view) };
            if !view.is_router() {
                let patched = envoy_filter::own_context(view);
                inbound = Self::patched_clusters(view, patched, inbound, &mut left_out);
                inbound.extend(Self::added_clusters(view, patched, &list, &mut left_out));
            }
            let url = Cluster::type_url();
            let own = inbound.into_iter().chain(cluster::external_sds(context, view));
            for made in own.chain(extension::clusters(context, view)) {
                let name = made.name.clone();
                match check::cluster(made, || listener::object_of(context, view, "", &[])) {
                    Ok((_, bytes)) => list.push(Arc::new(Resource::of_parts(name, &url, &bytes))),
                    Err(refusal) => drop(left_out.insert(omission(&name, *refusal))),
                }
            }
        }
        self.count_patches(context, slot);
        self.tell(slot, ResourceType::Cluster, None, left_out);
        list
    }

    fn planned_clusters(
        &self,
        plan: &OutboundPlan<'_>,
        into: &mut Vec<Arc<Resource>>,
        left_out: &mut BTreeSet<Omission>,
    ) {
        let url = Cluster::type_url();
        let (refused, lacking) = (Mutex::new(BTreeSet::new()), AtomicUsize::new(0));
        // A refused cluster is not kept, so each generation finds and reports it.
        let make = |inputs: &ClusterInputs<'_>| match inputs.checked() {
            Ok(made) => made.map(|(cluster, bytes)| Resource::of_parts(cluster.name, &url, &bytes)),
            Err(refusal) => {
                let of = omission(&inputs.name(), *refusal);
                refused.lock().insert(of);
                None
            }
        };
        let view = plan.view();
        let patched = envoy_filter::service_context(view);
        let patches = &*view.patches;
        let is_patched = !patches.of(ApplyTo::Cluster).is_empty();
        into.extend(plan.make(|inputs| {
            if inputs.lacks_certificate() {
                lacking.fetch_add(1, Ordering::Relaxed);
            }
            if is_patched {
                let patching = Patching::new(patches, patched);
                if let Some(key) = patching.cluster_key(&inputs.name()) {
                    return self.patched_cluster(patching, key, inputs, &refused);
                }
            }
            self.clusters.get_or(inputs.key(), || make(inputs))
        }));
        left_out.extend(refused.into_inner());
        left_out.extend(without_certificate(lacking.into_inner()));
    }
}
