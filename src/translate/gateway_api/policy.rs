//! Policies of backends: BackendTLSPolicy, XBackendTrafficPolicy, and the TLS settings of an XBackend.

use std::sync::Arc;

use super::{
    certificate,
    conditions::{Conditions, Problem},
    input::{Input, Object},
    policy_status,
    reference::GroupKind,
    route,
    types::policy::{
        BackendSpec, BackendTlsPolicySpec, BackendTrafficPolicySpec, BackendValidation, SubjectAltName, TargetReference,
    },
};
use crate::{
    model::{Config, Kind, Labels, Timestamp},
    proto::{
        go_duration,
        networking::{ClientTlsSettings, client_tls_settings::TlSmode, traffic_policy::RetryBudget},
        wkt,
    },
    translate::draft::Output,
};

/// A kind with namespace and name.
pub type NamedObject = (Kind, String, String);

/// The settings of one policy for one host.
#[derive(Debug, Clone)]
pub struct BackendPolicy {
    /// Identity of the policy.
    pub source: NamedObject,
    /// Creation time of the policy.
    pub creation: Timestamp,
    /// Target of the policy.
    pub target: NamedObject,
    /// Host name of the target.
    pub host: String,
    /// Name of the port, if the policy is for one port.
    pub section: Option<String>,
    /// Number of the port, if the policy is for one port.
    pub port: Option<u32>,
    /// TLS settings towards the backend.
    pub tls: Option<ClientTlsSettings>,
    /// Whether to set a load balancer, with all fields at their defaults.
    pub load_balancer: bool,
    /// Retry budget of the backend.
    pub retry_budget: Option<RetryBudget>,
}

const ACCEPTED: &str = "Accepted";
const RESOLVED: &str = "ResolvedRefs";
const VALID: &str = "Configuration is valid";

fn named<T>(kind: Kind, object: &Object<T>) -> NamedObject {
    (kind, object.namespace().to_string(), object.name().to_string())
}

/// Translates all policies and writes their statuses.
pub fn policies(input: &Input<'_>, ancestors: &route::Ancestors, output: &mut Output) -> Vec<BackendPolicy> {
    let mut all = Vec::new();
    input.traffic_policies.iter().for_each(|policy| traffic(input, policy, &mut all, output));
    input.tls_policies.iter().for_each(|policy| tls(input, ancestors, policy, &mut all, output));
    input.backends.iter().for_each(|backend| external(input, ancestors, backend, &mut all, output));
    all
}

fn is_ignored(labels: &Labels) -> bool {
    labels.get("istio.io/ignore-policy-attachment").is_some_and(|v| v.eq_ignore_ascii_case("true"))
}

/// The status of a policy that the user excluded by annotation.
fn ignored(input: &Input<'_>, policy: &Config, targets: &[TargetReference], output: &mut Output) {
    let message = "Ignored by Istio due to annotation istio.io/ignore-policy-attachment=true";
    let mut conditions = Conditions::default();
    conditions.problem(ACCEPTED, Problem::new("IgnoredByIstio", message));
    let mut status = policy_status::Ancestors::of(policy, input.objects.features());
    targets.iter().for_each(|target| status.add_target(target, &conditions));
    output.status(policy.key(), status.status());
}

/// The target of a policy, in the same namespace.
fn referent<'a>(
    input: &Input<'a>,
    group: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<&'a Arc<Config>, String> {
    const KINDS: [Kind; 4] = [Kind::Service, Kind::ServiceEntry, Kind::ConfigMap, Kind::Secret];
    let wanted = GroupKind { group: group.into(), kind: kind.into() };
    let Some(known) = KINDS.into_iter().find(|k| wanted.is(*k)) else { return Err(format!("unsupported kind {kind}")) };
    let found = input.objects.get(known, namespace, name);
    found.ok_or_else(|| format!("reference {namespace}/{name} (of kind {kind}) not found"))
}

fn target_problem(error: &str) -> Problem {
    Problem::new("TargetNotFound", format!("targetRefs invalid: {error}"))
}

/// Host names of a target; an error when it lacks the port named by the policy.
fn hosts_of(input: &Input<'_>, target: &TargetReference, object: &Config) -> Result<Vec<String>, String> {
    let (namespace, name) = (&object.meta.namespace, &object.meta.name);
    let section = target.section_name.as_deref().filter(|s| !s.is_empty());
    let entry = object.service_entry();
    let (kind, hosts, ports): (_, _, Vec<&str>) = if let Some(service) = object.service() {
        let ports = service.spec.iter().flat_map(|s| s.ports.iter().flatten());
        let ports = ports.map(|p| p.name.as_deref().unwrap_or_default()).collect();
        ("Service", vec![format!("{name}.{namespace}.svc.{}", input.domain())], ports)
    } else if let Some(entry) = &entry {
        ("ServiceEntry", entry.hosts.clone(), entry.ports.iter().map(|p| p.name.as_str()).collect())
    } else {
        return Err(format!("unsupported reference kind: {}", target.kind));
    };
    match section.filter(|s| !ports.contains(s)) {
        Some(section) => Err(format!("sectionName {section:?} does not exist in {kind} {namespace}/{name}")),
        None => Ok(hosts),
    }
}

fn tls(
    input: &Input<'_>,
    ancestors: &route::Ancestors,
    policy: &Object<BackendTlsPolicySpec>,
    all: &mut Vec<BackendPolicy>,
    output: &mut Output,
) {
    if is_ignored(&policy.config.meta.annotations) {
        return ignored(input, &policy.config, &policy.spec.target_refs, output);
    }
    let namespace = policy.namespace();
    let mut conditions = Conditions::default().good(ACCEPTED, ACCEPTED, VALID).good(RESOLVED, RESOLVED, VALID);
    let validation = &policy.spec.validation;
    let mut settings = client_tls(validation);
    settings.credential_name = credential_name(input, validation, namespace, &mut conditions);
    let mut status = policy_status::Ancestors::of(&policy.config, input.objects.features());
    let mut gateways = std::collections::BTreeSet::new();
    for target in &policy.spec.target_refs {
        let object = referent(input, &target.group, &target.kind, namespace, &target.name);
        match object.and_then(|o| Ok((o.kind(), hosts_of(input, target, o)?))) {
            Err(error) => conditions.problem(ACCEPTED, target_problem(&error)),
            Ok((kind, hosts)) => {
                let of = (kind, namespace.to_string(), target.name.clone());
                gateways.extend(ancestors.get(&of).into_iter().flatten().cloned());
                match stronger(input, policy, target) {
                    Some(other) => {
                        let message = format!("Conflicts with BackendTLSPolicy {other:?} targeting the same backend");
                        conditions.problem(ACCEPTED, Problem::new("Conflicted", message));
                    }
                    None => all.extend(hosts.into_iter().map(|host| BackendPolicy {
                        source: named(Kind::BackendTLSPolicy, policy),
                        creation: policy.config.meta.creation,
                        target: of.clone(),
                        host,
                        section: target.section_name.clone().filter(|s| !s.is_empty()),
                        port: None,
                        tls: Some(settings.clone()),
                        load_balancer: false,
                        retry_budget: None,
                    })),
                }
            }
        }
        status.add_target(target, &conditions);
    }
    for (_, name) in &gateways {
        status.add_gateway(None, name, &conditions);
    }
    output.status(policy.config.key(), status.status());
}

/// An older policy for the same target; of the same age, the first by name.
fn stronger<'a>(
    input: &'a Input<'_>,
    policy: &Object<BackendTlsPolicySpec>,
    target: &TargetReference,
) -> Option<&'a str> {
    let rank = |p: &Object<BackendTlsPolicySpec>| (p.config.meta.creation, p.config.meta.name.clone());
    let uid = &policy.config.meta.uid;
    let others = input.tls_policies.iter().filter(|other| {
        other.namespace() == policy.namespace()
            && other.name() != policy.name()
            && (uid.is_empty() || other.config.meta.uid != *uid)
            && !is_ignored(&other.config.meta.annotations)
            && other.spec.target_refs.contains(target)
    });
    others.filter(|other| rank(other) < rank(policy)).map(Object::name).next()
}

fn client_tls(validation: &BackendValidation) -> ClientTlsSettings {
    let name = |san: &SubjectAltName| match san.r#type.as_str() {
        "Hostname" => Some(san.hostname.clone()),
        "URI" => Some(san.uri.clone()),
        _ => None,
    };
    let mut settings = ClientTlsSettings {
        sni: validation.hostname.clone(),
        subject_alt_names: validation.subject_alt_names.iter().filter_map(name).collect(),
        ..ClientTlsSettings::default()
    };
    settings.set_mode(TlSmode::Simple);
    settings
}

/// Name of the credential with the CA certificates. A broken reference becomes a credential that is never valid, so that no
/// traffic is sent.
fn credential_name(
    input: &Input<'_>,
    validation: &BackendValidation,
    namespace: &str,
    conditions: &mut Conditions,
) -> String {
    if let Some(known) = &validation.well_known_ca_certificates {
        if known != "System" {
            let message = format!("Unknown wellKnownCACertificates: {known}");
            conditions.problem(ACCEPTED, Problem::new("Invalid", message));
        }
        return String::new();
    }
    let Some(reference) = validation.ca_certificate_refs.first() else { return String::new() };
    if validation.ca_certificate_refs.len() > 1 {
        conditions.reword(ACCEPTED, None, |m| format!("{m}; warning: only the first caCertificateRefs will be used"));
    }
    let (group, kind) = (reference.group.as_deref().unwrap_or_default(), reference.kind.as_deref().unwrap_or_default());
    let found = referent(input, group, kind, namespace, &reference.name);
    let (reason, what, error) = match found {
        Ok(object) if object.kind() == Kind::ConfigMap => match certificate::roots(object) {
            Ok(_) => return format!("configmap://{namespace}/{}", reference.name),
            Err(error) => ("InvalidCACertificateRef", "Certificate invalid", error),
        },
        Ok(_) => ("InvalidKind", "Certificate reference invalid", format!("unsupported reference kind: {kind}")),
        Err(error) if error.contains("unsupported kind") => {
            ("InvalidKind", "Certificate reference not supported", error)
        }
        Err(error) => ("InvalidCACertificateRef", "Certificate reference not found", error),
    };
    conditions.problem(RESOLVED, Problem::new(reason, format!("{what}: {error}")));
    let message = format!("Certificate reference invalid: {error}");
    conditions.problem(ACCEPTED, Problem::new("NoValidCACertificate", message));
    "invalid://".to_string()
}

fn traffic(
    input: &Input<'_>,
    policy: &Object<BackendTrafficPolicySpec>,
    all: &mut Vec<BackendPolicy>,
    output: &mut Output,
) {
    if is_ignored(&policy.config.meta.annotations) {
        return ignored(input, &policy.config, &policy.spec.target_refs, output);
    }
    let message = match policy.spec.session_persistence {
        Some(_) => format!("{VALID}, but Istio does not support the following fields: sessionPersistence"),
        None => VALID.to_string(),
    };
    let mut conditions = Conditions::default().good(ACCEPTED, ACCEPTED, &message);
    let mut status = policy_status::Ancestors::of(&policy.config, input.objects.features());
    for target in &policy.spec.target_refs {
        let target = TargetReference { section_name: None, ..target.clone() };
        let found = referent(input, &target.group, &target.kind, policy.namespace(), &target.name);
        let service = found.and_then(|o| match o.kind() {
            Kind::Service => Ok(()),
            _ => Err(format!("unsupported reference kind: {}", target.kind)),
        });
        match service {
            Err(error) => conditions.problem(ACCEPTED, target_problem(&error)),
            Ok(()) => all.push(BackendPolicy {
                source: named(Kind::XBackendTrafficPolicy, policy),
                creation: policy.config.meta.creation,
                target: (Kind::Service, policy.namespace().to_string(), target.name.clone()),
                host: format!("{}.{}.svc.{}", target.name, policy.namespace(), input.domain()),
                section: None,
                port: None,
                tls: None,
                load_balancer: true,
                retry_budget: retry_budget(&policy.spec),
            }),
        }
        status.add_target(&target, &conditions);
    }
    output.status(policy.config.key(), status.status());
}

/// The retry budget, with Gateway API's defaults of 10 s and 10 retries.
fn retry_budget(spec: &BackendTrafficPolicySpec) -> Option<RetryBudget> {
    let constraint = spec.retry_constraint.as_ref()?;
    let interval = constraint.budget.interval.as_deref().and_then(go_duration);
    let interval = interval.and_then(|d| wkt::Duration::try_from(d).ok());
    Some(RetryBudget {
        percent: constraint.budget.percent.map(f64::from),
        budget_interval: Some(interval.unwrap_or(wkt::Duration { seconds: 10, nanos: 0 })),
        min_retry_concurrency: constraint.min_retry_rate.as_ref().map_or(10, |rate| rate.count.unwrap_or_default()),
    })
}

fn external(
    input: &Input<'_>,
    ancestors: &route::Ancestors,
    backend: &Object<BackendSpec>,
    all: &mut Vec<BackendPolicy>,
    output: &mut Output,
) {
    let mut conditions = Conditions::default().good(ACCEPTED, ACCEPTED, VALID).good(RESOLVED, RESOLVED, VALID);
    let spec = &backend.spec;
    let own = named(Kind::XBackend, backend);
    match spec.external_hostname.as_ref().filter(|_| spec.r#type == "ExternalHostname") {
        None => {
            let message = format!("unsupported backend type: {}", spec.r#type);
            conditions.problem(ACCEPTED, Problem::new("Invalid", message));
        }
        Some(external) => {
            let tls = external_tls(input, backend, &external.hostname, &mut conditions);
            all.extend(tls.map(|tls| BackendPolicy {
                source: own.clone(),
                creation: backend.config.meta.creation,
                target: own.clone(),
                host: external.hostname.clone(),
                section: None,
                port: Some(spec.port.port),
                tls: Some(tls),
                load_balancer: false,
                retry_budget: None,
            }));
        }
    }
    let mut status = policy_status::Ancestors::of_backend(&backend.config, input.objects.features());
    let itself = TargetReference {
        group: Kind::XBackend.group().into(),
        kind: Kind::XBackend.as_str().into(),
        name: backend.name().to_string(),
        section_name: None,
    };
    status.add_target(&itself, &conditions);
    for (namespace, name) in ancestors.get(&own).into_iter().flatten() {
        status.add_gateway(Some(namespace), name, &conditions);
    }
    output.status(backend.config.key(), status.status());
}

fn external_tls(
    input: &Input<'_>,
    backend: &Object<BackendSpec>,
    host: &str,
    conditions: &mut Conditions,
) -> Option<ClientTlsSettings> {
    let tls = backend.spec.tls.as_ref()?;
    let unsupported = match tls.mode.as_str() {
        "ServerOnly" => None,
        "None" => return None,
        "ClientAndServer" => Some(
            "unsupported ClientAndServer TLS mode: Istio does not support client certificates on backend".to_string(),
        ),
        other => Some(format!("unsupported TLS mode: {other:?}")),
    };
    if let Some(message) = unsupported {
        conditions.problem(ACCEPTED, Problem::new("Invalid", message));
        return None;
    }
    let mut settings = client_tls(&tls.validation);
    if settings.sni.is_empty() {
        settings.sni = host.to_string();
    }
    settings.credential_name = credential_name(input, &tls.validation, backend.namespace(), conditions);
    Some(settings)
}
