//! Values nested thousands of levels deep.

use super::refused_beside_a_good_one;

#[test]
fn ten_thousand_levels_are_refused() {
    let block: String = (0..10_000).map(|i| format!("{}a:\n", " ".repeat(i))).collect();
    for text in [block, "[".repeat(10_000), format!("{{\"a\":{}", "[".repeat(10_000)), "{a: ".repeat(10_000)] {
        let refused = refused_beside_a_good_one(text.as_bytes());
        assert!(refused[0].reason.contains("deep"), "{}", refused[0]);
    }
}
