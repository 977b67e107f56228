//! Encoded messages in the form in which they are merged: durations with both their fields, though they be 0.
//!
//! A decoder that merges such bytes into a message (any protobuf decoder does: the last value of a field counts, lists grow,
//! messages merge) replaces a duration as a whole, as Istio does, where plain bytes would leave the old nanoseconds.

use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use prost_reflect::{Kind, MessageDescriptor};

const DURATION: &str = "google.protobuf.Duration";

/// Maximum nesting, that of protobuf decoders.
const DEEPEST: usize = 100;

/// The bytes of a message in the form for merging; `None` for bytes that are no message.
#[must_use]
pub fn merge_bytes(message: &MessageDescriptor, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len() + 8);
    fields(message, bytes, &mut out, 0)?;
    Some(out)
}

fn fields(message: &MessageDescriptor, mut bytes: &[u8], out: &mut Vec<u8>, depth: usize) -> Option<()> {
    if depth > DEEPEST {
        return None;
    }
    if message.full_name() == DURATION {
        return duration(bytes, out);
    }
    while !bytes.is_empty() {
        let (number, wire) = decode_key(&mut bytes).ok()?;
        encode_key(number, wire, out);
        match wire {
            WireType::Varint => encode_varint(decode_varint(&mut bytes).ok()?, out),
            WireType::ThirtyTwoBit => copy(&mut bytes, 4, out)?,
            WireType::SixtyFourBit => copy(&mut bytes, 8, out)?,
            WireType::LengthDelimited => {
                let length = usize::try_from(decode_varint(&mut bytes).ok()?).ok()?;
                let (inner, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                let below = match message.get_field(number).map(|field| field.kind()) {
                    Some(Kind::Message(below)) => {
                        let mut inner_out = Vec::with_capacity(inner.len() + 8);
                        fields(&below, inner, &mut inner_out, depth + 1)?;
                        inner_out
                    }
                    _ => inner.to_vec(),
                };
                encode_varint(below.len() as u64, out);
                out.extend_from_slice(&below);
            }
            WireType::StartGroup | WireType::EndGroup => return None,
        }
    }
    Some(())
}

fn copy(bytes: &mut &[u8], length: usize, out: &mut Vec<u8>) -> Option<()> {
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    out.extend_from_slice(head);
    Some(())
}

fn duration(mut bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (mut seconds, mut nanos) = (0, 0);
    while !bytes.is_empty() {
        match decode_key(&mut bytes).ok()? {
            (1, WireType::Varint) => seconds = decode_varint(&mut bytes).ok()?,
            (2, WireType::Varint) => nanos = decode_varint(&mut bytes).ok()?,
            _ => return None,
        }
    }
    for (number, value) in [(1, seconds), (2, nanos)] {
        encode_key(number, WireType::Varint, out);
        encode_varint(value, out);
    }
    Some(())
}
