//! Backends of routes: the object that a reference resolves to, and the permission to use it.

use super::{conditions::Problem, parent::RouteContext, pool, reference::GroupKind, types::route::BackendReference};
use crate::{
    model::Kind,
    proto::networking::{Destination, PortSelector, RouteDestination},
    translate::draft::PoolRule,
};

const NOT_FOUND: &str = "BackendNotFound";
const INVALID_KIND: &str = "InvalidKind";
const INVALID: &str = "InvalidDestination";

/// The referring route: its kind and namespace. Routes of the mesh need no grant.
#[derive(Clone, Copy)]
pub struct Referrer<'a> {
    /// Kind of the route.
    pub kind: Kind,
    /// Namespace of the route.
    pub namespace: &'a str,
    /// Whether the rules are for the mesh.
    pub mesh: bool,
}

/// A resolved reference. A backend that cannot be used stays, as a destination that answers 500.
pub struct Backend {
    /// The destination; empty when the reference does not resolve.
    pub destination: Destination,
    /// The endpoint picker, if the backend is an InferencePool.
    pub pool: Option<PoolRule>,
    /// The reason the backend cannot be used.
    pub problem: Option<Problem>,
}

impl Backend {
    fn unusable(reason: &'static str, message: String) -> Self {
        Self { destination: Destination::default(), pool: None, problem: Some(Problem::new(reason, message)) }
    }
}

fn not_found(what: &str) -> Problem {
    Problem::new(NOT_FOUND, format!("backend({what}) not found"))
}

fn destination(host: String, port: u32) -> Destination {
    Destination { host, port: Some(PortSelector { number: port }), ..Destination::default() }
}

/// Resolves a backend reference.
///
/// # Errors
/// The problem that makes the whole rule invalid.
pub fn resolve(context: &RouteContext<'_>, from: Referrer<'_>, to: &BackendReference) -> Result<Backend, Problem> {
    let input = context.input;
    let features = input.objects.features();
    let kind = GroupKind::normalized(to.group.as_deref(), to.kind.as_deref(), Kind::Service);
    let namespace = to.namespace.as_deref().unwrap_or(from.namespace);
    let granted = || context.grants.allow((from.kind, from.namespace), &kind, namespace, &to.name);
    if !from.mesh && namespace != from.namespace && !granted() {
        let message = format!(
            "backendRef {}/{namespace} not accessible to a {} in namespace {:?} (missing a ReferenceGrant?)",
            to.name, from.kind, from.namespace
        );
        return Ok(Backend::unusable("RefNotPermitted", message));
    }
    let cluster_host = || format!("{}.{namespace}.svc.{}", to.name, input.domain());
    let is_service = || input.objects.get(Kind::Service, namespace, &to.name).is_some();
    let (host, found) = if kind.is(Kind::XBackend) {
        return Ok(external(context, to, namespace));
    } else if kind.is(Kind::InferencePool) {
        return Ok(match pool::resolve(context, to, namespace)? {
            Ok((destination, rule)) => Backend { destination, pool: Some(rule), problem: None },
            Err(problem) => Backend { destination: Destination::default(), pool: None, problem: Some(problem) },
        });
    } else if kind.is(Kind::Service) {
        if to.name.contains('.') {
            let message = "service name invalid; the name of the Service must be used, not the hostname.";
            return Err(Problem::new(INVALID, message));
        }
        (cluster_host(), is_service())
    } else if kind.group == Kind::ServiceEntry.group() && kind.kind == "Hostname" {
        if to.namespace.is_some() {
            return Err(Problem::new(INVALID, "namespace may not be set with Hostname type"));
        }
        (to.name.clone(), input.service(&to.name, namespace).is_some())
    } else if kind.group == features.mcs_api_group && kind.kind == "ServiceImport" {
        let clusterset = format!("{}.{namespace}.svc.clusterset.local", to.name);
        (if features.enable_mcs_host { clusterset } else { cluster_host() }, is_service())
    } else {
        let (group, kind) = (to.group.as_deref().unwrap_or_default(), to.kind.as_deref().unwrap_or_default());
        let message = format!("referencing unsupported backendRef: group {group:?} kind {kind:?}");
        return Ok(Backend::unusable(INVALID_KIND, message));
    };
    let Some(port) = to.port else { return Err(Problem::new(INVALID, "port is required in backendRef")) };
    let problem = (!found).then(|| not_found(&host));
    Ok(Backend { destination: destination(host, port), pool: None, problem })
}

/// An XBackend: an external host with its own port.
fn external(context: &RouteContext<'_>, to: &BackendReference, namespace: &str) -> Backend {
    let input = context.input;
    if !input.objects.features().enable_alpha_gateway_api {
        let message = "The Alpha Gateway API is not enabled, XBackend is invalid. To enable, set \
                       PILOT_ENABLE_ALPHA_GATEWAY_API to true in istiod.";
        return Backend::unusable(INVALID_KIND, message.to_string());
    }
    let backend = input.backends.iter().find(|b| b.namespace() == namespace && b.name() == to.name);
    let Some(backend) = backend else {
        return Backend::unusable(NOT_FOUND, format!("backend({}) not found", to.name));
    };
    let spec = &backend.spec;
    let Some(external) = spec.external_hostname.as_ref().filter(|_| spec.r#type == "ExternalHostname") else {
        let message = format!("backend({}) type: expected ExternalHostname, got {}", to.name, spec.r#type);
        return Backend::unusable(INVALID_KIND, message);
    };
    let (host, port) = (&external.hostname, spec.port.port);
    if let Some(asked) = to.port.filter(|asked| *asked != port) {
        let message = format!("backend({}) does not expose port {asked}, expected {port}", to.name);
        return Backend::unusable(NOT_FOUND, message);
    }
    let problem = input.service(host, namespace).is_none().then(|| not_found(host));
    Backend { destination: destination(host.clone(), port), pool: None, problem }
}

/// The sum of the weights; at 0 the rule has no destination.
pub fn total_weight(backends: &[BackendReference]) -> i64 {
    backends.iter().map(|b| i64::from(b.weight())).sum()
}

/// The backends with a weight above 0, with their weights; a single one gets no explicit weight.
pub fn weighted(backends: &[BackendReference]) -> Vec<(&BackendReference, i32)> {
    let mut all: Vec<_> = backends.iter().map(|b| (b, b.weight())).filter(|(_, w)| *w != 0).collect();
    if let [(_, weight)] = all.as_mut_slice() {
        *weight = 0;
    }
    all
}

/// Destinations of a TCP or TLS rule, and the problem of those that cannot be used.
///
/// # Errors
/// The problem that makes the whole rule invalid.
pub fn stream_destinations(
    context: &RouteContext<'_>,
    from: Referrer<'_>,
    backends: &[BackendReference],
) -> Result<(Vec<RouteDestination>, Option<Problem>), Problem> {
    if total_weight(backends) == 0 {
        let nowhere =
            Destination { subset: "zero-weight".into(), ..destination("internal.cluster.local".into(), 65535) };
        return Ok((vec![RouteDestination { destination: Some(nowhere), weight: 0 }], None));
    }
    let (mut all, mut problem) = (Vec::new(), None);
    for (to, weight) in weighted(backends) {
        let backend = resolve(context, from, to)?;
        problem = backend.problem.or(problem);
        all.push(RouteDestination { destination: Some(backend.destination), weight });
    }
    Ok((all, problem))
}
