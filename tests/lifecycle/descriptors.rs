//! A server that ends inside a process leaves no descriptor open: no socket, no watch, no event loop.

use std::{
    collections::BTreeMap,
    fs,
    process::Command,
    time::{Duration, Instant},
};

use crate::stage::{DEADLINE, end, entry, start, until};

/// Set for the process of its own in which descriptors are counted: other tests open some at any time.
const ALONE: &str = "PILOTHOUSE_TEST_ALONE";
/// Servers that are started and ended before the count begins: the runtime opens its own descriptors with the first.
const FIRST: usize = 2;
const ROUNDS: usize = 4;

/// Open descriptors by what they are.
fn open() -> BTreeMap<String, usize> {
    let mut open = BTreeMap::new();
    for link in fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok()) {
        // The number of a socket or a pipe tells nothing; the name of an event loop does.
        let kind = link.display().to_string().replace(|c: char| c.is_ascii_digit(), "");
        *open.entry(kind).or_default() += 1;
    }
    open
}

/// The kinds of which more are open than there were, and how many are open.
fn more(before: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    open().into_iter().filter(|(kind, count)| before.get(kind).is_none_or(|b| count > b)).collect()
}

/// The threads of this process, for the message of a failure.
fn threads() -> BTreeMap<String, usize> {
    let mut threads = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let name = fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default();
        *threads.entry(name.trim().to_string()).or_default() += 1;
    }
    threads
}

async fn serve_and_end() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), entry("a", "a.example")).unwrap();
    let running = start(&[dir.path()], None).await;
    until(&running, |c| !c.inputs.registry.services.is_empty()).await;
    end(running).await;
}

#[actix::test]
#[cfg_attr(not(target_os = "linux"), ignore = "descriptors are counted in /proc")]
async fn a_server_that_ends_leaves_no_descriptor_open() {
    if std::env::var_os(ALONE).is_none() {
        let name = "descriptors::a_server_that_ends_leaves_no_descriptor_open";
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let output = alone.args([name, "--exact", "--nocapture"]).env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    for _ in 0..FIRST {
        serve_and_end().await;
    }
    let before = open();
    for _ in 0..ROUNDS {
        serve_and_end().await;
    }
    // Threads end a moment after their server; on a busy machine those of the first servers are among `before`.
    let deadline = Instant::now() + DEADLINE / 8;
    while !more(&before).is_empty() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (more, threads) = (more(&before), threads());
    assert!(more.is_empty(), "{more:?} after {ROUNDS} more servers, and {before:?} before; threads: {threads:?}");
}
