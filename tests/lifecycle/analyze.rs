//! `pilothouse analyze`: each message at its line, the forms of the output, exit codes.
//!
//! The cases are the files in `analyze/`. A line at fault ends in `# => CODE`, and a part of the text may follow; a line without
//! such a mark has no message. Cases of Istio's codes have the meaning of Istio's own tests of its analyzers.

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant, SystemTime},
};

use pilothouse::{analysis::Code, identity::authority::new_root};
use serde_json::{Value, json};

use crate::{binary::Binary, confirm::ask, skipped::skipped, stage::DEADLINE};

const MARK: &str = "# => ";

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lifecycle/analyze");
    let mut cases: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

fn analyze(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command.arg("analyze").args(arguments).env_remove("PILOTHOUSE_OUTPUT").output().unwrap()
}

/// The messages of a path in JSON, and the exit code. Kinds that have no effect yet are not what the cases are about.
fn messages(path: &Path, more: &[&str]) -> (Vec<Value>, i32) {
    let output = analyze(&[&["-o", "json", path.to_str().unwrap()], more].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut found: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    found.retain(|message| !message["message"].as_str().unwrap().contains("no effect yet"));
    (found, output.status.code().unwrap())
}

/// The line, the code and a part of the text of each message that the marks of a case demand.
fn demanded(text: &str) -> Vec<(u64, String, String)> {
    let marked = text.lines().zip(1..).flat_map(|(line, number)| {
        line.split(MARK).skip(1).map(move |mark| {
            let (code, text) = mark.trim().split_once(' ').unwrap_or((mark.trim(), ""));
            (number, code.to_string(), text.trim().to_string())
        })
    });
    marked.collect()
}

#[test]
fn each_case_has_its_messages_at_their_lines_and_no_others() {
    let mut codes = BTreeSet::new();
    let mut wrong = String::new();
    for case in cases() {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let mut left = demanded(&fs::read_to_string(&case).unwrap());
        let (found, code) = messages(&case, &[]);
        let is_error = found.iter().any(|message| message["level"] == "Error");
        assert_eq!(code, if is_error { 79 } else { 0 }, "{name}: {found:#?}");
        for message in &found {
            let (line, code, text) = (
                message["line"].as_u64().unwrap(),
                message["code"].as_str().unwrap(),
                message["message"].as_str().unwrap(),
            );
            let is_it = |(l, c, t): &(u64, String, String)| *l == line && c == code && text.contains(t.as_str());
            match left.iter().position(is_it) {
                Some(at) => drop(left.remove(at)),
                None => wrong.push_str(&format!("{name}:{line}: {code} is not demanded: {text}\n")),
            }
            assert!(message["column"].as_u64().unwrap() > 0, "{message}");
            codes.insert(code.to_string());
        }
        for (line, code, text) in left {
            wrong.push_str(&format!("{name}:{line}: {code} {text:?} is missing\n"));
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    // Codes that need more than one file of objects have a test of their own below.
    let elsewhere = ["IST0126", "IST0170", "IST0161", "PH0106", "PH0112", "IST0175"].map(str::to_string);
    let all: BTreeSet<String> = Code::ALL.iter().map(|code| code.code().to_string()).collect();
    let tested: BTreeSet<String> = codes.into_iter().chain(elsewhere).collect();
    assert_eq!(all.difference(&tested).collect::<Vec<_>>(), Vec::<&String>::new(), "codes without a case");
}

#[test]
fn the_order_of_files_and_documents_does_not_matter() {
    let found = |dir: &Path| -> BTreeSet<String> {
        let of = |m: Value| format!("{} {} {}", m["code"], m["origin"], m["message"]);
        messages(dir, &[]).0.into_iter().map(of).collect()
    };
    for case in cases() {
        let text = fs::read_to_string(&case).unwrap();
        // A copy is the one that comes second.
        if text.contains("PH0110") {
            continue;
        }
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (i, document) in text.split("\n---\n").enumerate() {
            fs::write(one.path().join(format!("{i:03}.yaml")), document).unwrap();
            fs::write(other.path().join(format!("{:03}.yaml", 999 - i)), document).unwrap();
        }
        // A patch for one version counts for those that come later.
        if !text.contains("IST0155") {
            assert_eq!(found(one.path()), found(other.path()), "{}", case.display());
        }
    }
}

#[test]
fn thresholds_and_suppressions_decide_the_exit_code() {
    let case = |name: &str| cases().into_iter().find(|case| case.ends_with(name)).unwrap();
    // One Info alone.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "odd", "namespace": "a"},
        "spec": {"selector": {"app": "a"}, "ports": [{"name": "odd", "port": 80}]}});
    fs::write(&file, service.to_string()).unwrap();
    for (more, exit, count) in [
        (&[][..], 0, 1),
        (&["--failure-threshold", "Info"], 79, 1),
        (&["--failure-threshold", "warning"], 0, 1),
        (&["--failure-threshold", "Info", "--output-threshold", "Error"], 79, 0),
        (&["--failure-threshold", "Info", "-S", "IST0118=Service odd.a"], 0, 0),
        (&["--failure-threshold", "Info", "-S", "IST0118=Service *.b"], 79, 1),
    ] {
        let (found, code) = messages(&file, more);
        assert_eq!((found.len(), code), (count, exit), "{more:?}");
    }
    assert_eq!(messages(&case("conflicting-gateways.yaml"), &["-S", "IST0145=*", "-S", "IST0138=*"]).1, 0);
    for (wrong, word) in [
        (&["--failure-threshold", "loud"][..], "--failure-threshold"),
        (&["-S", "IST0118"], "--suppress"),
        (&["-S", "IST9999=*"], "IST9999"),
        (&["-o", "html"], "--output"),
    ] {
        let output = analyze(&[&[file.to_str().unwrap()], wrong].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(64) && said.contains(word), "{wrong:?}: {said}");
    }
    let output = analyze(&["/no/such/path"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(64), 0));
}

#[test]
fn every_form_has_the_same_messages() {
    let case = cases().into_iter().find(|case| case.ends_with("sidecars.yaml")).unwrap();
    let path = case.to_str().unwrap();
    let (found, _) = messages(&case, &[]);
    let of = |form: &str| String::from_utf8(analyze(&["-o", form, path]).stdout).unwrap();
    let text = of("text");
    assert!(!text.contains('\u{1b}'), "colours in a pipe: {text}");
    let first = &found[0];
    let line =
        format!("{} [{}] ({} {})", "Error", "IST0101", "Sidecar shop/absent", first["reference"].as_str().unwrap());
    assert!(text.starts_with(&line), "{line}\n{text}");
    assert_eq!(text.matches("    way out: ").count(), found.len());
    let yaml = pilothouse::sources::yaml::values(&of("yaml")).unwrap();
    assert_eq!(yaml, [Value::Array(found.clone())]);
    let sarif: Value = serde_json::from_str(&of("sarif")).unwrap();
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    let places = |list: &[Value], line: fn(&Value) -> Value| list.iter().map(line).collect::<Vec<_>>();
    let of_sarif = places(results, |r| r["locations"][0]["physicalLocation"]["region"]["startLine"].clone());
    assert_eq!(of_sarif, places(&found, |m| m["line"].clone()));
    let junit = of("junit");
    assert_eq!(junit.matches("<testcase ").count(), found.len());
    let errors = found.iter().filter(|message| message["level"] == "Error").count();
    assert_eq!(junit.matches("<failure ").count(), errors, "{junit}");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lifecycle/analyze");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command.args(["analyze", "-o", "json"]).arg(case).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(79), ""));
}

#[test]
fn clean_folders_have_no_message() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/demo");
    let mesh = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/mesh.yaml");
    let (found, code) = messages(&demo, &["--mesh-config", mesh.to_str().unwrap()]);
    assert_eq!((found, code), (Vec::new(), 0));
}

#[test]
fn mesh_settings_files_and_folders_have_messages_too() {
    let dir = tempfile::tempdir().unwrap();
    let (mesh, networks, folder) =
        (dir.path().join("mesh.yaml"), dir.path().join("networks.yaml"), dir.path().join("config"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("broken.yaml"), "a: 1\n b: 2\n").unwrap();
    fs::write(folder.join("upper.YAML"), "a: 1\n").unwrap();
    fs::write(&mesh, "rootNamespace: a\nunknown: 1\n").unwrap();
    let text = "networks:\n  one:\n    endpoints:\n    - fromRegistry: Kubernetes\n    - fromRegistry: nowhere\n";
    fs::write(&networks, text).unwrap();
    let settings = ["--mesh-config", mesh.to_str().unwrap(), "--networks-config", networks.to_str().unwrap()];
    let (found, code) = messages(&folder, &settings);
    let shown: Vec<(String, &Value, &Value)> = found
        .iter()
        .map(|m| (m["file"].as_str().unwrap().rsplit('/').next().unwrap().to_string(), &m["line"], &m["code"]))
        .collect();
    for wanted in [
        ("broken.yaml", 2, "IST0106"),
        ("upper.YAML", 0, "PH0112"),
        ("mesh.yaml", 2, "IST0133"),
        ("networks.yaml", 5, "IST0126"),
    ] {
        let wanted = (wanted.0.to_string(), &json!(wanted.1), &json!(wanted.2));
        assert!(shown.contains(&wanted), "{wanted:?}: {shown:?}");
    }
    assert_eq!((shown.len(), code), (4, 79), "{shown:?}");
}

#[test]
fn services_of_several_clusters_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (here, west) = (dir.path().join("here"), dir.path().join("west"));
    fs::create_dir_all(&here).unwrap();
    fs::create_dir_all(&west).unwrap();
    let service = |name: &str, spec: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{selector: {{app: a}}, {spec}}}\n---\n"
        )
    };
    let plain = "ports: [{name: http, port: 80}]";
    let each = |pairs: &[(&str, &str)]| pairs.iter().map(|(name, spec)| service(name, spec)).collect::<String>();
    let of_here = each(&[
        ("same", "ports: [{name: http, port: 80}, {name: tcp-b, port: 81}]"),
        ("more", plain),
        ("renamed", plain),
        ("mixed", plain),
        ("typed", plain),
        ("alone", plain),
    ]);
    let of_west = each(&[
        (
            "same",
            "type: ClusterIP, ports: [{name: tcp-b, port: 81}, {name: http, port: 80, protocol: TCP, targetPort: 80, nodePort: 30080}]",
        ),
        ("more", "ports: [{name: http, port: 80}, {name: tcp-b, port: 81}]"),
        ("renamed", "ports: [{name: http-web, port: 80}]"),
        ("mixed", "clusterIP: None, ports: [{name: http, port: 80}]"),
        ("typed", "type: LoadBalancer, ports: [{name: http, port: 80, targetPort: 8080}]"),
    ]);
    // Configuration of another cluster is not read, so it has no finding.
    let rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a, namespace: shop}\nspec: {host: nowhere}\n";
    fs::write(here.join("a.yaml"), of_here).unwrap();
    fs::write(west.join("a.yaml"), of_west + rule).unwrap();
    let remote = format!("west={}", west.display());
    let (found, code) = messages(&here, &["--remote-cluster", &remote, "--cluster-id", "east"]);
    let shown: Vec<(&str, &str, u64)> = found
        .iter()
        .map(|m| (m["origin"].as_str().unwrap(), m["message"].as_str().unwrap(), m["line"].as_u64().unwrap()))
        .collect();
    let text = |name: &str, reasons: &str| {
        format!(
            "The service {name} in namespace \"shop\" is inconsistent across clusters [\"east\" \"west\"], which can lead to undefined \
             behaviors. The inconsistent behaviors are: {reasons}."
        )
    };
    let (ports, types) = ("service ports are inconsistent", "service type is inconsistent");
    let wanted = [
        ("Service shop/more", text("more", ports), 9),
        ("Service shop/renamed", text("renamed", ports), 14),
        ("Service shop/mixed", text("mixed", "service has mixed mode like headless and clusterIP"), 19),
        ("Service shop/typed", text("typed", &format!("{types}; {ports}")), 24),
    ];
    assert_eq!(shown, wanted.each_ref().map(|(origin, text, line)| (*origin, text.as_str(), *line)), "{found:#?}");
    assert!(found.iter().all(|m| m["code"] == "IST0170" && m["file"].as_str().unwrap().contains("here")), "{found:#?}");
    assert_eq!(code, 0);
    assert_eq!(messages(&here, &[]).0.len(), 0);
    let output = analyze(&[here.to_str().unwrap(), "--remote-cluster", "west=/no/such"]);
    assert_eq!(output.status.code(), Some(64));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "pilothouse: --remote-cluster west=/no/such: no such file or folder\n"
    );
}

#[test]
fn providers_are_looked_for_in_the_mesh_config() {
    let dir = tempfile::tempdir().unwrap();
    let (mesh, file) = (dir.path().join("mesh.yaml"), dir.path().join("a.yaml"));
    let text = "extensionProviders:\n- {name: gate, envoyExtAuthzGrpc: {service: a.example, port: 1}}\n\
                - {name: old, lightstep: {service: a.example, port: 1, accessToken: x}}\n";
    fs::write(&mesh, text).unwrap();
    let text = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {name: a, namespace: a}\n\
                spec:\n  action: CUSTOM\n  provider: {name: gaet}\n  rules: [{}]\n---\n\
                apiVersion: telemetry.istio.io/v1\nkind: Telemetry\nmetadata: {name: a, namespace: a}\n\
                spec:\n  tracing:\n  - providers:\n    - name: old\n    - name: new\n";
    fs::write(&file, text).unwrap();
    let shown = |more: &[&str]| -> BTreeSet<String> {
        let of =
            |m: &Value| format!("{} {} {}", m["line"], m["code"].as_str().unwrap(), m["message"].as_str().unwrap());
        messages(&file, more).0.iter().map(of).collect()
    };
    let found = shown(&["--mesh-config", mesh.to_str().unwrap()]);
    for wanted in [
        "6 IST0101 Referenced provider not found: \"gaet\"",
        "16 IST0101 Referenced provider not found: \"new\"",
        "15 IST0002 Deprecated: The Lightstep provider old is deprecated, please migrate to OpenTelemetry provider.",
    ] {
        assert!(found.contains(wanted), "{wanted}: {found:#?}");
    }
    assert!(!shown(&[]).iter().any(|text| text.contains("IST0101")), "without a mesh config nothing shows a provider");
}

#[test]
fn a_running_server_shows_its_objects_messages() {
    let dir = tempfile::tempdir().unwrap();
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lifecycle/analyze/conflicting-gateways.yaml");
    fs::copy(&case, dir.path().join("a.yaml")).unwrap();
    let mut server = Binary::serve(dir.path(), &[], &[]);
    let (_, http) = server.addresses();
    let end = Instant::now() + DEADLINE;
    let page: Value = loop {
        let answer = ask(http, "GET /debug/analysisz HTTP/1.0");
        let page: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        if page.as_array().is_some_and(|found| !found.is_empty()) {
            break page;
        }
        assert!(Instant::now() < end, "{answer}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut shown: Vec<(&str, &str)> =
        page.as_array().unwrap().iter().map(|m| (m["code"].as_str().unwrap(), m["origin"].as_str().unwrap())).collect();
    shown.sort_unstable();
    let (found, _) = messages(&case, &[]);
    let mut wanted: Vec<(&str, &str)> =
        found.iter().map(|m| (m["code"].as_str().unwrap(), m["origin"].as_str().unwrap())).collect();
    wanted.sort_unstable();
    assert!(!wanted.is_empty());
    assert_eq!(shown, wanted, "{page:#}");
    assert!(page[0]["reference"].as_str().unwrap().contains("a.yaml:"), "{page:#}");
}

#[test]
fn credentials_are_looked_for_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    let object = |kind: &str, name: &str, more: Value| {
        let api = match kind {
            "Pod" | "Secret" => "v1",
            "Deployment" => "apps/v1",
            "RequestAuthentication" => "security.istio.io/v1",
            _ => "networking.istio.io/v1",
        };
        let mut object = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "edge"}});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("---\n{object}\n")
    };
    let now = SystemTime::now();
    let day = Duration::from_secs(86_400);
    let good = new_root("a", now, day).unwrap();
    let old = new_root("a", now - 400 * day, day).unwrap();
    let secret = |name: &str, chain: &str, key: &str| {
        object("Secret", name, json!({"stringData": {"tls.crt": chain, "tls.key": key}}))
    };
    let server = |name: &str, port: u16| {
        json!({"port": {"number": port, "name": name, "protocol": "HTTPS"}, "hosts": ["a.example"],
            "tls": {"mode": "SIMPLE", "credentialName": name}})
    };
    let servers: Vec<Value> =
        ["good", "old", "mismatched", "absent"].iter().zip(1..).map(|(name, port)| server(name, port)).collect();
    let pod = json!({"metadata": {"name": "edge", "namespace": "edge", "labels": {"gateway": "edge"}},
        "spec": {"containers": [{"name": "proxy", "image": "envoy"}]}});
    let tls = json!({"mode": "SIMPLE", "credentialName": "absent"});
    let rule = json!({"spec": {"host": "a.example", "workloadSelector": {"matchLabels": {"gateway": "edge"}},
        "trafficPolicy": {"tls": tls}}});
    let istiod = json!({"metadata": {"name": "istiod", "namespace": "edge", "labels": {"app": "istiod"}},
        "spec": {"template": {"metadata": {"labels": {"app": "istiod"}}, "spec": {"containers": [{"name": "discovery"}]}}}});
    let text = secret("good", &good.certificate, &good.key)
        + &secret("old", &old.certificate, &old.key)
        + &secret("mismatched", &good.certificate, &old.key)
        + &object("Pod", "edge", pod)
        + &object("Gateway", "edge", json!({"spec": {"selector": {"gateway": "edge"}, "servers": servers}}))
        + &object("DestinationRule", "out", rule)
        + &object("Deployment", "istiod", istiod)
        + &object("RequestAuthentication", "keys", json!({"spec": {}}));
    let file = dir.path().join("a.yaml");
    fs::write(&file, text).unwrap();
    let (found, _) = messages(&file, &[]);
    let mut shown: Vec<(&str, &str)> =
        found.iter().map(|m| (m["code"].as_str().unwrap(), m["message"].as_str().unwrap())).collect();
    shown.retain(|(code, _)| *code != "IST0128");
    let said = |code: &str, part: &str| shown.iter().any(|(c, text)| *c == code && text.contains(part));
    assert!(
        said("IST0161", "Gateway edge in namespace edge is invalid") && said("IST0161", "has expired"),
        "{shown:?}"
    );
    assert!(said("IST0161", "does not belong"), "{shown:?}");
    assert!(said("IST0101", "Referenced credentialName not found: \"absent\""), "{shown:?}");
    assert!(said("PH0106", "\"absent\""), "{shown:?}");
    assert!(said("IST0175", "1 RequestAuthentication resource(s) exist (edge/keys)"), "{shown:?}");
    assert_eq!(shown.len(), 5, "{shown:#?}");
    // Without any Secret nothing shows that one is missing.
    let without: String = fs::read_to_string(&file)
        .unwrap()
        .split("---\n")
        .filter(|d| !d.contains("\"Secret\""))
        .collect::<Vec<_>>()
        .join("---\n");
    fs::write(&file, without).unwrap();
    assert!(messages(&file, &[]).0.iter().all(|m| m["code"] != "PH0106" && m["code"] != "IST0101"));
}

/// Every YAML file below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let (mut open, mut found) = (vec![folder.to_path_buf()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn samples_of_istio_have_no_error() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance");
    let folder = std::env::var_os("PILOTHOUSE_CONFORMANCE").map_or(beside, PathBuf::from).join("samples");
    if !folder.is_dir() {
        return skipped("the samples of Istio are not there");
    }
    let application = folder.join("bookinfo/platform/kube/bookinfo.yaml");
    let rules = folder.join("bookinfo/networking/destination-rule-all.yaml");
    let versions = [
        "bookinfo-ratings-v2.yaml",
        "bookinfo-ratings-v2-mysql.yaml",
        "bookinfo-ratings-v2-mysql-vm.yaml",
        "bookinfo-reviews-v2.yaml",
        "bookinfo-details-v2.yaml",
    ];
    let mut whole: Vec<PathBuf> = vec![application, rules];
    whole.extend(versions.iter().map(|name| folder.join("bookinfo/platform/kube").join(name)));
    let mut wrong = String::new();
    let mut run = |path: &Path, beside: &[PathBuf]| {
        let beside: Vec<&str> = beside.iter().filter(|p| *p != path).map(|path| path.to_str().unwrap()).collect();
        let (found, _) = messages(path, &beside);
        for message in found.iter().filter(|message| message["level"] == "Error") {
            wrong.push_str(&format!("{}: {} {}\n", message["reference"], message["code"], message["message"]));
        }
    };
    let files = files_below(&folder);
    assert!(files.len() > 80, "{files:?}");
    for file in &files {
        run(file, &[]);
        // The routes of the application beside it, each alone: they are alternatives. One leads to a service of cert-manager.
        let is_route = file.parent().is_some_and(|parent| parent.ends_with("bookinfo/networking"));
        if is_route && !file.ends_with("certmanager-gateway.yaml") {
            run(file, &whole);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
