//! `pilothouse describe`: a service or a workload of a running server, with the objects in force for it.

mod text;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::{
    Refusal,
    http::{ServerArgs, quoted},
    output::Output,
};

/// Arguments of `describe`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLE, arg_required_else_help = false)]
pub struct DescribeArgs {
    /// The subject.
    #[command(subcommand)]
    pub subject: Subject,
}

const SERVICE: &str = "Examples:
  pilothouse describe service reviews.shop
  pilothouse describe service reviews.example -o json";
const WORKLOAD: &str = "Example:
  pilothouse describe workload web-7d4b9.shop";
const EXAMPLE: &str = "Examples:
  pilothouse describe service reviews.shop
  pilothouse describe workload web-7d4b9.shop -o json";

/// The subjects of `describe`.
#[derive(Debug, Clone, Subcommand)]
pub enum Subject {
    /// A service: ports, rules, routes, gateways, the policies of its workloads.
    #[command(alias = "svc", after_help = SERVICE)]
    Service(SubjectArgs),
    /// A workload, or a connected proxy: services behind it, and the policies in force for it.
    #[command(aliases = ["proxy", "pod"], after_help = WORKLOAD)]
    Workload(SubjectArgs),
}

/// Arguments of the subjects.
#[derive(Debug, Clone, Args)]
pub struct SubjectArgs {
    /// Name of the object, with its namespace; for a service also its host.
    #[arg(value_name = "NAME[.NAMESPACE]")]
    pub name: String,
    /// The server.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Form of the answer.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
}

/// Prints the description.
///
/// # Errors
/// A server that does not answer; a subject that it does not know.
pub fn run(args: DescribeArgs) -> anyhow::Result<ExitCode> {
    match args.subject {
        Subject::Service(args) => {
            let name = &args.name;
            // A host has dots of its own, so the name as it stands goes first.
            let mut answer = asked(&args.server, &format!("service={}", quoted(name)))?;
            if let (Err((404, _)), Some((name, namespace))) = (&answer, name.rsplit_once('.')) {
                let second = asked(&args.server, &format!("service={}&namespace={}", quoted(name), quoted(namespace)))?;
                answer = second.map_err(|(status, text)| {
                    if status == 404 { (404, format!("no service {:?}", args.name)) } else { (status, text) }
                });
            }
            args.output.write(&answer.map_err(refusal)?, text::service)?;
        }
        Subject::Workload(args) => {
            let answer = asked(&args.server, &format!("proxy={}", quoted(&args.name)))?;
            args.output.write(&answer.map_err(refusal)?, text::workload)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn refusal((_, text): (u16, String)) -> Refusal {
    Refusal(text)
}

/// The page; for a subject that is unknown or ambiguous the status and the text of the server.
fn asked(server: &ServerArgs, query: &str) -> anyhow::Result<Result<Value, (u16, String)>> {
    let answer = server.ask("GET", &format!("/debug/describez?{query}"), "")?;
    match answer.status {
        200 => Ok(Ok(serde_json::from_slice(&answer.body)?)),
        status => {
            let text = String::from_utf8_lossy(&answer.body).trim_end().to_string();
            anyhow::ensure!([404, 409].contains(&status), "the server answered {status}: {text}");
            Ok(Err((status, text)))
        }
    }
}
