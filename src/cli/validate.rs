//! `pilothouse validate`: checks files without serving them.

mod references;
pub(super) mod refusals;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{EXIT_DATA, EXIT_USAGE, MeshArgs, is_one_missing, output::print};
use crate::{
    model::{Kind, Mesh, Origin},
    settings::SourceSettings,
    sources::{
        Findings, Ignored, Refused, Warned, check_mesh,
        file::load::{Loaded, load_for_api_server},
    },
};

/// Form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// One JSON document.
    Json,
}

/// Arguments of `validate`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLE)]
pub struct ValidateArgs {
    /// Files and folders.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Mesh-wide settings, which are checked too.
    #[command(flatten)]
    pub mesh: MeshArgs,
    /// Form of the answer.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
    /// Refuse documents that are no Kubernetes objects (charts, values, workflows), which are skipped by default, and Istio's
    /// objects that a Kubernetes API server would refuse, misspelt kinds among them, which are warnings by default.
    #[arg(long, env = "PILOTHOUSE_STRICT")]
    pub strict: bool,
}

const EXAMPLE: &str = "Examples:
  pilothouse validate mesh --mesh-config mesh.yaml
  pilothouse validate --strict -o json mesh";

/// Checks the files.
///
/// # Errors
/// An answer that cannot be printed.
pub fn run(args: ValidateArgs) -> anyhow::Result<ExitCode> {
    if is_one_missing(&args.paths) {
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let mut all = Loaded::default();
    let max_file_bytes = SourceSettings::default().max_file_bytes;
    for path in &args.paths {
        let origin = Origin { source: format!("file:{}", path.display()).into(), ..Origin::default() };
        all.extend(load_for_api_server(path, &origin, max_file_bytes));
    }
    let mesh = match check_mesh(&args.mesh.settings(), max_file_bytes) {
        Ok((mesh, warnings)) => {
            all.findings.warned.extend(warnings);
            mesh
        }
        Err(refused) => {
            all.findings.refused.push(*refused);
            Mesh::default()
        }
    };
    let context = refusals::context(mesh, &all.configs);
    let mut found = refusals::warnings(&context, &all.configs);
    found.extend(references::warnings(&context, &all.configs));
    let findings = &mut all.findings;
    findings.warned.extend(found);
    if args.strict {
        findings.refused.append(&mut findings.skipped);
        findings.refused.extend(all.for_api_server.drain(..).map(for_api_server));
        refuse_unknown_kinds(findings);
    }
    findings.warned.extend(all.for_api_server.drain(..).map(|refused| as_warning(for_api_server(refused))));
    findings.refused.sort();
    findings.warned.sort();
    match args.output {
        Output::Text => print(&text(&all))?,
        Output::Json => {
            let answer = json!({
                "valid": all.findings.refused.is_empty(),
                "objects": all.configs.len(),
                "refused": all.findings.refused,
                "warned": all.findings.warned,
                "skipped": all.findings.skipped,
                "ignored": all.findings.ignored,
            });
            print(&(serde_json::to_string_pretty(&answer)? + "\n"))?;
        }
    }
    Ok(if all.findings.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_DATA) })
}

/// Refuses objects of Istio's groups whose kind or version does not exist: a misspelt one would otherwise be passed over.
fn refuse_unknown_kinds(findings: &mut Findings) {
    for ignored in std::mem::take(&mut findings.ignored) {
        let (group, _) = ignored.api_version.split_once('/').unwrap_or_default();
        let warning = Kind::unknown_of_known_group(&ignored.api_version, &ignored.kind);
        let Some(warning) = warning.filter(|_| group.ends_with(".istio.io")) else {
            findings.ignored.push(ignored);
            continue;
        };
        let Ignored { file, line, kind, name, .. } = ignored;
        findings.warned.retain(|w| w.warning != warning || w.line != line || w.file != file);
        let reason = warning.trim_start_matches("not read: ").to_string();
        findings.refused.push(Refused { file, line, column: 0, kind, namespace: String::new(), name, reason });
    }
}

/// Says whose rules refuse the object: a file source takes it.
fn for_api_server(refused: Refused) -> Refused {
    Refused { reason: format!("a Kubernetes API server would refuse it: {}", refused.reason), ..refused }
}

fn as_warning(refused: Refused) -> Warned {
    let Refused { file, line, column, kind, namespace, name, reason } = refused;
    Warned { file, line, column, kind, namespace, name, warning: reason }
}

fn text(all: &Loaded) -> String {
    let mut out = String::new();
    let findings = &all.findings;
    for refused in &findings.refused {
        out.push_str(&format!("{refused}\n"));
    }
    for warned in &findings.warned {
        out.push_str(&format!("{warned}\n"));
    }
    for skipped in &findings.skipped {
        let (file, line) = (&skipped.file, skipped.line);
        out.push_str(&format!("{file}:{line}: skipped: no Kubernetes object ({})\n", skipped.reason));
    }
    for ignored in &findings.ignored {
        let (file, line, name) = (&ignored.file, ignored.line, &ignored.name);
        out.push_str(&format!("{file}:{line}: not read: {} of {} {name}\n", ignored.kind, ignored.api_version));
    }
    let skipped = match findings.skipped.len() {
        0 => String::new(),
        n => format!(", {n} documents that are no Kubernetes objects skipped"),
    };
    out.push_str(&format!(
        "{} objects taken, {} refused, {} warnings, {} of kinds that are not read{skipped}\n",
        all.configs.len(),
        findings.refused.len(),
        findings.warned.len(),
        findings.ignored.len()
    ));
    out
}
