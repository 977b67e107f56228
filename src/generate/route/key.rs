//! Keys of generated output: a 128-bit hash over the inputs of a builder, field by field.

use std::hash::Hash;

use prost::Message;
use xxhash_rust::xxh3::Xxh3;

/// Collects the inputs of a builder. Every item is written with its length, so that neighbours cannot flow into each other.
pub struct KeyHasher(Xxh3);

impl KeyHasher {
    /// A hasher for one kind of output.
    #[must_use]
    pub fn new(kind: &str) -> Self {
        let mut hasher = Self(Xxh3::new());
        hasher.text(kind);
        hasher
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.number(text.len() as u64);
        self.0.update(text.as_bytes());
        self
    }

    /// Adds a number, a stamp or a count.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    /// Adds another key.
    pub fn key(&mut self, key: u128) -> &mut Self {
        self.0.update(&key.to_le_bytes());
        self
    }

    /// Adds a yes or no.
    pub fn bit(&mut self, bit: bool) -> &mut Self {
        self.0.update(&[u8::from(bit)]);
        self
    }

    /// Adds a message by its encoding.
    pub fn message<M: Message>(&mut self, message: Option<&M>) -> &mut Self {
        self.bit(message.is_some());
        if let Some(message) = message {
            let bytes = message.encode_to_vec();
            self.number(bytes.len() as u64);
            self.0.update(&bytes);
        }
        self
    }

    /// Adds a value by its `Hash`.
    pub fn value<T: Hash>(&mut self, value: &T) -> &mut Self {
        value.hash(&mut self.0);
        self
    }

    /// The key.
    #[must_use]
    pub fn finish(&self) -> u128 {
        self.0.digest128()
    }
}
