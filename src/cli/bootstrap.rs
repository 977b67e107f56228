//! `pilothouse bootstrap`: a file that Envoy or a gRPC program starts with.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};

/// What kind of client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Client {
    /// Envoy.
    Envoy,
    /// Proxyless gRPC.
    Grpc,
}

/// Arguments of `bootstrap`.
#[derive(Debug, Clone, Args)]
pub struct BootstrapArgs {
    /// What kind of client.
    #[arg(value_enum)]
    pub client: Client,
    /// Where the client finds the server.
    #[arg(long, env = "PILOTHOUSE_XDS_ADDRESS", value_name = "HOST:PORT")]
    pub xds_address: String,
    /// Node id, TYPE~IP~NAME.NS~NS.svc.DOMAIN.
    #[arg(long, env = "PILOTHOUSE_NODE", value_name = "ID")]
    pub node: String,
    /// Node metadata (JSON).
    #[arg(long, env = "PILOTHOUSE_METADATA", value_name = "FILE.json")]
    pub metadata: Option<PathBuf>,
    /// Use the delta protocol.
    #[arg(long, env = "PILOTHOUSE_DELTA")]
    pub delta: bool,
}

/// Prints the file.
///
/// # Errors
/// Metadata that cannot be read, a node id of a wrong form.
pub fn run(_args: BootstrapArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("bootstrap is not built yet")
}
