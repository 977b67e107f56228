//! Rules for addresses: IP, CIDR, Unix domain sockets.

use std::net::{IpAddr, Ipv6Addr};

use super::check::Checked;

pub(super) const UNIX_PREFIX: &str = "unix://";

/// Whether the text is an IP address; an IPv6 one may have a zone.
pub(super) fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
        || text.split_once('%').is_some_and(|(ip, zone)| !zone.is_empty() && ip.parse::<Ipv6Addr>().is_ok())
}

pub(super) fn ip(text: &str) -> Checked {
    if is_ip(text) { Ok(()) } else { Err(format!("{text:?} is not an IP address")) }
}

/// An IP address or a CIDR block.
pub(super) fn subnet(text: &str) -> Checked {
    if text.matches('/').count() != 1 {
        return ip(text);
    }
    text.parse::<ipnet::IpNet>().map(|_| ()).map_err(|_| format!("{text:?} is not a CIDR block such as 10.0.0.0/8"))
}

/// The part after `unix://`: an absolute path, or an abstract name, which begins with `@`.
pub(super) fn unix(path: &str) -> Checked {
    if path.starts_with('@') || (path.starts_with('/') && !path.ends_with('/')) {
        return Ok(());
    }
    Err(format!("{path:?} must be the absolute path of a socket, or an abstract name that begins with '@'"))
}
