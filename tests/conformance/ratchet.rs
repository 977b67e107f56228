//! Counting, and the list of cases that may not stop passing.

use std::{collections::BTreeSet, fs, path::PathBuf};

use crate::{
    data::{self, Verdict},
    differences::Differences,
};

/// The results of one family.
pub struct Report {
    family: String,
    passed: BTreeSet<String>,
    failed: Vec<(String, String)>,
    not_yet: Vec<(String, String)>,
    differences: Differences,
    differ: usize,
    incomplete: usize,
}

impl Report {
    pub fn new(family: &str) -> Self {
        Self {
            family: family.to_string(),
            passed: BTreeSet::new(),
            failed: Vec::new(),
            not_yet: Vec::new(),
            differences: Differences::read(),
            differ: 0,
            incomplete: 0,
        }
    }

    pub fn add(&mut self, id: String, verdict: Verdict) {
        match verdict {
            Verdict::Failed(_) if self.differences.differs.contains_key(&id) => self.differ += 1,
            Verdict::Failed(_) if self.differences.incomplete.contains_key(&id) => self.incomplete += 1,
            Verdict::Passed => {
                self.passed.insert(id);
            }
            Verdict::Failed(lines) => self.failed.push((id, lines.first().cloned().unwrap_or_default())),
            Verdict::NotYet(why) => self.not_yet.push((id, why)),
        }
    }

    /// Prints the counts and compares with the list. With `partial` only the counts are printed.
    pub fn finish(self, partial: bool) {
        println!(
            "conformance {}: {} passed, {} failed, {} not yet, {} differ on purpose, {} of an incomplete recording",
            self.family,
            self.passed.len(),
            self.failed.len(),
            self.not_yet.len(),
            self.differ,
            self.incomplete
        );
        let listed = self.differences.differs.keys().chain(self.differences.incomplete.keys());
        let stale: Vec<&String> = listed.filter(|id| self.passed.contains(*id)).collect();
        assert!(stale.is_empty(), "listed in differences.yaml, but they pass: {stale:?}");
        if partial {
            return;
        }
        let ours = |id: &String| id.starts_with(&format!("{}/", self.family));
        let path = list();
        let listed = passing();
        if std::env::var("PILOTHOUSE_RATCHET").as_deref() == Ok("update") {
            let _guard = fs::File::open(env!("CARGO_MANIFEST_DIR")).and_then(|f| f.lock().map(|()| f)).unwrap();
            let kept = passing().into_iter().filter(|id| !ours(id));
            let all: BTreeSet<String> = kept.chain(self.passed).collect();
            fs::write(path, all.into_iter().map(|l| l + "\n").collect::<String>()).unwrap();
            return;
        }
        let own_only = data::root().is_none();
        let known: BTreeSet<&String> = self.failed.iter().chain(&self.not_yet).map(|(id, _)| id).collect();
        let lost: Vec<&String> = listed
            .iter()
            .filter(|id| ours(id) && !self.passed.contains(*id) && (!own_only || known.contains(id)))
            .collect();
        for (id, line) in &self.failed {
            if lost.contains(&id) {
                println!("{id}: {line}");
            }
        }
        assert!(lost.is_empty(), "{} cases passed before and do not now: {lost:?}", lost.len());
    }
}

/// The cases that may not stop passing.
pub fn passing() -> BTreeSet<String> {
    fs::read_to_string(list()).unwrap_or_default().lines().map(String::from).collect()
}

fn list() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/passing.txt")
}
