//! VirtualService: hosts, gateways, TLS and TCP routes. HTTP routes have a file of their own.

use super::{address, check::Check, destination, header, http_route, names, range, unreachable};
use crate::{
    model::{Config, host},
    proto::networking::{L4MatchAttributes, TlsMatchAttributes, VirtualService},
};

const SEMANTICS: &str = "internal.istio.io/route-semantics";

pub(super) fn validate(c: &mut Check, config: &Config, service: &VirtualService) {
    let delegate = service.hosts.is_empty();
    if delegate {
        for (name, unset) in [
            ("gateways", service.gateways.is_empty()),
            ("tls", service.tls.is_empty()),
            ("tcp", service.tcp.is_empty()),
        ] {
            c.need(unset, format_args!("{name} cannot be set in a delegate (an object without hosts); remove it"));
        }
    }
    let named = config.meta.annotations.get(SEMANTICS).is_none_or(|v| v != "gateway");
    names::gateways(c, &service.gateways, !named);
    let gateway = is_gateway(service);
    if !gateway {
        c.each("http", &service.http, |c, route| {
            let claims = route
                .r#match
                .iter()
                .flat_map(|m| m.headers.keys().chain(m.without_headers.keys()))
                .any(|name| header::is_jwt_claim(name));
            c.need(!claims, "match: routing by JWT claims is for gateways only");
        });
    }
    hosts(c, service, gateway);
    c.need(
        !(service.http.is_empty() && service.tcp.is_empty() && service.tls.is_empty()),
        "one of http, tcp and tls is required",
    );
    c.each("http", &service.http, |c, route| http_route::validate(c, route, delegate, named));
    c.each("tls", &service.tls, |c, route| {
        c.need(!route.r#match.is_empty(), "match: at least one is required");
        c.each("match", &route.r#match, |c, condition| tls_match(c, condition, service));
        destination::list(c, &route.route, named);
    });
    c.errors_only(|c| {
        c.each("tcp", &service.tcp, |c, route| {
            c.each("match", &route.r#match, tcp_match);
            destination::list(c, &route.route, named);
        });
    });
    names::export_to(c, &config.meta.namespace, &service.export_to, names::Export::Plain);
    unreachable::warn(c, service);
}

fn is_gateway(service: &VirtualService) -> bool {
    !service.gateways.is_empty() && !service.gateways.iter().any(|g| g == "mesh")
}

fn hosts(c: &mut Check, service: &VirtualService, gateway: bool) {
    let sni = service.tls.iter().flat_map(|t| &t.r#match).any(|m| !m.sni_hosts.is_empty());
    let mut sound = true;
    c.each("hosts", &service.hosts, |c, name| {
        let answer = if gateway { names::gateway_domain(sni, name) } else { names::wildcard_domain(name) };
        match answer {
            Err(text) if !address::is_ip(name) => {
                c.error(text);
                sound = false;
            }
            Ok(()) if !gateway && name == "*" => {
                c.error("'*' alone is for gateways; name a domain, or name a gateway");
                sound = false;
            }
            _ => {}
        }
    });
    if !sound {
        return;
    }
    for (i, a) in service.hosts.iter().enumerate() {
        if let Some(b) = service.hosts.iter().skip(i + 1).find(|b| host::matches(a, b)) {
            c.at("hosts", |c| c.error(format_args!("{a:?} and {b:?} overlap; remove one")));
        }
    }
}

fn tls_match(c: &mut Check, condition: &TlsMatchAttributes, service: &VirtualService) {
    c.need(!condition.sni_hosts.is_empty(), "sniHosts: at least one is required");
    c.each("sniHosts", &condition.sni_hosts, |c, name| {
        // Without gateways the names are those of the mesh, and there Istio tests for the `mesh` gateway by name.
        let gateway = !service.gateways.iter().any(|g| g == "mesh");
        let answer = if gateway { names::gateway_domain(true, name) } else { names::wildcard_domain(name) };
        match answer {
            Err(_) if address::is_ip(name) => c.warn("an IP address is no SNI name; most clients do not send it"),
            Err(text) => c.error(text),
            Ok(()) => c.need(
                service.hosts.iter().any(|h| host::subset_of(name, h)),
                format_args!("{name:?} is not covered by the hosts of the object; add it there"),
            ),
        }
    });
    subnets(c, &condition.destination_subnets, condition.port);
    names::labels(c, "sourceLabels", &condition.source_labels);
    names::gateways(c, &condition.gateways, false);
}

fn tcp_match(c: &mut Check, condition: &L4MatchAttributes) {
    subnets(c, &condition.destination_subnets, condition.port);
    names::labels(c, "sourceLabels", &condition.source_labels);
    names::gateways(c, &condition.gateways, false);
}

fn subnets(c: &mut Check, subnets: &[String], port: u32) {
    for text in subnets {
        c.field("destinationSubnets", address::subnet(text));
    }
    if port != 0 {
        c.field("port", range::port(port));
    }
}
