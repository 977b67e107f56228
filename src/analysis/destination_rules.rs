//! DestinationRules: hosts and subsets that lead nowhere, subsets without use, TLS without a CA, credentials.

use std::collections::BTreeSet;

use super::{code::Code, gateways::secrets_of, message::Report, routes::selects_something, world::World};
use crate::{
    model::{Config, Kind, Labels, Resolution, host},
    proto::networking::{ClientTlsSettings, DestinationRule, client_tls_settings::TlSmode},
};

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    for (index, config) in world.list(Kind::DestinationRule) {
        let Some(rule) = config.destination_rule() else { continue };
        host_and_subsets(world, report, (index, config), rule);
        certificates(world, report, (index, config), rule);
    }
}

fn host_and_subsets(world: &World<'_>, report: &mut Report, (index, config): (usize, &Config), rule: &DestinationRule) {
    let own = &*config.meta.namespace;
    let full = world.full_host(&rule.host, own);
    let readers = world.readers(&rule.export_to, own);
    let Some(service) = world.service(&full, &readers) else {
        let covers_one = || world.context.inputs.registry.services.iter().any(|s| host::matches(&full, &s.hostname));
        if world.may_judge_host(&full) && !(host::is_wildcard(&full) && covers_one()) {
            let text = format!(
                "The host {} defined in the DestinationRule does not match any services in the mesh.",
                rule.host
            );
            report.add(Code::UnknownDestinationRuleHost, index, "spec.host", text);
        }
        return;
    };
    let named = world.routed_subsets(&full);
    for (i, subset) in rule.subsets.iter().enumerate() {
        let path = format!("spec.subsets[{i}]");
        let judged = service.resolution == Resolution::ClientSideLB && service.external_name.is_empty();
        // A subset that routes to the host pass over gets no request.
        let is_used = named.is_none_or(|named| named.contains(subset.name.as_str()));
        if judged && is_used && selects_something(world, service, &subset.labels) == Some(false) {
            let text = format!(
                "The Subset {} defined in the DestinationRule does not select any pods. Which may lead to 503 UH \
                 (NoHealthyUpstream).",
                subset.name
            );
            report.add(Code::DestinationRuleSubsetNotSelectPods, index, format!("{path}.labels"), text);
        }
        if !is_used {
            let text = format!("No route names the subset {:?} of host {:?}.", subset.name, rule.host);
            report.add(Code::SubsetUnused, index, format!("{path}.name"), text);
        }
    }
}

fn certificates(world: &World<'_>, report: &mut Report, (index, config): (usize, &Config), rule: &DestinationRule) {
    let Some(policy) = &rule.traffic_policy else { return };
    let name = format!("{}/{}", config.meta.namespace, config.meta.name);
    let start = |mode: TlSmode| {
        format!(
            "DestinationRule {name} in namespace {} has TLS mode set to {} but no caCertificates are set to validate server \
             identity for host: {}",
            config.meta.namespace,
            mode.as_str_name(),
            rule.host
        )
    };
    let unverified = |tls: &ClientTlsSettings| {
        let by_secret = !tls.credential_name.is_empty() && rule.workload_selector.is_some();
        let is_tls = matches!(tls.mode(), TlSmode::Simple | TlSmode::Mutual);
        is_tls && tls.ca_certificates.is_empty() && !by_secret
    };
    if let Some(tls) = &policy.tls {
        let path = "spec.trafficPolicy.tls";
        if unverified(tls) {
            let code = Code::NoServerCertificateVerificationDestinationLevel;
            report.add(code, index, format!("{path}.caCertificates"), start(tls.mode()));
        }
        credential(world, report, (index, rule), path, tls);
    }
    for (i, port) in policy.port_level_settings.iter().enumerate() {
        let Some(tls) = &port.tls else { continue };
        let path = format!("spec.trafficPolicy.portLevelSettings[{i}].tls");
        if unverified(tls) {
            let number = port.port.as_ref().map_or(0, |port| port.number);
            let text = format!("{} at port number:{number}", start(tls.mode()));
            let code = Code::NoServerCertificateVerificationPortLevel;
            report.add(code, index, format!("{path}.caCertificates"), text);
        }
        credential(world, report, (index, rule), &path, tls);
    }
}

/// The credential of a rule is that of the workloads that its selector takes, so it is in their namespace.
fn credential(
    world: &World<'_>,
    report: &mut Report,
    (index, rule): (usize, &DestinationRule),
    path: &str,
    tls: &ClientTlsSettings,
) {
    let name = tls.credential_name.as_str();
    if name.is_empty() || !world.has(Kind::Secret) || name.starts_with("configmap://") || name.starts_with("builtin://")
    {
        return;
    }
    let none = Labels::new();
    let selector = rule.workload_selector.as_ref().map_or(&none, |selector| &selector.match_labels);
    let workloads = world.selected(selector, None).filter(|w| !selector.is_empty() && !w.is_assumed);
    let namespaces: BTreeSet<&str> = workloads.map(|workload| workload.namespace).collect();
    if secrets_of(world, name, &namespaces).is_empty() {
        let text = format!("The credential {name:?} of the DestinationRule is not found.");
        report.add(Code::CredentialNotUsable, index, format!("{path}.credentialName"), text);
    }
}
