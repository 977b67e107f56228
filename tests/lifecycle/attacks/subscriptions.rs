//! Streams that subscribe and refuse without end, and files with more than anybody needs.

use std::{fs, time::Duration};

use futures::FutureExt;
use pilothouse::{
    proto::{
        envoy::{config::core::v3::Node, service::discovery::v3::DiscoveryRequest},
        json_to_struct,
    },
    testing::AdsClient,
    xds::ResourceType::{Cluster, Endpoint, Secret},
};

use serde_json::json;

use super::{Attacked, request, size, stream};
use crate::stage::entry;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_of_forbidden_secrets_without_end() {
    let mut attacked = Attacked::plain().await;
    let mut stream = attacked.stream().await;
    let asking = async move {
        let mut nonce = String::new();
        for round in 0..size(6, 100) {
            let names = (0..9_000).map(|number| format!("kubernetes://other/s{round}-{number}")).collect();
            stream.send(request(Secret, names, &nonce)).await.expect("an open stream");
            // An answer that holds as little as the one before is not sent.
            if let Ok(Ok(response)) = tokio::time::timeout(Duration::from_millis(300), stream.next()).await {
                nonce = response.nonce;
            }
        }
        stream
    };
    attacked.under("names of forbidden secrets", asking).await;
    assert!((1..=8).contains(&attacked.server.lines_with("secrets are not sent")), "in few lines, with a count");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_without_end() {
    let mut attacked = Attacked::plain().await;
    let mut stream = attacked.stream().await;
    stream.subscribe(Cluster, &[], "").await.unwrap();
    let response = stream.next().await.unwrap();
    let refusing = async move {
        for _ in 0..size(2000, 10_000) {
            stream.refuse(&response, &[]).await.expect("an open stream");
        }
        stream
    };
    attacked.under("refusals", refusing).await;
    let lines = attacked.server.lines_with("a client refused a response");
    assert!((1..=20).contains(&lines), "{lines} lines");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_views_without_end() {
    let mut attacked = Attacked::plain().await;
    attacked.grows = 1000;
    let (mut attackers, most) = (Vec::new(), size(usize::MAX, 180));
    for attacker in 0..size(4, 32) {
        let client = AdsClient::connect(attacked.address, "10.0.0.3").await.unwrap();
        let joining = async move {
            let mut held = Vec::new();
            for number in 0..most {
                // Those that stay have labels of their own, the others a namespace.
                let (name, stays) = (format!("n{attacker}-{number}"), number % 2 == 0);
                let namespace = if stays { "shop" } else { &*name };
                let id = format!("sidecar~10.0.0.3~a.{namespace}~{namespace}.svc.cluster.local");
                let metadata = json_to_struct(&json!({"LABELS": {"app": name}}));
                let node = Node { id, metadata, ..Node::default() };
                let Ok(mut stream) = client.with_node(node).sotw(None).await else { continue };
                let asked = stream.subscribe(Cluster, &[], "").await;
                if asked.is_ok() && stream.next().await.is_ok() && stays {
                    held.push(stream);
                }
            }
            std::future::pending::<()>().await;
            drop(held);
        };
        attackers.push(joining.boxed());
    }
    attacked.besieged("new views", size(5, 40), attackers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_that_change_without_end() {
    let mut attacked = Attacked::plain().await;
    let count = size(200, 1000);
    let many: String = (0..count).map(|n| entry(&format!("x{n}"), &format!("x{n}.example"))).collect();
    attacked.write("many.yaml", many);
    attacked.until(&format!("outbound|80||x{}.example", count - 1)).await;
    let names: Vec<String> = (0..count).map(|n| format!("outbound|80||x{n}.example")).collect();
    let mut attackers = Vec::new();
    for _ in 0..5 {
        let (mut stream, names) = (attacked.stream().await, names.clone());
        let changing = async move {
            loop {
                for names in [names.clone(), names[..1].to_vec()] {
                    stream.send(request(Endpoint, names, "")).await.expect("an open stream");
                }
                let _ = tokio::time::timeout(Duration::from_millis(1), stream.next()).await;
            }
        };
        attackers.push(changing.boxed());
    }
    attacked.besieged("subscriptions that change", size(5, 50), attackers).await;
}

/// Stale and invented nonces: the request that they belong to is passed over, and so is a name of another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonces_of_nobody_and_nodes_that_change() {
    let mut attacked = Attacked::plain().await;
    let private = entry("p", "private.example").replace("namespace: shop", "namespace: bank");
    attacked.write("private.yaml", private.replace("spec:\n", "spec:\n  exportTo: ['.']\n"));
    attacked.is_well().await;
    let address = attacked.address;
    let stale = async move {
        let mut stream = stream(address).await;
        stream.subscribe(Cluster, &[], "").await.unwrap();
        let first = stream.next().await.unwrap();
        stream.subscribe(Cluster, &[], &first.nonce).await.unwrap();
        for number in 0..size(3000, 10_000) {
            let nonce = if number % 2 == 0 { "0".to_string() } else { format!("{}{number}", first.nonce) };
            stream.send(request(Cluster, Vec::new(), &nonce)).await.expect("an open stream");
        }
        stream
    };
    attacked.under("stale nonces", stale).await;
    let changing = async move {
        let mut stream = stream(address).await;
        stream.subscribe(Cluster, &[], "").await.unwrap();
        let mut nonce = stream.next().await.unwrap().nonce;
        for number in 0..size(200, 5000) {
            let id = format!("sidecar~10.0.0.{}~a.bank~bank.svc.cluster.local", number % 250);
            let node = Some(Node { id, ..Node::default() });
            let changed = request(Cluster, vec![number.to_string()], &nonce);
            stream.send(DiscoveryRequest { node, ..changed }).await.expect("an open stream");
            stream.send(request(Cluster, Vec::new(), &nonce)).await.expect("an open stream");
            if let Ok(Ok(response)) = tokio::time::timeout(Duration::from_millis(5), stream.next()).await {
                let mut texts = response.resources.iter().map(|any| String::from_utf8_lossy(&any.value));
                assert!(!texts.any(|text| text.contains("private.example")), "a stream becomes another node");
                nonce = response.nonce;
            }
        }
        stream
    };
    attacked.under("a changed node", changing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_very_many_valid_objects() {
    let mut attacked = Attacked::plain().await;
    // Nobody else sees them: what proxies hold is not judged here.
    let far = |n: usize| {
        let entry = entry(&format!("f{n}"), &format!("f{n}.example")).replace("namespace: shop", "namespace: far");
        entry.replace("spec:\n", "spec:\n  exportTo: ['.']\n")
    };
    let bytes = size(2 << 20, 60 << 20);
    let text: String = (0..bytes / far(100_000).len()).map(far).collect();
    let before = attacked.server.resident();
    fs::write(attacked.dir.path().join("far.yaml"), &text).unwrap();
    for _ in 0..size(5, 40) {
        attacked.is_well().await;
    }
    let peak = attacked.server.resident();
    println!("{before} MB before, {peak} MB with the file");
    attacked.in_time("a file of very many valid objects");
    assert!(peak - before < 200 + 20 * (bytes >> 20), "{peak} MB for a file of {} MB", bytes >> 20);
    assert_eq!(attacked.server.lines_with("panic"), 0);
}
