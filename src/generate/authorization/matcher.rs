//! Istio's value patterns as Envoy's matchers: `*` alone means presence, at the start a suffix, at the end a prefix.

use crate::proto::{
    envoy::{
        config::{
            core::v3::TypedExtensionConfig,
            route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier},
        },
        extensions::path::r#match::uri_template::v3::UriTemplateMatchConfig,
        r#type::matcher::v3::{
            ListMatcher, MetadataMatcher, OrMatcher, PathMatcher, RegexMatcher, StringMatcher, ValueMatcher,
            list_matcher,
            metadata_matcher::{PathSegment, path_segment::Segment},
            path_matcher,
            string_matcher::MatchPattern,
            value_matcher,
        },
    },
    to_any,
};

/// One segment of a path template, any.
const ONE_SEGMENT: &str = "{*}";
/// The rest of a path template, any.
const ANY_SEGMENTS: &str = "{**}";

fn text(pattern: MatchPattern, ignore_case: bool) -> StringMatcher {
    StringMatcher { match_pattern: Some(pattern), ignore_case }
}

/// A regular expression that the whole text must match.
pub(super) fn regex(regex: String) -> StringMatcher {
    text(MatchPattern::SafeRegex(RegexMatcher { regex, ..Default::default() }), false)
}

pub(super) fn exact(value: &str) -> StringMatcher {
    text(MatchPattern::Exact(value.to_string()), false)
}

pub(super) fn prefix(value: &str) -> StringMatcher {
    text(MatchPattern::Prefix(value.to_string()), false)
}

pub(super) fn suffix(value: &str) -> StringMatcher {
    text(MatchPattern::Suffix(value.to_string()), false)
}

/// Any text but the empty one.
pub(super) fn present() -> StringMatcher {
    regex(".+".to_string())
}

/// A pattern.
pub(super) fn pattern(value: &str) -> StringMatcher {
    pattern_behind("", value)
}

/// A pattern for the text behind `head`; the pattern `*` stands for any text, `head` or not.
pub(super) fn pattern_behind(head: &str, value: &str) -> StringMatcher {
    if value == "*" {
        present()
    } else if let Some(end) = value.strip_prefix('*') {
        if head.is_empty() { suffix(end) } else { regex(format!("{head}.*{}", quoted(end))) }
    } else if let Some(start) = value.strip_suffix('*') {
        prefix(&format!("{head}{start}"))
    } else {
        exact(&format!("{head}{value}"))
    }
}

/// Text as a regular expression that matches it alone (Go's `QuoteMeta`: Istio's expressions are compared with ours).
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted
}

/// A pattern for a header's value.
pub(super) fn header(name: &str, value: &str, ignore_case: bool) -> HeaderMatcher {
    let specifier = if value == "*" {
        HeaderMatchSpecifier::PresentMatch(true)
    } else {
        HeaderMatchSpecifier::StringMatch(StringMatcher { ignore_case, ..pattern(value) })
    };
    HeaderMatcher { name: name.to_string(), header_match_specifier: Some(specifier), ..Default::default() }
}

/// A pattern for the path without its query.
pub(super) fn path(value: &str) -> PathMatcher {
    PathMatcher { rule: Some(path_matcher::Rule::Path(pattern(value))) }
}

/// Whether a path is a template: it holds `{*}` or `{**}`.
pub(super) fn is_template(value: &str) -> bool {
    value.contains(ONE_SEGMENT) || value.contains(ANY_SEGMENTS)
}

/// A template as Envoy's extension.
pub(super) fn template(value: &str) -> TypedExtensionConfig {
    let path_template = value.replace(ONE_SEGMENT, "*").replace(ANY_SEGMENTS, "**");
    let config = UriTemplateMatchConfig { path_template };
    TypedExtensionConfig { name: "uri-template".to_string(), typed_config: Some(to_any(&config)) }
}

fn value(pattern: value_matcher::MatchPattern) -> ValueMatcher {
    ValueMatcher { match_pattern: Some(pattern) }
}

/// A value that is a text.
pub(super) fn value_text(matcher: StringMatcher) -> ValueMatcher {
    value(value_matcher::MatchPattern::StringMatch(matcher))
}

/// A value that is a list with an element like this.
pub(super) fn value_list(element: ValueMatcher) -> ValueMatcher {
    let list = ListMatcher { match_pattern: Some(list_matcher::MatchPattern::OneOf(Box::new(element))) };
    value(value_matcher::MatchPattern::ListMatch(Box::new(list)))
}

/// One of these; the only one is itself.
pub(super) fn value_any(mut matchers: Vec<ValueMatcher>) -> ValueMatcher {
    match matchers.pop() {
        Some(only) if matchers.is_empty() => only,
        last => {
            matchers.extend(last);
            value(value_matcher::MatchPattern::OrMatch(OrMatcher { value_matchers: matchers }))
        }
    }
}

/// Dynamic metadata of a filter.
pub(super) fn metadata<'a>(
    filter: &str,
    path: impl IntoIterator<Item = &'a str>,
    value: ValueMatcher,
) -> MetadataMatcher {
    let segment = |key: &str| PathSegment { segment: Some(Segment::Key(key.to_string())) };
    MetadataMatcher {
        filter: filter.to_string(),
        path: path.into_iter().map(segment).collect(),
        value: Some(value),
        invert: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_mean_presence_suffix_and_prefix() {
        assert_eq!(pattern("*"), present());
        assert_eq!(pattern("*a"), suffix("a"));
        assert_eq!(pattern("a*"), prefix("a"));
        assert_eq!(pattern("a*b"), exact("a*b"));
        assert_eq!(pattern_behind("spiffe://", "*"), present());
        assert_eq!(pattern_behind("spiffe://", "*/sa/a.b"), regex(r"spiffe://.*/sa/a\.b".to_string()));
        assert_eq!(pattern_behind("spiffe://", "td/*"), prefix("spiffe://td/"));
    }

    #[test]
    fn every_sign_of_a_regular_expression_is_quoted() {
        assert_eq!(quoted(r"a-b.c*(d)[e]{f}^$|?+\"), r"a-b\.c\*\(d\)\[e\]\{f\}\^\$\|\?\+\\");
    }
}
