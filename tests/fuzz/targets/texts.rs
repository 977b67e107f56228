//! Texts with a grammar of their own: expressions, regular expressions, header values, references, durations, PEM.

use std::time::Duration;

use pilothouse::{
    model::{pem as pems, validation::readers},
    proto,
};
use serde_json::json;

fn check(rules: &[&str], text: &str) {
    for (name, rule) in readers::TEXTS.iter().filter(|(name, _)| rules.contains(name)) {
        if let Err(reason) = rule(text) {
            assert!(reason.len() <= 8 * text.len() + 512, "{name}: a reason of {} bytes", reason.len());
        }
    }
}

/// CEL, as in conditions and filters of telemetry.
pub fn cel(data: &[u8]) {
    check(&["cel"], &String::from_utf8_lossy(data));
}

/// Paths and references.
pub fn references(data: &[u8]) {
    check(&["reference", "request"], &String::from_utf8_lossy(data));
}

/// Header values with Envoy's commands.
pub fn header_formats(data: &[u8]) {
    check(&["header value"], &String::from_utf8_lossy(data));
}

/// Regular expressions of paths and headers.
pub fn regexes(data: &[u8]) {
    check(&["regex", "regex match"], &String::from_utf8_lossy(data));
}

/// Key sets of JSON Web Keys.
pub fn key_sets(data: &[u8]) {
    check(&["key set"], &String::from_utf8_lossy(data));
}

/// Certificates and keys.
pub fn pem(data: &[u8]) {
    let kinds = pems::kinds(data);
    assert!(kinds.len() <= data.len());
    let holds = pems::holds_certificate(data);
    if let Err(error) = pems::check_certificates(data) {
        assert!(error.to_string().len() <= 4096, "a reason of {} bytes", error.to_string().len());
    } else {
        assert!(holds, "good certificates and none");
    }
    let half = data.len() / 2;
    let _ = pems::check_pair(data, data);
    let _ = pems::check_pair(&data[..half], &data[half..]);
}

/// Durations in Go's form and in that of proto3 JSON.
pub fn durations(data: &[u8]) {
    let text = &*String::from_utf8_lossy(data);
    let read = proto::go_duration(text);
    let retry = json!({"attempts": 1, "perTryTimeout": text});
    let message = proto::from_json::<proto::networking::HttpRetry>(&retry, true);
    let (Some(read), Ok(message)) = (read, message) else { return };
    let Some(timeout) = message.per_try_timeout else { return };
    let Ok(told) = Duration::try_from(timeout) else { return };
    let difference = read.abs_diff(told);
    assert!(difference <= Duration::from_micros(1), "{text:?}: {read:?} and {told:?}");
    let back = proto::to_json(&message).unwrap();
    let again: proto::networking::HttpRetry = proto::from_json(&back, true).unwrap();
    assert_eq!(again, message, "{text:?}");
}
