//! Findings to log lines and metrics: new ones are logged, in a bounded number of lines, the rest as one number.

use std::{collections::BTreeSet, fmt::Display, sync::Arc};

use super::{Findings, MOST_FINDINGS, SourceId};
use crate::telemetry::{count_rejected, count_rejected_others};

/// Most findings of one kind that are logged one by one at once.
const MOST_LINES: usize = 20;

/// Logs and counts the findings of a source.
#[derive(Debug)]
pub struct FindingsLog {
    source: SourceId,
    last: Arc<Findings>,
}

impl FindingsLog {
    /// A log without findings.
    #[must_use]
    pub fn new(source: SourceId) -> Self {
        Self { source, last: Arc::default() }
    }

    /// Logs and counts the findings that were not among those of the last call.
    pub fn log(&mut self, now: Findings) {
        let before = std::mem::replace(&mut self.last, Arc::new(now));
        let now = self.last.clone();
        let refused = news(&before.refused, &now.refused);
        for document in &refused {
            count_rejected(&document.kind, &document.name);
        }
        let more = |count: fn(&Findings) -> usize| count(&now).saturating_sub(count(&before));
        let more_refused = more(|f| f.more.refused);
        count_rejected_others(more_refused as u64);
        self.write("refused documents", &refused, more_refused);
        self.write("warnings", &news(&before.warned, &now.warned), more(|f| f.more.warned));
        let skipped = news(&before.skipped, &now.skipped);
        self.write("documents that are no Kubernetes objects", &skipped, more(|f| f.more.skipped));
    }

    /// The findings of the last call.
    #[must_use]
    pub fn last(&self) -> &Arc<Findings> {
        &self.last
    }

    fn write(&self, of: &str, news: &[&impl Display], beyond: usize) {
        for finding in news.iter().take(MOST_LINES) {
            tracing::warn!(source = &*self.source, "{finding}");
        }
        let more = news.len().saturating_sub(MOST_LINES) + beyond;
        if more > 0 {
            tracing::warn!(
                source = &*self.source,
                more,
                "more {of}; /debug/sourcez has {MOST_FINDINGS} of them at most"
            );
        }
    }
}

fn news<'n, T: Ord>(before: &[T], now: &'n [T]) -> Vec<&'n T> {
    let before: BTreeSet<&T> = before.iter().collect();
    now.iter().filter(|finding| !before.contains(finding)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::Refused;

    fn refused(name: &str) -> Refused {
        Refused {
            file: "a.yaml".to_string(),
            line: 1,
            column: 0,
            kind: "ServiceEntry".to_string(),
            namespace: String::new(),
            name: name.to_string(),
            reason: "no".to_string(),
        }
    }

    #[test]
    fn findings_are_logged_once() {
        let many: Vec<Refused> = (0..60_000).map(|n| refused(&n.to_string())).collect();
        assert_eq!(news(&many[..59_000], &many).len(), 1000);
        let mut log = FindingsLog::new("file:x".into());
        log.log(Findings { refused: many, ..Findings::default() });
        assert_eq!(log.last().refused.len(), 60_000);
        log.log(Findings::default());
        assert!(log.last().refused.is_empty());
    }
}
