//! The admin pages of the program as probes, scrapers, `istioctl` and hostile web sites ask for them.

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;

use crate::{
    attacks::{Attacked, ask},
    stage::DEADLINE,
};

#[tokio::test]
async fn probes_may_ask_by_head_and_istioctl_reads_the_version() {
    let attacked = Attacked::plain().await;
    let http = attacked.http;
    for path in ["/ready", "/healthz", "/metrics"] {
        let head = ask(http, &format!("HEAD {path}")).await;
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
        assert_eq!(ask(http, &format!("GET {path}")).await.status, 200, "{path}");
    }
    let version = ask(http, "GET /version").await;
    assert!(version.status == 200 && version.head.contains("content-type: text/plain"), "{}", version.head);
    let parts: Vec<&str> = version.body.split('-').collect();
    assert_eq!(parts, [env!("CARGO_PKG_VERSION"), "pilothouse", "Clean"], "VERSION-REVISION-STATUS");
    assert_eq!(ask(http, "GET //version").await.body, version.body, "as istioctl asks a pod");
}

#[tokio::test]
async fn every_answer_has_its_content_type() {
    let attacked = Attacked::plain().await;
    let http = attacked.http;
    for (request, wanted) in [
        ("GET /debug/nothing%3Cscript%3E", 404),
        ("GET /nothing", 404),
        ("GET /debug/config_dump", 400),
        ("GET /debug/adsz?push=true", 405),
        ("GET /debug/queuez", 200),
        ("GET /", 200),
    ] {
        let answer = ask(http, request).await;
        let head = &answer.head;
        assert_eq!(answer.status, wanted, "{request}");
        assert!(
            head.contains("x-content-type-options: nosniff") && head.contains("content-type: "),
            "{request}: {head}"
        );
        assert!(wanted == 200 || head.contains("content-type: text/plain"), "{request}: {head}");
    }
}

/// The pushes that a page asked for.
async fn pushes(http: SocketAddr) -> usize {
    let events = ask(http, "GET /debug/eventz").await.body;
    let events: Vec<Value> = serde_json::from_str(&events).unwrap();
    assert!(!events.is_empty());
    events.iter().filter(|event| event["reasons"].to_string().contains("debug")).count()
}

#[tokio::test]
async fn web_sites_neither_read_pages_nor_push() {
    let mut attacked = Attacked::plain().await;
    let http = attacked.http;
    for path in ["/", "/debug", "/debug/configz", "/debug/mesh", "/debug/adsz"] {
        let rebound = ask(http, &format!("GET {path}\nHost: evil.example:8080")).await;
        assert_eq!(rebound.status, 403, "{path}");
        assert!(!rebound.body.contains("a.example"), "{path}: {}", rebound.body);
        assert_eq!(ask(http, &format!("GET {path}\nHost: localhost:8080")).await.status, 200, "{path}");
    }
    let ready = ask(http, "GET /ready\nHost: pilothouse.mesh").await;
    assert_eq!(ready.status, 200, "probes come by any name");

    for refused in [
        "GET /debug/adsz?push=true",
        "POST /debug/adsz?push=true\nOrigin: http://evil.example",
        "POST /debug/adsz?push=true\nSec-Fetch-Site: cross-site",
        "POST /debug/adsz?push=true\nHost: evil.example",
        "POST /debug/adsz",
    ] {
        assert!(ask(http, refused).await.status >= 400, "{refused}");
    }
    attacked.is_well().await;
    assert_eq!(pushes(http).await, 0, "nothing was pushed");
    assert_eq!(ask(http, "POST /debug/adsz?push=true").await.status, 200);
    let pushed = async {
        while pushes(http).await == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, pushed).await.expect("the push of the page");
    attacked.is_well().await;
}
