//! Access to the pages, and to the requests that change something.
//!
//! The loopback interface alone proves little: a browser on this machine opens any web site, and that site may send requests
//! here (CSRF) or point its own name at this machine (DNS rebinding). So the `Host` of a request must be an address or
//! `localhost`, and a request with an effect must not come from a web page. Callers from elsewhere prove an identity as clients
//! of xDS do, by a token; those outside of the root namespace see proxies of their own namespace alone.

use std::sync::Arc;

use actix_web::{
    Error, HttpMessage, HttpRequest, HttpResponse,
    body::{EitherBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method, StatusCode,
        header::{self, HeaderMap},
    },
    middleware::Next,
    web,
};

use super::AdminState;
use crate::{
    discovery::debug::DebugAudience,
    identity::{Presented, Unauthenticated},
};

/// The caller of a page.
#[derive(Debug, Clone, Default)]
pub(super) struct Viewer(Option<Arc<str>>);

impl Viewer {
    /// The namespace whose proxies alone the caller may see.
    pub(super) fn limit(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// A reason that a request is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It comes from elsewhere.
    Elsewhere,
    /// It names another host, as that of a web site would.
    Host,
    /// A web page sent it.
    WebPage,
}

impl Refusal {
    fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Self::Elsewhere => (
                StatusCode::UNAUTHORIZED,
                "debug pages answer callers from elsewhere by their token (authorization: Bearer ...); --open-debug opens them\n",
            ),
            Self::Host => (
                StatusCode::FORBIDDEN,
                "debug pages are asked for by an address or as localhost; --open-debug opens them\n",
            ),
            Self::WebPage => (StatusCode::FORBIDDEN, "no web page may do this\n"),
        }
    }
}

/// Lets a request through or refuses it.
pub(super) async fn guarded<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let Some(state) = request.app_data::<web::Data<AdminState>>().cloned() else {
        return Ok(request.into_response(HttpResponse::InternalServerError()).map_into_right_body());
    };
    match viewer(&request, &state).await {
        Ok(viewer) => {
            request.extensions_mut().insert(viewer);
            Ok(next.call(request).await?.map_into_left_body())
        }
        Err((status, text)) => {
            let mut response = HttpResponse::build(status);
            if status == StatusCode::UNAUTHORIZED {
                response.insert_header((header::WWW_AUTHENTICATE, "Bearer"));
            }
            Ok(request.into_response(response.body(text)).map_into_right_body())
        }
    }
}

async fn viewer(request: &ServiceRequest, state: &AdminState) -> Result<Viewer, (StatusCode, &'static str)> {
    let access = &state.access;
    if access.off {
        return Err((StatusCode::NOT_FOUND, "debug pages are turned off (ENABLE_DEBUG_ON_HTTP)\n"));
    }
    let caller = Caller::of(request.request());
    let refused = match refusal(access.open, &caller, request.method()) {
        None => return Ok(Viewer::default()),
        Some(refused @ (Refusal::Elsewhere | Refusal::Host)) => refused,
        Some(refused) => return Err(refused.answer()),
    };
    let presented = presented(request);
    let shows = presented.authorization.is_some() || presented.forwarded.is_some();
    let Some(authenticator) = access.authenticator.as_ref().filter(|_| shows) else { return Err(refused.answer()) };
    // The reason is for the log: Istio's answer has none either.
    let proof = authenticator.admit(presented).await.map_err(|error| match error {
        Unauthenticated::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "the token cannot be checked now\n"),
        _ => (StatusCode::UNAUTHORIZED, "no identity was proven\n"),
    })?;
    let identity = proof.identity.ok_or_else(|| refused.answer())?;
    let not_ready = (StatusCode::SERVICE_UNAVAILABLE, "the first configuration is not complete yet\n");
    let audience = DebugAudience::of(&*state.context().ok_or(not_ready)?);
    let limit = audience.limit(&identity);
    let page = request.path().strip_prefix("/debug/").unwrap_or_default();
    if !DebugAudience::may_ask(limit.as_deref(), page) {
        return Err((StatusCode::FORBIDDEN, "this page is for the root namespace only\n"));
    }
    Ok(Viewer(limit))
}

/// The proofs of its identity that a caller presents. It has to prove one, although HTTP is plain text.
fn presented(request: &ServiceRequest) -> Presented {
    let headers = Presented::of_headers(|name| request.headers().get(name)?.to_str().ok());
    Presented { secure: true, peer: request.peer_addr(), ..headers }
}

/// The program that a request comes from, as far as its headers tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    /// No browser, or one whose user typed the address.
    Program,
    /// The dashboard, for a path of its own.
    Dashboard,
    /// Any other web page.
    WebPage,
}

/// The caller of a request, on whom access depends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caller<'a> {
    local: bool,
    host: Option<&'a str>,
    sender: Sender,
}

impl<'a> Caller<'a> {
    fn of(request: &'a HttpRequest) -> Self {
        let local = request.peer_addr().is_some_and(|a| a.ip().to_canonical().is_loopback());
        let named = request.headers().get(header::HOST).map(|host| host.to_str().unwrap_or("?"));
        Self::new(local, request.uri().host().or(named), request.path(), request.headers())
    }

    pub(super) fn new(local: bool, host: Option<&'a str>, path: &str, headers: &HeaderMap) -> Self {
        let sender = match () {
            () if path.starts_with("/dashboard/") && is_of_own_page(host, headers) => Sender::Dashboard,
            () if is_of_web_page(headers) => Sender::WebPage,
            () => Sender::Program,
        };
        Self { local, host, sender }
    }
}

/// The reason that a request without proof of identity is not answered.
pub(super) fn refusal(open: bool, caller: &Caller<'_>, method: &Method) -> Option<Refusal> {
    let safe = *method == Method::GET || *method == Method::HEAD;
    if !safe && caller.sender == Sender::WebPage {
        return Some(Refusal::WebPage);
    }
    if !open && !caller.local {
        return Some(Refusal::Elsewhere);
    }
    (!open && caller.host.is_some_and(|host| !is_this_machine(host))).then_some(Refusal::Host)
}

/// Whether the headers are those of a browser's request for a web page that it shows.
fn is_of_web_page(headers: &HeaderMap) -> bool {
    let fetched = headers.get("sec-fetch-site").is_some_and(|site| site != "none");
    fetched || headers.contains_key(header::ORIGIN)
}

/// The header of the dashboard's requests. A page of another origin may send it only after a question that is refused here.
const OWN: &str = "x-pilothouse-dashboard";

/// Whether a request is one of the dashboard, shown by this server under an address of its own or as `localhost`: it has the
/// dashboard's header, which no form can send; the browser calls it one of the same origin; and that origin is the host that is
/// asked. The host is never a name that others can point here, also where the pages are open to all.
fn is_of_own_page(host: Option<&str>, headers: &HeaderMap) -> bool {
    let Some(host) = host.filter(|host| is_this_machine(host)) else { return false };
    let text = |value: &header::HeaderValue| value.to_str().unwrap_or("?").to_string();
    let same_site = headers.get("sec-fetch-site").is_none_or(|site| site == "same-origin");
    let origin = headers.get(header::ORIGIN).map(text);
    let same_origin = origin.is_none_or(|origin| {
        let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
    });
    headers.get(OWN).is_some_and(|value| value == "1") && same_site && same_origin
}

/// Whether a request comes from a program on this machine, or from the dashboard in a browser on it: the condition for changes
/// that no proof of identity replaces.
pub(super) fn may_change(request: &HttpRequest) -> bool {
    let caller = Caller::of(request);
    caller.local && caller.sender != Sender::WebPage
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
    fn the_dashboard_is_told_from_other_pages() {
        let asks = |host: &str, headers: &[(&'static str, &'static str)]| {
            let pair = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            is_of_own_page(Some(host), &headers.iter().map(pair).collect())
        };
        let own = (OWN, "1");
        let (same, origin) = (("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:8080"));
        assert!(asks("127.0.0.1:8080", &[own, same, origin]));
        assert!(asks("localhost:8080", &[own, same, ("origin", "http://localhost:8080")]));
        for (host, headers) in [
            ("127.0.0.1:8080", &[same, origin][..]),
            ("127.0.0.1:8080", &[(OWN, "0"), same, origin]),
            ("127.0.0.1:8080", &[own, ("sec-fetch-site", "same-site"), origin]),
            ("127.0.0.1:8080", &[own, ("sec-fetch-site", "cross-site"), origin]),
            ("127.0.0.1:8080", &[own, same, ("origin", "http://127.0.0.1:9090")]),
            ("127.0.0.1:8080", &[own, same, ("origin", "null")]),
            ("evil.example:8080", &[own, same, ("origin", "http://evil.example:8080")]),
        ] {
            assert!(!asks(host, headers), "{host} {headers:?}");
        }
    }

    #[test]
    fn a_web_page_may_have_no_effect() {
        let asks = |method: &Method, header: Option<(&'static str, &'static str)>| {
            let pair = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
            let headers = header.map(pair).into_iter().collect();
            refusal(false, &Caller::new(true, Some("127.0.0.1:80"), "/debug/adsz", &headers), method)
        };
        assert_eq!(asks(&Method::POST, None), None);
        assert_eq!(asks(&Method::GET, Some(("origin", "http://evil.example"))), None);
        assert!(asks(&Method::POST, Some(("origin", "http://evil.example"))).is_some());
        assert!(asks(&Method::POST, Some(("sec-fetch-site", "cross-site"))).is_some());
        let from = |local: bool, host| Caller::new(local, host, "/debug/adsz", &HeaderMap::new());
        assert_eq!(refusal(false, &from(false, None), &Method::GET), Some(Refusal::Elsewhere));
        assert!(refusal(true, &from(false, Some("pilothouse.mesh")), &Method::GET).is_none());
    }

    #[test]
    fn the_dashboard_may_have_an_effect_on_its_own_paths_alone() {
        let pair = |(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        let own = [(OWN, "1"), ("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:80")];
        let headers: HeaderMap = own.map(pair).into_iter().collect();
        let asks = |host, path: &str, local: bool| {
            let caller = Caller::new(local, Some(host), path, &headers);
            (caller.sender, refusal(false, &caller, &Method::POST))
        };
        assert_eq!(asks("127.0.0.1:80", "/dashboard/api/confirm", true), (Sender::Dashboard, None));
        assert_eq!(asks("127.0.0.1:80", "/debug/adsz", true), (Sender::WebPage, Some(Refusal::WebPage)));
        assert_eq!(asks("evil.example", "/dashboard/api/confirm", true).1, Some(Refusal::WebPage));
        assert_eq!(asks("127.0.0.1:80", "/dashboard/api/confirm", false).1, Some(Refusal::Elsewhere));
    }
}
