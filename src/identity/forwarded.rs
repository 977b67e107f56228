//! The header `x-forwarded-client-cert`, by which a proxy that ends TLS tells of its client's certificate.
//!
//! A header is a list of elements, one for each proxy on the way, of fields `Key=value;…`; values may be quoted. Istio takes
//! every name of every element for one of the caller's. Here the last element counts, the one that the trusted proxy itself has
//! written: those before it came from its client, which may have made them up.

use crate::model::Identity;

/// Bytes of a header that are read. Envoy's own limit for all headers is 60 kB; a chain of certificates may be among them.
pub(super) const MAX_HEADER: usize = 48 << 10;
/// Elements and fields that are read.
const MAX_PARTS: usize = 256;

/// The reason that a header proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ForwardedError {
    #[error("it has more than {MAX_HEADER} bytes")]
    Length,
    #[error("it has more than {MAX_PARTS} elements and fields")]
    Parts,
    #[error("a quote is not closed, or text follows one")]
    Quote,
    #[error("a field has no value")]
    Field,
    #[error("the last element has not exactly one URI")]
    Uris,
    #[error("its URI is no SPIFFE id of a service account")]
    Id,
}

/// The identity of the client that the last proxy on the way saw.
pub(super) fn identity(header: &str) -> Result<Identity, ForwardedError> {
    if header.len() > MAX_HEADER {
        return Err(ForwardedError::Length);
    }
    let elements = elements(header)?;
    let last = elements.last().map(Vec::as_slice).unwrap_or_default();
    let mut uris = last.iter().filter(|(key, _)| key.eq_ignore_ascii_case("uri")).map(|(_, value)| value);
    let (Some(uri), None) = (uris.next(), uris.next()) else { return Err(ForwardedError::Uris) };
    Identity::parse(uri).filter(|id| id.is_well_formed()).ok_or(ForwardedError::Id)
}

/// Fields of each element, in order.
fn elements(header: &str) -> Result<Vec<Vec<(&str, String)>>, ForwardedError> {
    let (mut elements, mut fields, mut rest, mut parts) = (Vec::new(), Vec::new(), header, 0);
    loop {
        parts += 1;
        if parts > MAX_PARTS {
            return Err(ForwardedError::Parts);
        }
        let (key, after) = rest.split_once('=').ok_or(ForwardedError::Field)?;
        let key = key.trim();
        if key.is_empty() || key.contains([';', ',', '"']) {
            return Err(ForwardedError::Field);
        }
        let (value, after) = value(after)?;
        fields.push((key, value));
        let mut next = after.chars();
        match next.next() {
            Some(';') => rest = next.as_str(),
            Some(',') => {
                elements.push(std::mem::take(&mut fields));
                rest = next.as_str();
            }
            _ => {
                elements.push(fields);
                return Ok(elements);
            }
        }
    }
}

/// A value, and the text behind it, which is empty or begins with a separator.
fn value(text: &str) -> Result<(String, &str), ForwardedError> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ',']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return if value.contains('"') { Err(ForwardedError::Quote) } else { Ok((value.trim().to_string(), rest)) };
    };
    let (mut value, mut characters) = (String::new(), quoted.chars());
    loop {
        match characters.next().ok_or(ForwardedError::Quote)? {
            '\\' => value.push(characters.next().ok_or(ForwardedError::Quote)?),
            '"' => break,
            other => value.push(other),
        }
    }
    let rest = characters.as_str().trim_start();
    if rest.is_empty() || rest.starts_with([';', ',']) { Ok((value, rest)) } else { Err(ForwardedError::Quote) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "spiffe://mesh/ns/shop/sa/cart";

    fn of(header: &str) -> Result<String, ForwardedError> {
        identity(header).map(|id| id.to_string())
    }

    #[test]
    fn the_identity_is_the_uri_of_the_last_element() {
        let by =
            "By=spiffe://mesh/ns/x/sa/gateway;Hash=468ed33be74eee6556d90c0149c1309e9ba61d6425303443c0748a02dd8de688";
        let subject = r#"Subject="CN=\"a\",O=spiffe://mesh/ns/root/sa/root;URI=spiffe://mesh/ns/root/sa/root""#;
        for header in [
            format!("URI={ID}"),
            format!("uri={ID}"),
            format!("{by};{subject};URI={ID};DNS=cart.example;DNS=www.cart.example"),
            format!("{by};URI=\"{ID}\""),
            format!("URI=spiffe://mesh/ns/root/sa/root,{by};URI={ID}"),
            format!("{by};URI=spiffe://mesh/ns/root/sa/root , {by};URI={ID}"),
            format!("{by};Cert=\"-----BEGIN%20CERTIFICATE-----%0A\";URI={ID};{subject}"),
        ] {
            assert_eq!(of(&header), Ok(ID.to_string()), "{header}");
        }
    }

    #[test]
    fn other_headers_prove_nothing() {
        let id = |rest: &str| format!("URI={ID}{rest}");
        for (header, error) in [
            (String::new(), ForwardedError::Field),
            ("URI".to_string(), ForwardedError::Field),
            (id(";"), ForwardedError::Field),
            (id(","), ForwardedError::Field),
            (id(",Hash=1"), ForwardedError::Uris),
            (id(&format!(";URI={ID}")), ForwardedError::Uris),
            ("URI=".to_string(), ForwardedError::Id),
            ("DNS=cart.example".to_string(), ForwardedError::Uris),
            ("URI=spiffe://mesh/ns/shop/sa/cart/more".to_string(), ForwardedError::Id),
            ("URI=spiffe://mesh/ns//sa/cart".to_string(), ForwardedError::Id),
            ("URI=SPIFFE://mesh/ns/shop/sa/cart".to_string(), ForwardedError::Id),
            (format!("URI=\"{ID}"), ForwardedError::Quote),
            (format!("URI=\"{ID}\"x"), ForwardedError::Quote),
            (format!("URI={ID}\""), ForwardedError::Quote),
            (format!("Subject=\"a\\\";URI={ID}"), ForwardedError::Quote),
            (id(&";a=b".repeat(MAX_PARTS)), ForwardedError::Parts),
            (format!("Cert={};URI={ID}", "a".repeat(MAX_HEADER)), ForwardedError::Length),
        ] {
            assert_eq!(of(&header), Err(error), "{}", &header[..header.len().min(200)]);
        }
    }

    #[test]
    fn no_text_makes_it_panic() {
        let pieces = ["URI=", ID, ";", ",", "\"", "\\", "=", " ", "é", "By="];
        let mut seed = 7u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..8 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
            }
            let _ = identity(&text);
        }
    }
}
