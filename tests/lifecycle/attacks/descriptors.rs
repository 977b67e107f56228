//! File descriptors: too few of them, and those that the system would give if it were asked.

use std::{net::TcpStream, time::Duration};

use super::{Attacked, ask};
use crate::binary::Binary;

/// RUSTSEC-2024-0376: a connection that cannot be accepted ended the loop that accepts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rustsec_2024_0376_few_descriptors_and_many_silent_sockets() {
    let mut attacked = Attacked::start(|dir| Binary::serve_within("ulimit -n 256", dir, &[])).await;
    let silent: Vec<TcpStream> = (0..300).filter_map(|_| TcpStream::connect(attacked.address).ok()).collect();
    assert!(silent.len() > 200, "{} could connect", silent.len());
    for _ in 0..3 {
        attacked.is_well().await;
    }
    assert_eq!(ask(attacked.http, "GET /ready").await.status, 200, "the pages have descriptors left");
    // Nothing goes on now: what the process uses, it uses for the sockets alone.
    let (used, interval) = (attacked.server.cpu_time(), Duration::from_secs(2));
    tokio::time::sleep(interval).await;
    let used = attacked.server.cpu_time() - used;
    assert!(used < interval / 2, "{used:?} of {interval:?} at rest: it spins");
    drop(silent);
    attacked.is_well().await;
    attacked.in_time("few descriptors");
    let lines = attacked.server.lines_with("cannot be accepted") + attacked.server.lines_with("no room for");
    assert!(lines <= 12, "{lines} lines");
    assert_eq!(attacked.server.lines_with("panic"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_takes_as_many_descriptors_as_it_may() {
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let limits = "ulimit -S -n 256 && ulimit -H -n 4096";
    let mut attacked = Attacked::start(|dir| Binary::serve_within(limits, dir, &[])).await;
    assert_eq!(attacked.server.descriptors(), (4096, 4096), "the soft limit becomes the hard one");
    let address = attacked.address;
    let connecting = async move {
        let mut held = Vec::new();
        for _ in 0..500 {
            held.push(super::stream(address).await);
        }
        held
    };
    attacked.under("500 connections where 256 descriptors are the soft limit", connecting).await;
    assert_eq!(attacked.server.lines_with("no room for"), 0);
}
