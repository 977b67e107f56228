//! Rules for numbers: ports, durations, percentages, status codes, protocols.

use super::check::Checked;
use crate::{
    model::Protocol,
    proto::{networking::Percent, wkt},
};

pub(super) fn port(number: u32) -> Checked {
    if (1..=65535).contains(&number) { Ok(()) } else { Err(format!("port {number} must be in 1..65535")) }
}

/// A port of a field with a sign.
pub(super) fn signed_port(number: i32) -> Checked {
    if (1..=65535).contains(&number) { Ok(()) } else { Err(format!("port {number} must be in 1..65535")) }
}

/// A duration of at least one millisecond, in whole milliseconds.
pub(super) fn duration(value: &wkt::Duration) -> Checked {
    let nanos = i128::from(value.seconds) * 1_000_000_000 + i128::from(value.nanos);
    if nanos < 1_000_000 {
        return Err("the duration must be at least 1ms".to_string());
    }
    if nanos % 1_000_000 != 0 {
        return Err("the duration must be a whole number of milliseconds".to_string());
    }
    Ok(())
}

/// A duration that may be absent.
pub(super) fn optional_duration(value: Option<&wkt::Duration>) -> Checked {
    value.map_or(Ok(()), duration)
}

pub(super) fn percent(value: i32) -> Checked {
    if (0..=100).contains(&value) { Ok(()) } else { Err(format!("percentage {value} must be in 0..100")) }
}

/// A percentage of requests; Envoy's resolution is a millionth.
pub(super) fn fraction(value: Option<&Percent>) -> Checked {
    let Some(value) = value.map(|p| p.value) else { return Ok(()) };
    if value == 0.0 || (0.0001..=100.0).contains(&value) {
        return Ok(());
    }
    Err(format!("percentage {value} must be 0 or in 0.0001..100"))
}

/// A percentage of mirrored requests.
pub(super) fn mirror_percentage(value: Option<&Percent>) -> Checked {
    match value {
        Some(p) if !(0.0..=100.0).contains(&p.value) => Err(format!("percentage {} must be in 0..100", p.value)),
        _ => Ok(()),
    }
}

/// A number that is not negative.
pub(super) fn natural(value: i32) -> Checked {
    if value >= 0 { Ok(()) } else { Err(format!("{value} must not be negative")) }
}

pub(super) fn http_status(status: i64) -> Checked {
    if (200..=600).contains(&status) { Ok(()) } else { Err(format!("HTTP status {status} must be in 200..599")) }
}

/// A protocol known to Istio, or an empty text, which means sniffing.
pub(super) fn protocol(name: &str) -> Checked {
    if name.is_empty() || declared(name) != Protocol::Unsupported {
        return Ok(());
    }
    Err(format!(
        "protocol {name:?} is not supported; use HTTP, HTTPS, HTTP2, GRPC, GRPC-WEB, TCP, TLS, UDP, MONGO, REDIS or MYSQL"
    ))
}

/// The protocol of a port as declared in an object; HBONE is not available to users.
pub(super) fn declared(name: &str) -> Protocol {
    match Protocol::parse(name) {
        Protocol::Hbone | Protocol::DoubleHbone => Protocol::Unsupported,
        protocol => protocol,
    }
}
