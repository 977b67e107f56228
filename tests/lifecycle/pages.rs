//! The admin pages as probes, scrapers, `istioctl` and hostile web sites ask for them.

use std::net::SocketAddr;

use crate::{
    confirm::{aside, ask},
    stage::{Served, end},
};

async fn answer(http: SocketAddr, request: &str) -> (u16, String, String) {
    let request = request.to_string();
    let answer = aside(move || ask(http, &request)).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_string())
}

#[actix::test]
async fn probes_may_ask_by_head_and_istioctl_reads_the_version() {
    let served = Served::start().await;
    let http = served.running.addresses.http;
    for path in ["/ready", "/healthz", "/metrics"] {
        let (status, _, body) = answer(http, &format!("HEAD {path} HTTP/1.0")).await;
        assert_eq!((status, body.as_str()), (200, ""), "{path}");
        assert_eq!(answer(http, &format!("GET {path} HTTP/1.0")).await.0, 200, "{path}");
    }
    let (status, head, body) = answer(http, "GET /version HTTP/1.0").await;
    assert!(status == 200 && head.contains("content-type: text/plain"), "{head}");
    let parts: Vec<&str> = body.split('-').collect();
    assert_eq!(parts, [env!("CARGO_PKG_VERSION"), "pilothouse", "Clean"], "VERSION-REVISION-STATUS");
    end(served.running).await;
}

#[actix::test]
async fn every_answer_has_its_content_type() {
    let served = Served::start().await;
    let http = served.running.addresses.http;
    for (request, wanted) in [
        ("GET /debug/nothing%3Cscript%3E HTTP/1.0", 404),
        ("GET /nothing HTTP/1.0", 404),
        ("GET /debug/config_dump HTTP/1.0", 400),
        ("GET /debug/adsz?push=true HTTP/1.0", 405),
        ("GET /debug/queuez HTTP/1.0", 200),
        ("GET / HTTP/1.0", 200),
    ] {
        let (status, head, _) = answer(http, request).await;
        assert_eq!(status, wanted, "{request}");
        assert!(
            head.contains("x-content-type-options: nosniff") && head.contains("content-type: "),
            "{request}: {head}"
        );
        assert!(status == 200 || head.contains("content-type: text/plain"), "{request}: {head}");
    }
    end(served.running).await;
}

#[actix::test]
async fn web_sites_neither_read_pages_nor_push() {
    let mut served = Served::start().await;
    let http = served.running.addresses.http;
    for path in ["/", "/debug", "/debug/configz", "/debug/mesh", "/debug/adsz"] {
        let rebound = format!("GET {path} HTTP/1.1\r\nConnection: close\r\nHost: evil.example:8080");
        assert_eq!(answer(http, &rebound).await.0, 403, "{path}");
        let own = format!("GET {path} HTTP/1.1\r\nConnection: close\r\nHost: localhost:8080");
        assert_eq!(answer(http, &own).await.0, 200, "{path}");
    }
    let ready = "GET /ready HTTP/1.1\r\nConnection: close\r\nHost: pilothouse.mesh";
    assert_eq!(answer(http, ready).await.0, 200, "probes come by any name");

    let version = || served.running.state.current().unwrap().version;
    let before = version();
    for refused in [
        "GET /debug/adsz?push=true HTTP/1.0",
        "POST /debug/adsz?push=true HTTP/1.0\r\nOrigin: http://evil.example",
        "POST /debug/adsz?push=true HTTP/1.0\r\nSec-Fetch-Site: cross-site",
        "POST /debug/adsz?push=true HTTP/1.0\r\nHost: evil.example",
        "POST /debug/adsz HTTP/1.0",
    ] {
        assert!(answer(http, refused).await.0 >= 400, "{refused}");
    }
    assert_eq!(version(), before, "nothing was pushed");
    assert_eq!(answer(http, "POST /debug/adsz?push=true HTTP/1.0").await.0, 200);
    let pushed = async {
        while version() == before {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(crate::stage::DEADLINE, pushed).await.unwrap();
    served.add("b");
    served.proxies.until("b.example").await;
    end(served.running).await;
}
