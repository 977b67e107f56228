//! The admin server's guard, flags and the command line.

use clap::Parser;
use pilothouse::{
    admin::readers,
    cli::{Cli, Command, bootstrap},
    model::{Features, Mesh},
    settings,
};
use serde_json::Value;

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

/// A bootstrap: address, node and metadata, a line each.
pub fn bootstrap(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.splitn(3, '\n');
    let (address, node, metadata) =
        (lines.next().unwrap_or_default(), lines.next().unwrap_or_default(), lines.next().unwrap_or("{}"));
    let Ok(Value::Object(metadata)) = serde_json::from_str(metadata) else { return };
    for client in ["envoy", "grpc"] {
        let node = format!("--node={node}");
        let address = format!("--xds-address={address}");
        let Ok(cli) = Cli::try_parse_from(["pilothouse", "bootstrap", client, &address, &node]) else { return };
        let Some(Command::Bootstrap(args)) = cli.command else { return };
        let mesh = bootstrap::MeshInputs { config: Mesh::default().config, objects: Vec::new() };
        for mesh in [None, Some(&mesh)] {
            let Ok(made) = bootstrap::made(&args, metadata.clone(), mesh) else { continue };
            assert_eq!(made.bootstrap["node"]["id"], args.node);
            let back: Value = serde_json::from_str(&made.bootstrap.to_string()).unwrap();
            assert_eq!(back, made.bootstrap);
        }
    }
}
