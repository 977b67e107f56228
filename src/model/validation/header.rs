//! Rules for HTTP headers: names, values with `%COMMANDS%`, operations, and string matches.

use super::check::{Check, Checked};
use crate::proto::networking::{Headers, StringMatch, string_match::MatchType};

const REGEX_MAX: usize = 1024;
const JWT_CLAIM: &str = "@request.auth.claims";

fn is_token(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+,-.^_`|~".contains(c))
}

fn bad_name(name: &str) -> Checked {
    Err(format!("{name:?} is not a valid header name"))
}

/// A header name in a CORS policy; `*` means all.
pub(super) fn cors_name(name: &str) -> Checked {
    if is_token(name) { Ok(()) } else { bad_name(name) }
}

/// Whether the name of a match means a claim of the token (`@request.auth.claims.x` or `@request.auth.claims[x]`).
#[must_use]
pub fn is_jwt_claim(name: &str) -> bool {
    let Some((head, rest)) = name.split_at_checked(JWT_CLAIM.len()) else { return false };
    head.eq_ignore_ascii_case(JWT_CLAIM)
        && ((rest.starts_with('.') && rest.len() > 1)
            || (rest.starts_with('[') && rest.ends_with(']') && rest.len() > 2))
}

/// A header name in a match.
pub(super) fn match_name(name: &str) -> Checked {
    let pseudo = matches!(name, ":method" | ":scheme" | ":authority" | ":path" | ":status");
    if is_jwt_claim(name) || pseudo || is_token(name) { Ok(()) } else { bad_name(name) }
}

/// A header name in a probe.
pub(super) fn probe_name(name: &str) -> Checked {
    let good = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if good { Ok(()) } else { bad_name(name) }
}

/// A name of letters, digits, `-` and `_` only.
pub(super) fn strict_name(name: &str) -> Checked {
    let good = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if good { Ok(()) } else { bad_name(name) }
}

pub(super) fn is_authority(name: &str) -> bool {
    name.eq_ignore_ascii_case(":authority") || name.eq_ignore_ascii_case("host")
}

fn operation_name(name: &str, authority: bool) -> Checked {
    if name.is_empty() {
        return bad_name(name);
    }
    if (name.starts_with(':') || name.eq_ignore_ascii_case("host")) && !(authority && is_authority(name)) {
        return Err(format!("header {name:?} cannot be changed here; remove it"));
    }
    Ok(())
}

/// A header value for Envoy: no control characters, `%COMMAND(args)%` complete, a plain `%` written `%%`.
pub(super) fn value(value: &str) -> Checked {
    if value.chars().any(|c| c != '\t' && c.is_ascii_control()) {
        return Err(format!("header value {value:?} must not hold control characters"));
    }
    command(value).ok_or_else(|| format!("header value {value:?} has an open %COMMAND%; write %% for a percent sign"))
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Literal,
    Name,
    ArrayStart,
    ElementStart,
    Element,
    ElementEnd,
    ArgumentsEnd,
    End,
}

fn command(value: &str) -> Option<()> {
    let mut state = State::Literal;
    let mut bytes = value.bytes().peekable();
    while let Some(byte) = bytes.next() {
        state = match (state, byte) {
            (State::Literal, b'%') => {
                let escaped = *bytes.peek()? == b'%';
                if escaped {
                    bytes.next();
                }
                if escaped { State::Literal } else { State::Name }
            }
            (State::Name | State::End, b'%') => State::Literal,
            (State::Name, b'(') => State::ArrayStart,
            (State::ArrayStart, b'[') => State::ElementStart,
            (State::ElementStart, b'"') => State::Element,
            (State::ElementEnd, b',') => State::ElementStart,
            (State::ElementEnd, b']') => State::ArgumentsEnd,
            (State::Element, b'\\') => bytes.next().map(|_| State::Element)?,
            (State::Element | State::ArgumentsEnd, b')') => State::End,
            (State::Element, b'"') => State::ElementEnd,
            (State::Literal | State::Name | State::Element, _) | (_, b' ') => state,
            (State::ArrayStart, _) => State::Element,
            _ => return None,
        };
    }
    (state == State::Literal).then_some(())
}

/// Operations on the headers of requests and responses. Only requests may change the authority.
pub(super) fn operations(c: &mut Check, headers: Option<&Headers>) {
    let Some(headers) = headers else { return };
    for (side, operations, authority) in
        [("headers.request", &headers.request, true), ("headers.response", &headers.response, false)]
    {
        let Some(operations) = operations else { continue };
        c.at(side, |c| {
            for (verb, map) in [("add", &operations.add), ("set", &operations.set)] {
                for (name, text) in map {
                    c.field(verb, operation_name(name, authority));
                    c.field(format_args!("{verb}.{name}"), value(text));
                }
            }
            for name in &operations.remove {
                c.field("remove", operation_name(name, false));
            }
        });
    }
}

/// A regular expression of RE2 within Envoy's length limit.
pub(super) fn regex(text: &str) -> Checked {
    if text.len() > REGEX_MAX {
        return Err(format!("the regex is longer than {REGEX_MAX} characters; shorten it"));
    }
    match regex::Regex::new(text) {
        Ok(_) if repeats_a_repetition(text) => {
            Err(format!("regex {text:?} is not RE2: a repetition of a repetition; put the inner one in a group"))
        }
        Ok(_) => Ok(()),
        Err(error) => {
            Err(format!("regex {text:?} is not RE2: {}", error.to_string().lines().last().unwrap_or_default()))
        }
    }
}

/// A repetition of a repetition, as in `a**`, which RE2 refuses; `a*?` is the reluctant form of one repetition.
fn repeats_a_repetition(text: &str) -> bool {
    let (mut chars, mut class, mut before) = (text.chars().peekable(), 0u32, Repetition::None);
    let mut counted = false;
    while let Some(c) = chars.next() {
        let operator = class == 0 && (matches!(c, '*' | '+' | '?') || (c == '{' && before != Repetition::None));
        before = match (c, before) {
            ('?', Repetition::Greedy) if class == 0 => Repetition::Reluctant,
            (_, Repetition::Greedy | Repetition::Reluctant) if operator => return true,
            ('*' | '+' | '?', _) if class == 0 => Repetition::Greedy,
            ('}', _) if class == 0 && counted => Repetition::Greedy,
            _ => Repetition::None,
        };
        match c {
            '\\' => drop(chars.next()),
            '{' if class == 0 => counted = chars.peek().is_some_and(char::is_ascii_digit),
            '[' => {
                class += 1;
                let _ = chars.next_if_eq(&'^');
                let _ = chars.next_if_eq(&']');
            }
            ']' => class = class.saturating_sub(1),
            '(' if class == 0 => drop(chars.next_if_eq(&'?')),
            _ => {}
        }
    }
    false
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repetition {
    None,
    Greedy,
    Reluctant,
}

/// A string match whose regex must compile; an empty prefix is allowed.
pub(super) fn string_regex(condition: Option<&StringMatch>) -> Checked {
    match condition.and_then(|m| m.match_type.as_ref()) {
        Some(MatchType::Regex(text)) if text.is_empty() => Err("an empty regex matches nothing; write one".to_string()),
        Some(MatchType::Regex(text)) => regex(text),
        _ => Ok(()),
    }
}

/// A string match whose prefix and regex must not be empty.
pub(super) fn string(condition: Option<&StringMatch>) -> Checked {
    match condition.and_then(|m| m.match_type.as_ref()) {
        Some(MatchType::Prefix(text)) if text.is_empty() => Err("an empty prefix is refused; write one".to_string()),
        _ => string_regex(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_values_are_complete() {
        for good in ["", "foo", "%HOSTNAME%", "100%%", "a %HOSTNAME% b", "%REQ(X)%", "%V([\"a\", \"b\"])%"] {
            assert!(value(good).is_ok(), "{good}");
        }
        for bad in ["abc%123", "%START_TIME%%", "%", "%REQ(X%", "%V([\"a\" x])%", "a\u{1}"] {
            assert!(value(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn repetitions_are_not_repeated() {
        for good in ["a*?", "(a*)*", "a+?b", "[*+]+", "\\*+", "x{2}y{3}", "(?i)a", "a??", "[]*]*"] {
            assert!(regex(good).is_ok(), "{good}");
        }
        for bad in ["a**", "a++", "a*??", "x{2}{3}", "x{2}+"] {
            assert!(regex(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn claims_need_a_name() {
        assert!(is_jwt_claim("@request.auth.claims.sub") && is_jwt_claim("@request.auth.claims[sub]"));
        assert!(!is_jwt_claim("@request.auth.claims.") && !is_jwt_claim("@request.auth.claims[]"));
    }
}
