//! Changes of a running server by commands (a push, levels of the log, the end of a stream), istiod's pages about parts of the
//! context, manual pages and completions.

use std::{fs, path::Path};

use pilothouse::xds::ResourceType;
use serde_json::{Value, json};

use crate::{
    attacks::ask,
    binary::Binary,
    describe::mesh,
    proxy::Proxies,
    proxy_config::{refusal, said},
    stage::{DEADLINE, end, entry, start, until},
};

fn level(http: &str, scope: &str) -> String {
    let scopes: Value = serde_json::from_str(&said(&["logs", "--http-addr", http, "-o", "json"])).unwrap();
    let found = scopes.as_array().unwrap().iter().find(|s| s["name"] == scope).unwrap_or_else(|| panic!("{scopes}"));
    found["output_level"].as_str().unwrap().to_string()
}

fn serve(folder: &Path, more: &[&str]) -> (Binary, String) {
    fs::write(folder.join("a.yaml"), entry("a", "a.example")).unwrap();
    let mut server = Binary::serve(folder, more, &[]);
    let (_, http) = server.addresses();
    (server, http.to_string())
}

#[test]
fn levels_change_while_the_server_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (mut server, http) = serve(dir.path(), &["--log_output_level=default:info,store:error,krt:debug"]);
    assert_eq!(server.lines_with("without lines of their own"), 1);
    assert_eq!((level(&http, "ads").as_str(), level(&http, "store").as_str()), ("info", "error"));
    let changed = |scope: &str| {
        let wanted = format!("\"scope\":\"{scope}\"");
        move |line: &str| line.contains(&wanted).then_some(())
    };
    said(&["logs", "--http-addr", &http, "--level", "ads:trace,kube:none"]);
    server.until("the change", changed("kube"));
    assert_eq!((level(&http, "ads").as_str(), level(&http, "kube").as_str()), ("trace", "none"));
    // Changes are lines of the scope `admin`.
    said(&["logs", "--http-addr", &http, "--level", "admin:none,file:debug"]);
    let text = said(&["logs", "--http-addr", &http, "--reset"]);
    server.until("the way back", changed("all"));
    assert_eq!(server.lines_with("\"scope\":\"file\""), 0, "a line of a scope without any");
    assert!(text.lines().any(|line| line.starts_with("store ") && line.ends_with(" error")), "as at the start: {text}");
    assert!(said(&["push", "--http-addr", &http]).starts_with("Pushed to 0 servers"));

    for (arguments, code, reason) in [
        (&["--level", "adz:debug"][..], 64, "\"adz\" is not a scope"),
        (&["--level", "ads:loud"], 64, "\"loud\" is not a level"),
        (&["--level", "krt:debug"], 65, "no lines of its own"),
        (&["--level", "ads:info", "--reset"], 64, "--reset"),
    ] {
        let line = refusal(&[&["logs", "--http-addr", &http], arguments].concat(), code);
        assert!(line.contains(reason), "{arguments:?}: {line}");
    }
}

#[tokio::test]
async fn no_web_page_changes_a_level() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, http) = serve(dir.path(), &[]);
    let address = http.parse().unwrap();
    for request in [
        "PUT /scopej/ads\nOrigin: http://evil.example",
        "PUT /scopej/ads\nSec-Fetch-Site: cross-site",
        "PUT /scopej/ads\nHost: evil.example",
    ] {
        assert_eq!(ask(address, request).await.status, 403, "{request}");
    }
    assert_eq!(ask(address, "GET /scopej\nHost: evil.example").await.status, 403);
    assert_eq!(ask(address, "GET /scopej/ads").await.status, 200);
    assert_eq!(ask(address, "GET /scopej/adz").await.status, 400);
    assert_eq!(tokio::task::spawn_blocking(move || level(&http, "ads")).await.unwrap(), "info");
}

#[actix::test]
async fn parts_of_the_context_are_pages_and_a_stream_ends_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let gateway = json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": "LoadBalancer", "ports": [{"name": "tls", "port": 15443}]},
        "metadata": {"name": "ew", "namespace": "shop", "labels": {"topology.istio.io/network": "n2"}},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}});
    fs::write(dir.path().join("mesh.yaml"), format!("{}---\n{gateway}\n", mesh())).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| c.inputs.registry.services.len() == 4).await;
    let mut proxies = Proxies::connect(running.addresses.grpc).await;
    proxies.until("web.example").await;
    let http = running.addresses.http;
    let connection = running.state.connections().first().unwrap().clone();
    let (name, id) = (connection.node.id.to_string(), connection.id.clone());
    let page = async |path: String| -> Value {
        let answer = ask(http, &format!("GET /debug/{path}")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    };
    let policies = page("authorizationz".to_string()).await;
    let policies = &policies["authorization_policies"];
    assert_eq!(policies["namespace_to_policies"]["shop"][0]["metadata"]["name"], "deny-v1");
    assert_eq!(policies["root_namespace"], "istio-system");
    assert_eq!(page("telemetryz".to_string()).await["telemetries"]["namespace_to_telemetries"], json!({}));
    let networks = page("networkz".to_string()).await;
    assert_eq!((&networks[0]["Addr"], &networks[0]["Network"]), (&json!("192.0.2.9"), &json!("n2")));
    let context = page("pushcontext".to_string()).await;
    assert_eq!((&context["AuthorizationPolicies"], &context["NetworkGateways"]), (policies, &networks));
    let kinds = page("resourcesz".to_string()).await;
    assert!(kinds.as_array().unwrap().iter().any(|kind| kind["Kind"] == "VirtualService"));
    assert_eq!(page("instancesz".to_string()).await[&name], json!([]));
    let scope = page(format!("sidecarz?proxyID={name}")).await;
    assert_eq!(scope["destinationRules"], json!(["shop/web"]), "{scope:#}");
    assert!(scope["egressListeners"][0]["services"].to_string().contains("web.example"));
    assert_eq!(page(format!("ecdsz?proxyID={name}")).await, json!([]));

    let (cache, sizes) = (page("cachez".to_string()).await, page("cachez?sizes=true".to_string()).await);
    let clusters = cache[ResourceType::Cluster.url()].as_array().unwrap();
    let of_web = |name: &&Value| name.as_str().is_some_and(|name| name.ends_with("||web.example"));
    assert_eq!(clusters.iter().filter(of_web).count(), 1, "both proxies share it: {clusters:?}");
    assert!(sizes["total"].as_str().is_some_and(|text| text.ends_with('B') && text != "0B"), "{sizes}");
    assert!(sizes.get(ResourceType::Cluster.url()).is_some(), "{sizes}");
    assert_eq!(ask(http, "GET /debug/cachez?clear=true").await.status, 400);
    assert_eq!(page("mcsz".to_string()).await, json!([]));
    let profiles = page("pprof".to_string()).await;
    assert_eq!(profiles["profiles"], json!([]));
    assert!(profiles["cpu"].as_str().is_some_and(|cpu| cpu.contains(&std::process::id().to_string())), "{profiles}");
    assert_eq!(ask(http, "GET /debug/pprof/profile?seconds=1").await.status, 501);
    let list = page("list".to_string()).await;
    for name in ["/debug/cachez", "/debug/mcsz", "/debug/pprof"] {
        assert!(list.as_array().unwrap().contains(&json!(name)), "{list}");
        assert_eq!(ask(http, &format!("GET {name}\nHost: evil.example")).await.status, 403, "{name}");
    }
    assert_eq!(ask(http, "GET /debug/pprof/heap\nHost: evil.example").await.status, 403);

    let end_of = format!("POST /debug/force_disconnect?proxyID={id}");
    assert_eq!(ask(http, &format!("{end_of}\nOrigin: http://evil.example")).await.status, 403);
    assert_eq!(ask(http, "POST /debug/force_disconnect?proxyID=nobody").await.status, 404);
    assert!(running.state.connection(&id).is_some());
    assert_eq!(ask(http, &end_of).await.body, "OK");
    let ended = async {
        while running.state.connection(&id).is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, ended).await.expect("the stream ends");
    end(running).await;
}

#[test]
fn manual_pages_and_completions_have_every_command() {
    let dir = tempfile::tempdir().unwrap();
    assert!(said(&["man"]).contains(".TH pilothouse 1"));
    said(&["man", "--dir", dir.path().to_str().unwrap()]);
    let page = fs::read_to_string(dir.path().join("pilothouse-proxy-config-cluster.1")).unwrap();
    assert!(page.contains("fqdn") && page.contains("NAMESPACE"), "{page}");
    assert!(refusal(&["man", "--dir", "/dev/null/man"], 65).contains("--dir /dev/null/man"));
    for shell in ["bash", "fish", "zsh"] {
        assert!(said(&["completion", shell]).contains("proxy-config"), "{shell}");
    }
}

#[test]
fn arguments_and_variables_of_istiods_charts_start_the_server() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let of_chart = [
        "--log_output_level=default:info",
        "--keepaliveMaxServerConnectionAge",
        "30m",
        "--kubernetesApiQPS",
        "80",
        "--profile=false",
    ];
    let mut server = Binary::serve(dir.path(), &of_chart, &[("CLUSTER_ID", "west")]);
    let named = |line: &str| line.contains("--kubernetesApiQPS has no effect: ").then_some(());
    server.until("the flag without effect", named);
    let (_, http) = server.addresses();
    let until = std::time::Instant::now() + DEADLINE;
    let mut shards = crate::confirm::ask(http, "GET /debug/endpointShardz HTTP/1.0");
    while !shards.contains("External/west") {
        assert!(std::time::Instant::now() < until, "{shards}");
        std::thread::sleep(std::time::Duration::from_millis(20));
        shards = crate::confirm::ask(http, "GET /debug/endpointShardz HTTP/1.0");
    }
}

/// The shell blocks of a section of the chapter of operations, with the program and this folder in place of the installed ones.
fn blocks(section: &str, folder: &Path) -> Vec<String> {
    let chapter = include_str!("../../src/guide/operations.md");
    let text = chapter.split(&format!("## {section}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    let blocks = text.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks.map(|block| block.replace("/var/lib/pilothouse", folder.to_str().unwrap())).collect()
}

#[test]
fn a_copy_of_the_state_folder_restores_the_root_and_the_revocations() {
    let dir = tempfile::tempdir().unwrap();
    let (mesh, before, after) = (dir.path().join("mesh"), dir.path().join("before"), dir.path().join("after"));
    fs::create_dir(&mesh).unwrap();
    fs::write(mesh.join("a.yaml"), entry("a", "a.example")).unwrap();
    let serve = |state: &Path| {
        let own = ["--secure-grpc-addr", "127.0.0.1:0", "--state-dir", state.to_str().unwrap()];
        let mut server = Binary::serve(&mesh, &own, &[]);
        server.addresses();
        server
    };
    let root = |state: &Path| fs::read(state.join("identity/root-cert.pem")).unwrap();
    let shell = |block: &str| {
        let status = std::process::Command::new("sh").args(["-ec", block]).current_dir(dir.path()).status().unwrap();
        assert!(status.success(), "{block}");
    };
    let server = serve(&before);
    said(&["token", "revoke", "0123456789abcdef", "--state-dir", before.to_str().unwrap()]);
    let saved = |state: &Path| {
        let files = fs::read_dir(state).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|e| e == "last-good")).count()
    };
    let until = std::time::Instant::now() + DEADLINE;
    while saved(&before) == 0 {
        assert!(std::time::Instant::now() < until, "no content is saved");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    shell(&blocks("Backup and restore", &before)[0]);
    server.kill();
    let (root_before, join_key) = (root(&before), fs::read(before.join("identity/join-key")));
    fs::remove_dir_all(&before).unwrap();

    shell(&blocks("Backup and restore", &after)[1]);
    assert_eq!(saved(&after), 1);
    let server = serve(&after);
    assert_eq!(root(&after), root_before);
    assert_eq!(fs::read(after.join("identity/join-key")).ok(), join_key.ok());
    let line = refusal(&["token", "revoke", "0123456789abcdef", "--state-dir", after.to_str().unwrap()], 65);
    assert!(line.contains("was revoked before"), "{line}");
    server.kill();
}
