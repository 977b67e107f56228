//! The Helm chart: its values are those of Istio's chart, its rights those of the manifest, its objects those of Kubernetes, and
//! the program starts with the arguments and the environment that it gives.

use std::{collections::BTreeMap, fs, io::Read, net::SocketAddr, process::Command};

use clap::{CommandFactory, Parser};
use k8s_openapi::api::{
    autoscaling::v2::HorizontalPodAutoscaler, networking::v1::NetworkPolicy, policy::v1::PodDisruptionBudget,
};
use pilothouse::{cli::Cli, model::Features};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    admin::{documents, everything},
    binary::Binary,
    gate::{definition, manifest},
    helm::helm,
    stage::DEADLINE,
};

const DEPLOYMENT: &str = "Deployment/istiod";
const CONTAINER: &str = "/spec/template/spec/containers/0";

/// Values that use every part of the chart.
fn all_parts() -> Value {
    documents(include_str!("chart.yaml")).remove(0)
}

fn rules(object: &Value) -> &Value {
    assert!(object["rules"].is_array(), "{object}");
    &object["rules"]
}

#[test]
fn its_rights_are_those_of_the_manifest() {
    let Some(helm) = helm() else { return };
    let objects = helm.objects(&json!({"revision": "canary"}));
    let roles = |kind: &str| objects.keys().filter(|key| key.starts_with(&format!("{kind}/"))).count();
    let mut counts = BTreeMap::<String, usize>::new();
    for object in manifest() {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        *counts.entry(kind.to_string()).or_default() += 1;
        if kind == "ServiceAccount" {
            continue;
        }
        // Objects of the cluster have the namespace in their names, so that two meshes have one each.
        let of_cluster = kind.starts_with("Cluster");
        let name = if of_cluster { format!("{name}-canary-istio-system") } else { format!("{name}-canary") };
        let own = &objects[&format!("{kind}/{name}")];
        assert_eq!(own["metadata"]["namespace"].is_null(), of_cluster, "{name}");
        if kind.ends_with("Binding") {
            assert_eq!(own["roleRef"]["kind"], object["roleRef"]["kind"], "{name}");
            assert_eq!(own["roleRef"]["name"], json!(name));
            let account = json!([{"kind": "ServiceAccount", "name": "istiod-canary", "namespace": "istio-system"}]);
            assert_eq!(own["subjects"], account, "{name}");
        } else {
            assert_eq!(rules(own), rules(&object), "{name}");
        }
    }
    for (kind, count) in counts {
        assert_eq!(roles(&kind), count, "{kind}");
    }
}

#[test]
fn values_have_the_effect_that_they_have_in_istios_chart() {
    let Some(helm) = helm() else { return };
    let deployment = |pointer: &str| format!("{CONTAINER}{pointer}");
    let pod = |pointer: &str| format!("/spec/template/spec{pointer}");
    for (values, object, pointer, wanted) in [
        (json!({}), DEPLOYMENT, deployment("/image"), json!(concat!("pilothouse:", env!("CARGO_PKG_VERSION")))),
        (json!({"hub": "h.example", "tag": 1.5}), DEPLOYMENT, deployment("/image"), json!("h.example/pilothouse:1.5")),
        (json!({"global": {"hub": "g", "tag": "t"}}), DEPLOYMENT, deployment("/image"), json!("g/pilothouse:t")),
        (json!({"image": "a/b:c", "hub": "h"}), DEPLOYMENT, deployment("/image"), json!("a/b:c")),
        (json!({"autoscaleEnabled": false, "replicaCount": 3}), DEPLOYMENT, "/spec/replicas".into(), json!(3)),
        (json!({}), DEPLOYMENT, "/spec/replicas".into(), Value::Null),
        // The same value under `pilot` wins.
        (
            json!({"autoscaleMax": 3, "pilot": {"autoscaleMax": 9}}),
            "HorizontalPodAutoscaler/istiod",
            "/spec/maxReplicas".into(),
            json!(9),
        ),
        (json!({"pilot": {"nodeSelector": {"a": "b"}}}), DEPLOYMENT, pod("/nodeSelector"), json!({"a": "b"})),
        (
            json!({"resources": {"requests": {"cpu": "2"}}}),
            DEPLOYMENT,
            deployment("/resources/requests/cpu"),
            json!("2"),
        ),
        (json!({"resources": null}), DEPLOYMENT, deployment("/resources/requests"), json!({"cpu": "10m"})),
        (json!({}), DEPLOYMENT, deployment("/securityContext/readOnlyRootFilesystem"), json!(true)),
        (json!({}), DEPLOYMENT, pod("/securityContext/runAsNonRoot"), json!(true)),
        (json!({}), DEPLOYMENT, deployment("/readinessProbe/httpGet"), json!({"path": "/ready", "port": 8080})),
        (
            json!({"revision": "x"}),
            "Service/istiod-x",
            "/spec/selector".into(),
            json!({"app": "istiod", "istio.io/rev": "x"}),
        ),
        (json!({}), "Service/istiod", "/spec/selector".into(), json!({"app": "istiod", "istio": "pilot"})),
        (json!({"autoscaleMin": 2}), "PodDisruptionBudget/istiod", "/spec/minAvailable".into(), json!(1)),
        (
            json!({"autoscaleMin": 2, "pdb": {"maxUnavailable": "10%"}}),
            "PodDisruptionBudget/istiod",
            "/spec".into(),
            json!({"maxUnavailable": "10%", "selector": {"matchLabels": {"app": "istiod", "istio": "pilot"}}}),
        ),
    ] {
        let objects = helm.objects(&values);
        let found = objects[object].pointer(&pointer).cloned().unwrap_or_default();
        assert_eq!(found, wanted, "{values}: {object} {pointer}");
    }
    let objects = helm.objects(&json!({}));
    let ports = |pointer: &str, object: &str, key: &str| -> Vec<(String, u64)> {
        let ports = objects[object].pointer(pointer).unwrap().as_array().unwrap().iter();
        ports.map(|p| (p["name"].as_str().unwrap().to_string(), p[key].as_u64().unwrap())).collect()
    };
    let named =
        |ports: &[(&str, u64)]| ports.iter().map(|(name, port)| ((*name).to_string(), *port)).collect::<Vec<_>>();
    let of_istio = [("http-debug", 8080), ("grpc-xds", 15010), ("tls-xds", 15012), ("http-monitoring", 15014)];
    assert_eq!(ports(&deployment("/ports"), DEPLOYMENT, "containerPort"), named(&of_istio));
    let of_istio = [("grpc-xds", 15010), ("https-dns", 15012), ("http-monitoring", 15014)];
    assert_eq!(ports("/spec/ports", "Service/istiod", "port"), named(&of_istio));
    let absent = |kind: &str, values: Value| !helm.objects(&values).keys().any(|key| key.starts_with(kind));
    // A budget of one replica would hold up every drain of its node.
    assert!(absent("PodDisruptionBudget", json!({})) && absent("NetworkPolicy", json!({})));
    assert!(absent(
        "PodDisruptionBudget",
        json!({"autoscaleMin": 2, "global": {"defaultPodDisruptionBudget": {"enabled": false}}})
    ));
    assert!(absent("HorizontalPodAutoscaler", json!({"autoscaleEnabled": false})));
    assert!(absent("ConfigMap", json!({"configMap": false})));
    assert!(absent("ClusterRole", json!({"global": {"resourceScope": "namespace"}})));
    let of_cluster = helm.objects(&json!({"global": {"resourceScope": "cluster"}}));
    assert!(
        !of_cluster.is_empty() && of_cluster.keys().all(|key| key.starts_with("Cluster")),
        "{:?}",
        of_cluster.keys()
    );
}

#[test]
fn a_value_that_cannot_have_an_effect_is_refused_with_the_reason_or_named() {
    let Some(helm) = helm() else { return };
    for (values, says) in [
        (json!({"replicas": 3}), "replicas"),
        (json!({"pilot": {"replicas": 3}}), "replicas"),
        (json!({"global": {"loging": {}}}), "loging"),
        (json!({"autoscaleMin": "two"}), "autoscaleMin"),
        (json!({"keepaliveMaxServerConnectionAge": "soon"}), "keepaliveMaxServerConnectionAge"),
        (json!({"revision": "Not_a_label"}), "revision"),
        (
            json!({"istiodRemote": {"enabled": true}}),
            "istiodRemote.enabled: true is not possible here: a remote cluster",
        ),
        (json!({"pilot": {"taint": {"enabled": true}}}), "taint.enabled: true is not possible here: nodes are not"),
        (
            json!({"global": {"pilotCertProvider": "kubernetes"}}),
            "global.pilotCertProvider: \"kubernetes\" is not possible",
        ),
        (json!({"profile": "ambient"}), "profile: \"ambient\" is not possible here: there are no profiles"),
        (json!({"global": {"certSigners": ["a/b"]}}), "global.certSigners: [\"a/b\"] is not possible here"),
        (json!({"revisionTags": ["prod"]}), "revisionTags: [\"prod\"] is not possible here"),
        (json!({"image": "pilot"}), "image: \"pilot\" is not possible here: that is istiod"),
        (json!({"telemetry": {"v2": {"stackdriver": {"enabled": true}}}}), "telemetry.v2.stackdriver.enabled"),
    ] {
        let said = helm.refusal(&values);
        assert!(said.contains(says), "{values}: {said}");
    }
    let idle = json!({
        "sidecarInjectorWebhook": {"enableNamespacesByDefault": true}, "base": {"enableCRDTemplates": true}, "taint": {"enabled": false},
        "global": {"network": "n1", "proxy": {"logLevel": "info", "autoInject": ""}, "pilotCertProvider": "istiod"},
    });
    let notes = helm.notes(&idle);
    let (_, named) = notes.split_once("change nothing here:").unwrap();
    let named: Vec<&str> = named.split_whitespace().collect();
    assert_eq!(
        named,
        ["base", "sidecarInjectorWebhook", "taint", "global.network", "global.proxy.logLevel"],
        "{notes}"
    );
    let notes = helm.notes(&all_parts());
    assert!(notes.contains("istiod.istio-system.svc") && !notes.contains("change nothing"), "{notes}");
}

/// An object that is read and written as its kind has the same fields: none is unknown or of another type.
fn is_of_kind<T: DeserializeOwned + Serialize>(object: &Value) {
    let read: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), *object);
}

#[tokio::test]
async fn its_objects_are_taken_by_an_api_server() {
    let Some(helm) = helm() else { return };
    let objects = helm.objects(&all_parts());
    is_of_kind::<HorizontalPodAutoscaler>(&objects["HorizontalPodAutoscaler/istiod"]);
    is_of_kind::<PodDisruptionBudget>(&objects["PodDisruptionBudget/istiod"]);
    is_of_kind::<NetworkPolicy>(&objects["NetworkPolicy/istiod"]);
    let Some((_server, admin)) = everything().await else { return };
    for kind in ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"] {
        admin.apply(&definition(kind)).await;
    }
    let not_there = ["HorizontalPodAutoscaler", "PodDisruptionBudget", "NetworkPolicy"];
    let mut applied = 0;
    for object in objects.values().filter(|o| !not_there.contains(&o["kind"].as_str().unwrap())) {
        admin.apply_strictly(object).await;
        applied += 1;
    }
    assert_eq!(applied, objects.len() - not_there.len());
    assert!(applied > 16, "{:?}", objects.keys());
}

/// The arguments of the container, and its environment without the fields of its Pod.
fn start(objects: &BTreeMap<String, Value>) -> (Vec<String>, Vec<(String, String)>) {
    let container = objects[DEPLOYMENT].pointer(CONTAINER).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_string();
    let arguments = container["args"].as_array().unwrap().iter().map(text).collect();
    let variables = container["env"].as_array().unwrap().iter();
    let variables = variables.filter(|v| v["valueFrom"].is_null()).map(|v| (text(&v["name"]), text(&v["value"])));
    (arguments, variables.collect())
}

#[test]
fn the_program_knows_every_argument_and_every_variable() {
    let Some(helm) = helm() else { return };
    let command = Cli::command();
    let serve = command.get_subcommands().find(|c| c.get_name() == "serve").unwrap();
    let twins: Vec<&str> = serve.get_arguments().filter_map(|a| a.get_env()?.to_str()).collect();
    for values in [json!({}), all_parts(), json!({"revision": "x", "global": {"logging": {"level": "debug"}}})] {
        let values_with_name =
            |key: &str| if key == "Deployment/istiod-x" { DEPLOYMENT.to_string() } else { key.to_string() };
        let objects = helm.objects(&values).into_iter().map(|(key, object)| (values_with_name(&key), object)).collect();
        let (arguments, variables) = start(&objects);
        let words = std::iter::once("pilothouse".to_string()).chain(arguments);
        Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{values}: {error}"));
        for (name, value) in variables {
            let known =
                Features::default().set(&name, &value).unwrap() || twins.contains(&&*name) || name == "KUBECONFIG";
            assert!(known, "{name}={value}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_starts_as_the_chart_starts_it_and_has_the_charts_mesh_settings() {
    let Some(helm) = helm() else { return };
    let Some((server, admin)) = everything().await else { return };
    let mut values = all_parts();
    values["jwksResolverExtraRootCA"] = "".into();
    let objects = helm.objects(&values);
    admin.apply(&objects["ConfigMap/istio"]).await;
    let (arguments, variables) = start(&objects);
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    // The ports of the container are free in it; here others are taken.
    command.args(arguments.iter().map(|argument| match argument.split_once("=:") {
        Some((flag, _)) => format!("{flag}=127.0.0.1:0"),
        None => argument.clone(),
    }));
    command.envs(variables).envs([("POD_NAME", "istiod-1"), ("POD_NAMESPACE", "istio-system")]);
    // The cluster of a Pod, by the kubeconfig that is mounted where the control plane is outside of the cluster that it serves.
    command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1").env("KUBECONFIG", &server.kubeconfig);
    let (mesh, warned) = tokio::task::spawn_blocking(move || {
        let mut binary = Binary::spawn(command);
        let (_, http) = binary.addresses();
        let begin = std::time::Instant::now();
        while !get(http, "/ready").starts_with("HTTP/1.1 200") {
            assert!(begin.elapsed() < DEADLINE, "{:#?}", binary.last_lines(20));
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        (get(http, "/debug/mesh"), binary.lines_with("without an effect"))
    })
    .await
    .unwrap();
    for says in ["\"connectTimeout\":\"4s\"", "\"meshId\":\"mesh1\"", "zipkin.istio-system:9411", "prometheus"] {
        assert!(mesh.replace([' ', '\n'], "").contains(says), "{says}: {mesh}");
    }
    assert_eq!(warned, 0, "the chart sets nothing that has no effect");
}

/// The whole answer to a GET.
fn get(address: SocketAddr, path: &str) -> String {
    use std::io::Write;
    let mut socket = std::net::TcpStream::connect(address).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

const ENTRY: &str = "apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: a, namespace: shop}
spec: {hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}]}
";

#[test]
fn the_mesh_settings_of_the_chart_are_valid() {
    let Some(helm) = helm() else { return };
    let dir = tempfile::tempdir().unwrap();
    for values in [json!({}), all_parts(), json!({"global": {"proxy": {"tracer": "datadog"}}})] {
        let objects = helm.objects(&values);
        let data = &objects["ConfigMap/istio"]["data"];
        for (key, file) in [("mesh", "mesh"), ("meshNetworks", "networks")] {
            fs::write(dir.path().join(file), data[key].as_str().unwrap()).unwrap();
        }
        let entry = dir.path().join("entry.yaml");
        fs::write(&entry, ENTRY).unwrap();
        let mut validate = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        validate.args(["validate", "-o", "json"]).arg(&entry);
        validate
            .arg("--mesh-config")
            .arg(dir.path().join("mesh"))
            .arg("--networks-config")
            .arg(dir.path().join("networks"));
        let said: Value = serde_json::from_slice(&validate.output().unwrap().stdout).unwrap();
        assert_eq!((&said["refused"], &said["warned"]), (&json!([]), &json!([])), "{values}: {said:#}");
    }
}

#[test]
fn its_version_is_that_of_the_program() {
    let chart = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/config/helm/Chart.yaml")).unwrap();
    for key in ["version", "appVersion"] {
        assert!(chart.contains(&format!("\n{key}: {}\n", env!("CARGO_PKG_VERSION"))), "{key}");
    }
}
