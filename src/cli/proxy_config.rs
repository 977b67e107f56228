//! `pilothouse proxy-config`: the configuration of one proxy, as tables that name the object behind each resource.
//!
//! Columns and filters are those of `istioctl proxy-config`. Each type of resource has a file with its rows.

mod clusters;
mod endpoints;
mod examples;
mod extensions;
mod listeners;
mod objects;
mod routes;
mod secrets;

use std::{collections::BTreeMap, process::ExitCode};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::{
    clusters::ClusterFilter, endpoints::EndpointFilter, listeners::ListenerFilter, objects::Services,
    routes::RouteFilter,
};
use super::{
    Refusal,
    dump::{self, Document, Dump, DumpArgs, Part},
    http,
    output::Output,
};

/// Pages of listeners that are read for the objects behind them.
const MOST_PAGES: u64 = 40;

/// Arguments of `proxy-config`.
#[derive(Debug, Clone, Args)]
#[command(after_help = examples::WHOLE, arg_required_else_help = false)]
pub struct ProxyConfigArgs {
    /// The type of resources.
    #[command(subcommand)]
    pub what: What,
}

/// The types of resources.
#[derive(Debug, Clone, Subcommand)]
pub enum What {
    /// Clusters, with the DestinationRule and the service of each.
    #[command(aliases = ["clusters", "c"], after_help = examples::CLUSTER)]
    Cluster(ClusterArgs),
    /// Listeners: a line for each filter chain.
    #[command(aliases = ["listeners", "l"], after_help = examples::LISTENER)]
    Listener(ListenerArgs),
    /// Routes: a line for each route of each virtual host.
    #[command(aliases = ["routes", "r"], after_help = examples::ROUTE)]
    Route(RouteArgs),
    /// Endpoints; from an Envoy with its own opinion of each.
    #[command(aliases = ["endpoints", "ep", "eds"], after_help = examples::ENDPOINT)]
    Endpoint(EndpointArgs),
    /// Certificates and trust bundles, without private keys.
    #[command(aliases = ["secrets", "s"], after_help = examples::SECRET)]
    Secret(PlainArgs),
    /// The bootstrap, of an Envoy or a file: JSON unless another form is asked for.
    #[command(alias = "b", after_help = examples::BOOTSTRAP)]
    Bootstrap(BootstrapArgs),
    /// Extensions that come over ECDS.
    #[command(alias = "ec", after_help = examples::ECDS)]
    Ecds(PlainArgs),
    /// Everything.
    #[command(alias = "a", after_help = examples::ALL)]
    All(AllArgs),
}

/// Arguments of `proxy-config cluster`.
#[derive(Debug, Clone, Args)]
pub struct ClusterArgs {
    /// The proxy.
    #[command(flatten)]
    pub from: DumpArgs,
    /// The clusters that are shown.
    #[command(flatten)]
    pub filter: ClusterFilter,
    /// Form of the answer.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `proxy-config listener`.
#[derive(Debug, Clone, Args)]
pub struct ListenerArgs {
    /// The proxy.
    #[command(flatten)]
    pub from: DumpArgs,
    /// The listeners that are shown.
    #[command(flatten)]
    pub filter: ListenerFilter,
    /// Form of the answer.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `proxy-config route`.
#[derive(Debug, Clone, Args)]
pub struct RouteArgs {
    /// The proxy.
    #[command(flatten)]
    pub from: DumpArgs,
    /// The routes that are shown.
    #[command(flatten)]
    pub filter: RouteFilter,
    /// Form of the answer.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `proxy-config endpoint`.
#[derive(Debug, Clone, Args)]
pub struct EndpointArgs {
    /// The proxy.
    #[command(flatten)]
    pub from: DumpArgs,
    /// The endpoints that are shown.
    #[command(flatten)]
    pub filter: EndpointFilter,
    /// Form of the answer.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of `proxy-config bootstrap`.
#[derive(Debug, Clone, Args)]
pub struct BootstrapArgs {
    /// The proxy.
    #[command(flatten)]
    pub from: DumpArgs,
    /// Form of the answer; a table has the versions alone.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value = "json")]
    pub output: Output,
}

/// Arguments of `proxy-config all`.
#[derive(Debug, Clone, Args)]
pub struct AllArgs {
    /// The proxy.
    #[command(flatten)]
    pub from: DumpArgs,
    /// The clusters that are shown, with their endpoints; the port counts for listeners, too. JSON and YAML have everything.
    #[command(flatten)]
    pub clusters: ClusterFilter,
    /// Address that a listener is bound to, without its port.
    #[arg(long, env = "PILOTHOUSE_ADDRESS", value_name = "ADDRESS")]
    pub address: Option<String>,
    /// Type of a listener: HTTP, TCP, HTTP+TCP or UNKNOWN.
    #[arg(long, env = "PILOTHOUSE_TYPE", value_name = "TYPE", ignore_case = true, value_parser = listeners::TYPES)]
    pub r#type: Option<String>,
    /// Name of a route configuration.
    #[arg(long, env = "PILOTHOUSE_ROUTE_NAME", value_name = "NAME")]
    pub name: Option<String>,
    /// Form of the answer.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
}

/// Arguments of the types without filters.
#[derive(Debug, Clone, Args)]
pub struct PlainArgs {
    /// The proxy.
    #[command(flatten)]
    pub from: DumpArgs,
    /// Form of the answer.
    #[arg(short, long, env = "PILOTHOUSE_OUTPUT", value_enum, default_value_t)]
    pub output: Output,
}

/// Prints the resources.
///
/// # Errors
/// A place that does not answer, a proxy that is not connected, a file that is no config dump.
pub fn run(args: ProxyConfigArgs) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Cluster(args) => {
            let services = services(&args.from);
            let kept = args.filter.kept(Dump::of(args.from.document()?)?.all(Part::Clusters));
            args.output.write(&Value::Array(kept.clone()), |_| clusters::table(&kept, &services))?;
        }
        What::Listener(args) => {
            let kept = args.filter.kept(Dump::of(args.from.document()?)?.all(Part::Listeners));
            args.output.write(&Value::Array(kept.clone()), |_| listeners::table(&kept, &origins(&args.from)))?;
        }
        What::Route(args) => {
            let kept = args.filter.kept(Dump::of(args.from.document()?)?.all(Part::Routes));
            args.output.write(&Value::Array(kept.clone()), |_| routes::table(&kept))?;
        }
        What::Endpoint(args) => endpoint(&args)?,
        What::Secret(args) => {
            let secrets = Dump::of(args.from.document()?)?.secrets();
            let value = secrets.iter().map(|(state, secret)| json!({"state": state, "secret": secret})).collect();
            args.output.write(&value, |_| secrets::table(&secrets))?;
        }
        What::Bootstrap(args) => {
            let document = args.from.document()?;
            let without = format!("{}: it has no bootstrap; ask Envoy itself by --envoy-admin", document.place);
            let bootstrap = Dump::of(document)?.bootstrap().ok_or(Refusal(without))?;
            args.output.write(&bootstrap, versions)?;
        }
        What::Ecds(args) => {
            let extensions = Dump::of(args.from.document()?)?.all(Part::Extensions);
            args.output.write(&Value::Array(extensions.clone()), |_| extensions::table(&extensions))?;
        }
        What::All(args) => {
            let services = services(&args.from);
            let dump = Dump::of(args.from.document()?)?;
            args.output.write(&dump.whole(), |_| everything(&args, &dump, &services))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The services of the server that is asked, by which tables name the kind of a service's object. A server that does not show
/// them (to a caller from elsewhere) leaves the names without kinds.
fn services(from: &DumpArgs) -> Services {
    let asked = from.proxy.as_ref().and_then(|_| from.server.fetch("/debug/registryz").ok());
    Services::of(&asked.unwrap_or_default())
}

/// The object behind each listener, by the listener's name, as the server that is asked tells it. Envoy does not know those of
/// plain HTTP.
fn origins(from: &DumpArgs) -> BTreeMap<String, String> {
    let mut origins = BTreeMap::new();
    let id = from.proxy.as_ref().and_then(|asked| dump::connection(&from.server, asked));
    let Some(id) = id.map(|id| http::quoted(&id)) else { return origins };
    for page in 1..=MOST_PAGES {
        let path = format!("/dashboard/api/resources?id={id}&type=LDS&page={page}");
        let Ok(answer) = from.server.fetch(&path) else { break };
        for row in answer["rows"].as_array().into_iter().flatten() {
            let [kind, namespace, name] = ["kind", "namespace", "name"].map(|key| row["origin"][key].as_str());
            if let (Some(listener), Some(kind), Some(namespace), Some(name)) =
                (row["name"].as_str(), kind, namespace, name)
            {
                origins.insert(listener.to_string(), format!("{kind}/{name}.{namespace}"));
            }
        }
        if answer["pages"].as_u64().is_none_or(|pages| pages <= page) {
            break;
        }
    }
    origins
}

/// Endpoints are shown with Envoy's own opinion where an Envoy is asked: that is on another page, which a file may hold, too.
fn endpoint(args: &EndpointArgs) -> anyhow::Result<()> {
    let document = args.from.document()?;
    let of_file = endpoints::is_page_of_hosts(&document.value);
    let (dump, hosts) = if of_file {
        (Document { value: json!({"configs": []}), ..document.clone() }, Some(document.value))
    } else {
        let page = args.from.envoy_admin.as_ref().map(|address| http::fetch(address, "/clusters?format=json"));
        (document, page.transpose()?)
    };
    let configured = Dump::of(dump)?.all(Part::Endpoints);
    let rows = match &hosts {
        Some(hosts) => endpoints::of_hosts(hosts, &configured),
        None => endpoints::of_dump(&configured),
    };
    let rows = args.filter.kept(rows);
    let value = rows.iter().map(endpoints::Row::value).collect();
    args.output.write(&value, |_| endpoints::table(&rows))
}

/// The versions of the proxy that a bootstrap names.
fn versions(bootstrap: &Value) -> String {
    let node = &bootstrap["node"];
    let metadata = |key: &str| node["metadata"][key].as_str().unwrap_or_default();
    let build = &node["userAgentBuildVersion"];
    let number = |key: &str| build["version"][key].as_u64().unwrap_or_default();
    let mut envoy = format!("{}.{}.{}", number("majorNumber"), number("minorNumber"), number("patch"));
    for (key, mark) in [("build.label", '-'), ("revision.status", '/'), ("build.type", '/'), ("ssl.version", '/')] {
        if let Some(text) = build["metadata"][key].as_str() {
            envoy.push(mark);
            envoy.push_str(text);
        }
    }
    let proxy = metadata("ISTIO_PROXY_SHA").rsplit(':').next().unwrap_or_default();
    let envoy = if build.is_object() { envoy.as_str() } else { "" };
    let lines =
        [("Istio Version:", metadata("ISTIO_VERSION")), ("Istio Proxy Version:", proxy), ("Envoy Version:", envoy)];
    let shown = lines.into_iter().filter(|(_, text)| !text.is_empty());
    shown.map(|(title, text)| format!("{title:<20} {text}\n")).collect()
}

fn everything(args: &AllArgs, dump: &Dump, services: &Services) -> String {
    let bootstrap = dump.bootstrap().map(|b| versions(&b)).unwrap_or_default();
    let listeners =
        ListenerFilter { address: args.address.clone(), port: args.clusters.port, r#type: args.r#type.clone() };
    let routes = RouteFilter { name: args.name.clone() };
    let mut endpoints = EndpointFilter::default().kept(endpoints::of_dump(&dump.all(Part::Endpoints)));
    endpoints.retain(|row| args.clusters.fits_name(row.cluster()));
    let parts = [
        ("BOOTSTRAP", bootstrap),
        ("CLUSTERS", clusters::table(&args.clusters.kept(dump.all(Part::Clusters)), services)),
        ("LISTENERS", listeners::table(&listeners.kept(dump.all(Part::Listeners)), &origins(&args.from))),
        ("ROUTES", routes::table(&routes.kept(dump.all(Part::Routes)))),
        ("SECRETS", secrets::table(&dump.secrets())),
        ("ENDPOINTS", endpoints::table(&endpoints)),
        ("ECDS", extensions::table(&dump.all(Part::Extensions))),
    ];
    let shown = parts.iter().filter(|(_, text)| text.lines().count() > usize::from(text.contains("  ")));
    let texts: Vec<String> = shown.map(|(title, text)| format!("------ {title} ------\n\n{text}")).collect();
    texts.join("\n")
}
