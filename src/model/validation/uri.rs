//! URI parsing as in Go's `net/url`, which decides the URIs that Istio accepts.

/// The parts of a URI that rules read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Uri {
    /// Scheme in lower case; empty without one.
    pub(super) scheme: String,
    /// Port of the authority, as text after the host's colon.
    pub(super) port: String,
}

/// Parses a URI reference: an absolute or relative URI.
pub(super) fn reference(text: &str) -> Result<Uri, String> {
    let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
    let uri = read(text, false)?;
    escapes(fragment)?;
    Ok(uri)
}

/// Parses the target of a request line: an absolute URI or an absolute path.
pub(super) fn of_request(text: &str) -> Result<Uri, String> {
    read(text, true)
}

fn read(text: &str, request: bool) -> Result<Uri, String> {
    if text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return Err(format!("{text:?} holds control characters"));
    }
    if text.is_empty() && request {
        return Err("it is empty".to_string());
    }
    if text == "*" {
        return Ok(Uri::default());
    }
    let (scheme, rest) = split_scheme(text)?;
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(Uri { scheme, ..Uri::default() });
        }
        if request {
            return Err(format!("{text:?} is neither an absolute URI nor an absolute path"));
        }
        let first = rest.split('/').next().unwrap_or_default();
        if first.contains(':') {
            return Err(format!("{text:?}: the first segment of the path holds a colon"));
        }
    }
    let mut uri = Uri { scheme, ..Uri::default() };
    let has_authority = !uri.scheme.is_empty() || (!request && !rest.starts_with("///"));
    let path = match rest.strip_prefix("//").filter(|_| has_authority) {
        Some(rest) => {
            let end = rest.find('/').unwrap_or(rest.len());
            uri.port = port_of(&rest[..end])?;
            &rest[end..]
        }
        None => rest,
    };
    escapes(path)?;
    Ok(uri)
}

fn split_scheme(text: &str) -> Result<(String, &str), String> {
    for (at, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at > 0 => return Ok((text[..at].to_ascii_lowercase(), &text[at + 1..])),
            ':' => return Err(format!("{text:?} has no scheme before the colon")),
            _ => break,
        }
    }
    Ok((String::new(), text))
}

/// The port of an authority, after validation of its host.
fn port_of(authority: &str) -> Result<String, String> {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if let Some(bad) = user.chars().find(|c| !c.is_ascii_alphanumeric() && !"-._:~!$&'()*+,;=%@".contains(*c)) {
        return Err(format!("user information {user:?} holds {bad:?}"));
    }
    escapes(user)?;
    let port = if host.starts_with('[') {
        let end = host.rfind(']').ok_or_else(|| format!("{host:?} lacks the closing bracket"))?;
        &host[end + 1..]
    } else {
        host.rfind(':').map_or("", |at| &host[at..])
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if !(port.is_empty() || port.starts_with(':')) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("{port:?} behind the host is not a port"));
    }
    let allowed = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(c);
    if let Some(bad) = host.chars().find(|c| !allowed(*c)) {
        return Err(format!("host {host:?} holds {bad:?}"));
    }
    escapes(host)?;
    Ok(digits.to_string())
}

/// Checks that every `%` begins two hexadecimal digits.
fn escapes(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    let whole = |at: usize| (at + 1..at + 3).all(|i| bytes.get(i).is_some_and(u8::is_ascii_hexdigit));
    match text.match_indices('%').find(|(at, _)| !whole(*at)) {
        Some((at, _)) => Err(format!("{:?} is not an escape", text.get(at..(at + 3).min(text.len())).unwrap_or("%"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_as_go_reads_them() {
        assert_eq!(reference("HTTPS://a.b:8443/c?d#e"), Ok(Uri { scheme: "https".into(), port: "8443".into() }));
        assert_eq!(reference("a.b/c"), Ok(Uri::default()));
        assert!(reference("https://user:p%40ss@a.b/").is_ok());
        for bad in ["https://a#b@c/d".replace('#', "\""), "https://a%2@b/".to_string()] {
            assert!(reference(&bad).is_err() && of_request(&bad).is_err(), "{bad}");
        }
        assert!(of_request("http://#%blah$#@").is_err());
        for bad in ["https://a.b:x", "/c%2", ":a", "http://a b/", "http://[::1", "/%zz", "a\u{1}"] {
            assert!(reference(bad).is_err(), "{bad}");
        }
        assert!(of_request("a.b/c").is_err() && of_request("/a").is_ok() && of_request("").is_err());
    }
}
