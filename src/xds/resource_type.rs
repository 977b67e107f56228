//! The resource types that are served: their URLs, short names, and the order in which they are pushed.

/// A type of resource. `Ord` is the order of pushes on one stream: a resource that another refers to comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub enum ResourceType {
    /// CDS.
    Cluster,
    /// EDS.
    Endpoint,
    /// LDS.
    Listener,
    /// RDS.
    Route,
    /// SDS.
    Secret,
    /// ECDS.
    Extension,
    /// NDS, Istio's table of DNS names.
    NameTable,
}

impl ResourceType {
    /// How many types there are.
    pub const COUNT: usize = 7;

    /// Every type, in push order.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Cluster, Self::Endpoint, Self::Listener, Self::Route, Self::Secret, Self::Extension, Self::NameTable];

    /// The type URL as Envoy writes it.
    #[must_use]
    pub const fn url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::Extension => "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            Self::NameTable => "type.googleapis.com/istio.networking.nds.v1.NameTable",
        }
    }

    /// The type of a URL, or `None` for one that is not served.
    #[must_use]
    pub fn of_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.url() == url)
    }

    /// `CDS`, `EDS`, …
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::Cluster => "CDS",
            Self::Endpoint => "EDS",
            Self::Listener => "LDS",
            Self::Route => "RDS",
            Self::Secret => "SDS",
            Self::Extension => "ECDS",
            Self::NameTable => "NDS",
        }
    }

    /// `cds`, `eds`, …: the label value of metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cluster => "cds",
            Self::Endpoint => "eds",
            Self::Listener => "lds",
            Self::Route => "rds",
            Self::Secret => "sds",
            Self::Extension => "ecds",
            Self::NameTable => "nds",
        }
    }

    /// Whether an empty list of names means "everything" (Istio's wildcard types). For the others it means "nothing".
    #[must_use]
    pub const fn is_wildcard(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener | Self::NameTable)
    }

    /// Whether a state-of-the-world response must hold the whole set, because a name that is missing from it is deleted.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.is_wildcard()
    }

    /// Position in [`ResourceType::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// A set of resource types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TypeSet(u8);

impl TypeSet {
    /// No type.
    pub const EMPTY: Self = Self(0);
    /// Every type.
    pub const ALL: Self = Self((1 << ResourceType::COUNT) - 1);

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
        ResourceType::ALL.into_iter().filter(move |t| self.contains(*t))
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
        for kind in ResourceType::ALL {
            assert_eq!(ResourceType::of_url(kind.url()), Some(kind));
            assert_eq!(ResourceType::ALL[kind.index()], kind);
        }
        assert_eq!(ResourceType::of_url("type.googleapis.com/other"), None);
    }

    #[test]
    fn sets_keep_push_order() {
        let set = TypeSet::from_iter([ResourceType::Route, ResourceType::Cluster]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [ResourceType::Cluster, ResourceType::Route]);
        assert_eq!(TypeSet::ALL.iter().count(), ResourceType::COUNT);
        assert!(TypeSet::EMPTY.is_empty());
    }
}
