//! Actions of routes: forwarding with its options, redirects, and direct responses (Istio's `applyHTTPRouteDestination`,
//! `ApplyRedirect`, `ApplyDirectResponse`).

use crate::proto::{
    envoy::{
        config::{
            core::v3::{DataSource, RuntimeFractionalPercent, data_source},
            route::v3::{
                DirectResponseAction, RedirectAction, RouteAction, RouteMatch,
                redirect_action::{PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier},
                route_action::{HostRewriteSpecifier, MaxStreamDuration, RequestMirrorPolicy},
                route_match::PathSpecifier,
            },
        },
        r#type::matcher::v3::RegexMatchAndSubstitute,
    },
    networking::{
        HttpDirectResponse, HttpMirrorPolicy, HttpRedirect, HttpRewrite, HttpRoute,
        http_body::Specifier,
        http_redirect::{RedirectPort, RedirectPortSelection},
    },
    seconds, wkt,
};

use super::{filters, matching};

/// Sets the timeout of a route; without one there is no limit. Proxyless gRPC reads another field than Envoy's users.
#[allow(deprecated, reason = "Istio sends the old field, since the new one behaves otherwise")]
pub(super) fn set_timeout(action: &mut RouteAction, timeout: Option<wkt::Duration>, proxyless: bool) {
    let timeout = timeout.unwrap_or(seconds(0));
    action.timeout = Some(timeout);
    if proxyless {
        action.max_stream_duration =
            Some(MaxStreamDuration { max_stream_duration: Some(timeout), ..Default::default() });
    } else {
        action.max_grpc_timeout = Some(timeout);
    }
}

/// Rewrites the path. Gateway API's prefix rewrite to `/` must not leave a double slash, so it becomes a regex.
pub(super) fn rewrite_path(
    action: &mut RouteAction,
    rewrite: &HttpRewrite,
    route_match: &RouteMatch,
    gateway_semantics: bool,
) {
    if let Some(regex) = &rewrite.uri_regex_rewrite {
        action.regex_rewrite = Some(RegexMatchAndSubstitute {
            pattern: Some(matching::regex(&regex.r#match)),
            substitution: regex.rewrite.clone(),
        });
    } else if gateway_semantics && rewrite.uri == "/" {
        let prefix = match &route_match.path_specifier {
            Some(PathSpecifier::PathSeparatedPrefix(prefix)) => prefix.as_str(),
            _ => "",
        };
        action.regex_rewrite = Some(RegexMatchAndSubstitute {
            pattern: Some(matching::regex(&format!("^{}(/?)(.*)", quote(prefix)))),
            substitution: r"/\2".to_string(),
        });
    } else {
        action.prefix_rewrite.clone_from(&rewrite.uri);
    }
}

/// RE2's way to quote a literal text.
fn quote(text: &str) -> String {
    text.chars()
        .flat_map(|c| r"\.+*?()|[]{}^$".contains(c).then_some('\\').into_iter().chain(std::iter::once(c)))
        .collect()
}

/// A new authority.
pub(super) fn host_rewrite(authority: &str) -> Option<HostRewriteSpecifier> {
    (!authority.is_empty()).then(|| HostRewriteSpecifier::HostRewriteLiteral(authority.to_string()))
}

/// The fraction of requests that `mirror` gets; `None` for an explicit 0 %.
#[allow(deprecated, reason = "Istio still takes `mirrorPercent`")]
pub(super) fn mirror_fraction(route: &HttpRoute) -> Option<RuntimeFractionalPercent> {
    let percent = match (&route.mirror_percentage, route.mirror_percent) {
        (Some(percent), _) => (percent.value > 0.0).then(|| filters::percentage(percent))?,
        (None, Some(0)) => return None,
        (None, Some(percent)) => filters::whole_percentage(percent),
        (None, None) => filters::whole_percentage(100),
    };
    Some(filters::fraction(percent))
}

/// The fraction of requests that one of `mirrors` gets; `None` for an explicit 0 %.
pub(super) fn mirror_policy_fraction(policy: &HttpMirrorPolicy) -> Option<RuntimeFractionalPercent> {
    let percent = match &policy.percentage {
        Some(percent) => (percent.value > 0.0).then(|| filters::percentage(percent))?,
        None => filters::whole_percentage(100),
    };
    Some(filters::fraction(percent))
}

/// Sends copies to a cluster; they are not traced.
pub(super) fn mirror(
    cluster: &str,
    fraction: RuntimeFractionalPercent,
    disable_shadow_host_suffix: bool,
) -> RequestMirrorPolicy {
    RequestMirrorPolicy {
        cluster: cluster.to_string(),
        runtime_fraction: Some(fraction),
        trace_sampled: Some(false),
        disable_shadow_host_suffix_append: disable_shadow_host_suffix,
        ..Default::default()
    }
}

/// A redirect; `None` for a code that Envoy does not know. The port of the request is the one that routes are built for.
pub(super) fn redirect(redirect: &HttpRedirect, listen_port: u32, tls: bool) -> Option<RedirectAction> {
    let code = match redirect.redirect_code {
        0 | 301 => RedirectResponseCode::MovedPermanently,
        302 => RedirectResponseCode::Found,
        303 => RedirectResponseCode::SeeOther,
        307 => RedirectResponseCode::TemporaryRedirect,
        308 => RedirectResponseCode::PermanentRedirect,
        _ => return None,
    };
    let path = if redirect.prefix_rewrite.is_empty() {
        PathRewriteSpecifier::PathRedirect(redirect.uri.clone())
    } else {
        PathRewriteSpecifier::PrefixRewrite(redirect.prefix_rewrite.clone())
    };
    let scheme = (!redirect.scheme.is_empty()).then(|| SchemeRewriteSpecifier::SchemeRedirect(redirect.scheme.clone()));
    Some(RedirectAction {
        host_redirect: redirect.authority.clone(),
        port_redirect: redirect_port(redirect, listen_port, tls),
        response_code: code.into(),
        path_rewrite_specifier: Some(path),
        scheme_rewrite_specifier: scheme,
        ..Default::default()
    })
}

/// The default port of the scheme is not written out.
fn redirect_port(redirect: &HttpRedirect, listen_port: u32, tls: bool) -> u32 {
    let port = match redirect.redirect_port {
        Some(RedirectPort::Port(port)) => port,
        Some(RedirectPort::DerivePort(p)) if p == i32::from(RedirectPortSelection::FromRequestPort) => listen_port,
        _ => 0,
    };
    let scheme = match redirect.scheme.as_str() {
        "" if tls => "https",
        "" => "http",
        given => given,
    };
    if matches!((port, scheme), (80, "http") | (443, "https")) { 0 } else { port }
}

/// A fixed answer.
pub(super) fn direct_response(response: &HttpDirectResponse) -> DirectResponseAction {
    let body = response.body.as_ref().and_then(|b| b.specifier.as_ref()).map(|specifier| DataSource {
        specifier: Some(match specifier {
            Specifier::String(text) => data_source::Specifier::InlineString(text.clone()),
            Specifier::Bytes(bytes) => data_source::Specifier::InlineBytes(bytes.clone()),
        }),
        ..Default::default()
    });
    DirectResponseAction { status: response.status, body, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_escapes_the_special_characters_of_re2() {
        assert_eq!(quote("/a.b+c-d/[e]"), r"/a\.b\+c-d/\[e\]");
    }

    #[test]
    fn default_ports_are_not_written_out() {
        let derived = |scheme: &str, tls, listen_port| {
            let port = Some(RedirectPort::DerivePort(RedirectPortSelection::FromRequestPort.into()));
            let asked = HttpRedirect { scheme: scheme.into(), redirect_port: port, ..Default::default() };
            redirect(&asked, listen_port, tls).unwrap().port_redirect
        };
        assert_eq!(derived("", false, 80), 0);
        assert_eq!(derived("", true, 80), 80);
        assert_eq!(derived("https", false, 443), 0);
        assert_eq!(derived("", false, 8080), 8080);
    }
}
