//! Answers that several open pages share: each asks again after the same notice, so the first question is answered and the
//! others get that answer.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

/// Answers that are kept.
const MOST: usize = 64;
/// Bytes of all kept answers.
const MOST_BYTES: usize = 8 << 20;

/// The last answers by question. A question holds the number of the notice that it follows, so an answer is never older than
/// the notice.
#[derive(Debug, Default)]
pub(in crate::admin) struct Answers(Mutex<VecDeque<(String, Arc<str>)>>);

impl Answers {
    pub(in crate::admin) fn get(&self, question: &str) -> Option<Arc<str>> {
        self.0.lock().iter().find(|(known, _)| known == question).map(|(_, answer)| answer.clone())
    }

    pub(in crate::admin) fn keep(&self, question: String, answer: &Arc<str>) {
        let mut kept = self.0.lock();
        kept.retain(|(known, _)| *known != question);
        kept.push_back((question, answer.clone()));
        while kept.len() > MOST || kept.iter().map(|(_, answer)| answer.len()).sum::<usize>() > MOST_BYTES {
            kept.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_answers_are_kept_the_oldest_go_first() {
        let answers = Answers::default();
        for n in 0..MOST + 1 {
            answers.keep(n.to_string(), &"x".into());
        }
        assert!(answers.get("0").is_none() && answers.get("1").is_some());
        answers.keep("large".to_string(), &"x".repeat(MOST_BYTES + 1).into());
        assert!(answers.get("large").is_none() && answers.0.lock().is_empty());
    }
}
