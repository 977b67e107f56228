//! Virtual hosts in the form that gRPC takes: gRPC refuses a whole route configuration for a value that it does not know,
//! and passes over others in silence. What is passed over is named.

use std::collections::BTreeSet;

use crate::{
    generate::route::FAULT,
    proto::envoy::config::route::v3::{
        NonForwardingAction, Route, RouteAction, RouteMatch, VirtualHost, route::Action, route_match::PathSpecifier,
    },
};

/// Changes a virtual host so that gRPC takes it. The answer names the fields of its routes that gRPC does not apply.
pub(super) fn fit(host: &mut VirtualHost) -> Vec<String> {
    // gRPC-Java fails the whole channel over an absolute name.
    host.domains.retain(|domain| !domain.split(':').next().unwrap_or_default().ends_with('.'));
    let mut said = Vec::new();
    for route in &mut host.routes {
        let missing = fit_route(route);
        if !missing.is_empty() {
            let missing = missing.into_iter().collect::<Vec<_>>().join(", ");
            let name = if route.name.is_empty() { "a route".to_string() } else { format!("route {:?}", route.name) };
            said.push(format!("virtual host {:?}: {name}: proxyless gRPC does not apply {missing}", host.name));
        }
    }
    said
}

fn fit_route(route: &mut Route) -> BTreeSet<&'static str> {
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
        Some(Action::Redirect(_) | Action::DirectResponse(_)) => {
            // gRPC refuses these; it fails calls on a route that does not forward.
            missing.insert("redirects and direct responses (calls on the route fail)");
            route.action = Some(Action::NonForwardingAction(NonForwardingAction::default()));
        }
        _ => {}
    }
    missing
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
    use super::*;
    use crate::proto::{
        envoy::config::route::v3::{DirectResponseAction, HeaderMatcher, RedirectAction},
        wkt,
    };

    fn fitted(route: Route) -> (Route, Vec<String>) {
        let mut host = VirtualHost {
            domains: ["a.b.", "a.b.:80", "a.b", "a.b:80", "[::1]:80"].map(String::from).to_vec(),
            routes: vec![route],
            ..VirtualHost::default()
        };
        let said = fit(&mut host);
        assert_eq!(host.domains, ["a.b", "a.b:80", "[::1]:80"]);
        (host.routes.remove(0), said)
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
        for action in [
            Action::Redirect(RedirectAction::default()),
            Action::DirectResponse(DirectResponseAction { status: 200, ..DirectResponseAction::default() }),
        ] {
            let (route, said) = fitted(Route { action: Some(action), ..path(PathSpecifier::Prefix("/".to_string())) });
            assert!(matches!(route.action, Some(Action::NonForwardingAction(_))));
            assert_eq!(said.len(), 1);
        }
    }

    #[test]
    fn fields_that_grpc_ignores_are_named() {
        let mut route = path(PathSpecifier::Prefix("/".to_string()));
        let method = HeaderMatcher { name: ":method".to_string(), ..HeaderMatcher::default() };
        route.r#match.as_mut().unwrap().headers.push(method);
        route.action = Some(Action::Route(RouteAction { prefix_rewrite: "/x".to_string(), ..RouteAction::default() }));
        let (_, said) = fitted(route);
        assert!(said[0].contains("matches of the method, rewrites"), "{said:?}");
    }
}
