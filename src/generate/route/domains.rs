//! The `Host` headers by which a service may be called from a proxy: full name, short forms as the proxy's own domain
//! allows, addresses (Istio's `generateVirtualHostDomains`, `GenerateAltVirtualHosts`).

use std::net::IpAddr;

use crate::{
    generate::{addresses, names::host_port},
    model::{Features, Registry, Service, service::UNSPECIFIED_IP},
    push::ProxyView,
};

/// Domains of one virtual host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Domains {
    /// All, in Istio's order.
    pub all: Vec<String>,
    /// Those that are derived from a host name and give way to a service of that very name.
    pub derived: Vec<String>,
}

/// All domains of a service of this host name. `port`: also with that port, for listeners on which the port of the host is looked at.
/// `whole`: the service counts with all its ports and addresses, not just one port of it.
#[must_use]
pub fn virtual_host_domains(
    host: &str,
    service: &Service,
    port: Option<u32>,
    whole: bool,
    view: &ProxyView,
    features: &Features,
) -> Domains {
    let mut domains = Domains::default();
    let aliases = service.aliases.iter().map(|(alias, _)| &**alias);
    for host in std::iter::once(host).chain(aliases) {
        push(&mut domains.all, host, port);
        let derived = alternatives(host, port, &view.dns_domain, features);
        domains.all.extend_from_slice(&derived);
        domains.derived.extend(derived);
    }
    if service.is_passthrough() && service.registry == Registry::Kubernetes {
        let pods: Vec<_> = domains.all.iter().map(|d| format!("*.{d}")).collect();
        domains.all.extend(pods);
    }
    let addresses = match whole {
        true => addresses::all_addresses(service, view, features),
        false => addresses::route_addresses(service, view, features),
    };
    for address in addresses.iter().filter(|a| !a.is_empty() && *a != UNSPECIFIED_IP) {
        push(&mut domains.all, address, port);
    }
    domains
}

/// A host as Envoy reads it: an IPv6 address in brackets.
#[must_use]
pub fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_string() }
}

fn push(domains: &mut Vec<String>, host: &str, port: Option<u32>) {
    domains.push(bracketed(host));
    domains.extend(port.map(|port| host_port(host, port)));
}

/// Other names of a host by which a proxy may call it, in Istio's order.
#[must_use]
pub fn alternatives(host: &str, port: Option<u32>, proxy_domain: &str, features: &Features) -> Vec<String> {
    let mut domains = Vec::new();
    if features.enable_absolute_fqdn_vhost_domain {
        let absolute = format!("{host}.");
        domains.extend(port.map(|port| host_port(&absolute, port)));
        if host.parse::<IpAddr>().is_err() {
            domains.insert(0, absolute);
        }
    }
    if proxy_domain.contains(".svc.") {
        if host.ends_with(without_namespace(proxy_domain)) {
            for short in kubernetes_short_names(host, proxy_domain) {
                push(&mut domains, short, port);
            }
        }
        return domains;
    }
    let (unique, shared) = split_shared_domain(host, proxy_domain);
    if let Some(first_shared) = shared {
        push(&mut domains, unique, port);
        if unique.split('.').count() == 2 {
            push(&mut domains, &format!("{unique}.{first_shared}"), port);
        }
    }
    domains
}

/// `a`, `a.ns.svc`, `a.ns` from the same namespace; `a.ns`, `a.ns.svc` from another.
fn kubernetes_short_names<'a>(host: &'a str, proxy_domain: &str) -> Vec<&'a str> {
    let own_namespace = proxy_domain.split_once(".svc.").map_or(proxy_domain, |(namespace, _)| namespace);
    let Some((with_namespace, _)) = host.split_once(".svc.").filter(|(before, _)| !before.is_empty()) else {
        return Vec::new();
    };
    let with_svc = host.get(..with_namespace.len() + ".svc".len()).unwrap_or(host);
    match with_namespace.split_once('.') {
        Some((name, namespace)) if namespace == own_namespace => vec![name, with_svc, with_namespace],
        Some(_) => vec![with_namespace, with_svc],
        None => Vec::new(),
    }
}

/// `.svc.cluster.local` of `ns.svc.cluster.local`.
fn without_namespace(domain: &str) -> &str {
    domain.find(".svc.").filter(|at| *at > 0).and_then(|at| domain.get(at..)).unwrap_or(domain)
}

/// Splits off the labels that the host has in common with the end of the proxy's domain; gives the rest before them, and the
/// first of them if there are any.
fn split_shared_domain<'a>(host: &'a str, proxy_domain: &str) -> (&'a str, Option<&'a str>) {
    let shared = host.rsplit('.').zip(proxy_domain.rsplit('.')).take_while(|(a, b)| a == b).count();
    if shared == 0 {
        return (host, None);
    }
    let first = host.rsplit('.').nth(shared - 1);
    let tail: usize = host.rsplit('.').take(shared).map(|label| label.len() + 1).sum();
    (host.get(..host.len().saturating_sub(tail)).unwrap_or_default(), first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(host: &str, domain: &str) -> Vec<String> {
        alternatives(host, None, domain, &Features::default())
    }

    #[test]
    fn short_names_depend_on_the_namespace() {
        let own = plain("a.b.svc.cluster.local", "b.svc.cluster.local");
        assert_eq!(own, ["a.b.svc.cluster.local.", "a", "a.b.svc", "a.b"]);
        let other = plain("a.b.svc.cluster.local", "c.svc.cluster.local");
        assert_eq!(other, ["a.b.svc.cluster.local.", "a.b", "a.b.svc"]);
        assert_eq!(plain("www.example.com", "c.svc.cluster.local"), ["www.example.com."]);
        assert_eq!(plain(".svc.cluster.local", "c.svc.cluster.local"), [".svc.cluster.local."]);
    }

    #[test]
    fn other_domains_share_their_end() {
        assert_eq!(plain("foo.local.campus.net", "local.campus.net"), ["foo.local.campus.net.", "foo"]);
        assert_eq!(
            plain("foo.local.campus.net", "remote.campus.net"),
            ["foo.local.campus.net.", "foo.local", "foo.local.campus"]
        );
        assert_eq!(plain("foo.local.campus.net", "example.com"), ["foo.local.campus.net."]);
        assert_eq!(plain("foo.local.campus.net", ""), ["foo.local.campus.net."]);
        assert_eq!(plain("campus.net", "campus.net"), ["campus.net.", ""]);
    }

    #[test]
    fn with_a_port_every_form_comes_twice() {
        let domains = alternatives("a.b.svc.cluster.local", Some(80), "c.svc.cluster.local", &Features::default());
        let expected =
            ["a.b.svc.cluster.local.", "a.b.svc.cluster.local.:80", "a.b", "a.b:80", "a.b.svc", "a.b.svc:80"];
        assert_eq!(domains, expected);
        assert!(alternatives("10.0.0.1", None, "", &Features::default()).is_empty());
    }
}
