//! Full names for the short names inside a VirtualService (Istio's `ResolveVirtualServiceShortnames`).

use std::sync::Arc;

use super::MESH_GATEWAY;
use crate::{
    model::{Config, Spec, host::resolve_short_name},
    proto::networking::{Destination, VirtualService},
};

/// The VirtualService with all hosts and gateways written out; the same `Arc` when there is nothing to write out.
pub(super) fn short_names(config: &Arc<Config>, domain: &str) -> Arc<Config> {
    let Some(spec) = config.virtual_service() else { return config.clone() };
    let resolved = resolved(spec, &config.meta.namespace, domain);
    if resolved == *spec {
        return config.clone();
    }
    Arc::new(Config { spec: Spec::VirtualService(Arc::new(resolved)), ..Config::clone(config) })
}

fn resolved(spec: &VirtualService, namespace: &str, domain: &str) -> VirtualService {
    let mut spec = spec.clone();
    for host in &mut spec.hosts {
        *host = resolve_short_name(host, namespace, domain).to_string();
    }
    gateways(&mut spec.gateways, namespace);
    let destination = |d: &mut Option<Destination>| {
        if let Some(d) = d {
            d.host = resolve_short_name(&d.host, namespace, domain).to_string();
        }
    };
    for http in &mut spec.http {
        http.r#match.iter_mut().for_each(|m| gateways(&mut m.gateways, namespace));
        http.route.iter_mut().for_each(|r| destination(&mut r.destination));
        destination(&mut http.mirror);
        http.mirrors.iter_mut().for_each(|m| destination(&mut m.destination));
    }
    for tcp in &mut spec.tcp {
        tcp.r#match.iter_mut().for_each(|m| gateways(&mut m.gateways, namespace));
        tcp.route.iter_mut().for_each(|r| destination(&mut r.destination));
    }
    for tls in &mut spec.tls {
        tls.r#match.iter_mut().for_each(|m| gateways(&mut m.gateways, namespace));
        tls.route.iter_mut().for_each(|r| destination(&mut r.destination));
    }
    spec
}

fn gateways(names: &mut [String], namespace: &str) {
    for name in names.iter_mut().filter(|n| n.as_str() != MESH_GATEWAY) {
        *name = gateway_name(name, namespace);
    }
}

/// `namespace/name` of a gateway: a short name is one of the same namespace, `./name` too, and the old form
/// `name.namespace.svc.domain` names its namespace.
fn gateway_name(name: &str, namespace: &str) -> String {
    match (name.split_once('/'), name.split_once('.')) {
        (Some((".", rest)), _) => format!("{namespace}/{rest}"),
        (Some(_), _) => name.to_string(),
        (None, None) => format!("{namespace}/{name}"),
        (None, Some((first, rest))) => {
            let gateway_namespace = rest.split('.').next().unwrap_or_default();
            format!("{gateway_namespace}/{first}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::gateway_name;

    #[test]
    fn gateway_names_of_every_form() {
        let cases = [
            ("gw", "ns/gw"),
            ("./gw", "ns/gw"),
            ("other/gw", "other/gw"),
            ("gw.other", "other/gw"),
            ("gw.other.svc.cluster.local", "other/gw"),
            ("other/gw.with.dots", "other/gw.with.dots"),
        ];
        for (written, full) in cases {
            assert_eq!(gateway_name(written, "ns"), full, "{written}");
        }
    }
}
