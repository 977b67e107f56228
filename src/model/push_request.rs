//! Push requests: the changed objects, from which each connection decides whether it is affected.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use super::Kind;

/// The type of a changed object. Services of every registry are `ServiceEntry` under their **host name**.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PushKind {
    /// A config object of this kind.
    Config(Kind),
    /// Only the endpoints of a service.
    Endpoints,
    /// The addresses of a DNS name: they appear in name tables only.
    DnsName,
    /// An object that proxies do not read: only clients of config objects receive the change.
    Object(Kind),
}

/// The identity of one changed object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PushKey {
    /// Type of the object.
    pub kind: PushKind,
    /// Object name; for ServiceEntry and Endpoints the host name.
    pub name: Arc<str>,
    /// Namespace of the object.
    pub namespace: Arc<str>,
}

/// The reason for a push; the label values of `pilot_push_triggers`.
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
    /// The label value, in Istio's spelling.
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

/// A push request (Istio's `PushRequest` at HEAD). Only `forced` means a full push; a request without keys that is not forced
/// reaches no proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRequest {
    /// Full push: everything may have changed.
    pub forced: bool,
    /// The changed objects.
    pub keys: BTreeSet<PushKey>,
    /// The reasons, each with the number of merged events.
    pub reasons: BTreeMap<Reason, u32>,
    /// The arrival of the first of the merged events.
    pub start: Instant,
}

impl PushRequest {
    /// A request for one changed object.
    #[must_use]
    pub fn of(key: PushKey, reason: Reason) -> Self {
        Self {
            forced: false,
            keys: BTreeSet::from([key]),
            reasons: BTreeMap::from([(reason, 1)]),
            start: Instant::now(),
        }
    }

    /// A request for a full push.
    #[must_use]
    pub fn everything(reason: Reason) -> Self {
        Self { forced: true, keys: BTreeSet::new(), reasons: BTreeMap::from([(reason, 1)]), start: Instant::now() }
    }

    /// A request for a new push context without changed objects: by itself it affects no proxy.
    #[must_use]
    pub fn quiet(reason: Reason) -> Self {
        Self { forced: false, ..Self::everything(reason) }
    }

    /// Merges another request into this one: the earlier start, the union of the keys, the sums of the reasons.
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
