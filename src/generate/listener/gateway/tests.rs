//! Chains of one listener stay distinct.

use super::chain::{Chain, distinct};

fn chain(sni: &[&str], alpn: &[&str]) -> Chain {
    let list = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    Chain { sni: list(sni), alpn: list(alpn), origin: "x".to_string(), ..Chain::default() }
}

fn kept(chains: Vec<Chain>) -> (Vec<Vec<String>>, usize) {
    let mut conflicts = Vec::new();
    let kept = distinct(chains, "0.0.0.0_443", &mut conflicts).into_iter().map(|c| c.sni).collect();
    (kept, conflicts.len())
}

#[test]
fn an_earlier_chain_keeps_its_names() {
    let (names, conflicts) = kept(vec![chain(&["a", "b"], &[]), chain(&["B", "c"], &[]), chain(&["a"], &[])]);
    assert_eq!(names, [vec!["a", "b"], vec!["c"]]);
    assert_eq!(conflicts, 2);
}

#[test]
fn one_chain_takes_every_name_unless_protocols_tell_them_apart() {
    assert_eq!(kept(vec![chain(&["*", "a"], &[]), chain(&[], &[])]).0.len(), 1);
    assert_eq!(kept(vec![chain(&["a"], &[]), chain(&[], &[])]).0.len(), 2);
    assert_eq!(kept(vec![chain(&["a"], &["istio"]), chain(&["a"], &["h2"])]).0.len(), 2);
    assert_eq!(kept(vec![chain(&["a"], &["istio", "h2"]), chain(&["a"], &["h2"])]).0.len(), 1);
}
