//! The whole process on a cluster: proxies get the same bytes as from a folder that holds the same objects.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use pilothouse::{
    app::Running,
    proto::envoy::{config::cluster::v3::Cluster, service::discovery::v3::DiscoveryResponse},
    settings::{KubeAccess, MeshSettings, Settings, SourceSettings},
    testing::{AdsClient, ClientError, SotwStream},
    xds::ResourceType,
};
use prost::Message;

use crate::{
    real::{SCENARIO, documents, everything},
    running::{end, run, settings},
    stage::quick,
};

async fn start(sources: SourceSettings, mesh: MeshSettings) -> Running {
    run(Settings { mesh, ..settings(sources) }).await
}

async fn ask(stream: &mut SotwStream, kind: ResourceType, names: &[&str]) -> Result<DiscoveryResponse, ClientError> {
    stream.subscribe(kind, names, "").await?;
    loop {
        let response = stream.next().await?;
        if response.type_url == kind.url() {
            return Ok(response);
        }
    }
}

/// The resources of a sidecar: type and bytes of each.
async fn told(running: &Running) -> Result<BTreeSet<(String, Vec<u8>)>, ClientError> {
    let client = AdsClient::connect(running.addresses.grpc, "10.9.9.9").await?;
    let mut stream = client.sotw(None).await?;
    let clusters = ask(&mut stream, ResourceType::Cluster, &[]).await?;
    let names: Vec<String> = clusters
        .resources
        .iter()
        .filter_map(|r| Cluster::decode(&*r.value).ok())
        .map(|c| c.name)
        .filter(|n| n.starts_with("outbound|"))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut all = clusters.resources;
    all.extend(ask(&mut stream, ResourceType::Endpoint, &names).await?.resources);
    all.extend(ask(&mut stream, ResourceType::Listener, &[]).await?.resources);
    all.extend(ask(&mut stream, ResourceType::Route, &["9080", "80"]).await?.resources);
    Ok(all.into_iter().map(|r| (r.type_url, r.value.to_vec())).collect())
}

/// Waits until the mesh settings in force have this connect timeout.
async fn running_mesh(running: &Running, seconds: i64) {
    let mut mesh = running.inputs.follow_mesh();
    let says = |m: &std::sync::Arc<pilothouse::model::Mesh>| {
        m.config.connect_timeout.as_ref().map(|t| t.seconds) == Some(seconds)
    };
    mesh.wait_for(says).await.unwrap();
}

fn cluster(kubeconfig: &Path) -> SourceSettings {
    let access = KubeAccess::Kubeconfig { path: kubeconfig.to_path_buf(), context: None };
    SourceSettings { kubernetes: Some(quick(access)), ..SourceSettings::default() }
}

#[actix::test]
async fn proxies_are_told_the_same_by_a_cluster_and_by_a_folder() {
    let Some((server, admin)) = everything().await else { return };
    let mesh = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "istio", "namespace": "istio-system"}, "data": {"mesh": "connectTimeout: 4s\n"}});
    admin.apply(&mesh).await;
    for object in documents(SCENARIO) {
        admin.apply_soon(&object).await;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("scenario.yaml"), SCENARIO).unwrap();
    let mesh_file = dir.path().join("mesh");
    fs::write(&mesh_file, "connectTimeout: 4s\n").unwrap();
    let of_folder = SourceSettings { config_dirs: vec![dir.path().to_path_buf()], ..SourceSettings::default() };
    let folder = start(of_folder, MeshSettings { config_file: Some(mesh_file), ..MeshSettings::default() }).await;
    let live = start(cluster(&server.kubeconfig), MeshSettings::default()).await;
    let same = async {
        loop {
            let (a, b) = (told(&folder).await, told(&live).await);
            if let (Ok(a), Ok(b)) = (&a, &b)
                && a == b
                && a.len() > 10
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let waited = tokio::time::timeout(crate::stage::DEADLINE, same).await;
    assert!(waited.is_ok(), "{:#?}", live.sources.iter().map(|s| s.board.read()).collect::<Vec<_>>());
    assert_eq!(live.inputs.mesh().config.connect_timeout.as_ref().map(|t| t.seconds), Some(4));
    let mut changed = mesh;
    changed["data"]["mesh"] = "connectTimeout: 7s\n".into();
    admin.apply(&changed).await;
    let follow = running_mesh(&live, 7);
    tokio::time::timeout(crate::stage::DEADLINE, follow).await.expect("the mesh settings of the cluster are followed");
    end(folder).await;
    end(live).await;
}
