//! The status of each object: the admin page and the command, from files, while proxies come, lag behind and catch up.

use std::{fs, net::SocketAddr, process::Command, time::Duration};

use pilothouse::{app::Running, testing::AdsClient, xds::ResourceType};
use serde_json::{Value, json};

use crate::stage::{DEADLINE, end, start, until};

const INGRESS: &str = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: web\n  namespace: shop\n  \
    annotations:\n    kubernetes.io/ingress.class: istio\nspec:\n  tls:\n  - hosts: [web.example]\n  rules:\n  - host: web.example\n    http:\n      \
    paths:\n      - path: /\n        pathType: Prefix\n        backend:\n          service:\n            name: web\n            \
    port:\n              number: 80\n";

fn entry(port: u16) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata:\n  name: api\n  namespace: shop\nspec:\n  \
         hosts: [api.example]\n  ports:\n  - {{number: {port}, name: http, protocol: HTTP}}\n  resolution: DNS\n"
    )
}

async fn command(address: SocketAddr, form: &'static str) -> String {
    let run = move || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(["status", "--http-addr", &address.to_string(), "-o", form]).output().unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

async fn statuses(running: &Running) -> Vec<Value> {
    let text = command(running.addresses.http, "json").await;
    serde_json::from_str(&text).unwrap()
}

async fn until_message(running: &Running, message: &str) {
    let wait = async {
        loop {
            let all = statuses(running).await;
            let of = |row: &&Value| row["kind"] == "ServiceEntry";
            if all.iter().find(of).is_some_and(|row| row["status"]["conditions"][0]["message"] == message) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(DEADLINE, wait).await;
    assert!(waited.is_ok(), "{message} does not come: {:#?}", statuses(running).await);
}

#[actix::test]
async fn the_page_names_the_proxies_that_hold_an_object_and_the_translation_of_others() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("ingress.yaml"), INGRESS).unwrap();
    let path = dir.path().join("entry.yaml");
    fs::write(&path, entry(80)).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| c.inputs.registry.services.len() == 1 && !c.translation.statuses.is_empty()).await;
    until_message(&running, "0/0 proxies up to date.").await;

    let client = AdsClient::connect(running.addresses.grpc, "10.0.0.1").await.unwrap();
    let mut stream = client.sotw(None).await.unwrap();
    stream.subscribe(ResourceType::Cluster, &[], "").await.unwrap();
    let first = stream.next().await.unwrap();
    stream.subscribe(ResourceType::Cluster, &[], &first.nonce).await.unwrap();
    fs::write(&path, entry(81)).unwrap();
    let second = stream.next().await.unwrap();
    until_message(&running, "0/1 proxies up to date.").await;
    stream.subscribe(ResourceType::Cluster, &[], &second.nonce).await.unwrap();
    until_message(&running, "1/1 proxies up to date.").await;

    let rows = statuses(&running).await;
    let kinds: Vec<&Value> = rows.iter().map(|r| &r["kind"]).collect();
    assert_eq!(kinds, ["ServiceEntry", "Ingress"]);
    assert_eq!(rows[0]["status"]["conditions"][0]["status"], "True");
    assert_eq!(rows[0]["status"].get("addresses"), None, "an address without a reader is not given");
    assert_eq!(rows[1]["status"], json!({"loadBalancer": {}}));
    assert_eq!(rows[1]["reports"], json!(["spec.tls[0]: without secretName it has no effect"]));
    let table = command(running.addresses.http, "table").await;
    assert!(table.lines().any(|l| l.starts_with("ServiceEntry") && l.contains("Reconciled=True")), "{table}");
    end(running).await;
}
