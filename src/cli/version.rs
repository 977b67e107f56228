//! `pilothouse version`.

use std::process::ExitCode;

use clap::Args;

/// Arguments of `version`: none.
#[derive(Debug, Clone, Args)]
pub struct VersionArgs {}

/// Prints the version.
///
/// # Errors
/// Never; the signature is that of all commands.
pub fn run(_args: VersionArgs) -> anyhow::Result<ExitCode> {
    println!("pilothouse {}", env!("CARGO_PKG_VERSION"));
    Ok(ExitCode::SUCCESS)
}
