//! The building of a scope (Istio's `convertToSidecarScope`, `DefaultSidecarScopeForGateway`).

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use super::{EgressListener, ScopeSource, SidecarScope, listener::with_ports, services::ScopeServices};
use crate::{
    model::{Config, Hostname, Registry, Service},
    proto::networking::OutboundTrafficPolicy,
    push::{
        context::PushContext,
        destination_rules::MergedDestinationRule,
        virtual_services::{MESH_GATEWAY, destinations},
    },
};

const DEFAULT_SIDECAR: &str = "default-sidecar";

impl SidecarScope {
    /// The scope of a namespace from this source.
    pub(in crate::push) fn build(context: &PushContext, namespace: &Arc<str>, source: ScopeSource<'_>) -> Self {
        match source {
            ScopeSource::Router => Self::for_router(context, namespace),
            ScopeSource::Nothing => Self::of_nothing(context, namespace),
            ScopeSource::Sidecar(sidecar) => Self::for_sidecar(context, namespace, Some(sidecar)),
            ScopeSource::Default => Self::for_sidecar(context, namespace, None),
        }
    }

    /// The scope for the workloads of a namespace, under a Sidecar or without one.
    fn for_sidecar(context: &PushContext, namespace: &Arc<str>, sidecar: Option<&Arc<Config>>) -> Self {
        let spec = sidecar.and_then(|config| config.sidecar());
        let mut egress: Vec<EgressListener> = spec
            .map_or(&[][..], |s| &s.egress)
            .iter()
            .map(|listener| EgressListener::build(context, namespace, Some(listener)))
            .collect();
        if egress.is_empty() {
            egress.push(EgressListener::build(context, namespace, None));
        }
        let services = imported_services(context, namespace, &egress);
        let policy = spec.and_then(|s| s.outbound_traffic_policy.clone());
        Self::assemble(context, namespace, sidecar, egress, services, policy)
    }

    /// The scope for routers of a namespace: all services that the namespace may see.
    fn for_router(context: &PushContext, namespace: &Arc<str>) -> Self {
        let mut services = ScopeServices::default();
        for service in context.services.visible_to(&context.inputs, namespace) {
            services.add(&service);
        }
        let virtual_services = context.virtual_services.for_namespace(namespace, MESH_GATEWAY);
        let egress = EgressListener {
            spec: None,
            services: Vec::new(),
            virtual_services,
            most_specific_virtual_services: HashMap::new(),
        };
        Self::assemble(context, namespace, None, vec![egress], services, None)
    }

    /// No service and no route.
    fn of_nothing(context: &PushContext, namespace: &Arc<str>) -> Self {
        Self::assemble(context, namespace, None, Vec::new(), ScopeServices::default(), None)
    }

    fn assemble(
        context: &PushContext,
        namespace: &Arc<str>,
        sidecar: Option<&Arc<Config>>,
        egress: Vec<EgressListener>,
        services: ScopeServices,
        policy: Option<OutboundTrafficPolicy>,
    ) -> Self {
        let mesh_policy = context.mesh().config.outbound_traffic_policy.as_ref();
        let outbound_traffic_policy = policy
            .or_else(|| mesh_policy.map(|p| OutboundTrafficPolicy { mode: p.mode, ..OutboundTrafficPolicy::default() }))
            .unwrap_or_default();
        let is_contested = services.is_contested;
        let mut scope = Self {
            name: sidecar.map_or_else(|| DEFAULT_SIDECAR.into(), |config| config.meta.name.clone()),
            namespace: namespace.clone(),
            sidecar: sidecar.cloned(),
            egress,
            services_by_host: services.by_host(),
            services: services.list,
            destination_rules: HashMap::new(),
            selected_destination_rules: HashMap::new(),
            outbound_traffic_policy,
            stamp: 0,
            others: HashSet::new(),
        };
        if is_contested {
            scope.others = scope.other_services();
        }
        scope.select_destination_rules(context);
        scope.stamp = scope.computed_stamp();
        scope
    }

    fn other_services(&self) -> HashSet<(Hostname, Arc<str>)> {
        let listed = self.egress.iter().flat_map(|listener| &listener.services);
        let others = listed.filter(|s| !self.has_service(&s.hostname, &s.namespace));
        others.map(|s| (s.hostname.clone(), s.namespace.clone())).collect()
    }

    fn select_destination_rules(&mut self, context: &PushContext) {
        for service in &self.services {
            let (host, namespace) = (&service.hostname, &service.namespace);
            let rules = context.destination_rules.candidates(&context.inputs, &self.namespace, host, namespace);
            if let Some(rule) = rules.iter().rfind(|rule| rule.selector().is_none()) {
                self.destination_rules.insert(host.clone(), rule.clone());
            }
            if rules.iter().any(|rule| rule.selector().is_some()) {
                self.selected_destination_rules.insert(host.clone(), rules);
            }
        }
    }

    fn computed_stamp(&self) -> u128 {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        let mut stamp = |stamp: u64| hash.update(&stamp.to_le_bytes());
        stamp(self.sidecar.as_ref().map_or(0, |config| config.stamp));
        for listener in &self.egress {
            stamp(listener.services.len() as u64);
            listener.services.iter().for_each(|s| stamp(s.stamp));
            stamp(listener.virtual_services.len() as u64);
            listener.virtual_services.iter().for_each(|c| stamp(c.stamp));
        }
        for service in &self.services {
            stamp(service.stamp);
            let rule_stamp = |rule: &Arc<MergedDestinationRule>| rule.stamp;
            stamp(self.destination_rules.get(&service.hostname).map_or(0, rule_stamp));
            let selected = self.selected_destination_rules.get(&service.hostname);
            selected.into_iter().flatten().for_each(|rule| stamp(rule_stamp(rule)));
        }
        hash.update(self.namespace.as_bytes());
        hash.update(&self.outbound_traffic_policy.mode.to_le_bytes());
        hash.digest128()
    }
}

/// The services that the listeners import, then those that their VirtualServices lead to.
fn imported_services(context: &PushContext, namespace: &Arc<str>, egress: &[EgressListener]) -> ScopeServices {
    let mut services = ScopeServices::with_capacity(egress.iter().map(|listener| listener.services.len()).sum());
    for listener in egress {
        listener.services.iter().for_each(|s| services.add(s));
        for config in &listener.virtual_services {
            let Some(spec) = config.virtual_service() else { continue };
            for (host, ports) in destinations(spec, namespace) {
                let Some(service) = destination_service(context, namespace, host) else { continue };
                if let Some(service) = restricted(service, listener, &ports) {
                    services.add(&service);
                }
            }
        }
    }
    services
}

/// The service that a VirtualService's destination means for a namespace: its own, else the best visible one
/// (`PILOT_SIDECAR_PICK_BEST_SERVICE_NAMESPACE`: Kubernetes', else the oldest), else the first namespace by name.
fn destination_service<'a>(context: &'a PushContext, namespace: &str, host: &str) -> Option<&'a Arc<Service>> {
    let of_host = context.services.of_host(host);
    if let Some(own) = of_host.iter().find(|s| *s.namespace == *namespace) {
        return Some(own);
    }
    let mut visible = of_host.iter().filter(|s| context.services.is_visible(s, namespace));
    if context.features().sidecar_pick_best_service_namespace {
        visible.min_by_key(|s| (s.registry != Registry::Kubernetes, s.creation_time))
    } else {
        visible.by_ref().min_by_key(|s| s.namespace.clone())
    }
}

/// The service with the ports that the listener, or else the VirtualService, asks for; port 0 asks for all.
fn restricted(service: &Arc<Service>, listener: &EgressListener, ports: &BTreeSet<u32>) -> Option<Arc<Service>> {
    match listener.matched_port() {
        Some(port) => with_ports(service, |p| p == port),
        None if ports.is_empty() || ports.contains(&0) => Some(service.clone()),
        None => with_ports(service, |p| ports.contains(&p)),
    }
}
