//! The last messages between a client and its server, for reports.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

/// Messages that are kept.
const KEPT: usize = 60;

/// The last messages, in words.
#[derive(Debug, Clone, Default)]
pub struct Transcript(Arc<Mutex<VecDeque<String>>>);

impl Transcript {
    /// Adds a message.
    pub fn note(&self, text: String) {
        let mut lines = self.0.lock().unwrap();
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(text);
    }

    /// All of them.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().cloned().collect()
    }
}
