//! Interning of equal strings and label maps, so that ten thousand services do not hold ten thousand copies of `istio`.

use std::{collections::HashSet, hash::Hash, sync::Arc};

use super::{LabelSet, Labels};

const FIRST_SWEEP: usize = 1024;

/// A table in which equal values share one `Arc`. Values without other references are dropped whenever the table has doubled.
#[derive(Debug, Default)]
pub struct Interner {
    strings: Table<str>,
    labels: Table<LabelSet>,
}

#[derive(Debug)]
struct Table<T: ?Sized> {
    values: HashSet<Arc<T>>,
    limit: usize,
}

impl<T: ?Sized> Default for Table<T> {
    fn default() -> Self {
        Self { values: HashSet::new(), limit: FIRST_SWEEP }
    }
}

impl<T: ?Sized + Eq + Hash> Table<T> {
    fn keep(&mut self, value: Arc<T>) -> Arc<T> {
        if self.values.len() >= self.limit {
            self.values.retain(|v| Arc::strong_count(v) > 1);
            self.limit = FIRST_SWEEP.max(self.values.len() * 2);
        }
        self.values.insert(value.clone());
        value
    }
}

impl Interner {
    /// The shared copy of a string.
    pub fn text(&mut self, text: &str) -> Arc<str> {
        match self.strings.values.get(text) {
            Some(known) => known.clone(),
            None => self.strings.keep(text.into()),
        }
    }

    /// The shared copy of a label map.
    pub fn labels(&mut self, labels: &Labels) -> Arc<LabelSet> {
        let labels = LabelSet::of(labels, |text| self.text(text));
        match self.labels.values.get(&labels) {
            Some(known) => known.clone(),
            None => self.labels.keep(Arc::new(labels)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_unused_ones_go() {
        let mut interner = Interner::default();
        let kept = interner.text("istio");
        assert!(Arc::ptr_eq(&kept, &interner.text("istio")));
        for n in 0..10 * FIRST_SWEEP {
            interner.text(&n.to_string());
        }
        assert!(interner.strings.values.len() <= FIRST_SWEEP);
        assert!(Arc::ptr_eq(&kept, &interner.text("istio")));
    }
}
