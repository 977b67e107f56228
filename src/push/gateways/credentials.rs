//! The credentials that the servers of a gateway refer to, and the proxies that a reference grants them to.

use std::sync::Arc;

use super::select::{self, Selected};
use crate::{
    model::{
        Credential, Identity, Kind,
        credential::{BUILTIN, CA_SUFFIX, is_gateway_secret, resource_name},
    },
    proto::networking::{self, server_tls_settings::TlSmode},
    translate::Translation,
};

/// A server's reference to a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialReference {
    /// SDS resource name.
    pub resource_name: String,
    /// Whether the CA certificates beside it (`-cacert`) are referred to as well.
    pub with_ca: bool,
    /// Kind of the object that holds the reference: a Gateway, or a ListenerSet, which may be in another namespace than its
    /// Gateway.
    pub owner: Kind,
    /// Namespace of the Gateway.
    pub config_namespace: Arc<str>,
    /// Namespace that the proxy must be in.
    pub expected_namespace: Arc<str>,
    /// Service account that the proxy must have; empty for any.
    pub expected_service_account: Arc<str>,
}

impl CredentialReference {
    /// The SDS names that the reference grants to a proxy of this identity; `None` when it grants nothing. Either everything
    /// is in one namespace, the Gateway, the Secret and the proxy, or a ReferenceGrant permits the Secret. A ListenerSet and
    /// its Secret may be in another namespace than the proxy: the Gateway has let it in.
    #[must_use]
    pub fn granted_to(&self, identity: &Identity, translation: &Translation) -> Option<Vec<String>> {
        let account = &self.expected_service_account;
        if identity.namespace != self.expected_namespace
            || !(account.is_empty() || identity.service_account == *account)
        {
            return None;
        }
        let credential = Credential::parse(&self.resource_name, &identity.namespace)?;
        let of_set = self.owner == Kind::ListenerSet;
        let home = if of_set { &self.config_namespace } else { &identity.namespace };
        let together = (of_set || self.config_namespace == identity.namespace) && credential.namespace == *home;
        if !together && !translation.permits_secret(self.owner, home, &credential) {
            return None;
        }
        let mut names = vec![self.resource_name.clone()];
        if self.with_ca {
            names.push(format!("{}{CA_SUFFIX}", self.resource_name));
        }
        Some(names)
    }
}

/// The credentials that a server's TLS settings refer to.
pub(super) fn references(selected: &Selected<'_>, server: &networking::Server) -> Vec<CredentialReference> {
    let Some(tls) = &server.tls else { return Vec::new() };
    let meta = &selected.config.meta;
    let parents = meta.annotations.get("internal.istio.io/parents").map_or("", String::as_str);
    let owner = if parents.starts_with("ListenerSet/") { Kind::ListenerSet } else { Kind::KubernetesGateway };
    let reference = |name: &str, with_ca| CredentialReference {
        resource_name: resource_name(name),
        with_ca,
        owner,
        config_namespace: meta.namespace.clone(),
        expected_namespace: select::parent_namespace(selected.config).into(),
        expected_service_account: meta.annotations.get(select::SERVICE_ACCOUNT).map_or("", String::as_str).into(),
    };
    let with_ca = matches!(TlSmode::try_from(tls.mode), Ok(TlSmode::Mutual | TlSmode::OptionalMutual));
    let named = if tls.credential_names.is_empty() {
        std::slice::from_ref(&tls.credential_name)
    } else {
        &tls.credential_names[..]
    };
    let mut references: Vec<_> =
        named.iter().filter(|n| !n.is_empty() && !n.starts_with(BUILTIN)).map(|n| reference(n, with_ca)).collect();
    if is_gateway_secret(&tls.ca_cert_credential_name) {
        references.push(reference(&tls.ca_cert_credential_name, false));
    }
    references
}
