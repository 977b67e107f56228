//! The core of the reporter: the changes since its last look, and the current status of every object.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use serde_json::Value;

use super::{
    addresses::{AddressClaims, Ranges},
    analysis::{self, Analysis},
    desired::{self, LeftOut, Messages, Omitted},
    distribution::{Distribution, Levels},
    plan::{Failure, Job, Plan, WriteOutcome},
    report::Report,
};
use crate::{
    model::{Config, ConfigKey, ConfigSnapshot, Kind, kind::KindClass},
    push::PushContext,
};

/// The state of all statuses: distribution, addresses, and pending writes.
#[derive(Debug, Default)]
pub struct Reporter {
    distribution: Distribution,
    claims: AddressClaims,
    entries: Option<Arc<Vec<Arc<Config>>>>,
    context: Option<Arc<PushContext>>,
    left_out: LeftOut,
    left_out_version: Option<u64>,
    analysis: Analysis,
    plan: Plan,
    /// Whether anything has changed since the last plan.
    moved: bool,
}

impl Reporter {
    /// Examines the publication in force, of this number. `levels` is called while something has not reached all proxies;
    /// `peers` are the reports of other processes. Returns whether any status may have changed.
    pub fn look(
        &mut self,
        version: u64,
        context: &Arc<PushContext>,
        levels: impl FnOnce() -> Levels,
        peers: &[Report],
    ) -> bool {
        let moved = !self.context.as_ref().is_some_and(|c| Arc::ptr_eq(c, context));
        let mut changed = false;
        if moved {
            changed |= self.distribution.publish(version, &context.inputs.configs);
            changed |= self.allocate(context);
            changed |= !self.context.as_ref().is_some_and(|c| same_objects(c, context));
            self.context = Some(context.clone());
        }
        if self.distribution.is_in_progress() {
            changed |= self.distribution.advance(&levels(), peers);
        }
        self.moved |= changed;
        changed
    }

    /// Takes in the parts of objects that proxies are not sent: those found here, if they changed since `version`, and complaints.
    pub fn left_out(&mut self, version: u64, found: impl FnOnce() -> Omitted, complaints: Messages) {
        let known = self.left_out_version == Some(version);
        let found = if known { std::mem::take(&mut self.left_out.found) } else { found() };
        self.left_out_version = Some(version);
        let now = LeftOut { found, complaints };
        self.moved |= !known || now.complaints != self.left_out.complaints;
        self.left_out = now;
    }

    /// Takes in the messages of an analysis.
    pub fn analysed(&mut self, analysis: Analysis) {
        self.moved |= analysis != self.analysis;
        self.analysis = analysis;
    }

    /// Addresses are for entries of a cluster, where they can be written: one that no registry ever reads is none.
    fn allocate(&mut self, context: &PushContext) -> bool {
        if !context.features().enable_ip_autoallocate {
            return false;
        }
        let list = context.inputs.configs.by_kind.get(&Kind::ServiceEntry);
        let same = match (&self.entries, list) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (None, None) => true,
            _ => false,
        };
        if !same {
            let ranges = Ranges::of(context.features());
            self.claims.look(list.map_or(&[], |l| l.as_slice()), &ranges, is_of_cluster);
            self.entries = list.cloned();
        }
        !same
    }

    /// Marks everything for comparison with the cluster again, because this process begins to lead.
    pub fn begin_term(&mut self) {
        self.plan.forget();
        self.distribution.reopen();
    }

    /// The report of this process on its connected proxies and on the history it has received; and whether it counts.
    #[must_use]
    pub fn report(&self, proxies: usize, stored: &ConfigSnapshot) -> (Report, bool) {
        (self.distribution.report(proxies, stored), self.distribution.is_in_progress())
    }

    /// The next statuses to write, at most `limit`; none while nothing has changed and nothing waits.
    pub fn due(&mut self, now: Instant, limit: usize) -> Vec<Job> {
        let Some(context) = self.context.clone().filter(|_| self.moved || self.plan.is_waiting()) else {
            return Vec::new();
        };
        self.moved = false;
        let features = context.features();
        let statuses = self.statuses().into_iter();
        let statuses =
            statuses.filter_map(|(key, s)| Some((key.clone(), desired::written(&key, s, features)?))).collect();
        let objects = desired::objects(&context.inputs.configs, &statuses);
        let objects = objects.into_iter().filter(|(_, c)| is_of_cluster(c)).map(|(k, c)| (k, c.clone())).collect();
        self.plan.due(now, &statuses, &objects, limit)
    }

    /// Records the outcomes of writes. Returns the failures that are new.
    pub fn done(&mut self, now: Instant, outcomes: Vec<(Job, WriteOutcome)>) -> Vec<Failure> {
        outcomes.into_iter().filter_map(|(job, outcome)| self.plan.done(now, &job, outcome)).collect()
    }

    /// The last write that failed.
    #[must_use]
    pub const fn last_failure(&self) -> Option<&Failure> {
        self.plan.last_failure()
    }

    /// The numbers of writes that succeeded and that failed, so far.
    #[must_use]
    pub const fn counts(&self) -> (u64, u64) {
        self.plan.counts()
    }

    /// Every status, without transition times.
    #[must_use]
    pub fn statuses(&self) -> BTreeMap<ConfigKey, Value> {
        let Some(context) = &self.context else { return BTreeMap::new() };
        let mut statuses = desired::statuses(context, &self.distribution, &self.claims, &self.left_out);
        if context.features().enable_analysis {
            analysis::add_to(&mut statuses, &self.analysis, &context.inputs.configs);
        }
        statuses
    }

    /// Every object that has a status or findings of the translation, in the order of kind, namespace and name.
    #[must_use]
    pub fn rows(&self) -> Vec<Value> {
        let Some(context) = &self.context else { return Vec::new() };
        let mut statuses = self.statuses();
        let reports = desired::reports(context, &self.left_out);
        for key in reports.keys().filter(|key| !statuses.contains_key(key)).cloned().collect::<Vec<_>>() {
            statuses.insert(key, Value::Null);
        }
        let objects = desired::objects(&context.inputs.configs, &statuses);
        let row = |(key, config): (ConfigKey, &Arc<Config>)| {
            Some(desired::shown(config, statuses.get(&key)?, reports.get(&key), self.plan.state(config)))
        };
        objects.into_iter().filter_map(row).collect()
    }
}

/// Whether the objects with a status, and their translations, are unchanged.
fn same_objects(old: &PushContext, new: &PushContext) -> bool {
    let (a, b) = (&old.inputs.configs.by_kind, &new.inputs.configs.by_kind);
    let has_status =
        |kind: &&Kind| matches!(kind.class(), KindClass::Istio | KindClass::GatewayApi) || **kind == Kind::Ingress;
    let same = |kind: &Kind| match (a.get(kind), b.get(kind)) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    };
    Kind::ALL.iter().filter(has_status).all(same)
        && (Arc::ptr_eq(&old.translation, &new.translation) || old.translation.statuses == new.translation.statuses)
}

/// Whether an object is in the cluster whose configuration is read.
#[must_use]
pub fn is_of_cluster(config: &Config) -> bool {
    config.origin.source.starts_with("kube:") && config.is_of_main_cluster()
}
