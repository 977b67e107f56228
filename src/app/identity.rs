//! Identities: the certificate authority, the TLS of the secure listener, and the proofs that clients bring.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;

use super::{Error, Inputs};
use crate::{
    discovery::{Ports, XdsServerHandle},
    identity::{
        Authenticator, AuthorityActor, CertificatePublisher, JoinTokens, Lifetimes, TrustDomains, TrustSettings,
    },
    model::{PushRequest, Reason, XdsUpdater},
    runtime::Supervision,
    settings::{IdentitySettings, StateSettings},
};

/// Starts the authority where there is a secure listener; it reads files and feeds the listener. `ports` gain the proofs of
/// clients and the service that signs certificates.
pub(super) async fn start(
    supervision: &Supervision,
    inputs: &Arc<Inputs>,
    (identity, state): (&IdentitySettings, &StateSettings),
    xds: &XdsServerHandle,
    ports: &mut Ports,
) -> Result<watch::Receiver<Arc<ServerConfig>>, Error> {
    let (features, mesh) = (&inputs.features, inputs.mesh());
    let settings = TrustSettings {
        cacerts: identity.cacerts.clone(),
        state_folder: state.folder.clone(),
        organization: mesh.config.trust_domain.clone(),
        root_lifetime: features.self_signed_root_ttl,
        server_names: server_names(&mesh.config.root_namespace, &features.istiod_custom_host, &identity.host_names),
        server_files: identity.server_files.clone(),
    };
    let longest = features.max_workload_cert_ttl.max(Duration::from_secs(1));
    let lifetimes = Lifetimes { default: features.default_workload_cert_ttl.min(longest), longest };
    let authority = AuthorityActor::start(supervision, settings, lifetimes, publisher(inputs, xds))
        .await
        .map_err(|error| Error::Identity(error.to_string()))?;
    let (tokens, inputs) = (state.folder.as_deref().map(JoinTokens::of), inputs.clone());
    let trust_domains = Arc::new(move || {
        let mesh = inputs.mesh();
        TrustDomains { own: mesh.config.trust_domain.clone(), aliases: mesh.config.trust_domain_aliases.clone() }
    });
    let server = authority.server();
    ports.authenticator = Some(Authenticator::new(tokens, trust_domains));
    ports.authority = Some(authority).filter(|_| features.enable_ca_server);
    Ok(server)
}

/// Certificates of workloads are inputs of pushes.
fn publisher(inputs: &Arc<Inputs>, xds: &XdsServerHandle) -> CertificatePublisher {
    let (inputs, xds) = (inputs.clone(), xds.clone());
    Arc::new(move |certificates| {
        inputs.set_certificates(certificates);
        xds.config_update(PushRequest::everything(Reason::Secret));
    })
}

/// The names that clients know the server by (Istio's `istiod` Services), and those of this machine.
fn server_names(root_namespace: &str, custom: &str, more: &[String]) -> Vec<String> {
    let of_service = ["istiod", "istiod-remote", "istio-pilot"].map(|name| format!("{name}.{root_namespace}.svc"));
    let custom = custom.split(',').map(str::trim).filter(|name| !name.is_empty()).map(String::from);
    let mut names: Vec<String> = of_service.into_iter().chain(custom).chain(more.iter().cloned()).collect();
    names.extend(["localhost", "127.0.0.1", "::1"].map(String::from));
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_server_are_istiods_and_those_of_the_flag() {
        let names = server_names("mesh", "a.example.com, b.example.com", &["10.0.0.1".into(), "localhost".into()]);
        for name in ["istiod.mesh.svc", "a.example.com", "b.example.com", "10.0.0.1", "localhost"] {
            assert_eq!(names.iter().filter(|n| *n == name).count(), 1, "{name}: {names:?}");
        }
    }
}
