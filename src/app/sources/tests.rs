//! The sources of settings, in their order of precedence.

use serde_json::{Value, json};

use super::*;
use crate::settings::KubeSettings;

/// The ids of the sources of these settings and `configSources`, or the error.
fn named_by(addresses: &[&str], settings: &SourceSettings, kept: bool) -> Result<Vec<String>, String> {
    let sources: Vec<Value> = addresses.iter().map(|address| json!({ "address": address })).collect();
    let mesh = Mesh::from_values(&json!({ "configSources": sources }), &Value::Null, "cluster.local", "main").unwrap();
    let (inputs, _publishers) = Inputs::new(Arc::new(mesh), Arc::default());
    let cluster = settings.kubernetes.clone().map(|k| Cluster::new("main", k, inputs.follow_mesh()));
    let named = named(&inputs, &MeshSettings::default(), settings, cluster.as_ref(), kept);
    named.map(|all| all.iter().map(|source| source.id().to_string()).collect()).map_err(|error| error.to_string())
}

fn folders(dirs: &[&Path]) -> SourceSettings {
    SourceSettings { config_dirs: dirs.iter().map(|dir| dir.to_path_buf()).collect(), ..SourceSettings::default() }
}

/// A cluster that is never asked in these tests.
fn with_cluster(settings: SourceSettings) -> SourceSettings {
    let access = KubeAccess::Kubeconfig { path: "/nowhere".into(), context: None };
    SourceSettings { kubernetes: Some(KubeSettings::new(access)), ..settings }
}

#[test]
fn flags_come_in_their_order_then_the_cluster_then_upstreams_and_its_services_last() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut settings = with_cluster(folders(&[two.path(), one.path()]));
    settings.upstream.addresses = vec!["istiod:15010".to_string()];
    let file = |dir: &tempfile::TempDir| format!("file:{}", dir.path().display());
    let rest =
        ["kube:main/crd", "kube:main/gateway-api", "xds:istiod:15010", "kube:main/ingress", "kube:main/registry"];
    let expected = [file(&two), file(&one)].into_iter().chain(rest.map(String::from));
    let expected: Vec<String> = expected.chain(["kube:main/discovery".to_string()]).collect();
    assert_eq!(named_by(&[], &settings, false).unwrap(), expected);
}

#[test]
fn config_sources_replace_the_flags_but_not_the_registry_of_the_cluster() {
    let (of_flag, of_mesh) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let settings = with_cluster(folders(&[of_flag.path()]));
    let address = format!("fs://{}", of_mesh.path().display());
    let registry = ["kube:main/ingress", "kube:main/registry", "kube:main/discovery"].map(String::from);
    let expected: Vec<String> = [format!("file:{}", of_mesh.path().display())].into_iter().chain(registry).collect();
    assert_eq!(named_by(&[&address], &settings, false).unwrap(), expected);
    // A kind of source that is not read does not keep the others from being read.
    assert_eq!(named_by(&["zk://elsewhere", &address], &settings, false).unwrap(), expected);
    assert!(named_by(&["k8s://"], &settings, false).unwrap().contains(&"kube:main/crd".to_string()));
}

#[test]
fn sources_that_cannot_be_are_refused_by_the_name_of_their_setting() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |addresses: &[&str], settings: &SourceSettings, says: &str| {
        let error = named_by(addresses, settings, false).unwrap_err();
        assert!(error.contains(says), "{error}");
    };
    let missing = folders(&[&dir.path().join("missing")]);
    refused(&[], &missing, "--config-dir ");
    assert_eq!(named_by(&[], &missing, true).unwrap().len(), 1, "saved content stands in for the folder");
    refused(&[], &folders(&[dir.path(), dir.path()]), "is there twice");
    refused(&["fs://"], &SourceSettings::default(), "fs:// without a path");
    refused(&["k8s://"], &SourceSettings::default(), "k8s:// without a cluster");
    let remote = |name: &str| RemoteCluster { name: name.to_string(), path: dir.path().to_path_buf() };
    let remotes = |remote_clusters: Vec<RemoteCluster>| SourceSettings { remote_clusters, ..SourceSettings::default() };
    refused(&[], &remotes(vec![remote("main")]), "this is the main cluster's id");
    refused(&[], &remotes(vec![remote("east"), remote("east")]), "--remote-cluster east");
    let gone = RemoteCluster { name: "east".to_string(), path: dir.path().join("missing") };
    refused(&[], &remotes(vec![gone]), "--remote-cluster east=");
}

#[test]
fn a_cluster_is_no_folder() {
    let dir = tempfile::tempdir().unwrap();
    assert!(are_folders(&folders(&[dir.path()])));
    assert!(!are_folders(&with_cluster(folders(&[dir.path()]))));
    let remote = |path: &Path| SourceSettings {
        remote_clusters: vec![RemoteCluster { name: "east".to_string(), path: path.to_path_buf() }],
        ..SourceSettings::default()
    };
    assert!(are_folders(&remote(dir.path())));
    assert!(!are_folders(&remote(&dir.path().join("kubeconfig"))), "a kubeconfig leads to a cluster");
}
