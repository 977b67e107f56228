//! Ten thousand EnvoyFilters.

use std::fs;

use serde_json::json;

use super::{Attacked, many_files::objects};
use crate::stage::DEADLINE;

const COUNT: usize = 10_000;
/// Of ten, those that are no EnvoyFilter, since a value does not fit.
const REFUSED: usize = 1;

fn filter(namespace: &str, name: &str, patch: &serde_json::Value) -> String {
    let metadata = json!({"name": name, "namespace": namespace});
    let spec = json!({"configPatches": [patch]});
    let document = json!({"apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter", "metadata": metadata, "spec": spec});
    format!("---\n{document}\n")
}

/// Of ten, five are for a service that no proxy has, one changes the service that all have, one adds a cluster, one adds a cluster
/// whose name is taken, one makes a cluster that Envoy would refuse, and one is none.
fn one_of_many(number: usize) -> String {
    let merge = |host: &str, value: serde_json::Value| json!({"applyTo": "CLUSTER", "match": {"cluster": {"service": host}}, "patch": {"operation": "MERGE", "value": value}});
    let add = |name: &str| {
        let value = json!({"name": name, "type": "STATIC", "connect_timeout": "1s"});
        json!({"applyTo": "CLUSTER", "patch": {"operation": "ADD", "value": value}})
    };
    let patch = match number % 10 {
        0..=4 => merge(&format!("n{number}.example"), json!({"connect_timeout": "2s"})),
        5 => merge("a.example", json!({"connect_timeout": format!("{}s", number % 7 + 1)})),
        6 => add(&format!("added-{number}")),
        7 => add("added-6"),
        8 => merge("a.example", json!({"connect_timeout": "-1s"})),
        _ => merge("a.example", json!({"connect_timeout": {"no": "duration"}})),
    };
    filter(["istio-system", "test"][number / 10 % 2], &format!("f{number}"), &patch)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_envoy_filters() {
    let mut attacked = Attacked::plain().await;
    attacked.stays = attacked.grows;
    let (file, http) = (attacked.dir.path().join("filters.yaml"), attacked.http);
    let before = objects(http).await;
    let wanted = before + (COUNT - COUNT / 10 * REFUSED) as u64;
    let writing = async move {
        let text: String = (0..COUNT).map(one_of_many).collect();
        fs::write(file, text).unwrap();
        let start = std::time::Instant::now();
        while objects(http).await < wanted {
            assert!(start.elapsed() < DEADLINE, "{} of {wanted} objects are in force", objects(http).await);
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        println!("in force after {:.1?}", start.elapsed());
    };
    attacked.under("ten thousand EnvoyFilters", writing).await;
    // One more has its effect, beside those of the others.
    let value = json!({"name": "of-one-more", "type": "STATIC", "connect_timeout": "1s"});
    let patch = json!({"applyTo": "CLUSTER", "patch": {"operation": "ADD", "value": value}});
    attacked.write("more.yaml", filter("test", "one-more", &patch));
    attacked.until("of-one-more").await;
    attacked.write("filters.yaml", "");
    attacked.is_well().await;
}
