//! Policies against the workloads, namespaces and Gateways that they name.

use super::{
    code::Code,
    message::Report,
    words::{first_label, not_found, selector},
    world::World,
};
use crate::{
    model::{Config, Kind, Labels, PolicyTargets, Spec, labels},
    proto::istio::{
        security::v1beta1::{AuthorizationPolicy, authorization_policy::ActionDetail},
        r#type::v1beta1::PolicyTargetReference,
    },
};

/// The label of the workloads of a Gateway of the Gateway API.
const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    for (index, object) in world.objects.iter().enumerate() {
        let Some(config) = object.config().filter(|config| config.is_of_main_cluster()) else { continue };
        if let Some((path, labels)) = labels_of(config) {
            // Telemetries have Istio's other message.
            if config.kind() != Kind::Telemetry {
                selects_workloads(world, report, (index, config), path, labels);
            }
            selects_no_gateway(world, report, (index, config), path, labels);
        } else if config.kind() == Kind::AuthorizationPolicy {
            has_workloads(world, report, (index, config));
        }
        if let Some(policy) = config.authorization_policy() {
            names_namespaces(world, report, index, policy);
        }
        targets_exist(world, report, (index, config));
        providers_exist(world, report, (index, config));
    }
    keys_are_fetched_safely(world, report);
}

/// The labels by which a policy selects, with the path of their field; `None` for a policy without them.
fn labels_of(config: &Config) -> Option<(&'static str, &Labels)> {
    const SELECTOR: &str = "spec.selector.matchLabels";
    let of_selector = match &config.spec {
        Spec::AuthorizationPolicy(policy) => policy.selector.as_ref(),
        Spec::RequestAuthentication(policy) => policy.selector.as_ref(),
        Spec::PeerAuthentication(policy) => policy.selector.as_ref(),
        Spec::ProxyConfig(policy) => policy.selector.as_ref(),
        Spec::WasmPlugin(plugin) => plugin.selector.as_ref(),
        Spec::Telemetry(telemetry) => telemetry.selector.as_ref(),
        Spec::TrafficExtension(extension) => extension.selector.as_ref(),
        Spec::DestinationRule(rule) => {
            let selector = rule.workload_selector.as_ref()?;
            return Some(("spec.workloadSelector.matchLabels", &selector.match_labels));
        }
        Spec::EnvoyFilter(filter) => {
            return Some(("spec.workloadSelector.labels", &filter.workload_selector.as_ref()?.labels));
        }
        _ => return None,
    };
    Some((SELECTOR, &of_selector?.match_labels)).filter(|(_, labels)| !labels.is_empty())
}

/// The namespace whose workloads a policy is for; `None` for the whole mesh.
fn scope<'a>(world: &World<'_>, config: &'a Config) -> Option<&'a str> {
    (*config.meta.namespace != *world.mesh().config.root_namespace).then_some(&*config.meta.namespace)
}

fn no_workloads(labels: &str) -> String {
    format!("No matching workloads for this resource with the following labels: {labels}")
}

fn selects_workloads(
    world: &World<'_>,
    report: &mut Report,
    (index, config): (usize, &Config),
    path: &str,
    labels: &Labels,
) {
    let is_found = world.selected(labels, scope(world, config)).next().is_some();
    if world.has_workloads() && !is_found {
        let path = first_label(path, labels);
        report.add(Code::NoMatchingWorkloadsFound, index, path, no_workloads(&selector(labels)));
    }
}

fn has_workloads(world: &World<'_>, report: &mut Report, (index, config): (usize, &Config)) {
    let targets = PolicyTargets::of(config).is_some_and(|targets| !targets.references.is_empty());
    let Some(namespace) = scope(world, config).filter(|_| !targets && world.has_workloads()) else { return };
    if !world.workloads.iter().any(|workload| workload.namespace == namespace) {
        report.add(Code::NoMatchingWorkloadsFound, index, "metadata.namespace", no_workloads(""));
    }
}

fn selects_no_gateway(
    world: &World<'_>,
    report: &mut Report,
    (index, config): (usize, &Config),
    path: &str,
    labels: &Labels,
) {
    let by_reference = matches!(
        config.kind(),
        Kind::AuthorizationPolicy | Kind::RequestAuthentication | Kind::WasmPlugin | Kind::Telemetry
    );
    if !by_reference || !references(config).1.is_empty() {
        return;
    }
    for workload in world.workloads.iter().filter(|w| *w.namespace == *config.meta.namespace) {
        let Some(gateway) = workload.labels.get(GATEWAY_NAME) else { continue };
        if labels::matches(labels, &*workload.labels) {
            let text =
                format!("Ineffective selector on Kubernetes Gateway {gateway}. Use the TargetRef field instead.");
            report.add(Code::IneffectiveSelector, index, path, text);
        }
    }
}

fn names_namespaces(world: &World<'_>, report: &mut Report, index: usize, policy: &AuthorizationPolicy) {
    if world.namespaces.is_empty() {
        return;
    }
    for (i, rule) in policy.rules.iter().enumerate() {
        for (j, source) in rule.from.iter().enumerate().filter_map(|(j, from)| Some((j, from.source.as_ref()?))) {
            for (field, list) in [("namespaces", &source.namespaces), ("notNamespaces", &source.not_namespaces)] {
                for (k, pattern) in list.iter().enumerate() {
                    if !world.knows_namespace(|namespace| fits(pattern, namespace)) {
                        let path = format!("spec.rules[{i}].from[{j}].source.{field}[{k}]");
                        report.add(Code::ReferencedResourceNotFound, index, path, not_found("namespace", pattern));
                    }
                }
            }
        }
    }
}

/// Whether a namespace fits a pattern with a `*` at one end.
fn fits(pattern: &str, namespace: &str) -> bool {
    if let Some(end) = pattern.strip_prefix('*') {
        return namespace.ends_with(end);
    }
    match pattern.strip_suffix('*') {
        Some(start) => namespace.starts_with(start),
        None => namespace.eq_ignore_ascii_case(pattern),
    }
}

/// The references of a policy to the objects that it is for, with the name of their field.
fn references(config: &Config) -> (&'static str, Vec<&PolicyTargetReference>) {
    let (single, list) = match &config.spec {
        Spec::AuthorizationPolicy(policy) => (&policy.target_ref, &policy.target_refs),
        Spec::RequestAuthentication(policy) => (&policy.target_ref, &policy.target_refs),
        Spec::WasmPlugin(plugin) => (&plugin.target_ref, &plugin.target_refs),
        Spec::Telemetry(telemetry) => (&telemetry.target_ref, &telemetry.target_refs),
        _ => return ("", Vec::new()),
    };
    if list.is_empty() { ("targetRef", single.iter().collect()) } else { ("targetRefs", list.iter().collect()) }
}

fn targets_exist(world: &World<'_>, report: &mut Report, (index, config): (usize, &Config)) {
    let (field, references) = references(config);
    for (i, reference) in references.into_iter().enumerate() {
        let kind = match (reference.group.as_str(), reference.kind.as_str()) {
            ("gateway.networking.k8s.io", "Gateway") => Kind::KubernetesGateway,
            ("networking.istio.io", "ServiceEntry") => Kind::ServiceEntry,
            ("" | "core", "Service") => Kind::Service,
            _ => continue,
        };
        let namespace =
            if reference.namespace.is_empty() { &*config.meta.namespace } else { reference.namespace.as_str() };
        if world.has(kind) && world.find(kind, namespace, &reference.name).is_none() {
            let at =
                if field == "targetRefs" { format!("spec.{field}[{i}].name") } else { format!("spec.{field}.name") };
            let named = format!("{}/{}", reference.kind, reference.name);
            report.add(Code::ReferencedResourceNotFound, index, at, not_found(field, &named));
        }
    }
}

/// Providers that every mesh has; where the mesh config brings no others along, it may not be the real one.
const BUILT_IN: [&str; 3] = ["prometheus", "stackdriver", "envoy"];

/// The providers that an object names, each with the path of its field.
fn named_providers(config: &Config) -> Vec<(String, &str)> {
    match &config.spec {
        Spec::AuthorizationPolicy(policy) => match &policy.action_detail {
            Some(ActionDetail::Provider(provider)) => vec![("spec.provider.name".to_string(), &provider.name)],
            None => Vec::new(),
        },
        Spec::Telemetry(telemetry) => {
            let tracing = telemetry.tracing.iter().map(|one| &one.providers).enumerate();
            let metrics = telemetry.metrics.iter().map(|one| &one.providers).enumerate();
            let logging = telemetry.access_logging.iter().map(|one| &one.providers).enumerate();
            let all = tracing
                .map(|(i, list)| ("tracing", i, list))
                .chain(metrics.map(|(i, list)| ("metrics", i, list)))
                .chain(logging.map(|(i, list)| ("accessLogging", i, list)));
            let named = all.flat_map(|(field, i, list)| {
                let path = move |j: usize| format!("spec.{field}[{i}].providers[{j}].name");
                list.iter().enumerate().map(move |(j, provider)| (path(j), provider.name.as_str()))
            });
            named.collect()
        }
        _ => Vec::new(),
    }
}

fn providers_exist(world: &World<'_>, report: &mut Report, (index, config): (usize, &Config)) {
    let known: Vec<&str> = world.mesh().config.extension_providers.iter().map(|p| p.name.as_str()).collect();
    if known.iter().all(|name| BUILT_IN.contains(name)) {
        return;
    }
    for (path, name) in named_providers(config).into_iter().filter(|(_, name)| !known.contains(name)) {
        report.add(Code::ReferencedResourceNotFound, index, path, not_found("provider", name));
    }
}

fn keys_are_fetched_safely(world: &World<'_>, report: &mut Report) {
    const MOST: usize = 5;
    let names: Vec<String> =
        world.list(Kind::RequestAuthentication).map(|(_, c)| format!("{}/{}", c.meta.namespace, c.meta.name)).collect();
    if names.is_empty() {
        return;
    }
    for (index, object) in world.unread("apps", "Deployment") {
        if object.labels().get("app").is_none_or(|app| app != "istiod") {
            continue;
        }
        let containers = object.pointer("/spec/template/spec/containers").and_then(|c| c.as_array());
        let limited = containers.into_iter().flatten().flat_map(|c| c.get("env").and_then(|e| e.as_array())).flatten();
        let is_set = |env: &serde_json::Value| {
            let text = |key: &str| env.get(key).and_then(|v| v.as_str()).unwrap_or_default();
            text("name") == "BLOCKED_CIDRS_IN_JWKS_URIS" && !text("value").is_empty()
        };
        if limited.into_iter().any(is_set) {
            continue;
        }
        let more = names.len().saturating_sub(MOST);
        let mut shown = names.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
        if more > 0 {
            shown.push_str(&format!(", and {more} more"));
        }
        let text = format!(
            "BLOCKED_CIDRS_IN_JWKS_URIS is not configured but {} RequestAuthentication resource(s) exist ({shown}). Consider \
             configuring it to restrict JWKS URI fetches to trusted networks.",
            names.len()
        );
        report.add(Code::JwksUriFetchUnrestricted, index, "spec.template.spec.containers", text);
    }
}
