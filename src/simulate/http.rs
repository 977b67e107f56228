//! Virtual host and route matching. Coarser than Envoy on purpose: headers, methods and query parameters are ignored, a
//! path-separated prefix counts as a plain one, and a regular expression may match anywhere.

use regex::Regex;

use super::{Call, CallTls, Outcome};
use crate::proto::envoy::config::route::v3::{
    Route, RouteConfiguration, VirtualHost, route::Action, route_action::ClusterSpecifier, route_match::PathSpecifier,
    virtual_host::TlsRequirementType,
};

pub(super) fn route(config: &RouteConfiguration, call: &Call, outcome: &mut Outcome) -> Result<(), &'static str> {
    let host = if config.ignore_port_in_host_matching { without_port(&call.host) } else { &call.host };
    let virtual_host = virtual_host(&config.virtual_hosts, host).ok_or("no virtual host matched")?;
    outcome.virtual_host.clone_from(&virtual_host.name);
    if virtual_host.require_tls() == TlsRequirementType::All && call.tls == CallTls::Plaintext {
        return Err("tls required, sending 301");
    }
    let route = virtual_host.routes.iter().find(|r| path_matches(r, &call.path)).ok_or("no route matched")?;
    outcome.route.clone_from(&route.name);
    if let Some(Action::Route(action)) = &route.action
        && let Some(ClusterSpecifier::Cluster(cluster)) = &action.cluster_specifier
    {
        outcome.cluster.clone_from(cluster);
    }
    Ok(())
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            if name.contains(':') && !name.ends_with(']') {
                host
            } else {
                name.trim_start_matches('[').trim_end_matches(']')
            }
        }
        _ => host,
    }
}

/// The virtual host by exact domain, then by the longest `*suffix`, then by the longest `prefix*`, then by `*`.
fn virtual_host<'a>(hosts: &'a [VirtualHost], host: &str) -> Option<&'a VirtualHost> {
    let all = || hosts.iter().flat_map(|v| v.domains.iter().map(move |d| (v, d.as_str())));
    if let Some((v, _)) = all().find(|(_, d)| *d == host) {
        return Some(v);
    }
    let longest = |covers: &dyn Fn(&str) -> bool| {
        let mut best: Option<(&'a VirtualHost, usize)> = None;
        for (v, d) in all() {
            if covers(d) && host.len() >= d.len() && best.is_none_or(|(_, length)| d.len() > length) {
                best = Some((v, d.len()));
            }
        }
        best.map(|(v, _)| v)
    };
    longest(&|d| d.strip_prefix('*').is_some_and(|suffix| host.ends_with(suffix)))
        .or_else(|| longest(&|d| d.strip_suffix('*').is_some_and(|prefix| host.starts_with(prefix))))
        .or_else(|| all().find(|(_, d)| *d == "*").map(|(v, _)| v))
}

fn path_matches(route: &Route, path: &str) -> bool {
    match route.r#match.as_ref().and_then(|m| m.path_specifier.as_ref()) {
        Some(PathSpecifier::Prefix(prefix) | PathSpecifier::PathSeparatedPrefix(prefix)) => path.starts_with(prefix),
        Some(PathSpecifier::Path(exact)) => path == exact,
        Some(PathSpecifier::SafeRegex(regex)) => Regex::new(&regex.regex).is_ok_and(|r| r.is_match(path)),
        _ => false,
    }
}
