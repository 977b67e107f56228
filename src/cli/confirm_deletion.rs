//! `pilothouse confirm-deletion`: lets through a mass deletion that a source of a running server holds back.

use std::process::ExitCode;

use clap::Args;

use super::{
    EXIT_DATA,
    http::{self, ServerArgs},
    output::print,
};

/// Arguments of `confirm-deletion`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLE)]
pub struct ConfirmDeletionArgs {
    /// The source, as /debug/sourcez names it: `file:DIR`.
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// The server, which accepts this from its own machine only.
    #[command(flatten)]
    pub server: ServerArgs,
}

const EXAMPLE: &str = "Example:
  pilothouse confirm-deletion file:mesh";

/// Confirms it, and prints the server's answer. Exit code 65 when the source does not exist or holds nothing back.
///
/// # Errors
/// A server that does not answer.
pub fn run(args: ConfirmDeletionArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/debug/sourcez/confirm?source={}", http::quoted(&args.source));
    let answer = args.server.ask("POST", &path, "")?;
    let text = String::from_utf8_lossy(&answer.body);
    match answer.status {
        200 => {
            print(&text)?;
            Ok(ExitCode::SUCCESS)
        }
        404 | 409 => {
            eprint!("pilothouse: {text}");
            Ok(ExitCode::from(EXIT_DATA))
        }
        status => anyhow::bail!("the server answered {status}: {}", text.trim_end()),
    }
}
