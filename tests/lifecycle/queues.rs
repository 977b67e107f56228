//! The page of the queues while an actor stalls.

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;

use crate::{
    confirm::{aside, ask},
    stage::{DEADLINE, Served, end},
};

/// The row of an actor in `/debug/queuez`: the messages that wait and those that were handled. Blocks.
fn queue(http: SocketAddr, actor: &str) -> (u64, u64) {
    let answer = ask(http, "GET /debug/queuez HTTP/1.0");
    let rows: Vec<Value> = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let row = rows.iter().find(|row| row["actor"] == actor).unwrap_or_else(|| panic!("{actor}: {rows:?}"));
    (row["waiting"].as_u64().unwrap(), row["handled"].as_u64().unwrap())
}

/// The actor of the xDS server runs on the thread of the test: it stalls for as long as the test does not wait.
#[actix::test]
async fn the_page_of_the_queues_shows_the_messages_of_an_actor_that_stalls() {
    let served = Served::start().await;
    let http = served.running.addresses.http;
    let handled = tokio::time::timeout(DEADLINE, async {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if let (0, handled) = queue(http, "xds-server") {
                return handled;
            }
        }
    });
    let handled = handled.await.expect("the actor has work without end");
    let pushed = ask(http, "POST /debug/adsz?push=true HTTP/1.0");
    assert!(pushed.starts_with("HTTP/1.0 200"), "{pushed}");
    assert_eq!(queue(http, "xds-server"), (1, handled), "the request to push waits");
    tokio::time::timeout(DEADLINE, async {
        while !matches!(aside(move || queue(http, "xds-server")).await, (0, now) if now > handled) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the actor did not go on");
    end(served.running).await;
}
