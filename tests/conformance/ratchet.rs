//! Counting, the list of cases that may not stop passing, and the differences that stand by name.
//!
//! Every case is in exactly one place: it passes and is listed in `passing.txt`, or `differences.yaml` names it with a reason. The
//! differences of a case that is named there are pinned line by line in `pinned.txt`: expected and actual values alike. Of a long
//! value the beginning and a hash stand there. Of live requests the lines hold the request and the answer, as far as they are the
//! same in every run; where the moment of a retry decides which demand is not met, a run has one or more of the lines.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use crate::{
    data::{self, Verdict},
    differences::Differences,
};

/// Cases of live requests in which the moment of a retry decides which demands are not met.
const BY_MOMENT: [&str; 2] = [
    "gateway-api-upstream-requests/HTTPRouteRetryConnectionError",
    "gateway-api-upstream-requests/HTTPRouteRetryWithTimeouts",
];

/// The results of one family.
pub struct Report {
    family: String,
    passed: BTreeSet<String>,
    failed: BTreeMap<String, Vec<String>>,
    not_yet: BTreeMap<String, String>,
    differences: Differences,
}

impl Report {
    pub fn new(family: &str) -> Self {
        Self {
            family: family.to_string(),
            passed: BTreeSet::new(),
            failed: BTreeMap::new(),
            not_yet: BTreeMap::new(),
            differences: Differences::read(),
        }
    }

    pub fn add(&mut self, id: String, verdict: Verdict) {
        match verdict {
            Verdict::Passed => {
                self.passed.insert(id);
            }
            Verdict::Failed(lines) => {
                self.failed.insert(id, lines);
            }
            Verdict::NotYet(why) => {
                self.not_yet.insert(id, why);
            }
        }
    }

    /// Prints the counts and compares with the lists. With `partial` only the counts are printed.
    pub fn finish(self, partial: bool) {
        let excused = |list: &BTreeMap<String, String>| self.failed.keys().filter(|id| list.contains_key(*id)).count();
        let (differ, incomplete) = (excused(&self.differences.differs), excused(&self.differences.incomplete));
        let not_built = excused(&self.differences.not_built);
        data::say(&format!(
            "conformance {}: {} passed, {} failed, {} not yet, {not_built} not built, {differ} differ on purpose, {incomplete} of an incomplete recording{}",
            self.family,
            self.passed.len(),
            self.failed.len() - differ - incomplete - not_built,
            self.not_yet.len(),
            if data::root().is_none() && self.family != "xds" {
                " (without the recordings: the repository's own cases only)"
            } else {
                ""
            },
        ));
        if partial {
            return;
        }
        let total = self.passed.len() + self.failed.len() + self.not_yet.len();
        assert!(total > 0 || data::root().is_none(), "the recordings are there, and {} has no case", self.family);
        if total == 0 {
            data::say(&format!(
                "conformance {}: NOTHING WAS RUN, the recordings are not beside the repository",
                self.family
            ));
        }
        let update = std::env::var("PILOTHOUSE_RATCHET").as_deref() == Ok("update");
        if update {
            self.update();
        }
        let mut wrong = self.lost();
        wrong.extend(self.unnamed());
        wrong.extend(self.stale());
        wrong.extend(self.moved_pins());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Cases that passed before and do not now.
    fn lost(&self) -> Vec<String> {
        let own_only = data::root().is_none() && self.family != "xds";
        let listed = lines(&passing_list());
        let ours = listed.iter().filter(|id| self.is_ours(id) && !self.passed.contains(*id));
        ours.filter_map(|id| match (self.failed.get(id), self.not_yet.get(id)) {
            (Some(lines), _) => Some(format!("{id} passed before: {}", lines.first().map_or("", String::as_str))),
            (_, Some(why)) => Some(format!("{id} passed before, and is not run now: {why}")),
            _ if own_only => None,
            _ => Some(format!("{id} passed before, and is gone")),
        })
        .collect()
    }

    /// Cases that fail without a name and a reason, and cases that pass without being listed.
    fn unnamed(&self) -> Vec<String> {
        let listed = lines(&passing_list());
        let failed = self.failed.iter().filter(|(id, _)| !self.differences.names(id) && !listed.contains(*id));
        let failed = failed.map(|(id, lines)| {
            format!("{id} fails and stands in no list: {}", lines.first().map_or("", String::as_str))
        });
        let passed = self.passed.difference(&listed);
        failed
            .chain(passed.map(|id| format!("{id} passes and is not listed: PILOTHOUSE_RATCHET=update adds it")))
            .collect()
    }

    /// Names in `differences.yaml` whose cases pass.
    fn stale(&self) -> Vec<String> {
        let passing = self.passed.iter().filter(|id| self.differences.names(id));
        passing.map(|id| format!("{id} is listed in differences.yaml, and passes")).collect()
    }

    /// Named differences that are other ones than those that were looked at.
    fn moved_pins(&self) -> Vec<String> {
        let pinned = lines(&pinned_list());
        let now: BTreeSet<String> = self.pins().collect();
        let run = |line: &String| {
            line.split('\t').next().is_some_and(|id| self.failed.contains_key(id) && !BY_MOMENT.contains(&id))
        };
        let gone = pinned.iter().filter(|line| run(line) && !now.contains(*line));
        let gone = gone.map(|line| format!("a named difference is gone or another one now: {line}"));
        gone.chain(now.difference(&pinned).map(|line| format!("a difference that is not pinned: {line}"))).collect()
    }

    /// The difference lines of the cases that stand by name, `case TAB line`.
    fn pins(&self) -> impl Iterator<Item = String> {
        let named = self.failed.iter().filter(|(id, _)| self.differences.names(id));
        named.flat_map(|(id, lines)| lines.iter().map(move |line| format!("{id}\t{}", line.replace('\n', "\\n"))))
    }

    fn is_ours(&self, id: &str) -> bool {
        id.strip_prefix(&self.family).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Adds the passing cases and pins the differing lines. A case that passed and fails now stays listed: it is
    /// removed by hand, with a reason.
    fn update(&self) {
        let _guard = fs::File::open(env!("CARGO_MANIFEST_DIR")).and_then(|f| f.lock().map(|()| f)).unwrap();
        let mut passing = lines(&passing_list());
        passing.extend(self.passed.iter().cloned());
        write(&passing_list(), &passing);
        let mut pinned: BTreeSet<String> = lines(&pinned_list());
        pinned.retain(|line| !self.is_ours(line) || BY_MOMENT.iter().any(|id| line.split('\t').next() == Some(id)));
        pinned.extend(self.pins());
        write(&pinned_list(), &pinned);
    }
}

/// The cases that may not stop passing.
pub fn passing() -> BTreeSet<String> {
    lines(&passing_list())
}

/// The lines of a list.
pub fn lines(path: &PathBuf) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(String::from).collect()
}

fn write(path: &PathBuf, lines: &BTreeSet<String>) {
    fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

/// The list of cases that pass.
pub fn passing_list() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/passing.txt")
}

fn pinned_list() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/pinned.txt")
}
