//! Identities on a real API server: tokens of service accounts, the right to list Secrets, the Secret of the certificate
//! authority and the ConfigMap with its roots.

use std::{path::Path, time::Duration};

use pilothouse::{
    app::{self, Running},
    identity::authority::new_root,
    proto::{
        envoy::{config::core::v3::Node, extensions::transport_sockets::tls::v3::Secret},
        json_to_struct,
    },
    runtime::Shutdown,
    settings::{
        AdminSettings, KubeAccess, ListenAddress, MeshSettings, RemoteCluster, Settings, SourceSettings, StateSettings,
        XdsSettings,
    },
    sources::kube::access::{authority_rights, identity_rights},
    testing::{AdsClient, ClientError},
    xds::ResourceType,
};
use prost::Message;
use rcgen::{
    CertificateParams, CertificateRevocationListParams, Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SanType,
    date_time_ymd,
};
use serde_json::{Value, json};
use tonic::{
    Code,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::{
    admin::{Admin, server_with},
    gate::{Gate, install},
    real::documents,
    stage::{DEADLINE, quick},
    status::{end, until},
};

async fn start(kubeconfig: &Path, state: Option<&Path>) -> Running {
    start_with(kubeconfig, state, |_| ()).await
}

async fn start_with(kubeconfig: &Path, state: Option<&Path>, change: impl FnOnce(&mut Settings)) -> Running {
    let access = KubeAccess::Kubeconfig { path: kubeconfig.to_path_buf(), context: None };
    let mut settings = Settings {
        sources: SourceSettings { kubernetes: Some(quick(access)), ..SourceSettings::default() },
        mesh: MeshSettings::default(),
        state: StateSettings { folder: state.map(Path::to_path_buf), ..StateSettings::default() },
        xds: XdsSettings {
            grpc_address: ListenAddress::loopback(0),
            secure_grpc_address: Some(ListenAddress::loopback(0)),
            ..XdsSettings::default()
        },
        admin: AdminSettings {
            http_address: ListenAddress::loopback(0),
            monitoring_address: None,
            ..AdminSettings::default()
        },
        ..Settings::default()
    };
    change(&mut settings);
    app::build(settings, Shutdown::default()).await.unwrap()
}

const NAMESPACES: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: istio-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}
";

fn object(kind: &str, namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}})
}

/// The roots that a namespace is told.
async fn roots(admin: &Admin, namespace: &str) -> String {
    let map = object("ConfigMap", namespace, "istio-ca-root-cert");
    let map = until(admin, &map, |map| map["data"]["root-cert.pem"].is_string()).await;
    assert_eq!(map["metadata"]["labels"]["istio.io/config"], "true");
    map["data"]["root-cert.pem"].as_str().unwrap().to_string()
}

fn tls(roots: &str) -> ClientTlsConfig {
    ClientTlsConfig::new().ca_certificate(Certificate::from_pem(roots)).domain_name("istiod.istio-system.svc")
}

/// A client whose node names this cluster.
async fn dial(
    cluster: &str,
    running: &Running,
    account: &str,
    tls: ClientTlsConfig,
) -> Result<AdsClient, tonic::transport::Error> {
    let address = running.addresses.secure_grpc.unwrap();
    let channel: Channel = Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls)?.connect().await?;
    let id = format!("router~10.0.0.9~{account}-1.shop~shop.svc.cluster.local");
    let metadata = (!cluster.is_empty()).then(|| json_to_struct(&json!({"CLUSTER_ID": cluster}))).flatten();
    Ok(AdsClient::over(channel, Node { id, metadata, ..Node::default() }))
}

async fn client(running: &Running, roots: &str, account: &str) -> AdsClient {
    client_in("", running, roots, account).await
}

async fn client_in(cluster: &str, running: &Running, roots: &str, account: &str) -> AdsClient {
    dial(cluster, running, account, tls(roots)).await.unwrap()
}

/// The Secrets of these names that a client is sent within a while; none come where they are refused.
async fn secrets(client: &AdsClient, names: &[&str]) -> Result<Vec<String>, ClientError> {
    let mut stream = client.sotw(None).await?;
    // A stream that is refused may be closed before; its status tells why.
    let _ = stream.subscribe(ResourceType::Secret, names, "").await;
    let found = |response: &pilothouse::proto::envoy::service::discovery::v3::DiscoveryResponse| {
        response.resources.iter().map(|any| Secret::decode(&*any.value).unwrap().name).collect::<Vec<_>>()
    };
    loop {
        let response = match tokio::time::timeout(Duration::from_secs(5), stream.next()).await {
            Ok(response) => response?,
            Err(_) => return Ok(Vec::new()),
        };
        if !found(&response).is_empty() {
            return Ok(found(&response));
        }
    }
}

/// As [`secrets`], once the process is ready.
async fn outcome(client: &AdsClient, names: &[&str]) -> Result<Vec<String>, Code> {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        match secrets(client, names).await {
            Ok(names) => return Ok(names),
            Err(ClientError::Status(status)) if status.code() == Code::Unavailable => {
                assert!(tokio::time::Instant::now() < deadline, "{status}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(ClientError::Status(status)) => return Err(status.code()),
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn credential() -> Value {
    let now = std::time::SystemTime::now();
    let material = new_root("credential", now, Duration::from_secs(3600)).unwrap();
    let mut secret = object("Secret", "shop", "credential");
    secret["stringData"] = json!({"tls.crt": material.certificate, "tls.key": material.key});
    secret
}

#[actix::test]
async fn tokens_prove_service_accounts_and_the_cluster_grants_the_right_to_read_secrets() {
    let denied = ["-deny", "system:serviceaccount:shop:web:secrets"];
    let Some((server, admin)) = server_with(&denied, &[]).await else { return };
    for object in documents(NAMESPACES) {
        admin.apply_soon(&object).await;
    }
    admin.apply(&credential()).await;
    let running = start(&server.kubeconfig, None).await;
    let roots = roots(&admin, "shop").await;
    let names = ["kubernetes://credential"];

    let web = client(&running, &roots, "web").await;
    for token in ["made-up", "sa:shop:web:https://kubernetes.default.svc", "admin"] {
        assert_eq!(outcome(&web.with_token(token), &names).await, Err(Code::Unauthenticated), "{token}");
    }
    assert_eq!(outcome(&web, &names).await, Err(Code::Unauthenticated), "without a token");
    let elsewhere = client(&running, &roots, "web").await.with_token("sa:other:web:istio-ca");
    assert_eq!(outcome(&elsewhere, &names).await, Err(Code::PermissionDenied));

    let edge = client(&running, &roots, "edge").await.with_token("sa:shop:edge:istio-ca");
    assert_eq!(outcome(&edge, &names).await, Ok(vec![names[0].to_string()]));
    let web = web.with_token("sa:shop:web:istio-ca");
    assert_eq!(outcome(&web, &names).await, Ok(Vec::new()), "the cluster denies it");
    // Its own certificate is no Secret of the cluster.
    assert_eq!(outcome(&web, &["default"]).await, Ok(vec!["default".to_string()]));
    end(running).await;
}

#[actix::test]
async fn tokens_of_remote_clusters_are_reviewed_by_their_own_api_server() {
    let Some((server, admin)) = server_with(&[], &[]).await else { return };
    let Some((mut west, _)) = server_with(&[], &[]).await else { return };
    for object in documents(NAMESPACES) {
        admin.apply_soon(&object).await;
    }
    let running = start_with(&server.kubeconfig, None, |settings| {
        let path = west.kubeconfig.clone();
        settings.sources.remote_clusters = vec![RemoteCluster { name: "west".to_string(), path }];
        settings.mesh.cluster_aliases = vec!["old-west=west".parse().unwrap()];
    })
    .await;
    let roots = roots(&admin, "shop").await;
    let of = |cluster: &'static str, account: &'static str| {
        let (running, roots) = (&running, roots.clone());
        async move {
            let client = client(running, &roots, account).await.with_token(&format!("sa:shop:{account}:istio-ca"));
            let client = if cluster.is_empty() { client } else { client.with_header("clusterid", cluster) };
            outcome(&client, &["ROOTCA"]).await
        }
    };
    let believed = Ok(vec!["ROOTCA".to_string()]);
    for cluster in ["", "Kubernetes", "west", "old-west"] {
        assert_eq!(of(cluster, "cart").await, believed, "{cluster:?}");
    }
    for unknown in ["east", "West", "kubernetes"] {
        assert_eq!(of(unknown, "cart").await, Err(Code::Unauthenticated), "{unknown}");
    }
    // The one that does not answer takes nothing from the other.
    west.kill().await;
    let client =
        client(&running, &roots, "late").await.with_token("sa:shop:late:istio-ca").with_header("clusterid", "west");
    match secrets(&client, &["ROOTCA"]).await {
        Err(ClientError::Status(status)) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(of("", "late").await, believed);
    end(running).await;
}

#[actix::test]
async fn the_cluster_of_a_client_says_whether_it_may_read_secrets() {
    let denied = |account: &str| ["-deny".to_string(), format!("system:serviceaccount:shop:{account}:secrets")];
    let (of_main, of_west) = (denied("edge"), denied("web"));
    let Some((server, admin)) = server_with(&of_main.each_ref().map(|text| &**text), &[]).await else { return };
    let Some((west, admin_of_west)) = server_with(&of_west.each_ref().map(|text| &**text), &[]).await else { return };
    for object in documents(NAMESPACES) {
        admin.apply_soon(&object).await;
        admin_of_west.apply_soon(&object).await;
    }
    admin.apply(&credential()).await;
    let running = start_with(&server.kubeconfig, None, |settings| {
        let path = west.kubeconfig.clone();
        settings.sources.remote_clusters = vec![RemoteCluster { name: "west".to_string(), path }];
    })
    .await;
    let (roots, names) = (roots(&admin, "shop").await, ["kubernetes://credential"]);
    let of = |cluster: &'static str, account: &'static str| {
        let (running, roots) = (&running, &roots);
        async move {
            let client = client_in(cluster, running, roots, account).await;
            outcome(&client.with_token(&format!("sa:shop:{account}:istio-ca")), &names).await
        }
    };
    let given = Ok(vec![names[0].to_string()]);
    assert_eq!(of("west", "edge").await, given, "the main cluster denies the account of its own by this name");
    assert_eq!(of("", "web").await, given);
    let (web_of_west, edge, unknown) = tokio::join!(of("west", "web"), of("", "edge"), of("east", "edge"));
    assert_eq!((web_of_west, edge, unknown), (Ok(Vec::new()), Ok(Vec::new()), Ok(Vec::new())));
    end(running).await;
}

#[actix::test]
async fn the_root_lives_in_the_cluster_and_each_namespace_is_told_it() {
    let Some((server, admin)) = server_with(&[], &[]).await else { return };
    for object in documents(NAMESPACES) {
        admin.apply_soon(&object).await;
    }
    let state = tempfile::tempdir().unwrap();
    let (one, two) = (start(&server.kubeconfig, Some(state.path())).await, start(&server.kubeconfig, None).await);
    let secret = admin.get(&object("Secret", "istio-system", "istio-ca-secret")).await;
    assert_eq!(secret["type"], "istio.io/ca-root");
    let told = roots(&admin, "shop").await;
    assert_eq!(roots(&admin, "istio-system").await, told);
    let ignored = object("ConfigMap", "kube-system", "istio-ca-root-cert");
    assert!(admin.get(&ignored).await.is_null(), "no namespace of Kubernetes itself");

    // Both processes issue below this root.
    for running in [&one, &two] {
        let edge = client(running, &told, "edge").await.with_token("sa:shop:edge:istio-ca");
        assert_eq!(outcome(&edge, &["ROOTCA"]).await, Ok(vec!["ROOTCA".to_string()]));
    }
    // A map that is taken away or changed comes back, and a new namespace has its own.
    let map = object("ConfigMap", "shop", "istio-ca-root-cert");
    admin.delete(&map).await;
    assert_eq!(roots(&admin, "shop").await, told);
    let mut changed = map.clone();
    changed["data"] = json!({"root-cert.pem": "other"});
    admin.apply(&changed).await;
    until(&admin, &map, |map| map["data"]["root-cert.pem"] == told.as_str()).await;
    admin.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "late"}})).await;
    assert_eq!(roots(&admin, "late").await, told);
    end(two).await;
    end(one).await;

    // Without the cluster the process starts below the same root.
    drop(server);
    let kubeconfig = state.path().join("kubeconfig");
    std::fs::write(
        &kubeconfig,
        json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "users": [{"name": "u", "user": {}}]})
        .to_string(),
    )
    .unwrap();
    let alone = start(&kubeconfig, Some(state.path())).await;
    client(&alone, &told, "edge").await;
    end(alone).await;
}

/// A certificate of `shop/cart` with this serial number, and its key.
fn certified(issuer: &Issuer<'static, KeyPair>, serial: u64) -> Identity {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.subject_alt_names = vec![SanType::URI("spiffe://cluster.local/ns/shop/sa/cart".try_into().unwrap())];
    params.serial_number = Some(serial.into());
    let key = KeyPair::generate().unwrap();
    Identity::from_pem(params.signed_by(&key, issuer).unwrap().pem(), key.serialize_pem())
}

#[actix::test]
async fn a_list_of_revoked_certificates_in_the_secret_cacerts_is_in_force() {
    let Some((server, admin)) = server_with(&[], &[]).await else { return };
    for object in documents(NAMESPACES) {
        admin.apply_soon(&object).await;
    }
    let material = new_root("mine", std::time::SystemTime::now(), Duration::from_secs(86_400)).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&material.certificate, KeyPair::from_pem(&material.key).unwrap()).unwrap();
    let list = CertificateRevocationListParams {
        this_update: date_time_ymd(2024, 1, 1),
        next_update: date_time_ymd(2090, 1, 1),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: 7.into(),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&issuer).unwrap().pem().unwrap();
    let mut secret = object("Secret", "istio-system", "cacerts");
    secret["stringData"] = json!({"ca-cert.pem": material.certificate, "ca-key.pem": material.key,
        "root-cert.pem": material.roots, "cert-chain.pem": "", "ca-crl.pem": list});
    admin.apply(&secret).await;
    let running = start(&server.kubeconfig, None).await;
    // Istio's proxies have the list from a ConfigMap of their namespace.
    let map = object("ConfigMap", "shop", "istio-ca-crl");
    let map = until(&admin, &map, |map| map["data"]["ca-crl.pem"].is_string()).await;
    assert_eq!(map["data"]["ca-crl.pem"].as_str().unwrap().trim(), list.trim());
    let as_cart = |serial: u64| dial("", &running, "cart", tls(&material.roots).identity(certified(&issuer, serial)));

    // A proxy is sent the list, and the listener goes by it: with TLS 1.3 a client learns of it after its handshake.
    let good = as_cart(8).await.unwrap();
    assert_eq!(outcome(&good, &["ROOTCA"]).await, Ok(vec!["ROOTCA".to_string()]));
    let mut stream = good.sotw(None).await.unwrap();
    stream.subscribe(ResourceType::Secret, &["ROOTCA"], "").await.unwrap();
    let sent = Secret::decode(&*stream.next().await.unwrap().resources[0].value).unwrap();
    assert!(format!("{sent:?}").contains("X509 CRL"), "{sent:?}");
    if let Ok(bad) = as_cart(7).await {
        assert!(secrets(&bad, &["ROOTCA"]).await.is_err(), "a revoked certificate proves an identity");
    }
    end(running).await;
}

#[actix::test]
async fn the_rights_of_the_manifest_suffice_for_identities() {
    let Some((_server, admin)) = server_with(&[], &[]).await else { return };
    install(&admin).await;
    for object in documents(NAMESPACES) {
        admin.apply_soon(&object).await;
    }
    admin.apply(&credential()).await;
    let gate = Gate::start(&admin).await;
    let dir = tempfile::tempdir().unwrap();
    let running = start(&gate.kubeconfig(dir.path(), "sa:istio-system:pilothouse"), None).await;
    let roots = roots(&admin, "shop").await;
    let edge = client(&running, &roots, "edge").await.with_token("sa:shop:edge:istio-ca");
    let names = ["kubernetes://credential"];
    assert_eq!(outcome(&edge, &names).await, Ok(vec![names[0].to_string()]));
    end(running).await;
    assert_eq!(gate.denied(), Vec::<String>::new());
    let mut used = gate.used();

    // The ConfigMaps stand: the next process writes that of a new namespace alone.
    let gate = Gate::start(&admin).await;
    let running = start(&gate.kubeconfig(dir.path(), "sa:istio-system:pilothouse"), None).await;
    admin.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "late"}})).await;
    self::roots(&admin, "late").await;
    end(running).await;
    assert_eq!(gate.times("", "configmaps", "patch"), 1);
    used.extend(gate.used());

    // A root near its end is renewed in its Secret.
    let secret = object("Secret", "istio-system", "istio-ca-secret");
    admin.delete(&secret).await;
    let ending = new_root("cluster.local", std::time::SystemTime::now(), Duration::from_secs(3600)).unwrap();
    let mut old = secret.clone();
    old["type"] = "istio.io/ca-root".into();
    old["stringData"] = json!({"ca-cert.pem": ending.certificate, "ca-key.pem": ending.key});
    admin.apply(&old).await;
    let kept = admin.get(&secret).await["data"].clone();
    let gate = Gate::start(&admin).await;
    let running = start(&gate.kubeconfig(dir.path(), "sa:istio-system:pilothouse"), None).await;
    let renewed = until(&admin, &secret, |secret| secret["data"]["ca-cert.pem"] != kept["ca-cert.pem"]).await;
    assert_eq!(renewed["data"]["ca-key.pem"], kept["ca-key.pem"]);
    end(running).await;
    assert_eq!(gate.denied(), Vec::<String>::new());
    used.extend(gate.used());
    // The server asks for the right to create a ConfigMap where a missing one is applied.
    used.insert((String::new(), "configmaps".to_string(), "create".to_string()));
    let needed = identity_rights().into_iter().chain(authority_rights());
    let needed = needed.map(|right| (right.group, right.resource, right.verb.to_string()));
    assert_eq!(needed.filter(|right| !used.contains(right)).collect::<Vec<_>>(), [], "granted and never used");
}
