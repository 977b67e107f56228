//! Parents of routes: the listeners, or services of the mesh, that a route is bound to, and the reasons others are refused.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    class::MESH_CONTROLLER,
    input::Input,
    listener,
    listening::Parent,
    reference::{GROUP, Grants, GroupKind},
    types::ParentReference,
};
use crate::model::{ConfigKey, Kind, Labels, host};

const USE_WAYPOINT: &str = "istio.io/use-waypoint";
const USE_WAYPOINT_NAMESPACE: &str = "istio.io/use-waypoint-namespace";

/// The inputs of a route's translation.
pub struct RouteContext<'a> {
    /// All decoded objects.
    pub input: &'a Input<'a>,
    /// All ReferenceGrants.
    pub grants: &'a Grants,
    parents: BTreeMap<ConfigKey, Vec<&'a Parent>>,
}

/// The reason a route is not bound to a listener, the most specific one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DenialReason {
    /// The listener does not admit the route's namespace or kind.
    NotAllowedByListeners,
    /// Route and listener have no common host.
    NoMatchingListenerHostname,
    /// The parent, section or port does not exist.
    NoMatchingParent,
}

impl DenialReason {
    /// The reason of the condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotAllowedByListeners => "NotAllowedByListeners",
            Self::NoMatchingListenerHostname => "NoMatchingListenerHostname",
            Self::NoMatchingParent => "NoMatchingParent",
        }
    }
}

/// The refusal of a route by a parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// Reason of the condition.
    pub reason: DenialReason,
    /// Message of the condition.
    pub message: String,
}

/// One parent of a route: a listener or the mesh.
#[derive(Debug, Clone)]
pub struct Binding {
    /// Index of the reference in the route.
    pub index: usize,
    /// The reference as written.
    pub reference: ParentReference,
    /// The referenced object: a Gateway, a ListenerSet, a Service or a ServiceEntry.
    pub target: ConfigKey,
    /// `NAMESPACE/NAME` of the Istio Gateway, or `mesh`.
    pub internal_name: String,
    /// Host name of the listener.
    pub hostname: String,
    /// Name of the listener.
    pub section: String,
    /// The reason the route is not bound; `None` when it is.
    pub denial: Option<Denial>,
    /// The reason a waypoint does not receive the route.
    pub waypoint_problem: Option<&'static str>,
    banned: BTreeSet<String>,
}

impl Binding {
    /// Whether the parent is a service of the mesh.
    pub fn is_mesh(&self) -> bool {
        self.internal_name == "mesh"
    }

    /// Whether the host belongs to this listener, and not to one on the same port with a more specific host.
    pub fn is_isolated_to(&self, route_host: &str) -> bool {
        let own = self.hostname.as_str();
        if !own.is_empty() && !host::is_wildcard(own) {
            return true;
        }
        if !own.is_empty() && !host::matches(route_host, own) {
            return false;
        }
        !self.banned.iter().any(|other| own.len() <= other.len() && host::subset_of(route_host, other))
    }
}

impl<'a> RouteContext<'a> {
    /// A context with all listeners.
    pub fn new(input: &'a Input<'a>, grants: &'a Grants, all: &'a [Parent]) -> Self {
        let mut parents: BTreeMap<ConfigKey, Vec<&Parent>> = BTreeMap::new();
        for parent in all {
            parents.entry(parent.owner.clone()).or_default().push(parent);
        }
        Self { input, grants, parents }
    }

    /// The parents of a route, in the order of its references. References to kinds that Istio does not handle are left out.
    pub fn bindings(
        &self,
        kind: Kind,
        namespace: &str,
        references: &[ParentReference],
        hostnames: &[String],
    ) -> Vec<Binding> {
        let mut found = Vec::new();
        for (index, reference) in references.iter().enumerate() {
            let Some(target) = target(reference, namespace) else { continue };
            let bind = |internal_name: String, denial, waypoint_problem| Binding {
                index,
                reference: reference.clone(),
                target: target.clone(),
                internal_name,
                hostname: String::new(),
                section: String::new(),
                denial,
                waypoint_problem,
                banned: BTreeSet::new(),
            };
            if matches!(target.kind, Kind::Service | Kind::ServiceEntry) {
                if !self.is_foreign_waypoint(&target) {
                    let (denial, problem) = self.mesh_problems(&target);
                    found.push(bind("mesh".into(), denial, problem));
                }
                continue;
            }
            let listeners = self.parents.get(&target).map_or(&[][..], Vec::as_slice);
            for parent in listeners {
                let same_port = |p: &&&Parent| p.port == parent.port && p.protocol == parent.protocol;
                let others = listeners.iter().filter(same_port).map(|p| p.original_hostname.clone());
                let mut banned: BTreeSet<String> = others.collect();
                banned.remove(&parent.original_hostname);
                let denial = denial(parent, kind, reference, hostnames, namespace);
                found.push(Binding {
                    hostname: parent.original_hostname.clone(),
                    section: parent.section_name.clone(),
                    banned,
                    ..bind(parent.internal_name.clone(), denial, None)
                });
            }
        }
        found.sort_by_cached_key(|binding| reference_text(&binding.reference, namespace));
        found
    }

    /// Whether another controller runs the service's waypoint, and so handles its routes.
    fn is_foreign_waypoint(&self, target: &ConfigKey) -> bool {
        let objects = self.input.objects;
        let Some(object) = objects.get(target.kind, &target.namespace, &target.name) else { return false };
        let mut labels: &Labels = &object.meta.labels;
        if !labels.contains_key(USE_WAYPOINT) {
            let Some(of_namespace) = self.input.namespace_labels(&target.namespace) else { return false };
            labels = of_namespace;
        }
        let Some(name) = labels.get(USE_WAYPOINT).filter(|n| is_named(n)) else { return false };
        let given = labels.get(USE_WAYPOINT_NAMESPACE).filter(|n| !n.is_empty());
        let namespace = given.map_or(&*target.namespace, String::as_str);
        let Some(waypoint) = self.input.gateway(namespace, name) else { return false };
        let class = self.input.classes.iter().find(|c| c.name() == waypoint.spec.gateway_class_name);
        class.is_some_and(|class| {
            let controller = &class.spec.controller_name;
            controller != MESH_CONTROLLER && *controller != objects.features().gateway_api_controller_name
        })
    }

    /// The problems of a parent in the mesh: the service does not exist, or no waypoint receives its routes.
    fn mesh_problems(&self, target: &ConfigKey) -> (Option<Denial>, Option<&'static str>) {
        const MISSING: &str = "istio.io/use-waypoint label missing from parent and parent namespace; in ambient mode, \
                               route will not be respected";
        let what = if target.kind == Kind::Service { "service" } else { "service entry" };
        let Some(object) = self.input.objects.get(target.kind, &target.namespace, &target.name) else {
            let message = format!("parent {what}: {:?} not found", &*target.name);
            let denial = Denial { reason: DenialReason::NoMatchingParent, message };
            return (Some(denial), Some("parent not found"));
        };
        let has = |labels: &Labels| labels.get(USE_WAYPOINT).is_some_and(|name| is_named(name));
        let of_namespace = self.input.namespace_labels(&target.namespace);
        let missing = !has(&object.meta.labels) && of_namespace.is_some_and(|labels| !has(labels));
        (None, missing.then_some(MISSING))
    }
}

fn is_named(waypoint: &str) -> bool {
    !waypoint.is_empty() && !waypoint.eq_ignore_ascii_case("none")
}

/// The referenced object, if Istio supports its kind as a parent.
fn target(reference: &ParentReference, namespace: &str) -> Option<ConfigKey> {
    const PARENTS: [Kind; 4] = [Kind::KubernetesGateway, Kind::Service, Kind::ServiceEntry, Kind::ListenerSet];
    let named = GroupKind::normalized(reference.group.as_deref(), reference.kind.as_deref(), Kind::KubernetesGateway);
    let kind = PARENTS.into_iter().find(|kind| named.is(*kind))?;
    let namespace = reference.namespace.as_deref().unwrap_or(namespace);
    Some(ConfigKey { kind, namespace: namespace.into(), name: reference.name.as_str().into() })
}

/// A reference as text with defaults filled in: the key by which references are ordered and found in a status.
pub fn reference_text(reference: &ParentReference, namespace: &str) -> String {
    format!(
        "{}/{}/{}/{}/{}.{}",
        reference.group.as_deref().unwrap_or(GROUP),
        reference.kind.as_deref().unwrap_or("Gateway"),
        reference.name,
        reference.section_name.as_deref().unwrap_or_default(),
        reference.port.unwrap_or_default(),
        reference.namespace.as_deref().unwrap_or(namespace),
    )
}

/// The reason the listener refuses the route.
fn denial(
    parent: &Parent,
    kind: Kind,
    reference: &ParentReference,
    hostnames: &[String],
    namespace: &str,
) -> Option<Denial> {
    let deny = |reason, message: String| Some(Denial { reason, message });
    let wanted_port = reference.port.unwrap_or_default();
    if wanted_port != 0 && wanted_port != parent.port {
        return deny(DenialReason::NoMatchingParent, format!("port {wanted_port} not found"));
    }
    let section = reference.section_name.as_deref().unwrap_or_default();
    if !section.is_empty() && section != parent.section_name {
        return deny(DenialReason::NoMatchingParent, format!("sectionName {section:?} not found"));
    }
    let any = ["*".to_string()];
    let hostnames = if hostnames.is_empty() { &any } else { hostnames };
    let (mut host_matched, mut matched) = (parent.hostnames.is_empty(), parent.hostnames.is_empty());
    for hostname in hostnames {
        for allowed in &parent.hostnames {
            let (allowed_namespace, allowed_host) = allowed.split_once('/').unwrap_or(("*", allowed));
            let same_host = host::matches(allowed_host, hostname);
            host_matched |= same_host;
            matched |= same_host && (allowed_namespace == "*" || allowed_namespace == namespace);
        }
    }
    let original = &parent.original_hostname;
    if !matched && host_matched {
        let message = format!(
            "hostnames matched parent hostname {original:?}, but namespace {namespace:?} is not allowed by the parent"
        );
        return deny(DenialReason::NotAllowedByListeners, message);
    }
    if !matched {
        let message = format!("no hostnames matched parent hostname {original:?}");
        return deny(DenialReason::NoMatchingListenerHostname, message);
    }
    if !listener::admits(&parent.allowed_kinds, kind) {
        return deny(DenialReason::NotAllowedByListeners, format!("kind {} is not allowed", kind.gvk()));
    }
    None
}
