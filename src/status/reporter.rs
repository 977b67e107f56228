//! The core of the reporter: what has moved since it last looked, and what it says about every object now.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{
    addresses::Claims,
    desired,
    distribution::{Distribution, Levels},
};
use crate::{
    model::{Config, ConfigKey, Kind},
    push::PushContext,
};

/// What is known of all statuses.
#[derive(Debug, Default)]
pub struct Reporter {
    distribution: Distribution,
    claims: Claims,
    entries: Option<Arc<Vec<Arc<Config>>>>,
    context: Option<Arc<PushContext>>,
}

impl Reporter {
    /// Looks at the publication in force, of this number. `levels` is asked while something has not reached all proxies.
    /// Gives whether any status may be another one.
    pub fn look(&mut self, version: u64, context: &Arc<PushContext>, levels: impl FnOnce() -> Levels) -> bool {
        let moved = !self.context.as_ref().is_some_and(|c| Arc::ptr_eq(c, context));
        let mut changed = false;
        if moved {
            changed |= self.distribution.publish(version, &context.inputs.configs);
            changed |= self.allocate(context);
            changed |= !self.context.as_ref().is_some_and(|c| Arc::ptr_eq(&c.translation, &context.translation));
            self.context = Some(context.clone());
        }
        if self.distribution.is_in_progress() {
            changed |= self.distribution.advance(&levels());
        }
        changed
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
            self.claims.look(list.map_or(&[], |l| l.as_slice()), is_of_cluster);
            self.entries = list.cloned();
        }
        !same
    }

    /// The context that was looked at last.
    #[must_use]
    pub fn context(&self) -> Option<&Arc<PushContext>> {
        self.context.as_ref()
    }

    /// Every status, without transition times.
    #[must_use]
    pub fn statuses(&self) -> BTreeMap<ConfigKey, Value> {
        self.context.as_ref().map(|c| desired::statuses(c, &self.distribution, &self.claims)).unwrap_or_default()
    }

    /// Every object that has a status, in the order of kind, namespace and name.
    #[must_use]
    pub fn rows(&self) -> Vec<Value> {
        let Some(context) = &self.context else { return Vec::new() };
        let statuses = self.statuses();
        let objects = desired::objects(&context.inputs.configs, &statuses);
        let row = |(key, config): (ConfigKey, &Config)| Some(desired::shown(config, statuses.get(&key)?, None));
        objects.into_iter().filter_map(row).collect()
    }
}

/// Whether an object stands in the cluster whose configuration is read.
#[must_use]
pub fn is_of_cluster(config: &Config) -> bool {
    config.origin.source.starts_with("kube:") && config.is_of_main_cluster()
}
