//! Endpoints that change without a pause, in the real API server: a new route's status and a new endpoint do not wait for a pause.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use pilothouse::{testing::AdsClient, xds::ResourceType};
use serde_json::{Value, json};

use crate::{
    real::everything,
    running::end,
    stage::DEADLINE,
    status::{start, until},
};

/// A batch waits for this long at most; one that waited for a pause would wait for all of it.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
const CHANGES_A_SECOND: u64 = 30;
const MEASUREMENTS: usize = 5;

fn service(name: &str, ip: &str) -> Value {
    let spec = json!({"clusterIP": ip, "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}]});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"}, "spec": spec})
}

fn slice(service: &str, ips: &[String]) -> Value {
    let endpoints: Vec<Value> =
        ips.iter().map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}})).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
        "metadata": {"name": format!("{service}-1"), "namespace": "shop", "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
}

fn route(number: usize) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": format!("web-{number}"), "namespace": "shop"},
        "spec": {"parentRefs": [{"name": "edge"}], "rules": [{"backendRefs": [{"name": "web", "port": 8080}]}]},
    })
}

fn is_accepted(route: &Value) -> bool {
    let conditions = route["status"]["parents"][0]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Accepted" && c["status"] == "True")
}

#[actix::test]
async fn beside_endpoints_that_never_rest_a_route_has_its_status_and_a_client_its_endpoint() {
    let Some((server, admin)) = everything().await else { return };
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "istio"},
        "spec": {"controllerName": "istio.io/gateway-controller"}});
    let gateway = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "shop"},
        "spec": {"gatewayClassName": "istio", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}});
    let mut ips = vec!["10.1.0.1".to_string()];
    for object in [class, gateway, service("web", "10.0.0.62"), service("busy", "10.0.0.63"), slice("web", &ips)] {
        admin.apply_soon(&object).await;
    }
    let running = start(&server.kubeconfig).await;
    admin.apply_soon(&route(0)).await;
    until(&admin, &route(0), is_accepted).await;
    let client = AdsClient::connect(running.addresses.grpc, "10.9.9.9").await.unwrap();
    let mut stream = client.sotw(None).await.unwrap();
    let names = ["outbound|8080||web.shop.svc.cluster.local"];
    stream.subscribe(ResourceType::Endpoint, &names, "").await.unwrap();
    let first = stream.next().await.unwrap();
    stream.subscribe(ResourceType::Endpoint, &names, &first.nonce).await.unwrap();

    let (goes_on, changes) = (AtomicBool::new(true), AtomicUsize::new(0));
    let churn = async {
        let mut tick = tokio::time::interval(Duration::from_millis(1000 / CHANGES_A_SECOND));
        while goes_on.load(Ordering::Relaxed) {
            tick.tick().await;
            let number = changes.fetch_add(1, Ordering::Relaxed);
            admin.apply(&slice("busy", &[format!("10.2.{}.{}", number / 200 % 200, number % 200 + 1)])).await;
        }
    };
    let began = Instant::now();
    let measures = async {
        let mut waits = (Vec::new(), Vec::new());
        for number in 1..=MEASUREMENTS {
            let start = Instant::now();
            admin.apply(&route(number)).await;
            until(&admin, &route(number), is_accepted).await;
            waits.0.push(start.elapsed());
            let start = Instant::now();
            ips.push(format!("10.1.0.{}", number + 1));
            admin.apply(&slice("web", &ips)).await;
            loop {
                let Ok(response) = stream.next().await else {
                    assert!(start.elapsed() < DEADLINE, "no endpoint");
                    continue;
                };
                stream.subscribe(ResourceType::Endpoint, &names, &response.nonce).await.unwrap();
                let text: String =
                    response.resources.iter().map(|any| String::from_utf8_lossy(&any.value).into_owned()).collect();
                if text.contains(ips.last().unwrap().as_str()) {
                    break;
                }
            }
            waits.1.push(start.elapsed());
        }
        goes_on.store(false, Ordering::Relaxed);
        waits
    };
    let ((), (mut statuses, mut endpoints)) = tokio::join!(churn, measures);
    let rate = changes.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    println!("beside {rate:.0} changes a second: statuses after {statuses:?}, endpoints after {endpoints:?}");
    for waits in [&mut statuses, &mut endpoints] {
        waits.sort();
        assert!(waits[MEASUREMENTS / 2] < LONGEST_WAIT, "{waits:?}");
    }
    end(running).await;
}
