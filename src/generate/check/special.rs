//! Demands of Envoy that stand in its code and not in its .proto files.

use std::net::IpAddr;

use super::{
    fields::{Fields, Raw, find},
    format, re2,
    shown::shown,
};
use crate::proto::validate::Special;

/// Longest path of a UNIX socket on Linux, without the byte that ends it.
const MOST_SOCKET_PATH: usize = 107;
/// Longest body of a direct response: the limit that we send with each route configuration.
const MOST_BODY: usize = 1024 * 1024;

/// Checks one value.
pub(super) fn of_field(special: Special, bytes: &[u8]) -> Result<(), String> {
    let text = || std::str::from_utf8(bytes).map_err(|_| "is no UTF-8".to_string());
    match special {
        Special::Regex => re2::check(text()?),
        Special::IpAddress => match text()?.parse::<IpAddr>() {
            Ok(_) => Ok(()),
            Err(_) => Err(format!("{} is no IP address", shown(bytes))),
        },
        Special::SocketPath if bytes.len() > MOST_SOCKET_PATH => {
            Err(format!("has {} bytes; the path of a UNIX socket has at most {MOST_SOCKET_PATH}", bytes.len()))
        }
        Special::HeaderToRemove => may_change(bytes),
        Special::HeaderToAdd => header_to_add(bytes),
        Special::Sha256 => sha256(text()?),
        Special::Spki => spki(text()?),
        Special::DirectBody => direct_body(bytes),
        Special::SocketPath | Special::Weights => Ok(()),
    }
}

/// Checks a message as a whole.
pub(super) fn of_message(special: Special, bytes: &[u8]) -> Result<(), String> {
    match special {
        Special::Weights => weights(bytes),
        _ => Ok(()),
    }
}

/// Envoy's own headers of a request are changed by other means.
fn may_change(name: &[u8]) -> Result<(), String> {
    if name.starts_with(b":") || name.eq_ignore_ascii_case(b"host") {
        return Err(format!("header {} cannot be changed", shown(name)));
    }
    Ok(())
}

/// A `HeaderValue` that is added: its value is a format.
fn header_to_add(bytes: &[u8]) -> Result<(), String> {
    if let Some(Raw::Bytes(name)) = find(bytes, 1) {
        may_change(name)?;
    }
    match find(bytes, 2) {
        Some(Raw::Bytes(value)) => format::check(&String::from_utf8_lossy(value)),
        _ => Ok(()),
    }
}

/// 64 hexadecimal digits, or 32 pairs of them between colons.
fn sha256(text: &str) -> Result<(), String> {
    let digits = if text.contains(':') {
        let pairs: Vec<&str> = text.split(':').collect();
        if pairs.iter().any(|p| p.len() != 2) { String::new() } else { pairs.concat() }
    } else {
        text.to_string()
    };
    if digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(());
    }
    Err(format!("{} is no SHA-256 in hexadecimal digits", shown(text.as_bytes())))
}

/// A SHA-256 in base64.
fn spki(text: &str) -> Result<(), String> {
    let (digits, padding) = text.split_at_checked(43).unwrap_or((text, ""));
    let is_digit = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    if padding == "=" && digits.bytes().all(is_digit) {
        return Ok(());
    }
    Err(format!("{} is no SHA-256 in base64", shown(text.as_bytes())))
}

fn direct_body(source: &[u8]) -> Result<(), String> {
    let inline = [2, 3].into_iter().find_map(|number| find(source, number));
    match inline {
        Some(Raw::Bytes(body)) if body.len() > MOST_BODY => {
            Err(format!("has {} bytes, more than {MOST_BODY}", body.len()))
        }
        _ => Ok(()),
    }
}

/// The weights of a `WeightedCluster` add up to a number of 32 bits that is not 0.
fn weights(bytes: &[u8]) -> Result<(), String> {
    let clusters = Fields(bytes).flatten().filter(|(number, _)| *number == 1);
    let weight = |raw: Raw| match raw {
        Raw::Bytes(cluster) => match find(cluster, 2) {
            Some(Raw::Bytes(wrapper)) => match find(wrapper, 1) {
                Some(Raw::Varint(n)) => n,
                _ => 0,
            },
            _ => 0,
        },
        _ => 0,
    };
    let sum: u64 = clusters.map(|(_, raw)| weight(raw)).fold(0, u64::saturating_add);
    match sum {
        0 => Err("the weights of all destinations are 0".to_string()),
        sum if sum > u64::from(u32::MAX) => Err(format!("the weights add up to {sum}, more than {}", u32::MAX)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_certificates() {
        let hex = "ab".repeat(32);
        let pairs = ["AB"; 32].join(":");
        assert!(sha256(&hex).is_ok() && sha256(&pairs).is_ok());
        for wrong in ["zz".repeat(32), hex[1..].to_string(), pairs.replacen(':', "", 1), String::new()] {
            assert!(sha256(&wrong).is_err(), "{wrong}");
        }
        assert!(spki("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=").is_ok());
        for wrong in ["", "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU", "é"] {
            assert!(spki(wrong).is_err(), "{wrong}");
        }
    }
}
