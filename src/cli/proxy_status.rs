//! `pilothouse proxy-status`: the connected proxies of a running server.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

/// Form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
}

/// Arguments of `proxy-status`.
#[derive(Debug, Clone, Args)]
pub struct ProxyStatusArgs {
    /// Address of the server's admin pages.
    #[arg(
        long,
        alias = "httpAddr",
        env = "PILOTHOUSE_HTTP_ADDR",
        default_value = "127.0.0.1:8080",
        value_name = "HOST:PORT"
    )]
    pub http_addr: String,
    /// Form of the answer.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
}

/// Prints the table.
///
/// # Errors
/// A server that does not answer.
pub fn run(_args: ProxyStatusArgs) -> anyhow::Result<ExitCode> {
    anyhow::bail!("proxy-status is not built yet")
}
