//! What changed, for whom to find out whether it matters to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use super::Kind;

/// The kind of a changed thing. Services of every registry are `ServiceEntry` under their **host name**.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PushKind {
    /// An object of this kind.
    Config(Kind),
    /// The endpoints of a service, nothing else of it.
    Endpoints,
    /// The addresses that a name stands for: only name tables hold them.
    DnsName,
    /// An object that proxies do not read: only clients of config objects are to hear of the change.
    Object(Kind),
}

/// One changed thing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PushKey {
    /// What it is.
    pub kind: PushKind,
    /// Object name; for ServiceEntry and Endpoints the host name.
    pub name: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
}

/// Why a push happens; the label values of `pilot_push_triggers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "Istio's trigger of that name")]
pub enum Reason {
    Endpoint,
    HeadlessEndpoint,
    Config,
    Service,
    Proxy,
    Global,
    Unknown,
    Debug,
    Secret,
    Networks,
    Namespace,
}

impl Reason {
    /// The label value, spelt as Istio spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Endpoint => "endpoint",
            Self::HeadlessEndpoint => "headlessendpoint",
            Self::Config => "config",
            Self::Service => "service",
            Self::Proxy => "proxy",
            Self::Global => "global",
            Self::Unknown => "unknown",
            Self::Debug => "debug",
            Self::Secret => "secret",
            Self::Networks => "networks",
            Self::Namespace => "namespace",
        }
    }
}

/// A request to push (Istio's `PushRequest` at HEAD). Only `forced` means "everything"; no keys and not forced pushes to
/// nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRequest {
    /// Everything may have changed.
    pub forced: bool,
    /// What changed.
    pub keys: BTreeSet<PushKey>,
    /// Why, with how often.
    pub reasons: BTreeMap<Reason, u32>,
    /// When the first of the merged events came.
    pub start: Instant,
}

impl PushRequest {
    /// A request for one changed thing.
    #[must_use]
    pub fn of(key: PushKey, reason: Reason) -> Self {
        Self {
            forced: false,
            keys: BTreeSet::from([key]),
            reasons: BTreeMap::from([(reason, 1)]),
            start: Instant::now(),
        }
    }

    /// A request that everything be looked at again.
    #[must_use]
    pub fn everything(reason: Reason) -> Self {
        Self { forced: true, keys: BTreeSet::new(), reasons: BTreeMap::from([(reason, 1)]), start: Instant::now() }
    }

    /// A request for a new context that nobody is to be told of: objects may have changed in what proxies do not read.
    #[must_use]
    pub fn quiet(reason: Reason) -> Self {
        Self { forced: false, ..Self::everything(reason) }
    }

    /// Adds another request to this one: the earlier start, the union of the keys, the sum of the reasons.
    pub fn merge(&mut self, other: Self) {
        self.forced |= other.forced;
        self.keys.extend(other.keys);
        for (reason, n) in other.reasons {
            *self.reasons.entry(reason).or_default() += n;
        }
        self.start = self.start.min(other.start);
    }

    /// Whether only endpoints changed.
    #[must_use]
    pub fn endpoints_only(&self) -> bool {
        !self.forced
            && !self.keys.is_empty()
            && self.keys.iter().all(|k| matches!(k.kind, PushKind::Endpoints | PushKind::Object(_)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn merged(requests: &[PushRequest]) -> Option<PushRequest> {
        requests.iter().cloned().reduce(|mut merged, next| {
            merged.merge(next);
            merged
        })
    }

    proptest! {
        #[test]
        fn merging_does_not_depend_on_the_order(
            parts in proptest::collection::vec((0u8..5, any::<bool>(), 0u64..9), 1..8),
            turn in 0usize..8,
        ) {
            let base = Instant::now();
            let request = |(name, forced, ms): &(u8, bool, u64)| {
                let kind = if name % 2 == 0 { PushKind::Endpoints } else { PushKind::Config(Kind::Sidecar) };
                let reason = if name % 3 == 0 { Reason::Config } else { Reason::Endpoint };
                let key = PushKey { kind, name: name.to_string().as_str().into(), namespace: "x".into() };
                let start = base + Duration::from_millis(*ms);
                PushRequest { forced: *forced, start, ..PushRequest::of(key, reason) }
            };
            let requests: Vec<_> = parts.iter().map(request).collect();
            let mut other = requests.clone();
            other.rotate_left(turn % requests.len());
            other.reverse();
            prop_assert_eq!(merged(&requests), merged(&other));
        }
    }
}
