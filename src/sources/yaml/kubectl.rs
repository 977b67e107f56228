//! Spellings that kubectl's YAML library takes and the stricter one here does not, respelt without a change of meaning.
//!
//! Lines stay where they are. Only the library's own scanner knows the place of a spelling.

use std::borrow::Cow;

use serde_saphyr::granit_parser::{ErrorKind, ScalarStyle, Scanner, StrInput, TokenType};

use super::lines;

/// Most bytes that are scanned for the sake of one document: each line to indent takes a scan.
const MOST_WORK: usize = 64 << 20;
/// Spaces that are put before a line; more follow when they are not enough.
const MORE_INDENTATION: &str = "        ";

/// The text in a spelling that is read as kubectl reads it.
#[must_use]
pub(super) fn respelt(text: &str) -> Cow<'_, str> {
    let colons = with_colons(text);
    match with_indentation(&colons) {
        Some(indented) => Cow::Owned(indented),
        None => colons,
    }
}

/// Quotes plain scalars of flow collections that end in a colon: `[2001:db8::]` is an address, not a map.
#[must_use]
pub(super) fn with_colons(text: &str) -> Cow<'_, str> {
    let ends_flow = |bytes: &[u8]| bytes[0] == b':' && matches!(bytes[1], b',' | b']' | b'}');
    if !text.split(':').skip(1).any(|after| after.starts_with([',', ']', '}'])) {
        return Cow::Borrowed(text);
    }
    let (mut out, mut done, mut scalar) = (String::new(), 0, None);
    for token in Scanner::new(StrInput::new(text)).map_while(Result::ok) {
        let span = token.span();
        let (Some(start), Some(end)) = (span.start.byte_offset(), span.end.byte_offset()) else { continue };
        match token.token_type() {
            TokenType::Scalar(ScalarStyle::Plain, _) => scalar = Some(start..end),
            TokenType::Value => {
                let ends = text.as_bytes().get(start..start + 2).is_some_and(ends_flow);
                if let Some(scalar) = scalar.take().filter(|s| ends && s.end == start && s.start >= done) {
                    out.push_str(&text[done..scalar.start]);
                    out.push_str(&format!("'{}:'", text[scalar].replace('\'', "''")));
                    done = start + 1;
                }
            }
            _ => scalar = None,
        }
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

/// Indents the lines of quoted scalars that continue at the indentation of their key; spaces at the beginning of such a line
/// are not part of the scalar. `None` when there are none.
#[must_use]
pub(super) fn with_indentation(text: &str) -> Option<String> {
    let mut indented: Option<String> = None;
    let mut work = 0;
    while work < MOST_WORK {
        let now = indented.as_deref().unwrap_or(text);
        let error = Scanner::new(StrInput::new(now)).find_map(Result::err);
        let Some(error) = error.filter(|e| matches!(e.kind(), ErrorKind::InvalidQuotedScalarIndent)) else { break };
        let line = error.marker().line().checked_sub(1)?;
        let at = lines(now).take(line).map(str::len).sum();
        // Scanned to the error, then copied, which costs a fraction of it.
        work += error.marker().byte_offset().unwrap_or(now.len()) + now.len() / 16 + 1;
        let mut next = String::with_capacity(now.len() + MORE_INDENTATION.len());
        next.push_str(&now[..at]);
        next.push_str(MORE_INDENTATION);
        next.push_str(&now[at..]);
        indented = Some(next);
    }
    indented
}
