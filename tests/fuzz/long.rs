//! One target under libFuzzer, which looks for inputs that reach new code. The target is named by `PILOTHOUSE_FUZZ`.
//! `README.md` has the command.

#![no_main]
#![allow(dead_code, reason = "the short run uses more of it")]

mod mutate;
mod targets;

use std::sync::LazyLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use mutate::Mutator;
use targets::Target;

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("PILOTHOUSE_FUZZ").unwrap_or_default();
    targets::target(&name).unwrap_or_else(|| panic!("PILOTHOUSE_FUZZ={name:?} is no target"))
});

/// One change in so many is made with the words of the target.
const WORDS: u32 = 3;

fuzz_target!(|data: &[u8]| (TARGET.run)(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if TARGET.words.is_empty() || !seed.is_multiple_of(WORDS) {
        return fuzzer_mutate(data, size, max_size);
    }
    let changed = Mutator::new(seed.into(), TARGET.words).next(&[&data[..size]], max_size);
    data[..changed.len()].copy_from_slice(&changed);
    changed.len()
});
