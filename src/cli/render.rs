//! `pilothouse render`: the resources that one proxy would be sent, written to files, without a server.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use anyhow::Context;
use clap::Args;
use prost::{Message, Name};
use serde_json::{Value, json};

use super::{EXIT_DATA, EXIT_USAGE, MeshArgs, is_one_missing};
use crate::{
    discovery::Composer,
    generate::secret,
    model::{ConfigSnapshot, Features, Identity, Locality, Mesh, Node, Origin},
    proto::to_json,
    push::{PushContext, context::PushInputs},
    registry::ServiceEntryStore,
    settings::{RemoteCluster, SourceSettings},
    sources::{Findings, file::load, mesh::read_mesh},
};

/// Arguments of `render`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLE)]
pub struct RenderArgs {
    /// Folder of Istio and Kubernetes YAML.
    #[arg(
        long,
        alias = "configDir",
        env = "PILOTHOUSE_CONFIG_DIR",
        value_name = "DIR",
        value_delimiter = ',',
        required = true
    )]
    pub config_dir: Vec<PathBuf>,
    /// Mesh-wide settings.
    #[command(flatten)]
    pub mesh: MeshArgs,
    /// Folder with the services, workloads and Secrets of another cluster, as NAME=DIR.
    #[arg(long, env = "PILOTHOUSE_REMOTE_CLUSTER", value_name = "NAME=DIR", value_delimiter = ',')]
    pub remote_cluster: Vec<RemoteCluster>,
    /// Node id, TYPE~IP~NAME.NS~NS.svc.DOMAIN.
    #[arg(
        long,
        env = "PILOTHOUSE_NODE",
        value_name = "ID",
        conflicts_with = "node_file",
        required_unless_present = "node_file"
    )]
    pub node: Option<String>,
    /// Node metadata (JSON).
    #[arg(long, env = "PILOTHOUSE_METADATA", value_name = "FILE.json", conflicts_with = "node_file")]
    pub metadata: Option<PathBuf>,
    /// Locality of the node.
    #[arg(long, env = "PILOTHOUSE_LOCALITY", value_name = "REGION/ZONE/SUBZONE", conflicts_with = "node_file")]
    pub locality: Option<String>,
    /// An Envoy Node in JSON.
    #[arg(long, env = "PILOTHOUSE_NODE_FILE", value_name = "NODE.json")]
    pub node_file: Option<PathBuf>,
    /// SPIFFE identity that the proxy authenticates with.
    #[arg(long, env = "PILOTHOUSE_IDENTITY", value_name = "spiffe://…")]
    pub identity: Option<String>,
    /// Listener that a proxyless gRPC client requests.
    #[arg(long, env = "PILOTHOUSE_LISTENER", value_name = "NAME", value_delimiter = ',')]
    pub listener: Vec<String>,
    /// Folder to write to.
    #[arg(long, env = "PILOTHOUSE_OUT", value_name = "DIR")]
    pub out: PathBuf,
}

const EXAMPLE: &str = "Example:
  pilothouse render --config-dir mesh --node sidecar~192.0.2.1~web.shop~shop.svc.cluster.local --out resources";

/// Writes the resources that the proxy would be sent.
///
/// # Errors
/// Inputs that cannot be read, or files that cannot be written.
pub fn run(args: RenderArgs) -> anyhow::Result<ExitCode> {
    if is_one_missing(&args.config_dir) {
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let node = match node(&args) {
        Ok(node) => node,
        Err(error) => {
            eprintln!("pilothouse: {error:#}");
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    let mesh = match read_mesh(&args.mesh.settings(), SourceSettings::default().max_file_bytes) {
        Ok(mesh) => Arc::new(mesh),
        Err(error) => {
            eprintln!("pilothouse: {error}");
            return Ok(ExitCode::from(EXIT_DATA));
        }
    };
    let (features, wrong) = Features::from_env();
    for text in wrong {
        eprintln!("pilothouse: {text}");
    }
    let (configs, findings) = configs(&args)?;
    for refused in &findings.refused {
        eprintln!("pilothouse: {refused}");
    }
    let identity = match &args.identity {
        Some(text) => Some(Identity::parse(text).with_context(|| format!("{text:?} is not a SPIFFE identity"))?),
        // Without `--identity` the node is trusted, as the server trusts clients on the loopback interface.
        None => Some(Identity::claimed(&node, &mesh.config.trust_domain)),
    };
    let context = context(mesh, Arc::new(features), configs);
    fs::create_dir_all(&args.out).with_context(|| format!("creating {}", args.out.display()))?;
    write(&args.out, &context, &node, &args.listener, identity.as_ref())?;
    write_file(&args.out, "rejected", &rejected(&findings))?;
    Ok(ExitCode::SUCCESS)
}

/// The context that a server would have after reading the same files.
fn context(mesh: Arc<Mesh>, features: Arc<Features>, configs: ConfigSnapshot) -> PushContext {
    let registry = ServiceEntryStore::of(mesh.clone(), features.clone(), &configs).snapshot();
    PushContext::build(PushInputs { mesh, features, configs, registry, ..PushInputs::default() })
}

/// The objects of all folders; the first folder that holds a key wins. Remote clusters have keys of their own.
fn configs(args: &RenderArgs) -> anyhow::Result<(ConfigSnapshot, Findings)> {
    let limit = SourceSettings::default().max_file_bytes;
    let origin = |path: &Path, cluster: &str| Origin {
        source: format!("file:{}", path.display()).into(),
        cluster: cluster.into(),
        ..Origin::default()
    };
    let mut all = load::Loaded::default();
    for path in &args.config_dir {
        all.extend(load::load(path, &origin(path, ""), limit));
    }
    let load::Loaded { mut configs, mut findings, .. } = all;
    for remote in &args.remote_cluster {
        let more = load::load(&remote.path, &origin(&remote.path, &remote.name), limit);
        configs.extend(more.configs);
        findings.refused.extend(more.findings.refused);
    }
    Ok((ConfigSnapshot::of(configs), findings))
}

fn node(args: &RenderArgs) -> anyhow::Result<Node> {
    let read = |path: &Path| -> anyhow::Result<Value> {
        let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", path.display()))
    };
    if let Some(path) = &args.node_file {
        let node = read(path)?;
        let part = |key: &str, other: &str| -> Arc<str> {
            node["locality"][key].as_str().or(node["locality"][other].as_str()).unwrap_or_default().into()
        };
        let locality =
            Locality { region: part("region", ""), zone: part("zone", ""), subzone: part("subZone", "sub_zone") };
        let id = node["id"].as_str().with_context(|| format!("{} has no id", path.display()))?;
        return Ok(Node::from_parts(id, node["metadata"].clone(), locality)?);
    }
    let metadata = args.metadata.as_deref().map_or(Ok(Value::Null), read)?;
    let locality = args.locality.as_deref().map_or_else(Locality::default, Locality::parse);
    Ok(Node::from_parts(args.node.as_deref().unwrap_or_default(), metadata, locality)?)
}

fn write(
    out: &Path,
    context: &PushContext,
    node: &Node,
    listeners: &[String],
    identity: Option<&Identity>,
) -> anyhow::Result<()> {
    let got = Composer::new(context, context.view_of(node), identity).all(listeners)?;
    let requested = secret::names(&got.clusters, &got.listeners);
    write_file(out, "clusters", &json_list(&got.clusters, "name")?)?;
    write_file(out, "endpoints", &json_list(&got.endpoints, "clusterName")?)?;
    write_file(out, "listeners", &json_list(&got.listeners, "name")?)?;
    write_file(out, "routes", &json_list(&got.routes, "name")?)?;
    write_file(out, "extensions", &json_list(&got.extensions, "name")?)?;
    let tables: Vec<_> = got.name_table.into_iter().collect();
    write_file(out, "nds", &json_list(&tables, "name")?)?;
    let secrets = json!({"requested": requested, "resources": json_list(&got.secrets, "name")?});
    write_file(out, "secrets", &secrets)
}

fn json_list<M: Message + Name>(messages: &[M], name: &str) -> anyhow::Result<Value> {
    let mut list = messages.iter().map(to_json).collect::<Result<Vec<Value>, _>>()?;
    list.iter_mut().for_each(Value::sort_all_objects);
    list.sort_by(|a, b| a[name].as_str().cmp(&b[name].as_str()));
    Ok(Value::Array(list))
}

fn rejected(findings: &Findings) -> Value {
    let mut list: Vec<Value> = findings
        .refused
        .iter()
        .map(|r| json!({"Kind": r.kind, "Namespace": r.namespace, "Name": r.name, "Error": r.reason}))
        .collect();
    list.sort_by_key(|v| (v["Kind"].to_string(), v["Namespace"].to_string(), v["Name"].to_string()));
    Value::Array(list)
}

fn write_file(out: &Path, name: &str, value: &Value) -> anyhow::Result<()> {
    let path = out.join(format!("{name}.json"));
    let text = serde_json::to_string_pretty(value)? + "\n";
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}
