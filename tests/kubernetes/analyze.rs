//! `pilothouse analyze --kubeconfig`: the objects of a real API server together with those of files, with all rights, with some
//! and with none.

use std::{fs, path::Path, process::Output};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    gate::{Gate, definition, install},
    real::everything,
};

async fn analyze(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    for twin in ["OUTPUT", "KUBECONFIG", "CONTEXT", "NAMESPACE", "ALL_NAMESPACES"] {
        command.env_remove(format!("PILOTHOUSE_{twin}"));
    }
    command.arg("analyze").args(arguments).kill_on_drop(true).output().await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Standard output, standard error and exit code.
fn parts(output: &Output) -> (String, String, Option<i32>) {
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

fn gateway(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "networking.istio.io/v1", "kind": "Gateway", "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"istio": "ingressgateway"},
            "servers": [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["a.example"]}]}})
}

fn route(namespace: &str, gateway: &str) -> Value {
    json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": {"name": "route", "namespace": namespace},
        "spec": {"hosts": ["a.example"], "gateways": [gateway], "http": [{"route": [{"destination": {"host": "b.example"}}]}]}})
}

fn policy(provider: &str) -> Value {
    json!({"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy",
        "metadata": {"name": "asks", "namespace": "shop"},
        "spec": {"action": "CUSTOM", "provider": {"name": provider}, "rules": [{}]}})
}

const NOT_FOUND: &str = "Error [IST0101] (VirtualService shop/route) Referenced gateway not found: \"lost\"";

fn write(dir: &Path, object: &Value) -> String {
    let path = dir.join(format!("{}.yaml", object["metadata"]["name"].as_str().unwrap()));
    fs::write(&path, object.to_string()).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn objects_of_a_cluster_and_of_files_are_analysed_together_and_files_win() {
    let Some((server, admin)) = everything().await else { return };
    let config = server.kubeconfig.display().to_string();
    let empty = parts(&analyze(&["--kubeconfig", &config, "-A"]).await);
    assert_eq!((empty.1.as_str(), empty.2), ("", Some(0)), "{}", empty.0);

    let mesh = "extensionProviders:\n- name: known\n  envoyExtAuthzHttp: {service: b.example, port: 80}\n";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio", "namespace": "istio-system"},
        "data": {"mesh": mesh}});
    for object in [gateway("shop", "found"), route("shop", "lost"), policy("known"), map] {
        admin.apply_soon(&object).await;
    }
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d"}},
            "spec": {"securityContext": {"runAsUser": 1337}, "containers": [{"name": "c", "image": "i"}]}}}});
    admin.apply(&deployment).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop", "labels": {"istio-injection": "enabled"}}});
    admin.apply(&namespace).await;

    let (out, error, code) = parts(&analyze(&["--kubeconfig", &config, "-A"]).await);
    assert!(out.contains(NOT_FOUND) && out.contains(" objects of the cluster\n"), "{out}");
    assert!(out.contains("[IST0144] (Deployment shop/d)"), "{out}");
    assert!(!out.contains("Referenced provider"), "the provider is in the mesh settings of the cluster: {out}");
    assert_eq!((error.as_str(), code), ("", Some(79)));
    // The namespace of the context is `default`.
    for (more, shown) in [(&["-n", "shop"][..], true), (&["-n", "other"], false), (&[], false)] {
        let (out, _, code) = parts(&analyze(&[&["--kubeconfig", &config], more].concat()).await);
        assert_eq!((out.contains(NOT_FOUND), code == Some(79)), (shown, shown), "{more:?}: {out}");
    }
    let json = analyze(&["--kubeconfig", &config, "-n", "shop", "-o", "json"]).await;
    let found: Vec<Value> = serde_json::from_slice(&json.stdout).unwrap();
    let one = found.iter().find(|m| m["code"] == "IST0101").unwrap();
    assert_eq!((&one["origin"], &one["reference"]), (&json!("VirtualService shop/route"), &json!("")));
    let sarif = analyze(&["--kubeconfig", &config, "-n", "shop", "-o", "sarif"]).await;
    let sarif: Value = serde_json::from_slice(&sarif.stdout).unwrap();
    assert!(sarif["runs"][0]["results"][0]["locations"][0].get("physicalLocation").is_none(), "{sarif}");

    let dir = tempfile::tempdir().unwrap();
    let mended = write(dir.path(), &route("shop", "found"));
    let (out, _, _) = parts(&analyze(&[&mended, "--kubeconfig", &config, "-A"]).await);
    assert!(!out.contains("Referenced gateway not found"), "the file replaces the object: {out}");
    let worse = write(dir.path(), &route("shop", "nowhere"));
    assert!(!parts(&analyze(&[&worse]).await).0.contains("Referenced gateway not found"), "no Gateway is in the files");
    // A finding about a file is shown in each namespace.
    let (out, _, code) = parts(&analyze(&[&worse, "--kubeconfig", &config, "-n", "other"]).await);
    assert!(
        out.contains(&format!("{worse}:1:")) && out.contains("not found: \"nowhere\"") && code == Some(79),
        "{out}"
    );
    let unknown = write(dir.path(), &policy("unknown"));
    let (out, _, _) = parts(&analyze(&[&unknown, "--kubeconfig", &config]).await);
    assert!(out.contains("Referenced provider not found: \"unknown\""), "{out}");
}

#[tokio::test]
async fn a_kind_that_may_not_be_listed_is_told_and_the_rest_is_analysed() {
    let Some((_server, admin)) = everything().await else { return };
    install(&admin).await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "reads", "namespace": "shop"}, "rules": [{"apiGroups": ["networking.istio.io"],
            "resources": ["virtualservices", "gateways"], "verbs": ["list"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "reads", "namespace": "shop"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reads"},
        "subjects": [{"kind": "ServiceAccount", "name": "dev", "namespace": "shop"}]});
    assert_eq!(definition("Role")["kind"], "CustomResourceDefinition");
    for object in [role, binding, gateway("shop", "found"), route("shop", "lost"), route("other", "lost")] {
        admin.apply_soon(&object).await;
    }
    let gate = Gate::start(&admin).await;
    let dir = tempfile::tempdir().unwrap();
    let of = |token: &str| gate.kubeconfig(dir.path(), token).display().to_string();

    // The rights of the server itself: Deployments are not among them.
    let reader = of("sa:istio-system:pilothouse");
    let (out, error, code) = parts(&analyze(&["--kubeconfig", &reader, "-A"]).await);
    assert!(out.contains(NOT_FOUND) && code == Some(79), "{out}{error}");
    let told = format!(
        "pilothouse: --kubeconfig {reader}: deployments.apps are not analysed: 403 istio-system:pilothouse cannot list deployments\n"
    );
    assert!(error.contains(&told), "{error}");
    assert!(error.lines().all(|line| line.contains(": ") && !line.contains("virtualservices")), "{error}");

    // The rights of one namespace.
    let dev = of("sa:shop:dev");
    let (out, error, code) = parts(&analyze(&["--kubeconfig", &dev, "-n", "shop"]).await);
    assert!(out.contains(NOT_FOUND) && !out.contains("other/route") && code == Some(79), "{out}{error}");
    assert!(
        error.contains(": virtualservices.networking.istio.io are read of the namespace shop alone: 403 "),
        "{error}"
    );
    assert!(error.contains(": secrets are not analysed: 403 "), "{error}");
    assert!(
        error.contains(": mesh settings of the cluster: 403 ") && error.contains("; the defaults count\n"),
        "{error}"
    );

    let stranger = of("sa:shop:stranger");
    let (out, error, code) = parts(&analyze(&["--kubeconfig", &stranger, "-A"]).await);
    assert_eq!((out.as_str(), error.lines().count(), code), ("", 1, Some(65)), "{error}");
    let begin = format!("pilothouse: --kubeconfig {stranger}: nothing may be listed: ");
    assert!(error.starts_with(&begin) && error.contains(": 403 "), "{error}");
}

#[tokio::test]
async fn a_cluster_that_cannot_be_asked_ends_with_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let good = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- {name: c, context: {cluster: c, user: u}}\n\
                clusters:\n- {name: c, cluster: {server: 'http://127.0.0.1:1'}}\nusers:\n- {name: u, user: {}}\n";
    let missing = dir.path().join("missing").display().to_string();
    let closed = path("closed", good);
    let cases = [
        (vec![missing.as_str()], "No such file"),
        (vec![&*path("torn", "clusters: [")], ""),
        (vec![&*closed, "--context", "lost"], "lost"),
        (vec![&*closed], "refused"),
    ]
    .map(|(args, reason)| (args.into_iter().map(str::to_string).collect::<Vec<_>>(), reason));
    for (arguments, reason) in cases {
        let mut all = vec!["--kubeconfig"];
        all.extend(arguments.iter().map(String::as_str));
        let (out, error, code) = parts(&analyze(&all).await);
        assert_eq!((out.as_str(), error.lines().count(), code), ("", 1, Some(65)), "{all:?}: {error}");
        assert!(error.starts_with(&format!("pilothouse: --kubeconfig {}: ", arguments[0])), "{error}");
        assert!(error.contains(reason) && error.matches(&arguments[0]).count() == 1, "{error}");
    }
    for wrong in
        [&["-A"][..], &["-n", "shop"], &["--context", "c"], &[], &["--kubeconfig", &closed, "-A", "-n", "shop"]]
    {
        let (_, error, code) = parts(&analyze(wrong).await);
        assert_eq!(code, Some(64), "{wrong:?}: {error}");
    }
}
