//! The log of the feeds of a cluster: an outage meets all of them, and is one line.
//!
//! Pure: the caller brings the time.

use std::collections::{BTreeMap, BTreeSet};

use super::{FeedReport, FeedState};

/// Resources that a line names.
const MOST_NAMED: usize = 50;

/// The state changes of feeds that are to be logged.
#[derive(Debug, Default)]
pub(super) struct FeedLog {
    /// Resources that cannot be read, by state; with the error of the first.
    troubled: BTreeMap<FeedState, (String, BTreeSet<String>)>,
    /// Resources that are read again.
    well: BTreeSet<String>,
    /// Resources that were logged as unreadable, with their state of then.
    known: BTreeMap<String, FeedState>,
}

/// A line of the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Their state; `Watching` when they are read again.
    pub(super) state: FeedState,
    /// The error; empty when they are read again.
    pub(super) error: String,
    /// The number of resources.
    pub(super) count: usize,
    /// Their names.
    pub(super) resources: String,
}

impl FeedLog {
    /// Takes the state of a feed. True when there is something to log.
    pub(super) fn note(&mut self, report: &FeedReport) -> bool {
        let name = match report.namespace.as_str() {
            "" => report.resource.clone(),
            namespace => format!("{namespace}/{}", report.resource),
        };
        for (_, names) in self.troubled.values_mut() {
            names.remove(&name);
        }
        self.troubled.retain(|_, (_, names)| !names.is_empty());
        self.well.remove(&name);
        let is_well = matches!(report.state, FeedState::Starting | FeedState::Watching) || report.last_error.is_empty();
        match self.known.get(&name) {
            Some(_) if is_well => drop(self.well.insert(name)),
            known if !is_well && known != Some(&report.state) => {
                let (_, names) =
                    self.troubled.entry(report.state).or_insert_with(|| (report.last_error.clone(), BTreeSet::new()));
                names.insert(name);
            }
            _ => {}
        }
        !self.troubled.is_empty() || !self.well.is_empty()
    }

    /// The lines of the noted changes.
    pub(super) fn take(&mut self) -> Vec<Line> {
        let mut lines = Vec::new();
        for (state, (error, names)) in std::mem::take(&mut self.troubled) {
            lines.push(line(state, error, &names));
            self.known.extend(names.into_iter().map(|name| (name, state)));
        }
        let well = std::mem::take(&mut self.well);
        self.known.retain(|name, _| !well.contains(name));
        if !well.is_empty() {
            lines.push(line(FeedState::Watching, String::new(), &well));
        }
        lines
    }
}

fn line(state: FeedState, error: String, names: &BTreeSet<String>) -> Line {
    let named: Vec<&str> = names.iter().take(MOST_NAMED).map(String::as_str).collect();
    Line { state, error, count: names.len(), resources: named.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(resource: &str, state: FeedState, error: &str) -> FeedReport {
        FeedReport { resource: resource.to_string(), state, last_error: error.to_string(), ..FeedReport::default() }
    }

    #[test]
    fn feeds_that_fail_together_are_one_line_and_so_is_their_return() {
        let mut log = FeedLog::default();
        for resource in ["pods", "services", "nodes"] {
            assert!(log.note(&report(resource, FeedState::Retrying, "refused")));
        }
        // A feed that is back before it was logged is not logged.
        log.note(&report("nodes", FeedState::Watching, ""));
        let lines = log.take();
        assert_eq!(lines, [line(FeedState::Retrying, "refused".into(), &["pods", "services"].map(Into::into).into())]);
        assert!(!log.note(&report("pods", FeedState::Retrying, "another reason")) && log.take().is_empty());
        log.note(&report("services", FeedState::Forbidden, "403"));
        log.note(&report("pods", FeedState::Watching, ""));
        let states: Vec<_> = log.take().into_iter().map(|l| (l.state, l.resources)).collect();
        assert_eq!(states, [(FeedState::Forbidden, "services".to_string()), (FeedState::Watching, "pods".to_string())]);
        assert!(!log.note(&report("pods", FeedState::Watching, "")));
    }
}
