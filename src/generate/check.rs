//! Values that Envoy would refuse are found before they are sent, and left out alone.
//!
//! Envoy takes or refuses a route configuration, a cluster or a listener as a whole, so one value that it does not like takes
//! everything beside it along. Here each resource is compared with the rules of Envoy's own .proto files (a table that
//! proto/build.rs writes) and with the demands of Envoy's code beyond them: the syntax of RE2, formats of headers, sums of
//! weights. A virtual host loses single routes, a listener single filter chains, a load assignment single endpoints. A route
//! whose match is good and whose action is not stays, and answers 500: requests must not fall through to the routes behind
//! it. Pure; a resource is judged by itself, and named with the object that it was made from.

mod fields;
mod format;
mod re2;
mod shown;
mod special;
mod walk;

use std::net::IpAddr;

use prost::{Message, Name};

pub use format::check as format;
pub use re2::check as regex;
pub use walk::{Violation, violations};

use crate::{
    model::{Config, ConfigKey, Kind},
    proto::envoy::config::{
        cluster::v3::Cluster,
        core::v3::address::Address as AddressKind,
        endpoint::v3::ClusterLoadAssignment,
        listener::v3::{FilterChain, Listener},
        route::v3::{DirectResponseAction, Route, VirtualHost, route::Action},
    },
};

/// Annotation of translated objects that names those they were made from.
const PARENTS: &str = "internal.istio.io/parents";
/// The status of routes whose action is refused.
const FAILED: u32 = 500;

/// Something that is left out, since Envoy would refuse it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The object that it was made from, where that is known.
    pub object: Option<ConfigKey>,
    /// The omission and its reason, for a person.
    pub message: String,
}

impl Refusal {
    /// Something that is left out.
    #[must_use]
    pub const fn new(object: Option<ConfigKey>, message: String) -> Self {
        Self { object, message }
    }
}

/// A message that Envoy takes, encoded, or the reasons why it would not.
///
/// # Errors
/// The rules that the message breaks.
pub fn encoded<M: Message + Name>(message: &M) -> Result<Vec<u8>, Vec<Violation>> {
    let bytes = message.encode_to_vec();
    let found = violations(&M::full_name(), &bytes);
    if found.is_empty() { Ok(bytes) } else { Err(found) }
}

/// Reasons in one line.
#[must_use]
pub fn reasons(found: &[Violation]) -> String {
    let one = |v: &Violation| if v.field.is_empty() { v.reason.clone() } else { format!("{}: {}", v.field, v.reason) };
    found.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// The object that users know behind a config: one of Gateway API or Ingress where it was translated from such.
#[must_use]
pub fn object_of(config: &Config) -> ConfigKey {
    let parent = config.meta.annotations.get(PARENTS).and_then(|parents| {
        let (kind, rest) = parents.split(',').next()?.split_once('/')?;
        let (name, namespace) = rest.rsplit_once('.')?;
        let kind = Kind::ALL.iter().find(|k| k.as_str() == kind)?;
        let name = name.split('/').next().unwrap_or(name);
        Some(ConfigKey { kind: *kind, namespace: namespace.into(), name: name.into() })
    });
    parent.unwrap_or_else(|| config.key())
}

/// The rest of a virtual host: its bytes, and the parts that are not in them.
#[derive(Debug, Default)]
pub struct CheckedHost {
    /// `None` when no domain is left.
    pub host: Option<VirtualHost>,
    /// The bytes of the host; empty without one.
    pub bytes: Vec<u8>,
    /// The routes and domains that are left out or answer 500.
    pub refused: Vec<Refusal>,
}

/// Checks a virtual host. `objects` gives the objects that its routes were made from, one for each route.
#[must_use]
pub fn virtual_host(mut host: VirtualHost, objects: impl FnOnce() -> Vec<Option<ConfigKey>>) -> CheckedHost {
    let found = match encoded(&host) {
        Ok(bytes) => return CheckedHost { host: Some(host), bytes, refused: Vec::new() },
        Err(found) => found,
    };
    let mut refused = Vec::new();
    let name = host.name.clone();
    let objects = objects();
    let first = objects.first().cloned().flatten();
    let mut objects = objects.into_iter();
    let routes = std::mem::take(&mut host.routes);
    for route in routes {
        let object = objects.next().flatten();
        let Err(found) = encoded(&route) else {
            host.routes.push(route);
            continue;
        };
        let what = if route.name.is_empty() { "a route".to_string() } else { format!("route {:?}", route.name) };
        let failing = Some(failing(route)).filter(|failing| encoded(failing).is_ok());
        let fate = if failing.is_some() { "answers 500" } else { "is left out" };
        host.routes.extend(failing);
        let message = format!("virtual host {name:?}: {what} {fate}: {}", reasons(&found));
        refused.push(Refusal::new(object, message));
    }
    let domains = std::mem::take(&mut host.domains);
    for domain in domains {
        let alone = VirtualHost { name: "x".to_string(), domains: vec![domain.clone()], ..VirtualHost::default() };
        match encoded(&alone) {
            Ok(_) => host.domains.push(domain),
            Err(found) => {
                let message = format!("virtual host {name:?}: domain {domain:?} is left out: {}", reasons(&found));
                refused.push(Refusal::new(first.clone(), message));
            }
        }
    }
    match encoded(&host) {
        Ok(bytes) => CheckedHost { host: Some(host), bytes, refused },
        Err(_) => {
            let message = format!("virtual host {name:?} is left out: {}", reasons(&found));
            refused.push(Refusal::new(first, message));
            CheckedHost { host: None, bytes: Vec::new(), refused }
        }
    }
}

/// The same route with an action that fails every request.
fn failing(route: Route) -> Route {
    let Route { name, r#match, metadata, decorator, stat_prefix, .. } = route;
    let action = Action::DirectResponse(DirectResponseAction { status: FAILED, ..DirectResponseAction::default() });
    Route { name, r#match, metadata, decorator, stat_prefix, action: Some(action), ..Route::default() }
}

/// Checks a cluster. `object` gives the object that it was made from.
///
/// # Errors
/// The reason why Envoy would refuse it.
pub fn cluster(
    cluster: Cluster,
    object: impl FnOnce() -> Option<ConfigKey>,
) -> Result<(Cluster, Vec<u8>), Box<Refusal>> {
    match encoded(&cluster) {
        Ok(bytes) => Ok((cluster, bytes)),
        Err(found) => {
            let message = format!("cluster {} is left out: {}", cluster.name, reasons(&found));
            Err(Box::new(Refusal::new(object(), message)))
        }
    }
}

/// Checks a listener: of a filter chain that Envoy would refuse only its match stays, so that it closes its connections and
/// they do not fall to a chain that lets more in (STRICT for a port, beside PERMISSIVE for the workload). Gives the bytes of
/// the listener; `None` where no chain is left, or Envoy would refuse it all the same. `object` gives the object behind a
/// chain for these server names.
#[must_use]
pub fn listener(
    listener: &mut Listener,
    object: impl Fn(&[String]) -> Option<ConfigKey>,
) -> (Option<Vec<u8>>, Vec<Refusal>) {
    let found = match encoded_listener(listener) {
        Ok(bytes) => return (Some(bytes), Vec::new()),
        Err(found) => found,
    };
    let mut refused = Vec::new();
    let name = listener.name.clone();
    let (had_chains, mut has_chains) = (!listener.filter_chains.is_empty(), false);
    // Envoy takes no chain of QUIC without its transport socket.
    let may_close = listener.udp_listener_config.is_none();
    listener.filter_chains.retain_mut(|chain| {
        let Err(found) = encoded(chain) else {
            has_chains = true;
            return true;
        };
        let hosts = chain.filter_chain_match.iter().flat_map(|m| &m.server_names).cloned().collect::<Vec<_>>();
        let shown = if hosts.is_empty() { "any name".to_string() } else { hosts.join(", ") };
        *chain = closing(chain);
        let closes = may_close && encoded(chain).is_ok();
        let fate = if closes { "closes its connections" } else { "is left out" };
        let message = format!("listener {name}: a filter chain for {shown} {fate}: {}", reasons(&found));
        refused.push(Refusal::new(object(&hosts), message));
        closes
    });
    let empty = had_chains && !has_chains && listener.default_filter_chain.is_none();
    match encoded_listener(listener) {
        Ok(bytes) if !empty => (Some(bytes), refused),
        _ => {
            let message = format!("listener {name} is left out: {}", reasons(&found));
            refused.push(Refusal::new(object(&[]), message));
            (None, refused)
        }
    }
}

/// The reason why Envoy would refuse a listener as it stands, if it would.
#[must_use]
pub fn listener_fault(listener: &Listener) -> Option<String> {
    encoded_listener(listener).err().map(|found| reasons(&found))
}

/// The same chain without filters: Envoy closes its connections.
fn closing(chain: &FilterChain) -> FilterChain {
    FilterChain {
        name: chain.name.clone(),
        filter_chain_match: chain.filter_chain_match.clone(),
        ..FilterChain::default()
    }
}

/// As [`encoded`]. Envoy resolves no names in a listener's own addresses.
fn encoded_listener(listener: &Listener) -> Result<Vec<u8>, Vec<Violation>> {
    let additional = listener.additional_addresses.iter().filter_map(|a| a.address.as_ref());
    let names = listener.address.iter().chain(additional).filter_map(|address| match &address.address {
        Some(AddressKind::SocketAddress(socket)) if socket.address.parse::<IpAddr>().is_err() => Some(&socket.address),
        _ => None,
    });
    let mut found: Vec<Violation> = names
        .map(|name| Violation {
            field: "address".to_string(),
            reason: format!("{} is no IP address", shown::shown(name.as_bytes())),
        })
        .collect();
    match encoded(listener) {
        Ok(bytes) if found.is_empty() => Ok(bytes),
        Ok(_) => Err(found),
        Err(more) => {
            found.extend(more);
            Err(found)
        }
    }
}

/// The rest of a load assignment, and the parts that are not in it.
#[derive(Debug)]
pub struct CheckedAssignment {
    /// The load assignment.
    pub assignment: ClusterLoadAssignment,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The endpoints that are left out.
    pub refused: Vec<Refusal>,
}

/// Checks a load assignment: endpoints that Envoy would refuse are left out. `object` gives the object that it was made from.
#[must_use]
pub fn load_assignment(
    mut assignment: ClusterLoadAssignment,
    object: impl FnOnce() -> Option<ConfigKey>,
) -> CheckedAssignment {
    let found = match encoded(&assignment) {
        Ok(bytes) => return CheckedAssignment { assignment, bytes, refused: Vec::new() },
        Err(found) => found,
    };
    for group in &mut assignment.endpoints {
        group.lb_endpoints.retain(|endpoint| encoded(endpoint).is_ok());
    }
    assignment.endpoints.retain(|group| encoded(group).is_ok());
    let message = format!("cluster {}: endpoints are left out: {}", assignment.cluster_name, reasons(&found));
    let bytes = match encoded(&assignment) {
        Ok(bytes) => bytes,
        Err(_) => {
            assignment.endpoints.clear();
            assignment.encode_to_vec()
        }
    };
    CheckedAssignment { assignment, bytes, refused: vec![Refusal::new(object(), message)] }
}

#[cfg(test)]
mod tests;
