//! The fields of an encoded message, read where they lie.

/// A value as it lies in the bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Raw<'a> {
    Varint(u64),
    Fixed32(u32),
    Fixed64(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message. `Some(None)` is a mistake in the bytes.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u32, Raw<'a>)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_none() {
            self.0 = &[];
        }
        Some(read)
    }
}

impl<'a> Fields<'a> {
    #[inline]
    fn read(&mut self) -> Option<(u32, Raw<'a>)> {
        let tag = varint(&mut self.0)?;
        let number = u32::try_from(tag >> 3).ok()?;
        let raw = match tag & 7 {
            0 => Raw::Varint(varint(&mut self.0)?),
            1 => {
                let (head, rest) = self.0.split_first_chunk::<8>()?;
                self.0 = rest;
                Raw::Fixed64(u64::from_le_bytes(*head))
            }
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).ok()?;
                let (head, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Raw::Bytes(head)
            }
            5 => {
                let (head, rest) = self.0.split_first_chunk::<4>()?;
                self.0 = rest;
                Raw::Fixed32(u32::from_le_bytes(*head))
            }
            _ => return None,
        };
        Some((number, raw))
    }
}

/// Nearly all tags and lengths have one byte.
#[inline]
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    if let [byte @ ..0x80, rest @ ..] = *bytes {
        *bytes = rest;
        return Some((*byte).into());
    }
    prost::encoding::decode_varint(bytes).ok()
}

/// The last value of a field.
pub(super) fn find(bytes: &[u8], number: u32) -> Option<Raw<'_>> {
    Fields(bytes).flatten().filter(|(n, _)| *n == number).map(|(_, raw)| raw).last()
}
