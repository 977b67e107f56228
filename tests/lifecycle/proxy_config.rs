//! `proxy-config` and the difference of `proxy-status` as the program prints them, for a running server and for files.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::{Value, json};

use crate::{
    confirm::aside,
    stage::{Served, end},
};

/// The program with these arguments.
pub fn program(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pilothouse")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Standard output of a run that succeeds.
pub fn said(arguments: &[&str]) -> String {
    let output = program(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The only line of standard error of a run that ends with this code.
pub fn refusal(arguments: &[&str], code: i32) -> String {
    let output = program(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    let said: Vec<&str> = said.lines().filter(|l| l.starts_with("pilothouse: ") || l.starts_with("error: ")).collect();
    assert_eq!(said.len(), 1, "{arguments:?}: {said:?}");
    said[0].to_string()
}

/// The name of one of the proxies.
fn name(served: &Served) -> String {
    served.running.state.connections().first().unwrap().node.id.to_string()
}

fn dump(http: SocketAddr, proxy: &str, path: &Path) {
    let answer = crate::confirm::ask(http, &format!("GET /debug/config_dump?proxyID={proxy} HTTP/1.0"));
    fs::write(path, answer.split_once("\r\n\r\n").unwrap().1).unwrap();
}

#[actix::test]
async fn the_configuration_of_a_proxy_is_shown_with_the_objects_behind_it() {
    let served = Served::start().await;
    let (http, proxy) = (served.running.addresses.http, name(&served));
    aside(move || {
        let http = http.to_string();
        let cluster =
            |more: &[&str]| said(&[&["proxy-config", "cluster", &proxy, "--http-addr", &http], more].concat());
        let text = cluster(&["--fqdn", "a.example"]);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), 2, "{text}");
        assert_eq!(rows[1], ["a.example", "80", "-", "outbound", "EDS", "-", "ServiceEntry/a.shop"]);
        assert!(cluster(&[]).lines().any(|line| line.starts_with("BlackHoleCluster")));
        assert_eq!(cluster(&["--direction", "outbound", "--port", "81", "-o", "short"]).lines().count(), 1);
        let document: Value = serde_json::from_str(&cluster(&["--fqdn", "a.example", "-o", "json"])).unwrap();
        assert_eq!(document[0]["name"], "outbound|80||a.example");
        assert!(cluster(&["--fqdn", "a.example", "-o", "yaml"]).contains("outbound|80||a.example"));
        let all = said(&["pc", "all", &proxy, "--http-addr", &http]);
        assert!(all.contains("------ CLUSTERS ------") && !all.contains("ECDS"), "{all}");
        let short = proxy.split('.').next().unwrap();
        assert_eq!(said(&["pc", "c", short, "--http-addr", &http]), cluster(&[]));

        let line = refusal(&["pc", "cluster", "nobody.shop", "--http-addr", &http], 65);
        assert!(line.contains("\"nobody.shop\" is not connected"), "{line}");
        let line = refusal(&["pc", "bootstrap", &proxy, "--http-addr", &http], 65);
        assert!(line.contains("--envoy-admin"), "{line}");
    })
    .await;
    end(served.running).await;
}

#[actix::test]
async fn what_was_sent_is_compared_with_what_is_held() {
    let served = Served::start().await;
    let (http, proxy) = (served.running.addresses.http, name(&served));
    aside(move || {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("dump.json");
        dump(http, &proxy, &file);
        let (http, path) = (http.to_string(), file.to_str().unwrap().to_string());
        let compare =
            |more: &[&str]| said(&[&["proxy-status", &proxy, "--http-addr", &http, "--file", &path], more].concat());
        assert_eq!(compare(&[]), "Clusters Match\nListeners Match\nRoutes Match\n");
        fs::write(&file, fs::read_to_string(&file).unwrap().replace("|a.example", "|b.example")).unwrap();
        let text = compare(&[]);
        assert!(text.starts_with("Clusters Don't Match\n--- Sent Clusters outbound|80||a.example"), "{text}");
        assert!(text.ends_with("Listeners Match\nRoutes Match\n"), "{text}");
        let document: Value = serde_json::from_str(&compare(&["-o", "json"])).unwrap();
        assert_eq!(document["clusters"]["match"], false);

        let one = said(&["proxy-status", &proxy, "--http-addr", &http]);
        assert_eq!(one.lines().count(), 3, "a title and two connections: {one}");
        assert!(one.contains("SYNCED") && one.contains(&proxy), "{one}");
        assert!(refusal(&["proxy-status", "nobody", "--http-addr", &http], 65).contains("nobody"));
        let line = refusal(&["proxy-status", "--http-addr", &http, "--file", &path], 65);
        assert!(line.contains("name it here"), "{line}");
    })
    .await;
    end(served.running).await;
}

#[test]
fn wrong_input_is_one_line_that_names_the_flag() {
    let dir = tempfile::tempdir().unwrap();
    let (file, text) = (dir.path().join("a.json"), dir.path().join("a.txt"));
    fs::write(&file, "{}").unwrap();
    fs::write(&text, "<html>").unwrap();
    let (file, text) = (file.to_str().unwrap(), text.to_str().unwrap());
    for (arguments, code, flag, reason) in [
        (&["cluster"][..], 64, "", "required"),
        (&["cluster", "web", "--file", file], 64, "--file", "cannot be used with"),
        (&["cluster", "--file", "/no/such"], 65, "--file /no/such", "No such file"),
        (&["cluster", "--file", file], 65, "--file", "no list \"configs\""),
        (&["cluster", "--file", text], 65, "--file", "not JSON"),
        (&["cluster", "--envoy-admin", "15000"], 64, "--envoy-admin", "not HOST:PORT"),
        (&["cluster", "--envoy-admin", "127.0.0.1:1"], 70, "--envoy-admin", "refused"),
        (&["cluster", "web", "--port", "70000"], 64, "--port", "70000"),
        (&["cluster", "web", "--direction", "up"], 64, "--direction", "up"),
        (&["listener", "web", "--type", "UDP"], 64, "--type", "UDP"),
        (&["endpoint", "web", "--status", "WELL"], 64, "--status", "WELL"),
    ] {
        let line = refusal(&[&["proxy-config"], arguments].concat(), code);
        assert!(line.contains(flag) && line.contains(reason), "{arguments:?}: {line}");
    }
    let help = said(&["proxy-config", "--help"]);
    assert!(help.contains("Examples:\n  pilothouse proxy-config"), "{help}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dump.json");
    let clusters: Vec<Value> =
        (0..5000).map(|n| serde_json::json!({"cluster": {"name": format!("outbound|80||host-{n}.example")}})).collect();
    let section =
        serde_json::json!({"@type": "x/envoy.admin.v3.ClustersConfigDump", "dynamic_active_clusters": clusters});
    fs::write(&file, serde_json::json!({"configs": [section]}).to_string()).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(["proxy-config", "cluster", "--file", file.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn the_tables_of_all_take_the_filters_of_clusters_listeners_and_routes() {
    let of = |kind: &str| format!("type.googleapis.com/envoy.{kind}");
    let cluster =
        |name: &str| json!({"cluster": {"@type": of("config.cluster.v3.Cluster"), "name": name, "type": "EDS"}});
    let socket = |address: &str, port: u16| json!({"socket_address": {"address": address, "port_value": port}});
    let listener = |address: &str, port: u16| {
        let listener = json!({"@type": of("config.listener.v3.Listener"), "name": address, "address": socket(address, port),
            "filter_chains": [{"filters": []}]});
        json!({"name": address, "active_state": {"listener": listener}})
    };
    let route = |name: &str| {
        let host =
            json!({"name": name, "domains": [name], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "c"}}]});
        json!({"route_config": {"@type": of("config.route.v3.RouteConfiguration"), "name": name, "virtual_hosts": [host]}})
    };
    let endpoints = |name: &str, address: &str| {
        let one = json!({"lb_endpoints": [{"endpoint": {"address": socket(address, 8080)}}]});
        json!({"endpoint_config": {"@type": of("config.endpoint.v3.ClusterLoadAssignment"), "cluster_name": name, "endpoints": [one]}})
    };
    let (a, b) = ("outbound|80||a.example", "outbound|81||b.example");
    let document = json!({"configs": [
        {"@type": of("admin.v3.ClustersConfigDump"), "dynamic_active_clusters": [cluster(a), cluster(b)]},
        {"@type": of("admin.v3.ListenersConfigDump"), "dynamic_listeners": [listener("192.0.2.10", 80), listener("192.0.2.11", 81)]},
        {"@type": of("admin.v3.RoutesConfigDump"), "dynamic_route_configs": [route("first"), route("second")]},
        {"@type": of("admin.v3.EndpointsConfigDump"), "dynamic_endpoint_configs": [endpoints(a, "192.0.2.20"), endpoints(b, "192.0.2.21")]},
    ]});
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dump.json");
    fs::write(&file, document.to_string()).unwrap();
    let all = |more: &[&str]| said(&[&["proxy-config", "all", "--file", file.to_str().unwrap()], more].concat());
    let parts = ["a.example", "b.example", "192.0.2.10", "192.0.2.11", "first", "second", "192.0.2.20", "192.0.2.21"];
    for (filter, without) in [
        (&[][..], &[][..]),
        (&["--fqdn", "a.ex"], &["b.example", "192.0.2.21"]),
        (&["--direction", "inbound"], &["a.example", "b.example", "192.0.2.20", "192.0.2.21"]),
        (&["--subset", "v1"], &["a.example", "b.example", "192.0.2.20", "192.0.2.21"]),
        (&["--port", "81"], &["a.example", "192.0.2.20", "192.0.2.10"]),
        (&["--address", "192.0.2.10"], &["192.0.2.11"]),
        (&["--type", "http"], &["192.0.2.10", "192.0.2.11"]),
        (&["--name", "second"], &["first"]),
        (&["--fqdn", "a.ex", "-o", "json"], &[]),
    ] {
        let text = all(filter);
        for part in parts {
            assert_eq!(text.contains(part), !without.contains(&part), "{filter:?} {part}: {text}");
        }
    }
}
