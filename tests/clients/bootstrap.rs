//! Bootstraps with settings of the mesh: Envoy takes each of them, and does as they say.

use std::{
    ffi::OsString,
    fs,
    net::UdpSocket,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    config::{document_in, gateway, object},
    http::{self, Echo},
    mesh::{ControlPlane, folder},
    process::{Process, free_port, scratch, wait_for},
    tls::Certificate,
    tools::{OLDEST_ENVOY, TOOLS},
};

const SIDECAR: &str = "sidecar~10.0.0.5~web-1.shop~shop.svc.cluster.local";
const ROUTER: &str = "router~127.0.0.1~edge.shop~shop.svc.cluster.local";

/// `pilothouse bootstrap envoy` of a node with these arguments.
fn command(node: &str, metadata: &Value, arguments: &[OsString]) -> Command {
    let file = scratch().join("metadata.json");
    fs::write(&file, metadata.to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command.args(["bootstrap", "envoy", "--node", node, "--metadata"]).arg(file).args(arguments);
    command
}

/// The file that it prints.
fn printed(node: &str, metadata: &Value, arguments: &[OsString]) -> Value {
    let output = command(node, metadata, arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The reason it gives none.
fn refused(node: &str, metadata: &Value, arguments: &[OsString]) -> String {
    let output = command(node, metadata, arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The arguments of a mesh with this `defaultConfig`.
fn of_mesh(default: &Value) -> Vec<OsString> {
    let file = scratch().join("mesh.yaml");
    fs::write(&file, json!({"defaultConfig": default}).to_string()).unwrap();
    vec!["--xds-address".into(), "127.0.0.1:15010".into(), "--mesh-config".into(), file.into()]
}

/// Fails the test unless this Envoy would start with the file.
fn assert_taken(envoy: &Path, bootstrap: &Value, what: &str) {
    let file = scratch().join("envoy.json");
    fs::write(&file, bootstrap.to_string()).unwrap();
    let output = Command::new(envoy).args(["--mode", "validate", "-c"]).arg(file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {text}\n{bootstrap:#}");
    // Listeners without a provider of their own have their tracer there, and Envoy has no other place for it yet.
    let deprecated = |line: &&str| line.contains("Deprecated field") && !line.contains("Bootstrap.tracing");
    let warned = text.lines().find(deprecated).filter(|_| envoy == TOOLS.envoy.as_path());
    assert_eq!(warned, None, "{what} uses deprecated fields");
}

#[test]
fn envoy_takes_the_bootstrap_of_every_setting() {
    let own = Certificate::of("collector.example");
    let (ca, chain, key) = (&own.chain_file, &own.chain_file, &own.key_file);
    let simple = json!({"mode": "SIMPLE", "caCertificates": ca, "sni": "c.example", "subjectAltNames": ["c.example", "spiffe://a/b", "10.0.0.1"]});
    let mutual = json!({"mode": "MUTUAL", "clientCertificate": chain, "privateKey": key, "caCertificates": ca});
    let keepalive = json!({"probes": 3, "time": "10s", "interval": "5s"});
    let cases = [
        ("nothing", json!({})),
        ("zipkin", json!({"tracing": {"zipkin": {"address": "zipkin.example:9411"}, "tlsSettings": simple}})),
        ("zipkin by address", json!({"tracing": {"zipkin": {"address": "[::1]:9411"}}})),
        ("datadog", json!({"tracing": {"datadog": {"address": "10.0.0.1:8126"}}})),
        ("lightstep", json!({"tracing": {"lightstep": {"address": "l.example:443", "accessToken": "t"}}})),
        (
            "access logs",
            json!({"envoyAccessLogService": {"address": "als.example:9000", "tlsSettings": mutual, "tcpKeepalive": keepalive}}),
        ),
        (
            "metrics",
            json!({"envoyMetricsService": {"address": "10.0.0.1:9000", "tlsSettings": simple}, "statsdUdpAddress": "10.0.0.1:8125"}),
        ),
        ("the older setting of metrics", json!({"envoyMetricsServiceAddress": "metrics.example:9000"})),
        (
            "statistics",
            json!({
                "proxyStatsMatcher": {"inclusionPrefixes": ["http.{pod_ip}_"], "inclusionSuffixes": ["a"], "inclusionRegexps": [".*b.*"]},
                "extraStatTags": ["request_host", "odd.(tag"], "statsCompression": false, "statNameLength": 200,
            }),
        ),
        (
            "process",
            json!({"concurrency": 2, "drainDuration": "7s", "proxyAdminPort": 15555, "fileFlushInterval": "2s", "fileFlushMinSizeKb": 16}),
        ),
        ("connections", json!({"connectionSettings": {"globalDownstreamConnectionLimit": 1000}})),
        (
            "runtime",
            json!({"runtimeValues": {"a.b": "true", "c.d": "7", "re2.max_program_size.error_level": "", "overload.global_downstream_max_connections": "5000"}}),
        ),
        (
            "self discovery",
            json!({"proxyMetadata": {"ISTIO_META_ENABLE_SELF_DISCOVERY": "true", "METRICS_LOCALHOST_ACCESS_ONLY": "true"}}),
        ),
        (
            "names",
            json!({"tracingServiceName": "CANONICAL_NAME_AND_NAMESPACE", "meshId": "m", "interceptionMode": "NONE"}),
        ),
    ];
    let metadata = json!({"LABELS": {"app": "web"}, "ANNOTATIONS": {
        "sidecar.istio.io/statsInclusionPrefixes": "cluster.outbound", "sidecar.istio.io/extraStatTags": "one,two",
        "sidecar.istio.io/statsHistogramBuckets": "{\"istiocustom\":[1,5,10]}",
        "sidecar.istio.io/statsFlushInterval": "10s", "sidecar.istio.io/statsEvictionInterval": "20s",
    }});
    for (what, default) in &cases {
        let arguments = of_mesh(default);
        for metadata in [&json!({}), &metadata] {
            assert_taken(&TOOLS.envoy, &printed(SIDECAR, metadata, &arguments), what);
        }
        let six = "sidecar~2001:db8::1~web.shop~shop.svc.cluster.local";
        assert_taken(&TOOLS.envoy, &printed(six, &json!({}), &arguments), what);
        assert_taken(&OLDEST_ENVOY, &printed(ROUTER, &json!({}), &arguments), what);
    }
    let all = cases.iter().filter(|(what, _)| !["lightstep", "datadog", "zipkin by address"].contains(what));
    let mut together = json!({});
    for (_, default) in all {
        together.as_object_mut().unwrap().extend(default.as_object().unwrap().clone());
    }
    let made = printed(SIDECAR, &metadata, &of_mesh(&together));
    assert_taken(&TOOLS.envoy, &made, "all together");
    // A patch makes the whole file a message and text again.
    let patched =
        printed(SIDECAR, &metadata, &with_patches(of_mesh(&together), &of_root("p", &json!({"flags_path": "/f"}))));
    assert_taken(&TOOLS.envoy, &patched, "all together, with a patch");
    assert_eq!((&patched["flags_path"], &patched["node"]["id"]), (&json!("/f"), &made["node"]["id"]));
    let names = |made: &Value, of: &str| {
        let list = made["static_resources"][of].as_array().unwrap().clone();
        list.into_iter().map(|resource| resource["name"].clone()).collect::<Vec<_>>()
    };
    for of in ["clusters", "listeners"] {
        assert_eq!(names(&patched, of), names(&made, of));
    }
    let clusters: Vec<&str> =
        made["static_resources"]["clusters"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    let want = ["xds-grpc", "prometheus_stats", "zipkin", "envoy_metrics_service", "envoy_accesslog_service"];
    // The metadata of the last settings replaced those with the self discovery.
    assert!(want.iter().all(|name| clusters.contains(name)), "{clusters:?}");
}

#[test]
fn certificates_of_the_workload_are_followed_by_a_file_of_secrets() {
    let (own, certs) = (Certificate::of("web.example"), scratch());
    for (name, text) in [("cert-chain.pem", &own.chain), ("key.pem", &own.key), ("root-cert.pem", &own.chain)] {
        fs::write(certs.join(name), text).unwrap();
    }
    let als =
        json!({"envoyAccessLogService": {"address": "als.example:9000", "tlsSettings": {"mode": "ISTIO_MUTUAL"}}});
    let text = refused(SIDECAR, &json!({}), &of_mesh(&als));
    assert!(text.contains("envoyAccessLogService.tlsSettings") && text.contains("--certs-dir"), "{text}");
    let mut arguments = of_mesh(&als);
    arguments.extend(["--certs-dir".into(), certs.clone().into()]);
    let made = printed(SIDECAR, &json!({}), &arguments);
    assert_taken(&TOOLS.envoy, &made, "ISTIO_MUTUAL");
    for file in ["envoy.sds.json", "envoy.sds.1.json"] {
        let secrets: Value = serde_json::from_slice(&fs::read(certs.join(file)).unwrap()).unwrap();
        assert_eq!(secrets["resources"].as_array().map(Vec::len), Some(1), "Envoy takes no more: {secrets:#}");
        assert!(made.to_string().contains(certs.join(file).to_str().unwrap()), "{made:#}");
    }
    assert!(!made.to_string().contains("BEGIN"), "the key is not in the file");
    // Envoy looks at secrets when it runs, and not when it validates.
    let admin = free_port();
    let metadata =
        json!({"ENVOY_STATUS_PORT": 0, "ENVOY_PROMETHEUS_PORT": 0, "PROXY_CONFIG": {"proxyAdminPort": admin}});
    let file = scratch().join("envoy.json");
    fs::write(&file, printed(SIDECAR, &metadata, &arguments).to_string()).unwrap();
    let mut envoy = Command::new(&TOOLS.envoy);
    let _envoy = Process::start("envoy", envoy.arg("-c").arg(file).args(["--disable-hot-restart", "-l", "warning"]));
    wait_for("the certificates are taken", || {
        http::get(admin, "localhost", "/certs", &[]).ok().filter(|page| page.body.contains("serial_number"))
    });
}

#[test]
fn settings_with_which_envoy_would_not_start_are_refused_by_name() {
    for (default, metadata, want) in [
        (json!({"statsdUdpAddress": "stats.example:8125"}), json!({}), "statsdUdpAddress"),
        (json!({"statsdUdpAddress": "stats.example"}), json!({}), "statsdUdpAddress"),
        (json!({"proxyStatsMatcher": {"inclusionRegexps": ["("]}}), json!({}), "statsInclusionRegexps"),
        (json!({"proxyAdminPort": 99999}), json!({}), "proxyAdminPort"),
        (json!({}), json!({"ANNOTATIONS": {"proxy.istio.io/config": "concurrency: many"}}), "proxy.istio.io/config"),
        (json!({}), json!({"ANNOTATIONS": {"proxy.istio.io/config": ": :\n - ["}}), "proxy.istio.io/config"),
        (json!({}), json!({"ANNOTATIONS": {"proxy.istio.io/config": "text"}}), "proxy.istio.io/config"),
        (
            json!({"tracing": {"zipkin": {"address": "z:1"}, "tlsSettings": {"mode": "SIMPLE"}}}),
            json!({}),
            "caCertificates",
        ),
    ] {
        let text = refused(SIDECAR, &metadata, &of_mesh(&default));
        assert!(text.contains(want), "{default}: {text}");
    }
    let nowhere = ["--xds-address".into(), "h:1".into(), "--from".into(), format!("127.0.0.1:{}", free_port()).into()];
    assert!(refused(SIDECAR, &json!({}), &nowhere).contains("asking http://"));
}

/// An EnvoyFilter with a patch of the bootstrap.
fn patch_of(namespace: &str, name: &str, more: &Value, value: &Value) -> String {
    let mut spec =
        json!({"configPatches": [{"applyTo": "BOOTSTRAP", "patch": {"operation": "MERGE", "value": value}}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    document_in(namespace, "networking.istio.io/v1alpha3", "EnvoyFilter", name, &spec)
}

fn of_root(name: &str, value: &Value) -> String {
    patch_of("istio-system", name, &json!({}), value)
}

fn with_patches(mut arguments: Vec<OsString>, filters: &str) -> Vec<OsString> {
    let configs = folder(&[("filters.yaml", filters.to_string())]);
    arguments.extend(["--config-dir".into(), configs.into()]);
    arguments
}

#[test]
fn patches_of_envoy_filters_are_in_the_bootstrap_of_the_proxies_that_they_select() {
    let cluster = |name: &str| json!({"static_resources": {"clusters": [{"name": name, "connect_timeout": "1s"}]}});
    let of_app = |app: &str| json!({"workloadSelector": {"labels": {"app": app}}});
    let layer = json!({"layered_runtime": {"layers": [{"name": "own", "static_layer": {"a.b": 7}}]}});
    let tag = json!({"stats_config": {"stats_tags": [{"tag_name": "own", "regex": "own=((.*?);)"}]}});
    let filters = of_root("layer", &layer)
        + &patch_of("shop", "tag", &json!({}), &tag)
        + &patch_of("shop", "web", &of_app("web"), &cluster("of-web"))
        + &patch_of("shop", "other", &of_app("other"), &cluster("of-other"))
        + &patch_of("bank", "elsewhere", &json!({}), &cluster("of-bank"))
        + &patch_of("shop", "refused", &json!({}), &cluster(""))
        + &patch_of("shop", "unread", &json!({}), &json!({"flags_path": 7}));
    let plane = ControlPlane::start(&[("filters.yaml", filters.clone())]);
    let from = format!("127.0.0.1:{}", plane.http_port);
    let xds = ["--xds-address".into(), "127.0.0.1:15010".into()];
    let of_server: Vec<OsString> = xds.iter().cloned().chain(["--from".into(), from.into()]).collect();
    let metadata = json!({"LABELS": {"app": "web"}});
    for arguments in [with_patches(of_mesh(&json!({})), &filters), with_patches(xds.to_vec(), &filters), of_server] {
        let output = command(SIDECAR, &metadata, &arguments).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        let made: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_taken(&TOOLS.envoy, &made, "patches");
        let text = made.to_string();
        assert!(text.contains("of-web") && !text.contains("of-other") && !text.contains("of-bank"), "{text}");
        assert_eq!(made["layered_runtime"]["layers"].as_array().unwrap().last().unwrap()["name"], "own");
        assert_eq!(made["stats_config"]["stats_tags"].as_array().unwrap().last().unwrap()["tag_name"], "own");
        let refused = told.lines().find(|line| line.contains("EnvoyFilter/shop/refused: configPatches[0]"));
        assert!(refused.is_some_and(|line| line.contains("name")), "{told}");
        // Istio's own admission refuses a value that is no bootstrap; so does a folder, by name.
        assert!(!text.contains("flags_path"), "{text}");
        let other = printed(SIDECAR, &json!({"LABELS": {"app": "other"}}), &arguments).to_string();
        assert!(other.contains("of-other") && !other.contains("of-web"), "{other}");
    }
}

/// A running Envoy whose whole start came from `bootstrap`.
struct Started {
    _process: Process,
    ready: u16,
    metrics: u16,
    admin: u16,
}

impl Started {
    /// Asks this control plane for the settings of the node.
    fn from(plane: &ControlPlane, node: &str, metadata: &Value) -> Self {
        let (ready, metrics, admin) = (free_port(), free_port(), free_port());
        let mut metadata = metadata.clone();
        metadata["ENVOY_STATUS_PORT"] = ready.into();
        metadata["ENVOY_PROMETHEUS_PORT"] = metrics.into();
        metadata["PROXY_CONFIG"] = json!({"proxyAdminPort": admin, "concurrency": 1});
        let (out, from) = (scratch(), format!("127.0.0.1:{}", plane.http_port));
        let address = format!("127.0.0.1:{}", plane.grpc_port);
        let arguments: [OsString; 6] =
            ["--xds-address".into(), address.into(), "--from".into(), from.into(), "--out".into(), out.clone().into()];
        let written = command(node, &metadata, &arguments).output().unwrap();
        assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
        let mode = fs::metadata(out.join("envoy.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "the file may hold a token");
        let words = command(node, &metadata, &arguments).args(["--format", "args"]).output().unwrap();
        let words = String::from_utf8(words.stdout).unwrap();
        let mut envoy = Command::new(&TOOLS.envoy);
        envoy.arg("-c").arg(out.join("envoy.json")).args(words.split_whitespace()).args(["-l", "warning"]);
        let process = Process::start("envoy", &mut envoy);
        wait_for("the proxy is ready", || {
            http::get(ready, "localhost", "/healthz/ready", &[]).ok().filter(|answer| answer.body.trim() == "LIVE")
        });
        Self { _process: process, ready, metrics, admin }
    }

    fn page(&self, path: &str) -> String {
        http::get(self.admin, "localhost", path, &[]).unwrap().body
    }
}

#[test]
fn a_proxy_starts_with_the_settings_of_a_running_server() {
    let (collector, port, echo) = (Echo::start("zipkin"), free_port(), Echo::start("web"));
    let stats = UdpSocket::bind("127.0.0.1:0").unwrap();
    stats.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mesh = json!({"defaultConfig": {
        "tracing": {"sampling": 100.0, "zipkin": {"address": format!("127.0.0.1:{}", collector.port)}},
        "statsdUdpAddress": stats.local_addr().unwrap().to_string(),
        "extraStatTags": ["my_tag"], "drainDuration": "9s",
    }});
    let route =
        json!({"hosts": ["*"], "gateways": ["edge"], "http": [{"route": [{"destination": {"host": "web.example"}}]}]});
    let objects = gateway(port)
        + &crate::config::service("web.example", 80, "HTTP", &[(echo.port, "v1", "")])
        + &object("VirtualService", "web", &route);
    let configs = folder(&[("objects.yaml", objects)]);
    let file = scratch().join("mesh.yaml");
    fs::write(&file, mesh.to_string()).unwrap();
    let plane = ControlPlane::launch(
        configs.clone(),
        &["--config-dir".into(), configs.into(), "--mesh-config".into(), file.into()],
    );
    plane.wait_ready();
    let proxy = Started::from(&plane, ROUTER, &json!({"LABELS": {"app": "edge"}}));
    wait_for("the gateway answers", || http::get(port, "a", "/traced", &[]).ok().filter(|a| a.status == 200));
    wait_for("a span comes", || collector.paths().into_iter().find(|path| path == "/api/v2/spans"));
    let mut packet = [0; 65_536];
    stats.recv(&mut packet).expect("statistics come");
    let answer = http::get(proxy.metrics, "localhost", "/stats/prometheus", &[]).unwrap();
    assert!(answer.body.contains("cluster_name=\"xds-grpc\""), "{}", answer.body);
    assert!(!answer.body.contains("envoy_dns_"), "statistics that nobody asked for are kept");
    let compressed = http::get(proxy.metrics, "localhost", "/stats/prometheus", &[("accept-encoding", "gzip")]);
    let encoding = compressed.map(|answer| answer.headers.get("content-encoding").cloned());
    assert_eq!(encoding.unwrap().as_deref(), Some("gzip"));
    for port in [proxy.metrics, proxy.ready] {
        let other = http::get(port, "localhost", "/quitquitquit", &[]).unwrap();
        assert_eq!(other.status, 404, "other pages of the admin interface are not reachable");
    }
    let info = proxy.page("/server_info");
    assert!(info.contains("\"drain_time\": \"9s\"") && info.contains("\"concurrency\": 1"), "{info}");
}

/// A ServiceEntry of the workload and its neighbours: address and locality each.
fn web(port: u16, endpoints: &[(&str, &str)]) -> String {
    let endpoints: Vec<Value> =
        endpoints.iter().map(|(address, locality)| json!({"address": address, "locality": locality})).collect();
    let port = json!({"number": port, "name": "http", "protocol": "HTTP"});
    object(
        "ServiceEntry",
        "web",
        &json!({"hosts": ["web.example"], "location": "MESH_INTERNAL", "resolution": "STATIC", "ports": [port], "endpoints": endpoints}),
    )
}

#[test]
fn a_proxy_finds_the_replicas_of_its_workload() {
    let variables = json!({"apiVersion": "networking.istio.io/v1beta1", "kind": "ProxyConfig", "metadata": {"name": "own", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "environmentVariables": {"ISTIO_META_ENABLE_SELF_DISCOVERY": "true"}}});
    let first = [("10.0.0.5", "r/a"), ("10.0.0.6", "r/b"), ("10.0.0.7", "other/a")];
    let plane = ControlPlane::start(&[("own.yaml", format!("---\n{variables}\n")), ("web.yaml", web(80, &first))]);
    let proxy = Started::from(&plane, SIDECAR, &json!({"LABELS": {"app": "web"}}));
    let replicas = || {
        let text = proxy.page("/clusters");
        let own = text.lines().filter_map(|line| line.strip_prefix("local_cluster::10.0.0."));
        let mut all: Vec<String> = own.filter_map(|rest| rest.split(':').next()).map(str::to_string).collect();
        all.sort();
        all.dedup();
        all
    };
    wait_for("its region's replicas", || Some(replicas()).filter(|all| *all == ["5", "6"]));
    plane.write("web.yaml", &web(80, &[("10.0.0.5", "r/a"), ("10.0.0.6", "r/b"), ("10.0.0.8", "r/a")]));
    wait_for("the new one", || Some(replicas()).filter(|all| *all == ["5", "6", "8"]));
    let other = Started::from(
        &plane,
        "sidecar~10.0.0.9~other.shop~shop.svc.cluster.local",
        &json!({"LABELS": {"app": "other"}}),
    );
    assert!(!other.page("/clusters").contains("local_cluster"));
}

#[test]
fn requests_stay_in_the_zone_while_it_has_its_share_of_the_endpoints() {
    let (egress, zones) = (free_port(), ["r/a", "r/a", "r/a", "r/b", "r/b", "r/b"]);
    let echos = zones.map(|zone| (zone, Echo::start(zone)));
    let endpoints = echos.each_ref().map(|(zone, echo)| (echo.port, "v1", *zone));
    let clients = |zones: [&str; 2]| {
        let [own, other] = zones;
        // The listener below shows the services of its port alone, and the clients are one of them.
        web(egress, &[("10.0.0.5", own), ("10.0.0.6", other)])
    };
    let rule = |setting: Value| {
        let policy = json!({"loadBalancer": {"zoneAwareLbSetting": setting}});
        object("DestinationRule", "far", &json!({"host": "far.example", "trafficPolicy": policy}))
    };
    let port = json!({"number": egress, "protocol": "HTTP", "name": "out"});
    let sidecar = json!({"egress": [{"port": port, "bind": "127.0.0.1", "captureMode": "NONE", "hosts": ["./*"]}]});
    let far = crate::config::service("far.example", egress, "HTTP", &endpoints) + &object("Sidecar", "own", &sidecar);
    let plane = ControlPlane::start(&[
        ("far.yaml", far),
        ("rule.yaml", rule(json!({"enabled": false}))),
        ("web.yaml", clients(["r/a", "r/b"])),
    ]);
    let mut metadata =
        json!({"LABELS": {"app": "web", "topology.istio.io/locality": "r.a"}, "INTERCEPTION_MODE": "NONE"});
    let quiet = command(SIDECAR, &metadata, &of_mesh(&json!({}))).output().unwrap();
    assert!(!String::from_utf8_lossy(&quiet.stderr).contains("SELF_DISCOVERY"));
    metadata["ENABLE_SELF_DISCOVERY"] = "true".into();
    let _proxy = Started::from(&plane, SIDECAR, &metadata);
    // The zones that thirty requests meet.
    let until = |what: &str, wanted: &[&str]| {
        wait_for(what, || {
            let answers = (0..30).map(|_| http::get(egress, "far.example", "/", &[]).ok().map(|a| a.seen("name")));
            let met = answers.collect::<Option<std::collections::BTreeSet<String>>>()?;
            met.iter().map(String::as_str).eq(wanted.iter().copied()).then_some(())
        });
    };
    until("both zones answer without balancing by zones", &["r/a", "r/b"]);
    plane.write("rule.yaml", &rule(json!({"enabled": true})));
    until("the own zone alone answers", &["r/a"]);
    // All clients are in one zone, which has half of the endpoints.
    plane.write("web.yaml", &clients(["r/a", "r/a"]));
    until("the other zone takes the rest", &["r/a", "r/b"]);
    plane.write("web.yaml", &clients(["r/a", "r/b"]));
    until("the own zone alone answers again", &["r/a"]);
    plane.write("rule.yaml", &rule(json!({"enabled": true, "minClusterSize": 7})));
    until("six endpoints are too few", &["r/a", "r/b"]);
    metadata["LABELS"] = json!({"app": "web"});
    let told = command(SIDECAR, &metadata, &of_mesh(&json!({}))).output().unwrap();
    assert!(String::from_utf8_lossy(&told.stderr).contains("ISTIO_META_ENABLE_SELF_DISCOVERY has no effect"));
}

#[test]
fn a_unit_and_a_compose_file_start_the_same_proxy() {
    let default = json!({"concurrency": 3, "drainDuration": "7s", "terminationDrainDuration": "4s", "proxyMetadata": {"PLAIN": "a b%c\"$d", "ISTIO_META_X": "1"}});
    let mut text: Vec<String> = Vec::new();
    for (format, name) in [("systemd", "envoy.service"), ("compose", "compose.yaml")] {
        let out = scratch().join("of it");
        let mut arguments = of_mesh(&default);
        arguments.extend(["--format".into(), format.into(), "--out".into(), out.clone().into()]);
        let output = command(SIDECAR, &json!({}), &arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()), out.join(name));
        let bootstrap = serde_json::from_slice(&fs::read(out.join("envoy.json")).unwrap()).unwrap();
        assert_taken(&TOOLS.envoy, &bootstrap, format);
        assert_eq!(bootstrap["node"]["metadata"]["X"], "1");
        text.push(fs::read_to_string(out.join(name)).unwrap());
    }
    for part in ["\"PLAIN=a b%%c\\\"$d\"", "--concurrency 3", "--drain-time-s 7", "sleep 4", "TimeoutStopSec=14"] {
        assert!(text[0].contains(part), "{part}: {}", text[0]);
    }
    let parsed = pilothouse::sources::yaml::values(&text[1]).unwrap().pop().unwrap();
    let service = &parsed["services"]["envoy"];
    assert_eq!((&service["environment"]["PLAIN"], &service["network_mode"]), (&json!("a b%c\"$$d"), &json!("host")));
    let command: Vec<&str> = service["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert!(command.windows(2).any(|pair| pair == ["--concurrency", "3"]), "{command:?}");
}
