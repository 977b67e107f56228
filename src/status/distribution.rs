//! The generation of each Istio object that has reached the proxies (Istio's distribution reporter).
//!
//! An object is in progress from the publication that first holds its generation until every connected proxy has
//! acknowledged that publication, or was not affected by it. From then on it is settled: a proxy that connects later gets
//! the object in its first configuration, so the answer does not change until the generation does. Without generations
//! (files have none) other content counts as another generation. Where several processes serve the proxies, the leader adds
//! up all reports; an object is settled when every process knows it and all proxies hold it.
//!
//! Unlike Istio's, the count is of proxies, not of pairs of proxy and resource type.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{
    reach::{CONDITION, Reach},
    report::Report,
};
use crate::model::{Config, ConfigKey, ConfigSnapshot, Kind, kind::KindClass};

/// The condition of an object that has reached all proxies but is without effect, wholly or in part.
#[must_use]
pub fn not_in_force(config: &Config, reason: &str, message: &str) -> Value {
    let mut condition = json!({"type": CONDITION, "status": "False", "reason": reason, "message": message});
    if config.meta.generation > 0 {
        condition["observedGeneration"] = config.meta.generation.into();
    }
    condition
}

/// The publication that each connected proxy holds: its number, `u64::MAX` for a proxy that lacks nothing.
#[derive(Debug, Clone, Default)]
pub struct Levels(Vec<u64>);

impl Levels {
    /// From levels in any order.
    #[must_use]
    pub fn of(levels: impl IntoIterator<Item = u64>) -> Self {
        let mut levels: Vec<u64> = levels.into_iter().collect();
        levels.sort_unstable();
        Self(levels)
    }

    /// The reach of this publication.
    #[must_use]
    pub fn reach(&self, version: u64) -> Reach {
        let behind = self.0.partition_point(|level| *level < version);
        Reach { acked: self.0.len() - behind, total: self.0.len(), lagging: 0 }
    }
}

/// The distribution of one object.
#[derive(Debug, Clone)]
struct Progress {
    generation: i64,
    stamp: u64,
    /// The publication that first held it.
    version: u64,
    /// Position in the history of its cluster; 0 when unknown.
    order: u64,
    /// Reach among this process's proxies.
    local: Reach,
    /// Reach among the proxies of all processes.
    reach: Reach,
    /// Whether it was complete once.
    settled: bool,
}

impl Progress {
    fn is_of(&self, config: &Config) -> bool {
        let generation = config.meta.generation;
        if generation > 0 { self.generation == generation } else { self.stamp == config.stamp }
    }
}

/// The distribution of all Istio objects in force.
#[derive(Debug, Default)]
pub struct Distribution {
    objects: BTreeMap<ConfigKey, Progress>,
    lists: BTreeMap<Kind, Arc<Vec<Arc<Config>>>>,
    in_progress: BTreeSet<ConfigKey>,
    /// Latest known position in the history of each kind.
    seen: BTreeMap<Kind, u64>,
}

/// Position in the history of a cluster. Resource versions of one kind are increasing numbers.
fn order_of(config: &Config) -> u64 {
    config.meta.resource_version.parse().unwrap_or_default()
}

/// Whether the object's own status says that its generation has reached all proxies.
#[must_use]
pub fn is_reconciled(config: &Config) -> bool {
    let conditions = config.status["conditions"].as_array().into_iter().flatten();
    let generation = config.meta.generation;
    conditions.into_iter().any(|c| is_settled(c) && c["observedGeneration"] == generation) && generation > 0
}

/// Whether a condition is ours and says that all proxies hold the object. It is final for this generation.
#[must_use]
pub fn is_settled(condition: &Value) -> bool {
    condition["type"] == CONDITION && condition["status"] == "True"
}

/// Whether the distribution of a kind is followed (Istio: kinds of `*.istio.io` that proxies receive).
#[must_use]
pub fn is_followed(config: &Config) -> bool {
    config.kind().class() == KindClass::Istio && config.is_of_main_cluster() && !config.origin.source.is_empty()
}

impl Distribution {
    /// Applies a publication, or a later one than the object's own: a new object or another generation is in progress.
    /// Unchanged lists cost nothing. Returns whether anything differed.
    pub fn publish(&mut self, version: u64, configs: &ConfigSnapshot) -> bool {
        let mut changed = false;
        for kind in Kind::ALL.iter().filter(|kind| kind.class() == KindClass::Istio) {
            let list = configs.by_kind.get(kind);
            let same = match (self.lists.get(kind), list) {
                (Some(old), Some(new)) => Arc::ptr_eq(old, new),
                (None, None) => true,
                _ => false,
            };
            if !same {
                changed |= self.take_list(*kind, version, list.map_or(&[], |l| l.as_slice()));
                match list {
                    Some(list) => drop(self.lists.insert(*kind, list.clone())),
                    None => drop(self.lists.remove(kind)),
                }
            }
        }
        changed
    }

    fn take_list(&mut self, kind: Kind, version: u64, list: &[Arc<Config>]) -> bool {
        let mut changed = false;
        let followed = list.iter().filter(|c| is_followed(c));
        let mut present = BTreeSet::new();
        let seen = list.iter().map(|c| order_of(c)).max().unwrap_or_default();
        self.seen.entry(kind).and_modify(|before| *before = seen.max(*before)).or_insert(seen);
        for config in followed {
            let key = config.key();
            if !self.objects.get(&key).is_some_and(|p| p.is_of(config)) {
                let progress = Progress {
                    generation: config.meta.generation,
                    stamp: config.stamp,
                    version,
                    order: order_of(config),
                    local: Reach::default(),
                    reach: Reach::default(),
                    settled: false,
                };
                self.objects.insert(key.clone(), progress);
                self.in_progress.insert(key.clone());
                changed = true;
            }
            present.insert(key);
        }
        let before = self.objects.len();
        self.objects.retain(|key, _| key.kind != kind || present.contains(key));
        self.in_progress.retain(|key| key.kind != kind || present.contains(key));
        changed || before != self.objects.len()
    }

    /// Whether anything has not reached all proxies yet.
    #[must_use]
    pub fn is_in_progress(&self) -> bool {
        !self.in_progress.is_empty()
    }

    /// Counts the objects in progress again, with the reports of other processes. Returns whether any count changed.
    pub fn advance(&mut self, levels: &Levels, peers: &[Report]) -> bool {
        let mut changed = false;
        let objects = &mut self.objects;
        self.in_progress.retain(|key| {
            let Some(progress) = objects.get_mut(key) else { return false };
            progress.local = levels.reach(progress.version);
            let others = peers.iter().map(|peer| peer.reach(key, progress.generation, progress.order));
            let reach = others.fold(progress.local, Reach::plus);
            changed |= reach != progress.reach || reach.is_complete();
            progress.reach = reach;
            progress.settled = reach.is_complete();
            !progress.settled
        });
        changed
    }

    /// Puts the objects without a settled condition in progress again: this process begins to lead, and counts others'
    /// proxies too.
    pub fn reopen(&mut self) {
        for config in self.lists.values().flat_map(|list| list.iter()).filter(|c| is_followed(c) && !is_reconciled(c)) {
            let key = config.key();
            if let Some(progress) = self.objects.get_mut(&key) {
                progress.settled = false;
                self.in_progress.insert(key);
            }
        }
    }

    /// The report of this process for the leader: `proxies` are connected to it, and `stored` is the content of its store. A
    /// change of nothing but a status is in no publication, but is part of the history.
    #[must_use]
    pub fn report(&self, proxies: usize, stored: &ConfigSnapshot) -> Report {
        let mut seen = self.seen.clone();
        for (kind, known) in &mut seen {
            let list = stored.list(*kind);
            let is_published = |c: &Arc<Config>| self.objects.get(&c.key()).is_some_and(|p| p.is_of(c));
            if list.iter().filter(|c| is_followed(c)).all(is_published) {
                *known = list.iter().map(|c| order_of(c)).fold(*known, u64::max);
            }
        }
        let open = self.in_progress.iter().filter_map(|key| Some((key, self.objects.get(key)?)));
        let behind = open.filter(|(_, p)| !p.local.is_complete());
        Report::new(proxies, &seen, behind.map(|(key, p)| (key, p.generation, p.local)))
    }

    /// The condition of every object that was counted.
    pub fn conditions(&self) -> impl Iterator<Item = (&ConfigKey, Value)> {
        let counted = self.objects.iter().filter(|(_, p)| p.settled || p.reach.total > 0);
        counted.map(|(key, p)| (key, p.reach.condition(p.generation)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{Origin, decode};

    fn rule(name: &str, generation: i64, host: &str) -> Arc<Config> {
        let mut document = json!({"apiVersion": "networking.istio.io/v1", "kind": "DestinationRule",
            "metadata": {"name": name, "namespace": "shop"}, "spec": {"host": host}});
        if generation > 0 {
            document["metadata"]["generation"] = generation.into();
        }
        let origin = Origin { source: "file:x".into(), ..Origin::default() };
        Arc::new(decode::from_value(&document, origin).unwrap())
    }

    fn messages(distribution: &Distribution) -> Vec<String> {
        distribution.conditions().map(|(k, c)| format!("{} {} {}", k.name, c["status"], c["message"])).collect()
    }

    #[test]
    fn an_object_is_reconciled_when_every_proxy_holds_it_and_stays_so() {
        let mut distribution = Distribution::default();
        distribution.publish(3, &ConfigSnapshot::of([rule("a", 1, "h")]));
        distribution.advance(&Levels::of([2, 3]), &[]);
        assert_eq!(messages(&distribution), ["a \"False\" \"1/2 proxies up to date.\""]);
        distribution.advance(&Levels::of([u64::MAX, 3]), &[]);
        assert_eq!(messages(&distribution), ["a \"True\" \"2/2 proxies up to date.\""]);
        assert!(!distribution.is_in_progress());
        assert!(!distribution.advance(&Levels::of([0, 0, 0]), &[]), "a proxy that comes later changes nothing");
        assert!(!distribution.publish(4, &ConfigSnapshot::of([rule("a", 1, "labels only")])));
        assert!(distribution.publish(5, &ConfigSnapshot::of([rule("a", 2, "h")])));
        distribution.advance(&Levels::of([4, 5]), &[]);
        assert_eq!(messages(&distribution), ["a \"False\" \"1/2 proxies up to date.\""]);
    }

    #[test]
    fn without_generations_other_content_counts_and_deleted_objects_are_forgotten() {
        let mut distribution = Distribution::default();
        distribution.publish(1, &ConfigSnapshot::of([rule("a", 0, "h"), rule("b", 0, "h")]));
        distribution.advance(&Levels::default(), &[]);
        assert_eq!(messages(&distribution).len(), 2);
        assert!(distribution.publish(2, &ConfigSnapshot::of([rule("a", 0, "other")])));
        assert!(distribution.is_in_progress());
        assert!(distribution.publish(3, &ConfigSnapshot::default()));
        assert!(!distribution.is_in_progress() && messages(&distribution).is_empty());
    }

    #[test]
    fn other_processes_are_waited_for_until_they_know_the_object_and_a_status_alone_is_known_at_once() {
        let of = |generation: i64, version: &str| {
            let mut rule = (*rule("a", generation, "h")).clone();
            rule.meta.resource_version = version.into();
            ConfigSnapshot::of([Arc::new(rule)])
        };
        let (mut ours, mut other) = (Distribution::default(), Distribution::default());
        other.publish(1, &of(1, "10"));
        let none = Levels::default();
        other.advance(&none, &[]);
        ours.publish(1, &of(2, "12"));
        ours.advance(&none, &[other.report(0, &of(1, "11"))]);
        assert!(ours.is_in_progress(), "a proxy that connects there would lack it");
        assert!(
            !other.report(0, &of(2, "13")).reach(&rule("a", 2, "h").key(), 2, 12).is_complete(),
            "not in force yet"
        );
        other.publish(2, &of(2, "12"));
        let known = other.report(0, &of(2, "13"));
        assert!(known.reach(&rule("a", 2, "h").key(), 2, 13).is_complete(), "its status was written meanwhile");
        ours.advance(&none, &[known]);
        assert!(!ours.is_in_progress());
    }

    proptest! {
        #[test]
        fn nothing_is_reconciled_that_a_proxy_lacks(
            steps in proptest::collection::vec((0u8..3, 0usize..4, 1i64..4), 1..40)
        ) {
            let mut distribution = Distribution::default();
            let (mut levels, mut versions, mut generations) = ([1u64; 4], BTreeMap::new(), BTreeMap::new());
            for (at, (what, which, generation)) in steps.into_iter().enumerate() {
                let version = at as u64 + 2;
                match what {
                    0 => {
                        let name = format!("o{which}");
                        if generations.insert(name.clone(), generation) != Some(generation) {
                            versions.insert(name, version);
                        }
                        let all = generations.iter().map(|(name, g)| rule(name, *g, "h"));
                        distribution.publish(version, &ConfigSnapshot::of(all));
                    }
                    1 => levels[which] = version,
                    _ => drop(distribution.advance(&Levels::of(levels), &[])),
                }
                let settled = distribution.objects.iter().filter(|(_, p)| p.settled);
                for (key, _) in settled {
                    prop_assert!(levels.iter().all(|l| *l >= versions[&*key.name]), "{key}");
                }
            }
            distribution.advance(&Levels::of([u64::MAX; 4]), &[]);
            prop_assert!(!distribution.is_in_progress());
            prop_assert_eq!(distribution.conditions().count(), generations.len());
        }
    }
}
