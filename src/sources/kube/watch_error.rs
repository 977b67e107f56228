//! The reaction to an error of a watch.
//!
//! The library goes on by itself where the resource version is still good; where it would repeat a request that can never
//! succeed, or has lost an event, a new watch begins with a list.

use kube::{Error, runtime::watcher};

/// The reaction to an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Pause and go on with this watch.
    GoOn(String),
    /// Pause and begin a new one.
    Renew(String),
    /// As `Renew`, with credentials that are read anew.
    Unauthorized(String),
    /// No right to read this kind.
    Forbidden(String),
    /// There is no such kind.
    Absent(String),
}

/// The beginning of the TLS library's message about an untrusted server.
const BAD_CERTIFICATE: &str = "invalid peer certificate";

/// Judges an error.
pub(super) fn judge(error: &watcher::Error) -> Reaction {
    let text = describe(error);
    if text.contains(BAD_CERTIFICATE) {
        // The server has another certificate authority: the one that we trust may be out of date.
        return Reaction::Unauthorized(text);
    }
    match error {
        watcher::Error::InitialListFailed(e) => match code(e) {
            Some(401) => Reaction::Unauthorized(text),
            Some(403) => Reaction::Forbidden(text),
            Some(404) => Reaction::Absent(text),
            _ => Reaction::GoOn(text),
        },
        watcher::Error::WatchStartFailed(e) => match code(e) {
            Some(401) => Reaction::Unauthorized(text),
            Some(403) => Reaction::Forbidden(text),
            Some(404) => Reaction::Absent(text),
            Some(408 | 429) => Reaction::GoOn(text),
            // Expired, or of another life of the server: the same version would be refused for ever.
            Some(400..=499) => Reaction::Renew(text),
            Some(504) if text.to_ascii_lowercase().contains("resource version") => Reaction::Renew(text),
            _ => Reaction::GoOn(text),
        },
        // The library lists anew by itself.
        watcher::Error::WatchError(status) if status.code == 410 => Reaction::GoOn(text),
        watcher::Error::WatchError(_) => Reaction::Renew(text),
        // A line that could not be read was an event: it is lost until the next list.
        watcher::Error::WatchFailed(Error::SerdeError(_) | Error::Api(_) | Error::FromUtf8(_)) => Reaction::Renew(text),
        watcher::Error::WatchFailed(_) | watcher::Error::NoResourceVersion => Reaction::GoOn(text),
    }
}

/// Whether the server refuses a resource version as one of the future.
pub(super) fn is_too_new(error: &Error) -> bool {
    code(error) == Some(504) && of_error(error).to_ascii_lowercase().contains("too large resource version")
}

fn code(error: &Error) -> Option<u16> {
    match error {
        Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// One line for a person. A parser's quote may be a secret, so it is left out.
fn describe(error: &watcher::Error) -> String {
    let (what, inner) = match error {
        watcher::Error::InitialListFailed(e) => ("list", e),
        watcher::Error::WatchStartFailed(e) => ("watch", e),
        watcher::Error::WatchFailed(e) => ("watch ended", e),
        watcher::Error::WatchError(status) => return format!("watch ended: {}", of_status(status)),
        watcher::Error::NoResourceVersion => return "an answer has no resource version".to_string(),
    };
    format!("{what}: {}", of_error(inner))
}

/// One line for a person about an error of a request.
pub(super) fn of_error(error: &Error) -> String {
    match error {
        Error::Api(status) => of_status(status),
        Error::SerdeError(e) => format!("an answer of another form (line {}, column {})", e.line(), e.column()),
        other => {
            let mut text = other.to_string();
            let mut source = std::error::Error::source(other);
            while let Some(cause) = source {
                let more = cause.to_string();
                if !text.contains(&more) {
                    text = format!("{text}: {more}");
                }
                source = cause.source();
            }
            text.truncate(text.char_indices().nth(400).map_or(text.len(), |(i, _)| i));
            text
        }
    }
}

fn of_status(status: &kube::core::Status) -> String {
    let message: String = status.message.chars().take(300).collect();
    if message.is_empty() {
        return "a line that could not be read".to_string();
    }
    format!("{} {message}", status.code)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn api(code: u16, message: &str) -> Error {
        Error::Api(Box::new(Status { code, message: message.to_string(), ..Status::default() }))
    }

    #[test]
    fn a_version_that_can_never_be_watched_is_given_up() {
        let start = |code, message: &str| judge(&watcher::Error::WatchStartFailed(api(code, message)));
        assert!(matches!(start(410, "too old"), Reaction::Renew(_)));
        assert!(matches!(start(504, "Timeout: Too large resource version: 9, current: 3"), Reaction::Renew(_)));
        assert!(matches!(start(504, "gateway time-out"), Reaction::GoOn(_)));
        assert!(matches!(start(429, "slow down"), Reaction::GoOn(_)));
        assert!(matches!(start(503, "starting"), Reaction::GoOn(_)));
        assert!(matches!(start(403, "no"), Reaction::Forbidden(_)));
        let list = |code| judge(&watcher::Error::InitialListFailed(api(code, "404 page not found")));
        assert!(matches!(list(404), Reaction::Absent(_)));
        assert!(matches!(list(410), Reaction::GoOn(_)));
        assert!(matches!(list(401), Reaction::Unauthorized(_)));
    }

    #[test]
    fn a_version_of_the_future_is_told_from_a_slow_server() {
        assert!(is_too_new(&api(504, "Timeout: Too large resource version: 9, current: 3")));
        assert!(!is_too_new(&api(504, "gateway time-out")) && !is_too_new(&api(410, "too old resource version")));
    }

    #[test]
    fn a_line_that_could_not_be_read_is_a_lost_event() {
        assert!(matches!(judge(&watcher::Error::WatchFailed(api(0, ""))), Reaction::Renew(_)));
        let broken = serde_json::from_str::<bool>("hunter2").unwrap_err();
        let Reaction::Renew(text) = judge(&watcher::Error::WatchFailed(Error::SerdeError(broken))) else { panic!() };
        assert!(!text.contains("hunter2"), "{text}");
    }
}
