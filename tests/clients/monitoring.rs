//! The Grafana dashboards and Prometheus alerts in `config/`, against a running server and a real Prometheus: rules are checked and
//! tested by `promtool`, every query is answered, and every metric that they name is exported.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    config::{object, service, subsets, to},
    http::{Echo, get},
    mesh::{ControlPlane, Envoy, folder},
    process::{Process, free_port, scratch, wait_for, wait_until},
    tools,
};

fn config(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(config(path)).unwrap()
}

/// The alerts: name, query and runbook.
fn alerts() -> Vec<(String, String, String)> {
    let rules = pilothouse::sources::yaml::values(&read("prometheus/alerts.yaml")).unwrap().remove(0);
    let rules = rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let text = |value: &Value| value.as_str().unwrap().to_string();
    rules.map(|r| (text(&r["alert"]), text(&r["expr"]), text(&r["annotations"]["runbook"]))).collect()
}

/// The dashboards' queries, with their variables filled in as Grafana does.
fn queries() -> Vec<String> {
    let mut all = Vec::new();
    for name in ["control-plane", "fleet"] {
        let board: Value = serde_json::from_str(&read(&format!("grafana/{name}.json"))).unwrap();
        let panels = board["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row");
        for panel in panels {
            for key in ["title", "description"] {
                assert!(panel[key].as_str().is_some_and(|text| !text.is_empty()), "{panel}");
            }
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{panel}");
            all.extend(targets.iter().map(|target| target["expr"].as_str().unwrap().to_string()));
        }
        let variables = board["templating"]["list"].as_array().unwrap();
        assert!(
            variables.iter().any(|v| v["definition"] == "label_values(istiod_uptime_seconds, instance)"),
            "{board}"
        );
    }
    let filled = |query: String| query.replace("$instance", ".*").replace("$__rate_interval", "1m");
    all.into_iter().map(filled).collect()
}

/// The metrics that a query names: words that begin as ours and istiod's do.
fn named(query: &str) -> BTreeSet<String> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let begins = [
        "pilot_",
        "pilothouse_",
        "istiod_",
        "citadel_",
        "xds_",
        "process_",
        "controller_",
        "endpoint_",
        "remote_",
        "galley_",
    ];
    words.filter(|word| begins.iter().any(|b| word.starts_with(b))).map(str::to_string).collect()
}

fn metrics(plane: &ControlPlane) -> String {
    get(plane.http_port, "localhost", "/metrics", &[]).unwrap().body
}

/// Names of the series in a text of `/metrics`.
fn exported(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split(['{', ' ']).next().unwrap().to_string()).collect()
}

fn promtool(prometheus: &Path, arguments: &[&str]) -> String {
    let output = Command::new(prometheus.with_file_name("promtool"))
        .args(arguments)
        .current_dir(config("prometheus"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{arguments:?}: {text}");
    text
}

#[test]
fn promtool_takes_the_alerts_and_each_fires_in_its_test() {
    let Some(prometheus) = tools::prometheus() else { return };
    let checked = promtool(&prometheus, &["check", "rules", "alerts.yaml"]);
    assert!(checked.contains(&format!("{} rules found", alerts().len())), "{checked}");
    promtool(&prometheus, &["test", "rules", "alerts_test.yaml"]);
}

#[test]
fn each_alert_has_a_test_and_a_line_in_the_guide() {
    let (tests, guide) = (read("prometheus/alerts_test.yaml"), include_str!("../../src/guide/operations.md"));
    for (name, _, runbook) in alerts() {
        let told = format!("alertname=\"{name}\"");
        assert_eq!(tests.matches(&told).count(), 2, "{name}: quiet and firing");
        assert_eq!(runbook, format!("operations.md#alerts: {name}"));
        assert!(guide.contains(&format!("\n| `{name}` | ")), "{name} has no line in the guide");
    }
    let all: BTreeSet<String> =
        alerts().iter().map(|(_, query, _)| query).chain(&queries()).flat_map(|q| named(q)).collect();
    let told = named(guide);
    let base = |name: &String| {
        ["_bucket", "_sum", "_count"].into_iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name).to_string()
    };
    let missing: Vec<String> = all.iter().map(base).filter(|name| !told.contains(name)).collect();
    assert_eq!(missing, Vec::<String>::new(), "metrics that the guide does not name");
}

/// A kubeconfig of a server that does not answer.
fn closed(path: &Path) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- {{name: c, context: {{cluster: c, user: u}}}}\n\
         clusters:\n- {{name: c, cluster: {{server: 'http://127.0.0.1:{}'}}}}\nusers:\n- {{name: u, user: {{}}}}\n",
        free_port()
    );
    fs::write(path, text).unwrap();
}

/// A server with traffic: an Envoy, a refused document, a change of a cluster and a route beside a service that does not change;
/// a remote cluster that does not answer, and a secure listener.
struct Served {
    plane: ControlPlane,
    envoy: Envoy,
    _echo: Echo,
}

fn serve() -> Served {
    let (echo, port) = (Echo::start("v1"), free_port());
    let egress = json!({"egress": [{
        "port": {"number": port, "protocol": "HTTP", "name": "egress"}, "bind": "127.0.0.1", "captureMode": "NONE",
        "hosts": ["./*"]}]});
    let route = |path: &str| json!({"hosts": ["web.example"], "http": [{"match": [{"uri": {"prefix": path}}], "route": [to("web.example", "v1")]}]});
    let text = |path: &str, version: &str| {
        service("web.example", port, "HTTP", &[(echo.port, "v1", "")])
            + &subsets("web.example").replace("v2", version)
            + &service("other.example", port, "HTTP", &[(echo.port, "v1", "")])
            + &subsets("other.example")
            + &object("Sidecar", "client", &egress)
            + &object("VirtualService", "web", &route(path))
            + &object("VirtualService", "bad", &json!({"hosts": ["bad.example"], "http": []}))
    };
    let (configs, remotes, state) = (folder(&[("shop.yaml", text("/api", "v2"))]), scratch(), scratch());
    closed(&remotes.join("west"));
    let arguments: [OsString; 8] = [
        "--remote-cluster".into(),
        format!("west={}", remotes.join("west").display()).into(),
        "--config-dir".into(),
        configs.clone().into(),
        "--state-dir".into(),
        state.into(),
        "--secure-grpc-addr".into(),
        "127.0.0.1:0".into(),
    ];
    let plane = ControlPlane::launch_with(configs, &arguments, &[("PILOT_REMOTE_CLUSTER_TIMEOUT", "1s")]);
    plane.wait_ready();
    let metadata = json!({"INTERCEPTION_MODE": "NONE", "LABELS": {"app": "client"}});
    let envoy = Envoy::start(&plane, "sidecar~10.0.0.1~client.shop~shop.svc.cluster.local", &metadata, true);
    let answers = |path: &str| get(port, "web.example", path, &[]).ok().filter(|a| a.status == 200);
    wait_for("the sidecar answers", || answers("/api"));
    plane.write("shop.yaml", &text("/new", "v3"));
    wait_for("the sidecar follows", || answers("/new"));
    Served { plane, envoy, _echo: echo }
}

#[test]
fn every_metric_of_the_dashboards_and_alerts_is_exported_and_every_query_answered() {
    let served = serve();
    let all: Vec<String> = alerts().into_iter().map(|(_, query, _)| query).chain(queries()).collect();
    let named: BTreeSet<String> = all.iter().flat_map(|query| named(query)).collect();
    assert!(named.len() > 40, "{named:?}");
    wait_until("every metric", || {
        let text = metrics(&served.plane);
        let there = exported(&text);
        let missing: Vec<&String> = named.difference(&there).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("not exported: {missing:?}\n{text}")) }
    });
    let text = metrics(&served.plane);
    for line in [
        "pilothouse_proxies{state=\"synced\"} 1",
        "pilothouse_proxies{state=\"refused\"} 0",
        "istiod_managed_clusters{cluster_type=\"local\"} 0",
        "istiod_managed_clusters{cluster_type=\"remote\"} 1",
        "istiod_remote_cluster_sync_status{cluster=\"west\",cluster_type=\"remote\",status=\"timeout\"} 1",
        "pilothouse_views 1",
        "pilot_no_ip 1",
        "pilot_vservice_dup_domain 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not there:\n{text}");
    }
    let refused = format!("pilothouse_source_refused{{source=\"file:{}\"}} 1", served.plane.configs.display());
    assert!(text.lines().any(|l| l == refused), "{refused} is not there:\n{text}");
    let value = |name: &str| {
        let of = text.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' ')?.1.parse::<f64>().ok());
        of.sum::<f64>()
    };
    for name in [
        "pilothouse_xds_bytes_saved",
        "pilothouse_builds",
        "xds_cache_reads",
        "pilot_xds_recv_max",
        "pilot_worker_queue_duration_count",
    ] {
        assert!(value(name) > 0.0, "{name}:\n{text}");
    }
    // Each series is there once, and each family has one type.
    let series: Vec<&str> =
        text.lines().filter(|l| !l.starts_with('#')).filter_map(|l| Some(l.rsplit_once(' ')?.0)).collect();
    assert_eq!(series.iter().collect::<BTreeSet<_>>().len(), series.len());

    let Some(binary) = tools::prometheus() else { return };
    let (data, port) = (scratch(), free_port());
    let scrape = json!({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [config("prometheus/alerts.yaml")],
        "scrape_configs": [{"job_name": "pilothouse", "static_configs": [{"targets": [format!("127.0.0.1:{}", served.plane.http_port)]}]}]});
    fs::write(data.join("prometheus.yaml"), scrape.to_string()).unwrap();
    let mut command = Command::new(&binary);
    command
        .arg(format!("--config.file={}", data.join("prometheus.yaml").display()))
        .arg(format!("--storage.tsdb.path={}", data.join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let _prometheus = Process::start("prometheus", &mut command);
    let ask = |query: &str| -> Result<Vec<Value>, String> {
        let encoded: String = query.bytes().map(|b| format!("%{b:02X}")).collect();
        let answer =
            get(port, "localhost", &format!("/api/v1/query?query={encoded}"), &[]).map_err(|e| e.to_string())?;
        let body: Value = serde_json::from_str(&answer.body).map_err(|e| e.to_string())?;
        let result = body["data"]["result"].as_array().filter(|_| body["status"] == "success").cloned();
        result.ok_or_else(|| format!("{query}: {body}"))
    };
    wait_until("a scrape", || match ask("rate(istiod_uptime_seconds[1m])") {
        Ok(found) if found.len() == 1 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    for query in &all {
        ask(query).unwrap();
    }
    for name in &named {
        wait_until(name, || {
            ask(name).and_then(|found| if found.is_empty() { Err("no series".to_string()) } else { Ok(()) })
        });
    }
    // The rules are in force: the refused document is known to its alert.
    wait_until("an alert", || {
        let pending = ask("ALERTS{alertname=\"PilothouseObjectsRefused\"}")?;
        if pending.len() == 1 { Ok(()) } else { Err(format!("{pending:?}")) }
    });
    served.envoy.assert_no_nacks();
}
