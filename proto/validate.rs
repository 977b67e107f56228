//! The rules of Envoy's .proto files as data. `build.rs` writes the table; nothing here looks at a message.

/// A message that has rules, or leads to one that has some.
#[derive(Debug)]
pub struct Message {
    /// A rule about the message as a whole.
    pub special: Option<Special>,
    /// Oneofs of which a field has to be set; fields name them by position, from 1.
    pub oneofs: &'static [&'static str],
    /// Positions of the fields that have to be there.
    pub required: &'static [usize],
    /// Fields with rules, in the order of their numbers.
    pub fields: &'static [Field],
}

/// A field.
#[derive(Debug)]
pub struct Field {
    /// Its number on the wire.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// How its value is read.
    pub kind: Kind,
    /// Rules of each value.
    pub rules: &'static [Rule],
    /// How many values there have to be. A scalar whose default breaks its rules has to be there.
    pub min: u32,
    /// How many values there may be; 1 for a field that is not repeated.
    pub max: u32,
    /// The oneof that has to be set, from 1.
    pub oneof: usize,
}

/// How a value is read.
#[derive(Debug)]
pub enum Kind {
    /// An integer with a sign, a truth value or an enum.
    Signed,
    /// An integer without a sign.
    Unsigned,
    /// A number of 32 bits.
    Float,
    /// A number of 64 bits.
    Double,
    /// A text or bytes.
    Text,
    /// A message with rules.
    Message(&'static Message),
    /// A message without rules.
    Opaque,
    /// `google.protobuf.Any`: the message inside has rules of its own.
    Any,
    /// `google.protobuf.Duration`.
    Duration,
    /// A wrapper of an integer with a sign or of a truth value.
    WrappedSigned,
    /// A wrapper of an integer without a sign.
    WrappedUnsigned,
    /// A wrapper of a number of 32 bits.
    WrappedFloat,
    /// A wrapper of a number of 64 bits.
    WrappedDouble,
    /// A wrapper of a text or of bytes.
    WrappedText,
    /// A value that no rule is about.
    Other,
}

/// One rule about a value. Durations are integers of nanoseconds.
#[derive(Debug)]
pub enum Rule {
    /// The least integer.
    AtLeast(i128),
    /// The greatest integer.
    AtMost(i128),
    /// The only integers.
    OneOf(&'static [i64]),
    /// Integers that are not allowed.
    NoneOf(&'static [i64]),
    /// The least number.
    RealAtLeast(f64),
    /// The number is above this one.
    RealAbove(f64),
    /// The greatest number.
    RealAtMost(f64),
    /// The number is below this one.
    RealBelow(f64),
    /// Fewest characters.
    MinChars(usize),
    /// Most characters.
    MaxChars(usize),
    /// Fewest bytes.
    MinBytes(usize),
    /// Most bytes.
    MaxBytes(usize),
    /// A regular expression.
    Pattern(&'static str),
    /// How the text begins.
    Prefix(&'static str),
    /// How the text ends.
    Suffix(&'static str),
    /// The only texts.
    OneText(&'static [&'static str]),
    /// A header's name.
    HeaderName {
        /// Only characters of RFC 7230.
        strict: bool,
    },
    /// A header's value.
    HeaderValue {
        /// No control characters; else only no line ends and no zero.
        strict: bool,
    },
    /// Rules of a value that is not the default.
    UnlessEmpty(&'static [Rule]),
    /// A demand of code.
    Special(Special),
}

/// Demands of Envoy's own code, beyond the rules of its files.
#[derive(Debug, Clone, Copy)]
pub enum Special {
    /// The body of a direct response: its length.
    DirectBody,
    /// A header that is added: its name, and the format of its value.
    HeaderToAdd,
    /// A header that is removed: its name.
    HeaderToRemove,
    /// An IP address.
    IpAddress,
    /// An expression of RE2.
    Regex,
    /// A SHA-256 in hexadecimal digits.
    Sha256,
    /// The path of a UNIX socket: its length.
    SocketPath,
    /// A SHA-256 in base64.
    Spki,
    /// The sum of weights.
    Weights,
}

#[allow(clippy::unreadable_literal, clippy::redundant_static_lifetimes, reason = "generated")]
mod generated {
    use super::{Field, Kind, Message, Rule, Special};

    include!(concat!(env!("OUT_DIR"), "/rules.rs"));
}

/// The names of all messages in the table.
pub fn names() -> impl Iterator<Item = &'static str> {
    generated::MESSAGES.iter().map(|(name, _)| *name)
}

/// The rules of a message by its full name.
#[must_use]
pub fn message(name: &str) -> Option<&'static Message> {
    // Most names begin alike, so their lengths are compared first.
    let key = (name.len(), name);
    let at = generated::MESSAGES.binary_search_by(|(known, _)| (known.len(), *known).cmp(&key)).ok()?;
    generated::MESSAGES.get(at).map(|(_, message)| *message)
}
