//! Names of gRPC status codes, as in Istio's `grpcStatus`.

/// Names in the order of their codes, from 0.
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The code of a status name; `None` for an unknown name.
#[must_use]
pub fn code(name: &str) -> Option<u32> {
    (0..).zip(NAMES).find_map(|(code, known)| (known == name).then_some(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_grpc() {
        assert_eq!(["OK", "NOT_FOUND", "UNAUTHENTICATED", "not_found"].map(code), [Some(0), Some(5), Some(16), None]);
    }
}
