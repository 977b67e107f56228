//! The collector of findings: it tracks the path of the current field and puts it before every text.

use std::fmt::Display;

use super::Validation;

/// The result of a rule about one value: the error text begins without a path.
pub(super) type Checked = Result<(), String>;

/// Findings about one object, with the path of the current field.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) path: String,
    pub(super) found: Validation,
}

impl Check {
    pub(super) fn new(root: &str) -> Self {
        Self { path: root.to_string(), found: Validation::default() }
    }

    pub(super) fn finish(self) -> Validation {
        self.found
    }

    pub(super) fn error(&mut self, text: impl Display) {
        self.found.errors.push(format!("{}: {text}", self.path));
    }

    pub(super) fn warn(&mut self, text: impl Display) {
        self.found.warnings.push(format!("{}: {text}", self.path));
    }

    /// Records an error unless `holds`.
    pub(super) fn need(&mut self, holds: bool, text: impl Display) {
        if !holds {
            self.error(text);
        }
    }

    /// Records the answer's error, if any, for a field below this path.
    pub(super) fn field(&mut self, name: impl Display, answer: Checked) {
        if let Err(text) = answer {
            self.at(name, |c| c.error(text));
        }
    }

    /// Runs rules one level below this path.
    pub(super) fn at(&mut self, name: impl Display, rules: impl FnOnce(&mut Self)) {
        self.step(format_args!(".{name}"), rules);
    }

    /// As [`Check::at`], with a step that is no field of this path: an element, or a field of an element.
    pub(super) fn step(&mut self, step: impl Display, rules: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push_str(&step.to_string());
        rules(self);
        self.path.truncate(length);
    }

    /// Runs rules for every element of a list.
    pub(super) fn each<T>(&mut self, name: &str, list: &[T], mut rules: impl FnMut(&mut Self, &T)) {
        for (i, element) in list.iter().enumerate() {
            self.at(format_args!("{name}[{i}]"), |c| rules(c, element));
        }
    }

    /// Runs rules and keeps their errors only: Istio drops the warnings of some nested parts.
    pub(super) fn errors_only(&mut self, rules: impl FnOnce(&mut Self)) {
        let kept = self.found.warnings.len();
        rules(self);
        self.found.warnings.truncate(kept);
    }
}
