//! TLS of listeners, and the client certificate of a Gateway.

use super::{
    certificate,
    conditions::Problem,
    input::{Input, Object},
    listening::Owner,
    reference::{Grants, GroupKind},
    types::{
        ObjectReference,
        gateway::{FrontendTlsConfig, GatewaySpec, GatewayTls, ListenerTls},
    },
};
use crate::{
    model::{Kind, cipher, credential::CA_SUFFIX},
    proto::networking::{ServerTlsSettings, server_tls_settings::TlSmode},
};

const TERMINATE_MODE: &str = "gateway.istio.io/tls-terminate-mode";
const CIPHER_SUITES: &str = "gateway.istio.io/tls-cipher-suites";
const INVALID_TLS: &str = "InvalidCertificateRef";
const NOT_PERMITTED: &str = "RefNotPermitted";
/// Reason of a CA certificate that does not exist or is not valid.
pub const INVALID_CA_REF: &str = "InvalidCACertificateRef";
/// Reason of a kind that cannot hold a CA certificate.
pub const INVALID_CA_KIND: &str = "InvalidCACertificateKind";

/// The frontend settings for a port.
pub fn frontend(tls: Option<&GatewayTls>, port: u32) -> Option<&FrontendTlsConfig> {
    let frontend = tls?.frontend.as_ref()?;
    let of_port = frontend.per_port.iter().find(|p| p.port == port).map(|p| &p.tls);
    Some(of_port.unwrap_or(&frontend.default))
}

/// The TLS settings of a listener, and their problem. Settings with a problem are returned too; the listener decides about
/// them.
pub fn server(
    input: &Input<'_>,
    grants: &Grants,
    owner: &Owner<'_>,
    tls: &ListenerTls,
    frontend: Option<&FrontendTlsConfig>,
    auto_passthrough: bool,
) -> (ServerTlsSettings, Option<Problem>) {
    let mut out = ServerTlsSettings::default();
    match tls.mode.as_deref().unwrap_or("Terminate") {
        "Terminate" => {
            out.set_mode(TlSmode::Simple);
            match tls.options.get(TERMINATE_MODE).map(String::as_str) {
                Some("MUTUAL") => out.set_mode(TlSmode::Mutual),
                Some("OPTIONAL_MUTUAL") => out.set_mode(TlSmode::OptionalMutual),
                Some("ISTIO_SIMPLE") => {
                    out.credential_name = crate::model::credential::BUILTIN.to_string();
                    return (out, None);
                }
                Some("ISTIO_MUTUAL") => {
                    out.set_mode(TlSmode::IstioMutual);
                    return (out, None);
                }
                _ => {}
            }
            if let Err(problem) = certificates(input, grants, owner, &tls.certificate_refs, &mut out) {
                return (out, problem);
            }
            if let Some(Err(problem)) = frontend.map(|f| client_checks(input, grants, owner, tls, f, &mut out)) {
                return (out, Some(problem));
            }
        }
        "Passthrough" if auto_passthrough => out.set_mode(TlSmode::AutoPassthrough),
        _ => out.set_mode(TlSmode::Passthrough),
    }
    if let Some(suites) = tls.options.get(CIPHER_SUITES) {
        for suite in suites.split(',').map(str::trim).filter(|s| cipher::is_known(s)) {
            if !out.cipher_suites.iter().any(|s| s == suite) {
                out.cipher_suites.push(suite.to_string());
            }
        }
    }
    (out, None)
}

/// Sets the names of the certificates. Of two, one valid certificate is enough.
fn certificates(
    input: &Input<'_>,
    grants: &Grants,
    owner: &Owner<'_>,
    references: &[ObjectReference],
    out: &mut ServerTlsSettings,
) -> Result<(), Option<Problem>> {
    if references.len() > 2 {
        return Err(Some(Problem::new(INVALID_TLS, "TLS mode can only support up to 2 server certificates")));
    }
    let mut names = vec![String::new(); references.len()];
    let (mut valid, mut problem) = (0, None);
    for (name, reference) in names.iter_mut().zip(references) {
        match certificate_name(input, grants, owner, reference) {
            Ok(found) => {
                *name = found;
                valid += 1;
            }
            Err(new) => problem = Problem::joined(problem, Some(new)),
        }
    }
    match valid {
        0 => return Err(problem),
        1 => out.credential_name = names.into_iter().next().unwrap_or_default(),
        _ => out.credential_names = names,
    }
    Ok(())
}

/// The credential of a certificate. The permission is checked first, so that a status does not reveal objects in other
/// namespaces.
fn certificate_name(
    input: &Input<'_>,
    grants: &Grants,
    owner: &Owner<'_>,
    reference: &ObjectReference,
) -> Result<String, Problem> {
    let namespace = reference.namespace.as_deref().unwrap_or(owner.namespace);
    let name = &reference.name;
    let secret = GroupKind::of(Kind::Secret);
    if namespace != owner.namespace && !grants.allow((owner.kind, owner.namespace), &secret, namespace, name) {
        let message = format!(
            "certificateRef {name}/{namespace} not accessible to a Gateway in namespace {:?} (missing a ReferenceGrant?)",
            owner.namespace
        );
        return Err(Problem::new(NOT_PERMITTED, message));
    }
    pair(input, reference, namespace, "certificate reference").map_err(|m| Problem::new(INVALID_TLS, m))?;
    Ok(format!("kubernetes-gateway://{namespace}/{name}"))
}

/// Checks the Secret of a reference.
fn pair(input: &Input<'_>, reference: &ObjectReference, namespace: &str, what: &str) -> Result<(), String> {
    let text = reference_text(reference);
    let kind = GroupKind::normalized(reference.group.as_deref(), reference.kind.as_deref(), Kind::Secret);
    if !kind.is(Kind::Secret) {
        return Err(format!("invalid {what} {text}, only secret is allowed"));
    }
    let name = &reference.name;
    let Some(secret) = input.objects.get(Kind::Secret, namespace, name) else {
        return Err(format!("invalid {what} {text}, secret {namespace}/{name} not found"));
    };
    certificate::check_pair(secret).map_err(|e| format!("invalid {what} {text}, {e}"))
}

fn reference_text(reference: &ObjectReference) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}/{}.{}", text(&reference.group), text(&reference.kind), reference.name, text(&reference.namespace))
}

/// Settings for the validation of client certificates.
fn client_checks(
    input: &Input<'_>,
    grants: &Grants,
    owner: &Owner<'_>,
    tls: &ListenerTls,
    frontend: &FrontendTlsConfig,
    out: &mut ServerTlsSettings,
) -> Result<(), Problem> {
    let Some(validation) = frontend.validation.as_ref().filter(|v| !v.ca_certificate_refs.is_empty()) else {
        return Ok(());
    };
    let [reference] = validation.ca_certificate_refs.as_slice() else {
        return Err(Problem::new(INVALID_CA_REF, "only one caCertificateRef is supported"));
    };
    let namespace = reference.namespace.as_deref().unwrap_or(owner.namespace);
    let name = &reference.name;
    let group = reference.group.clone().unwrap_or_default();
    let written = GroupKind { group, kind: reference.kind.clone().unwrap_or_default() };
    let (kind, scheme) = match written.is(Kind::Secret) {
        true => (Kind::Secret, "kubernetes-gateway"),
        false => (Kind::ConfigMap, "configmap"),
    };
    let resource = format!("{name}{CA_SUFFIX}");
    let granted = || grants.allow((owner.kind, owner.namespace), &GroupKind::of(kind), namespace, &resource);
    if namespace != owner.namespace && !granted() {
        let message = format!(
            "caCertificateRef {namespace}/{name} not accessible to a Gateway in namespace {:?} (missing a ReferenceGrant?)",
            owner.namespace
        );
        return Err(Problem::new(NOT_PERMITTED, message));
    }
    let text = reference_text(reference);
    let invalid =
        |what: String| Problem::new(INVALID_CA_REF, format!("invalid CA certificate reference {text}, {what}"));
    if !written.is(kind) {
        let message = format!("invalid CA certificate reference {text}, only secret and configmap are allowed");
        return Err(Problem::new(INVALID_CA_KIND, message));
    }
    let Some(object) = input.objects.get(kind, namespace, name) else {
        let kind = if kind == Kind::Secret { "secret" } else { "configmap" };
        return Err(invalid(format!("{kind} {namespace}/{name} not found")));
    };
    let roots = certificate::roots(object).map_err(&invalid)?;
    if !crate::model::pem::holds_certificate(&roots) {
        return Err(invalid("the bundle is malformed".into()));
    }
    let fallback = validation.mode == "AllowInsecureFallback";
    let (mode, skip) = match tls.options.get(TERMINATE_MODE).map(String::as_str) {
        Some("MUTUAL") => (TlSmode::Mutual, false),
        Some("OPTIONAL_MUTUAL") => (TlSmode::OptionalMutual, false),
        _ if fallback => (TlSmode::OptionalMutual, true),
        _ => (TlSmode::Mutual, false),
    };
    out.set_mode(mode);
    out.insecure_skip_verify = Some(skip);
    out.ca_cert_credential_name = format!("{scheme}://{namespace}/{resource}");
    Ok(())
}

/// The problem of the client certificate that a Gateway presents to backends.
pub fn client_certificate_problem(
    input: &Input<'_>,
    grants: &Grants,
    gateway: &Object<GatewaySpec>,
) -> Option<Problem> {
    let reference = gateway.spec.tls.as_ref()?.backend.as_ref()?.client_certificate_ref.as_ref()?;
    let namespace = reference.namespace.as_deref().unwrap_or(gateway.namespace());
    if let Err(message) = pair(input, reference, namespace, "clientCertificateRef") {
        return Some(Problem::new("InvalidClientCertificateRef", message));
    }
    let from = (Kind::KubernetesGateway, gateway.namespace());
    let permitted = namespace == gateway.namespace()
        || grants.allow(from, &GroupKind::of(Kind::Secret), namespace, &reference.name);
    (!permitted).then(|| {
        let message = format!(
            "clientCertificateRef {}/{namespace} not accessible to a Gateway in namespace {:?} (missing a ReferenceGrant?)",
            reference.name,
            gateway.namespace()
        );
        Problem::new(NOT_PERMITTED, message)
    })
}
