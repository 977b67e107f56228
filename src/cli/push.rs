//! `pilothouse push`: sends everything again to all proxies of a running server.

use std::process::ExitCode;

use clap::Args;

use super::{http::ServerArgs, output::print};

/// Arguments of `push`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  pilothouse push --http-addr 127.0.0.1:8080")]
pub struct PushArgs {
    /// The server.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Asks for the push, and prints the server's answer.
///
/// # Errors
/// A server that does not answer, or has nothing to push yet.
pub fn run(args: PushArgs) -> anyhow::Result<ExitCode> {
    let answer = args.server.ask("POST", "/debug/adsz?push=true", "")?;
    let text = String::from_utf8_lossy(&answer.body);
    match answer.status {
        200 => print(&text)?,
        503 => anyhow::bail!("the server's first configuration is not complete yet"),
        status => anyhow::bail!("the server answered {status}: {}", text.trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}
