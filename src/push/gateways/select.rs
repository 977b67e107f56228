//! The Gateways that apply to a router, the router's services that they name, and the memo of merged results.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::Mutex;

use super::MergedGateway;
use crate::{
    model::{Config, Labels, Protocol, ServiceTarget, labels},
    proto::networking,
    push::ProxyView,
};

/// Host names of the Services that a converted Gateway API Gateway binds to.
const GATEWAY_SERVICE: &str = "internal.istio.io/gateway-service";
/// Namespace of the original object, where it is not the Gateway's.
pub(super) const PARENT_NAMESPACE: &str = "internal.istio.io/parent-namespace";
/// Service account of a Gateway that has a Deployment of its own.
pub(super) const SERVICE_ACCOUNT: &str = "internal.istio.io/service-account-name";
const GATEWAY_SEMANTICS: &str = "internal.istio.io/gateway-semantics";
/// Label of a Service that turns off the translation of Gateway ports.
const DISABLE_PORT_TRANSLATION: &str = "experimental.istio.io/disable-gateway-port-translation";

/// A Gateway that applies to the router.
pub(super) struct Selected<'a> {
    pub config: &'a Config,
    pub gateway: &'a networking::Gateway,
    /// Chosen by labels rather than by naming a Service: ports without a Service port are bound as they are.
    pub by_label: bool,
    /// The router's own service ports that the Gateway may refer to.
    pub targets: Vec<&'a ServiceTarget>,
}

impl<'a> Selected<'a> {
    /// The Gateway, if it applies to a router with these labels and services.
    pub fn of(config: &'a Config, own: &Labels, targets: &'a [ServiceTarget]) -> Option<Self> {
        let gateway = config.gateway()?;
        if let Some(services) = config.meta.annotations.get(GATEWAY_SERVICE) {
            let known: BTreeSet<&str> = services.split(',').collect();
            let namespace = parent_namespace(config);
            let targets: Vec<_> = targets
                .iter()
                .filter(|t| known.contains(&*t.service.hostname) && *t.service.namespace == *namespace)
                .collect();
            return (!targets.is_empty()).then_some(Self { config, gateway, by_label: false, targets });
        }
        labels::matches(&gateway.selector, own).then(|| Self {
            config,
            gateway,
            by_label: true,
            targets: targets.iter().collect(),
        })
    }

    /// The ports that are bound for a server port (Istio's `resolvePorts`): by label the first match or the port itself,
    /// by Service every target port and nothing else.
    pub fn resolve_ports(&self, number: u32) -> Vec<u32> {
        let mut ports: Vec<u32> = Vec::new();
        for target in self.targets.iter().filter(|t| t.port.port == number) {
            if self.by_label && target.service.labels.contains_key(DISABLE_PORT_TRANSLATION) {
                continue;
            }
            if self.by_label {
                return vec![target.target_port];
            }
            if !ports.contains(&target.target_port) {
                ports.push(target.target_port);
            }
        }
        if ports.is_empty() && self.by_label { vec![number] } else { ports }
    }

    /// Whether a Service of the router has this port also for UDP.
    pub fn has_udp(&self, number: u32) -> bool {
        self.targets.iter().any(|t| t.port.port == number && t.port.protocol == Protocol::Udp)
    }

    fn has_gateway_api_semantics(&self) -> bool {
        self.config.meta.annotations.get(GATEWAY_SEMANTICS).is_some_and(|s| s == "gateway")
    }
}

/// Namespace of the object that the Gateway was made from.
pub(super) fn parent_namespace(config: &Config) -> &str {
    match config.meta.annotations.get(PARENT_NAMESPACE) {
        Some(namespace) if !namespace.is_empty() => namespace,
        _ => &config.meta.namespace,
    }
}

/// Where a Gateway API Gateway with a Deployment of its own is present, Istio Gateways of other namespaces do not join it
/// (`PILOT_ENABLE_STRICT_GATEWAY_MERGING`): they could serve its credentials.
pub(super) fn keep_managed_namespaces(selected: &mut Vec<Selected<'_>>) {
    let managed: BTreeSet<Arc<str>> = selected
        .iter()
        .filter(|s| {
            let account = s.config.meta.annotations.get(SERVICE_ACCOUNT);
            s.has_gateway_api_semantics() && account.is_some_and(|a| !a.is_empty())
        })
        .map(|s| s.config.meta.namespace.clone())
        .collect();
    if !managed.is_empty() {
        selected.retain(|s| s.has_gateway_api_semantics() || managed.contains(&s.config.meta.namespace));
    }
}

/// Merged gateways by the fields of a view that they depend on.
#[derive(Debug, Default)]
pub(super) struct Memo(Mutex<HashMap<Key, Option<Arc<MergedGateway>>>>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    namespace: Arc<str>,
    labels: Labels,
    targets: Vec<(u64, u32, u32)>,
}

impl Memo {
    /// Views come from clients; a memo of this size is dropped and begun again.
    const LIMIT: usize = 4096;

    pub fn get_or_merge(
        &self,
        view: &ProxyView,
        merge: impl FnOnce() -> Option<Arc<MergedGateway>>,
    ) -> Option<Arc<MergedGateway>> {
        let key = Key {
            namespace: view.namespace.clone(),
            labels: view.labels.clone(),
            targets: view.targets.iter().map(|t| (t.service.stamp, t.port.port, t.target_port)).collect(),
        };
        let lock = || self.0.lock();
        if let Some(known) = lock().get(&key) {
            return known.clone();
        }
        let merged = merge();
        let mut memo = lock();
        if memo.len() >= Self::LIMIT {
            memo.clear();
        }
        memo.insert(key, merged.clone());
        merged
    }
}
