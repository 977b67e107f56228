//! Tests whose requests the recording only describes in words: retries, which need a backend that fails as it is told, and
//! the WebSocket.

/// A request to a backend that meets a fault so many times before it does well.
pub struct Retry {
    pub path: &'static str,
    pub times: u32,
    /// A status, `reset`, or `delay=MILLISECONDS`.
    pub fault: &'static str,
    /// The status that the client has to get.
    pub status: u16,
}

const fn retry(path: &'static str, times: u32, fault: &'static str, status: u16) -> Retry {
    Retry { path, times, fault, status }
}

const CODE: &str = "/retry/code-500-attempts-3";
const ALL: &str = "/retry/code-all-attempts-2";
const CONNECTION: &str = "/retry/no-status-code-attempts-3";
const BACKEND_TIMEOUT: &str = "/retry/backend-request-timeout-200ms";
const TIMEOUT: &str = "/retry/request-timeout-200ms";

/// By short name of the test and number of the case.
pub fn of(test: &str, case: usize) -> Option<Retry> {
    let cases: &[Retry] = match test {
        "HTTPRouteRetry" => &[
            retry(CODE, 2, "500", 200),
            retry(CODE, 9, "500", 500),
            retry(CODE, 1, "503", 503),
            retry(ALL, 1, "500", 200),
            retry(ALL, 9, "500", 500),
            retry(ALL, 1, "502", 200),
            retry(ALL, 9, "502", 502),
            retry(ALL, 1, "503", 200),
            retry(ALL, 9, "503", 503),
            retry(ALL, 1, "504", 200),
            retry(ALL, 9, "504", 504),
        ],
        "HTTPRouteRetryConnectionError" => &[retry(CONNECTION, 2, "reset", 200), retry(CONNECTION, 9, "reset", 503)],
        "HTTPRouteRetryWithTimeouts" => &[
            retry(BACKEND_TIMEOUT, 2, "delay=2000", 200),
            retry(BACKEND_TIMEOUT, 9, "delay=2000", 504),
            retry(TIMEOUT, 1, "500", 200),
            retry(TIMEOUT, 9, "delay=2000", 504),
        ],
        _ => &[],
    };
    cases.get(case).map(|r| Retry { ..*r })
}
