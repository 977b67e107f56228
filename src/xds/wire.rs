//! Protobuf and gRPC framing by hand, for the two places where a decoded message would cost too much: requests that repeat
//! a thousand names with every ACK, and responses whose resources are shared between clients.

pub mod request;
mod written;

pub use written::WrittenLists;

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{decode_varint, encode_varint, encoded_len_varint};

/// Why bytes are not a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request is not a protobuf message")]
pub struct Malformed;

const LENGTH_DELIMITED: u8 = 2;

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field<'a> {
    /// A number.
    Number(u32, u64),
    /// Bytes, a string or a message.
    Bytes(u32, &'a [u8]),
    /// A fixed-width field or a group marker, which nothing here reads.
    Other,
}

/// Walks the fields of a message without copying.
#[derive(Debug, Clone)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields of a message.
    #[must_use]
    pub const fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// The bytes behind the last field.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Nearly all tags and lengths have one byte.
    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        if let [byte @ ..0x80, rest @ ..] = self.0 {
            self.0 = rest;
            return Ok((*byte).into());
        }
        decode_varint(&mut self.0).map_err(|_| Malformed)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (head, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    #[inline]
    fn field(&mut self) -> Result<Field<'a>, Malformed> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Malformed)?;
        if number == 0 {
            return Err(Malformed);
        }
        match tag & 7 {
            0 => Ok(Field::Number(number, self.varint()?)),
            1 => self.take(8).map(|_| Field::Other),
            2 => {
                let length = self.varint()?;
                Ok(Field::Bytes(number, self.take(length)?))
            }
            5 => self.take(4).map(|_| Field::Other),
            _ => Err(Malformed),
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// Appends the tag and the length of a length-delimited field.
pub fn put_head(out: &mut BytesMut, field: u32, length: usize) {
    encode_varint(u64::from(field << 3) | u64::from(LENGTH_DELIMITED), out);
    encode_varint(length as u64, out);
}

/// Appends a length-delimited field.
pub fn put_bytes(out: &mut BytesMut, field: u32, value: &[u8]) {
    put_head(out, field, value.len());
    out.extend_from_slice(value);
}

/// The length of the output of [`put_bytes`] for a value of this length.
#[must_use]
pub fn bytes_len(field: u32, length: usize) -> usize {
    encoded_len_varint(u64::from(field << 3)) + encoded_len_varint(length as u64) + length
}

/// A version text: 16 hexadecimal digits of a hash.
#[must_use]
pub fn version(hash: u128) -> String {
    format!("{:016x}", hash as u64)
}

/// Bytes before a message in a gRPC stream: a flag and the length.
pub const PREFIX: usize = 5;

/// Below this size a message is sent in one piece; above it the shared part is not copied.
const COPY_BELOW: usize = 2048;

/// The pieces of one gRPC message: a small head of this client and the part that all clients share. The head comes first,
/// which protobuf allows because the order of fields is free.
#[must_use]
pub fn grpc_frames(head: &[u8], shared: Bytes) -> (Bytes, Option<Bytes>) {
    let copied = if shared.len() < COPY_BELOW { shared.len() } else { 0 };
    let mut first = BytesMut::with_capacity(PREFIX + head.len() + copied);
    first.put_u8(0);
    first.put_u32(u32::try_from(head.len() + shared.len()).unwrap_or(u32::MAX));
    first.extend_from_slice(head);
    if copied == shared.len() {
        first.extend_from_slice(&shared);
        return (first.freeze(), None);
    }
    (first.freeze(), Some(shared))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn written_fields_are_read_back() {
        let mut out = BytesMut::new();
        put_bytes(&mut out, 2, b"hello");
        put_bytes(&mut out, 2000, &[7; 300]);
        assert_eq!(out.len(), bytes_len(2, 5) + bytes_len(2000, 300));
        let fields: Vec<_> = Fields::of(&out).collect::<Result<_, _>>().unwrap();
        assert_eq!(fields, [Field::Bytes(2, b"hello"), Field::Bytes(2000, &[7; 300])]);
        assert_eq!(Fields::of(&out[..out.len() - 1]).last(), Some(Err(Malformed)));
    }

    #[test]
    fn messages_are_framed() {
        let (first, rest) = grpc_frames(b"ab", Bytes::from_static(b"cd"));
        assert_eq!((&first[..], rest), (&b"\0\0\0\0\x04abcd"[..], None));
        let big = Bytes::from(vec![1; 70_000]);
        let (first, rest) = grpc_frames(b"ab", big.clone());
        assert_eq!(&first[..], [0, 0, 1, 0x11, 0x72, b'a', b'b']);
        assert_eq!(rest.unwrap().as_ptr(), big.as_ptr(), "the shared part is not copied");
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_to_an_end(bytes: Vec<u8>) {
            prop_assert!(Fields::of(&bytes).count() <= bytes.len());
        }
    }
}
