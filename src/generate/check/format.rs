//! Formats of header values: `%COMMAND(argument):LENGTH%` as Envoy reads them, with `%%` for a percent sign.
//!
//! The commands are those of Envoy 1.40. Arguments are looked at where they are names of headers; of the others only
//! whether there has to be one.

/// Commands without an argument.
const PLAIN: &[&str] = &[
    "ACCESS_LOG_TYPE",
    "BYTES_RECEIVED",
    "BYTES_RETRANSMITTED",
    "BYTES_SENT",
    "CONNECTION_ID",
    "CONNECTION_TERMINATION_DETAILS",
    "CUSTOM_FLAGS",
    "DOWNSTREAM_CX_RTT",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "DOWNSTREAM_DETECTED_CLOSE_TYPE",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS",
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID",
    "DOWNSTREAM_DIRECT_LOCAL_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
    "DOWNSTREAM_DIRECT_REMOTE_PORT",
    "DOWNSTREAM_HANDSHAKE_DURATION",
    "DOWNSTREAM_HEADER_BYTES_RECEIVED",
    "DOWNSTREAM_HEADER_BYTES_SENT",
    "DOWNSTREAM_LOCAL_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID",
    "DOWNSTREAM_LOCAL_CLOSE_REASON",
    "DOWNSTREAM_LOCAL_DNS_SAN",
    "DOWNSTREAM_LOCAL_EMAIL_SAN",
    "DOWNSTREAM_LOCAL_IP_SAN",
    "DOWNSTREAM_LOCAL_OTHERNAME_SAN",
    "DOWNSTREAM_LOCAL_PORT",
    "DOWNSTREAM_LOCAL_SUBJECT",
    "DOWNSTREAM_LOCAL_URI_SAN",
    "DOWNSTREAM_PEER_CERT",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1",
    "DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256",
    "DOWNSTREAM_PEER_CHAIN_SERIALS",
    "DOWNSTREAM_PEER_DNS_SAN",
    "DOWNSTREAM_PEER_EMAIL_SAN",
    "DOWNSTREAM_PEER_FINGERPRINT_1",
    "DOWNSTREAM_PEER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_IP_SAN",
    "DOWNSTREAM_PEER_ISSUER",
    "DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_ISSUER_SERIAL",
    "DOWNSTREAM_PEER_OTHERNAME_SAN",
    "DOWNSTREAM_PEER_SERIAL",
    "DOWNSTREAM_PEER_SUBJECT",
    "DOWNSTREAM_PEER_URI_SAN",
    "DOWNSTREAM_REMOTE_ADDRESS",
    "DOWNSTREAM_REMOTE_PORT",
    "DOWNSTREAM_TLS_CIPHER",
    "DOWNSTREAM_TLS_GROUP",
    "DOWNSTREAM_TLS_SESSION_ID",
    "DOWNSTREAM_TLS_VERSION",
    "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    "DOWNSTREAM_WIRE_BYTES_RECEIVED",
    "DOWNSTREAM_WIRE_BYTES_SENT",
    "DURATION",
    "FILTER_CHAIN_NAME",
    "GRPC_STATUS_NUMBER",
    "HOSTNAME",
    "LISTENER_NAME",
    "LOCAL_REPLY_BODY",
    "PACKETS_RETRANSMITTED",
    "PROTOCOL",
    "REQUESTED_SERVER_NAME",
    "REQUEST_DURATION",
    "REQUEST_HEADERS_BYTES",
    "REQUEST_TX_DURATION",
    "RESPONSE_CODE",
    "RESPONSE_DURATION",
    "RESPONSE_FLAGS",
    "RESPONSE_FLAGS_LONG",
    "RESPONSE_HEADERS_BYTES",
    "RESPONSE_TRAILERS_BYTES",
    "RESPONSE_TX_DURATION",
    "ROUNDTRIP_DURATION",
    "ROUTE_NAME",
    "ROUTE_RESOLUTION_COUNT",
    "ROUTE_RESOLUTION_TIME_US",
    "SPAN_ID",
    "STREAM_ID",
    "TLS_JA3_FINGERPRINT",
    "TLS_JA4_FINGERPRINT",
    "TRACE_ID",
    "UNIQUE_ID",
    "UPSTREAM_CLUSTER",
    "UPSTREAM_CLUSTER_RAW",
    "UPSTREAM_CONNECTION_ID",
    "UPSTREAM_CONNECTION_IDS_ATTEMPTED",
    "UPSTREAM_CONNECTION_POOL_READY_DURATION",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED",
    "UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT",
    "UPSTREAM_DETECTED_CLOSE_TYPE",
    "UPSTREAM_HEADER_BYTES_RECEIVED",
    "UPSTREAM_HEADER_BYTES_SENT",
    "UPSTREAM_HOST",
    "UPSTREAM_HOSTS_ATTEMPTED",
    "UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME",
    "UPSTREAM_HOST_NAMES_ATTEMPTED",
    "UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT",
    "UPSTREAM_HOST_NAME_WITHOUT_PORT",
    "UPSTREAM_LOCAL_ADDRESS",
    "UPSTREAM_LOCAL_CLOSE_REASON",
    "UPSTREAM_LOCAL_DNS_SAN",
    "UPSTREAM_LOCAL_IP_SAN",
    "UPSTREAM_LOCAL_PORT",
    "UPSTREAM_LOCAL_URI_SAN",
    "UPSTREAM_PEER_CERT",
    "UPSTREAM_PEER_DNS_SAN",
    "UPSTREAM_PEER_IP_SAN",
    "UPSTREAM_PEER_ISSUER",
    "UPSTREAM_PEER_SUBJECT",
    "UPSTREAM_PEER_URI_SAN",
    "UPSTREAM_PROTOCOL",
    "UPSTREAM_REMOTE_ADDRESS",
    "UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID",
    "UPSTREAM_REMOTE_PORT",
    "UPSTREAM_REQUEST_ATTEMPT_COUNT",
    "UPSTREAM_SERVER_NAME",
    "UPSTREAM_TLS_CIPHER",
    "UPSTREAM_TLS_GROUP",
    "UPSTREAM_TLS_SESSION_ID",
    "UPSTREAM_TLS_VERSION",
    "UPSTREAM_TRANSPORT_FAILURE_REASON",
    "UPSTREAM_WIRE_BYTES_RECEIVED",
    "UPSTREAM_WIRE_BYTES_SENT",
    "VIRTUAL_CLUSTER_NAME",
];
/// Commands that may have an argument.
const OPTIONAL: &[&str] = &[
    "DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_PEER_CERT_V_END",
    "DOWNSTREAM_PEER_CERT_V_START",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "EMIT_TIME",
    "EMIT_TIME_LOCAL",
    "GRPC_STATUS",
    "PATH",
    "QUERY_PARAMS",
    "RESPONSE_CODE_DETAILS",
    "START_TIME",
    "START_TIME_LOCAL",
    "UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "UPSTREAM_PEER_CERT_V_END",
    "UPSTREAM_PEER_CERT_V_START",
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
];
/// Commands that need an argument.
const REQUIRED: &[&str] = &[
    "CEL",
    "CLUSTER_METADATA",
    "COALESCE",
    "COMMON_DURATION",
    "DYNAMIC_METADATA",
    "ENVIRONMENT",
    "FILTER_STATE",
    "METADATA",
    "QUERY_PARAM",
    "UPSTREAM_FILTER_STATE",
    "UPSTREAM_METADATA",
];
/// Commands whose argument is the name of a header, with one to fall back to behind `?`.
const HEADERS: &[&str] = &["REQ", "REQUEST_HEADER", "RESP", "RESPONSE_HEADER", "RESPONSE_TRAILER", "TRAILER"];

/// Whether Envoy takes the format of a header, a log or a tag.
///
/// # Errors
/// The reason it would not.
pub fn check(format: &str) -> Result<(), String> {
    let mut rest = format;
    while let Some((_, after)) = rest.split_once('%') {
        rest = match after.strip_prefix('%') {
            Some(after) => after,
            None => command(after).map_err(|reason| format!("{}: {reason}", super::shown::shown(format.as_bytes())))?,
        };
    }
    Ok(())
}

/// One command behind its first `%`; gives the rest behind its last.
fn command(text: &str) -> Result<&str, String> {
    let open = "a % begins no command; write %% for a percent sign";
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let (name, rest) = text.split_at(text.find(|c: char| !is_name(c)).unwrap_or(text.len()));
    if name.is_empty() {
        return Err(open.to_string());
    }
    let (argument, (after, length)) = match rest.strip_prefix('(') {
        Some(inner) => {
            let ends = inner.match_indices(')').map(|(at, _)| at);
            let mut ends = ends.filter_map(|at| Some((Some(inner.get(..at)?), behind(inner.get(at + 1..)?)?)));
            ends.next().ok_or("a command is not closed")?
        }
        None => (None, behind(rest).ok_or(open)?),
    };
    known(name, argument, length)?;
    Ok(after)
}

/// `%` or `:LENGTH%`: the rest behind it, and whether there was a length.
fn behind(text: &str) -> Option<(&str, bool)> {
    if let Some(rest) = text.strip_prefix('%') {
        return Some((rest, false));
    }
    let (length, rest) = text.strip_prefix(':')?.split_once('%')?;
    (!length.is_empty() && length.bytes().all(|b| b.is_ascii_digit())).then_some((rest, true))
}

fn known(name: &str, argument: Option<&str>, length: bool) -> Result<(), String> {
    let is_one_of = |list: &[&str]| list.binary_search(&name).is_ok();
    if is_one_of(PLAIN) {
        if argument.is_some() || length {
            return Err(format!("{name} takes neither an argument nor a length"));
        }
        return Ok(());
    }
    if is_one_of(HEADERS) {
        let names = argument.filter(|a| !a.is_empty()).ok_or_else(|| format!("{name} needs the name of a header"))?;
        return names.split('?').try_for_each(|header| {
            let plain = header.strip_prefix(':').unwrap_or(header);
            let good = plain.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&'*+-.^_|~`".contains(&b));
            if good { Ok(()) } else { Err(format!("{header:?} is no name of a header")) }
        });
    }
    if is_one_of(REQUIRED) && argument.is_none() {
        return Err(format!("{name} needs an argument"));
    }
    if is_one_of(REQUIRED) || is_one_of(OPTIONAL) { Ok(()) } else { Err(format!("{name} is no command of Envoy")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_that_envoy_accepts() {
        for good in [
            "",
            "text",
            "100%%",
            "%%%PROTOCOL%%%",
            "%REQ(x)%",
            "%REQ(:AUTHORITY?x-b):20%",
            "a %START_TIME(%Y-%m-%d)% b",
            "%DYNAMIC_METADATA(a:b)%",
            "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
            "%RESPONSE_CODE%%RESPONSE_FLAGS%",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn formats_that_envoy_refuses() {
        for bad in [
            "100%",
            "%",
            "a % b",
            "%NOPE%",
            "%REQ(x",
            "%REQ(x)",
            "%REQ%",
            "%REQ()%",
            "%REQ(a b)%",
            "%PROTOCOL(x)%",
            "%PROTOCOL:3%",
            "%protocol%",
            "%DYNAMIC_METADATA%",
            "%%%",
            "%REQ(x):y%",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn commands_are_in_order() {
        for list in [PLAIN, OPTIONAL, REQUIRED, HEADERS] {
            assert!(list.is_sorted());
        }
    }
}
