//! A key that comes twice.

use super::{entry, refused_beside_a_good_one};

#[test]
fn a_key_that_comes_twice_is_refused_at_its_place() {
    let text = entry("bad", "bad.example").replace("  resolution: DNS", "  resolution: DNS\n  resolution: NONE");
    let refused = refused_beside_a_good_one(text.as_bytes());
    assert_eq!((refused[0].line, refused[0].column), (15, 3), "{}", refused[0]);
    assert!(refused[0].reason.contains("duplicate") && refused[0].name == "bad", "{}", refused[0]);
}
