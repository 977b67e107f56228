//! Values and patterns of AuthorizationPolicy, from its documentation alone.

use std::net::IpAddr;

/// Exact, prefix, suffix, or presence.
pub fn is_like(value: &str, pattern: &str) -> bool {
    if pattern == "*" {
        return !value.is_empty();
    }
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => value.ends_with(end),
        (_, Some(start)) => value.starts_with(start),
        _ => value == pattern,
    }
}

/// `{*}` is one segment, `{**}` any number.
pub fn is_like_path(path: &str, pattern: &str) -> bool {
    if !pattern.contains("{*}") && !pattern.contains("{**}") {
        return is_like(path, pattern);
    }
    let (mut given, mut wanted) = (path.split('/'), pattern.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (Some("{**}"), Some(_)) | (None, None) => return true,
            (Some("{*}"), Some(segment)) if !segment.is_empty() => {}
            (Some(literal), Some(segment)) if literal == segment => {}
            _ => return false,
        }
    }
}

/// An address, or a block of them.
pub fn is_in(ip: &str, block: &str) -> bool {
    let ip: IpAddr = ip.parse().unwrap();
    block.parse::<ipnet::IpNet>().map_or_else(|_| block.parse() == Ok(ip), |net| net.contains(&ip))
}
