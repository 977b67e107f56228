//! `/debug/flagz`: the version, the flags and the environment of the process.

use std::env;

use serde_json::{Map, Value, json};

use super::{AdminState, document::REDACTED};

/// Prefixes of the environment variables that are settings of this program, or of istiod's.
const PREFIXES: [&str; 9] =
    ["PILOTHOUSE_", "PILOT_", "ISTIO_", "ENABLE_", "CITADEL_", "POD_", "ROOT_CA_DIR", "CLUSTER_ID", "REVISION"];

/// Words in the names of variables whose values are not shown, unless they name a file.
const SECRET: [&str; 4] = ["TOKEN", "SECRET", "PASSWORD", "KEY"];

/// The page.
pub(super) fn page(state: &AdminState) -> Value {
    let arguments: Vec<String> = env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let variables = env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.to_str()?.to_string(), value.to_string_lossy().into_owned());
        PREFIXES.iter().any(|prefix| name.starts_with(prefix)).then(|| (name.clone(), shown(&name, value)))
    });
    let mut variables: Vec<(String, Value)> = variables.collect();
    variables.sort_by(|a, b| a.0.cmp(&b.0));
    json!({
        "version": env!("CARGO_PKG_VERSION"), "uptimeSeconds": state.started.elapsed().as_secs(), "arguments": arguments,
        "environment": Map::from_iter(variables),
    })
}

fn shown(name: &str, value: String) -> Value {
    let is_secret = SECRET.iter().any(|word| name.contains(word));
    let is_place = name.ends_with("_FILE") || name.ends_with("_DIR");
    if is_secret && !is_place { REDACTED.into() } else { value.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_may_be_secret_are_not_shown() {
        assert_eq!(shown("PILOTHOUSE_TOKEN", "hush".to_string()), REDACTED);
        assert_eq!(shown("PILOTHOUSE_TLS_KEY_FILE", "/etc/key".to_string()), "/etc/key");
        assert_eq!(shown("PILOT_DEBOUNCE_AFTER", "1s".to_string()), "1s");
    }
}
