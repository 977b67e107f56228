//! `pilothouse completion`: a shell completion script.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Arguments of `completion`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLE)]
pub struct CompletionArgs {
    /// Shell to complete for.
    #[arg(value_enum)]
    pub shell: Shell,
}

const EXAMPLE: &str = "Example:
  pilothouse completion bash > /etc/bash_completion.d/pilothouse";

/// Prints the script.
///
/// # Errors
/// Output that cannot be written.
pub fn run(args: CompletionArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "pilothouse", &mut script);
    super::output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
