//! Rules about single texts, as functions, for tests that feed them any text: those that are private to this room.
//!
//! Built for tests only. Nothing here decides anything.

use super::{cel, header, jwks, names, uri};
use crate::proto::networking::{StringMatch, string_match::MatchType};

/// A rule about a text.
type Rule = fn(&str) -> Result<(), String>;

/// Rules about texts that are matched or written: expressions, references, header values, regular expressions, key sets.
pub const TEXTS: &[(&str, Rule)] = &[
    ("cel", cel::parse),
    ("reference", |text| uri::reference(text).map(drop)),
    ("request", |text| uri::of_request(text).map(drop)),
    ("header value", header::value),
    ("regex", header::regex),
    ("regex match", |text| {
        let regex = StringMatch { match_type: Some(MatchType::Regex(text.to_string())) };
        header::string(Some(&regex))
    }),
    ("key set", |text| jwks::private_keys(text).map(drop)),
];

/// Rules about names.
pub const NAMES: &[(&str, Rule)] = &[
    ("domain", names::fqdn),
    ("wildcard domain", names::wildcard_domain),
    ("gateway host", |text| names::gateway_domain(false, text)),
    ("SNI host", |text| names::gateway_domain(true, text)),
    ("partial wildcard", names::no_partial_wildcard),
    ("port name", names::port_name),
    ("subset", names::subset_name),
    ("header name", header::match_name),
    ("CORS header", header::cors_name),
];
