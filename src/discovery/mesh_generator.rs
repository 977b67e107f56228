//! The generator that serves the mesh: sidecars, gateways and proxyless gRPC, with the builders of the room `generate`.
//!
//! Owns which view each type may read. Which changes can touch a type is told by [`requests::effects`].

mod clusters;
mod extensions;
mod left_out;
mod patch_status;
mod patches;
mod proxyless;

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use metrics::counter;
use parking_lot::Mutex;
use prost::Name;
use rayon::prelude::*;

use left_out::{SECRET_ERRORS, of_policy, omission, others};
use patch_status::PatchStatus;

use super::{
    generator::{Affected, Audience, Claim, Generator, Layout, Part, Slot},
    omission::{Omission, REJECTED},
    omissions::{NewOmissions, Omissions},
};
use crate::{
    generate::{
        api,
        check::{self, Refusal},
        cluster,
        endpoint::{EndpointInputs, EndpointPlan, LOCAL_CLUSTER},
        grpc, listener,
        name_table::{self, NameTable},
        names::parse_subset_key,
        route::{self, VirtualHostMemo},
        sds::Holder,
        secret, trust_bundle,
    },
    model::{ConfigKey, Hostname, Identity, Kind, MovedNodes, Node, NodeType},
    proto::envoy::config::{
        cluster::v3::Cluster, endpoint::v3::ClusterLoadAssignment, listener::v3::Listener,
        route::v3::RouteConfiguration,
    },
    push::{
        Change, ProxyView, PushContext,
        requests::{self, Types},
    },
    xds::{ObjectType, Resource, ResourceType, Table, TypeSet},
};

/// Fewer load assignments are not worth another thread.
const WORTH_A_THREAD: usize = 64;

/// Generates the resources that Istio would send. Equal inputs are generated once: clusters, load assignments, and virtual
/// hosts for all route configurations that hold them.
#[derive(Debug, Default)]
pub struct MeshGenerator {
    virtual_hosts: VirtualHostMemo,
    omissions: Omissions,
    patch_status: PatchStatus,
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
    fn routes(&self, context: &PushContext, slot: &Slot, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let url = RouteConfiguration::type_url();
        let made = route::encoded(context, &slot.view, names, &self.virtual_hosts);
        let refused = |(name, (_, refused)): (&Arc<str>, &(_, Vec<Refusal>))| {
            refused.iter().map(|refusal| omission(name, refusal.clone())).collect::<Vec<_>>()
        };
        self.tell(slot, ResourceType::Route, Some(names), names.iter().zip(&made).flat_map(refused).collect());
        let resource = |(name, (bytes, _)): (&Arc<str>, (bytes::Bytes, Vec<Refusal>))| {
            let resource = Resource::of_parts(name.clone(), &url, &bytes);
            // One that says little more than its name has no routes.
            if bytes.len() <= name.len() + 16 { resource.unknown() } else { resource }
        };
        names.iter().zip(made).map(resource).map(Arc::new).collect()
    }

    fn secrets(&self, context: &PushContext, slot: &Slot, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let texts: Vec<String> = names.iter().map(ToString::to_string).collect();
        let made = secret::secrets(context, &slot.view, &texts, slot.identity.as_ref());
        counter!(SECRET_ERRORS).increment(made.refused.len() as u64);
        let omission = |r: &secret::RefusedSecret| Omission {
            metric: SECRET_ERRORS,
            resource: r.name.clone(),
            message: r.reason.clone(),
            object: None,
        };
        let refused = made.refused.iter().map(omission).collect();
        if let Some(NewOmissions { line: Some(times), new }) =
            self.omissions.set(slot, ResourceType::Secret, Some(names), refused)
        {
            let (first, others) = (new.first(), others(&new));
            let (secret, reason) = (first.map(|o| &*o.resource), first.map(|o| &*o.message));
            tracing::warn!(secret, reason, times, ?others, "secrets are not sent");
        }
        made.resources.iter().map(|s| Arc::new(Resource::encode(s.name.as_str(), s))).collect()
    }

    /// Unknown clusters get an empty load assignment, because clients wait for one.
    fn endpoints(&self, context: &PushContext, slot: &Slot, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let view = &*slot.view;
        let plan = EndpointPlan::of(context, view);
        let url = ClusterLoadAssignment::type_url();
        let refused = Mutex::new(BTreeSet::new());
        // An assignment that something is left out of is not kept, so that it is told each time.
        let make = |name: &str, inputs: &EndpointInputs<'_>| {
            let checked = check::load_assignment(inputs.load_assignment(), || inputs.object());
            let whole = checked.refused.is_empty();
            if !whole {
                let found = checked.refused.into_iter().map(|refusal| omission(name, refusal));
                refused.lock().extend(found);
            }
            (Resource::of_parts(name, &url, &checked.bytes), whole)
        };
        let known =
            |name: &str| plan.with(name, |inputs| self.endpoints.get_or_make(inputs.key(), || make(name, inputs)));
        let unknown = |name: &str| {
            let cluster_name = name.to_string();
            Arc::new(Resource::encode(name, &ClusterLoadAssignment { cluster_name, ..Default::default() }).unknown())
        };
        self.endpoints.prune();
        let made = names.par_iter().with_min_len(WORTH_A_THREAD);
        let made = made.map(|name| known(name).unwrap_or_else(|| unknown(name))).collect();
        let mut refused = refused.into_inner();
        refused.extend(Self::grpc_weights(slot, &plan, names));
        self.tell(slot, ResourceType::Endpoint, Some(names), refused);
        made
    }
}

/// A message with a name of its own.
trait NamedMessage: Name {
    fn own_name(&self) -> &str;
}

impl NamedMessage for Cluster {
    fn own_name(&self) -> &str {
        &self.name
    }
}

impl NamedMessage for Listener {
    fn own_name(&self) -> &str {
        &self.name
    }
}

fn encoded<M: NamedMessage>(messages: impl IntoIterator<Item = M>) -> impl Iterator<Item = Arc<Resource>> {
    messages.into_iter().map(|message| Arc::new(Resource::encode(message.own_name(), &message)))
}

fn shared(names: impl IntoIterator<Item = String>) -> Vec<Arc<str>> {
    names.into_iter().map(Arc::from).collect()
}

fn is_grpc(view: &ProxyView) -> bool {
    &*view.metadata.generator == grpc::GENERATOR
}

impl Generator for MeshGenerator {
    fn audience(&self, context: &PushContext, node: &Node, claim: Claim<'_>) -> Audience {
        let mut view = context.view_of(node);
        let certificates = &context.inputs.certificates.by_identity;
        view.is_proven = claim.is_proven;
        view.certified = takes_certificate(&view)
            && claim.is_proven
            && claim.identity.is_some_and(|identity| certificates.contains_key(identity));
        Self::audience_of(context, view, claim.identity)
    }

    fn serves(&self, slot: &Slot) -> TypeSet {
        if api::is_client(&slot.view) { TypeSet::ALL } else { TypeSet::MESH }
    }

    fn layout(&self, slot: &Slot, kind: ResourceType) -> Layout {
        let view = &slot.view;
        let grpc = is_grpc(view);
        let parts: &'static [Part] = match kind {
            // An agent is sent the credentials of its registry with the extension.
            ResourceType::Secret | ResourceType::Extension => &[Part::Private],
            ResourceType::Objects(_) => &[Part::Outbound],
            _ if grpc || view.is_router() => &[Part::Own],
            ResourceType::Cluster => &[Part::Routing, Part::Own],
            ResourceType::Listener => &[Part::Outbound, Part::Own],
            ResourceType::Endpoint if view.metadata.finds_itself() => &[Part::Routing, Part::Own],
            ResourceType::Endpoint | ResourceType::Route => &[Part::Routing],
            ResourceType::NameTable | ResourceType::ProxyConfig => &[Part::Outbound],
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
                let (listeners, mut left_out) = listeners(context, slot);
                let listeners = Self::patched_listeners(slot, listeners, &mut left_out);
                let url = Listener::type_url();
                let mut list = Vec::with_capacity(listeners.len());
                for mut listener in listeners {
                    let name = listener.name.clone();
                    let object = |names: &[String]| listener::object_of(context, view, &name, names);
                    let (taken, refused) = check::listener(&mut listener, object);
                    left_out.extend(refused.into_iter().map(|refusal| omission(&name, refusal)));
                    list.extend(taken.map(|bytes| Arc::new(Resource::of_parts(name.as_str(), &url, &bytes))));
                }
                self.count_patches(context, slot);
                self.tell(slot, kind, None, left_out);
                list
            }
            ResourceType::NameTable if view.metadata.dns_capture && view.node_type == NodeType::Sidecar => {
                vec![Arc::new(Resource::encode(NameTable::NAME, &name_table::name_table(context, view)))]
            }
            ResourceType::ProxyConfig => {
                trust_bundle::proxy_config(context).iter().map(|c| Arc::new(Resource::encode("", c))).collect()
            }
            ResourceType::Endpoint => {
                let names = cluster::eds_cluster_names(&cluster::all(context, view));
                self.endpoints(context, slot, &shared(names))
            }
            ResourceType::Route => {
                let listeners =
                    if view.is_router() { listener::gateway(context, view) } else { listener::sidecar(context, view) };
                self.routes(context, slot, &shared(listener::route_names(&listeners)))
            }
            ResourceType::Objects(objects) => object_resources(context, view, objects),
            ResourceType::NameTable | ResourceType::Secret | ResourceType::Extension => Vec::new(),
        }
    }

    fn named(&self, context: &PushContext, slot: &Slot, kind: ResourceType, names: &[Arc<str>]) -> Vec<Arc<Resource>> {
        let view = &*slot.view;
        match kind {
            ResourceType::Endpoint if view.metadata.finds_itself() && !view.is_router() && !is_grpc(view) => {
                let own = slot.part != Part::Routing;
                let of_part = |name: &&Arc<str>| (&***name == LOCAL_CLUSTER) == own;
                self.endpoints(context, slot, &names.iter().filter(of_part).cloned().collect::<Vec<_>>())
            }
            ResourceType::Endpoint => self.endpoints(context, slot, names),
            ResourceType::Route if is_grpc(view) => self.grpc_routes(context, slot, names),
            ResourceType::Route => self.routes(context, slot, names),
            ResourceType::Secret => self.secrets(context, slot, names),
            ResourceType::Cluster if is_grpc(view) => self.grpc_clusters(context, slot, names),
            ResourceType::Listener if is_grpc(view) => self.grpc_listeners(context, slot, names),
            ResourceType::Extension => self.extensions(context, slot, names),
            _ => Vec::new(),
        }
    }

    fn omissions(&self) -> Vec<Omission> {
        let all = self.omissions.all();
        self.patch_status.settle(&all);
        all
    }

    fn omission_changes(&self) -> u64 {
        self.omissions.changes()
    }

    fn omissions_of(&self, slot: &Slot) -> Vec<Omission> {
        self.omissions.of(slot)
    }

    fn origin(&self, context: &PushContext, slot: &Slot, kind: ResourceType, name: &str) -> Option<ConfigKey> {
        let view = &*slot.view;
        match kind {
            ResourceType::Listener if !is_grpc(view) => listener::object_of(context, view, name, &[]),
            ResourceType::Cluster | ResourceType::Endpoint => {
                EndpointPlan::of(context, view).with(name, |inputs| inputs.rule_or_object()).flatten()
            }
            ResourceType::Extension => extensions::object_of(context, view, name),
            _ => None,
        }
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
            ResourceType::ProxyConfig => Types::PCDS,
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
        let mut types: TypeSet = types;
        let is_touched = |identity: &Identity| change.differences().touches_secrets_of(identity);
        if slot.view.is_proven && slot.identity.as_ref().is_some_and(is_touched) {
            types.insert(ResourceType::Secret);
        }
        let hosts = effects.hosts;
        let own = slot.view.own_service().map(|target| target.service.hostname.clone());
        let names = move |kind, name: &str| {
            let of_host = |hosts: &HashSet<Hostname>| match parse_subset_key(name) {
                Some((_, _, host, _)) => hosts.contains(host),
                None => name == LOCAL_CLUSTER && own.as_ref().is_some_and(|host| hosts.contains(host)),
            };
            kind != ResourceType::Endpoint || hosts.as_ref().is_none_or(of_host)
        };
        Affected { types, names: Box::new(names) }
    }

    fn moves<'a>(&self, change: &'a Change<'_>) -> Cow<'a, MovedNodes> {
        Cow::Borrowed(change.differences().nodes())
    }
}

/// Whether a client of this view has its workload's certificate from nobody else: no agent, no server at a socket.
pub(super) fn takes_certificate(view: &ProxyView) -> bool {
    !matches!(Holder::of(view), Holder::Agent | Holder::Socket) && !is_grpc(view) && !api::is_client(view)
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

/// Listeners, and the parts of objects that are left out of them.
fn listeners(context: &PushContext, slot: &Slot) -> (Vec<Listener>, BTreeSet<Omission>) {
    let view = &*slot.view;
    let (listeners, conflicts, refused) = match slot.part {
        _ if view.is_router() => {
            let made = listener::gateway::gateway_with_conflicts(context, view);
            let rejected = made.conflicts.into_iter().map(|message| Omission {
                metric: REJECTED,
                resource: message.split(": ").next().unwrap_or_default().to_string(),
                message,
                object: None,
            });
            let refused = made.refused.into_iter().map(of_policy).chain(extensions::omissions(context, view));
            return (made.listeners, rejected.chain(refused).collect());
        }
        Part::Outbound => listener::outbound_with_refusals(context, view),
        _ => listener::inbound_with_refusals(context, view),
    };
    let conflicts = conflicts.into_iter().map(|c| Omission {
        metric: c.metric,
        resource: c.listener,
        message: c.message,
        object: None,
    });
    let own = (slot.part != Part::Outbound).then(|| extensions::omissions(context, view));
    (listeners, conflicts.chain(refused.into_iter().map(of_policy)).chain(own.into_iter().flatten()).collect())
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
        let audience = MeshGenerator::default().audience(&context, &node, Claim::default());
        let [.., own, _] = audience.slots;
        (context, own)
    }

    #[test]
    fn unknown_names_are_answered() {
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
