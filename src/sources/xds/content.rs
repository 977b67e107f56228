//! The upstream's resources of one type: objects in force, refused ones, and ones that the upstream no longer has.
//!
//! Pure: the caller brings the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use prost::{Message, Name};
use xxhash_rust::xxh3::xxh3_64;

use super::answer::{Answer, Given};
use crate::{
    model::{Config, ConfigKey, Kind, Origin, mcp, validation::validate},
    proto::{istio::mcp::v1alpha1::Resource, wkt::Any},
    sources::MassDeletionGuard,
};

/// Refusals of one type that are remembered with their reasons.
const MOST_REFUSALS: usize = 1000;
/// The version that is claimed for a resource that came without one: no resource has it, so that a server that compares
/// versions sends its own, and one that looks at names alone sends removals.
const NO_VERSION: &str = "unversioned";
/// Bytes of a reason.
const LONGEST_REASON: usize = 512;

/// An object in force.
#[derive(Debug)]
struct Held {
    config: Arc<Config>,
    version: String,
    hash: u64,
    warnings: Vec<String>,
}

/// Everything of one type.
#[derive(Debug)]
pub(super) struct Content {
    kind: Kind,
    api_version: String,
    origin: Origin,
    held: BTreeMap<String, Held>,
    /// Reasons by name. A resource whose name cannot be read goes by its place in the answer.
    pub(super) refused: BTreeMap<String, String>,
    /// In force, although the upstream no longer has them.
    missing: BTreeSet<String>,
    /// The upstream suddenly has nothing at all of the type.
    emptied: bool,
    fresh: BTreeMap<String, Arc<Config>>,
    guard: MassDeletionGuard,
}

/// The outcome of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// The number of resources that were refused.
    pub(super) refused: usize,
    /// The first of them, with reasons.
    pub(super) reasons: Vec<String>,
}

impl Content {
    pub(super) fn new(kind: Kind, api_version: &str, origin: Origin, hold: Duration) -> Self {
        Self {
            kind,
            api_version: api_version.to_string(),
            origin,
            held: BTreeMap::new(),
            refused: BTreeMap::new(),
            missing: BTreeSet::new(),
            emptied: false,
            fresh: BTreeMap::new(),
            guard: MassDeletionGuard::new(hold),
        }
    }

    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    /// The number of objects in force.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// The objects in force.
    pub(super) fn configs(&self) -> impl Iterator<Item = &Arc<Config>> {
        self.held.values().map(|h| &h.config)
    }

    /// Warnings of objects in force.
    pub(super) fn warnings(&self) -> impl Iterator<Item = (&Arc<Config>, &String)> {
        self.held.values().flat_map(|h| h.warnings.iter().map(move |w| (&h.config, w)))
    }

    /// Versions to claim on a new stream. A removed resource is not claimed: should it have come back meanwhile,
    /// the upstream would not send it.
    pub(super) fn versions(&self) -> BTreeMap<String, String> {
        let version = |h: &Held| if h.version.is_empty() { NO_VERSION.to_string() } else { h.version.clone() };
        let known = self.held.iter().filter(|(name, _)| !self.missing.contains(*name));
        known.map(|(name, h)| (name.clone(), version(h))).collect()
    }

    /// Takes an answer in. `room` is the number of further objects that may be held; `first`: the stream is new.
    pub(super) fn take(&mut self, answer: Answer, room: usize, first: bool) -> Taken {
        let Answer { resources, removed, whole, .. } = answer;
        let (had, nothing) = (self.held.len(), resources.is_empty());
        let most = had.saturating_add(room);
        let mut taken = Taken::default();
        if whole {
            self.refused.clear();
        }
        let read: Vec<_> = resources.into_iter().map(|given| self.read(given)).collect();
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        read.iter().for_each(|(name, _)| *seen.entry(name.clone()).or_default() += 1);
        // A resource without a name may be any of those that are missing.
        let nameless = seen.remove("").is_some();
        for (place, (name, outcome)) in read.into_iter().enumerate() {
            let times = seen.get(&name).copied().unwrap_or_default();
            let known = self.held.contains_key(&name);
            let outcome = match outcome {
                _ if times > 1 => Err(format!("the name comes {times} times in one answer")),
                Ok(Some(_)) if !known && self.held.len() >= most => Err(format!("more than {most} objects")),
                other => other,
            };
            match outcome {
                Ok(new) => self.accept(name, new),
                Err(reason) if name.is_empty() => self.refuse(format!("#{place}"), reason, &mut taken),
                Err(reason) => self.refuse(name, reason, &mut taken),
            }
        }
        if whole {
            let gone = |name: &&String| !nameless && !seen.contains_key(*name);
            self.missing = self.held.keys().filter(gone).cloned().collect();
        }
        for name in removed {
            self.refused.remove(&name);
            if self.held.contains_key(&name) && !seen.contains_key(&name) {
                self.missing.insert(name);
            }
        }
        self.emptied = had > 0 && nothing && (whole || first) && self.missing.len() == self.held.len();
        taken
    }

    /// The name of a resource and its object; `Ok(None)` when it is the one in force.
    fn read(&self, given: Given) -> (String, Result<Option<Held>, String>) {
        let Some(any) = given.resource else { return (given.name, Err("no resource".to_string())) };
        let resource = match envelope(&any) {
            Ok(resource) => resource,
            Err(reason) => return (given.name, Err(reason)),
        };
        let name = mcp::name_of(&resource).to_string();
        if !given.name.is_empty() && given.name != name {
            return (given.name.clone(), Err(format!("named {:?} outside and {name:?} inside", given.name)));
        }
        let hash = xxh3_64(&any.value);
        if self.held.get(&name).is_some_and(|h| h.hash == hash && h.version == given.version) {
            return (name, Ok(None));
        }
        let config = mcp::from_resource(self.kind, &self.api_version, resource, self.origin.clone());
        let read = config.map_err(|e| e.to_string()).and_then(|config| {
            let said = validate(&config);
            if !said.is_valid() {
                return Err(said.errors.join("; "));
            }
            let version = given.version;
            let mut warnings = said.warnings;
            warnings.extend(config.without_effect().map(String::from));
            Ok(Some(Held { config: Arc::new(config), version, hash, warnings }))
        });
        (name, read)
    }

    fn accept(&mut self, name: String, new: Option<Held>) {
        self.refused.remove(&name);
        self.missing.remove(&name);
        let Some(new) = new else { return };
        if self.held.get(&name).is_none_or(|old| old.config.stamp != new.config.stamp) {
            self.fresh.insert(name.clone(), new.config.clone());
        }
        self.held.insert(name, new);
    }

    fn refuse(&mut self, name: String, reason: String, taken: &mut Taken) {
        const NAMED: usize = 10;
        let reason: String = reason.chars().take(LONGEST_REASON).collect();
        taken.refused += 1;
        if taken.reasons.len() < NAMED {
            taken.reasons.push(format!("{name}: {reason}"));
        }
        // The upstream has a resource of this name: it was not removed.
        self.missing.remove(&name);
        if self.refused.len() < MOST_REFUSALS || self.refused.contains_key(&name) {
            self.refused.insert(name, reason);
        }
    }

    /// Objects that are refused and have no version in force: an earlier process may have saved one.
    pub(super) fn forgotten(&self) -> impl Iterator<Item = ConfigKey> {
        let names = self.refused.keys().filter(|name| !self.held.contains_key(*name));
        names.filter_map(|name| {
            let (namespace, name) = name.split_once('/')?;
            Some(ConfigKey { kind: self.kind, namespace: namespace.into(), name: name.into() })
        })
    }

    /// Puts the saved version of a refused object in force. The upstream is told that the version held is another one.
    pub(super) fn recall(&mut self, config: Arc<Config>) {
        let name = format!("{}/{}", config.meta.namespace, config.meta.name);
        if self.refused.contains_key(&name) && !self.held.contains_key(&name) {
            self.fresh.insert(name.clone(), config.clone());
            self.held.insert(name, Held { config, version: String::new(), hash: 0, warnings: Vec::new() });
        }
    }

    /// Takes the changes out: new or different objects, and keys of removed ones. `present` counts the source's objects.
    pub(super) fn commit(&mut self, present: usize, now: Instant) -> (Vec<Arc<Config>>, Vec<ConfigKey>) {
        let upserts = std::mem::take(&mut self.fresh).into_values().collect();
        if !self.guard.allow(self.missing.len(), present, self.emptied, now) {
            return (upserts, Vec::new());
        }
        self.emptied = false;
        let gone = std::mem::take(&mut self.missing);
        (upserts, gone.iter().filter_map(|name| self.held.remove(name)).map(|h| h.config.key()).collect())
    }

    /// Keys whose deletion is held, or not yet committed.
    pub(super) fn missing(&self) -> impl Iterator<Item = ConfigKey> {
        self.missing.iter().filter_map(|name| self.held.get(name)).map(|h| h.config.key())
    }

    /// Names that stay in their last good version.
    pub(super) fn kept(&self) -> impl Iterator<Item = ConfigKey> {
        self.refused.keys().filter_map(|name| self.held.get(name)).map(|h| h.config.key())
    }

    /// The time at which the held deletion takes effect without a confirmation.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.guard.until()
    }

    /// Confirms the held deletion: the next commit carries it out.
    pub(super) fn confirm(&mut self) {
        self.guard.confirm();
    }
}

fn envelope(any: &Any) -> Result<Resource, String> {
    let name = any.type_url.rsplit('/').next().unwrap_or_default();
    if name != Resource::full_name() {
        return Err(format!("a {:?}, not a resource of config", any.type_url));
    }
    Resource::decode(any.value.as_slice()).map_err(|e| format!("the resource does not decode: {e}"))
}
