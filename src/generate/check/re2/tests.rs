//! Expressions that RE2 takes and refuses; each was asked of Envoy 1.40.

use super::*;

#[test]
fn expressions_that_re2_accepts() {
    for good in [
        "",
        ".*",
        "^/api/items/[a-zA-Z0-9_-]{1,64}$",
        r"/v(1|2)/\d+",
        "a{",
        "a{,2}",
        "a{2",
        "{",
        "}",
        "]",
        "[]a]",
        "[^]a]",
        "[a-]",
        "[-a]",
        "[[a]",
        "[[:alpha:]_]",
        "[[:^digit:]]",
        r"\Qa+b\E+",
        r"\Q(",
        "(?i)a",
        "(?i-s:a)b",
        "(?P<name>a)(?<other>b)",
        "(?:a)*?",
        "(|a)*",
        "^*",
        r"\/\-\_\.",
        r"\x41\x{FF}\012\07",
        r"\pL\p{Greek}\P{^Lu}",
        r"\C",
        r"\bword\B",
        r"\A\z",
        "a|",
        "|",
        "()",
        "a{1000}",
        "(a{10}){100}",
        "é+",
        "[α-ω]",
        r"[\d\-\]]",
        "a{01}",
        "x{0}",
        "(?:)",
        "a$b",
    ] {
        assert_eq!(check(good), Ok(()), "{good}");
    }
}

#[test]
fn expressions_that_re2_refuses() {
    for bad in [
        "/v(1",
        "/v1)",
        "[",
        "[a",
        "[]",
        "[^]",
        "*",
        "a|*",
        "(*a)",
        "+a",
        "a**",
        "a*+",
        "a{2}{3}",
        "a{1001}",
        "a{3,2}",
        "(a{10}){101}",
        "((a{10}){10}){11}",
        "(?=a)",
        "(?!a)",
        "(?<=a)b",
        "(?<!a)b",
        "(?P=n)",
        "(?i)*",
        "(?P<>a)",
        "(?P<a-b>c)",
        "(?x)a",
        "(?i",
        "(?-)",
        "(?i--s)",
        r"\1",
        r"(a)\1",
        r"\",
        r"\y",
        r"\Z",
        r"\h",
        r"\u0041",
        r"\xZZ",
        r"\x{}",
        r"\x{100}",
        r"\p",
        r"\p{greek}",
        r"\pX",
        "[z-a]",
        "[[:foo:]]",
        r"[a-\d]",
        r"\é",
        "{2}",
        r"\G",
    ] {
        assert!(check(bad).is_err(), "{bad}");
    }
}

#[test]
fn programs_and_groups_are_bounded() {
    assert!(check("(?:aaaaaaaaaabbbbbbbbbbccccccccccddddddddd){1000}").is_err());
    assert!(check(&"(".repeat(5000)).is_err());
}
