//! Families of kinds that are read without effect: EnvoyFilter. Their recordings are counted as not yet, for as long as the
//! kind says so itself.

use pilothouse::model::Kind;

use crate::data::{self, Case, Verdict};

/// One case for each patch of an EnvoyFilter.
pub fn envoy_filters() -> Vec<Case> {
    data::cases("envoyfilter", "case.json")
}

/// Not yet, while the kind is without effect.
pub fn check(kind: Kind) -> Verdict {
    let why =
        kind.without_effect().unwrap_or_else(|| panic!("{kind} has an effect: its recordings are to be compared"));
    Verdict::NotYet(why.to_string())
}
