//! The admin server's guard, flags and the command line.

use clap::Parser;
use pilothouse::{
    admin::readers,
    cli::{Cli, Command, bootstrap},
    model::{Features, Mesh},
    settings,
};
use serde_json::{Value, json};

use super::world::taken;

/// Method, host and headers of a request from this machine, a line each: no web site gets in.
pub fn admin_access(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let (method, host) = (lines.next().unwrap_or("GET"), lines.next());
    let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(": ")).take(8).collect();
    let Some(answered) = readers::is_answered(host, method, &headers) else { return };
    let origin = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("origin"));
    if !matches!(method, "GET" | "HEAD") && origin {
        assert!(!answered, "a web page may change something: {text:?}");
    }
    if let Some(host) = host.filter(|_| answered) {
        let bare = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_end_matches('.').to_ascii_lowercase();
        let last = bare.rsplit('.').next().unwrap_or_default();
        let name = !host.starts_with('[') && !last.bytes().all(|b| b.is_ascii_digit());
        assert!(!name || last == "localhost", "a name that is not this machine's: {host:?}");
    }
}

/// A flag and its value, a line each.
pub fn flags(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut features = Features::default();
    for line in text.lines().take(16) {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        let before = features.clone();
        match features.set(name, value) {
            Ok(true) => {}
            Ok(false) | Err(_) => assert!(features == before, "{line:?} is not taken and changes something"),
        }
        let _ = settings::left_out(name, value, true);
        let _ = (name.parse::<settings::ListenAddress>(), line.parse::<settings::RemoteCluster>());
        let _ = line.parse::<settings::ClusterAlias>();
    }
}

/// Arguments, a line each.
pub fn command_line(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let arguments = std::iter::once("pilothouse").chain(text.lines().take(32));
    if let Err(error) = Cli::try_parse_from(arguments) {
        assert!(error.to_string().len() <= 64 << 10, "an error longer than any help");
    }
}

/// A bootstrap: address, node, metadata and the value of a patch of the bootstrap, a line each.
pub fn bootstrap(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.splitn(4, '\n');
    let mut line = |none| lines.next().unwrap_or(none);
    let (address, node, metadata, patch) = (line(""), line(""), line("{}"), line(""));
    let Ok(Value::Object(metadata)) = serde_json::from_str(metadata) else { return };
    let filters: Vec<_> =
        serde_json::from_str(patch).ok().and_then(|value| taken(&patched_by(&value))).into_iter().collect();
    for client in ["envoy", "grpc"] {
        let node = format!("--node={node}");
        let address = format!("--xds-address={address}");
        let Ok(cli) = Cli::try_parse_from(["pilothouse", "bootstrap", client, &address, &node]) else { return };
        let Some(Command::Bootstrap(args)) = cli.command else { return };
        let config = Mesh::default().config;
        let [plain, patched] = [Vec::new(), filters.clone()].map(|filters| bootstrap::MeshInputs {
            config: config.clone(),
            objects: Vec::new(),
            filters,
        });
        for mesh in [None, Some(&plain)] {
            let Ok(made) = bootstrap::made(&args, metadata.clone(), mesh) else { continue };
            assert_eq!(made.bootstrap["node"]["id"], args.node);
            let back: Value = serde_json::from_str(&made.bootstrap.to_string()).unwrap();
            assert_eq!(back, made.bootstrap);
        }
        let [plain, patched] = [plain, patched].map(|mesh| bootstrap::made(&args, metadata.clone(), Some(&mesh)));
        assert_eq!(plain.as_ref().err(), patched.as_ref().err(), "a patch makes or unmakes a fault");
        if let (Ok(plain), Ok(patched)) = (plain, patched) {
            let is_told = patched.notes.len() > plain.notes.len();
            assert!(
                !is_told || patched.bootstrap["node"]["id"] == plain.bootstrap["node"]["id"],
                "a patch that is left out counts"
            );
        }
    }
}

/// An EnvoyFilter with this patch.
fn patched_by(value: &Value) -> Value {
    let patch = json!({"applyTo": "BOOTSTRAP", "patch": {"operation": "MERGE", "value": value}});
    json!({"apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
        "metadata": {"name": "f", "namespace": "istio-system"}, "spec": {"configPatches": [patch]}})
}
