//! `pilothouse logs`: the levels of a running server's log, by Istio's scopes.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use tracing::level_filters::LevelFilter;

use super::{Refusal, http::ServerArgs, output::Output, table};
use crate::telemetry::{ScopeLevel, scope_level};

/// Arguments of `logs`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  pilothouse logs\n  pilothouse logs --level ads:debug,kube:warn\n  pilothouse logs --reset"
)]
pub struct LogsArgs {
    /// Levels to set (none, error, warn, info, debug, trace) by scope; `all` stands for every scope.
    #[arg(
        long,
        alias = "log_output_level",
        env = "PILOTHOUSE_LEVEL",
        value_name = "SCOPE:LEVEL",
        value_delimiter = ',',
        value_parser = scope_level,
        conflicts_with = "reset"
    )]
    pub level: Vec<ScopeLevel>,
    /// Set all levels as they were at the start.
    #[arg(long, env = "PILOTHOUSE_RESET")]
    pub reset: bool,
    /// The server, which accepts changes from its own machine only.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Form of the answer.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
}

/// Changes levels where that is asked for, and prints all of them.
///
/// # Errors
/// A server that does not answer, or refuses the change.
pub fn run(args: LogsArgs) -> anyhow::Result<ExitCode> {
    if args.reset {
        put(&args.server, "all", "")?;
    }
    for (scope, level) in &args.level {
        let level = if *level == LevelFilter::OFF { "none".to_string() } else { level.to_string() };
        put(&args.server, scope, &level)?;
    }
    args.output.write(&args.server.fetch("/scopej/")?, shown)?;
    Ok(ExitCode::SUCCESS)
}

fn put(server: &ServerArgs, scope: &str, level: &str) -> anyhow::Result<()> {
    let body = json!({"name": scope, "output_level": level}).to_string();
    let answer = server.ask("PUT", &format!("/scopej/{scope}"), &body)?;
    let text = String::from_utf8_lossy(&answer.body).trim_end().to_string();
    match answer.status {
        202 => Ok(()),
        400 => Err(Refusal(format!("--level {scope}:{level}: {text}")).into()),
        status => anyhow::bail!("the server answered {status}: {text}"),
    }
}

fn shown(scopes: &Value) -> String {
    let mut rows = vec![["ACTIVE SCOPE", "DESCRIPTION", "LOG LEVEL"].map(String::from)];
    let text = |scope: &Value, key: &str| scope[key].as_str().unwrap_or_default().to_string();
    let row = |scope: &Value| ["name", "description", "output_level"].map(|key| text(scope, key));
    rows.extend(scopes.as_array().into_iter().flatten().map(row));
    table::aligned(&rows)
}
