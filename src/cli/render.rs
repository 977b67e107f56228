//! `pilothouse render`: what one proxy would be sent, written to files, without a server.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::MeshArgs;

/// Arguments of `render`.
#[derive(Debug, Clone, Args)]
pub struct RenderArgs {
    /// Folder of Istio and Kubernetes YAML.
    #[arg(
        long,
        alias = "configDir",
        env = "PILOTHOUSE_CONFIG_DIR",
        value_name = "DIR",
        value_delimiter = ',',
        required = true
    )]
    pub config_dir: Vec<PathBuf>,
    /// Mesh-wide settings.
    #[command(flatten)]
    pub mesh: MeshArgs,
    /// Folder that holds the Kubernetes objects of another cluster, as NAME=DIR.
    #[arg(long, env = "PILOTHOUSE_REMOTE_CLUSTER", value_name = "NAME=DIR", value_delimiter = ',')]
    pub remote_cluster: Vec<String>,
    /// Node id, TYPE~IP~NAME.NS~NS.svc.DOMAIN.
    #[arg(
        long,
        env = "PILOTHOUSE_NODE",
        value_name = "ID",
        conflicts_with = "node_file",
        required_unless_present = "node_file"
    )]
    pub node: Option<String>,
    /// Node metadata (JSON).
    #[arg(long, env = "PILOTHOUSE_METADATA", value_name = "FILE.json", conflicts_with = "node_file")]
    pub metadata: Option<PathBuf>,
    /// Locality of the node.
    #[arg(long, env = "PILOTHOUSE_LOCALITY", value_name = "REGION/ZONE/SUBZONE", conflicts_with = "node_file")]
    pub locality: Option<String>,
    /// An Envoy Node in JSON.
    #[arg(long, env = "PILOTHOUSE_NODE_FILE", value_name = "NODE.json")]
    pub node_file: Option<PathBuf>,
    /// SPIFFE identity that the proxy authenticates with.
    #[arg(long, env = "PILOTHOUSE_IDENTITY", value_name = "spiffe://…")]
    pub identity: Option<String>,
    /// Listener that a proxyless gRPC client asks for.
    #[arg(long, env = "PILOTHOUSE_LISTENER", value_name = "NAME", value_delimiter = ',')]
    pub listener: Vec<String>,
    /// Folder to write to.
    #[arg(long, env = "PILOTHOUSE_OUT", value_name = "DIR")]
    pub out: PathBuf,
}

/// Writes what the proxy would be sent.
///
/// # Errors
/// What cannot be read or written.
pub fn run(_args: RenderArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("render is not built yet")
}
