//! Bytes that are no text.

use super::refused_beside_a_good_one;

#[test]
fn bytes_that_are_not_utf8_are_refused_with_their_line() {
    let refused = refused_beside_a_good_one(b"a: 1\nb: \xc3\x28\n");
    assert_eq!(refused[0].line, 2);
    assert!(refused[0].reason.contains("UTF-8"), "{}", refused[0]);
}
