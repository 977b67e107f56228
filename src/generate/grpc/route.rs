//! Virtual hosts in the form that gRPC takes: gRPC refuses a whole route configuration for a value that it does not know,
//! and passes over others in silence. Each value that is left out is reported.

use std::collections::BTreeSet;

use super::not_applied::NotApplied;
use crate::{
    generate::route::FAULT,
    model::ConfigKey,
    proto::{
        envoy::{
            config::route::v3::{
                Route, RouteAction, RouteMatch, VirtualHost, route::Action, route_action::ClusterSpecifier,
                route_match::PathSpecifier,
            },
            extensions::filters::http::fault::v3::{FaultAbort, HttpFault, fault_abort::ErrorType},
            r#type::v3::{FractionalPercent, fractional_percent::DenominatorType},
        },
        to_any,
    },
};

const NOT_FORWARDED: &str = "redirects and direct responses (calls on the route fail)";
/// The HTTP status of gRPC's `UNAVAILABLE`.
const UNAVAILABLE: u32 = 503;

/// Changes a virtual host so that gRPC takes it. The answer names the fields of its routes that gRPC does not apply; `objects`
/// are those that the routes were made from, one for each, and `cluster` is that of the host itself.
pub(super) fn fit(host: &mut VirtualHost, objects: &[Option<ConfigKey>], cluster: &str) -> Vec<NotApplied> {
    // gRPC-Java fails the whole channel over an absolute name.
    host.domains.retain(|domain| !domain.split(':').next().unwrap_or_default().ends_with('.'));
    let mut said = Vec::new();
    for (at, route) in host.routes.iter_mut().enumerate() {
        let missing = fit_route(route, cluster);
        if !missing.is_empty() {
            let missing = missing.into_iter().collect::<Vec<_>>().join(", ");
            let name = if route.name.is_empty() { "a route".to_string() } else { format!("route {:?}", route.name) };
            said.push(NotApplied {
                object: objects.get(at).cloned().flatten(),
                message: format!("virtual host {:?}: {name}: proxyless gRPC does not apply {missing}", host.name),
            });
        }
    }
    said
}

fn fit_route(route: &mut Route, cluster: &str) -> BTreeSet<&'static str> {
    let mut missing = BTreeSet::new();
    if let Some(of) = &mut route.r#match {
        fit_match(of, &mut missing);
    }
    if route.typed_per_filter_config.keys().any(|filter| filter != FAULT) {
        missing.insert("CORS and other filters than faults");
        route.typed_per_filter_config.retain(|filter, _| filter == FAULT);
    }
    let mut changed = [&route.request_headers_to_add, &route.response_headers_to_add].iter().any(|l| !l.is_empty());
    changed |= !route.request_headers_to_remove.is_empty() || !route.response_headers_to_remove.is_empty();
    if changed {
        missing.insert("operations on headers");
    }
    match &route.action {
        Some(Action::Route(action)) => in_vain(action, &mut missing),
        Some(Action::Redirect(_)) => {
            missing.insert(NOT_FORWARDED);
            fail(route, UNAVAILABLE, cluster);
        }
        Some(Action::DirectResponse(response)) => {
            missing.insert(NOT_FORWARDED);
            let status = response.status;
            fail(route, status, cluster);
        }
        _ => {}
    }
    missing
}

/// Calls on the route fail before an endpoint is chosen. gRPC refuses redirects and direct responses, and gRPC-JavaScript ends
/// its process over a route that does not forward; a fault is one that all take (gRFC A33), with the gRPC status of this HTTP
/// status.
fn fail(route: &mut Route, status: u32, cluster: &str) {
    let always = FractionalPercent { numerator: 100, denominator: DenominatorType::Hundred.into() };
    let error_type = Some(ErrorType::HttpStatus(status));
    let abort = FaultAbort { percentage: Some(always), error_type, ..FaultAbort::default() };
    let fault = HttpFault { abort: Some(abort), ..HttpFault::default() };
    route.typed_per_filter_config.insert(FAULT.to_string(), to_any(&fault));
    let cluster_specifier = Some(ClusterSpecifier::Cluster(cluster.to_string()));
    route.action = Some(Action::Route(RouteAction { cluster_specifier, ..RouteAction::default() }));
}

fn fit_match(of: &mut RouteMatch, missing: &mut BTreeSet<&'static str>) {
    if let Some(PathSpecifier::PathSeparatedPrefix(prefix)) = &of.path_specifier {
        // The path of a call is `/SERVICE/METHOD`: a prefix of one segment is a service, one of two is a call.
        let is_service = prefix.trim_start_matches('/').split('/').count() < 2;
        of.path_specifier = Some(if is_service {
            PathSpecifier::Prefix(format!("{}/", prefix.trim_end_matches('/')))
        } else {
            PathSpecifier::Path(prefix.clone())
        });
    }
    for header in &of.headers {
        match header.name.as_str() {
            ":method" => missing.insert("matches of the method"),
            ":authority" => missing.insert("matches of the authority"),
            ":scheme" => missing.insert("matches of the scheme"),
            _ => header.treat_missing_header_as_empty && missing.insert("withoutHeaders with a value"),
        };
    }
    if !of.query_parameters.is_empty() {
        missing.insert("matches of query parameters");
    }
    if !of.dynamic_metadata.is_empty() {
        missing.insert("matches of claims");
    }
}

/// Fields of an action that gRPC ignores.
fn in_vain(action: &RouteAction, missing: &mut BTreeSet<&'static str>) {
    if !action.prefix_rewrite.is_empty() || action.regex_rewrite.is_some() || action.host_rewrite_specifier.is_some() {
        missing.insert("rewrites");
    }
    if !action.request_mirror_policies.is_empty() {
        missing.insert("mirrors");
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::{
        model::Kind,
        proto::{
            envoy::{
                config::{
                    core::v3::HeaderValueOption,
                    route::v3::{
                        DirectResponseAction, HeaderMatcher, QueryParameterMatcher, RedirectAction,
                        route_action::{HostRewriteSpecifier, RequestMirrorPolicy},
                    },
                },
                r#type::matcher::v3::{MetadataMatcher, RegexMatchAndSubstitute},
            },
            wkt,
        },
    };

    fn fitted(route: Route) -> (Route, Vec<String>) {
        let mut host = VirtualHost {
            domains: ["a.b.", "a.b.:80", "a.b", "a.b:80", "[::1]:80"].map(String::from).to_vec(),
            routes: vec![route],
            ..VirtualHost::default()
        };
        let object = ConfigKey { kind: Kind::VirtualService, namespace: "shop".into(), name: "a".into() };
        let said = fit(&mut host, &[Some(object.clone())], "outbound|80||a.b");
        assert_eq!(host.domains, ["a.b", "a.b:80", "[::1]:80"]);
        assert!(said.iter().all(|said| said.object.as_ref() == Some(&object)));
        (host.routes.remove(0), said.into_iter().map(|said| said.message).collect())
    }

    fn path(specifier: PathSpecifier) -> Route {
        Route {
            r#match: Some(RouteMatch { path_specifier: Some(specifier), ..RouteMatch::default() }),
            action: Some(Action::Route(RouteAction::default())),
            ..Route::default()
        }
    }

    #[test]
    fn a_separated_prefix_is_a_service_or_a_call() {
        for (given, want) in [
            ("/shop.Echo", PathSpecifier::Prefix("/shop.Echo/".to_string())),
            ("/shop.Echo/Say", PathSpecifier::Path("/shop.Echo/Say".to_string())),
        ] {
            let (route, said) = fitted(path(PathSpecifier::PathSeparatedPrefix(given.to_string())));
            assert_eq!(route.r#match.unwrap().path_specifier, Some(want));
            assert!(said.is_empty(), "{said:?}");
        }
    }

    #[test]
    fn fields_that_grpc_refuses_are_left_out_and_named() {
        let mut cors = path(PathSpecifier::Prefix("/".to_string()));
        cors.typed_per_filter_config.insert("envoy.filters.http.cors".to_string(), wkt::Any::default());
        cors.typed_per_filter_config.insert(FAULT.to_string(), wkt::Any::default());
        let (route, said) = fitted(cors);
        assert_eq!(route.typed_per_filter_config.keys().collect::<Vec<_>>(), [FAULT]);
        assert!(said[0].contains("CORS"), "{said:?}");
        for (action, status) in [
            (Action::Redirect(RedirectAction::default()), 503),
            (Action::DirectResponse(DirectResponseAction { status: 403, ..DirectResponseAction::default() }), 403),
        ] {
            let (route, said) = fitted(Route { action: Some(action), ..path(PathSpecifier::Prefix("/".to_string())) });
            let Some(Action::Route(action)) = &route.action else { panic!("{route:?}") };
            assert_eq!(action.cluster_specifier, Some(ClusterSpecifier::Cluster("outbound|80||a.b".to_string())));
            let fault = HttpFault::decode(&*route.typed_per_filter_config[FAULT].value).unwrap();
            assert_eq!(fault.abort.unwrap().error_type, Some(ErrorType::HttpStatus(status)));
            assert_eq!(said.len(), 1);
        }
    }

    /// Each field that gRPC passes over, and its name.
    #[test]
    fn fields_that_grpc_ignores_are_named() {
        let on = |change: fn(&mut Route)| {
            let mut route = path(PathSpecifier::Prefix("/".to_string()));
            change(&mut route);
            fitted(route).1.pop().unwrap_or_default()
        };
        fn match_of(route: &mut Route) -> &mut RouteMatch {
            route.r#match.get_or_insert_default()
        }
        fn header(route: &mut Route, name: &str, treat_missing_header_as_empty: bool) {
            let name = name.to_string();
            match_of(route).headers.push(HeaderMatcher {
                name,
                treat_missing_header_as_empty,
                ..HeaderMatcher::default()
            });
        }
        fn act(route: &mut Route, action: RouteAction) {
            route.action = Some(Action::Route(action));
        }
        fn options() -> Vec<HeaderValueOption> {
            vec![HeaderValueOption::default()]
        }
        let fields: [(fn(&mut Route), &str); 14] = [
            (|r| header(r, ":method", false), "matches of the method"),
            (|r| header(r, ":authority", false), "matches of the authority"),
            (|r| header(r, ":scheme", false), "matches of the scheme"),
            (|r| header(r, "x-a", true), "withoutHeaders with a value"),
            (|r| match_of(r).query_parameters.push(QueryParameterMatcher::default()), "matches of query parameters"),
            (|r| match_of(r).dynamic_metadata.push(MetadataMatcher::default()), "matches of claims"),
            (|r| r.request_headers_to_add = options(), "operations on headers"),
            (|r| r.response_headers_to_add = options(), "operations on headers"),
            (|r| r.request_headers_to_remove.push("x-a".to_string()), "operations on headers"),
            (|r| r.response_headers_to_remove.push("x-a".to_string()), "operations on headers"),
            (|r| act(r, RouteAction { prefix_rewrite: "/x".to_string(), ..RouteAction::default() }), "rewrites"),
            (
                |r| {
                    act(
                        r,
                        RouteAction {
                            regex_rewrite: Some(RegexMatchAndSubstitute::default()),
                            ..RouteAction::default()
                        },
                    )
                },
                "rewrites",
            ),
            (
                |r| {
                    let host = HostRewriteSpecifier::HostRewriteLiteral("x".to_string());
                    act(r, RouteAction { host_rewrite_specifier: Some(host), ..RouteAction::default() });
                },
                "rewrites",
            ),
            (
                |r| {
                    let request_mirror_policies = vec![RequestMirrorPolicy::default()];
                    act(r, RouteAction { request_mirror_policies, ..RouteAction::default() });
                },
                "mirrors",
            ),
        ];
        for (change, name) in fields {
            let said = on(change);
            assert!(said.ends_with(&format!("proxyless gRPC does not apply {name}")), "{name}: {said}");
        }
        assert_eq!(on(|r| header(r, "x-a", false)), "", "other headers are matched");
        let both = on(|r| {
            header(r, ":method", false);
            act(r, RouteAction { prefix_rewrite: "/x".to_string(), ..RouteAction::default() });
        });
        assert!(both.ends_with("does not apply matches of the method, rewrites"), "{both}");
    }
}
