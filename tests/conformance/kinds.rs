//! The table of kinds in the guide (`src/guide/kinds.md`): effects, which stand here, and counts, which are taken from the lists
//! of the tests. A kind without a line here does not compile; a table that is not the one of the lists fails the test.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use pilothouse::model::{Kind, KindClass};

use crate::{
    data,
    differences::Differences,
    ratchet::{lines, passing_list},
    recorded,
};

/// Writes the table.
const UPDATE: &str = "PILOTHOUSE_KINDS=update cargo test --test conformance kinds";

/// No effect.
const NONE: &str = "–";

/// The effects of a kind: for Envoy, for proxyless gRPC.
const fn effects(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::AuthorizationPolicy => {
            ("ALLOW, DENY, AUDIT, CUSTOM for requests and connections", "ALLOW and DENY in servers; the rest is told")
        }
        Kind::DestinationRule => (
            "clusters: subsets, load balancing, limits, outlier detection, TLS",
            "clusters, as far as gRPC reads them; the rest is told",
        ),
        Kind::EnvoyFilter => (
            "patches of all targets; those of the bootstrap by the command that writes it",
            "patches of clusters, virtual hosts and routes",
        ),
        Kind::Gateway => ("listeners of gateways", NONE),
        Kind::PeerAuthentication => ("mutual TLS of servers", "mutual TLS of servers"),
        Kind::ProxyConfig => ("the bootstrap; settings of the proxy", NONE),
        Kind::RequestAuthentication => ("tokens of requests", "none, which is told"),
        Kind::ServiceEntry => ("services and endpoints", "services and endpoints"),
        Kind::Sidecar => ("services that a proxy sees; its listeners", "services that a client sees"),
        Kind::Telemetry => ("access logs, spans, Istio's metrics", NONE),
        Kind::TrafficExtension => ("Lua and Wasm filters", "none, which is told"),
        Kind::VirtualService => ("routes of HTTP, TLS and TCP", "routes, as far as gRPC reads them; the rest is told"),
        Kind::WasmPlugin => ("Wasm filters", "none, which is told"),
        Kind::WorkloadEntry => ("endpoints", "endpoints"),
        Kind::WorkloadGroup => ("template of machines that register themselves", "the same"),
        Kind::ConfigMap => ("authorities that Gateway API refers to; roots for namespaces", NONE),
        Kind::Endpoints => ("endpoints, where no EndpointSlices mirror them", "the same"),
        Kind::EndpointSlice => ("endpoints", "endpoints"),
        Kind::Namespace => ("labels of selectors, network, defaults of services", "the same"),
        Kind::Node => ("localities; addresses of node ports", "localities"),
        Kind::Pod => ("labels, accounts and ports of workloads", "the same"),
        Kind::Secret => ("certificates of gateways and destinations; clusters; pull secrets", NONE),
        Kind::Service => ("services", "services"),
        Kind::Ingress => ("listeners and routes of gateways", NONE),
        Kind::IngressClass => ("the Ingresses that count", NONE),
        Kind::MutatingWebhookConfiguration => ("tags of revisions: the statuses that are ours to write", NONE),
        Kind::GatewayClass => ("the Gateways that count", NONE),
        Kind::KubernetesGateway => ("listeners of gateways", NONE),
        Kind::HTTPRoute | Kind::GRPCRoute => ("routes of gateways and of the mesh", "routes of the mesh"),
        Kind::TCPRoute | Kind::TLSRoute => ("routes of gateways and of the mesh", NONE),
        Kind::ReferenceGrant => ("references between namespaces", "references between namespaces"),
        Kind::ListenerSet => ("further listeners of a Gateway", NONE),
        Kind::BackendTLSPolicy => ("TLS towards services", "as a DestinationRule"),
        Kind::XBackend => ("destinations of routes", "destinations of routes"),
        Kind::XBackendTrafficPolicy => ("as a DestinationRule", "as a DestinationRule"),
        Kind::InferencePool => ("destinations whose endpoints a picker chooses", NONE),
        Kind::BackendPolicy => ("TLS towards services", "as a DestinationRule"),
        Kind::ServiceApisGatewayClass | Kind::ServiceApisGateway => ("listeners of gateways", NONE),
        Kind::ServiceApisHTTPRoute | Kind::ServiceApisTCPRoute | Kind::ServiceApisTLSRoute => {
            ("routes of gateways", NONE)
        }
        Kind::MeshPolicy
        | Kind::Policy
        | Kind::HTTPAPISpec
        | Kind::HTTPAPISpecBinding
        | Kind::QuotaSpec
        | Kind::QuotaSpecBinding
        | Kind::ClusterRbacConfig
        | Kind::RbacConfig
        | Kind::ServiceRole
        | Kind::ServiceRoleBinding => ("none: kinds of Istio 1.6, reported as retired", NONE),
    }
}

/// Words of the tests of Istio's definitions.
const ABBREVIATED: [(&str, Kind); 4] = [
    ("authz", Kind::AuthorizationPolicy),
    ("peerauth", Kind::PeerAuthentication),
    ("reqauth", Kind::RequestAuthentication),
    ("wasm", Kind::WasmPlugin),
];

fn of_istio(is_it: impl Fn(&str) -> bool) -> Option<Kind> {
    Kind::ALL.iter().copied().find(|kind| kind.class() == KindClass::Istio && is_it(kind.as_str()))
}

/// The kind of Gateway API that the name of one of its tests begins with.
fn of_gateway_api(test: &str) -> Option<Kind> {
    let class = |kind: &&Kind| kind.class() == KindClass::GatewayApi && kind.group() != "networking.x-k8s.io";
    let begins = |kind: &&Kind| test.starts_with(kind.as_str());
    Kind::ALL.iter().filter(class).filter(begins).max_by_key(|kind| kind.as_str().len()).copied()
}

/// The kinds of the objects in the files of a folder.
fn in_folder(folder: &Path) -> BTreeSet<Kind> {
    let files = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let inputs = files.filter(|file| {
        let name = file.file_name().unwrap().to_string_lossy();
        name.ends_with(".yaml") && (name.starts_with("config") || name.starts_with("input"))
    });
    let documents = inputs.flat_map(|file| data::yaml(&file));
    documents.filter_map(|d| Kind::parse(d["apiVersion"].as_str()?, d["kind"].as_str()?)).collect()
}

/// The kinds that a case is about, as far as its name or the repository says.
fn kinds_of(case: &str, scenarios: &mut BTreeMap<PathBuf, BTreeSet<Kind>>) -> BTreeSet<Kind> {
    let (family, rest) = case.split_once('/').unwrap();
    let first = rest.split('/').next().unwrap();
    let one = match family {
        "authorization" => Some(Kind::AuthorizationPolicy),
        "envoyfilter" => Some(Kind::EnvoyFilter),
        "ingress" => Some(Kind::Ingress),
        "routes" => Some(Kind::VirtualService),
        "telemetry" => Some(Kind::Telemetry),
        "validation-schema" if first == "crds" => {
            let word = rest.split('/').nth(1).and_then(|name| name.split('-').next()).unwrap_or_default();
            let abbreviated = ABBREVIATED.iter().find(|(short, _)| *short == word).map(|(_, kind)| *kind);
            abbreviated.or_else(|| of_istio(|name| name.to_lowercase() == word))
        }
        "validation" | "validation-schema" => of_istio(|name| name == first),
        "gateway-api-upstream" | "gateway-api-upstream-requests" => of_gateway_api(first),
        _ => None,
    };
    if one.is_some() {
        return one.into_iter().collect();
    }
    let folder = match family {
        "xds" if !data::own(family).join(first).is_dir() => recorded::scenarios().join(first),
        "xds" => data::own(family).join(first),
        _ => data::own(family).join(rest),
    };
    scenarios.entry(folder.clone()).or_insert_with(|| in_folder(&folder)).clone()
}

/// Cases of each kind: those that agree, and all.
fn cases() -> BTreeMap<Kind, (usize, usize)> {
    let passing = lines(&passing_list());
    let differences = Differences::read();
    let named =
        [&differences.differs, &differences.incomplete, &differences.not_built].into_iter().flat_map(BTreeMap::keys);
    let all: BTreeSet<&String> = passing.iter().chain(named).collect();
    let (mut counts, mut scenarios) = (BTreeMap::new(), BTreeMap::new());
    for case in all {
        for kind in kinds_of(case, &mut scenarios) {
            let count: &mut (usize, usize) = counts.entry(kind).or_default();
            count.0 += usize::from(passing.contains(case));
            count.1 += 1;
        }
    }
    counts
}

/// Functions of the tests' objects, and their kinds.
const MAKERS: [(&str, Kind); 4] = [
    ("service(", Kind::ServiceEntry),
    ("subsets(", Kind::DestinationRule),
    ("gateway(", Kind::Gateway),
    ("gateway_of(", Kind::Gateway),
];

/// Tests with real clients or API servers, in files that use a kind.
fn traffic() -> BTreeMap<Kind, usize> {
    let mut open = ["tests/clients", "tests/kubernetes"].map(|folder| root().join(folder)).to_vec();
    let mut counts = BTreeMap::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let mut text = fs::read_to_string(&path).unwrap();
        let tests =
            text.lines().filter(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test")).count();
        // The module above a folder has the helpers of its files.
        text += &fs::read_to_string(path.parent().unwrap().with_extension("rs")).unwrap_or_default();
        for kind in Kind::ALL.iter().filter(|kind| tests > 0 && uses(&text, **kind)) {
            *counts.entry(*kind).or_default() += tests;
        }
    }
    counts
}

/// Whether a file of tests says the kind; names that two groups have are told apart by the group.
fn uses(text: &str, kind: Kind) -> bool {
    let made = MAKERS.iter().any(|(maker, of)| *of == kind && text.contains(&format!(" {maker}")));
    let name = kind.as_str();
    let said = [format!("\"{name}\""), format!("kind: {name}")].iter().any(|said| text.contains(said));
    let group = match kind.class() {
        KindClass::GatewayApi => text.contains(kind.group()),
        KindClass::Istio if kind == Kind::Gateway => text.contains("networking.istio.io") || text.contains("object("),
        _ => true,
    };
    made || (said && group)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// The chapter.
fn chapter() -> String {
    let (cases, traffic) = (cases(), traffic());
    let mut text = format!(
        "# Kinds\n\nEvery kind of object that is read, and its effect.\n\n\
         - **cases**: inputs with Istio's own outputs, and Gateway API's own tests, that name the kind: those that agree, of all. The \
         others stand with a reason in `tests/conformance/differences.yaml`.\n\
         - **traffic**: tests with real Envoys, gRPC programs or a Kubernetes API server, in files that use the kind: at least.\n\n\
         `{UPDATE}` writes this page, and a test compares it with the lists.\n"
    );
    let classes = [
        (KindClass::Istio, "Istio"),
        (KindClass::GatewayApi, "Gateway API and the service APIs"),
        (KindClass::Kubernetes, "Kubernetes"),
        (KindClass::Retired, "Retired"),
    ];
    for (class, title) in classes {
        text +=
            &format!("\n## {title}\n\n| kind | Envoy | proxyless gRPC | cases | traffic |\n|---|---|---|---|---|\n");
        for kind in Kind::ALL.iter().filter(|kind| kind.class() == class) {
            let (envoy, grpc) = effects(*kind);
            let count = cases.get(kind).map_or_else(|| NONE.to_string(), |(agree, all)| format!("{agree} of {all}"));
            let tests = traffic.get(kind).map_or_else(|| NONE.to_string(), ToString::to_string);
            let name = if kind.group() == "networking.x-k8s.io" { "(service APIs)" } else { "" };
            let name = format!("{} {name}", kind.as_str());
            text += &format!("| {} | {envoy} | {grpc} | {count} | {tests} |\n", name.trim());
        }
    }
    text
}

/// Whether a written line holds beside that of the lists: there may be more tests of traffic by now.
fn is_true(written: &str, made: &str) -> bool {
    let split = |line: &'_ str| -> Option<(String, usize)> {
        let (rest, tests) = line.strip_prefix('|')?.strip_suffix(" |")?.rsplit_once("| ")?;
        Some((rest.to_string(), if tests == NONE { 0 } else { tests.parse().ok()? }))
    };
    match (split(written), split(made)) {
        (Some((said, at_least)), Some((rest, tests))) => said == rest && at_least <= tests,
        _ => written == made,
    }
}

/// The chapter says what the lists say; each kind has an effect, or the reason for having none.
pub fn check() {
    let (made, path) = (chapter(), root().join("src/guide/kinds.md"));
    if std::env::var("PILOTHOUSE_KINDS").as_deref() == Ok("update") {
        fs::write(&path, &made).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let differ: Vec<(&str, &str)> = made.lines().zip(written.lines()).filter(|(a, b)| !is_true(b, a)).collect();
    let same_length = made.lines().count() == written.lines().count();
    assert!(
        same_length && differ.is_empty(),
        "src/guide/kinds.md is not of the lists (`{UPDATE}` writes it): {differ:#?}"
    );
    for kind in Kind::ALL.iter().filter(|kind| kind.class() != KindClass::Retired) {
        let (envoy, grpc) = effects(*kind);
        assert!(envoy != NONE && !envoy.starts_with("none"), "{kind} has no effect: {envoy} {grpc}");
    }
}
