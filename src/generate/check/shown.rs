//! Values in reasons.

/// Bytes of a value that are shown in a reason.
const SHOWN: usize = 80;

/// A value for a person: escaped, and not all of a long one.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut cut: String = text.chars().take(SHOWN).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    format!("{cut:?}")
}
