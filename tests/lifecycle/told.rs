//! Numbers that the process tells: the objects that were read, and the changes that were counted.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    binary::Binary,
    confirm::{aside, ask},
    stage::{DEADLINE, entry},
};

#[test]
fn the_log_has_the_number_of_objects_that_were_read() {
    let dir = tempfile::tempdir().unwrap();
    let all: String = (0..7).map(|n| entry(&format!("e{n}"), &format!("e{n}.example"))).collect();
    fs::write(dir.path().join("a.yaml"), all).unwrap();
    let mut server = Binary::serve(dir.path(), &[], &[]);
    let source = format!("file:{}", dir.path().display());
    let objects = server.until("the number of objects", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["message"] == "full snapshot delivered" && line["source"] == source.as_str())
            .then(|| line["objects"].clone())
    });
    assert_eq!(objects, 7);
}

/// The counters of changes: kind, event and value of each.
async fn events(http: std::net::SocketAddr) -> Vec<String> {
    let page = aside(move || ask(http, "GET /metrics HTTP/1.0")).await;
    let lines = page.lines().filter_map(|line| line.strip_prefix("pilot_k8s_cfg_events{"));
    let mut lines: Vec<String> = lines.map(String::from).collect();
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_an_object_is_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let mut server = Binary::serve(dir.path(), &[], &[]);
    let (_, http) = server.addresses();
    let (file, kind) = (dir.path().join("b.yaml"), "DestinationRule");
    let rule = |host: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: b, namespace: shop}}\nspec: {{host: {host}}}\n"
        )
    };
    let of = |lines: &[String], event: &str| {
        let mut found =
            lines.iter().filter(|l| l.contains(&format!("\"{kind}\"")) && l.contains(&format!("\"{event}\"")));
        let value = found.next().and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        assert!(found.next().is_none(), "{lines:?}");
        value.unwrap_or_default()
    };
    let counts = |lines: &[String]| ["add", "update", "delete"].map(|event| of(lines, event));
    for (step, wanted) in [[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 2, 1]].into_iter().enumerate() {
        if step == 3 {
            fs::remove_file(&file).unwrap();
        } else {
            fs::write(&file, rule(&format!("host-{step}.example"))).unwrap();
        }
        let start = Instant::now();
        loop {
            let now = counts(&events(http).await);
            assert!(now.iter().sum::<u64>() <= wanted.iter().sum(), "{now:?} after step {step}");
            if now == wanted {
                break;
            }
            assert!(start.elapsed() < DEADLINE, "{now:?} after step {step}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
