//! `pilothouse analyze`: what is wrong across the objects of files and of a live cluster, with the codes of `istioctl analyze`.

mod forms;
mod live;
mod sarif;

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::{Args, ValueEnum};
use forms::{Finding, Inputs};
use live::{Live, LiveArgs};

use super::{EXIT_FINDINGS, EXIT_USAGE, MeshArgs, complain, is_one_missing, validate::refusals};
use crate::{
    analysis::{self, Code, Level, Message, Object, Subject, Suppression},
    model::{KindClass, Mesh, Origin},
    settings::{RemoteCluster, SourceSettings},
    sources::{
        Findings, Refused, check_mesh,
        file::{Loaded, Written, load_written},
        yaml,
    },
};

/// Form of the findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Output {
    /// For people; in colours on a terminal.
    #[default]
    #[value(alias = "log")]
    Text,
    /// One JSON document: istioctl's fields, and place and way out.
    Json,
    /// The same in YAML.
    Yaml,
    /// SARIF 2.1.0, for code hosts and editors.
    Sarif,
    /// JUnit XML, for CI servers: a test suite for each file, failures at or above the threshold.
    Junit,
}

/// Arguments of `analyze`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  pilothouse analyze config/ --failure-threshold Warning -o junit > findings.xml\n  \
                  pilothouse analyze --kubeconfig ~/.kube/config -A\n  \
                  pilothouse analyze changed.yaml --kubeconfig ~/.kube/config -n shop"
)]
pub struct AnalyzeArgs {
    /// Files and folders, analysed together.
    #[arg(required_unless_present = "kubeconfig", value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// The live cluster.
    #[command(flatten)]
    pub live: LiveArgs,
    /// Folder with the Services and workloads of another cluster, as NAME=DIR: they are analysed with the others.
    #[arg(long, env = "PILOTHOUSE_REMOTE_CLUSTER", value_name = "NAME=DIR", value_delimiter = ',')]
    pub remote_cluster: Vec<RemoteCluster>,
    /// Mesh-wide settings.
    #[command(flatten)]
    pub mesh: MeshArgs,
    /// Form of the findings.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
    /// Lowest level that ends with exit code 79: Info, Warning or Error.
    #[arg(long, env = "PILOTHOUSE_FAILURE_THRESHOLD", value_name = "LEVEL", default_value_t = Level::Error)]
    pub failure_threshold: Level,
    /// Lowest level that is shown.
    #[arg(long, env = "PILOTHOUSE_OUTPUT_THRESHOLD", value_name = "LEVEL", default_value_t = Level::Info)]
    pub output_threshold: Level,
    /// Findings that are neither shown nor counted, as CODE=KIND NAME.NAMESPACE; `*` stands for any text.
    #[arg(short = 'S', long, env = "PILOTHOUSE_SUPPRESS", value_name = "CODE=RESOURCE", value_delimiter = ',')]
    pub suppress: Vec<Suppression>,
}

/// Analyses the files and the cluster.
///
/// # Errors
/// A cluster that cannot be read, and findings that cannot be written.
pub fn run(args: AnalyzeArgs) -> anyhow::Result<ExitCode> {
    if let Some(remote) = args.remote_cluster.iter().find(|remote| !remote.path.exists()) {
        complain(&format!("--remote-cluster {}={}: no such file or folder", remote.name, remote.path.display()));
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    if is_one_missing(&args.paths) {
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let (found, inputs) = findings(&args)?;
    let reached = found.iter().any(|finding| finding.level() >= args.failure_threshold);
    let shown: Vec<Finding> = found.into_iter().filter(|finding| finding.level() >= args.output_threshold).collect();
    let text = match args.output {
        Output::Text => forms::text(&shown, &inputs, in_colours()),
        Output::Json => serde_json::to_string_pretty(&forms::values(&shown))? + "\n",
        Output::Yaml => yaml::text_of(&forms::values(&shown))?,
        Output::Sarif => serde_json::to_string_pretty(&sarif::document(&shown))? + "\n",
        Output::Junit => forms::junit(&shown, &inputs, args.failure_threshold),
    };
    // A reader that has seen enough and closes its pipe is no error.
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    Ok(if reached { ExitCode::from(EXIT_FINDINGS) } else { ExitCode::SUCCESS })
}

fn in_colours() -> bool {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    std::io::stdout().is_terminal() && !is_plain && !is_dumb
}

/// All findings, ordered by place, and the inputs that were read.
fn findings(args: &AnalyzeArgs) -> anyhow::Result<(Vec<Finding>, Inputs)> {
    let max_file_bytes = SourceSettings::default().max_file_bytes;
    let (mut all, mut written) = (Loaded::default(), Vec::new());
    for path in &args.paths {
        let origin = Origin { source: format!("file:{}", path.display()).into(), ..Origin::default() };
        let (loaded, more) = load_written(path, &origin, max_file_bytes);
        all.extend(loaded);
        written.extend(more);
    }
    for remote in &args.remote_cluster {
        let source = format!("file:{}", remote.path.display()).into();
        let origin = Origin { source, cluster: remote.name.as_str().into(), ..Origin::default() };
        let (mut loaded, more) = load_written(&remote.path, &origin, max_file_bytes);
        // Configuration is read from the main cluster alone.
        loaded.configs.retain(|config| config.kind().class() == KindClass::Kubernetes);
        all.extend(loaded);
        let is_of_kubernetes =
            |w: &Written| w.config.as_ref().is_none_or(|c| c.kind().class() == KindClass::Kubernetes);
        written.extend(more.into_iter().filter(is_of_kubernetes));
    }
    // Objects with their places, without the documents that are no objects; after them those of the cluster.
    let (places, mut objects): (Vec<&Written>, Vec<Object>) =
        written.iter().filter_map(|written| Some((written, object(written)?))).unzip();
    let live = live::read(&args.live, &objects, &args.mesh.domain, &args.mesh.cluster_id)?;
    let files = written.iter().map(|written| written.file.display().to_string()).collect();
    let inputs = Inputs { files, live: live.as_ref().map(|live| live.objects.len()) };
    let mut live = live.unwrap_or_default();
    all.configs.append(&mut live.configs);
    objects.append(&mut live.objects);

    let mut found = of_files(&all.findings);
    found.extend(live.refused.iter().filter(|refused| live.shows(&refused.namespace)).map(of_refused));
    let mesh = mesh(args, &mut live, &mut found);
    let context = refusals::context(mesh, &all.configs);
    let of_envoy = refusals::warnings(&context, &all.configs).into_iter().filter_map(|warned| {
        let is_it = |w: &&Written| w.is_at(&warned.file, warned.line);
        let place = written.iter().find(is_it).map_or((warned.line, 0), |written| written.place("metadata.name"));
        let name = full_name(&warned.namespace, &warned.name);
        let is_shown = !warned.file.is_empty() || live.shows(&warned.namespace);
        is_shown.then(|| Finding::of_file(Code::RefusedByEnvoy, warned.file, place, &warned.kind, name, warned.warning))
    });
    found.extend(of_envoy);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    for message in analysis::analyze(&objects, &context, i64::try_from(now).unwrap_or(i64::MAX)) {
        let Subject::Object(index) = message.subject else {
            found.push(of_mesh(args, &message));
            continue;
        };
        let Some(object) = objects.get(index) else { continue };
        let place = places.get(index);
        let is_shown = place.is_some() || live.shows(&object.namespace);
        if is_shown && !args.suppress.iter().any(|suppression| suppression.covers(message.code, object)) {
            found.push(Finding::of_object(&message, object, place.copied()));
        }
    }
    found.sort();
    found.dedup();
    Ok((found, inputs))
}

/// The mesh settings: those of the files, else those of the cluster, else the defaults.
fn mesh(args: &AnalyzeArgs, live: &mut Live, found: &mut Vec<Finding>) -> Mesh {
    let has_files = args.mesh.mesh_config.is_some() || args.mesh.networks_config.is_some();
    if let Some(mesh) = live.mesh.take().filter(|_| !has_files) {
        return mesh;
    }
    match check_mesh(&args.mesh.settings(), SourceSettings::default().max_file_bytes) {
        Ok((mesh, warned)) => {
            found.extend(warned.into_iter().map(|warned| {
                let text = format!("Schema validation warning: {}", warned.warning);
                let (place, kind) = ((warned.line, warned.column), warned.kind.as_str());
                Finding::of_file(Code::SchemaWarning, warned.file, place, kind, String::new(), text)
            }));
            mesh
        }
        Err(refused) => {
            found.push(of_refused(&refused));
            Mesh::default()
        }
    }
}

fn object(written: &Written) -> Option<Object> {
    match &written.config {
        Some(config) => Some(Object::read(config.clone(), written.warnings.clone())),
        None => {
            let (line, _) = written.place("");
            Object::unread(written.value.clone(), format!("{}:{line}", written.file.display()))
        }
    }
}

fn full_name(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_string() } else { format!("{namespace}/{name}") }
}

fn of_refused(refused: &Refused) -> Finding {
    let text = format!("Schema validation error: {}", refused.reason);
    let name = full_name(&refused.namespace, &refused.name);
    let place = (refused.line, refused.column);
    Finding::of_file(Code::SchemaValidationError, refused.file.clone(), place, &refused.kind, name, text)
}

/// Refused objects, and notes about files and folders.
fn of_files(findings: &Findings) -> Vec<Finding> {
    let refused = findings.refused.iter().map(of_refused);
    let notes = findings.warned.iter().filter(|warned| warned.kind.is_empty()).map(|warned| {
        let text = warned.warning.clone();
        Finding::of_file(Code::PassedOver, warned.file.clone(), (0, 0), "", String::new(), text)
    });
    refused.chain(notes).collect()
}

/// A message about the mesh settings, at its place in their file.
fn of_mesh(args: &AnalyzeArgs, message: &Message) -> Finding {
    let (kind, file) = match message.subject {
        Subject::MeshNetworks => ("MeshNetworks", &args.mesh.networks_config),
        _ => ("MeshConfig", &args.mesh.mesh_config),
    };
    let place = file.as_deref().and_then(|file| place_in(file, &message.path)).unwrap_or_default();
    let file = file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
    Finding::of_file(message.code, file, place, kind, String::new(), message.text.clone())
}

fn place_in(file: &Path, path: &str) -> Option<(u32, u32)> {
    let text = std::fs::read_to_string(file).ok()?;
    let chunk = yaml::documents(&text).first().copied()?;
    let place = yaml::Outline::of(chunk.text)?.place_of(path)?;
    Some((chunk.line + place.line.saturating_sub(1), place.column))
}
