//! Identities: the certificate authority, the TLS of the secure listener, and the proofs that clients bring.

use std::{sync::Arc, time::Duration};

use tokio::{net::UnixStream, sync::watch};
use tokio_rustls::rustls::ServerConfig;

use super::{Error, Inputs, process::Process, remotes};
use crate::{
    discovery::{Ports, XdsServerHandle},
    identity::{
        AccessPublisher, Authenticator, AuthorityActor, AuthoritySetup, CertificatePublisher, ClientRoots,
        ClusterAccess, ClusterRoot, ClusterTokens, FindCluster, IssuedTokens, IssuerRule, JoinTokens, Lifetimes,
        LocalUsers, NamespaceReaders, SecretAccessActor, TrustDomains, TrustSettings,
    },
    model::{PushRequest, Reason, XdsUpdater},
    settings::Settings,
    sources::kube::{KubeWriter, RemoteClusters},
};

/// The rule of tokens of an issuer (`JWT_RULE`), where there is one.
pub(super) fn issuer(inputs: &Inputs) -> Result<Option<IssuedTokens>, Error> {
    let text = inputs.features.jwt_rule.as_str();
    if text.is_empty() {
        return Ok(None);
    }
    let rule = IssuerRule::parse(text).map_err(|error| Error::Identity(error.to_string()))?;
    Ok(Some(IssuedTokens::of(rule)))
}

/// The proofs of clients that are believed.
pub(super) struct Credentials {
    pub(super) authenticator: Authenticator,
    /// The clusters that review tokens; `None` without any.
    clusters: Option<FindCluster>,
    /// The roots of client certificates; the authority publishes them.
    roots: ClientRoots,
}

/// Credentials that files, clusters and the keys of an issuer prove.
pub(super) fn credentials(
    process: &Process,
    settings: &Settings,
    remotes: watch::Receiver<Arc<RemoteClusters>>,
    issued: Option<IssuedTokens>,
) -> Credentials {
    let (clusters, roots) = (clusters(process, settings, remotes), ClientRoots::default());
    let authenticator = authenticator(&process.inputs, settings, clusters.clone(), issued).with_roots(roots.clone());
    Credentials { authenticator, clusters, roots }
}

/// Finds the clusters that review tokens: the own one by its id, an alias or none, and remote ones by theirs. `None` without
/// any.
fn clusters(
    process: &Process,
    settings: &Settings,
    remotes: watch::Receiver<Arc<RemoteClusters>>,
) -> Option<FindCluster> {
    let (main, aliases) = (process.cluster.clone(), settings.mesh.cluster_aliases.clone());
    if main.is_none() && !remotes::may_be(&settings.sources) {
        return None;
    }
    Some(Arc::new(move |id: &str| {
        let id = aliases.iter().find(|alias| alias.alias == id).map_or(id, |alias| &alias.cluster);
        match &main {
            Some(main) if id.is_empty() || id == &**main.id() => Some(KubeWriter::new(main.clone())),
            _ => remotes.borrow().writer(id),
        }
    }))
}

fn authenticator(
    inputs: &Arc<Inputs>,
    Settings { xds, state, .. }: &Settings,
    clusters: Option<FindCluster>,
    issued: Option<IssuedTokens>,
) -> Authenticator {
    let (tokens, of_mesh) = (state.folder.as_deref().map(JoinTokens::of), inputs.clone());
    let trust_domains = Arc::new(move || {
        let mesh = of_mesh.mesh();
        TrustDomains { own: mesh.config.trust_domain.clone(), aliases: mesh.config.trust_domain_aliases.clone() }
    });
    let features = &inputs.features;
    let mut authenticator = Authenticator::new(tokens, trust_domains)
        .with_gateways(&features.trusted_gateway_cidr.0)
        .with_xds(features.xds_auth)
        .with_plain_text(features.xds_auth_plaintext)
        .with_users(xds.unix_socket.as_ref().map(|unix| LocalUsers::of(own_user(), &unix.peers)).unwrap_or_default());
    if let Some(issued) = issued {
        authenticator = authenticator.with_issuer(issued);
    }
    if let Some(clusters) = clusters {
        let audiences = list(&features.token_audiences).map(String::from).collect();
        authenticator = authenticator.with_reviewer(Arc::new(ClusterTokens { clusters, audiences }));
    }
    authenticator
}

/// The user of this process, as the system names it to the other end of a Unix socket.
fn own_user() -> Option<u32> {
    let (one, _other) = UnixStream::pair().ok()?;
    one.peer_cred().ok().map(|credentials| credentials.uid())
}

/// Starts the authority where there is a secure listener or a Unix socket; it reads files or Secrets of the cluster, feeds the listener, and
/// tells the cluster its roots. `ports` gain the service that signs certificates.
pub(super) async fn start(
    process: &Process,
    Settings { identity, state, .. }: &Settings,
    Credentials { clusters, roots, .. }: Credentials,
    xds: &XdsServerHandle,
    ports: &mut Ports,
) -> Result<watch::Receiver<Arc<ServerConfig>>, Error> {
    let Process { supervision, inputs, cluster, .. } = process;
    let (features, mesh) = (&inputs.features, inputs.mesh());
    let settings = TrustSettings {
        cacerts: identity.cacerts.clone(),
        state_folder: state.folder.clone(),
        organization: mesh.config.trust_domain.clone(),
        root_lifetime: features.self_signed_root_ttl,
        server_names: server_names(&mesh.config.root_namespace, &features.istiod_custom_host, &identity.host_names),
        server_files: identity.server_files.clone(),
        tls: identity.tls.clone(),
        compliance: features.compliance_policy,
        ignores_revocation: !features.enable_ca_crl,
    };
    let longest = features.max_workload_cert_ttl.max(Duration::from_secs(1));
    let lifetimes = Lifetimes { default: features.default_workload_cert_ttl.min(longest), longest };
    let cluster_root = cluster.as_ref().map(|cluster| ClusterRoot {
        store: Arc::new(KubeWriter::new(cluster.clone())),
        state_folder: state.folder.clone(),
        organization: mesh.config.trust_domain.clone(),
        root_lifetime: features.self_signed_root_ttl,
    });
    let setup = AuthoritySetup { settings, cluster: cluster_root, lifetimes, publish: publisher(inputs, xds), roots };
    let mut authority =
        AuthorityActor::start(supervision, setup).await.map_err(|error| Error::Identity(error.to_string()))?;
    let server = authority.server();
    if let Some(clusters) = clusters {
        let reviewer = Arc::new(ClusterAccess(clusters));
        ports.secret_access = Some(SecretAccessActor::start(supervision, reviewer, access_publisher(inputs, xds)));
    }
    if let Some(cluster) = cluster.as_ref().filter(|_| features.enable_ca_server) {
        let followed = NamespaceReaders { configs: inputs.follow_configs(), mesh: inputs.follow_mesh() };
        authority = authority.telling_namespaces(supervision, Arc::new(KubeWriter::new(cluster.clone())), followed);
    }
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

/// So are the answers about service accounts.
fn access_publisher(inputs: &Arc<Inputs>, xds: &XdsServerHandle) -> AccessPublisher {
    let (inputs, xds) = (inputs.clone(), xds.clone());
    Arc::new(move |access| {
        inputs.set_secret_access(access);
        xds.config_update(PushRequest::everything(Reason::Secret));
    })
}

/// The parts of a text that commas separate.
fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty())
}

/// The names that clients know the server by (Istio's `istiod` Services), and those of this machine.
fn server_names(root_namespace: &str, custom: &str, more: &[String]) -> Vec<String> {
    let of_service = ["istiod", "istiod-remote", "istio-pilot"].map(|name| format!("{name}.{root_namespace}.svc"));
    let custom = list(custom).map(String::from);
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
