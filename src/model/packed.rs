//! Messages stored in encoded form.

use std::{fmt, marker::PhantomData};

use prost::Message;

/// A message in its encoded form, a tenth of the decoded size: for content with ten thousand copies that is read only on a
/// change.
#[derive(Clone, PartialEq, Eq)]
pub struct Packed<M> {
    bytes: Box<[u8]>,
    message: PhantomData<fn() -> M>,
}

impl<M: Message + Default> Packed<M> {
    /// Encodes a message.
    #[must_use]
    pub fn of(message: &M) -> Self {
        Self { bytes: message.encode_to_vec().into(), message: PhantomData }
    }

    /// Decodes the message. [`Packed::of`] encoded the bytes, so decoding cannot fail.
    #[must_use]
    pub fn read(&self) -> M {
        M::decode(&*self.bytes).unwrap_or_default()
    }
}

impl<M: Message + Default + fmt::Debug> fmt::Debug for Packed<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::networking::ServiceEntry;

    #[test]
    fn a_message_is_read_as_it_was_packed() {
        let entry = ServiceEntry { hosts: vec!["a.example".to_string()], ..ServiceEntry::default() };
        let packed = Packed::of(&entry);
        assert_eq!(packed.read(), entry);
        assert_eq!(format!("{packed:?}"), format!("{entry:?}"));
        assert!(packed != Packed::of(&ServiceEntry::default()));
    }
}
