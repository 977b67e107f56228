//! `pilothouse version`.

use std::process::ExitCode;

use clap::Args;

/// Arguments of `version`: none.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLE)]
pub struct VersionArgs {}

const EXAMPLE: &str = "Example:
  pilothouse version";

/// Prints the version.
///
/// # Errors
/// Output that cannot be written.
pub fn run(_args: VersionArgs) -> anyhow::Result<ExitCode> {
    super::output::print(&format!("pilothouse {}\n", env!("CARGO_PKG_VERSION")))?;
    Ok(ExitCode::SUCCESS)
}
