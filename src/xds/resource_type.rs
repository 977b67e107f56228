//! The resource types that are served: their URLs, short names, and the order in which they are pushed.
//!
//! Eight types are for the mesh. The others are Istio's objects themselves, for clients of the "api" generator: one type
//! for each version of each kind, because a response has to name the type as the client named it.

use std::sync::{LazyLock, OnceLock};

use crate::model::{Kind, mcp};

/// A type whose resources are config objects (MCP), or the mesh settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct ObjectType(u8);

/// URL and kind of each object type; the mesh settings have no kind.
static OBJECT_TYPES: LazyLock<Vec<(String, Option<Kind>)>> = LazyLock::new(|| {
    const MOST: usize = u128::BITS as usize - ResourceType::COUNT;
    let kinds = Kind::ALL.iter().filter(|k| mcp::is_carried(**k));
    let urls = kinds.flat_map(|kind| mcp::type_urls(*kind).map(|url| (url, Some(*kind))));
    std::iter::once((mcp::MESH_CONFIG_URL.to_string(), None)).chain(urls).take(MOST).collect()
});

impl ObjectType {
    /// Every object type, the mesh settings first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..OBJECT_TYPES.len()).filter_map(|at| u8::try_from(at).ok().map(Self))
    }

    fn row(self) -> &'static (String, Option<Kind>) {
        static NONE: (String, Option<Kind>) = (String::new(), None);
        OBJECT_TYPES.get(usize::from(self.0)).unwrap_or(&NONE)
    }

    /// The kind of the objects; `None` for the mesh settings.
    #[must_use]
    pub fn kind(self) -> Option<Kind> {
        self.row().1
    }

    /// `group/version/Kind`.
    #[must_use]
    pub fn url(self) -> &'static str {
        &self.row().0
    }
}

/// A type of resource. `Ord` is the order of pushes on one stream: a resource that another refers to comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub enum ResourceType {
    /// `Cluster` (CDS).
    Cluster,
    /// `ClusterLoadAssignment` (EDS).
    Endpoint,
    /// `Listener` (LDS).
    Listener,
    /// `RouteConfiguration` (RDS).
    Route,
    /// `Secret` (SDS).
    Secret,
    /// `TypedExtensionConfig` (ECDS).
    Extension,
    /// NDS, Istio's table of DNS names.
    NameTable,
    /// PCDS, Istio's settings of a proxy: the roots that it trusts.
    ProxyConfig,
    /// Config objects, or the mesh settings.
    Objects(ObjectType),
}

impl ResourceType {
    /// The number of types of the mesh.
    pub const COUNT: usize = 8;

    /// Every type of the mesh, in push order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Cluster,
        Self::Endpoint,
        Self::Listener,
        Self::Route,
        Self::Secret,
        Self::Extension,
        Self::NameTable,
        Self::ProxyConfig,
    ];

    /// The type URL as Envoy writes it.
    #[must_use]
    pub fn url(self) -> &'static str {
        match self {
            Self::Objects(objects) => objects.url(),
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::Extension => "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            Self::NameTable => "type.googleapis.com/istio.networking.nds.v1.NameTable",
            Self::ProxyConfig => "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig",
        }
    }

    /// Every type: those of the mesh, then the objects.
    pub fn every() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().chain(ObjectType::all().map(Self::Objects))
    }

    /// The type of a URL, or `None` for one that is not served.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Self> {
        Self::every().find(|t| t.url() == url)
    }

    /// `CDS`, `EDS`, …
    #[must_use]
    pub fn short(self) -> &'static str {
        match self {
            Self::Objects(objects) => objects.url(),
            Self::Cluster => "CDS",
            Self::Endpoint => "EDS",
            Self::Listener => "LDS",
            Self::Route => "RDS",
            Self::Secret => "SDS",
            Self::Extension => "ECDS",
            Self::NameTable => "NDS",
            Self::ProxyConfig => "PCDS",
        }
    }

    /// `cds`, `eds`, …: the label value of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Objects(objects) => objects.url(),
            Self::Cluster => "cds",
            Self::Endpoint => "eds",
            Self::Listener => "lds",
            Self::Route => "rds",
            Self::Secret => "sds",
            Self::Extension => "ecds",
            Self::NameTable => "nds",
            Self::ProxyConfig => "pcds",
        }
    }

    /// Istio's counter of refusals of the type.
    #[must_use]
    pub fn refusals(self) -> &'static str {
        match self {
            Self::Cluster => "pilot_xds_cds_reject",
            Self::Endpoint => "pilot_xds_eds_reject",
            Self::Listener => "pilot_xds_lds_reject",
            Self::Route => "pilot_xds_rds_reject",
            Self::Secret => "pilot_xds_sds_reject",
            Self::Objects(_) | Self::Extension | Self::NameTable | Self::ProxyConfig => "pilot_total_xds_rejects",
        }
    }

    /// Whether an empty list of names means "everything" (Istio's wildcard types). For the others it means "nothing".
    #[must_use]
    pub const fn is_wildcard(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener | Self::NameTable | Self::ProxyConfig | Self::Objects(_))
    }

    /// Whether a state-of-the-world response must hold the whole set, because a name that is missing from it is deleted.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.is_wildcard()
    }

    /// Position in [`ResourceType::every`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Cluster => 0,
            Self::Endpoint => 1,
            Self::Listener => 2,
            Self::Route => 3,
            Self::Secret => 4,
            Self::Extension => 5,
            Self::NameTable => 6,
            Self::ProxyConfig => 7,
            Self::Objects(objects) => Self::COUNT + objects.0 as usize,
        }
    }

    fn at(index: usize) -> Option<Self> {
        match index.checked_sub(Self::COUNT) {
            None => Self::ALL.get(index).copied(),
            Some(objects) if objects < OBJECT_TYPES.len() => {
                u8::try_from(objects).ok().map(|o| Self::Objects(ObjectType(o)))
            }
            Some(_) => None,
        }
    }
}

/// A value for each type. Those of the object types are allocated when one is asked for.
#[derive(Debug)]
pub struct PerType<T> {
    mesh: [T; ResourceType::COUNT],
    objects: OnceLock<Box<[T]>>,
}

impl<T: Default> Default for PerType<T> {
    fn default() -> Self {
        Self { mesh: std::array::from_fn(|_| T::default()), objects: OnceLock::new() }
    }
}

impl<T: Default> PerType<T> {
    fn objects(&self) -> &[T] {
        self.objects.get_or_init(|| OBJECT_TYPES.iter().map(|_| T::default()).collect())
    }

    /// The value of a type, if it has one already.
    #[must_use]
    pub fn known(&self, kind: ResourceType) -> Option<&T> {
        match kind.index().checked_sub(ResourceType::COUNT) {
            None => self.mesh.get(kind.index()),
            Some(at) => self.objects.get()?.get(at),
        }
    }

    /// The value of a type.
    #[allow(clippy::indexing_slicing, reason = "there is a place for each type")]
    pub fn get(&self, kind: ResourceType) -> &T {
        match kind.index().checked_sub(ResourceType::COUNT) {
            None => &self.mesh[kind.index()],
            Some(at) => &self.objects()[at],
        }
    }

    /// The value of a type, to be changed.
    pub fn get_mut(&mut self, kind: ResourceType) -> Option<&mut T> {
        let Some(at) = kind.index().checked_sub(ResourceType::COUNT) else { return self.mesh.get_mut(kind.index()) };
        self.objects();
        self.objects.get_mut()?.get_mut(at)
    }

    /// The values that there are.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.mesh.iter().chain(self.objects.get().into_iter().flatten())
    }
}

/// A set of resource types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TypeSet(u128);

impl TypeSet {
    /// No type.
    pub const EMPTY: Self = Self(0);
    /// Every type of the mesh.
    pub const MESH: Self = Self((1 << ResourceType::COUNT) - 1);
    /// Every type.
    pub const ALL: Self = Self(u128::MAX);

    /// Adds a type.
    pub fn insert(&mut self, kind: ResourceType) {
        self.0 |= 1 << kind.index();
    }

    /// Takes a type out.
    pub fn remove(&mut self, kind: ResourceType) {
        self.0 &= !(1 << kind.index());
    }

    /// Whether the type is in the set.
    #[must_use]
    pub const fn contains(self, kind: ResourceType) -> bool {
        self.0 & (1 << kind.index()) != 0
    }

    /// Whether no type is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The types, in push order.
    pub fn iter(self) -> impl Iterator<Item = ResourceType> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let at = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            ResourceType::at(at)
        })
    }
}

impl FromIterator<ResourceType> for TypeSet {
    fn from_iter<I: IntoIterator<Item = ResourceType>>(types: I) -> Self {
        let mut set = Self::EMPTY;
        types.into_iter().for_each(|t| set.insert(t));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lead_back_to_their_types() {
        for (at, kind) in ResourceType::every().enumerate() {
            assert_eq!(ResourceType::of_url(kind.url()), Some(kind));
            assert_eq!((kind.index(), ResourceType::at(at)), (at, Some(kind)));
        }
        assert!(ResourceType::every().count() < 128, "a set has a bit for each");
        assert_eq!(ResourceType::of_url("type.googleapis.com/other"), None);
    }

    #[test]
    fn values_of_objects_take_room_when_they_are_asked_for() {
        let mut values: PerType<u32> = PerType::default();
        let object = ResourceType::of_url("networking.istio.io/v1alpha3/Gateway").unwrap();
        assert_eq!((values.known(object), values.iter().count()), (None, ResourceType::COUNT));
        *values.get_mut(object).unwrap() = 7;
        assert_eq!((values.known(object), *values.get(object)), (Some(&7), 7));
    }

    #[test]
    fn sets_keep_push_order() {
        let set = TypeSet::from_iter([ResourceType::Route, ResourceType::Cluster]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [ResourceType::Cluster, ResourceType::Route]);
        assert_eq!(TypeSet::MESH.iter().count(), ResourceType::COUNT);
        assert_eq!(TypeSet::ALL.iter().count(), ResourceType::every().count());
        assert!(TypeSet::EMPTY.is_empty());
    }
}
