//! `/debug/cachez`: the generated resources that views hold, by type, as istiod lists its cache.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use serde_json::{Value, json};

use super::AdminState;

/// The names by type; with `sizes`, bytes by type.
pub(super) fn page(query: &BTreeMap<String, String>, state: &AdminState) -> Result<Value, (StatusCode, String)> {
    if query.contains_key("clear") {
        let text = "generated resources are what proxies hold, and none is cleared; POST /debug/adsz?push=true sends all again\n";
        return Err((StatusCode::BAD_REQUEST, text.to_string()));
    }
    let held = state.xds.cached();
    if query.contains_key("sizes") {
        let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
        for (kind, resource) in &held {
            *sizes.entry(kind.url()).or_default() += resource.wire_len();
        }
        let total: usize = sizes.values().sum();
        let texts = sizes.into_iter().chain([("total", total)]).map(|(kind, bytes)| (kind, bytes_of(bytes)));
        return Ok(json!(texts.collect::<BTreeMap<_, _>>()));
    }
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (kind, resource) in &held {
        names.entry(kind.url()).or_default().push(resource.name());
    }
    names.values_mut().for_each(|names| names.sort_unstable());
    Ok(json!(names))
}

/// A number of bytes with istiod's units, which are powers of 1000.
fn bytes_of(bytes: usize) -> String {
    const UNITS: [&str; 5] = ["k", "M", "G", "T", "P"];
    let (mut number, mut unit) = (bytes as f64, "");
    for next in UNITS {
        if number < 1000.0 {
            break;
        }
        (number, unit) = (number / 1000.0, next);
    }
    if unit.is_empty() { format!("{bytes}B") } else { format!("{number:.1}{unit}B") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_istiods_units() {
        for (bytes, text) in [(0, "0B"), (999, "999B"), (1000, "1.0kB"), (1234, "1.2kB"), (5_600_000, "5.6MB")] {
            assert_eq!(bytes_of(bytes), text);
        }
    }
}
