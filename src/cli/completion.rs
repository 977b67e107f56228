//! `pilothouse completion`: a shell completion script.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Arguments of `completion`.
#[derive(Debug, Clone, Args)]
pub struct CompletionArgs {
    /// Shell to complete for.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the script.
///
/// # Errors
/// Never; the signature is that of all commands.
pub fn run(args: CompletionArgs) -> anyhow::Result<ExitCode> {
    clap_complete::generate(args.shell, &mut super::Cli::command(), "pilothouse", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}
