//! Reduces a failing run to the steps that matter.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    trace::{Step, Timed, Trace},
    world::{self, Failure, Tally},
};

/// A part of a run that may be left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Burst(usize),
    /// An object, wherever it stands.
    Object(String),
    Step(usize, usize),
}

fn steps(trace: &Trace) -> impl Iterator<Item = &Timed> {
    trace.first.iter().chain(trace.bursts.iter().flatten())
}

fn objects(trace: &Trace) -> Vec<Part> {
    let mut keys = BTreeSet::new();
    for timed in steps(trace) {
        match &timed.step {
            Step::File { objects, .. } => keys.extend(objects.iter().map(|o| o.key())),
            Step::Kube { key, .. } => drop(keys.insert(key.clone())),
            _ => {}
        }
    }
    keys.into_iter().map(Part::Object).collect()
}

fn without(trace: &Trace, parts: &[Part]) -> Trace {
    let mut fewer = trace.clone();
    for part in parts {
        match part {
            Part::Burst(at) => fewer.bursts[*at].iter_mut().for_each(blank),
            Part::Step(burst, at) => blank(&mut fewer.bursts[*burst][*at]),
            Part::Object(gone) => {
                for timed in fewer.first.iter_mut().chain(fewer.bursts.iter_mut().flatten()) {
                    match &mut timed.step {
                        Step::File { objects, .. } => objects.retain(|o| o.key() != *gone),
                        Step::Kube { key, .. } if *key == *gone => blank(timed),
                        _ => {}
                    }
                }
            }
        }
    }
    fewer
}

/// The places of the other steps stay.
fn blank(timed: &mut Timed) {
    (timed.step, timed.pause) = (Step::Nothing, Duration::ZERO);
}

/// The smallest run that was found to differ in the same type of resource, and how it fails.
pub async fn shrink(trace: &Trace, failure: Failure) -> (Trace, Failure) {
    let kinds: BTreeSet<_> = failure.differences.iter().map(|d| d.kind).collect();
    let (mut best, mut how) = (trace.clone(), failure);
    best.bursts.truncate(how.burst + 1);
    for pass in 0..3 {
        let mut parts: Vec<Part> = match pass {
            0 => (0..best.bursts.len().saturating_sub(1)).map(Part::Burst).collect(),
            1 => objects(&best),
            _ => best
                .bursts
                .iter()
                .enumerate()
                .flat_map(|(b, all)| (0..all.len()).map(move |at| Part::Step(b, at)))
                .collect(),
        };
        let mut size = parts.len().div_ceil(2).max(1);
        while !parts.is_empty() {
            let mut at = 0;
            while at < parts.len() {
                let chunk = &parts[at..(at + size).min(parts.len())];
                let fewer = without(&best, chunk);
                match world::play(&fewer, &mut Tally::default()).await {
                    Err(found) if kinds.is_empty() || found.differences.iter().any(|d| kinds.contains(&d.kind)) => {
                        (best, how) = (fewer, found);
                        parts.drain(at..(at + size).min(parts.len()));
                    }
                    _ => at += size,
                }
                println!("shrinking: {} parts left, in pieces of {size}", parts.len());
            }
            if size == 1 {
                break;
            }
            size = size.div_ceil(2);
        }
    }
    best.bursts.truncate(how.burst + 1);
    (best, how)
}

/// All steps with all that they write.
pub fn tell(trace: &Trace) -> String {
    let mut text = String::new();
    for (at, burst) in std::iter::once(&trace.first).chain(&trace.bursts).enumerate() {
        text += &format!("  --- {}\n", if at == 0 { "first".to_string() } else { format!("burst {}", at - 1) });
        for timed in burst.iter().filter(|timed| !matches!(timed.step, Step::Nothing)) {
            text += &format!("  {:?} {}\n", timed.pause, timed.text);
            match &timed.step {
                Step::File { objects, .. } => objects.iter().for_each(|o| text += &format!("      {}\n", o.value)),
                Step::Kube { object: Some(object), .. } => text += &format!("      {}\n", object.value),
                _ => {}
            }
        }
    }
    text
}
