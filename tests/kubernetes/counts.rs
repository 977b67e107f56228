//! The number of proxies that hold an object, over all control planes of a cluster: the leader adds up all reports.

use std::time::Duration;

use pilothouse::{
    app::Running,
    testing::{AdsClient, SotwStream},
    xds::ResourceType,
};
use serde_json::{Value, json};

use crate::{
    real::everything,
    running::end,
    stage::DEADLINE,
    status::{condition, start, until},
};

/// A proxy that accepts the responses that the test chooses.
struct Proxy {
    stream: SotwStream,
    nonce: String,
}

impl Proxy {
    /// Connects and takes its first configuration.
    async fn of(running: &Running, ip: &str) -> Self {
        let ready = async {
            while running.state.current().is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(DEADLINE, ready).await.unwrap();
        let client = AdsClient::connect(running.addresses.grpc, ip).await.unwrap();
        let stream = client.sotw(None).await.unwrap();
        let mut proxy = Self { stream, nonce: String::new() };
        proxy.accept().await;
        proxy.offered("one.example:80").await;
        proxy.accept().await;
        proxy
    }

    /// Takes responses until one has a cluster of this host and port; those before it are accepted, it is not.
    async fn offered(&mut self, cluster: &str) {
        let (host, port) = cluster.split_once(':').unwrap();
        let name = format!("outbound|{port}||{host}");
        loop {
            let response = self.stream.next().await.unwrap();
            self.nonce = response.nonce;
            if response.resources.iter().any(|r| r.value.windows(name.len()).any(|w| w == name.as_bytes())) {
                return;
            }
            self.accept().await;
        }
    }

    async fn accept(&mut self) {
        self.stream.subscribe(ResourceType::Cluster, &[], &self.nonce).await.unwrap();
    }
}

fn entry(name: &str, port: u16) -> Value {
    json!({"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"hosts": [format!("{name}.example")], "resolution": "DNS",
            "ports": [{"number": port, "name": "http", "protocol": "HTTP"}]}})
}

async fn until_count(admin: &crate::real::Admin, name: &str, status: &str, message: &str) {
    let says = |o: &Value| {
        let condition = condition(o, "Reconciled");
        let current = condition["observedGeneration"] == o["metadata"]["generation"];
        current && condition["status"] == status && condition["message"] == format!("{message} proxies up to date.")
    };
    until(admin, &entry(name, 80), says).await;
}

#[actix::test]
async fn proxies_of_every_control_plane_count() {
    let Some((server, admin)) = everything().await else { return };
    admin.apply_soon(&entry("one", 80)).await;
    let leader = start(&server.kubeconfig).await;
    until_count(&admin, "one", "True", "0/0").await;
    let other = start(&server.kubeconfig).await;
    let (mut near, mut far) = (Proxy::of(&leader, "10.1.0.1").await, Proxy::of(&other, "10.1.0.2").await);

    admin.apply(&entry("one", 81)).await;
    near.offered("one.example:81").await;
    far.offered("one.example:81").await;
    until_count(&admin, "one", "False", "0/2").await;
    far.accept().await;
    until_count(&admin, "one", "False", "1/2").await;
    near.accept().await;
    until_count(&admin, "one", "True", "2/2").await;

    admin.apply(&entry("one", 82)).await;
    near.offered("one.example:82").await;
    near.accept().await;
    until_count(&admin, "one", "False", "1/2").await;
    // The leader ends; the next one waits for the same proxy, which is its own.
    end(leader).await;
    far.offered("one.example:82").await;
    far.accept().await;
    until_count(&admin, "one", "True", "1/1").await;
    end(other).await;
}
