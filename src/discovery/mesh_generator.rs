//! The generator that serves the mesh: sidecars, gateways and proxyless gRPC, from what the `generate` room makes.
//!
//! Owns which view each type may read. Which changes can touch a type is told by [`requests::effects`].

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use metrics::counter;
use prost::Name;
use rayon::prelude::*;

use super::{
    generator::{Affected, Audience, Generator, Layout, Part, Slot},
    omission::Omission,
    omissions::Omissions,
};
use crate::{
    generate::{
        api,
        cluster::{self, ClusterInputs, OutboundPlan},
        endpoint::{EndpointInputs, EndpointPlan},
        grpc, listener,
        name_table::{self, NameTable},
        names::parse_subset_key,
        route::{self, VirtualHostMemo},
        secret,
    },
    model::{Hostname, Identity, Kind, MovedNodes, Node, NodeType},
    proto::envoy::config::{
        cluster::v3::Cluster, endpoint::v3::ClusterLoadAssignment, listener::v3::Listener,
        route::v3::RouteConfiguration,
    },
    push::{
        Change, ProxyView, PushContext,
        requests::{self, Types},
    },
    telemetry::count_rejected,
    xds::{ObjectType, Resource, ResourceType, Table, TypeSet},
};

/// Fewer load assignments are not worth another thread.
const WORTH_A_THREAD: usize = 64;

/// Generates what Istio would send. What is made from equal inputs is made once: clusters, load assignments, and virtual
/// hosts for all route configurations that hold them.
#[derive(Debug, Default)]
pub struct MeshGenerator {
    virtual_hosts: VirtualHostMemo,
    omissions: Omissions,
    clusters: Table<u128, Resource>,
    endpoints: Table<u128, Resource>,
}

impl MeshGenerator {
    /// The slots of a proxy of this view.
    pub(super) fn audience_of(context: &PushContext, own: ProxyView, identity: Option<&Identity>) -> Audience {
        if own.is_router() || is_grpc(&own) {
            let own = Arc::new(own);
            return Audience::new(own.clone(), own.clone(), own, identity.cloned());
        }
        let (routing, outbound) = (context.routing_view(&own), context.outbound_view(&own));
        Audience::new(Arc::new(routing), Arc::new(outbound), Arc::new(own), identity.cloned())
    }

    /// Unknown route configurations are sent empty, because listeners wait for them; gRPC gets none.
    fn routes<S: AsRef<str>>(&self, context: &PushContext, view: &ProxyView, names: &[S]) -> Vec<Arc<Resource>> {
        let texts = names.iter().map(AsRef::as_ref);
        let url = RouteConfiguration::type_url();
        let made = route::encoded(context, view, names, &self.virtual_hosts);
        let resource = |(name, bytes): (&str, bytes::Bytes)| {
            let resource = Resource::of_parts(name, &url, &bytes);
            // One that says little more than its name has no routes.
            if bytes.len() <= name.len() + 16 { resource.unknown() } else { resource }
        };
        texts.zip(made).map(resource).map(Arc::new).collect()
    }

    /// Route configurations of proxyless gRPC; the fields that gRPC does not apply are told.
    fn grpc_routes(&self, context: &PushContext, slot: &Slot, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let (mut made, mut not_applied) = (Vec::new(), BTreeSet::new());
        for name in names {
            let Some((route, messages)) = grpc::route_configuration(context, &slot.view, name) else { continue };
            made.push(Arc::new(Resource::encode(&**name, &route)));
            let omission = |message| Omission { metric: NOT_APPLIED, resource: name.to_string(), message };
            not_applied.extend(messages.into_iter().map(omission));
        }
        let first = not_applied.first().map(|o: &Omission| o.message.clone());
        if let (Some(times), Some(first)) = (self.omissions.set(slot, Some(names), not_applied), first) {
            tracing::warn!(
                namespace = &*slot.view.namespace,
                times,
                reason = first,
                "fields of routes have no effect for gRPC"
            );
        }
        made
    }

    fn secrets(&self, context: &PushContext, slot: &Slot, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let texts: Vec<String> = names.iter().map(ToString::to_string).collect();
        let made = secret::secrets(context, &slot.view, &texts, slot.identity.as_ref());
        counter!(SECRET_ERRORS).increment(made.refused.len() as u64);
        let omission = |r: &secret::Refused| Omission {
            metric: SECRET_ERRORS,
            resource: r.name.clone(),
            message: r.reason.clone(),
        };
        let told = self.omissions.set(slot, Some(names), made.refused.iter().map(omission).collect());
        if let (Some(times), Some(first)) = (told, made.refused.first()) {
            let others: Vec<&str> = made.refused.iter().skip(1).take(8).map(|r| &*r.name).collect();
            tracing::warn!(secret = first.name, reason = first.reason, times, ?others, "secrets are not sent");
        }
        made.resources.iter().map(|s| Arc::new(Resource::encode(s.name.as_str(), s))).collect()
    }

    fn clusters(&self, context: &PushContext, slot: &Slot) -> Vec<Arc<Resource>> {
        let view = &*slot.view;
        let mut list = Vec::new();
        if view.is_router() || slot.part == Part::Routing {
            self.planned_clusters(&OutboundPlan::of(context, view), &mut list);
            list.extend(encoded(cluster::unknown_destinations(context, view)));
            if let Some(plan) = OutboundPlan::sni_dnat(context, view) {
                self.planned_clusters(&plan, &mut list);
            }
            self.clusters.prune();
        }
        if slot.part != Part::Routing {
            if !view.is_router() {
                list.extend(encoded(cluster::inbound(context, view)));
            }
            list.extend(encoded(cluster::external_sds(context, view)));
        }
        list
    }

    fn planned_clusters(&self, plan: &OutboundPlan<'_>, into: &mut Vec<Arc<Resource>>) {
        let make = |inputs: &ClusterInputs<'_>| inputs.build().map(|c| Resource::encode(c.name.as_str(), &c));
        into.extend(plan.make(|inputs| self.clusters.get_or(inputs.key(), || make(inputs))));
    }

    /// Unknown clusters get an empty load assignment, because clients wait for one.
    fn endpoints<S: AsRef<str> + Sync>(
        &self,
        context: &PushContext,
        view: &ProxyView,
        names: &[S],
    ) -> Vec<Arc<Resource>> {
        let plan = EndpointPlan::of(context, view);
        let known = |name: &str| {
            let make = |i: &EndpointInputs<'_>| Resource::encode(name, &i.load_assignment());
            plan.with(name, |inputs| self.endpoints.get_or(inputs.key(), || Some(make(inputs)))).flatten()
        };
        let unknown = |name: &str| {
            let cluster_name = name.to_string();
            Arc::new(Resource::encode(name, &ClusterLoadAssignment { cluster_name, ..Default::default() }).unknown())
        };
        self.endpoints.prune();
        let names = names.par_iter().with_min_len(WORTH_A_THREAD).map(AsRef::as_ref);
        names.map(|name| known(name).unwrap_or_else(|| unknown(name))).collect()
    }
}

/// A message with a name of its own.
trait Named: Name {
    fn own_name(&self) -> &str;
}

impl Named for Cluster {
    fn own_name(&self) -> &str {
        &self.name
    }
}

impl Named for Listener {
    fn own_name(&self) -> &str {
        &self.name
    }
}

fn encoded<M: Named>(messages: impl IntoIterator<Item = M>) -> impl Iterator<Item = Arc<Resource>> {
    messages.into_iter().map(|message| Arc::new(Resource::encode(message.own_name(), &message)))
}

/// Istio's counter of secrets that are asked for and not sent.
const SECRET_ERRORS: &str = "pilot_sds_certificate_errors_total";

/// Fields of routes that proxyless gRPC does not apply.
const NOT_APPLIED: &str = "pilothouse_grpc_routes_not_applied";

/// Istio's counter of objects that are refused; here servers of Gateways.
const REJECTED: &str = "pilot_total_rejected_configs";

fn is_grpc(view: &ProxyView) -> bool {
    &*view.metadata.generator == grpc::GENERATOR
}

impl Generator for MeshGenerator {
    fn audience(&self, context: &PushContext, node: &Node, identity: Option<&Identity>) -> Audience {
        Self::audience_of(context, context.view_of(node), identity)
    }

    fn serves(&self, slot: &Slot) -> TypeSet {
        if api::is_client(&slot.view) { TypeSet::ALL } else { TypeSet::MESH }
    }

    fn layout(&self, slot: &Slot, kind: ResourceType) -> Layout {
        let view = &slot.view;
        let grpc = is_grpc(view);
        let parts: &'static [Part] = match kind {
            ResourceType::Secret => &[Part::Private],
            ResourceType::Objects(_) => &[Part::Outbound],
            _ if grpc || view.is_router() => &[Part::Own],
            ResourceType::Cluster => &[Part::Routing, Part::Own],
            ResourceType::Listener => &[Part::Outbound, Part::Own],
            ResourceType::Endpoint | ResourceType::Route => &[Part::Routing],
            ResourceType::Extension => &[Part::Own],
            ResourceType::NameTable => &[Part::Outbound],
        };
        Layout { parts, listed: kind.is_wildcard() && !grpc }
    }

    fn list(&self, context: &PushContext, slot: &Slot, kind: ResourceType) -> Vec<Arc<Resource>> {
        let view = &*slot.view;
        if is_grpc(view) {
            // Proxyless gRPC asks for everything by name.
            return Vec::new();
        }
        match kind {
            ResourceType::Cluster => self.clusters(context, slot),
            ResourceType::Listener => {
                let (listeners, conflicts) = listeners(context, slot);
                for refused in conflicts.iter().filter(|c| c.metric == REJECTED) {
                    count_rejected("gateway", &refused.resource);
                }
                self.omissions.set(slot, None, conflicts);
                encoded(listeners).collect()
            }
            ResourceType::NameTable if view.metadata.dns_capture && view.node_type == NodeType::Sidecar => {
                vec![Arc::new(Resource::encode(NameTable::NAME, &name_table::name_table(context, view)))]
            }
            ResourceType::Endpoint => {
                let names = cluster::eds_cluster_names(&cluster::all(context, view));
                self.endpoints(context, view, &names)
            }
            ResourceType::Route => {
                let listeners =
                    if view.is_router() { listener::gateway(context, view) } else { listener::sidecar(context, view) };
                let names = listener::route_names(&listeners);
                self.routes(context, view, &names)
            }
            ResourceType::Objects(objects) => object_resources(context, view, objects),
            ResourceType::NameTable | ResourceType::Secret | ResourceType::Extension => Vec::new(),
        }
    }

    fn named(&self, context: &PushContext, slot: &Slot, kind: ResourceType, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let view = &*slot.view;
        let texts = || names.iter().map(ToString::to_string).collect::<Vec<_>>();
        match kind {
            ResourceType::Endpoint => self.endpoints(context, view, names),
            ResourceType::Route if is_grpc(view) => self.grpc_routes(context, slot, names),
            ResourceType::Route => self.routes(context, view, names),
            ResourceType::Secret => self.secrets(context, slot, names),
            ResourceType::Cluster if is_grpc(view) => encoded(grpc::clusters(context, view, &texts())).collect(),
            ResourceType::Listener if is_grpc(view) => encoded(grpc::listeners(context, view, &texts())).collect(),
            _ => Vec::new(),
        }
    }

    fn omissions(&self) -> Vec<Omission> {
        self.omissions.all()
    }

    fn affects<'a>(&self, change: &Change<'_>, slot: &Slot) -> Affected<'a> {
        let effects = requests::effects(change, &slot.view);
        let of = |kind| match kind {
            ResourceType::Cluster => Types::CDS,
            ResourceType::Endpoint => Types::EDS,
            ResourceType::Listener => Types::LDS,
            ResourceType::Route => Types::RDS,
            ResourceType::Secret => Types::SDS,
            ResourceType::Extension => Types::ECDS,
            ResourceType::NameTable => Types::NDS,
            ResourceType::Objects(_) => Types::ALL,
        };
        let types = effects.types;
        let objects = ObjectType::all().filter(|_| api::is_client(&slot.view));
        let differ = |o: &ObjectType| {
            // The services that the client sees decide which of them are made up as ServiceEntries.
            let made_up = o.kind() == Some(Kind::ServiceEntry) && types.contains(Types::CDS);
            made_up || objects_differ(change.before, change.now, *o)
        };
        let objects = objects.filter(differ).map(ResourceType::Objects);
        let types = ResourceType::ALL.into_iter().filter(|kind| types.contains(of(*kind))).chain(objects).collect();
        let hosts = effects.hosts;
        let names = move |kind, name: &str| {
            let of_host =
                |hosts: &HashSet<Hostname>| hosts.contains(parse_subset_key(name).map_or("", |(_, _, host, _)| host));
            kind != ResourceType::Endpoint || hosts.as_ref().is_none_or(of_host)
        };
        Affected { types, names: Box::new(names) }
    }

    fn moves<'a>(&self, change: &'a Change<'_>) -> Cow<'a, MovedNodes> {
        Cow::Borrowed(change.what().nodes())
    }
}

fn object_resources(context: &PushContext, view: &ProxyView, objects: ObjectType) -> Vec<Arc<Resource>> {
    match objects.kind() {
        None => vec![Arc::new(Resource::encode("", &*context.mesh().config))],
        Some(kind) => {
            let made = api::resources(context, view, kind);
            made.iter().map(|(name, resource)| Arc::new(Resource::encode(name.as_str(), resource))).collect()
        }
    }
}

/// Whether objects of the type may be others now. Services that are no ServiceEntries are sent as such.
fn objects_differ(before: &PushContext, now: &PushContext, objects: ObjectType) -> bool {
    let (old, new) = (&before.inputs, &now.inputs);
    match objects.kind() {
        None => !Arc::ptr_eq(&old.mesh, &new.mesh),
        Some(kind) => {
            let services = kind == Kind::ServiceEntry && !Arc::ptr_eq(&old.registry.services, &new.registry.services);
            services || api::differ(&old.configs, &new.configs, kind)
        }
    }
}

/// Listeners, and what did not get into them.
fn listeners(context: &PushContext, slot: &Slot) -> (Vec<Listener>, BTreeSet<Omission>) {
    let view = &*slot.view;
    let (listeners, conflicts) = match slot.part {
        _ if view.is_router() => {
            let made = listener::gateway::gateway_with_conflicts(context, view);
            let rejected = made.conflicts.into_iter().map(|message| Omission {
                metric: REJECTED,
                resource: message.split(": ").next().unwrap_or_default().to_string(),
                message,
            });
            return (made.listeners, rejected.collect());
        }
        Part::Outbound => listener::outbound_with_conflicts(context, view),
        _ => listener::inbound_with_conflicts(context, view),
    };
    let conflicts =
        conflicts.into_iter().map(|c| Omission { metric: c.metric, resource: c.listener, message: c.message });
    (listeners, conflicts.collect())
}

#[cfg(test)]
mod freshness;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        model::{Locality, NodeType},
        push::context::PushInputs,
    };

    fn slot(node_type: &str, metadata: serde_json::Value) -> (PushContext, Slot) {
        let context = PushContext::build(PushInputs::default());
        let id = format!("{node_type}~10.0.0.1~a.b~b.svc.cluster.local");
        let node = Node::from_parts(&id, metadata, Locality::default()).unwrap();
        let audience = MeshGenerator::default().audience(&context, &node, None);
        let [.., own, _] = audience.slots;
        (context, own)
    }

    #[test]
    fn whoever_asks_for_unknown_names_is_told_so() {
        let (context, own) = slot("sidecar", json!({}));
        assert_eq!(own.view.node_type, NodeType::Sidecar);
        let names = ["outbound|80||nobody".into(), "8080".into()];
        for kind in [ResourceType::Endpoint, ResourceType::Route] {
            let made = MeshGenerator::default().named(&context, &own, kind, &names);
            assert_eq!(made.iter().map(|r| &**r.name()).collect::<Vec<_>>(), ["outbound|80||nobody", "8080"]);
        }
    }

    #[test]
    fn grpc_has_everything_by_name() {
        let (_, own) = slot("sidecar", json!({"GENERATOR": "grpc"}));
        assert!(!MeshGenerator::default().layout(&own, ResourceType::Listener).listed);
        let (_, own) = slot("sidecar", json!({}));
        assert!(MeshGenerator::default().layout(&own, ResourceType::Listener).listed);
        assert_eq!(MeshGenerator::default().layout(&own, ResourceType::Cluster).parts, [Part::Routing, Part::Own]);
    }
}
