//! Patches of listeners, listener filters and filter chains (Istio's `listener_patch.go`).

use std::{collections::HashSet, sync::Arc};

use prost::Message;

use super::{Patching, cluster::merge_socket, filters, fitting, is_merge, lists, matching, merge};
use crate::{
    generate::check,
    proto::{
        envoy::config::listener::v3::{FilterChain, Listener, ListenerFilter, listener_filter::ConfigType},
        networking::envoy_filter::{ApplyTo, patch::Operation},
    },
    push::envoy_filters::Patch,
};

/// Listeners and the things in them.
const TARGETS: [ApplyTo; 5] =
    [ApplyTo::Listener, ApplyTo::ListenerFilter, ApplyTo::FilterChain, ApplyTo::NetworkFilter, ApplyTo::HttpFilter];

impl Patching<'_> {
    /// Whether some patch is for listeners or for something in them.
    #[must_use]
    pub fn patches_listeners(&self) -> bool {
        TARGETS.into_iter().any(|target| self.patches(target).next().is_some())
    }

    /// Whether some patch may change this listener.
    fn is_for_listener(&self, listener: &Listener) -> bool {
        let adds = |patch: &Patch| patch.apply_to == ApplyTo::Listener && patch.operation == Operation::Add;
        let is_for = |patch: &Arc<Patch>| !adds(patch) && matching::listener(patch, listener);
        TARGETS.into_iter().any(|target| self.patches(target).any(is_for))
    }

    /// Listeners with their patches, as far as Envoy takes the results, and then those that are added. `is_strict`: filters
    /// behind the last one are refused too, which Envoy does and Istio does not look at.
    #[must_use]
    pub fn listeners(&mut self, listeners: Vec<Listener>, is_strict: bool) -> Vec<Listener> {
        if !self.patches_listeners() {
            return listeners;
        }
        let fit = |listener: &Listener| fit(listener, is_strict);
        let mut all = Vec::with_capacity(listeners.len());
        for listener in listeners {
            if !self.is_for_listener(&listener) {
                all.push(listener);
                continue;
            }
            let name = format!("listener {}", listener.name);
            let own = listener.name.clone();
            let fit = |listener: &Listener| match listener.name == own {
                true => fit(listener),
                false => Err("the name of the listener is another".to_string()),
            };
            all.extend(fitting(self, &name, listener, patched, fit).map(|(listener, _)| listener));
        }
        let mut taken: HashSet<String> = all.iter().map(|listener| listener.name.clone()).collect();
        for patch in additions(self) {
            let listener: Listener = patch.value.as_ref().map(|value| value.decoded()).unwrap_or_default();
            let name = format!("listener {}", listener.name);
            self.begin();
            let result = match fit(&listener) {
                Ok(())
                    if taken.contains(&listener.name) || self.is_of_other_side(ApplyTo::Listener, &listener.name) =>
                {
                    Err("there is a listener of that name".to_string())
                }
                result => result,
            };
            if result.is_ok() {
                taken.insert(listener.name.clone());
                all.push(listener);
            }
            self.done(&patch, &name, result);
            self.keep();
        }
        all
    }
}

fn additions(patching: &Patching<'_>) -> Vec<Arc<Patch>> {
    patching.patches(ApplyTo::Listener).filter(|patch| patching.adds_here(patch)).cloned().collect()
}

/// The patched listeners, whether Envoy takes them or not; with `skip_adds` none is added.
#[must_use]
pub fn all_patched(patching: &Patching<'_>, listeners: Vec<Listener>, skip_adds: bool) -> Vec<Listener> {
    let mut all: Vec<Listener> = listeners.into_iter().filter_map(|listener| patched(patching, listener)).collect();
    if !skip_adds {
        all.extend(additions(patching).iter().filter_map(|patch| Some(patch.value.as_ref()?.decoded::<Listener>())));
    }
    all
}

fn fit(listener: &Listener, is_strict: bool) -> Result<(), String> {
    check::listener_fault(listener).map_or(Ok(()), Err)?;
    if listener.name.is_empty() {
        return Err("the listener has no name".to_string());
    }
    let mut seen = HashSet::new();
    for chain in &listener.filter_chains {
        let condition = chain.filter_chain_match.as_ref().map(Message::encode_to_vec).unwrap_or_default();
        if !seen.insert(condition) {
            return Err("two filter chains match the same connections".to_string());
        }
    }
    let mut names = HashSet::new();
    let mut named = listener.filter_chains.iter().filter(|chain| !chain.name.is_empty());
    if listener.filter_chain_matcher.is_some() && !named.all(|chain| names.insert(&chain.name)) {
        return Err("two filter chains have the same name".to_string());
    }
    if is_strict {
        listener.filter_chains.iter().chain(&listener.default_filter_chain).try_for_each(filters::terminal_last)?;
    }
    Ok(())
}

fn patched(patching: &Patching<'_>, mut listener: Listener) -> Option<Listener> {
    for patch in patching.patches(ApplyTo::Listener) {
        if patch.operation == Operation::Add || !matching::listener(patch, &listener) {
            continue;
        }
        if patch.operation == Operation::Remove {
            patching.applied(patch);
            return None;
        }
        let name = format!("listener {}", listener.name);
        let result = merge::patch(&mut listener, patch);
        patching.done(patch, &name, result);
    }
    listener_filters(patching, &mut listener);
    filter_chains(patching, &mut listener);
    Some(listener)
}

fn listener_filters(patching: &Patching<'_>, listener: &mut Listener) {
    for patch in patching.patches(ApplyTo::ListenerFilter) {
        if !matching::listener(patch, listener) {
            continue;
        }
        let wanted = matching::listener_filter(patch);
        if patch.operation != Operation::Merge {
            let matches = |filter: &ListenerFilter| matching::is_named(wanted, &filter.name);
            lists::change(patching, patch, &mut listener.listener_filters, wanted.is_some(), matches);
        } else if wanted.is_some() {
            let name = format!("listener {}", listener.name);
            let found = listener.listener_filters.iter_mut().filter(|f| matching::is_named(wanted, &f.name));
            found.for_each(|filter| patching.done(patch, &name, merge_listener_filter(filter, patch)));
        }
    }
}

fn merge_listener_filter(filter: &mut ListenerFilter, patch: &Patch) -> Result<(), String> {
    let given: ListenerFilter = patch.value.as_ref().map(|value| value.decoded()).unwrap_or_default();
    let Some(ConfigType::TypedConfig(own)) = &filter.config_type else {
        return Err("the filter has no configuration to merge into".to_string());
    };
    if let Some(ConfigType::TypedConfig(from)) = &given.config_type {
        filter.config_type = Some(ConfigType::TypedConfig(merge::any(own, from)?));
    }
    Ok(())
}

fn filter_chains(patching: &Patching<'_>, listener: &mut Listener) {
    let mut chains = std::mem::take(&mut listener.filter_chains);
    chains.retain_mut(|chain| patch_chain(patching, listener, chain));
    if let Some(mut chain) = listener.default_filter_chain.take() {
        listener.default_filter_chain = patch_chain(patching, listener, &mut chain).then_some(chain);
    }
    for patch in patching.patches(ApplyTo::FilterChain) {
        if patch.operation == Operation::Add && matching::listener(patch, listener) {
            chains.extend(patch.value.as_ref().map(|value| value.decoded::<FilterChain>()));
            patching.applied(patch);
        }
    }
    listener.filter_chains = chains;
}

/// `false` for a chain that is removed.
fn patch_chain(patching: &Patching<'_>, listener: &Listener, chain: &mut FilterChain) -> bool {
    for patch in patching.patches(ApplyTo::FilterChain) {
        let is_for = matching::listener(patch, listener) && matching::filter_chain(patch, listener, chain);
        if !is_for || patch.operation == Operation::Add {
            continue;
        }
        if patch.operation == Operation::Remove {
            patching.applied(patch);
            return false;
        }
        if is_merge(patch.operation) {
            let name = format!("filter chain {} of listener {}", chain.name, listener.name);
            patching.done(patch, &name, merge_chain(chain, patch));
        }
    }
    filters::network(patching, listener, chain);
    true
}

/// A transport socket of the same name is merged deeply, and then nothing else is merged, as in Istio.
fn merge_chain(chain: &mut FilterChain, patch: &Patch) -> Result<(), String> {
    let value = patch.value.as_ref().filter(|value| value.has_socket);
    let given = value.and_then(|value| value.decoded::<FilterChain>().transport_socket);
    match (given, chain.transport_socket.as_mut()) {
        (Some(given), Some(own)) if own.name == given.name => merge_socket(own, &given),
        _ => merge::patch(chain, patch),
    }
}
