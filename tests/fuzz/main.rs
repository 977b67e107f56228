//! The short run of every fuzz target: its corpus, then some hundred changes of it from a fixed seed. `README.md` beside this
//! file has the long run, which looks for inputs that reach new code.
//!
//! For work: `PILOTHOUSE_FUZZ=cel` runs one target, `PILOTHOUSE_FUZZ_RUNS=100000` more of it, `PILOTHOUSE_FUZZ_SEED=7` others.
//! An input that fails is written to `target/fuzz-findings`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../clients/envoy.rs"]
#[allow(dead_code, reason = "shared with the tests of real clients")]
mod envoy;
#[path = "../clients/http.rs"]
#[allow(dead_code, reason = "shared with the tests of real clients")]
mod http;
mod judge;
#[path = "../conformance/loader.rs"]
mod loader;
mod mutate;
#[path = "../clients/network.rs"]
#[allow(dead_code, reason = "shared with the tests of real clients")]
mod network;
#[path = "../clients/process.rs"]
#[allow(dead_code, reason = "shared with the tests of real clients")]
mod process;
#[path = "../clients/skipped.rs"]
mod skipped;
mod targets;
#[path = "../clients/tools.rs"]
#[allow(dead_code, reason = "shared with the tests of real clients")]
mod tools;

use std::{
    collections::BTreeSet,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use mutate::Mutator;
use targets::{TARGETS, Target};

/// Changed inputs for each light target.
const RUNS: usize = 400;
/// Bytes of an input.
const LONGEST: usize = 4096;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The corpus of a target, by name.
fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = root().join("tests/fuzz/corpus").join(target.name);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} has no corpus", target.name);
    files
}

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// Runs one target; gives the number of inputs, or the finding.
fn run(target: &Target, runs: usize, seed: u64) -> Result<usize, String> {
    let corpus = corpus(target);
    let attempt = |name: &str, input: &[u8]| {
        catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|_| {
            let folder = root().join("target/fuzz-findings").join(target.name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(name), input).unwrap();
            format!("{}: {}", target.name, folder.join(name).display())
        })
    };
    for (name, input) in &corpus {
        attempt(name, input)?;
    }
    let inputs: Vec<&[u8]> = corpus.iter().map(|(_, input)| input.as_slice()).collect();
    let mut mutator = Mutator::new(seed, target.words);
    let runs = (runs / target.weight).max(1);
    for at in 0..runs {
        attempt(&format!("changed-{seed}-{at}"), &mutator.next(&inputs, LONGEST))?;
    }
    Ok(corpus.len() + runs)
}

#[test]
fn no_input_breaks_a_reader() {
    let only = std::env::var("PILOTHOUSE_FUZZ").unwrap_or_default();
    let (runs, seed) = (number("PILOTHOUSE_FUZZ_RUNS", RUNS), number("PILOTHOUSE_FUZZ_SEED", 1) as u64);
    let chosen: Vec<&Target> = TARGETS.iter().filter(|t| only.is_empty() || t.name == only).collect();
    assert!(!chosen.is_empty(), "{only} is no target");
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        while let Some(target) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            results.push((target.name, run(target, runs, seed)));
        }
        results
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    results.sort_by_key(|(name, _)| *name);
    for (name, result) in &results {
        println!("{name:24} {}", result.as_ref().map_or_else(Clone::clone, |inputs| format!("{inputs} inputs")));
    }
    let findings: Vec<&String> = results.iter().filter_map(|(_, result)| result.as_ref().err()).collect();
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
fn targets_and_corpora_go_together() {
    let names: BTreeSet<String> = TARGETS.iter().map(|t| t.name.to_string()).collect();
    assert_eq!(names.len(), TARGETS.len(), "two targets of one name");
    let folders = fs::read_dir(root().join("tests/fuzz/corpus")).unwrap();
    let folders: BTreeSet<String> = folders.map(|f| f.unwrap().file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(folders, names);
    let size: usize = TARGETS.iter().flat_map(corpus).map(|(_, input)| input.len()).sum();
    assert!(size < 1 << 20, "the corpora have {size} bytes");
}

/// The objects that others are made of are taken, so that changed ones are worth something.
#[test]
fn known_objects_are_taken() {
    let (taken, all) = targets::known_objects();
    assert!(taken * 10 >= all * 9, "{taken} of {all}");
    assert!(targets::target("no such target").is_none());
}
