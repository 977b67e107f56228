//! Secrets over SDS: certificates, keys and CA certificates out of Kubernetes Secret and ConfigMap objects.
//!
//! Owns the authorization of secrets and the form in which they are sent (Istio's `SecretGen`). A proxy gets only secrets of
//! the namespace that it *proved* to be of, or those that its own gateway configuration grants it; material that cannot work
//! is refused by name and never sent. A stock Envoy that proved its identity over TLS is sent the certificate that was issued
//! for it under `default`, and the roots under `ROOTCA`. Results belong to one identity and must not be shared across
//! identities. Nothing here looks at the clock: an expired certificate is sent like any other, and the proxy reports it.

mod material;
mod names;
mod store;
#[cfg(test)]
mod tests;

use bytes::Bytes;

pub use self::names::names;
use self::{
    material::Material,
    store::{Access, Store},
};
use crate::{
    generate::{sds, trust_bundle},
    model::{Credential, CredentialKind, Identity, SecretReader},
    proto::envoy::{
        config::core::v3::{DataSource, data_source::Specifier},
        extensions::transport_sockets::tls::v3::{CertificateValidationContext, Secret, TlsCertificate, secret::Type},
    },
    push::{ProxyView, PushContext},
};

/// The answer to a proxy's request for secrets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Secrets {
    /// The secrets, in the order of the names.
    pub resources: Vec<Secret>,
    /// Names without a resource, each with the reason.
    pub refused: Vec<RefusedSecret>,
}

/// A secret that is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSecret {
    /// Resource name as requested.
    pub name: String,
    /// The reason.
    pub reason: String,
}

/// The secrets of these names for a proxy that proved this identity. Without an identity nothing is sent.
///
/// `kubernetes://` names have to be of the identity's namespace; `kubernetes-gateway://` names have to be referred to by a
/// Gateway that trusts the identity; CA bundles in ConfigMaps are public. Secrets are looked up in the proxy's cluster, then
/// in the main one; those of a cluster go to identities that the proxy's cluster lets list the Secrets of their namespace.
#[must_use]
pub fn secrets(context: &PushContext, view: &ProxyView, names: &[String], identity: Option<&Identity>) -> Secrets {
    let mut out = Secrets::default();
    let Some(identity) = identity else {
        out.refused.extend(names.iter().map(|name| RefusedSecret {
            name: name.clone(),
            reason: "secrets are sent only to clients that proved their identity".to_string(),
        }));
        return out;
    };
    let wanted: Vec<(&String, Option<Credential>)> =
        names.iter().map(|n| (n, Credential::parse(n, &identity.namespace))).collect();
    // Only a proven identity is asked about: on loopback the operator decided that the word of the node does.
    let reader = SecretReader { identity: identity.clone(), cluster: view.cluster_id.clone() };
    let access = Access(view.is_proven.then_some((&*context.inputs.secret_access, &reader)));
    let store = Store::of(context, &view.cluster_id, access, wanted.iter().filter_map(|(_, c)| c.as_ref()));
    let verified = match context.merged_gateway(view) {
        Some(merged) if view.is_router() => merged.verified_references(identity, &context.translation),
        _ => Default::default(),
    };
    for (name, credential) in wanted {
        if matches!(&**name, sds::DEFAULT | sds::ROOT_CA) {
            match workload(context, view, name, identity) {
                Some(secret) => out.resources.push(secret),
                None => out.refused.push(RefusedSecret { name: name.clone(), reason: not_issued(view).to_string() }),
            }
            continue;
        }
        let secret = credential.ok_or_else(|| "no such type of secret".to_string()).and_then(|credential| {
            authorize(&credential, identity, verified.contains(&**name))?;
            secret(&credential, &store)
        });
        match secret {
            Ok(secret) => out.resources.push(secret),
            Err(reason) => out.refused.push(RefusedSecret { name: name.clone(), reason }),
        }
    }
    out
}

/// The credentials of a registry, from a Secret of this namespace, for the agent of a proxy that proved an identity.
///
/// # Errors
/// The reason why the agent is not sent them.
pub(crate) fn pull_secret(
    context: &PushContext,
    view: &ProxyView,
    namespace: &str,
    name: &str,
    identity: Option<&Identity>,
) -> Result<String, String> {
    let identity = identity.ok_or("secrets are sent only to clients that proved their identity")?;
    // The extension's own namespace counts, whatever the name says.
    let name = name.rsplit('/').next().unwrap_or(name);
    let credential =
        Credential::parse(&format!("kubernetes://{namespace}/{name}"), namespace).ok_or("no name of a secret")?;
    let reader = SecretReader { identity: identity.clone(), cluster: view.cluster_id.clone() };
    let access = Access(view.is_proven.then_some((&*context.inputs.secret_access, &reader)));
    Store::of(context, &view.cluster_id, access, std::iter::once(&credential)).registry(&credential)
}

/// The reason that a client has no workload certificate from here.
fn not_issued(view: &ProxyView) -> &'static str {
    match sds::Holder::of(view) {
        sds::Holder::Agent => "an Istio proxy has the workload certificate from its agent",
        sds::Holder::Socket => "the workload certificate comes from the socket that the node names",
        _ => "workload certificates are issued to clients that proved their identity over TLS",
    }
}

/// The workload's own certificate, or the roots of the mesh, for a client that proved the identity.
fn workload(context: &PushContext, view: &ProxyView, name: &str, identity: &Identity) -> Option<Secret> {
    let certificates = &context.inputs.certificates;
    let own = certificates.by_identity.get(identity).filter(|_| view.certified)?;
    let content = if name == sds::ROOT_CA {
        Type::ValidationContext(CertificateValidationContext {
            trusted_ca: Some(inline(trust_bundle::roots(context))),
            crl: Some(certificates.revoked.clone()).filter(|list| !list.is_empty()).map(inline),
            ..CertificateValidationContext::default()
        })
    } else {
        Type::TlsCertificate(TlsCertificate {
            certificate_chain: Some(inline(own.chain.clone())),
            private_key: Some(inline(own.key.clone())),
            ..TlsCertificate::default()
        })
    };
    Some(Secret { name: name.to_string(), r#type: Some(content) })
}

fn authorize(credential: &Credential, identity: &Identity, verified: bool) -> Result<(), String> {
    match credential.kind {
        CredentialKind::ConfigMap => Ok(()),
        CredentialKind::Secret if credential.namespace == identity.namespace => Ok(()),
        CredentialKind::Secret => Err(format!("{identity} may not read secrets of namespace {}", credential.namespace)),
        CredentialKind::GatewaySecret if verified => Ok(()),
        CredentialKind::GatewaySecret => Err(format!("no Gateway that trusts {identity} refers to it")),
        CredentialKind::Invalid => Err("the reference to it is invalid".to_string()),
    }
}

fn secret(credential: &Credential, store: &Store<'_>) -> Result<Secret, String> {
    let material = match credential.kind {
        CredentialKind::ConfigMap => store.config_map_ca(credential),
        _ if credential.is_ca_only() => store.ca(credential),
        _ => store.certificate(credential),
    }?;
    let content = match material {
        Material::Certificate { chain, key, ocsp_staple } => Type::TlsCertificate(TlsCertificate {
            certificate_chain: Some(inline(chain)),
            private_key: Some(inline(key)),
            ocsp_staple: ocsp_staple.map(inline),
            ..TlsCertificate::default()
        }),
        Material::Ca { roots, crl } => Type::ValidationContext(CertificateValidationContext {
            trusted_ca: Some(inline(roots)),
            crl: crl.map(inline),
            ..CertificateValidationContext::default()
        }),
    };
    Ok(Secret { name: credential.resource_name.to_string(), r#type: Some(content) })
}

fn inline(bytes: Bytes) -> DataSource {
    DataSource { specifier: Some(Specifier::InlineBytes(bytes)), ..DataSource::default() }
}
