//! Lists in pages: bounded, with the number of all rows.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Rows of a page.
pub(super) const ROWS: usize = 50;

/// Parameters of a question.
pub(super) type Query = BTreeMap<String, String>;

/// A parameter; empty where it is not given.
pub(super) fn text<'a>(query: &'a Query, name: &str) -> &'a str {
    query.get(name).map_or("", String::as_str)
}

/// The wanted page of these rows, each shown by `show`. A page beyond the last one is the last one.
pub(super) fn page<T>(rows: &[T], query: &Query, show: impl FnMut(&T) -> Value) -> Value {
    let pages = rows.len().div_ceil(ROWS).max(1);
    let wanted = text(query, "page").parse().unwrap_or(1).clamp(1, pages);
    let shown: Vec<Value> = rows.iter().skip((wanted - 1) * ROWS).take(ROWS).map(show).collect();
    json!({"total": rows.len(), "page": wanted, "pages": pages, "rows": shown})
}

/// Whether one of these texts has the part that is searched for, in any case.
pub(super) fn has(searched: &str, texts: &[&str]) -> bool {
    searched.split_whitespace().all(|part| {
        let part = part.to_ascii_lowercase();
        texts.iter().any(|text| text.to_ascii_lowercase().contains(&part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_bounded_and_the_last_one_is_never_missed() {
        let rows: Vec<usize> = (0..ROWS + 2).collect();
        let of = |wanted: &str| page(&rows, &Query::from([("page".to_string(), wanted.to_string())]), |n| json!(n));
        assert_eq!(of("1")["rows"].as_array().unwrap().len(), ROWS);
        for wanted in ["2", "99", "18446744073709551615"] {
            assert_eq!(of(wanted)["rows"], json!([ROWS, ROWS + 1]), "{wanted}");
        }
        assert_eq!(of("0")["page"], 1);
        assert_eq!(of("x"), page(&rows, &Query::new(), |n| json!(n)));
        assert_eq!(page(&[] as &[u8], &Query::new(), |_| json!(0))["pages"], 1);
    }

    #[test]
    fn all_searched_words_are_there() {
        assert!(has("", &[]) && has("Web shop", &["web.shop"]) && has("a b", &["xa", "xb"]));
        assert!(!has("web cart", &["web.shop"]));
    }
}
