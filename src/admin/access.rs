//! Access to the pages, and to the requests that change something.
//!
//! The loopback interface alone proves little: a browser on this machine opens any web site, and that site may send requests
//! here (CSRF) or point its own name at this machine (DNS rebinding). So the `Host` of a request must be an address or
//! `localhost`, and a request with an effect must not come from a web page.

use actix_web::{
    Error, HttpResponse,
    body::{EitherBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method,
        header::{self, HeaderMap},
    },
    middleware::Next,
    web,
};

use super::AdminState;

/// Lets a request through or refuses it.
pub(super) async fn guarded<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let open = request.app_data::<web::Data<AdminState>>().is_some_and(|s| s.open_debug);
    let local = request.peer_addr().is_some_and(|a| a.ip().to_canonical().is_loopback());
    let named = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or("?"));
    let host = request.uri().host().or(named);
    match refusal(open, local, host, request.method(), request.headers()) {
        Some(text) => Ok(request.into_response(HttpResponse::Forbidden().body(text)).map_into_right_body()),
        None => Ok(next.call(request).await?.map_into_left_body()),
    }
}

pub(super) fn refusal(
    open: bool,
    local: bool,
    host: Option<&str>,
    method: &Method,
    headers: &HeaderMap,
) -> Option<&'static str> {
    if !open && !local {
        return Some("debug pages answer on the loopback interface only; --open-debug opens them\n");
    }
    if !open && host.is_some_and(|host| !is_this_machine(host)) {
        return Some("debug pages are asked for by an address or as localhost; --open-debug opens them\n");
    }
    let safe = *method == Method::GET || *method == Method::HEAD;
    if !safe && is_of_web_page(headers) {
        return Some("no web page may do this\n");
    }
    None
}

/// Whether the headers are those of a browser's request for a web page that it shows.
fn is_of_web_page(headers: &HeaderMap) -> bool {
    let fetched = headers.get("sec-fetch-site").is_some_and(|site| site != "none");
    fetched || headers.contains_key(header::ORIGIN)
}

/// Whether a host, with or without its port, is an address or a name that means the local machine everywhere.
fn is_this_machine(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').is_some_and(|(ip, _)| ip.parse::<std::net::Ipv6Addr>().is_ok());
    }
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || name.parse::<std::net::Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn names_of_web_sites_are_not_this_machine() {
        for host in ["127.0.0.1:8080", "10.0.0.1", "localhost", "LocalHost.:80", "a.localhost:1", "[::1]:8080", "[::1]"]
        {
            assert!(is_this_machine(host), "{host}");
        }
        for host in
            ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "[x]", "?", ""]
        {
            assert!(!is_this_machine(host), "{host}");
        }
    }

    #[test]
    fn a_web_page_may_have_no_effect() {
        let asks = |method: &Method, header: Option<(&'static str, &'static str)>| {
            let pair = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
            refusal(false, true, Some("127.0.0.1:80"), method, &header.map(pair).into_iter().collect())
        };
        assert_eq!(asks(&Method::POST, None), None);
        assert_eq!(asks(&Method::GET, Some(("origin", "http://evil.example"))), None);
        assert!(asks(&Method::POST, Some(("origin", "http://evil.example"))).is_some());
        assert!(asks(&Method::POST, Some(("sec-fetch-site", "cross-site"))).is_some());
        assert!(refusal(false, false, None, &Method::GET, &HeaderMap::new()).is_some());
        assert!(refusal(true, false, Some("pilothouse.mesh"), &Method::GET, &HeaderMap::new()).is_none());
    }
}
