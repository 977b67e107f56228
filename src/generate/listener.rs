//! Listeners (LDS): those of sidecars, outbound and inbound, and those of gateways.
//!
//! `inputs` holds the inputs of all builders of one proxy, `builder` also the parts that are made once for all chains; `hcm`, `http_filters`, `listener_filters`, `filter_chain`, `tcp`,
//! `telemetry`, `access_log`, `tracing`, `bind` and `tls_context` build the parts that both kinds of proxy use. A stock Envoy is sent
//! nothing that only Istio's build of Envoy has; see `tls_context` for its replacement of the agent's certificates.

pub mod access_log;
pub mod bind;
pub mod builder;
pub mod conflict;
pub mod dynamic_dns;
mod extension_names;
pub mod filter;
pub mod filter_chain;
pub mod gateway;
pub mod hcm;
pub mod http_filters;
pub mod http_options;
pub mod inbound;
pub mod inputs;
pub mod listener_filters;
pub mod outbound;
mod route_names;
pub mod stats;
pub mod tcp;
pub mod telemetry;
pub mod tls_context;
pub mod tracing;

#[cfg(test)]
mod tests;

pub use builder::Builder;
pub use conflict::Conflict;
pub use extension_names::extension_names;
pub use gateway::gateway;
pub use route_names::route_names;

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    generate::check,
    model::{Config, ConfigKey},
    proto::envoy::config::listener::v3::Listener,
    push::{ProxyView, PushContext},
};

/// All listeners of a sidecar, in Istio's order: outbound ones, the HTTP proxy's, `virtualOutbound`, `virtualInbound`,
/// inbound ones with sockets of their own. None when the mesh's `proxyListenPort` is 0.
#[must_use]
pub fn sidecar(context: &PushContext, view: &ProxyView) -> Vec<Listener> {
    let mut listeners = sidecar_outbound(context, &context.outbound_view(view));
    listeners.extend(sidecar_inbound(context, view));
    taken(listeners)
}

/// The listeners as Envoy takes them.
#[must_use]
pub fn taken(listeners: Vec<Listener>) -> Vec<Listener> {
    let taken = |mut listener: Listener| check::listener(&mut listener, |_| None).0.map(|_| listener);
    listeners.into_iter().filter_map(taken).collect()
}

/// The object behind a listener, or behind its filter chain for these server names: the one Gateway that has a server there, or
/// the Sidecar of the workload.
#[must_use]
pub fn object_of(context: &PushContext, view: &ProxyView, listener: &str, names: &[String]) -> Option<ConfigKey> {
    if !view.is_router() {
        return context.scope(view).sidecar.as_deref().map(check::object_of);
    }
    let port = listener.rsplit('_').next()?.parse::<u32>().ok()?;
    let merged = context.merged_gateway(view)?;
    let servers = merged.servers.iter().filter(|(of, _)| of.number == port).flat_map(|(_, servers)| &servers.servers);
    let serves = |hosts: &[String]| names.is_empty() || hosts.iter().any(|host| names.contains(host));
    let gateways: BTreeSet<&str> = servers.filter(|s| serves(&s.sni_hosts)).map(|s| &*s.gateway).collect();
    let [gateway] = gateways.into_iter().collect::<Vec<_>>()[..] else { return None };
    let is_it = |c: &&Arc<Config>| gateway.split_once('/') == Some((&*c.meta.namespace, &*c.meta.name));
    context.gateways.all.iter().find(is_it).map(|config| check::object_of(config))
}

/// The outbound part, from the outbound half of a view.
#[must_use]
pub fn sidecar_outbound(context: &PushContext, half: &ProxyView) -> Vec<Listener> {
    outbound_with_conflicts(context, half).0
}

/// The outbound part, and the services that conflicts kept out of it.
#[must_use]
pub fn outbound_with_conflicts(context: &PushContext, half: &ProxyView) -> (Vec<Listener>, Vec<Conflict>) {
    let (listeners, conflicts, _) = outbound_with_refusals(context, half);
    (listeners, conflicts)
}

/// As [`outbound_with_conflicts`], with the telemetry that is left out.
#[must_use]
pub fn outbound_with_refusals(
    context: &PushContext,
    half: &ProxyView,
) -> (Vec<Listener>, Vec<Conflict>, Vec<check::Refusal>) {
    if context.mesh().config.proxy_listen_port <= 0 {
        return Default::default();
    }
    let builder = Builder::new(context, half);
    let (listeners, conflicts) = outbound::build(&builder);
    (listeners, conflicts, builder.refused())
}

/// The inbound part.
#[must_use]
pub fn sidecar_inbound(context: &PushContext, view: &ProxyView) -> Vec<Listener> {
    inbound_with_conflicts(context, view).0
}

/// The inbound part, and the ports that conflicts kept out of it.
#[must_use]
pub fn inbound_with_conflicts(context: &PushContext, view: &ProxyView) -> (Vec<Listener>, Vec<Conflict>) {
    let (listeners, conflicts, _) = inbound_with_refusals(context, view);
    (listeners, conflicts)
}

/// As [`inbound_with_conflicts`], with the policies in whose place every request is refused and the telemetry that is
/// left out.
#[must_use]
pub fn inbound_with_refusals(
    context: &PushContext,
    view: &ProxyView,
) -> (Vec<Listener>, Vec<Conflict>, Vec<check::Refusal>) {
    if context.mesh().config.proxy_listen_port <= 0 {
        return Default::default();
    }
    let builder = Builder::new(context, view);
    let (listeners, conflicts) = inbound::build(&builder);
    (listeners, conflicts, builder.refused())
}

/// Services that did not get into the listeners of a sidecar: those that want to be matched alike, or that give one port of the
/// workload different protocols.
#[must_use]
pub fn sidecar_conflicts(context: &PushContext, view: &ProxyView) -> Vec<Conflict> {
    let mut conflicts = outbound_with_conflicts(context, &context.outbound_view(view)).1;
    conflicts.extend(inbound_with_conflicts(context, view).1);
    conflicts
}
