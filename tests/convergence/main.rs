//! Random edits of every kind and every source: a client that stayed connected holds, byte for byte, the resources that a
//! new client of the same node is given, which equal those that a new process on the same inputs gives.
//!
//! A seed determines all of a run but the moments at which threads run: the settings (quiet time, debounce of endpoints,
//! sources), the edits, the pauses between them, and the moves of clients meanwhile (refuse, ask again, come back). Seeds
//! that failed once stand in `seeds.txt` and are played first.
//!
//! | command | effect |
//! |---|---|
//! | `cargo test --test convergence` | the seeds of the file, and some more: about 3,000 edits |
//! | `CONVERGENCE_EDITS=100000 cargo test --release --test convergence -- --nocapture` | the long form |
//! | `CONVERGENCE_SEED=7 cargo test --test convergence -- --nocapture` | one seed |
//! | `CONVERGENCE_SEED=7 CONVERGENCE_SHRINK=1 …` | and, if it fails, leaves out the edits that do not matter |
//!
//! A seed that is known to differ still stands in the file as `open`, with its differences: it is named in the output and
//! played with `CONVERGENCE_OPEN=1` only.
//!
//! The moments at which threads run decide some failures: a report says whether the two processes read or made something else or
//! only told their clients otherwise, and the last messages of each client that differs.
//!
//! Every second of the other runs restarts the upstream too, the process more often, and pauses up to a second (seeds from
//! 1,000,000 on). The process of these runs ends in good order; one that is killed has a test of its own
//! (`CONVERGENCE_KILLS=1000` for its long form).
//!
//! `CONVERGENCE_SOAK=600 cargo test --release --test convergence soak -- --nocapture` runs one process of the program for ten minutes
//! (a few seconds without it): its memory, descriptors, threads, tasks and queues come back to the figures of the beginning.
//!
//! The API server of these runs is a fake one, which sends all that a watch may send. Another test plays its runs (one;
//! `CONVERGENCE_API_SERVERS` says how many) against the real API machinery, which defaults, prunes and refuses.
//!
//! `CONVERGENCE_FROM` is the first seed of the long form, `CONVERGENCE_PATIENCE` the seconds that convergence may take.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "the tests of the Kubernetes source use the rest")]
#[path = "../kubernetes/admin.rs"]
mod admin;
mod apis;
mod cluster;
mod compare;
mod extensions;
#[allow(dead_code, reason = "the tests of the Kubernetes source use the rest")]
#[path = "../kubernetes/fake.rs"]
mod fake;
mod kills;
mod kubernetes;
mod nodes;
mod objects;
mod patches;
#[path = "../clients/ports.rs"]
mod ports;
mod proxy;
mod random;
mod refers;
#[allow(dead_code, reason = "the tests of the Kubernetes source use the rest")]
#[path = "../kubernetes/server.rs"]
mod server;
mod shrink;
#[path = "../clients/skipped.rs"]
mod skipped;
mod soak;
mod trace;
mod traffic;
mod transcript;
mod world;

use std::{
    collections::VecDeque,
    io::Write,
    sync::{Arc, Mutex},
    time::Instant,
};

use trace::{BURSTS, EDITS, ROUGH, Trace};
use world::{Failure, Tally};

/// Seeds that failed once.
const SEEDS: &str = include_str!("seeds.txt");
/// Edits of the short form, beside those of the seeds that failed once.
const SHORT: usize = 2400;
/// Kills of the short form.
const KILLS: usize = 12;
/// Runs at the same time.
const AT_ONCE: usize = 4;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// The number of a line of the file; a line without one is a remark.
fn numbered(text: &str) -> Option<u64> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.parse().unwrap_or_else(|_| panic!("seeds.txt: {text:?} is not a number")))
}

/// The seeds to play.
fn seeds() -> Vec<u64> {
    if let Some(seed) = number("CONVERGENCE_SEED") {
        return vec![seed];
    }
    let open = number("CONVERGENCE_OPEN").is_some();
    let mut all = Vec::new();
    for line in SEEDS.lines() {
        let (seed, difference) = line.split_once('#').unwrap_or((line, ""));
        match seed.trim().strip_prefix("open ") {
            Some(seed) if !open => println!("open, not played: seed {}:{difference}", seed.trim()),
            Some(seed) => all.extend(numbered(seed)),
            None => all.extend(numbered(seed)),
        }
    }
    let edits = number("CONVERGENCE_EDITS").map_or(SHORT, |n| n as usize);
    let from = number("CONVERGENCE_FROM").unwrap_or(1);
    let known = all.clone();
    let rough = |seed: u64| if seed.is_multiple_of(2) { ROUGH + seed } else { seed };
    let others = (from..from + edits.div_ceil(BURSTS * EDITS) as u64).map(rough);
    all.extend(others.filter(|seed| !known.contains(seed)));
    all
}

/// Plays a seed; the text of its failure, if it fails.
async fn play(seed: u64, tally: &mut Tally) -> Option<String> {
    let trace = Trace::of(seed, 2 * nodes::all().len());
    let began = Instant::now();
    let outcome = world::play(&trace, tally).await;
    println!(
        "seed {seed}: {} in {:.1?} ({:?})",
        if outcome.is_ok() { "converges" } else { "FAILS" },
        began.elapsed(),
        trace.setup
    );
    let failure = outcome.err()?;
    let text = tell(&trace, &failure);
    if number("CONVERGENCE_SHRINK").is_none() {
        return Some(text);
    }
    println!("{text}");
    let (smallest, failure) = shrink::shrink(&trace, failure).await;
    Some(tell(&smallest, &failure) + &shrink::tell(&smallest))
}

/// A failure, for a person.
fn tell(trace: &Trace, failure: &Failure) -> String {
    let mut text = format!("CONVERGENCE_SEED={} fails after burst {} ({:?})\n", trace.seed, failure.burst, trace.setup);
    failure.notes.iter().take(200).for_each(|note| text += &format!("  {note}\n"));
    text += &format!("  {} differences:\n", failure.differences.len());
    failure.differences.iter().take(40).for_each(|difference| text += &format!("  {}", difference.text()));
    text += "  the edits of the burst:\n";
    for timed in trace.bursts.get(failure.burst).into_iter().flatten() {
        if matches!(timed.step, trace::Step::Nothing) {
            continue;
        }
        text += &format!("    {:?} {}\n", timed.pause, timed.text);
    }
    text
}

#[test]
fn clients_that_stay_hold_the_resources_of_new_ones_of_a_new_process() {
    let seeds = seeds();
    let (waiting, done) =
        (Arc::new(Mutex::new(VecDeque::from(seeds))), Arc::new(Mutex::new((Tally::default(), Vec::new()))));
    let began = Instant::now();
    let threads: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let (waiting, done) = (waiting.clone(), done.clone());
            std::thread::spawn(move || {
                let all = async {
                    loop {
                        let Some(seed) = waiting.lock().unwrap().pop_front() else { break };
                        let mut tally = Tally::default();
                        let failure = play(seed, &mut tally).await;
                        let mut done = done.lock().unwrap();
                        done.0.add(&tally);
                        done.1.extend(failure);
                    }
                };
                pilothouse::runtime::block_on(all).unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let done = done.lock().unwrap();
    let Tally { edits, comparisons, resources, excused, .. } = done.0;
    println!("{edits} edits, {comparisons} comparisons of {resources} resources in {:.1?}", began.elapsed());
    println!(
        "excused: {} resources that the client refused, {} that are gone and that state of the world cannot take away",
        excused.refused, excused.never_taken
    );
    let _ = writeln!(
        std::io::stderr(),
        "convergence: {edits} edits, {comparisons} comparisons of {resources} resources; {} runs fail",
        done.1.len(),
    );
    assert!(done.1.is_empty(), "{} runs fail\n{}", done.1.len(), done.1.join("\n"));
}

#[test]
fn clients_that_stay_follow_a_real_api_server() {
    let from = number("CONVERGENCE_FROM").unwrap_or(1);
    let runs = number("CONVERGENCE_API_SERVERS").unwrap_or(1);
    let mut tally = Tally::default();
    let all = async {
        for seed in from..from + runs {
            let Some(cluster) = cluster::Cluster::real().await else { return };
            let trace = Trace::of_cluster(seed, 2 * nodes::all().len());
            if let Err(failure) = world::play_with(Some(cluster), &trace, &mut tally).await {
                panic!("{}", tell(&trace, &failure));
            }
        }
        assert!(tally.taken > tally.refused * 4, "a real API server refuses the objects of this test: {tally:?}");
    };
    pilothouse::runtime::block_on(all).unwrap();
    println!("{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_leaves_nothing_behind() {
    soak::run(std::time::Duration::from_secs(number("CONVERGENCE_SOAK").unwrap_or(soak::SHORT))).await;
}

#[test]
fn a_process_that_is_killed_while_edits_go_on_loses_nothing() {
    let most = number("CONVERGENCE_KILLS").map_or(KILLS, |n| n as usize);
    let (mut seed, mut kills, mut tally, began) =
        (number("CONVERGENCE_FROM").unwrap_or(1), 0, Tally::default(), Instant::now());
    let mut failures = Vec::new();
    while kills < most {
        let played = pilothouse::runtime::block_on(kills::play(seed, most - kills, &mut tally)).unwrap();
        match played {
            Ok(killed) => kills += killed,
            Err(failure) => {
                failures.push(tell(&Trace::of_files(seed, 2 * nodes::all().len()), &failure));
                println!("killed, {}", failures.last().unwrap());
                // A failing run counts as one kill, so that the test ends.
                kills += 1;
            }
        }
        seed += 1;
    }
    let Tally { edits, comparisons, resources, .. } = tally;
    let text = format!(
        "{kills} kills, {edits} edits, {comparisons} comparisons of {resources} resources in {:.1?}",
        began.elapsed()
    );
    println!("{text}");
    assert!(failures.is_empty(), "{text}; {} runs fail\n{}", failures.len(), failures.join("\n"));
}
