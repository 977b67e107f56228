//! YAML aliases that multiply.

use super::refused_beside_a_good_one;

#[test]
fn an_alias_bomb_is_refused() {
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_string();
    for i in 1..20 {
        bomb.push_str(&format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(",")));
    }
    let refused = refused_beside_a_good_one(bomb.as_bytes());
    assert_eq!(refused.len(), 1);
    assert!(refused[0].reason.contains("limits"), "{}", refused[0]);
}
