//! Content that generation had to leave out, for as long as a proxy is served from it: conflicting listeners, refused secrets,
//! parts of objects that Envoy would refuse.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::gauge;
use parking_lot::{Mutex, MutexGuard};

use super::{
    generator::Slot,
    omission::{GAUGES, Omission},
};
use crate::{push::ProxyView, telemetry::LogThrottle, xds::ResourceType};

/// Omissions of one type of one slot, while its view lives.
#[derive(Debug)]
struct OfSlot {
    view: Weak<ProxyView>,
    found: BTreeSet<Omission>,
    lines: LogThrottle,
}

impl OfSlot {
    fn is_gone(&self) -> bool {
        self.view.strong_count() == 0
    }
}

/// Omissions of resources asked for by name that are kept for one slot; further ones only count.
const MOST: usize = 256;

/// Omissions that were not known before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewOmissions {
    /// Those of now that were not known of any slot.
    pub(super) new: Vec<Omission>,
    /// The number of omissions since the last line of the log about the slot, if a line is due.
    pub(super) line: Option<u64>,
}

/// Omissions by slot and type. Slots without any take no room.
#[derive(Debug, Default)]
pub(super) struct Omissions {
    slots: Mutex<BTreeMap<(u128, &'static str), OfSlot>>,
    changes: AtomicU64,
}

impl Omissions {
    /// Replaces the omissions of a slot among these resources of a type; `None` means all of them. Gives the new ones, if
    /// there are any.
    pub(super) fn set(
        &self,
        slot: &Slot,
        kind: ResourceType,
        about: Option<&[Arc<str>]>,
        found: BTreeSet<Omission>,
    ) -> Option<NewOmissions> {
        let mut slots = self.lock();
        // Nearly always nothing is left out of any slot: then neither the slot nor the names are hashed.
        if found.is_empty() && slots.is_empty() {
            return None;
        }
        let key = (slot.key(), kind.label());
        if found.is_empty() && !slots.contains_key(&key) {
            return None;
        }
        let names: Option<HashSet<&str>> = about.map(|names| names.iter().map(|name| &**name).collect());
        self.changes.fetch_add(1, Ordering::Release);
        let known = |omission: &&Omission| slots.values().any(|of| of.found.contains(*omission));
        let new: Vec<Omission> = found.iter().filter(|omission| !known(omission)).cloned().collect();
        let empty = || OfSlot { view: Weak::new(), found: BTreeSet::new(), lines: LogThrottle::of_stream() };
        let entry = slots.entry(key).or_insert_with(empty);
        entry.view = Arc::downgrade(&slot.view);
        let told = (!new.is_empty()).then(|| NewOmissions { line: entry.lines.note(new.len() as u64), new });
        let before = std::mem::take(&mut entry.found);
        let mut metrics: BTreeSet<&'static str> = before.iter().chain(&found).map(|o| o.metric).collect();
        // Omissions of named resources are bounded; those that follow from the config alone count as a whole.
        entry.found.extend(found.into_iter().take(if names.is_some() { MOST } else { usize::MAX }));
        if let Some(names) = names {
            let room = MOST.saturating_sub(entry.found.len());
            entry.found.extend(before.into_iter().filter(|o| !names.contains(&*o.resource)).take(room));
        }
        let gone = slots.values().filter(|of| of.is_gone()).count() as u64;
        self.changes.fetch_add(gone, Ordering::Release);
        slots.retain(|_, of| {
            let alive = !of.is_gone() && !of.found.is_empty();
            if !alive {
                metrics.extend(of.found.iter().map(|o| o.metric));
            }
            alive
        });
        for metric in metrics.into_iter().filter(|m| m.starts_with(GAUGES)) {
            let all: BTreeSet<_> = slots.values().flat_map(|of| &of.found).filter(|o| o.metric == metric).collect();
            gauge!(metric).set(all.len() as f64);
        }
        told
    }

    /// Grows with each change; a view that is let go is one.
    pub(super) fn changes(&self) -> u64 {
        let slots = self.lock();
        let gone = slots.values().filter(|of| of.is_gone()).count() as u64;
        self.changes.load(Ordering::Acquire) + gone
    }

    /// All omissions of now, each once.
    pub(super) fn all(&self) -> Vec<Omission> {
        let slots = self.lock();
        let alive = slots.values().filter(|of| !of.is_gone());
        alive.flat_map(|of| of.found.iter().cloned()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The omissions of one slot now.
    pub(super) fn of(&self, slot: &Slot) -> Vec<Omission> {
        let (key, slots) = (slot.key(), self.lock());
        slots.iter().filter(|((of, _), _)| *of == key).flat_map(|(_, of)| of.found.iter().cloned()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(u128, &'static str), OfSlot>> {
        self.slots.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        discovery::generator::Part,
        model::{Locality, Node},
    };

    fn slot(ip: &str) -> Slot {
        let id = format!("sidecar~{ip}~a.b~b.svc.cluster.local");
        let node = Node::from_parts(&id, serde_json::json!({}), Locality::default()).unwrap();
        Slot { part: Part::Own, view: Arc::new(ProxyView::of_node(&node)), identity: None }
    }

    fn of(resource: &str) -> Omission {
        Omission { metric: "pilot_test", resource: resource.to_string(), message: "no".to_string(), object: None }
    }

    #[test]
    fn omissions_live_as_long_as_their_view() {
        let (omissions, first, second) = (Omissions::default(), slot("10.0.0.1"), slot("10.0.0.2"));
        omissions.set(&first, ResourceType::Listener, None, [of("a"), of("b")].into());
        omissions.set(&second, ResourceType::Listener, None, [of("a"), of("c")].into());
        assert_eq!(omissions.all(), [of("a"), of("b"), of("c")]);
        let told = omissions.set(&first, ResourceType::Route, None, [of("a"), of("d")].into());
        assert_eq!(told.map(|told| told.new), Some(vec![of("d")]), "the other is told of another type already");
        assert_eq!(omissions.of(&second), [of("a"), of("c")]);
        omissions.set(&first, ResourceType::Route, None, BTreeSet::new());
        omissions.set(&first, ResourceType::Listener, Some(&["b".into()]), BTreeSet::new());
        let before = omissions.changes();
        drop(second);
        assert!(omissions.changes() > before, "a view that is let go takes its omissions along");
        assert_eq!(omissions.all(), [of("a")]);
        let before = omissions.changes();
        omissions.set(&first, ResourceType::Listener, None, BTreeSet::new());
        assert!(omissions.all().is_empty() && omissions.changes() > before);
    }

    #[test]
    fn a_flood_of_names_is_bound_and_told_in_few_lines() {
        let (omissions, slot) = (Omissions::default(), slot("10.0.0.1"));
        let names = |from: usize| (from..from + 50_000).map(|i| format!("s{i:06}")).collect::<Vec<_>>();
        let mut told = 0;
        for from in [0, 50_000, 0] {
            let names = names(from);
            let about: Vec<Arc<str>> = names.iter().map(|n| n.as_str().into()).collect();
            told += omissions
                .set(&slot, ResourceType::Secret, Some(&about), names.iter().map(|n| of(n)).collect())
                .map_or(0, |told| told.line.map_or(0, |_| 1));
            assert_eq!(omissions.all().len(), MOST);
            let last: Vec<_> = omissions.all().into_iter().filter(|o| names.contains(&o.resource)).collect();
            assert_eq!(last.len(), MOST, "those of the last request stay");
        }
        assert!((1..=3).contains(&told));
        omissions.set(&slot, ResourceType::Secret, None, BTreeSet::new());
        for _ in 0..1000 {
            told += omissions
                .set(&slot, ResourceType::Secret, None, [of("a")].into())
                .map_or(0, |told| told.line.map_or(0, |_| 1));
            omissions.set(&slot, ResourceType::Secret, None, [of("b")].into());
        }
        assert!(told <= 10, "{told} lines");
        assert_eq!(omissions.all(), [of("b")]);
    }
}
