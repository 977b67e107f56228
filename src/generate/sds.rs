//! The SDS servers of Envoy: Istio's agent or another local one with workload certificates (`sds-grpc`), local ones with
//! files or credentials, the stream that it has with us (ADS), or files (Istio's `security/model/authentication.go`).
//!
//! `sds-grpc` is a cluster of the bootstrap: Istio's has it, and ours where it was told a socket, which the node's metadata
//! says. Other stock Envoys are never sent there: Envoy refuses a configuration that names a cluster that it does not have.

use crate::{
    model::credential::{BUILTIN, CA_SUFFIX, resource_name},
    proto::{
        envoy::{
            config::core::v3::{
                AggregatedConfigSource, ApiConfigSource, ApiVersion, ConfigSource, DataSource, GrpcService,
                WatchedDirectory,
                api_config_source::ApiType,
                config_source::ConfigSourceSpecifier,
                data_source::Specifier,
                grpc_service::{EnvoyGrpc, TargetSpecifier},
            },
            extensions::transport_sockets::tls::v3::SdsSecretConfig,
        },
        millis, seconds,
    },
    push::ProxyView,
};

/// The workload's own certificate.
pub const DEFAULT: &str = "default";
/// The root certificate of the mesh.
pub const ROOT_CA: &str = "ROOTCA";
/// Metadata with the socket of the SDS server that has the workload's certificate, as a path. Istio's agent has the entry too,
/// as the name of a file in a folder of its own.
pub const WORKLOAD_SOCKET: &str = "WORKLOAD_IDENTITY_SOCKET_FILE";
/// Cluster of Istio's agent, or of the SDS server at the socket of a stock Envoy's node.
pub const AGENT_CLUSTER: &str = "sds-grpc";
/// Cluster of a local SDS server that serves files.
pub const FILES_CLUSTER: &str = "sds-files-grpc";
/// Cluster of a local SDS server that serves credentials.
pub const EXTERNAL_CLUSTER: &str = "sds-external";
/// Prefix of a `credentialName` that another SDS server serves.
pub const EXTERNAL_PREFIX: &str = "sds://";

/// The source of a workload's own certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holder {
    /// Istio's agent beside the proxy.
    Agent,
    /// An SDS server on the machine of a stock Envoy, such as a SPIRE agent.
    Socket,
    /// The control plane, which issues it for a stock Envoy that proved its identity.
    ControlPlane,
    /// No holder: the identity of the stock Envoy is not proven.
    Absent,
}

impl Holder {
    /// The holder for a view.
    #[must_use]
    pub fn of(view: &ProxyView) -> Self {
        if view.is_istio_proxy() {
            Self::Agent
        } else if view.metadata.other(WORKLOAD_SOCKET).starts_with('/') {
            Self::Socket
        } else if view.certified {
            Self::ControlPlane
        } else {
            Self::Absent
        }
    }
}

/// [`DEFAULT`] or [`ROOT_CA`].
#[must_use]
pub fn workload(name: &str, holder: Holder) -> SdsSecretConfig {
    let (mut secret, timeout) = match holder {
        Holder::ControlPlane => (ads(name), None),
        // A cluster or listener without its certificate must not delay the others: it warms up at once, and its connections
        // fail.
        Holder::Absent => (ads(name), Some(millis(1))),
        // With Envoy's own limit: a server that does not know the workload must not hold up its plain text.
        Holder::Socket => (over_grpc(name, AGENT_CLUSTER, ""), None),
        // Without its own certificate a proxy of Istio cannot work at all, so it waits for it without limit.
        Holder::Agent => (over_grpc(name, AGENT_CLUSTER, ""), Some(seconds(0))),
    };
    if let Some(source) = &mut secret.sds_config {
        source.initial_fetch_timeout = timeout;
    }
    secret
}

/// A secret made from files ([`file_certificate`], [`file_root`]) of an Istio proxy, by the local SDS server for files where
/// there is one, else by Istio's agent.
#[must_use]
pub fn files(name: &str, files_socket: bool) -> SdsSecretConfig {
    over_grpc(name, if files_socket { FILES_CLUSTER } else { AGENT_CLUSTER }, "")
}

/// A secret over the stream that Envoy has with us. There is a limit on the first fetch: a secret that does not exist must
/// not hold up its users for ever.
#[must_use]
pub fn ads(name: &str) -> SdsSecretConfig {
    let source = ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource::default())),
        ..ConfigSource::default()
    };
    SdsSecretConfig { name: name.to_string(), sds_config: Some(source) }
}

/// The secret that a `credentialName` means. A name `sds://…` goes to the local SDS server for credentials where there is
/// one.
#[must_use]
pub fn credential(name: &str, holder: Holder, credential_socket: bool) -> SdsSecretConfig {
    if name == BUILTIN {
        return workload(DEFAULT, holder);
    }
    if name.strip_suffix(CA_SUFFIX) == Some(BUILTIN) {
        return workload(ROOT_CA, holder);
    }
    match name.strip_prefix(EXTERNAL_PREFIX) {
        Some(_) if credential_socket => over_grpc(name, EXTERNAL_CLUSTER, ""),
        Some(resource) => ads(&resource_name(resource)),
        None => ads(&resource_name(name)),
    }
}

/// Name of the secret for a certificate and key by path.
#[must_use]
pub fn file_certificate(chain: &str, key: &str) -> String {
    format!("file-cert:{chain}~{key}")
}

/// Name of the secret for a root certificate by path.
#[must_use]
pub fn file_root(path: &str) -> String {
    format!("file-root:{path}")
}

/// A file that Envoy reads itself.
#[must_use]
pub fn file(path: &str) -> DataSource {
    DataSource { specifier: Some(Specifier::Filename(path.to_string())), ..DataSource::default() }
}

/// The folder whose renames tell Envoy that a file in it is new. Envoy heeds it where a secret names the file; in the TLS
/// context of a listener or cluster it has no effect yet.
#[must_use]
pub fn folder_of(path: &str) -> Option<WatchedDirectory> {
    let folder = std::path::Path::new(path).parent().filter(|p| !p.as_os_str().is_empty())?;
    Some(WatchedDirectory { path: folder.to_string_lossy().into_owned(), ..WatchedDirectory::default() })
}

/// A secret from the SDS server behind a cluster.
#[must_use]
pub fn over_grpc(name: &str, cluster: &str, authority: &str) -> SdsSecretConfig {
    let service = GrpcService {
        target_specifier: Some(TargetSpecifier::EnvoyGrpc(EnvoyGrpc {
            cluster_name: cluster.to_string(),
            authority: authority.to_string(),
            ..EnvoyGrpc::default()
        })),
        ..GrpcService::default()
    };
    let source = ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(ConfigSourceSpecifier::ApiConfigSource(ApiConfigSource {
            api_type: ApiType::Grpc.into(),
            transport_api_version: ApiVersion::V3.into(),
            grpc_services: vec![service],
            set_node_on_first_message_only: true,
            ..ApiConfigSource::default()
        })),
        ..ConfigSource::default()
    };
    SdsSecretConfig { name: name.to_string(), sds_config: Some(source) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{Locality, Node};

    #[test]
    fn names_of_credentials() {
        assert_eq!(credential("builtin://-cacert", Holder::Agent, false).name, ROOT_CA);
        assert_eq!(credential("sds://a", Holder::Agent, true).name, "sds://a");
        assert_eq!(credential("sds://a", Holder::Agent, false).name, "kubernetes://a");
        assert_eq!(credential("a", Holder::Absent, true), ads("kubernetes://a"));
    }

    fn holder(metadata: serde_json::Value) -> Holder {
        let node = Node::from_parts("sidecar~10.0.0.1~a.b~b.svc.cluster.local", metadata, Locality::default()).unwrap();
        Holder::of(&ProxyView { certified: true, ..ProxyView::of_node(&node) })
    }

    #[test]
    fn the_socket_of_the_node_has_its_certificate_before_the_control_plane() {
        assert_eq!(holder(json!({})), Holder::ControlPlane);
        assert_eq!(holder(json!({WORKLOAD_SOCKET: "/run/spire/api.sock"})), Holder::Socket);
        // Istio's agent tells the name of a file, in a folder that a stock Envoy does not have.
        assert_eq!(holder(json!({WORKLOAD_SOCKET: "socket"})), Holder::ControlPlane);
        let metadata = json!({WORKLOAD_SOCKET: "/run/spire/api.sock", "ISTIO_VERSION": "1.30.0"});
        assert_eq!(holder(metadata), Holder::Agent);
        for name in [DEFAULT, ROOT_CA] {
            let secret = workload(name, Holder::Socket);
            assert_eq!(secret, over_grpc(name, AGENT_CLUSTER, ""));
            assert_eq!(secret.sds_config.unwrap().initial_fetch_timeout, None, "Envoy has its own limit");
        }
    }

    #[test]
    fn a_stock_envoy_is_never_sent_to_the_agent() {
        for name in [BUILTIN, "builtin://-cacert", "a", "sds://a"] {
            assert!(!format!("{:?}", credential(name, Holder::Absent, false)).contains(AGENT_CLUSTER));
        }
        let timeout = workload(DEFAULT, Holder::Absent).sds_config.unwrap().initial_fetch_timeout.unwrap();
        assert_eq!((timeout.seconds, timeout.nanos), (0, 1_000_000), "nothing waits for a secret that is not served");
        assert_eq!(workload(DEFAULT, Holder::ControlPlane), ads(DEFAULT), "one that is served is waited for");
    }
}
