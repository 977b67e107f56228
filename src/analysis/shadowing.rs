//! Matches of HTTP rules that an earlier match contains, and matches that no request can fulfil.
//!
//! A match is contained when each of its requests fulfils the earlier one: every condition of the earlier match follows from
//! the conditions of the later. Where that is not certain (regular expressions), nothing is said. Repeated matches and covered
//! prefixes have Istio's own message and none from here.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    code::Code,
    destinations::MESH,
    message::Report,
    routes::{match_name, rule_name},
    world::World,
};
use crate::{
    model::{Config, Kind, host, validation::unreachable},
    proto::networking::{HttpMatchRequest, StringMatch, VirtualService, string_match::MatchType},
};

pub(super) fn analyze(world: &World<'_>, report: &mut Report) {
    for (index, config) in world.list(Kind::VirtualService) {
        let Some(service) = config.virtual_service() else { continue };
        matches_are_reached(report, index, service);
        matches_may_be_true(world, report, (index, config), service);
    }
}

fn matches_are_reached(report: &mut Report, index: usize, service: &VirtualService) {
    let told: BTreeSet<usize> = unreachable(service).iter().filter(|u| u.family == "http").map(|u| u.rule).collect();
    let mut earlier: Vec<(usize, usize, &HttpMatchRequest)> = Vec::new();
    for (rule, http) in service.http.iter().enumerate() {
        for (n, later) in http.r#match.iter().enumerate() {
            let before = earlier.iter().find(|(r, _, first)| *r < rule && contains(first, later));
            if let Some((first_rule, first_match, _)) = before.filter(|_| !told.contains(&rule)) {
                let text = format!(
                    "Match {} of rule {} is never used: match {} of rule {} takes all of its requests.",
                    match_name(service, "http", rule, n),
                    rule_name(service, "http", rule),
                    match_name(service, "http", *first_rule, *first_match),
                    rule_name(service, "http", *first_rule),
                );
                report.add(Code::MatchShadowed, index, format!("spec.http[{rule}].match[{n}]"), text);
            }
            earlier.push((rule, n, later));
        }
    }
}

/// Whether every request that fulfils `narrow` fulfils `wide`.
fn contains(wide: &HttpMatchRequest, narrow: &HttpMatchRequest) -> bool {
    let gateways = wide.gateways.is_empty()
        || (!narrow.gateways.is_empty() && narrow.gateways.iter().all(|g| wide.gateways.contains(g)));
    let labels = wide.source_labels.iter().all(|(key, value)| narrow.source_labels.get(key) == Some(value));
    let namespace = wide.source_namespace.is_empty() || wide.source_namespace == narrow.source_namespace;
    let port = wide.port == 0 || wide.port == narrow.port;
    let case = |text: &str| if wide.ignore_uri_case { text.to_lowercase() } else { text.to_string() };
    // A narrow match that ignores case takes more than its text.
    let uri_case = wide.uri.is_none() || wide.ignore_uri_case || !narrow.ignore_uri_case;
    let path = uri_case && follows(wide.uri.as_ref(), narrow.uri.as_ref(), case);
    let plain = |text: &str| text.to_string();
    let one = |wide: &Option<StringMatch>, narrow: &Option<StringMatch>| follows(wide.as_ref(), narrow.as_ref(), plain);
    let map = |wide: &BTreeMap<String, StringMatch>, narrow: &BTreeMap<String, StringMatch>| {
        wide.iter().all(|(key, condition)| {
            narrow.get(key).is_some_and(|n| is_presence(condition) || follows(Some(condition), Some(n), plain))
        })
    };
    let without = wide.without_headers.iter().all(|(key, value)| narrow.without_headers.get(key) == Some(value));
    gateways
        && labels
        && namespace
        && port
        && path
        && one(&wide.method, &narrow.method)
        && one(&wide.authority, &narrow.authority)
        && one(&wide.scheme, &narrow.scheme)
        && map(&wide.headers, &narrow.headers)
        && map(&wide.query_params, &narrow.query_params)
        && without
}

/// Whether a condition on a header asks for its presence only.
fn is_presence(condition: &StringMatch) -> bool {
    match &condition.match_type {
        None => true,
        Some(MatchType::Prefix(prefix)) => prefix.is_empty(),
        Some(MatchType::Regex(regex)) => regex == ".*",
        Some(MatchType::Exact(_)) => false,
    }
}

/// Whether the wide condition on a text follows from the narrow one.
fn follows(wide: Option<&StringMatch>, narrow: Option<&StringMatch>, case: impl Fn(&str) -> String) -> bool {
    let Some(wide) = wide.and_then(|w| w.match_type.as_ref()) else { return true };
    let narrow = narrow.and_then(|n| n.match_type.as_ref());
    match (wide, narrow) {
        (MatchType::Prefix(w), Some(MatchType::Exact(n) | MatchType::Prefix(n))) => case(n).starts_with(&case(w)),
        (MatchType::Exact(w), Some(MatchType::Exact(n))) => case(w) == case(n),
        (MatchType::Regex(w), Some(MatchType::Regex(n))) => w == n,
        (MatchType::Regex(w), _) => w == ".*",
        _ => false,
    }
}

fn matches_may_be_true(
    world: &World<'_>,
    report: &mut Report,
    (index, config): (usize, &Config),
    service: &VirtualService,
) {
    // The hosts of a delegate are those of its roots.
    if service.hosts.is_empty() {
        return;
    }
    let mesh = [MESH.to_string()];
    let own = if service.gateways.is_empty() { &mesh[..] } else { &service.gateways[..] };
    let mut add = |path: String, why: String| {
        report.add(Code::MatchNeverTrue, index, path, format!("No request fulfils this match: {why}."));
    };
    for (i, http) in service.http.iter().enumerate() {
        for (j, condition) in http.r#match.iter().enumerate() {
            let path = format!("spec.http[{i}].match[{j}]");
            if let Some(why) = foreign_gateways(&condition.gateways, own) {
                add(format!("{path}.gateways"), why);
            }
            let named = if condition.gateways.is_empty() { own } else { &condition.gateways[..] };
            if let Some(ports) = gateway_ports(world, config, named)
                && condition.port != 0
                && !ports.contains(&condition.port)
            {
                add(format!("{path}.port"), format!("no server of its gateways has port {}", condition.port));
            }
            if let Some(authority) = foreign_authority(world, config, service, condition) {
                add(format!("{path}.authority"), format!("{authority:?} is none of the hosts of the object"));
            }
        }
    }
    let tcp = service.tcp.iter().map(|rule| rule.r#match.iter().map(|m| (&m.gateways, m.port)).collect::<Vec<_>>());
    let tls = service.tls.iter().map(|rule| rule.r#match.iter().map(|m| (&m.gateways, m.port)).collect::<Vec<_>>());
    let streams = tcp.enumerate().map(|(i, m)| ("tcp", i, m)).chain(tls.enumerate().map(|(i, m)| ("tls", i, m)));
    for (family, i, conditions) in streams {
        for (j, (gateways, port)) in conditions.into_iter().enumerate() {
            let path = format!("spec.{family}[{i}].match[{j}]");
            if let Some(why) = foreign_gateways(gateways, own) {
                add(format!("{path}.gateways"), why);
            }
            let named = if gateways.is_empty() { own } else { &gateways[..] };
            if let Some(ports) = gateway_ports(world, config, named)
                && port != 0
                && !ports.contains(&port)
            {
                add(format!("{path}.port"), format!("no server of its gateways has port {port}"));
            }
        }
    }
}

/// Why the gateways of a match are none of its object; `None` where one is.
fn foreign_gateways(named: &[String], own: &[String]) -> Option<String> {
    let is_foreign = !named.is_empty() && !named.iter().any(|gateway| own.contains(gateway));
    is_foreign.then(|| format!("its gateways ({}) are none of spec.gateways", named.join(", ")))
}

/// The ports of the servers of these gateways; `None` where one is the mesh, or is not known.
fn gateway_ports(world: &World<'_>, config: &Config, gateways: &[String]) -> Option<BTreeSet<u32>> {
    let mut ports = BTreeSet::new();
    for gateway in gateways {
        let (namespace, bare) = gateway.split_once('/').unwrap_or((&config.meta.namespace, gateway));
        let found = world.find(Kind::Gateway, namespace, bare)?.gateway()?;
        ports.extend(found.servers.iter().filter_map(|server| Some(server.port.as_ref()?.number)));
    }
    (!ports.is_empty()).then_some(ports)
}

/// The authority that a match demands and that no host of the object has, without its port.
fn foreign_authority<'m>(
    world: &World<'_>,
    config: &Config,
    service: &VirtualService,
    condition: &'m HttpMatchRequest,
) -> Option<&'m str> {
    let Some(MatchType::Exact(authority)) = condition.authority.as_ref()?.match_type.as_ref() else { return None };
    let name = authority.rsplit_once(':').filter(|(_, p)| p.parse::<u16>().is_ok()).map_or(&**authority, |(n, _)| n);
    let is_one = |host: &String| {
        let full = world.full_host(host, &config.meta.namespace);
        // Callers write the short forms of the names of the cluster, too.
        host::matches(&full, name) || full.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
    };
    (!service.hosts.iter().any(is_one)).then_some(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(match_type: MatchType) -> HttpMatchRequest {
        HttpMatchRequest { uri: Some(StringMatch { match_type: Some(match_type) }), ..HttpMatchRequest::default() }
    }

    #[test]
    fn a_match_contains_those_whose_conditions_imply_its_own() {
        let (prefix, exact) = (|t: &str| MatchType::Prefix(t.into()), |t: &str| MatchType::Exact(t.into()));
        let regex = |t: &str| MatchType::Regex(t.into());
        let mut with_port = uri(exact("/a"));
        with_port.port = 80;
        let mut with_header = uri(exact("/a"));
        with_header.headers.insert("x".into(), StringMatch { match_type: Some(exact("1")) });
        let mut with_presence = uri(prefix("/"));
        with_presence.headers.insert("x".into(), StringMatch { match_type: None });
        let mut any_case = uri(exact("/A"));
        any_case.ignore_uri_case = true;
        let any = HttpMatchRequest::default();
        for (wide, narrow, expected) in [
            (&uri(prefix("/")), &uri(exact("/a")), true),
            (&uri(prefix("/a")), &uri(exact("/b")), false),
            (&uri(exact("/a")), &uri(prefix("/a")), false),
            (&uri(regex(".*")), &uri(exact("/a")), true),
            (&uri(regex("/.")), &uri(exact("/a")), false),
            (&any, &with_header, true),
            (&with_header, &any, false),
            (&uri(exact("/a")), &with_port, true),
            (&with_port, &uri(exact("/a")), false),
            (&with_presence, &with_header, true),
            (&with_header, &with_presence, false),
            (&any_case, &uri(exact("/a")), true),
            (&uri(exact("/A")), &any_case, false),
        ] {
            assert_eq!(contains(wide, narrow), expected, "{wide:?} {narrow:?}");
        }
    }
}
