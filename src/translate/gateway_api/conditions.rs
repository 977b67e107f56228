//! Status conditions: new ones, and the rules by which existing ones are kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A condition as written. The transition time is kept while the status is unchanged; otherwise the status writer sets it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    pub r#type: String,
    pub status: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    pub reason: String,
    pub message: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_zero(n: &i64) -> bool {
    *n == 0
}

/// A problem, with the reason and message of its condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Reason of the condition, in CamelCase.
    pub reason: &'static str,
    /// Message of the condition.
    pub message: String,
}

impl Problem {
    /// A problem with this reason and message.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// Both problems merged into one, with the reason of the first.
    pub fn joined(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(second)) => {
                Some(Self { reason: first.reason, message: format!("{}; {}", first.message, second.message) })
            }
            (first, second) => first.or(second),
        }
    }
}

/// A condition to set: its reason and message without a problem, and the problem, if any.
#[derive(Debug, Clone)]
pub struct Draft {
    reason: String,
    message: String,
    status: &'static str,
    problem: Option<Problem>,
}

/// Conditions to set, by type.
#[derive(Debug, Clone, Default)]
pub struct Conditions(BTreeMap<&'static str, Draft>);

impl Conditions {
    /// Adds a condition that is `True` unless a problem is recorded.
    pub fn good(mut self, kind: &'static str, reason: &str, message: &str) -> Self {
        self.set(kind, "True", reason, message);
        self
    }

    /// Sets a condition with this status, without a problem.
    pub fn set(&mut self, kind: &'static str, status: &'static str, reason: &str, message: &str) {
        self.0.insert(kind, Draft { reason: reason.into(), message: message.into(), status, problem: None });
    }

    /// Records a problem: the condition gets the inverse status and the problem's reason and message.
    pub fn problem(&mut self, kind: &'static str, problem: Problem) {
        match self.0.get_mut(kind) {
            Some(draft) => draft.problem = Some(problem),
            None => {
                let draft =
                    Draft { reason: String::new(), message: String::new(), status: "True", problem: Some(problem) };
                self.0.insert(kind, draft);
            }
        }
    }

    /// Changes the reason and message that the condition has without a problem.
    pub fn reword(&mut self, kind: &'static str, reason: Option<&str>, message: impl FnOnce(&str) -> String) {
        if let Some(draft) = self.0.get_mut(kind) {
            draft.message = message(&draft.message);
            if let Some(reason) = reason {
                draft.reason = reason.into();
            }
        }
    }

    /// The conditions merged over existing ones, in Istio's order: existing first, new ones by type.
    pub fn over(&self, existing: Vec<Condition>, generation: i64) -> Vec<Condition> {
        let mut all = existing;
        for (kind, draft) in &self.0 {
            let (status, reason, message) = match &draft.problem {
                Some(problem) => {
                    let inverse = if draft.status == "False" { "True" } else { "False" };
                    (inverse, problem.reason, problem.message.as_str())
                }
                None => (draft.status, draft.reason.as_str(), draft.message.as_str()),
            };
            let mut new = Condition {
                r#type: (*kind).to_string(),
                status: status.to_string(),
                observed_generation: generation,
                last_transition_time: None,
                reason: reason.to_string(),
                message: message.to_string(),
            };
            let Some(old) = all.iter_mut().find(|c| c.r#type == new.r#type) else {
                all.push(new);
                continue;
            };
            if old.status == new.status {
                if old.message == new.message && old.observed_generation == new.observed_generation {
                    continue;
                }
                new.last_transition_time = old.last_transition_time.take();
            }
            *old = new;
        }
        all
    }
}

/// Conditions of a status as read; empty when it does not decode.
pub fn existing(status: &Value) -> Vec<Condition> {
    status.get("conditions").map(|c| Vec::<Condition>::deserialize(c).unwrap_or_default()).unwrap_or_default()
}

/// Joins parts as `a`, `a and b`, or `a, b, and c`.
pub fn human_join<S: AsRef<str>>(parts: &[S]) -> String {
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts.as_slice() {
        [] => String::new(),
        [one] => (*one).to_string(),
        [one, two] => format!("{one} and {two}"),
        [first @ .., last] => format!("{}, and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_condition_keeps_its_transition_time() {
        let old = Condition {
            r#type: "Accepted".into(),
            status: "True".into(),
            last_transition_time: Some("then".into()),
            message: "old".into(),
            ..Condition::default()
        };
        let good = Conditions::default().good("Accepted", "Accepted", "fine").good("A", "A", "");
        let set = good.over(vec![old.clone()], 2);
        assert_eq!((set[0].last_transition_time.as_deref(), &*set[0].message), (Some("then"), "fine"));
        assert_eq!((&*set[1].r#type, set[1].observed_generation), ("A", 2));
        let mut bad = good.clone();
        bad.problem("Accepted", Problem::new("Invalid", "not"));
        let set = bad.over(vec![old], 2);
        assert_eq!((&*set[0].status, &set[0].last_transition_time), ("False", &None));
    }

    #[test]
    fn lists_read_like_english() {
        assert_eq!(human_join(&["a", "b"]), "a and b");
        assert_eq!(human_join(&["a", "b", "c"]), "a, b, and c");
    }
}
