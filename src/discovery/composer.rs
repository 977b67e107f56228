//! The resources of one proxy, asked for in the order in which a client asks: CDS, EDS for the clusters, LDS, RDS for the names in
//! the listeners, SDS for the names that use ADS, the name table. Proxyless gRPC begins with its listeners.
//!
//! The [`MeshGenerator`] makes them, part by part, as it does for connected proxies, and the messages are decoded from its bytes:
//! `render` and the recorded families see nothing else than a proxy does.

use std::{cell::RefCell, sync::Arc};

use prost::{DecodeError, Message};

use super::{
    generator::{Audience, Generator, Part, Pick, Slot},
    mesh_generator::MeshGenerator,
    omission::Omission,
};
use crate::{
    generate::{cluster, grpc, listener, name_table::NameTable, secret},
    model::Identity,
    proto::{
        envoy::{
            config::{
                cluster::v3::Cluster, core::v3::TypedExtensionConfig, endpoint::v3::ClusterLoadAssignment,
                listener::v3::Listener, route::v3::RouteConfiguration,
            },
            extensions::transport_sockets::tls::v3::Secret,
        },
        wkt,
    },
    push::{ProxyView, PushContext},
    xds::{Block, NameSet, Resource, ResourceType, Scope, Snapshot},
};

/// All resources of one proxy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resources {
    /// All clusters of the proxy (CDS).
    pub clusters: Vec<Cluster>,
    /// EDS, for the EDS clusters.
    pub endpoints: Vec<ClusterLoadAssignment>,
    /// All listeners of the proxy (LDS).
    pub listeners: Vec<Listener>,
    /// RDS, for the names in the listeners.
    pub routes: Vec<RouteConfiguration>,
    /// ECDS, for the names in the listeners.
    pub extensions: Vec<TypedExtensionConfig>,
    /// SDS, for the names that the other resources fetch over ADS.
    pub secrets: Vec<Secret>,
    /// NDS; only with `DNS_CAPTURE`.
    pub name_table: Option<NameTable>,
}

/// Asks for the resources of one proxy.
#[derive(Debug)]
pub struct Composer<'a> {
    context: &'a PushContext,
    generator: Arc<MeshGenerator>,
    audience: Audience,
    /// Everything that was asked for, so that a composer beside this one need not make it again.
    held: RefCell<Vec<Arc<Snapshot>>>,
}

impl<'a> Composer<'a> {
    /// For a proxy of this view, whose client proved this identity: secrets are sent to no other.
    #[must_use]
    pub fn new(context: &'a PushContext, view: ProxyView, identity: Option<&Identity>) -> Self {
        Self::with(Arc::default(), context, view, identity)
    }

    /// For another proxy. Resources that both have are made once, as long as this composer lives.
    #[must_use]
    pub fn beside(&self, view: ProxyView, identity: Option<&Identity>) -> Self {
        Self::with(self.generator.clone(), self.context, view, identity)
    }

    fn with(
        generator: Arc<MeshGenerator>,
        context: &'a PushContext,
        view: ProxyView,
        identity: Option<&Identity>,
    ) -> Self {
        let audience = MeshGenerator::audience_of(context, view, identity);
        Self { context, generator, audience, held: RefCell::default() }
    }

    /// Content of objects that was left out of the resources that were asked for.
    #[must_use]
    pub fn omissions(&self) -> Vec<Omission> {
        self.audience.slots.iter().flat_map(|slot| self.generator.omissions_of(slot)).collect()
    }

    /// Everything. `listener_names` are those that a proxyless gRPC client asks for; others ask for all.
    ///
    /// # Errors
    /// When a resource is not of the type that it states: a fault of the generator.
    pub fn all(&self, listener_names: &[String]) -> Result<Resources, DecodeError> {
        let view = &*self.own().view;
        if &*view.metadata.generator == grpc::GENERATOR {
            let listeners: Vec<Listener> = self.named(ResourceType::Listener, listener_names)?;
            let routes = self.named(ResourceType::Route, grpc::route_names(&listeners))?;
            let clusters: Vec<Cluster> = self.named(ResourceType::Cluster, grpc::cluster_names(&routes))?;
            let endpoints = self.named(ResourceType::Endpoint, clusters.iter().map(|c| &c.name))?;
            return Ok(Resources { clusters, endpoints, listeners, routes, ..Resources::default() });
        }
        let (clusters, listeners) = (self.clusters()?, self.listeners()?);
        let endpoints = self.named(ResourceType::Endpoint, cluster::eds_cluster_names(&clusters))?;
        let routes = self.named(ResourceType::Route, listener::route_names(&listeners))?;
        let secrets = self.named(ResourceType::Secret, secret::names(&clusters, &listeners))?;
        let extensions = self.named(ResourceType::Extension, listener::extension_names(&listeners))?;
        let name_table = self.read(ResourceType::NameTable, &Scope::all())?.pop();
        Ok(Resources { clusters, endpoints, listeners, routes, extensions, secrets, name_table })
    }

    /// All clusters of the proxy, as CDS serves them.
    ///
    /// # Errors
    /// As [`Composer::all`].
    pub fn clusters(&self) -> Result<Vec<Cluster>, DecodeError> {
        self.read(ResourceType::Cluster, &Scope::all())
    }

    /// All listeners of the proxy, as LDS serves them.
    ///
    /// # Errors
    /// As [`Composer::all`].
    pub fn listeners(&self) -> Result<Vec<Listener>, DecodeError> {
        self.read(ResourceType::Listener, &Scope::all())
    }

    /// One route configuration of RDS.
    ///
    /// # Errors
    /// As [`Composer::all`].
    pub fn route_configuration(&self, name: &str) -> Result<Option<RouteConfiguration>, DecodeError> {
        Ok(self.named(ResourceType::Route, [name])?.pop())
    }

    fn named<M: Message + Default, S: AsRef<str>>(
        &self,
        kind: ResourceType,
        names: impl IntoIterator<Item = S>,
    ) -> Result<Vec<M>, DecodeError> {
        let names = names.into_iter().map(|name| Arc::<str>::from(name.as_ref()));
        self.read(kind, &Scope::of(NameSet::of(names)))
    }

    fn read<M: Message + Default>(&self, kind: ResourceType, scope: &Scope) -> Result<Vec<M>, DecodeError> {
        let decode = |resource: &Arc<Resource>| {
            let any = wkt::Any::decode(resource.any().clone())?;
            M::decode(any.value.as_slice())
        };
        self.snapshot(kind, scope).iter().map(decode).collect()
    }

    fn own(&self) -> &Slot {
        let [.., own, _] = &self.audience.slots;
        own
    }

    #[allow(clippy::indexing_slicing, reason = "the array has a place for each part")]
    fn snapshot(&self, kind: ResourceType, scope: &Scope) -> Arc<Snapshot> {
        let layout = self.generator.layout(self.own(), kind);
        let block = |part: &Part| {
            let (slot, names) = (&self.audience.slots[part.index()], scope.names.names());
            let list = || self.generator.list(self.context, slot, kind);
            let named = |names: &[Arc<str>]| self.generator.named(self.context, slot, kind, names);
            let mut resources = match layout.pick(scope) {
                Pick::Listed | Pick::NamedOfListed => list(),
                Pick::Named => named(names),
                Pick::ListedAndNamed => {
                    let mut all = list();
                    let is_other = |name: &&Arc<str>| all.iter().all(|resource| resource.name() != *name);
                    let others: Vec<_> = names.iter().filter(is_other).cloned().collect();
                    all.extend(named(&others));
                    all
                }
            };
            resources.retain(|resource| scope.contains(resource.name()));
            Block::build(resources, None)
        };
        let snapshot = Snapshot::new(layout.parts.iter().map(block).collect(), scope.clone());
        self.held.borrow_mut().push(snapshot.clone());
        snapshot
    }
}
