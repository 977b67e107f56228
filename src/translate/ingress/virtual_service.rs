//! VirtualServices of Ingress rules: one per host over all Ingresses, their paths in Kubernetes' order of precedence.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use k8s_openapi::api::networking::v1::{HTTPIngressPath, HTTPIngressRuleValue, IngressBackend};

use super::{
    Inputs, Taken,
    gateway::{SUFFIX, gateway_name},
};
use crate::{
    model::{Config, Kind, Labels, Spec, Timestamp},
    proto::networking::{
        Destination, HttpMatchRequest, HttpRoute, HttpRouteDestination, PortSelector, StringMatch, VirtualService,
        string_match::MatchType,
    },
    translate::draft::{Draft, Output},
};

/// Annotation by which generation matches prefixes at path segments.
const ROUTE_SEMANTICS: &str = "internal.istio.io/route-semantics";

/// A rule with its Ingress.
struct Rule<'a> {
    config: &'a Arc<Config>,
    http: &'a HTTPIngressRuleValue,
}

/// Adds the VirtualServices of all rules, one per host. Of the Ingresses with a host, the first one (by creation, then name,
/// then namespace) determines the name, the namespace and the gateway, as in Istio: the gateways of the others do not serve the
/// host.
pub(super) fn add<'a>(inputs: &Inputs<'a>, taken: &[Taken<'a>], output: &mut Output) {
    let mut hosts: BTreeMap<&str, Vec<Rule<'a>>> = BTreeMap::new();
    for Taken { config, ingress } in taken {
        let Some(spec) = &ingress.spec else { continue };
        if spec.default_backend.is_some() {
            output.report(config.key(), "spec.defaultBackend has no effect".to_string());
        }
        for (index, rule) in spec.rules.iter().flatten().enumerate() {
            let Some(http) = &rule.http else {
                output.report(config.key(), format!("spec.rules[{index}]: without http it has no effect"));
                continue;
            };
            let host = rule.host.as_deref().filter(|h| !h.is_empty()).unwrap_or("*");
            hosts.entry(host).or_default().push(Rule { config, http });
        }
    }
    for (host, rules) in &hosts {
        let (Some(draft), Some(first)) = (virtual_service(inputs, host, rules, output), rules.first()) else {
            continue;
        };
        let name = draft.name.clone();
        if !output.add(draft) {
            output.report(first.config.key(), format!("host {host}: there is a VirtualService {name} already"));
        }
    }
}

fn virtual_service<'a>(inputs: &Inputs<'a>, host: &str, rules: &[Rule<'a>], output: &mut Output) -> Option<Draft> {
    let first = &rules.first()?.config.meta;
    let mut routes = Vec::new();
    for rule in rules {
        for path in &rule.http.paths {
            match route(inputs, &rule.config.meta.namespace, path) {
                Ok(route) => routes.push(route),
                Err(reason) => output.report(rule.config.key(), format!("host {host}: {reason}")),
            }
        }
    }
    routes.sort_by_key(|route| Reverse(precedence(route)));
    let spec = VirtualService {
        hosts: vec![host.to_string()],
        gateways: vec![format!("{}/{}", inputs.gateways, gateway_name(&first.name, &first.namespace))],
        http: routes,
        ..VirtualService::default()
    };
    Some(Draft {
        namespace: first.namespace.clone(),
        name: format!("{}-{}-{SUFFIX}", host.replace('.', "-"), first.name),
        annotations: Labels::from([(ROUTE_SEMANTICS.to_string(), "ingress".to_string())]),
        creation: Timestamp::default(),
        spec: Spec::VirtualService(Arc::new(spec)),
    })
}

/// The precedence of a route: longer paths first, an exact path before a prefix of its length.
fn precedence(route: &HttpRoute) -> (usize, bool) {
    match route.r#match.first().and_then(|m| m.uri.as_ref()).and_then(|u| u.match_type.as_ref()) {
        Some(MatchType::Exact(path)) => (path.len(), true),
        Some(MatchType::Prefix(path)) => (path.len(), false),
        _ => (0, false),
    }
}

fn route<'a>(inputs: &Inputs<'a>, namespace: &'a str, path: &'a HTTPIngressPath) -> Result<HttpRoute, String> {
    let destination = destination(inputs, namespace, &path.backend)?;
    let conditions = uri(path)
        .map(|m| HttpMatchRequest { uri: Some(StringMatch { match_type: Some(m) }), ..HttpMatchRequest::default() });
    Ok(HttpRoute {
        r#match: conditions.into_iter().collect(),
        route: vec![HttpRouteDestination {
            destination: Some(destination),
            weight: 100,
            ..HttpRouteDestination::default()
        }],
        ..HttpRoute::default()
    })
}

/// The path condition. `ImplementationSpecific` reads a trailing `.*` or `/*` as a prefix match.
fn uri(path: &HTTPIngressPath) -> Option<MatchType> {
    let text = path.path.as_deref().unwrap_or_default();
    match path.path_type.as_str() {
        "Exact" => Some(MatchType::Exact(text.to_string())),
        "Prefix" => Some(MatchType::Prefix(text.to_string())),
        _ if matches!(text, "" | "*" | "/*" | ".*") => None,
        _ => match text.strip_suffix(".*").or_else(|| text.strip_suffix("/*")) {
            Some(prefix) => Some(MatchType::Prefix(prefix.to_string())),
            None => Some(MatchType::Exact(text.to_string())),
        },
    }
}

fn destination<'a>(
    inputs: &Inputs<'a>,
    namespace: &'a str,
    backend: &'a IngressBackend,
) -> Result<Destination, String> {
    let service = backend.service.as_ref().ok_or("a backend that is no service has no effect")?;
    let port = service.port.as_ref();
    let number = match port.and_then(|p| p.number).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0) {
        Some(number) => number,
        None => {
            let name = port.and_then(|p| p.name.as_deref()).unwrap_or_default();
            named_port(inputs, namespace, &service.name, name)
                .ok_or_else(|| format!("service {namespace}/{} has no port {name:?}", service.name))?
        }
    };
    Ok(Destination {
        host: format!("{}.{namespace}.svc.{}", service.name, inputs.objects.mesh().domain),
        port: Some(PortSelector { number }),
        ..Destination::default()
    })
}

fn named_port<'a>(inputs: &Inputs<'a>, namespace: &'a str, service: &'a str, name: &str) -> Option<u32> {
    let spec = inputs.get(Kind::Service, namespace, service)?.service()?.spec.as_ref()?;
    let port = spec.ports.iter().flatten().find(|p| p.name.as_deref().unwrap_or_default() == name)?;
    u32::try_from(port.port).ok()
}
