//! The access rules of the pages as a function, for tests that send any headers.
//!
//! Built for tests only. Nothing here decides anything.

use actix_web::http::{
    Method,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use super::access::{Caller, refusal};

/// Whether a request from the loopback interface with these headers is answered; `None` for headers that HTTP does not have.
#[must_use]
pub fn is_answered(host: Option<&str>, method: &str, headers: &[(&str, &str)]) -> Option<bool> {
    let pair = |(name, value): &(&str, &str)| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?))
    };
    let headers = headers.iter().map(pair).collect::<Option<HeaderMap>>()?;
    let method = Method::from_bytes(method.as_bytes()).ok()?;
    Some(refusal(false, &Caller::new(true, host, "/debug/adsz", &headers), &method).is_none())
}
