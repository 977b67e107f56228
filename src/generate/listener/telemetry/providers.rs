//! Extension providers of the mesh settings, and the services that they name.

use crate::{
    generate::names::{self, Direction},
    proto::{
        envoy::config::core::v3::{GrpcService, grpc_service},
        istio::telemetry::v1alpha1::ProviderRef,
        mesh::{
            MeshConfig,
            mesh_config::{DefaultProviders, ExtensionProvider},
        },
    },
    push::PushContext,
};

/// The provider of a name; letters count alike in either case, and the first of several is meant.
#[must_use]
pub fn find<'a>(mesh: &'a MeshConfig, name: &str) -> Option<&'a ExtensionProvider> {
    mesh.extension_providers.iter().find(|provider| provider.name.eq_ignore_ascii_case(name))
}

/// The default providers of the mesh.
pub(super) fn defaults<'a>(mesh: &'a MeshConfig, of: impl Fn(&'a DefaultProviders) -> &'a Vec<String>) -> &'a [String] {
    mesh.default_providers.as_ref().map_or(&[], |providers| of(providers))
}

/// The names of references.
pub(super) fn names(references: &[ProviderRef]) -> impl Iterator<Item = &str> {
    references.iter().map(|reference| reference.name.as_str())
}

/// The service of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its host.
    pub host: String,
    /// The cluster that leads to it.
    pub cluster: String,
    /// Its namespace.
    pub namespace: String,
    /// Its port.
    pub port: u32,
}

/// The service `host` or `namespace/host` of a provider.
///
/// # Errors
/// There is none, or there are several, or the port is none.
pub fn target(context: &PushContext, service: &str, port: u32) -> Result<Target, String> {
    if !(1..=65535).contains(&port) {
        return Err(format!("{port} is not a port"));
    }
    let found = context
        .services
        .of_provider(service)
        .ok_or_else(|| format!("{service:?} is no service of the registry, or of several namespaces"))?;
    Ok(Target {
        cluster: names::subset_key(Direction::Outbound, "", &found.hostname, port),
        host: found.hostname.to_string(),
        namespace: found.namespace.to_string(),
        port,
    })
}

impl Target {
    /// The service as one of gRPC.
    #[must_use]
    pub fn grpc(&self) -> GrpcService {
        let target = grpc_service::EnvoyGrpc {
            cluster_name: self.cluster.clone(),
            authority: self.host.clone(),
            ..Default::default()
        };
        GrpcService {
            target_specifier: Some(grpc_service::TargetSpecifier::EnvoyGrpc(target)),
            ..GrpcService::default()
        }
    }
}
