//! Sidecars and Telemetries against workloads and against each other.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    code::Code,
    message::Report,
    words::{first_label, list, not_found, selector},
    world::World,
};
use crate::{
    model::{Kind, Labels},
    proto::mesh::mesh_config::extension_provider::Provider,
};

/// The annotation of a pod in ambient mode.
const REDIRECTION: &str = "ambient.istio.io/redirection";

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    sidecars(world, report);
    telemetries(world, report);
    providers(world, report);
}

/// An object with its selector.
struct Selecting<'a> {
    index: usize,
    namespace: &'a str,
    name: &'a str,
    labels: &'a Labels,
}

/// The codes and words of one kind.
struct Words {
    path: &'static str,
    plural: &'static str,
    same_workload: Code,
    no_selector: Code,
}

fn sidecars(world: &World<'_>, report: &mut Report) {
    let none = Labels::new();
    let all: Vec<Selecting<'_>> = world
        .list(Kind::Sidecar)
        .filter_map(|(index, config)| {
            let labels = config.sidecar()?.workload_selector.as_ref().map_or(&none, |selector| &selector.labels);
            Some(Selecting { index, namespace: &config.meta.namespace, name: &config.meta.name, labels })
        })
        .collect();
    let words = Words {
        path: "spec.workloadSelector.labels",
        plural: "Sidecars",
        same_workload: Code::ConflictingSidecarWorkloadSelectors,
        no_selector: Code::MultipleSidecarsWithoutWorkloadSelectors,
    };
    let ambient = |sidecar: &Selecting<'_>| -> Option<&str> {
        if sidecar.labels.is_empty() {
            let is_ambient = world.namespaces.get(sidecar.namespace).is_some_and(|labels| {
                let injected = labels.get("istio-injection").is_some_and(|value| value == "enabled");
                let revision = labels.get("istio.io/rev").is_some_and(|revision| !revision.is_empty());
                let mode = labels.get("istio.io/dataplane-mode").is_some_and(|mode| mode == "ambient");
                mode && !injected && !revision
            });
            return is_ambient.then_some("namespace is in ambient mode, the policy has no impact");
        }
        let mut workloads = world.selected(sidecar.labels, Some(sidecar.namespace));
        let is_ambient = workloads.any(|w| w.annotations.get(REDIRECTION).is_some_and(|value| value == "enabled"));
        is_ambient.then_some("selected workload is in ambient mode, the policy has no impact")
    };
    let (ineffective, effective): (Vec<_>, Vec<_>) = all.into_iter().partition(|sidecar| ambient(sidecar).is_some());
    for sidecar in &ineffective {
        let why = ambient(sidecar).unwrap_or_default();
        let text = format!("The policy has no impact: {why}.");
        report.add(Code::IneffectivePolicy, sidecar.index, "spec.workloadSelector", text);
    }
    overlaps(world, report, &effective, &words);
}

fn telemetries(world: &World<'_>, report: &mut Report) {
    let none = Labels::new();
    let all: Vec<Selecting<'_>> = world
        .list(Kind::Telemetry)
        .filter_map(|(index, config)| {
            let telemetry = config.telemetry()?;
            let labels = telemetry.selector.as_ref().map_or(&none, |selector| &selector.match_labels);
            let has_targets = telemetry.target_ref.is_some() || !telemetry.target_refs.is_empty();
            let found = Selecting { index, namespace: &config.meta.namespace, name: &config.meta.name, labels };
            (!has_targets).then_some(found)
        })
        .collect();
    let words = Words {
        path: "spec.selector.matchLabels",
        plural: "Telemetries",
        same_workload: Code::ConflictingTelemetryWorkloadSelectors,
        no_selector: Code::MultipleTelemetriesWithoutWorkloadSelectors,
    };
    overlaps(world, report, &all, &words);
}

fn overlaps(world: &World<'_>, report: &mut Report, all: &[Selecting<'_>], words: &Words) {
    let names = |of: &[&Selecting<'_>]| list(of.iter().map(|one| one.name).collect::<BTreeSet<_>>());
    let mut without: BTreeMap<&str, Vec<&Selecting<'_>>> = BTreeMap::new();
    let mut by_workload: BTreeMap<(&str, &str), Vec<&Selecting<'_>>> = BTreeMap::new();
    for one in all {
        if one.labels.is_empty() {
            without.entry(one.namespace).or_default().push(one);
            continue;
        }
        let mut found = false;
        for workload in world.selected(one.labels, Some(one.namespace)) {
            found = true;
            by_workload.entry((workload.namespace, workload.name)).or_default().push(one);
        }
        if !found && world.has_workloads() {
            let text = not_found("selector", &selector(one.labels));
            report.add(Code::ReferencedResourceNotFound, one.index, first_label(words.path, one.labels), text);
        }
    }
    for (namespace, of) in without.iter().filter(|(_, of)| of.len() > 1) {
        for one in of {
            let text = format!(
                "The {} {} in namespace {namespace:?} have no workload selector, which can lead to undefined behavior.",
                words.plural,
                names(of)
            );
            report.add(words.no_selector, one.index, "spec", text);
        }
    }
    let mut told = BTreeSet::new();
    for ((namespace, workload), of) in by_workload.iter().filter(|(_, of)| of.len() > 1) {
        for one in of.iter().filter(|one| told.insert(one.index)) {
            let text = format!(
                "The {} {} in namespace {namespace:?} select the same workload pod {workload:?}, which can lead to undefined \
                 behavior.",
                words.plural,
                names(of)
            );
            report.add(words.same_workload, one.index, words.path, text);
        }
    }
}

fn providers(world: &World<'_>, report: &mut Report) {
    let mesh = &world.mesh().config;
    let has_default = mesh.default_providers.as_ref().is_some_and(|defaults| !defaults.access_logging.is_empty());
    let providers = mesh.extension_providers.iter();
    #[allow(deprecated, reason = "the deprecated provider is what is looked for")]
    let lightstep: BTreeSet<&str> =
        providers.filter(|p| matches!(p.provider, Some(Provider::Lightstep(_)))).map(|p| p.name.as_str()).collect();
    for (index, config) in world.list(Kind::Telemetry) {
        let Some(telemetry) = config.telemetry() else { continue };
        for (i, logging) in telemetry.access_logging.iter().enumerate() {
            let is_off = logging.disabled.unwrap_or_default();
            if !has_default && !is_off && logging.providers.is_empty() {
                let text = format!(
                    "The Telemetry {} in namespace {:?} with empty providers will be ignored.",
                    config.meta.name, config.meta.namespace
                );
                report.add(Code::InvalidTelemetryProvider, index, format!("spec.accessLogging[{i}]"), text);
            }
        }
        for (i, tracing) in telemetry.tracing.iter().enumerate() {
            for (j, provider) in tracing.providers.iter().enumerate() {
                if lightstep.contains(provider.name.as_str()) {
                    let text = format!(
                        "Deprecated: The Lightstep provider {} is deprecated, please migrate to OpenTelemetry provider.",
                        provider.name
                    );
                    let path = format!("spec.tracing[{i}].providers[{j}].name");
                    report.add(Code::Deprecated, index, path, text);
                }
            }
        }
    }
}
