//! Suppression of repeated log lines: the first lines of a kind are written, the others counted and summarised. Pure.
//!
//! A kind is a callsite and a target. However fast clients or files cause lines, the log does not fill the disk.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::line::{Line, boundary};

/// Lines of a kind that may be written in a row.
const BURST: f64 = 100.0;
/// Lines of a kind that may be written per second after that.
const PER_SECOND: f64 = 2.0;
/// The interval of summaries of suppressed lines.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Maximum number of remembered kinds; there are as many as callsites that log, and targets of other crates.
const KINDS: usize = 4096;
/// Maximum length of an example, in bytes.
const EXAMPLE: usize = 300;

#[derive(Debug)]
struct Kind {
    allowance: f64,
    seen: Instant,
    told: Instant,
    left_out: u64,
    example: Option<Line>,
}

/// Recently written lines, by kind.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    kinds: HashMap<u64, Kind>,
}

impl Repeats {
    /// Whether a line of this kind is written now.
    pub(super) fn admits(&mut self, kind: u64, line: &Line, now: Instant) -> bool {
        if self.kinds.len() >= KINDS {
            self.kinds.retain(|_, k| k.left_out > 0 || now.saturating_duration_since(k.seen) < TELL_EVERY);
        }
        let fresh = Kind { allowance: BURST, seen: now, told: now, left_out: 0, example: None };
        let kind = self.kinds.entry(kind).or_insert(fresh);
        let rest = now.saturating_duration_since(kind.seen).as_secs_f64();
        (kind.allowance, kind.seen) = ((kind.allowance + rest * PER_SECOND).min(BURST), now);
        if kind.allowance >= 1.0 {
            kind.allowance -= 1.0;
            return true;
        }
        if kind.left_out == 0 {
            (kind.told, kind.example) = (now, Some(line.clone()));
        }
        kind.left_out += 1;
        false
    }

    /// The summaries of suppressed lines that are due; `all` returns those that are not due as well.
    pub(super) fn due(&mut self, now: Instant, all: bool) -> Vec<Line> {
        let mut lines = Vec::new();
        for kind in self.kinds.values_mut() {
            let since = now.saturating_duration_since(kind.told);
            if kind.left_out == 0 || (!all && since < TELL_EVERY) {
                continue;
            }
            let Some(example) = kind.example.take() else { continue };
            let said = example.message.unwrap_or_default();
            let like = &said[..boundary(&said, EXAMPLE)];
            let line = Line::new(example.level, &example.target, "more lines of this kind were suppressed");
            lines.push(line.with_number("suppressed", kind.left_out).with("like", like));
            (kind.left_out, kind.told) = (0, now);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::telemetry::LogFormat;

    #[test]
    fn a_flood_is_a_burst_a_trickle_and_a_count() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let line = Line::new(Level::WARN, "t", "again");
        let admitted =
            |repeats: &mut Repeats, at: Duration| (0..1000).filter(|_| repeats.admits(1, &line, start + at)).count();
        assert_eq!(admitted(&mut repeats, Duration::ZERO), 100);
        assert!(repeats.due(start + Duration::from_secs(1), false).is_empty());
        assert_eq!(admitted(&mut repeats, Duration::from_secs(5)), 10);
        assert!(repeats.admits(2, &line, start), "another kind has a burst of its own");
        let told = repeats.due(start + TELL_EVERY, false);
        assert_eq!(told.len(), 1);
        let text = told[0].render(LogFormat::Text, false);
        assert!(text.contains("suppressed=1890 like=again"), "{text}");
        assert!(repeats.due(start + TELL_EVERY * 2, true).is_empty());
        assert_eq!(admitted(&mut repeats, TELL_EVERY * 100), 100, "a quiet kind has its burst again");
        assert_eq!(repeats.due(start + TELL_EVERY * 100, true).len(), 1, "the end does not wait");
    }
}
