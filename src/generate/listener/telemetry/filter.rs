//! Filters of access logs: the part of CEL that Envoy evaluates. An expression beyond it would make Envoy refuse the whole
//! listener.

use crate::{
    generate::check,
    model::validation::cel::{self, Call},
    proto::{
        envoy::{
            config::accesslog::v3::{
                AccessLogFilter, ExtensionFilter, access_log_filter::FilterSpecifier, extension_filter::ConfigType,
            },
            extensions::access_loggers::filters::cel::v3::ExpressionFilter,
        },
        to_any,
    },
};

const NAME: &str = "envoy.access_loggers.extension_filters.cel";

/// Functions with the number of their arguments.
const FUNCTIONS: [(&str, usize); 14] = [
    ("bool", 1),
    ("bytes", 1),
    ("double", 1),
    ("duration", 1),
    ("dyn", 1),
    ("endsWith", 2),
    ("has", 1),
    ("int", 1),
    ("matches", 2),
    ("size", 1),
    ("startsWith", 2),
    ("timestamp", 1),
    ("type", 1),
    ("uint", 1),
];
/// Functions that are called on a value, with the fewest and most arguments.
const METHODS: [(&str, usize, usize); 16] = [
    ("contains", 1, 1),
    ("endsWith", 1, 1),
    ("extract", 3, 3),
    ("getDate", 0, 1),
    ("getDayOfMonth", 0, 1),
    ("getDayOfWeek", 0, 1),
    ("getDayOfYear", 0, 1),
    ("getFullYear", 0, 1),
    ("getHours", 0, 1),
    ("getMilliseconds", 0, 1),
    ("getMinutes", 0, 1),
    ("getMonth", 0, 1),
    ("getSeconds", 0, 1),
    ("matches", 1, 1),
    ("size", 0, 0),
    ("startsWith", 1, 1),
];

/// Whether Envoy evaluates an expression.
///
/// # Errors
/// The reason it would refuse it.
pub fn evaluable(expression: &str) -> Result<(), String> {
    let outline = cel::outline(expression)?;
    if outline.has_optionals || outline.makes_messages {
        return Err("Envoy evaluates neither optional values nor messages in a CEL expression".to_string());
    }
    outline.calls.iter().try_for_each(evaluates)
}

/// The filter of an expression.
///
/// # Errors
/// The reason Envoy would refuse it.
pub fn access_log(expression: &str) -> Result<AccessLogFilter, String> {
    evaluable(expression)?;
    let config = ExpressionFilter { expression: expression.to_string(), ..ExpressionFilter::default() };
    let config_type = Some(ConfigType::TypedConfig(to_any(&config)));
    let filter = ExtensionFilter { name: NAME.to_string(), config_type };
    Ok(AccessLogFilter { filter_specifier: Some(FilterSpecifier::ExtensionFilter(filter)) })
}

fn evaluates(call: &Call) -> Result<(), String> {
    let Call { name, is_method, arguments, .. } = call;
    if call.is_comprehension {
        return Err(format!("Envoy evaluates no {name}() over a list in a CEL expression"));
    }
    let known = match is_method {
        true => METHODS.iter().any(|(known, least, most)| known == name && (least..=most).contains(&arguments)),
        false => FUNCTIONS.contains(&(name.as_str(), *arguments)),
    };
    if !known {
        return Err(format!("Envoy has no function {name} with {arguments} arguments for a CEL expression"));
    }
    match &call.text {
        Some(pattern) if name == "matches" => check::regex(pattern),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_that_envoy_evaluates() {
        for good in [
            "response.code >= 400",
            "has(request.headers.a) && request.headers['a'].matches('^x+$')",
            "size(request.path) > 3 || request.time.getHours('UTC') > 3",
            "'a'.contains('b') ? true : 'a' in ['b']",
        ] {
            assert!(access_log(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("response.code >", "not a CEL expression"),
            ("nope(1)", "no function nope"),
            ("string(1) == '1'", "no function string"),
            ("size(1, 2)", "no function size with 2"),
            ("[1].all(x, x > 0)", "no all() over a list"),
            ("'a'.matches('(')", "regular expression"),
            ("request.?a", "neither optional"),
            ("M{a: 1}.a == 1", "nor messages"),
        ] {
            let refused = access_log(bad).map(drop).unwrap_err();
            assert!(refused.contains(why), "{bad}: {refused}");
        }
    }
}
