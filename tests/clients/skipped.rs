//! The line of a test that this machine cannot run. `.ci/run` counts the tests with such a line.

use std::{
    io::{self, Write},
    thread,
};

/// Says that the running test, or a part of it, is skipped: past the harness, which shows nothing of a test that passes.
pub fn skipped(reason: &str) {
    let thread = thread::current();
    let _ = writeln!(io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}
