//! `pilothouse token`: join tokens for machines outside of any cluster.

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use clap::{Args, Subcommand};

use super::{EXIT_DATA, output::print};
use crate::{identity::JoinTokens, proto::go_duration};

/// Arguments of `token`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLE, arg_required_else_help = false)]
pub struct TokenArgs {
    /// The subcommand.
    #[command(subcommand)]
    pub command: TokenCommand,
}

const CREATE: &str = "Example:
  pilothouse token create --namespace shop --service-account web --ttl 24h --state-dir /var/lib/pilothouse > token";
const REVOKE: &str = "Example:
  pilothouse token revoke 9f86d081884c7d65 --state-dir /var/lib/pilothouse";
const EXAMPLE: &str = "Examples:
  pilothouse token create --namespace shop --service-account web --state-dir /var/lib/pilothouse > token
  pilothouse token revoke 9f86d081884c7d65 --state-dir /var/lib/pilothouse";

/// The subcommands of `token`.
#[derive(Debug, Clone, Subcommand)]
pub enum TokenCommand {
    /// Print a token with which a machine proves a namespace and service account to the secure listener.
    #[command(after_help = CREATE)]
    Create(CreateArgs),
    /// Revoke a token by its id. A running server ends the streams of the token within seconds.
    #[command(after_help = REVOKE)]
    Revoke(RevokeArgs),
}

/// Arguments of `token create`.
#[derive(Debug, Clone, Args)]
pub struct CreateArgs {
    /// Namespace of the workload.
    #[arg(long, short, env = "PILOTHOUSE_NAMESPACE", value_name = "NAMESPACE", value_parser = name)]
    pub namespace: String,
    /// Service account of the workload.
    #[arg(
        long,
        short,
        env = "PILOTHOUSE_SERVICE_ACCOUNT",
        default_value = "default",
        value_name = "NAME",
        value_parser = name
    )]
    pub service_account: String,
    /// Lifetime of the token.
    #[arg(long, env = "PILOTHOUSE_TTL", default_value = "1h", value_parser = lifetime, value_name = "DURATION")]
    pub ttl: Duration,
    /// State folder of the server.
    #[arg(long, alias = "stateDir", env = "PILOTHOUSE_STATE_DIR", value_name = "DIR")]
    pub state_dir: PathBuf,
}

/// Arguments of `token revoke`.
#[derive(Debug, Clone, Args)]
pub struct RevokeArgs {
    /// The token's id, which `create` printed.
    #[arg(value_name = "ID", value_parser = token_id)]
    pub id: String,
    /// State folder of the server.
    #[arg(long, alias = "stateDir", env = "PILOTHOUSE_STATE_DIR", value_name = "DIR")]
    pub state_dir: PathBuf,
}

/// A name of Kubernetes: lower-case letters, digits, `-` and `.`.
fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if text.len() <= 253 && text.chars().all(fits) && text.starts_with(ends) && text.ends_with(ends) {
        Ok(text.to_string())
    } else {
        Err("a name has lower-case letters, digits, '-' and '.'".to_string())
    }
}

/// A mistyped id must not pass for a revoked one: no list of tokens would show it.
fn token_id(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    if text.len() == 16 && text.chars().all(fits) {
        Ok(text.to_string())
    } else {
        Err("an id has 16 digits of 0-9 and a-f, as `pilothouse token create` prints it".to_string())
    }
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let duration = go_duration(text).ok_or("a duration has the form 1h30m")?;
    if duration < Duration::from_secs(1) { Err("a token lasts at least a second".to_string()) } else { Ok(duration) }
}

/// Prints a token to standard output and its id to standard error, or revokes one. Exit code 65 when it was revoked before.
///
/// # Errors
/// A state folder that cannot be read or written.
pub fn run(args: TokenArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        TokenCommand::Create(args) => {
            let tokens = JoinTokens::of(&args.state_dir);
            let (token, claims) = tokens.create(&args.namespace, &args.service_account, args.ttl, SystemTime::now())?;
            print(&format!("{token}\n"))?;
            eprintln!(
                "pilothouse: token {} for {}/{}, for {} s",
                claims.jti,
                claims.namespace,
                claims.service_account,
                args.ttl.as_secs()
            );
            Ok(ExitCode::SUCCESS)
        }
        TokenCommand::Revoke(args) => {
            if JoinTokens::of(&args.state_dir).revoke(&args.id)? {
                eprintln!("pilothouse: the token {} is revoked", args.id);
                return Ok(ExitCode::SUCCESS);
            }
            eprintln!("pilothouse: the token {} was revoked before", args.id.escape_debug());
            Ok(ExitCode::from(EXIT_DATA))
        }
    }
}
