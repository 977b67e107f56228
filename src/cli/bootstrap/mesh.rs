//! Where the settings of the mesh come from: files, or a running server.

use std::{path::PathBuf, sync::Arc};

use anyhow::Context;
use clap::Args;
use serde_json::Value;

use crate::{
    cli::http,
    model::{
        Config, Kind, Node, Origin, ProxyOwner, decode,
        proxy_settings::{self, proxy_settings},
    },
    proto::{
        from_json,
        mesh::{MeshConfig, ProxyConfig},
    },
    settings::{MeshSettings, SourceSettings},
    sources::{file::load, mesh::read_mesh, yaml},
};

/// The settings of the mesh that the proxy starts with.
#[derive(Debug, Clone, Default, Args)]
pub struct MeshSource {
    /// MeshConfig file (YAML), whose `defaultConfig` Envoy starts with.
    #[arg(long, alias = "meshConfig", env = "PILOTHOUSE_MESH_CONFIG", value_name = "FILE")]
    pub mesh_config: Option<PathBuf>,
    /// Folder with ProxyConfig objects, and EnvoyFilters with patches of the bootstrap; the other kinds in it are left to the
    /// server.
    #[arg(long, alias = "configDir", env = "PILOTHOUSE_CONFIG_DIR", value_name = "DIR", value_delimiter = ',')]
    pub config_dir: Vec<PathBuf>,
    /// Admin pages of a running server, for the mesh config, the ProxyConfig objects and the EnvoyFilters that it holds.
    #[arg(long, env = "PILOTHOUSE_FROM", value_name = "HOST:PORT", conflicts_with_all = ["mesh_config", "config_dir"])]
    pub from: Option<String>,
}

/// The mesh, as far as a start depends on it.
#[derive(Debug, Clone, PartialEq)]
pub struct MeshInputs {
    /// The mesh config, defaults filled in.
    pub config: Arc<MeshConfig>,
    /// The ProxyConfig objects.
    pub objects: Vec<Arc<Config>>,
    /// The EnvoyFilters.
    pub filters: Vec<Arc<Config>>,
}

/// The kinds that a start reads.
const KINDS: [Kind; 2] = [Kind::ProxyConfig, Kind::EnvoyFilter];

impl MeshSource {
    /// Reads them; `None` where no flag names any.
    ///
    /// # Errors
    /// A file or a server that does not give them.
    pub fn read(&self) -> anyhow::Result<Option<MeshInputs>> {
        if let Some(address) = &self.from {
            return of_server(address).map(Some);
        }
        if self.mesh_config.is_none() && self.config_dir.is_empty() {
            return Ok(None);
        }
        let limit = SourceSettings::default().max_file_bytes;
        let settings = MeshSettings { config_file: self.mesh_config.clone(), ..MeshSettings::default() };
        let mesh = read_mesh(&settings, limit).map_err(anyhow::Error::msg)?;
        let mut objects = Vec::new();
        for folder in &self.config_dir {
            let origin = Origin { source: format!("file:{}", folder.display()).into(), ..Origin::default() };
            let loaded = load::load(folder, &origin, limit);
            let is_read = |kind: &str| KINDS.iter().any(|read| read.as_str() == kind);
            for refused in loaded.findings.refused.iter().filter(|refused| is_read(&refused.kind)) {
                eprintln!("pilothouse: {refused}");
            }
            objects.extend(loaded.configs.into_iter().filter(|config| KINDS.contains(&config.kind())));
        }
        Ok(Some(MeshInputs::new(mesh.config, objects)))
    }
}

fn of_server(address: &str) -> anyhow::Result<MeshInputs> {
    let server = http::ServerArgs { http_addr: address.to_string(), token_file: None };
    let config = server.fetch("/debug/mesh")?;
    anyhow::ensure!(config.is_object(), "the server at {address} has no mesh config yet");
    let config = from_json(&config, false).with_context(|| format!("the mesh config of the server at {address}"))?;
    let mut objects = Vec::new();
    for kind in KINDS.map(Kind::as_str) {
        let listed = server.fetch(&format!("/debug/configz?kind={kind}"))?;
        let documents = listed.as_array().map(Vec::as_slice).unwrap_or_default();
        for document in documents.iter().filter(|document| document["kind"] == kind) {
            let object = decode::from_value(document, Origin::default());
            objects.push(object.map(Arc::new).with_context(|| format!("{kind} {}", document["metadata"]["name"]))?);
        }
    }
    Ok(MeshInputs::new(Arc::new(config), objects))
}

impl MeshInputs {
    fn new(config: Arc<MeshConfig>, objects: Vec<Arc<Config>>) -> Self {
        let (objects, filters) = objects.into_iter().partition(|config| config.kind() == Kind::ProxyConfig);
        Self { config, objects, filters }
    }

    /// The settings of the proxy of this node. Its metadata `PROXY_CONFIG` goes over all others, as for a server.
    ///
    /// # Errors
    /// An annotation or a setting that Istio refuses, with its path.
    pub fn settings_of(&self, node: &Node) -> Result<ProxyConfig, String> {
        let name = proxy_settings::ANNOTATION;
        let annotation = match annotation(node, name) {
            Some(text) => yaml::values(text).map_err(|e| format!("annotation {name}: {e}"))?.pop().unwrap_or_default(),
            None => Value::Null,
        };
        let own = node.raw_metadata.get("PROXY_CONFIG").unwrap_or(&Value::Null);
        let owner = ProxyOwner { namespace: &node.namespace, labels: &node.labels, annotation: &annotation, own };
        proxy_settings(&self.config, &self.objects, &owner)
    }
}

/// An annotation of the workload: entries of the metadata's `ANNOTATIONS`, as Istio's agent sends them.
pub(super) fn annotation<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    node.raw_metadata.get("ANNOTATIONS")?.get(name)?.as_str()
}
