//! istioctl as Istio publishes its source, without changes, against a running server: in plain text, with a certificate, with a
//! token, and through the port forwarding of a cluster.
//!
//! The build compiles Kubernetes' libraries, which takes five minutes of a machine with two cores; it is kept under `target/clients`, and
//! begins where PILOTHOUSE_TEST_ISTIOCTL is set.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::LazyLock,
};

use serde_json::{Value, json};

use crate::{
    config::{object, service, subsets, to},
    http::{Echo, get},
    mesh::{ControlPlane, Envoy, folder},
    process::{free_port, scratch, wait_for},
    skipped::skipped,
};

/// The newest version that Go's module proxy has: Istio's releases have no version of Go modules.
const VERSION: &str = "v0.0.0-20260827124520-eed52ebb66ad";
const MAIN: &str = include_str!("programs/istioctl/main.go");
const CLUSTER: &str = include_str!("programs/istioctl/cluster/main.go");
const NODE: &str = "sidecar~10.0.0.1~client.shop~shop.svc.cluster.local";

/// The folder with both programs; `None`, said aloud, where there is no Go that is new enough.
fn programs() -> Option<&'static Path> {
    static BUILT: LazyLock<Result<PathBuf, String>> = LazyLock::new(build);
    BUILT.as_deref().inspect_err(|reason| skipped(&format!("istioctl is not to be had here: {reason}"))).ok()
}

fn build() -> Result<PathBuf, String> {
    if std::env::var_os("PILOTHOUSE_TEST_ISTIOCTL").is_none() {
        return Err("PILOTHOUSE_TEST_ISTIOCTL is not set, and the build takes minutes".to_string());
    }
    let mut hasher = DefaultHasher::new();
    (VERSION, MAIN, CLUSTER).hash(&mut hasher);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients/istioctl");
    fs::create_dir_all(&target).unwrap();
    let lock = File::create(target.join("lock")).unwrap();
    lock.lock().unwrap();
    let path = target.join(format!("{:016x}", hasher.finish()));
    let done = path.join("done");
    if done.is_file() {
        return Ok(path);
    }
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(path.join("cluster")).unwrap();
    fs::write(path.join("go.mod"), "module programs\n\ngo 1.26.0\n").unwrap();
    fs::write(path.join("main.go"), MAIN).unwrap();
    fs::write(path.join("cluster/main.go"), CLUSTER).unwrap();
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command.args(arguments).current_dir(&path).env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local");
        let output = command.output().map_err(|error| format!("go: {error}"))?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(format!("go {arguments:?}: {text}")) }
    };
    go(&["get", &format!("istio.io/istio@{VERSION}")])?;
    go(&["mod", "tidy"])?;
    // Neither is debugged.
    go(&["build", "-ldflags=-s -w", "-o", "istioctl", "."])?;
    go(&["build", "-ldflags=-s -w", "-o", "cluster/cluster", "./cluster"])?;
    fs::write(done, "").unwrap();
    Ok(path)
}

/// A cluster whose pods are the server and its proxy; killed when dropped.
struct Cluster {
    child: Child,
    address: String,
}

impl Cluster {
    fn start(programs: &Path, token: &str, served: &Served) -> Self {
        let http = format!("127.0.0.1:{}", served.plane.http_port);
        let secure = format!("127.0.0.1:{}", served.secure);
        let ports = [(15012, &secure), (15014, &http), (8080, &http), (15000, &served.envoy.admin_address())];
        let ports = ports.map(|(port, address)| format!("{port}={address}"));
        let mut command = Command::new(programs.join("cluster/cluster"));
        let mut child = command.arg(token).args(ports).stdout(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { child, address: address.trim().to_string() }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// istioctl with a kubeconfig of its own.
struct Istioctl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Istioctl {
    fn new(programs: &Path, server: &str) -> Self {
        let kubeconfig = scratch().join("kubeconfig");
        let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{server}")}}],
            "users": [{"name": "u", "user": {}}]});
        fs::write(&kubeconfig, text.to_string()).unwrap();
        Self { program: programs.join("istioctl"), kubeconfig }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("--kubeconfig").arg(&self.kubeconfig).env("HOME", scratch()).output().unwrap()
    }

    /// Standard output of a command that succeeds.
    fn said(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A server with an Envoy, and the files of its state.
struct Served {
    plane: ControlPlane,
    envoy: Envoy,
    secure: u16,
    state: PathBuf,
    port: u16,
    _echo: Echo,
}

fn serve() -> Served {
    let (echo, port, secure, state) = (Echo::start("v1"), free_port(), free_port(), scratch());
    let egress = json!({"egress": [{
        "port": {"number": port, "protocol": "HTTP", "name": "egress"}, "bind": "127.0.0.1", "captureMode": "NONE",
        "hosts": ["./*"]}]});
    let routes = json!({"hosts": ["web.example"], "http": [{"match": [{"uri": {"prefix": "/api"}}], "route": [to("web.example", "v1")]}]});
    let text = service("web.example", port, "HTTP", &[(echo.port, "v1", "")])
        + &subsets("web.example")
        + &object("Sidecar", "client", &egress)
        + &object("VirtualService", "web", &routes);
    let configs = folder(&[("shop.yaml", text)]);
    let arguments: [OsString; 6] = [
        "--config-dir".into(),
        configs.clone().into(),
        "--state-dir".into(),
        state.clone().into(),
        "--secure-grpc-addr".into(),
        format!("127.0.0.1:{secure}").into(),
    ];
    let plane = ControlPlane::launch(configs, &arguments);
    plane.wait_ready();
    let metadata = json!({"INTERCEPTION_MODE": "NONE", "LABELS": {"app": "client"}});
    let envoy = Envoy::start(&plane, NODE, &metadata, true);
    wait_for("the sidecar answers", || get(port, "web.example", "/api", &[]).ok().filter(|a| a.status == 200));
    Served { plane, envoy, secure, state, port, _echo: echo }
}

impl Served {
    /// A join token of the root namespace.
    fn token(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(["token", "create", "--namespace", "istio-system", "--service-account", "default", "--state-dir"]);
        let output = command.arg(&self.state).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    }

    /// A folder as `--cert-dir` wants it, with a certificate of the root namespace.
    fn certificates(&self) -> PathBuf {
        let (certs, token) = (scratch(), scratch().join("token"));
        fs::write(&token, self.token()).unwrap();
        let root = self.state.join("identity/root-cert.pem");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(["certificate", "--xds-address", &format!("127.0.0.1:{}", self.secure), "--root-cert"]).arg(&root);
        let output = command.arg("--token-file").arg(&token).arg("--certs-dir").arg(&certs).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        certs
    }
}

/// The commands that ask the control plane over xDS, with these arguments for the way to it.
fn asks(istioctl: &Istioctl, served: &Served, way: &[&str]) {
    let said = |arguments: &[&str]| istioctl.said(&[arguments, way].concat());
    let version = said(&["x", "version", "--short=false"]);
    assert!(version.contains("pilothouse") || version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    assert!(!version.contains("MISSING") && !version.contains("INVALID"), "{version}");

    let table = said(&["proxy-status"]);
    let row = table.lines().find(|line| line.starts_with("client.shop")).unwrap_or_else(|| panic!("{table}"));
    assert!(row.contains("4 (CDS,LDS,EDS,RDS)"), "{table}");
    let verbose = said(&["ps", "-v", "1"]);
    let row = verbose.lines().find(|line| line.starts_with("client.shop")).unwrap_or_else(|| panic!("{verbose}"));
    assert!(row.matches("SYNCED").count() >= 4, "{verbose}");
    let proxies = json_of(&said(&["proxy-status", "-o", "json"]));
    assert!(proxies.to_string().contains("client.shop"), "{proxies}");

    let pages = json_of(&said(&["x", "internal-debug", "--list"]));
    let pages: BTreeSet<&str> = pages.as_array().unwrap().iter().map(|page| page.as_str().unwrap()).collect();
    for page in [
        "/debug/cachez",
        "/debug/mcsz",
        "/debug/pprof",
        "/debug/syncz",
        "/debug/clusterz",
        "/debug/adsz",
        "/debug/registryz",
        "/debug/config_dump",
    ] {
        assert!(pages.contains(page), "{page}: {pages:?}");
    }
    let syncz = json_of(&said(&["x", "internal-debug", "syncz"]));
    assert!(syncz.to_string().contains("client.shop"), "{syncz}");
    let all = json_of(&said(&["x", "internal-debug", "syncz", "--all"]));
    let (instance, of_instance) = all.as_object().unwrap().iter().next().unwrap();
    assert!(instance != "MISSING" && of_instance.to_string().contains("client.shop"), "{all}");
    let services = json_of(&said(&["x", "internal-debug", "registryz"]));
    assert!(services.to_string().contains("web.example"), "{services}");
    let cached = json_of(&said(&["x", "internal-debug", "cachez"]));
    assert!(cached.to_string().contains("web.example"), "{cached}");
    let dump = json_of(&said(&["x", "internal-debug", "config_dump?proxyID=client.shop"]));
    assert!(dump["configs"].as_array().is_some_and(|sections| !sections.is_empty()), "{dump}");
    let endpoints = said(&["x", "internal-debug", "edsz?proxyID=client.shop"]);
    assert!(endpoints.contains(&format!("outbound|{}|v1|web.example", served.port)), "{endpoints}");
    let missing = said(&["x", "internal-debug", "nonsense"]);
    assert!(missing.contains("please check all supported internal debug commands"), "{missing}");

    // The difference between the state of the server and a dump of the proxy.
    let file = scratch().join("dump.json");
    fs::write(&file, served.envoy.admin("/config_dump").unwrap().body).unwrap();
    // And with one of now, by way of the cluster.
    for more in [&["--file", file.to_str().unwrap()][..], &[]] {
        let difference = said(&[&["proxy-status", "client.shop"], more].concat());
        for part in ["Clusters Match", "Listeners Match", "Routes Match"] {
            assert!(difference.contains(part), "{part}: {difference}");
        }
    }
}

#[test]
fn istioctl_asks_over_xds_in_plain_text_with_a_certificate_and_with_a_token() {
    let Some(programs) = programs() else { return };
    let served = serve();
    let token = served.token();
    let cluster = Cluster::start(programs, &token, &served);
    let istioctl = Istioctl::new(programs, &cluster.address);
    let plain = format!("127.0.0.1:{}", served.plane.grpc_port);
    asks(&istioctl, &served, &["--xds-address", &plain, "--plaintext"]);
    let secure = format!("127.0.0.1:{}", served.secure);
    // The token of the cluster's service account, over TLS.
    asks(&istioctl, &served, &["--xds-address", &secure]);
    let certs = served.certificates();
    let san = ["--authority", "istiod.istio-system.svc"];
    asks(&istioctl, &served, &[&["--xds-address", &secure, "--cert-dir", certs.to_str().unwrap()], &san[..]].concat());
    // As in a cluster: the pods of the control plane are found and reached by port forwarding.
    asks(&istioctl, &served, &[]);
    served.envoy.assert_no_nacks();
}

#[test]
fn istioctl_asks_the_pages_of_a_pod_and_reads_dumps_and_files() {
    let Some(programs) = programs() else { return };
    let served = serve();
    let cluster = Cluster::start(programs, "none", &served);
    let istioctl = Istioctl::new(programs, &cluster.address);

    let version = json_of(&istioctl.said(&["version", "-o", "json"]));
    assert_eq!(version["meshVersion"][0]["Info"]["version"], env!("CARGO_PKG_VERSION"), "{version}");
    let clusters = istioctl.said(&["remote-clusters"]);
    assert!(clusters.lines().next().unwrap().starts_with("NAME"), "{clusters}");

    // Of the live proxy, and of pages that it wrote to files: the same tables, and the rows of our own command.
    let page = |path: &str| {
        let file = scratch().join("dump.json");
        fs::write(&file, served.envoy.admin(path).unwrap().body).unwrap();
        file.to_str().unwrap().to_string()
    };
    let (dump, endpoints) = (page("/config_dump"), page("/clusters?format=json"));
    for what in ["cluster", "listener", "route", "endpoint", "secret", "all", "bootstrap"] {
        let file = if what == "endpoint" { &endpoints } else { &dump };
        let of_file = istioctl.said(&["proxy-config", what, "--file", file]);
        let live = istioctl.said(&["proxy-config", what, "client.shop"]);
        if what == "bootstrap" {
            for text in [of_file, live] {
                assert_eq!(json_of(&text)["bootstrap"]["node"]["id"], NODE, "{text}");
            }
            continue;
        }
        // The table of everything of a live proxy ends with endpoints, which a dump does not have.
        if what != "all" {
            assert_eq!(rows(&live), rows(&of_file), "{what}");
            let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
            let output = command.args(["proxy-config", what, "--file", file]).output().unwrap();
            assert_eq!(rows(&of_file), rows(&String::from_utf8(output.stdout).unwrap()), "{what}");
        }
        assert!(rows(&live).is_superset(&rows(&of_file)), "{what}: {live}");
        if what != "secret" {
            assert!(!rows(&of_file).is_empty(), "{what}: {of_file}");
        }
    }
    // Of the server, as a dump that istioctl reads.
    let page = get(served.plane.http_port, "localhost", "/debug/config_dump?proxyID=client.shop", &[]).unwrap();
    let of_server = scratch().join("server.json");
    fs::write(&of_server, page.body).unwrap();
    for (what, shows) in [("cluster", "web.example"), ("route", "/api*"), ("listener", "127.0.0.1")] {
        let table = istioctl.said(&["proxy-config", what, "-f", of_server.to_str().unwrap()]);
        assert!(table.contains(shows), "{what}: {table}");
    }
}

/// The rows of tables without their titles: the first three cells of each.
fn rows(text: &str) -> BTreeSet<Vec<String>> {
    let cells = |line: &str| line.split_whitespace().take(3).map(str::to_string).collect::<Vec<_>>();
    text.lines().skip(1).map(cells).collect()
}

/// A message about an object: its code, the object, the file, and the number of the document in it.
type Message = (String, String, String, usize);

/// The codes of analyzers that istioctl runs only where it asks a cluster: they read Pods, Services, Namespaces, Secrets, or
/// conditions that a control plane writes.
const OF_A_CLUSTER: [&str; 26] = [
    "IST0103", "IST0107", "IST0108", "IST0110", "IST0111", "IST0112", "IST0116", "IST0118", "IST0123", "IST0125",
    "IST0127", "IST0135", "IST0136", "IST0137", "IST0140", "IST0144", "IST0145", "IST0149", "IST0150", "IST0159",
    "IST0162", "IST0166", "IST0167", "IST0171", "IST0173", "IST0174",
];

/// The other messages that only one of both has, by the reason; the name is that of the last file or folder.
const APART: [(&str, &[&str]); 6] = [
    (
        "istioctl makes no Gateway from an object of the Gateway API in a file",
        &[
            "istioctl routed-gateways.yaml: IST0101 virtualservice edge/good",
            "istioctl routed-gateways.yaml: IST0101 virtualservice shop/good-too",
            "istioctl routed-gateways.yaml: IST0132 virtualservice edge/good",
            "istioctl routed-gateways.yaml: IST0132 virtualservice shop/good-too",
        ],
    ),
    (
        "here, objects of a kind that no file has are taken to be elsewhere",
        &["istioctl virtual-service-details-v2.yaml: IST0101 virtualservice details"],
    ),
    (
        "its analyzers of hosts and selectors, which use this code too, run with a cluster only",
        &[
            "pilothouse authorization.yaml: IST0101 authorizationpolicy shop/target",
            "pilothouse authorization.yaml: IST0101 authorizationpolicy shop/wrong-namespaces",
            "pilothouse destinations.yaml: IST0101 virtualservice bank/exported",
            "pilothouse destinations.yaml: IST0101 virtualservice office/elsewhere",
            "pilothouse destinations.yaml: IST0101 virtualservice shop/absent",
            "pilothouse destinations.yaml: IST0101 virtualservice shop/mirrors",
            "pilothouse gateway-ports.yaml: IST0101 gateway edge/misspelt",
            "pilothouse sidecars.yaml: IST0101 sidecar other/elsewhere",
            "pilothouse sidecars.yaml: IST0101 sidecar shop/absent",
            "pilothouse telemetries.yaml: IST0101 telemetry shop/absent",
        ],
    ),
    ("istioctl asks for delegates nowhere", &["pilothouse subsets.yaml: IST0101 virtualservice shop/root"]),
    (
        "istioctl passes over kinds in a file that it does not know",
        &[
            "pilothouse deprecated.yaml: IST0002 customresourcedefinition meshpolicies.authentication.istio.io",
            "pilothouse deprecated.yaml: IST0002 servicerole a/old",
            "pilothouse deprecated.yaml: IST0133 servicerole a/old",
        ],
    ),
    (
        "istioctl ends without a list where one object of a file cannot be read",
        &[
            "pilothouse own-policies.yaml: IST0106 serviceentry open/refused",
            "pilothouse own-policies.yaml: IST0133 serviceentry open/unknown-field",
        ],
    ),
];

/// The messages of an analysis with Istio's codes; text before the list is about files that are not read.
fn messages(output: &Output) -> BTreeSet<Message> {
    let text = String::from_utf8_lossy(&output.stdout);
    let begin = text.find("[\n").map_or("[]", |at| &text[at..]);
    let found = json_of(begin);
    let message = |message: &Value| {
        let text = |key: &str| message[key].as_str().unwrap_or_default().to_string();
        let reference = text("reference");
        let (path, lines) = reference.split_once(".yaml:").unwrap_or((&reference, ""));
        let line: usize = lines.split(':').next().and_then(|line| line.parse().ok()).unwrap_or_default();
        let content = fs::read_to_string(format!("{path}.yaml")).unwrap_or_default();
        let documents = content.lines().take(line).filter(|line| line.starts_with("---")).count();
        let origin = text("origin").to_lowercase().replace("default/", "");
        (text("code"), origin, path.rsplit('/').next().unwrap_or_default().to_string(), documents)
    };
    let found = found.as_array().unwrap().iter().map(message);
    found.filter(|(code, ..)| code.starts_with("IST")).collect()
}

#[test]
fn istioctl_analyses_the_same_files_with_the_same_codes_at_the_same_objects() {
    let Some(programs) = programs() else { return };
    let istioctl = Istioctl::new(programs, "127.0.0.1:1");
    let module =
        Command::new("go").args(["list", "-m", "-f", "{{.Dir}}", "istio.io/istio"]).current_dir(programs).output();
    let samples = Path::new(String::from_utf8(module.unwrap().stdout).unwrap().trim()).join("samples");
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lifecycle/analyze");
    let mut cases: Vec<Vec<PathBuf>> = fs::read_dir(cases).unwrap().map(|entry| vec![entry.unwrap().path()]).collect();
    let of_samples: [&[&str]; 9] = [
        &["bookinfo/policy"],
        &["ratelimit"],
        &["multicluster"],
        &["extauthz"],
        &["open-telemetry"],
        &["bookinfo/networking/egress-rule-google-apis.yaml"],
        &["bookinfo/networking/fault-injection-details-v1.yaml"],
        &["bookinfo/networking/virtual-service-details-v2.yaml"],
        &["bookinfo/networking/destination-rule-all.yaml", "bookinfo/networking/virtual-service-all-v1.yaml"],
    ];
    cases.extend(of_samples.map(|paths| paths.iter().map(|path| samples.join(path)).collect()));
    let (mut same, mut apart) = (0, Vec::new());
    for paths in cases {
        let name = paths.last().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        let mut arguments = vec!["analyze", "--use-kube=false", "-A", "-o", "json"];
        arguments.extend(paths.iter().map(|path| path.to_str().unwrap()));
        let theirs = istioctl.run(&arguments);
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        let ours = command.args(["analyze", "-o", "json"]).args(&paths).output().unwrap();
        let (theirs, ours) = (messages(&theirs), messages(&ours));
        same += theirs.intersection(&ours).count();
        let of_files = ours.difference(&theirs).filter(|(code, ..)| !OF_A_CLUSTER.contains(&&**code));
        apart.extend(theirs.difference(&ours).map(|(code, origin, ..)| format!("istioctl {name}: {code} {origin}")));
        apart.extend(of_files.map(|(code, origin, ..)| format!("pilothouse {name}: {code} {origin}")));
    }
    let listed: BTreeSet<&str> = APART.iter().flat_map(|(_, messages)| *messages).copied().collect();
    let apart: BTreeSet<&str> = apart.iter().map(String::as_str).collect();
    let (new, gone): (Vec<_>, Vec<_>) = (apart.difference(&listed).collect(), listed.difference(&apart).collect());
    assert!(new.is_empty() && gone.is_empty(), "not listed: {new:#?}, listed and gone: {gone:#?}");
    assert!(same >= 40, "{same} messages are the same");
}
