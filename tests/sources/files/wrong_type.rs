//! A value of the wrong type.

use super::{entry, refused_beside_a_good_one};

#[test]
fn a_wrong_type_is_refused_at_its_place_and_by_name() {
    let text = entry("bad", "bad.example").replace("number: 80", "number: eighty");
    let refused = refused_beside_a_good_one(text.as_bytes());
    assert_eq!(refused.len(), 1);
    assert_eq!((refused[0].kind.as_str(), refused[0].name.as_str(), refused[0].line), ("ServiceEntry", "bad", 11));
    assert!(refused[0].to_string().contains("bad.yaml:11:"), "{}", refused[0]);
}
