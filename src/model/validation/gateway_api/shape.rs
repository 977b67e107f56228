//! Forms of strings, and the string schemas that several kinds share.

use super::schema::{Form, Node};

const ANYTHING: Form = ("a string", |_| true);
const LABEL: Form = ("a DNS label (lower case letters, digits and -)", is_label);
const SUBDOMAIN: Form = ("a DNS name (lower case letters, digits, - and .)", is_subdomain);
const GROUP_NAME: Form =
    ("a DNS name (lower case letters, digits, - and .), or empty", |t| t.is_empty() || is_subdomain(t));
const KIND_NAME: Form = ("a kind (letters, digits and -, beginning with a letter)", is_kind);
const HOST: Form = ("a DNS name, with or without *. before it", |t| is_subdomain(t.strip_prefix("*.").unwrap_or(t)));
const TOKEN: Form = ("the name of a header", |t| t.bytes().all(is_token));
const PRINTABLE: Form = ("the value of a header (no space at its ends, no control characters)", is_header_value);
const PATH: Form = ("a path of a URI", is_path);
const SPAN: Form = ("a duration such as 10s, 1m30s or 500ms", is_duration);
const CONTROLLER_NAME: Form = ("a domain, / and a path", is_domain_prefixed);
const PROTOCOL_NAME: Form = ("a protocol, or a domain, / and a protocol", is_protocol);
const LABEL_TEXT: Form = ("the value of a label", is_label_value);
const URI: Form = ("a URI with a scheme and //", is_uri);
const ORIGIN_NAME: Form = ("*, or http:// or https:// and a host", is_origin);
const ADDRESS_TYPE_NAME: Form = ("Hostname, IPAddress, NamedAddress, or a domain, / and a type", is_address_type);
const TRUST: Form = ("System, or a domain, / and a name", |t| t == "System" || is_domain_prefixed(t));

pub(super) const ANY: Node = Node::Text(0, usize::MAX, ANYTHING);
pub(super) const LONG: Node = Node::Text(0, 4096, ANYTHING);
pub(super) const DESCRIPTION: Node = Node::Text(0, 64, ANYTHING);
pub(super) const OBJECT_NAME: Node = Node::Text(1, 253, ANYTHING);
pub(super) const NAMESPACE: Node = Node::Text(1, 63, LABEL);
pub(super) const SECTION: Node = Node::Text(1, 253, SUBDOMAIN);
pub(super) const GROUP: Node = Node::Text(0, 253, GROUP_NAME);
pub(super) const KIND: Node = Node::Text(1, 63, KIND_NAME);
pub(super) const HOSTNAME: Node = Node::Text(1, 253, HOST);
pub(super) const PRECISE_HOSTNAME: Node = Node::Text(1, 253, SUBDOMAIN);
pub(super) const HEADER_NAME: Node = Node::Text(1, 256, TOKEN);
pub(super) const HEADER_VALUE: Node = Node::Text(1, 4096, PRINTABLE);
pub(super) const MATCH_VALUE: Node = Node::Text(1, 4096, ANYTHING);
pub(super) const QUERY_VALUE: Node = Node::Text(1, 1024, ANYTHING);
pub(super) const PATH_TEXT: Node = Node::Text(0, 1024, ANYTHING);
pub(super) const AUTH_PATH: Node = Node::Text(0, 1024, PATH);
pub(super) const DURATION: Node = Node::Text(1, 64, SPAN);
pub(super) const CONTROLLER: Node = Node::Text(1, 253, CONTROLLER_NAME);
pub(super) const PROTOCOL: Node = Node::Text(1, 255, PROTOCOL_NAME);
pub(super) const LABEL_VALUE: Node = Node::Text(0, 63, LABEL_TEXT);
pub(super) const ADDRESS_TYPE: Node = Node::Text(1, 253, ADDRESS_TYPE_NAME);
pub(super) const ADDRESS: Node = Node::Text(0, 253, ANYTHING);
pub(super) const SAN_URI: Node = Node::Text(1, 253, URI);
pub(super) const ORIGIN: Node = Node::Text(1, 253, ORIGIN_NAME);
pub(super) const WELL_KNOWN: Node = Node::Text(1, 253, TRUST);
pub(super) const PORT: Node = Node::Integer(1, 65535);

fn is_word(text: &str, inner: impl Fn(u8) -> bool, outer: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let ends = bytes.first().is_some_and(|b| outer(*b)) && bytes.last().is_some_and(|b| outer(*b));
    ends && bytes.iter().all(|b| inner(*b))
}

const fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    is_word(text, |b| is_lower(b) || b == b'-', is_lower)
}

/// Whether the text is a DNS name in lower case.
pub(super) fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_kind(text: &str) -> bool {
    let word = is_word(text, |b| b.is_ascii_alphanumeric() || b == b'-', |b| b.is_ascii_alphanumeric());
    word && text.starts_with(|c: char| c.is_ascii_alphabetic())
}

const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
}

fn is_header_value(text: &str) -> bool {
    let graphic = |b: u8| (b'!'..=b'~').contains(&b);
    let spaced = text.as_bytes().windows(2).all(|pair| graphic(pair[0]) || graphic(pair[1]));
    spaced && is_word(text, |b| graphic(b) || b == b' ' || b == b'\t', graphic)
}

/// Whether all characters are allowed in the path of a URI.
pub(super) fn is_path(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-/._~!$&'()*+,;=:@".contains(&b);
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        rest = match (first, others) {
            (b'%', [a, b, after @ ..]) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => after,
            (byte, others) if plain(*byte) => others,
            _ => return false,
        };
    }
    !text.is_empty()
}

/// A Gateway API duration in milliseconds.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let (mut rest, mut parts, mut sum) = (text, 0, 0);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = rest.split_at_checked(digits).filter(|_| (1..=5).contains(&digits))?;
        let (scale, length) = match unit.as_bytes() {
            [b'm', b's', ..] => (1, 2),
            [b'h', ..] => (3_600_000, 1),
            [b'm', ..] => (60_000, 1),
            [b's', ..] => (1000, 1),
            _ => return None,
        };
        sum += number.parse::<u64>().ok()? * scale;
        (rest, parts) = (&unit[length..], parts + 1);
    }
    (1..=4).contains(&parts).then_some(sum)
}

fn is_duration(text: &str) -> bool {
    milliseconds(text).is_some()
}

fn is_domain_prefixed(text: &str) -> bool {
    let path =
        |p: &str| !p.is_empty() && p.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b));
    text.split_once('/').is_some_and(|(domain, rest)| is_subdomain(domain) && path(rest))
}

fn is_protocol(text: &str) -> bool {
    let word = |t: &str| is_word(t, |b| b.is_ascii_alphanumeric() || b == b'-', |b| b.is_ascii_alphanumeric());
    let prefixed = |(domain, name): (&str, &str)| {
        is_subdomain(domain) && name.bytes().all(|b| b.is_ascii_alphanumeric()) && !name.is_empty()
    };
    word(text) || text.split_once('/').is_some_and(prefixed)
}

fn is_label_value(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    text.is_empty() || is_word(text, inner, |b| b.is_ascii_alphanumeric())
}

/// Whether the text is a valid key of a label or annotation.
pub(super) fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.rsplit_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let prefixed = prefix.is_none_or(|p| p.len() < 253 && is_subdomain(p));
    prefixed && name.len() <= 63 && !name.is_empty() && is_label_value(name)
}

fn is_uri(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| !scheme.is_empty() && !scheme.contains([':', '/', '?', '#']))
}

fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let (host, port) = host.map_or(("", ""), |h| h.split_once(':').unwrap_or((h, "0")));
    let name = host.strip_prefix("*.").unwrap_or(host);
    let labels = name.split('.').all(|l| !l.is_empty() && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'));
    let port = (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
    text == "*" || ((host == "*" || labels) && port)
}

fn is_address_type(text: &str) -> bool {
    // The CRD's pattern is not anchored: a text that contains one of the names fits too.
    ["Hostname", "IPAddress", "NamedAddress"].iter().any(|name| text.contains(name)) || is_domain_prefixed(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_hold_at_their_edges() {
        for (form, good, bad) in [
            (HOST, vec!["a", "*.a.b", "a-1.b"], vec!["*", "a.*.b", "A", "-a", "a..b", ""]),
            (SPAN, vec!["0s", "1h30m5s10ms", "99999ms"], vec!["5 sec", "1.5s", "", "100000s", "1s1s1s1s1s", "s"]),
            (PRINTABLE, vec!["a b", "a"], vec![" a", "a ", "a  b", "a\nb", "ä"]),
            (TOKEN, vec!["x-Y", "a'b"], vec!["a b", "a:b", "a/b", "(a)"]),
            (PATH, vec!["/a%2Fb", "/a:b"], vec!["/a b", "/%zz", "", "/ä"]),
            (CONTROLLER_NAME, vec!["istio.io/gateway-controller"], vec!["istio.io", "istio.io/", "I/x"]),
            (PROTOCOL_NAME, vec!["HTTP", "a.b/Proto"], vec!["-x", "a b", "a/b-c"]),
            (
                ORIGIN_NAME,
                vec!["*", "https://*.a:80", "http://a", "http://*"],
                vec!["a", "ftp://a", "http://a:b", "http://"],
            ),
            (URI, vec!["spiffe://a/b"], vec!["a", "://b", "a?://b"]),
            (LABEL_TEXT, vec!["", "a.b_c"], vec!["-a", "a b"]),
        ] {
            good.iter().for_each(|text| assert!(form.1(text), "{text:?} is {}", form.0));
            bad.iter().for_each(|text| assert!(!form.1(text), "{text:?} is not {}", form.0));
        }
        assert!(
            is_label_key("a.b/c_d")
                && is_label_key("x")
                && !is_label_key("A/b")
                && !is_label_key("a/")
                && !is_label_key("")
        );
        assert_eq!(milliseconds("1m1s1ms"), Some(61_001));
    }
}
