//! The command line: one file per subcommand, each with its arguments and its `run`.
//!
//! Flags are kebab-case; istiod's camelCase spellings are aliases, and every flag has an environment twin `PILOTHOUSE_…`.
//! Exit codes follow sysexits: 0 success, 64 wrong usage, 65 bad input, 70 an internal error; 79
//! findings of `analyze`, as in istioctl.

pub mod analyze;
pub mod bootstrap;
pub mod bug_report;
pub mod certificate;
pub mod completion;
pub mod confirm_deletion;
pub mod describe;
mod dump;
mod http;
pub mod logs;
pub mod man;
mod output;
pub mod proxy_config;
pub mod proxy_status;
pub mod push;
mod redact;
pub mod render;
pub mod serve;
mod server;
pub mod status;
mod table;
pub mod token;
pub mod validate;
pub mod version;

use std::{io::Write, process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand};

use crate::settings::MeshSettings;

/// Wrong usage (`EX_USAGE`).
pub const EXIT_USAGE: u8 = 64;
/// Input that is refused (`EX_DATAERR`).
pub const EXIT_DATA: u8 = 65;
/// Findings at or above the threshold of `analyze`; istioctl's code.
pub const EXIT_FINDINGS: u8 = 79;
/// An internal error (`EX_SOFTWARE`).
pub const EXIT_SOFTWARE: u8 = 70;
/// Time that a server waits for the reader of its output.
const PATIENCE: Duration = Duration::from_secs(2);

/// An Istio-API control plane in one binary: Istio YAML in, xDS for stock Envoy and proxyless gRPC out.
///
/// It reads Istio and Kubernetes objects from folders and other sources, keeps one config cache and one service registry,
/// and sends every proxy the resources that istiod would send it. Without a command it serves the demo in config/demo.
#[derive(Debug, Parser)]
#[command(name = "pilothouse", version, about, propagate_version = true, disable_help_subcommand = true, after_help = EXAMPLE)]
pub struct Cli {
    /// Command to run; `serve` with its defaults without one.
    #[command(subcommand)]
    pub command: Option<Command>,
}

const EXAMPLE: &str = "Examples:
  pilothouse analyze mesh
  pilothouse serve --config-dir mesh
  pilothouse proxy-status
Each command has its own: pilothouse COMMAND --help";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve xDS from folders, a cluster and other control planes, until stopped.
    #[command(alias = "discovery")]
    Serve(serve::ServeArgs),
    /// Write the resources that one proxy would be sent, without a server.
    Render(render::RenderArgs),
    /// Check config files: 0 clean, 65 when something is refused, 64 for wrong usage.
    Validate(validate::ValidateArgs),
    /// Analyze config files across objects, with the codes of istioctl: 0 clean, 79 findings, 64 for wrong usage.
    Analyze(analyze::AnalyzeArgs),
    /// Print the bootstrap file of a client.
    Bootstrap(bootstrap::BootstrapArgs),
    /// List the connected proxies of a running server and the types that they have acknowledged, or show the difference
    /// between the configuration that one was sent and the one that it holds.
    #[command(alias = "ps")]
    ProxyStatus(proxy_status::ProxyStatusArgs),
    /// Show the configuration of one proxy: that it was sent, that it holds, or that a file keeps.
    #[command(alias = "pc")]
    ProxyConfig(proxy_config::ProxyConfigArgs),
    /// Describe a service or a workload of a running server: the objects in force for it, and the TLS between its clients and it.
    Describe(describe::DescribeArgs),
    /// Show the status of each object of a running server: conditions, proxies that hold it, addresses.
    Status(status::StatusArgs),
    /// Send everything again to all proxies of a running server.
    Push(push::PushArgs),
    /// List or change the levels of a running server's log, by Istio's scopes.
    Logs(logs::LogsArgs),
    /// Gather everything that a running server tells about itself in one archive, without secrets.
    BugReport(bug_report::BugReportArgs),
    /// Let through a mass deletion that a source of a running server holds back.
    ConfirmDeletion(confirm_deletion::ConfirmDeletionArgs),
    /// Write the certificate of a workload to files, for programs without an agent, and renew it.
    Certificate(certificate::CertificateArgs),
    /// Make and revoke join tokens.
    Token(token::TokenArgs),
    /// Print the version.
    Version(version::VersionArgs),
    /// Print a shell completion script.
    Completion(completion::CompletionArgs),
    /// Print or write manual pages.
    Man(man::ManArgs),
}

/// Input that a command refuses, with the reason: a line on standard error, and exit code 65.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

/// Files and names of the mesh-wide settings; shared by `serve`, `render`, `validate` and `analyze`.
#[derive(Debug, Clone, Args)]
pub struct MeshArgs {
    /// MeshConfig file (YAML).
    #[arg(long, alias = "meshConfig", env = "PILOTHOUSE_MESH_CONFIG", value_name = "FILE")]
    pub mesh_config: Option<std::path::PathBuf>,
    /// MeshNetworks file (YAML).
    #[arg(long, alias = "networksConfig", env = "PILOTHOUSE_NETWORKS_CONFIG", value_name = "FILE")]
    pub networks_config: Option<std::path::PathBuf>,
    /// Id of this cluster; Istio's variable CLUSTER_ID counts, too.
    #[arg(
        long,
        alias = "clusterID",
        env = "PILOTHOUSE_CLUSTER_ID",
        default_value_t = from_env("CLUSTER_ID", "Kubernetes"),
        value_name = "ID"
    )]
    pub cluster_id: String,
    /// DNS suffix of services.
    #[arg(long, env = "PILOTHOUSE_DOMAIN", default_value = "cluster.local", value_name = "DOMAIN")]
    pub domain: String,
}

impl MeshArgs {
    /// The settings of the files that are named here, without those that only a server has.
    fn settings(&self) -> MeshSettings {
        MeshSettings {
            config_file: self.mesh_config.clone(),
            networks_file: self.networks_config.clone(),
            cluster_id: self.cluster_id.clone(),
            domain: self.domain.clone(),
            ..MeshSettings::default()
        }
    }
}

/// Parses the command line and runs it.
#[must_use]
pub fn main() -> ExitCode {
    let parsed = Cli::try_parse().and_then(|cli| match cli.command {
        Some(command) => Ok(command),
        None => Cli::try_parse_from(["pilothouse", "serve"])
            .map(|cli| cli.command.unwrap_or(Command::Version(version::VersionArgs {}))),
    });
    let command = match parsed {
        Ok(command) => command,
        Err(error) if error.use_stderr() => {
            complain(&one_line(&error.to_string()));
            return ExitCode::from(EXIT_USAGE);
        }
        Err(help) => {
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
    };
    let result = match command {
        Command::Serve(args) => serve::run(args),
        Command::Render(args) => render::run(args),
        Command::Validate(args) => validate::run(args),
        Command::Analyze(args) => analyze::run(args),
        Command::Bootstrap(args) => bootstrap::run(args),
        Command::ProxyStatus(args) => proxy_status::run(args),
        Command::ProxyConfig(args) => proxy_config::run(args),
        Command::Describe(args) => describe::run(args),
        Command::Status(args) => status::run(args),
        Command::Push(args) => push::run(args),
        Command::Logs(args) => logs::run(args),
        Command::BugReport(args) => bug_report::run(args),
        Command::ConfirmDeletion(args) => confirm_deletion::run(args),
        Command::Certificate(args) => certificate::run(args),
        Command::Token(args) => token::run(args),
        Command::Version(args) => version::run(args),
        Command::Completion(args) => completion::run(args),
        Command::Man(args) => man::run(args),
    };
    result.unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        ExitCode::from(if error.is::<Refusal>() { EXIT_DATA } else { EXIT_SOFTWARE })
    })
}

/// The reason in the message about a wrong command line, with the values or the similar name that it offers; without the usage.
fn one_line(message: &str) -> String {
    let lines =
        message.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"));
    let mut whole = String::new();
    for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
        let between = if whole.is_empty() {
            ""
        } else if line.starts_with("tip:") {
            "; "
        } else {
            " "
        };
        whole.push_str(between);
        whole.push_str(line.strip_prefix("error: ").unwrap_or(line));
    }
    whole
}

/// A default that Istio's manifests set by an environment variable of another name; an empty one is none.
fn from_env(name: &str, otherwise: &str) -> String {
    std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or_else(|| otherwise.to_string())
}

/// Whether one of these paths does not exist; the first one is named on standard error.
fn is_one_missing(paths: &[std::path::PathBuf]) -> bool {
    let missing = paths.iter().find(|path| !path.exists());
    missing.inspect(|path| eprintln!("pilothouse: {}: no such file or folder", path.display())).is_some()
}

/// Writes a line to standard error. When the output has no reader, the line is dropped.
fn complain(text: &str) {
    let line = format!("pilothouse: {text}\n");
    in_time(move || std::io::stderr().write_all(line.as_bytes()));
}

/// Writes, for [`PATIENCE`] at most: a pipe without a reader blocks neither the start nor the end of a server.
fn in_time(write: impl FnOnce() -> std::io::Result<()> + Send + 'static) {
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(write()));
    let _ = wait.recv_timeout(PATIENCE);
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Calls this for each command, with its words.
    fn each(command: &clap::Command, words: &str, of: &mut dyn FnMut(&clap::Command, &str)) {
        of(command, words);
        for inner in command.get_subcommands() {
            each(inner, &format!("{words} {}", inner.get_name()), of);
        }
    }

    #[test]
    fn the_help_of_every_command_ends_with_an_example_that_parses() {
        each(&Cli::command(), "pilothouse", &mut |command, words| {
            let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("  ")).collect();
            assert!(text.starts_with("Example") && !lines.is_empty(), "{words}: {text:?}");
            for line in lines {
                let part = line.split(" | ").find(|part| part.starts_with("pilothouse")).unwrap_or(line);
                assert!(part.starts_with(words), "{words}: {line}");
                let typed = part.split(" > ").next().unwrap_or(part).split_whitespace().map(|w| w.trim_matches('\''));
                let parsed = Cli::try_parse_from(typed).map(|_| ());
                assert!(parsed.is_ok(), "{line}: {parsed:?}");
            }
        });
    }

    #[test]
    fn a_wrong_command_line_is_one_line() {
        let line =
            |typed: &[&str]| one_line(&Cli::try_parse_from(typed).err().map(|e| e.to_string()).unwrap_or_default());
        assert_eq!(
            line(&["pilothouse", "analyse"]),
            "unrecognized subcommand 'analyse'; tip: a similar subcommand exists: 'analyze'"
        );
        assert_eq!(
            line(&["pilothouse", "bootstrap", "nginx"]),
            "invalid value 'nginx' for '<CLIENT>' [possible values: envoy, grpc]"
        );
        let missing = line(&["pilothouse", "render"]);
        assert!(
            missing.starts_with("the following required arguments were not provided: --config-dir <DIR>"),
            "{missing}"
        );
        let missing = line(&["pilothouse", "describe"]);
        assert!(missing.contains("requires a subcommand") && missing.contains("[subcommands: service, "), "{missing}");
    }

    #[test]
    fn flags_of_inner_commands_have_environment_twins() {
        each(&Cli::command(), "pilothouse", &mut |command, words| {
            for flag in
                command.get_arguments().filter(|a| a.get_long().is_some_and(|l| !matches!(l, "help" | "version")))
            {
                let twin = flag.get_env().and_then(|e| e.to_str()).unwrap_or_default();
                assert!(twin.starts_with("PILOTHOUSE_"), "{words} {flag}: {twin:?}");
            }
        });
    }

    #[test]
    fn every_long_flag_has_an_environment_twin() {
        for command in Cli::command().get_subcommands() {
            for flag in command.get_arguments().filter(|a| a.get_long().is_some()) {
                let long = flag.get_long().unwrap_or_default();
                if matches!(long, "help" | "version") {
                    continue;
                }
                let twin = format!("PILOTHOUSE_{}", long.replace('-', "_").to_uppercase());
                assert_eq!(
                    flag.get_env().and_then(|e| e.to_str()),
                    Some(twin.as_str()),
                    "{} --{long}",
                    command.get_name()
                );
            }
        }
    }
}
