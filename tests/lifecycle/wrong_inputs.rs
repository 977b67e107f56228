//! Wrong sources on the command line: the program ends with one line that names the flag and the reason.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use crate::stage::entry;

/// The error of the program that does not start with these arguments.
fn refusal(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(["serve", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--monitoring-addr", ""])
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{arguments:?} is taken: {said}");
    let said: Vec<&str> = said.lines().filter(|l| l.starts_with("pilothouse: ") || l.starts_with("error: ")).collect();
    assert_eq!(said.len(), 1, "{arguments:?}: {said:?}");
    said[0].to_string()
}

#[test]
fn each_is_refused_in_a_line_that_names_its_flag() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, file) = (dir.path().join("folder"), dir.path().join("file"));
    fs::create_dir(&folder).unwrap();
    fs::write(&file, "no: [").unwrap();
    let (mesh, networks) = (dir.path().join("mesh.yaml"), dir.path().join("networks.yaml"));
    fs::write(&mesh, "rootNamespace: a\ntrustDomain: a_b\n").unwrap();
    fs::write(&networks, "networks: {n1: {gateways: [{address: 192.0.2.1}]}}\n").unwrap();
    let (mesh, networks) = (mesh.to_str().unwrap(), networks.to_str().unwrap());
    let (folder, file) = (folder.to_str().unwrap(), file.to_str().unwrap());
    let west = format!("west={folder}");
    for (arguments, flag, reason) in [
        (&["--config-dir", "/no/such"][..], "--config-dir /no/such", "No such file"),
        (&["--config-dir", folder, "--config-dir", folder], "--config-dir", "twice"),
        (&["--upstream", "http://x/y"], "--upstream", "is not HOST:PORT"),
        (&["--upstream", "127.0.0.1:1", "--upstream", "127.0.0.1:1"], "--upstream", "twice"),
        (&["--upstream", "x.example:1", "--upstream-token-file", file], "--upstream-token-file", "over TLS only"),
        (&["--upstream", "x.example:1", "--upstream-cert", file], "", "required arguments were not provided"),
        (&["--config-dir", folder, "--state-dir", file], "--state-dir", "exists"),
        (&["--config-dir", folder, "--mesh-config", file], "--mesh-config", ":1:"),
        (
            &["--config-dir", folder, "--mesh-config", mesh],
            "--mesh-config",
            "mesh.yaml:2:1: MeshConfig refused: trustDomain",
        ),
        (&["--config-dir", folder, "--networks-config", networks], "--networks-config", "networks.n1.gateways[0].port"),
        (&["--config-dir", folder, "--remote-cluster", "west"], "--remote-cluster", "is not NAME=PATH"),
        (&["--config-dir", folder, "--remote-cluster", "west=/no/such"], "--remote-cluster west=", "No such file"),
        (&["--config-dir", folder, "--remote-cluster", "Kubernetes=/"], "--remote-cluster", "main cluster's id"),
        (&["--config-dir", folder, "--remote-cluster", &west, "--remote-cluster", &west], "--remote-cluster", "two"),
        (&["--config-dir", folder, "--registries", "Consul"], "--registries", "Kubernetes is the only one"),
        (&["--kube-context", "c"], "", "required arguments were not provided"),
        (&["--kubeconfig", "/no/such"], "--kubeconfig /no/such: ", "No such file"),
        (&["--kubeconfig", file], "--kubeconfig ", "file: "),
        (&["--kubeconfig", "/dev/zero"], "--kubeconfig /dev/zero: ", "not a file"),
        (&["--config-dir", folder, "--remote-cluster", &format!("west={file}")], "--remote-cluster west=", "file: "),
        (&["--config-dir", folder, "--cluster-aliases", "a"], "--cluster-aliases", "is not ALIAS=ID"),
        (&["--config-dir", folder, "--cluster-aliases", "a=c,b=c"], "--cluster-aliases", "more than one alias for c"),
        (&["--config-dir", folder, "--write-status"], "--write-status: ", "no cluster"),
        (&["--upstream", "x.example:1", "--upstream-ca", "/no/such"], "--upstream-ca /no/such: ", "No such file"),
        (&["--upstream", "x.example:1", "--upstream-ca", file], "--upstream-ca ", "file: "),
        (
            &["--upstream", "x.example:1", "--upstream-tls", "--upstream-token-file", "/no/such"],
            "--upstream-token-file /no/such: ",
            "No such file",
        ),
        (&["--config-dir", folder, "--lease-duration", "1ms"], "--lease-duration", "whole seconds"),
        (&["--config-dir", folder, "--log-level", "loud"], "--log-level", "not a level"),
        (&["--config-dir", folder, "--log-level", "info,loud"], "--log-level", "not a level"),
        (&["--config-dir", folder, "--log-level", "pilothouse=loud"], "--log-level", "not a level"),
        (
            &["--config-dir", folder, "--log_output_level", "ads:info,adz:info"],
            "--log-output-level",
            "\"adz\" is not a scope",
        ),
    ] {
        let said = refusal(arguments);
        assert!(said.contains(flag) && said.contains(reason), "{arguments:?}: {said}");
    }
}

#[test]
fn a_prefix_that_is_none_ends_the_start_and_other_flags_are_complained_of() {
    let dir = tempfile::tempdir().unwrap();
    let run = |flags: &[(&str, &str)], more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(["serve", "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0", "--monitoring-addr", ""]);
        command.arg("--config-dir").arg(dir.path()).args(more).envs(flags.iter().copied());
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = run(&[("PILOT_IP_AUTOALLOCATE_IPV4_PREFIX", "10.0.0.0")], &[]);
    assert!(said.contains("PILOT_IP_AUTOALLOCATE_IPV4_PREFIX: \"10.0.0.0\" is not an IPv4 prefix"), "{said}");
    // Ends for another reason, after the flags were read.
    let idle = ["PILOT_ENABLE_SENDING_HBONE", "ENABLE_PROXY_FIND_POD_BY_IP", "PILOT_ENABLE_AGENTGATEWAY"];
    let flags = [&idle.map(|name| (name, "true"))[..], &[("PILOT_TRACE_SAMPLING", "150")]].concat();
    let said = run(&flags, &["--write-status"]);
    assert!(said.contains("PILOT_ENABLE_SENDING_HBONE has no effect: HBONE"), "{said}");
    for name in idle {
        assert!(said.contains(&format!("{name} has no effect: ")), "{name}: {said}");
    }
    assert_eq!(said.matches("has no effect").count(), idle.len(), "flags that are not set are not named: {said}");
    assert!(
        said.contains("PILOT_TRACE_SAMPLING: \"150\" is not a percentage from 0 to 100; the default stays"),
        "{said}"
    );
}

/// The output of `validate` for a folder, and its exit code.
fn validated(folder: &Path, more: &[&str]) -> (Value, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    let output = command.args(["validate", "-o", "json"]).args(more).arg(folder).output().unwrap();
    (serde_json::from_slice(&output.stdout).unwrap(), output.status.code().unwrap())
}

fn texts(list: &Value, key: &str) -> String {
    let lines = list.as_array().unwrap().iter();
    lines.map(|f| format!("{}: {}\n", f["file"].as_str().unwrap(), f[key].as_str().unwrap())).collect()
}

#[test]
fn validate_skips_other_documents_than_kubernetes_objects_unless_it_is_strict() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("Chart.yaml", "apiVersion: v2\nname: x\nversion: 1.0.0\n"),
        ("values.yaml", "replicas: 1\nkind: Deployment\n"),
        ("package.json", "{\"name\": \"x\", \"version\": \"1\"}"),
        ("ci.yml", "on: [push]\njobs: {}\n"),
        ("list.yaml", "- a\n- b\n"),
        ("good.yaml", &entry("a", "a.example")),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let (said, code) = validated(dir.path(), &[]);
    assert_eq!((code, &said["objects"]), (0, &Value::from(1)), "{said:#}");
    assert_eq!(said["skipped"].as_array().unwrap().len(), 5, "{said:#}");
    assert!(texts(&said["skipped"], "reason").contains("Chart.yaml: kind is missing"), "{said:#}");
    let (said, code) = validated(dir.path(), &["--strict"]);
    assert_eq!((code, said["refused"].as_array().unwrap().len()), (65, 5), "{said:#}");
    fs::write(dir.path().join("bad.yaml"), entry("b", "b.example").replace("apiVersion: networking.istio.io/v1\n", ""))
        .unwrap();
    let (said, code) = validated(dir.path(), &[]);
    assert!(code == 65 && texts(&said["refused"], "reason").contains("bad.yaml: apiVersion is missing"), "{said:#}");
}

#[test]
fn templates_of_charts_and_other_json_are_skipped_and_broken_objects_are_not() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("chart/templates/deep")).unwrap();
    fs::create_dir(dir.path().join("templates")).unwrap();
    let template =
        "{{- if .Values.on }}\napiVersion: v1\nkind: Service\nmetadata: {name: {{ .Release.Name }}}\n{{- end }}\n";
    for (name, text) in [
        ("chart/Chart.yaml", "apiVersion: v2\nname: x\nversion: 1.0.0\n"),
        ("chart/templates/service.yaml", template),
        ("chart/templates/deep/service.yaml", template),
        ("tsconfig.json", "// comment\n{\"compilerOptions\": {\"strict\": true,},}\n"),
        ("ratings.json", "{rating: 5}\n{rating: 4}\n"),
        ("good.yaml", &entry("a", "a.example")),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let (said, code) = validated(dir.path(), &[]);
    assert_eq!((code, &said["objects"]), (0, &Value::from(1)), "{said:#}");
    let skipped = texts(&said["skipped"], "reason");
    assert_eq!(skipped.matches("a template of a Helm chart").count(), 2, "{said:#}");
    assert_eq!(skipped.matches("JSON of another program").count(), 2, "{said:#}");
    let folder = dir.path().to_str().unwrap();
    let analyzed = || Command::new(env!("CARGO_BIN_EXE_pilothouse")).args(["analyze", folder]).output().unwrap();
    assert_eq!(analyzed().status.code(), Some(0), "{:?}", analyzed());
    assert_eq!(validated(dir.path(), &["--strict"]).1, 65);
    // No chart has this folder, an object of JSON has an apiVersion, and YAML is meant as objects.
    for (name, text) in [
        ("templates/service.yaml", template),
        ("object.json", "{\"apiVersion\": \"v1\", \"kind\": \"Service\",, }"),
        ("broken.yaml", "a: 1\n b: 2\n"),
    ] {
        fs::write(dir.path().join(name), text).unwrap();
        let (said, code) = validated(dir.path(), &[]);
        assert_eq!((code, said["refused"].as_array().unwrap().len()), (65, 1), "{name}: {said:#}");
        assert_eq!(analyzed().status.code(), Some(79), "{name}");
        fs::remove_file(dir.path().join(name)).unwrap();
    }
}

#[test]
fn validate_warns_as_serve_does() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    fs::write(dir.path().join("b.yaml"), entry("a", "b.example")).unwrap();
    fs::write(dir.path().join("c.YAML"), entry("c", "c.example")).unwrap();
    let object =
        |version: &str, kind: &str| format!("---\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n");
    let unknown = object("networking.istio.io/v1beta9", "VirtualService")
        + &object("networking.istio.io/v1", "VirtualServices")
        + &object("gateway.networking.k8s.io/v2", "Gateway")
        + &object("apps/v1", "Deployment");
    fs::write(dir.path().join("d.yaml"), unknown).unwrap();
    let (said, code) = validated(dir.path(), &[]);
    let warned = texts(&said["warned"], "warning");
    for text in [
        "b.yaml: has no effect: the same object is at ",
        "c.YAML: passed over",
        "d.yaml: not read: VirtualService of networking.istio.io has no version \"v1beta9\"",
        "d.yaml: not read: \"VirtualServices\" of networking.istio.io is no kind",
        "d.yaml: not read: Gateway of gateway.networking.k8s.io has no version \"v2\"",
    ] {
        assert!(warned.contains(text), "{text}: {warned}");
    }
    assert_eq!((code, said["warned"].as_array().unwrap().len()), (0, 5), "{warned}");
    let output = Command::new(env!("CARGO_BIN_EXE_pilothouse")).arg("validate").arg(dir.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let unread = text.lines().filter(|line| line.contains("d.yaml:") && line.contains(": not read: "));
    assert!(unread.clone().any(|line| line.ends_with(": not read: Deployment of apps/v1 x")), "{text}");
    assert!(unread.count() >= 4 && text.contains(", 4 of kinds that are not read"), "{text}");
    let (said, code) = validated(dir.path(), &["--strict"]);
    let refused = texts(&said["refused"], "reason");
    assert_eq!((code, said["ignored"].as_array().unwrap().len()), (65, 2), "{said:#}");
    for text in
        ["VirtualService of networking.istio.io has no version \"v1beta9\"", "\"VirtualServices\" of networking"]
    {
        assert!(refused.contains(&format!("d.yaml: {text}")), "{refused}");
        assert!(!texts(&said["warned"], "warning").contains(text), "{said:#}");
    }
    let empty = tempfile::tempdir().unwrap();
    assert!(texts(&validated(empty.path(), &[]).0["warned"], "warning").contains("holds no config file"));
}

#[test]
fn validate_names_absent_gateways_hosts_and_subsets() {
    let dir = tempfile::tempdir().unwrap();
    let object = |kind: &str, name: &str, spec: &str| {
        format!(
            "---\napiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop}}\nspec: {spec}\n"
        )
    };
    let to = |host: &str, subset: &str| format!("[{{destination: {{host: {host}, subset: {subset}}}}}]");
    let routes = |gateway: &str, routes: &str| {
        object(
            "VirtualService",
            "web",
            &format!("{{hosts: [web.example], gateways: [{gateway}], http: [{{route: {routes}}}]}}"),
        )
    };
    let base = object("DestinationRule", "a", "{host: a.example, subsets: [{name: v1}]}")
        + &object(
            "Gateway",
            "edge",
            "{selector: {app: edge}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]}",
        );
    let warned = |text: String| {
        fs::write(dir.path().join("a.yaml"), entry("a", "a.example") + &text).unwrap();
        let (said, code) = validated(dir.path(), &[]);
        assert_eq!(code, 0, "{said:#}");
        said["warned"]
            .as_array()
            .unwrap()
            .iter()
            .map(|w| w["warning"].as_str().unwrap().to_string())
            .collect::<Vec<_>>()
    };
    let none: Vec<String> = Vec::new();
    assert_eq!(warned(base.clone() + &routes("edge", &to("a.example", "v1"))), none);
    assert_eq!(warned(base.clone() + &routes("shop/edge, mesh", &to("a.example", "v1"))), none);
    assert_eq!(
        warned(base.clone() + &routes("other/edge", &to("a.example", "v1"))),
        [r#"not found: gateway "other/edge""#]
    );
    let found = warned(base + &routes("gone", &to("a.example", "v2")));
    assert_eq!(found, [r#"not found: gateway "gone", subset "v2" of host "a.example""#]);
    let found = warned(routes("mesh", &to("b", "''")));
    assert_eq!(found, [r#"not found: host "b""#]);
    // Without any DestinationRule nothing is said of subsets, and without any service nothing of hosts.
    assert_eq!(warned(routes("mesh", &to("a.example", "v9"))), none);
    fs::remove_file(dir.path().join("a.yaml")).unwrap();
    fs::write(dir.path().join("b.yaml"), routes("mesh", &to("b.example", "''"))).unwrap();
    assert_eq!(validated(dir.path(), &[]).0["warned"], serde_json::json!([]));
}

#[test]
fn validate_applies_the_rules_of_gateway_apis_definitions() {
    let dir = tempfile::tempdir().unwrap();
    let document = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: g, namespace: shop}\nspec:\n  \
                    gatewayClassName: istio\n  listeners:\n  - name: a\n    port: 99999\n    protocol: HTTP\n";
    fs::write(dir.path().join("g.yaml"), document).unwrap();
    let (said, code) = validated(dir.path(), &[]);
    let refused = &said["refused"][0];
    assert_eq!((code, &refused["line"], &refused["column"]), (65, &Value::from(8), &Value::from(5)), "{said:#}");
    assert!(
        refused["reason"].as_str().unwrap().starts_with("spec.listeners[0].port: 99999 is not between"),
        "{said:#}"
    );
}

#[test]
fn reasons_name_the_field_and_its_valid_values() {
    let dir = tempfile::tempdir().unwrap();
    let object = |version: &str, kind: &str, rest: &str| {
        format!("---\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: x, namespace: shop}}\n{rest}\n")
    };
    let text = object("security.istio.io/v1", "PeerAuthentication", "spec: {portLevelMtls: {http: {mode: STRICT}}}")
        + &object("v1", "Secret", "data: {dhparam.pem: '-----'}")
        + &object("networking.istio.io/v1", "ServiceEntry", "spec: {hosts: [null]}");
    fs::write(dir.path().join("a.yaml"), text).unwrap();
    let (said, _) = validated(dir.path(), &[]);
    let refused = texts(&said["refused"], "reason");
    for text in [
        "spec.portLevelMtls.http: the key must be a number",
        "data.dhparam.pem: it is not base64",
        "spec.hosts[0]: it is null",
    ] {
        assert!(refused.contains(text), "{text}: {refused}");
    }
}

#[test]
fn validate_checks_the_mesh_settings_too() {
    let dir = tempfile::tempdir().unwrap();
    let (mesh, entries) = (dir.path().join("mesh.yaml"), dir.path().join("a.yaml"));
    fs::write(&entries, entry("a", "a.example")).unwrap();
    let validated = |text: &str| {
        fs::write(&mesh, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        let output = command.arg("validate").arg(&entries).arg("--mesh-config").arg(&mesh).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, said) = validated("rootNamespace: a\nconnectTimeout: 2h\n");
    assert!(code == Some(65) && said.contains("mesh.yaml:2:1: MeshConfig refused: connectTimeout: "), "{said}");
    let (code, said) = validated("tlsDefaults: {ecdhCurves: [P-256, nothing]}\naccessLogFil: a\n");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("mesh.yaml:1:35: MeshConfig warning: tlsDefaults.ecdhCurves[1]: "), "{said}");
    assert!(said.contains("mesh.yaml:2:1: MeshConfig warning: unknown field accessLogFil"), "{said}");
}

#[test]
fn validate_names_objects_that_an_api_server_would_refuse() {
    let dir = tempfile::tempdir().unwrap();
    let rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: a}\nspec:\n  host: a.example\n  \
                trafficPolicy:\n    loadBalancer:\n      consistentHash:\n        ringHash: {minimumRingSize: '1024'}\n        \
                useSourceIp: true\n---\n";
    // Refused by Istio's own rules, which say enough.
    let refused = rule.replace("name: a}", "name: b}").replace("a.example", "a..example");
    fs::write(dir.path().join("a.yaml"), rule.to_string() + &entry("a", "a.example")).unwrap();
    let (said, code) = validated(dir.path(), &[]);
    let warned = said["warned"].as_array().unwrap();
    assert_eq!((code, warned.len()), (0, 1), "{said:#}");
    let expected = "a Kubernetes API server would refuse it: spec.trafficPolicy.loadBalancer.consistentHash.ringHash.minimumRingSize: ";
    assert!(warned[0]["warning"].as_str().unwrap().starts_with(expected), "{said:#}");
    assert_eq!((&warned[0]["line"], &warned[0]["name"]), (&9.into(), &"a".into()));
    let (said, code) = validated(dir.path(), &["--strict"]);
    assert_eq!((code, said["refused"].as_array().unwrap().len()), (65, 1), "{said:#}");
    fs::write(dir.path().join("a.yaml"), refused).unwrap();
    let (said, _) = validated(dir.path(), &[]);
    let counts = ["refused", "warned"].map(|list| said[list].as_array().unwrap().len());
    assert_eq!(counts, [1, 0], "{said:#}");
}

/// The words of each command, the program's own first.
fn commands(command: &clap::Command, words: &[String], found: &mut Vec<Vec<String>>) {
    found.push(words.to_vec());
    for inner in command.get_subcommands() {
        commands(inner, &[words, &[inner.get_name().to_string()]].concat(), found);
    }
}

#[test]
fn each_command_refuses_a_wrong_flag_in_one_line_and_helps_readers_that_go_away() {
    let mut found = Vec::new();
    commands(&<pilothouse::cli::Cli as clap::CommandFactory>::command(), &[], &mut found);
    assert!(found.len() > 25, "{found:?}");
    for words in found {
        let program = || {
            let mut program = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
            program.args(&words);
            program
        };
        let output = program().arg("--no-such-flag").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{words:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
        assert!(said.starts_with("pilothouse: ") && said.contains("'--no-such-flag'"), "{words:?}: {said}");
        assert!(output.stdout.is_empty(), "{words:?}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = program().arg("--help").stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
    }
}

#[test]
fn an_address_without_a_port_is_refused_by_the_name_of_its_flag() {
    for (address, code) in [("nowhere", 64), ("127.0.0.1:99999", 64), ("127.0.0.1:1", 70)] {
        for words in [&["proxy-status"][..], &["proxy-config", "all", "a"], &["describe", "service", "a"], &["push"]] {
            let mut program = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
            let output = program.args(words).args(["--http-addr", address]).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(code), "{words:?} {address}: {said}");
            assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
            assert!(said.contains("--http-addr") && said.contains(address), "{words:?}: {said}");
        }
    }
}

#[test]
fn answers_that_nobody_reads_are_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().to_str().unwrap();
    let node = "sidecar~192.0.2.1~web.shop~shop.svc.cluster.local";
    for arguments in [
        &["version"][..],
        &["completion", "bash"],
        &["man"],
        &["token", "create", "--namespace", "shop", "--state-dir", state],
        &["bootstrap", "envoy", "--xds-address", "127.0.0.1:1", "--node", node],
        &["bootstrap", "envoy", "--xds-address", "127.0.0.1:1", "--node", node, "--format", "args"],
        &["validate", "config/demo"],
        &["validate", "config/demo", "-o", "json"],
        &["analyze", "config/demo", "-o", "json"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut program = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        let output = program.args(arguments).stdout(writer).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
}
