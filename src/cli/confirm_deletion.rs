//! `pilothouse confirm-deletion`: lets the mass deletion go through that a source of a running server holds back.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::{EXIT_DATA, http};

/// Arguments of `confirm-deletion`.
#[derive(Debug, Clone, Args)]
pub struct ConfirmDeletionArgs {
    /// The source, as /debug/sourcez names it: `file:DIR`.
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// Address of the server's admin pages; the server takes this from its own machine only.
    #[arg(
        long,
        alias = "httpAddr",
        env = "PILOTHOUSE_HTTP_ADDR",
        default_value = "127.0.0.1:8080",
        value_name = "HOST:PORT"
    )]
    pub http_addr: String,
}

/// Confirms it, and prints what the server says. Exit code 65 when the source does not exist or holds nothing back.
///
/// # Errors
/// A server that does not answer.
pub fn run(args: ConfirmDeletionArgs) -> anyhow::Result<ExitCode> {
    let path = format!("/debug/sourcez/confirm?source={}", http::quoted(&args.source));
    let answer =
        http::ask("POST", &args.http_addr, &path).with_context(|| format!("asking http://{}{path}", args.http_addr))?;
    let text = String::from_utf8_lossy(&answer.body);
    match answer.status {
        200 => {
            print!("{text}");
            Ok(ExitCode::SUCCESS)
        }
        404 | 409 => {
            eprint!("pilothouse: {text}");
            Ok(ExitCode::from(EXIT_DATA))
        }
        status => anyhow::bail!("the server answered {status}: {}", text.trim_end()),
    }
}
